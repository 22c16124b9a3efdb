"""How the library itself calls a model on a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.errors import ConfigError, ModelError

Forward = Callable[[nn.Module, Data], Tensor]


def default_forward(model: nn.Module, data: Data) -> Tensor:
    """``model(x, edge_index)``, with ``edge_weight`` and ``edge_attr`` where data has and the signature names them."""
    edges = data.get("edge_index")
    if edges is None:
        edges = data.adj_t
    extra = {key: data[key] for key in ("edge_weight", "edge_attr") if data.get(key) is not None}
    names, takes_anything = _arguments(model)
    if takes_anything and not set(extra) <= names:
        raise ModelError(
            f"The graph has {' and '.join(extra)}, and the model's signature (**kwargs) does not tell whether it takes "
            "them; pass forward=lambda model, data: model(...)."
        )
    return model(data.x, edges, **{key: value for key, value in extra.items() if key in names})  # type: ignore[no-any-return]


def checked_forward(forward: object) -> Forward:
    """How to call a model: the user's way, or the default for None."""
    if forward is None:
        return default_forward
    if not callable(forward):
        raise ConfigError(f"forward is a {type(forward).__name__}; expected a function of the model and the data.")
    return forward


def _arguments(model: nn.Module) -> tuple[set[str], bool]:
    """Names of a model's arguments, and whether it takes others besides."""
    from aggbuffer.model import BufferedGNN  # which needs this module

    model = getattr(model, "_orig_mod", model)  # a compiled model keeps the original here
    gnn = model.base if isinstance(model, BufferedGNN) else model
    declared: Any = getattr(gnn, "signature", None)  # torch_geometric.nn.Sequential keeps its own
    if hasattr(declared, "param_dict"):
        return set(declared.param_dict), False
    parameters = inspect.signature(gnn.forward).parameters
    return set(parameters), any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def checked_logits(logits: object, num_nodes: int) -> Tensor:
    """The model's answer, if it is one row of outputs per node."""
    if isinstance(logits, Tensor) and logits.dim() == 1 and logits.size(0) == num_nodes:
        return logits.unsqueeze(-1)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.size(0) != num_nodes:
        found = (
            f"a tensor of shape {list(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        )
        raise ModelError(
            f"The model returned {found}; expected logits of shape [{num_nodes}, classes]. If it returns something "
            "else, pass forward=lambda model, data: <the logits>."
        )
    return logits
