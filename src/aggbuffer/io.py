"""Save buffers to one safetensors file, and load them onto their base model again. Nothing is ever unpickled."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
import torch_geometric
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from aggbuffer.attach import attach_known, check_carries_none
from aggbuffer.config import BufferConfig, PathLike
from aggbuffer.errors import AggBufferError, BufferFileError, ModelTypeError
from aggbuffer.files import checked_path, write_safetensors
from aggbuffer.fingerprint import dtype_name, dtype_named, fingerprint, precision_of, probe_of, structure_of
from aggbuffer.forward import Forward
from aggbuffer.hops import K_HOP
from aggbuffer.layers import LayerSpec, check_model
from aggbuffer.model import BufferedGNN
from aggbuffer.version import __version__

__all__ = ["BufferHeader", "SavedLayer", "fingerprint", "load", "read_header", "save"]

FORMAT = "aggbuffer"
FORMAT_VERSION = 1

_PROBE = "base.probe"
# What a layer says about itself; a change of any of these makes it another layer.
_DECLARATIONS = ("in_channels", "out_channels", "heads", "concat", "K")


@dataclass(frozen=True)
class SavedLayer:
    """One layer that the buffers in a file belong to.

    Attributes:
        spec: The layer as ``attach`` found it.
        class_name: Its class.
        declared: Its own words on its size, such as ``in_channels``.
    """

    spec: LayerSpec
    class_name: str
    declared: Mapping[str, Any]


@dataclass(frozen=True)
class BufferHeader:
    """What a buffer file says about itself.

    Attributes:
        library_version: Of the aggbuffer that wrote it; ``torch_version`` and ``pyg_version`` likewise.
        config: Where and how the buffer acts.
        layers: The layers it acts on, in the order they run.
        num_features: Width of the node features.
        num_parameters: How many the buffers have.
        fingerprint: Of the base, see :func:`fingerprint`.
        structure: A digest of the names and shapes in the base's state.
        precision: The coarsest floating-point type of the base.
        frozen: Whether the base could be frozen without changing a bit of its answers.
        extra: What the caller of :func:`save` added.
    """

    library_version: str
    torch_version: str
    pyg_version: str
    config: BufferConfig
    layers: tuple[SavedLayer, ...]
    num_features: int
    num_parameters: int
    fingerprint: str
    structure: str
    precision: str
    frozen: bool
    extra: Mapping[str, str]


def save(model: BufferedGNN, path: PathLike, *, extra: Mapping[str, str] | None = None) -> None:
    """Write the buffers, but not the base, to one safetensors file.

    The file appears whole or not at all.

    Args:
        model: A model with buffers.
        path: Where to.
        extra: Notes to keep with the buffers, such as scores.

    Raises:
        BufferFileError: If the file cannot be written.
    """
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, BufferedGNN):
        raise ModelTypeError(f"The model is a {type(model).__name__}; only a BufferedGNN can be saved.")
    tensors = {**model.blocks.state_dict(), _PROBE: probe_of(model.base)}
    modules = dict(model.base.named_modules())
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "library_version": __version__,
        "torch_version": str(torch.__version__),
        "pyg_version": str(torch_geometric.__version__),
        "config": json.dumps(model.config.to_dict()),
        "layers": json.dumps([_layer_to_json(spec, modules[spec.name]) for spec in model.layers]),
        "num_features": str(model.num_features),
        "fingerprint": fingerprint(model.base),
        "structure": structure_of(model.base),
        "precision": precision_of(model.base),
        "frozen": json.dumps(not any(parameter.requires_grad for parameter in model.base.parameters())),
        "extra": json.dumps({str(key): str(value) for key, value in (extra or {}).items()}),
    }
    write_safetensors(tensors, path, metadata)


def load(gnn: nn.Module, path: PathLike, *, strict: bool = True, forward: Forward | None = None) -> BufferedGNN:
    """Attach the buffers of a file to the base model that they were trained with.

    The model is not run. It may be on another device or in another floating-point type than when the file was
    written; the buffers follow it.

    Args:
        gnn: The base.
        path: A file that :func:`save` wrote.
        strict: Refuse a base whose weights are not those the buffers were trained with; else warn.
        forward: As for :func:`aggbuffer.attach`.

    Raises:
        BufferFileError: If the file cannot be read, or is not for this base; the base is untouched then.
    """
    check_model(gnn)
    check_carries_none(gnn)
    header, tensors = _read(path)
    specs = [_matching_spec(layer, gnn, path) for layer in header.layers]
    if reason := _difference(gnn, header, tensors.pop(_PROBE)):
        message = f"{path} was made for another base model: {reason}."
        if strict:
            raise BufferFileError(f"{message} Load the base's own weights first, or pass strict=False.")
        warnings.warn(message, UserWarning, stacklevel=2)
    model = attach_known(gnn, specs, header.config, header.num_features, forward=forward, freeze=header.frozen)
    try:
        model.blocks.load_state_dict(tensors)
    except RuntimeError as error:
        model._release()
        raise BufferFileError(f"{path} is damaged: its buffers do not fit the layers it names.") from error
    return model


def read_header(path: PathLike) -> BufferHeader:
    """What a buffer file holds; needs no base model."""
    return _read(path)[0]


def _difference(gnn: nn.Module, header: BufferHeader, probe: Tensor) -> str:
    """In what way a base is not the one that the buffers were trained with; empty if it is."""
    if fingerprint(gnn) == header.fingerprint:
        return ""
    if structure_of(gnn) != header.structure:
        return "its parameters have other names or shapes"
    here = precision_of(gnn)
    if here != header.precision:
        info = max(torch.finfo(dtype_named(here)), torch.finfo(dtype_named(header.precision)), key=lambda i: i.eps)
        tiny = info.smallest_normal * info.eps
        if torch.allclose(probe_of(gnn), probe, rtol=info.eps, atol=tiny, equal_nan=True):
            return ""
    return f"the weights differ (fingerprint {fingerprint(gnn)[:12]}, expected {header.fingerprint[:12]})"


def _declared(conv: nn.Module) -> dict[str, Any]:
    values = {key: getattr(conv, key, None) for key in _DECLARATIONS}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    return {key: value for key, value in plain.items() if isinstance(value, int | list)}


def _layer_to_json(spec: LayerSpec, conv: nn.Module) -> dict[str, Any]:
    values = {key: value for key, value in asdict(spec).items() if key != "device"}
    values["dtype"] = dtype_name(spec.dtype)
    return {**values, "class_name": type(conv).__name__, "declared": _declared(conv)}


def _layer_from_json(values: dict[str, Any]) -> SavedLayer:
    class_name, declared = values.pop("class_name"), values.pop("declared")
    values["dtype"] = dtype_named(values["dtype"])
    return SavedLayer(LayerSpec(**values, device=torch.device("cpu")), class_name, declared)


def _matching_spec(layer: SavedLayer, gnn: nn.Module, path: PathLike) -> LayerSpec:
    """The layer's description in the type and on the device that the base has now."""
    name = layer.spec.name
    modules = dict(gnn.named_modules())
    if name not in modules:
        raise BufferFileError(
            f"{path} has a buffer for the layer {name!r}, which this model lacks; pass the model that it was made for."
        )
    conv = modules[name]
    if type(conv).__name__ != layer.class_name:
        raise BufferFileError(
            f"{path} has a buffer for a {layer.class_name} at {name!r}, but this model has a {type(conv).__name__} "
            "there; pass the model that it was made for."
        )
    for key, value in _declared(conv).items():
        if layer.declared.get(key, value) != value:
            raise BufferFileError(
                f"{path} has a buffer for a layer {name!r} with {key}={layer.declared[key]}, but this model has "
                f"{key}={value} there; pass the model that it was made for."
            )
    inner = getattr(conv, layer.spec.mlp, None) if layer.spec.mlp else None
    fits = {"output": True, "mlp": isinstance(inner, nn.Module), "hops": isinstance(conv, K_HOP)}
    if not fits.get(layer.spec.kind, False):
        raise BufferFileError(f"{path} is damaged: a {layer.class_name} has no {layer.spec.kind!r} to put a buffer at.")
    weights = [p for p in (*conv.parameters(), *gnn.parameters()) if p.is_floating_point()]
    return replace(layer.spec, dtype=weights[0].dtype, device=weights[0].device) if weights else layer.spec


