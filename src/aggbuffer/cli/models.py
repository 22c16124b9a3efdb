"""The user's model: found by name, built, and given its weights without unpickling anything."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data

from aggbuffer.errors import ConfigError, ModelError
from aggbuffer.store import GraphStore

_NESTED = ("state_dict", "model_state_dict", "model")  # where checkpoints keep a model's own state
_NAMED = 3  # how many differing parameters a message lists


def build_model(spec: str, data: Data | GraphStore) -> nn.Module:
    """Build the model that ``package.module:factory`` or ``file.py:factory`` names.

    The factory is called with the graph if it takes a parameter. Its random numbers start from seed 0, so that the
    same command builds the same model; the global generator is left as it was.

    Raises:
        ConfigError: If ``spec`` is not of that form.
        ModelError: If the factory is not there, fails, or returns something else.
    """
    location, colon, name = spec.rpartition(":")
    if not colon or not location or not name:
        raise ConfigError(f"--model is {spec!r}; expected package.module:factory or file.py:factory.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        factory = _attribute(_user_code(lambda: _module(location), location), name, location)
        if isinstance(factory, nn.Module):
            return factory
        if not callable(factory):
            raise ModelError(f"{spec} is a {type(factory).__name__}; expected a function that returns the model.")
        model = _user_code(lambda: factory(data) if _takes_graph(factory) else factory(), spec)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec} returned a {type(model).__name__}; expected a torch.nn.Module.")
    return model


def load_weights(model: nn.Module, path: Path) -> None:
    """Give a model its weights from ``.safetensors`` or from a state_dict saved with ``torch.save``.

    Raises:
        ModelError: If the file cannot be read safely, or its parameters are not the model's, naming them.
    """
    found, expected = _read_state(path), model.state_dict()
    problems = [
        *_listed("it lacks", [name for name in expected if name not in found]),
        *_listed("the model has no", [name for name in found if name not in expected]),
        *_listed(
            "other shapes:",
            [
                f"{name} {list(found[name].shape)} instead of {list(value.shape)}"
                for name, value in expected.items()
                if name in found and not is_lazy(value) and found[name].shape != value.shape
            ],
        ),
    ]
    if problems:
        raise ModelError(f"The weights in {path} do not fit {type(model).__name__}: {'; '.join(problems)}.")
    model.load_state_dict(found)


def _module(location: str) -> ModuleType:
    if not location.endswith(".py"):
        sys.path.insert(0, "")  # as ``python -m`` does; the folder the user is in
        return importlib.import_module(location)
    path = Path(location).resolve()
    if not path.is_file():
        raise ModelError(f"There is no file {location}; --model expects file.py:factory or package.module:factory.")
    sys.path.insert(0, str(path.parent))  # so that the file can import its neighbours, as a script can
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, location: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise ModelError(f"{location} has no {name!r}; name a function in it that returns the model.")
        value = getattr(value, part)
    return value


def _takes_graph(factory: Callable[..., Any]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in positional for parameter in inspect.signature(factory).parameters.values())


def _user_code(run: Callable[[], Any], what: str) -> Any:
    """Run the user's own code; its failures are the user's to mend, so they are told with their reason."""
    try:
        return run()
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise ModelError(f"{what} failed ({reason}); run again with --debug to see where.") from error


def _read_state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ModelError(f"There is no file {path}; --weights expects a state_dict, as .safetensors or .pt.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of what it then refuses
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read as safetensors: it is cut short or of another kind.") from error
    except Exception as error:  # a damaged or unsafe file fails in as many ways as there are bytes
        raise ModelError(
            f"{path} cannot be read without unpickling objects, which could run code, or is damaged; save the weights "
            "with torch.save(model.state_dict(), path) or as safetensors."
        ) from error
    for key in _NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ModelError(f"{path} holds a {type(content).__name__} that is no state_dict; save model.state_dict().")
    return dict(content)


def _listed(told: str, names: list[str]) -> list[str]:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"{told} {', '.join(names[:_NAMED])}{more}"] if names else []