def _read(path: PathLike) -> tuple[BufferHeader, dict[str, Tensor]]:
    if not checked_path(path).is_file():
        raise BufferFileError(f"There is no file {path}; expected one that aggbuffer.save wrote.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = cast(dict[str, str], file.metadata() or {})
            _check_format(metadata, path)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if _PROBE not in tensors:
            raise KeyError(_PROBE)
        return _header(metadata, tensors), tensors
    except BufferFileError:
        raise
    except SafetensorError as error:
        raise BufferFileError(f"{path} is not a safetensors file, or is truncated ({error}).") from error
    except OSError as error:
        raise BufferFileError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (KeyError, ValueError, TypeError, AttributeError, AggBufferError) as error:
        raise BufferFileError(f"{path} is damaged: its description cannot be read ({error}).") from error


def _check_format(metadata: Mapping[str, str], path: PathLike) -> None:
    if metadata.get("format") != FORMAT:
        raise BufferFileError(
            f"{path} is a safetensors file, but not one that aggbuffer.save wrote; for the authors' checkpoints use "
            "aggbuffer.interop.load_reference."
        )
    if int(metadata["format_version"]) > FORMAT_VERSION:
        raise BufferFileError(
            f"{path} was written by aggbuffer {metadata.get('library_version')}, which is newer than this one "
            f"({__version__}); upgrade aggbuffer."
        )


def _header(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> BufferHeader:
    return BufferHeader(
        library_version=metadata["library_version"],
        torch_version=metadata["torch_version"],
        pyg_version=metadata["pyg_version"],
        config=BufferConfig.from_dict(json.loads(metadata["config"])),
        layers=tuple(_layer_from_json(layer) for layer in json.loads(metadata["layers"])),
        num_features=int(metadata["num_features"]),
        num_parameters=sum(value.numel() for name, value in tensors.items() if name != _PROBE),
        fingerprint=metadata["fingerprint"],
        structure=metadata["structure"],
        precision=metadata["precision"],
        frozen=bool(json.loads(metadata["frozen"])),
        extra=json.loads(metadata["extra"]),
    )
