"""Which message-passing layers a model runs, in what order, how wide they are; and what cannot carry a buffer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import GCNConv, GENConv, GINConv, GINEConv, MessagePassing, SGConv

from aggbuffer import hops
from aggbuffer.config import BufferConfig
from aggbuffer.errors import ModelError, ModelTypeError
from aggbuffer.graph import Graph

Kind = Literal["output", "mlp", "hops"]

# Layers that pass their aggregation through an MLP of their own, and the name of that MLP.
_INNER_MLP: dict[type[nn.Module], str] = {GINConv: "nn", GINEConv: "nn", GENConv: "mlp"}


@dataclass(frozen=True)
class LayerSpec:
    """One message-passing layer as a run of the model showed it.

    Attributes:
        name: Its path in the model.
        kind: Where the buffer's term goes: on the layer's ``"output"``, before its ``"mlp"``, or at its ``"hops"``.
        in_width: Width of the representation it receives, d_(l-1).
        out_width: Width of the aggregation that the term is added to.
        hops: How many aggregations one call makes.
        mlp: Name of the inner MLP for the kind ``"mlp"``.
        dtype: Of its output.
        device: Likewise.
        overwritten: Whether the model changes the representation in place afterwards, as ``x += conv(x)`` does.
    """

    name: str
    kind: Kind
    in_width: int
    out_width: int
    hops: int
    mlp: str
    dtype: torch.dtype
    device: torch.device
    overwritten: bool = False


@dataclass
class _Call:
    name: str
    module: nn.Module
    x: object = None
    output: object = None
    propagations: int = 0
    version: int = 0  # of x when the layer received it


def discover(
    gnn: nn.Module, graph: Graph, run: Callable[[], Tensor], config: BufferConfig
) -> tuple[list[LayerSpec], Tensor]:
    """Run the model once in evaluation mode and describe its message-passing layers in the order they ran.

    Returns:
        The layers, and the logits of that run.

    Nothing about the model, its mode or the global random state is different afterwards, also after an error.

    Raises:
        ModelError: For whatever cannot carry a buffer, before anything was touched.
    """
    check_model(gnn)
    untouched = _version(graph.x)
    calls, logits = _record(gnn, graph, run)
    if _version(graph.x) != untouched:
        raise ModelError("The model changes data.x in place, so that no two passes see the same graph; copy it first.")
    if not calls:
        raise ModelError(
            f"No message-passing layer ran in {type(gnn).__name__}; a buffer is added to layers derived from "
            "torch_geometric.nn.MessagePassing."
        )
    seen: set[str] = set()
    for call in calls:
        if call.name in seen:
            raise ModelError(
                f"{_layer(call.name, call.module)} ran more than once in one forward pass; a buffer needs every layer "
                "to run once. Give each application a layer of its own."
            )
        seen.add(call.name)
    return [_describe(call, graph.num_nodes, config) for call in calls], logits


def check_model(gnn: object) -> None:
    """Refuse what no run could make usable."""
    if not isinstance(gnn, nn.Module):
        raise ModelTypeError(f"The model is a {type(gnn).__name__}; expected a torch.nn.Module.")
    if hasattr(gnn, "_orig_mod"):
        raise ModelError("The model is already compiled; attach to the module itself, then compile the result.")
    if isinstance(gnn, torch.jit.ScriptModule):
        raise ModelError("The model is a TorchScript module, whose layers cannot be reached; attach to the original.")
    for name, tensor in [*gnn.named_parameters(), *gnn.named_buffers()]:
        if is_lazy(tensor):
            raise ModelError(f"The parameter {name!r} has no shape yet; run the model once before attaching.")
    refuse_cached(gnn)


def refuse_cached(gnn: nn.Module) -> None:
    """Refuse layers that keep the edges of their first call."""
    for name, module in gnn.named_modules():
        if isinstance(module, MessagePassing) and getattr(module, "cached", False):
            raise ModelError(
                f"{_layer(name, module)} was built with cached=True and would ignore every change of the edges; build "
                "it with cached=False and load the same weights."
            )


def _layer(name: str, module: nn.Module) -> str:
    """What messages call a layer; one that is the whole model has no name in it."""
    kind = type(module).__name__
    return f"The layer {name!r} ({kind})" if name else f"The model, a {kind},"


@contextmanager
def evaluation_mode(gnn: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode inside, exactly as it was outside."""
    modes = [(module, module.training) for module in gnn.modules()]
    gnn.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def forked_randomness(device: torch.device) -> AbstractContextManager[None]:
    """Inside, the global random state may move; outside, it has not."""
    return cast(AbstractContextManager[None], torch.random.fork_rng(devices=[device] if device.type == "cuda" else []))


def explain_failure(error: Exception, graph: Graph, gnn: nn.Module, expected_width: int | None = None) -> ModelError:
    """The sentence for a model that failed on a graph."""
    if "not implemented for" in str(error):
        return ModelError(
            f"The model cannot run in {graph.x.dtype} on {graph.x.device.type}: {str(error).splitlines()[0]}. Convert "
            "the model and data.x with .float()."
        )
    types = {p.dtype for p in gnn.parameters() if p.is_floating_point()}
    if types and graph.x.dtype not in types:
        found = " and ".join(sorted(map(str, types)))
        widest = max(types, key=lambda dtype: torch.finfo(dtype).bits)
        return ModelError(
            f"The model's weights are {found}, but data.x is {graph.x.dtype}; convert one of them, as with "
            f"data.x.to({widest})."
        )
    if expected_width is not None and expected_width != graph.x.size(1):
        return ModelError(
            f"The graph has {graph.x.size(1)} features per node, but the model expects {expected_width}; pass the "
            "graph that the model was trained on, or one with the same features."
        )
    reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return ModelError(
        f"The model could not run on this graph ({reason}). "
        "If it is not called as model(x, edge_index), pass forward=lambda model, data: <the logits>."
    )


def _record(gnn: nn.Module, graph: Graph, run: Callable[[], Tensor]) -> tuple[list[_Call], Tensor]:
    """The outermost message-passing calls of one run, in order."""
    calls: list[_Call] = []
    open_calls: list[_Call] = []
    handles: list[Any] = []

    def entering(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            call = _Call(name, module, args[0] if args else kwargs.get("x"))
            call.version = _version(call.x)
            if not open_calls:
                calls.append(call)
            open_calls.append(call)

        return hook

    def leaving(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        open_calls.pop().output = output

    def propagating(module: nn.Module, inputs: Any) -> None:
        if open_calls:
            open_calls[-1].propagations += 1

    try:
        for name, module in gnn.named_modules():
            if isinstance(module, MessagePassing):
                handles.append(module.register_forward_pre_hook(entering(name), with_kwargs=True))
                handles.append(module.register_forward_hook(leaving, with_kwargs=True, prepend=True))
                handles.append(module.register_propagate_forward_pre_hook(propagating))
        with evaluation_mode(gnn), torch.no_grad(), forked_randomness(graph.x.device):
            logits = run()
    except (ModelError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise explain_failure(error, graph, gnn, _first_width(gnn, calls, graph.x)) from error
    finally:
        for handle in handles:
            handle.remove()
    return calls, logits


def _first_width(gnn: nn.Module, calls: list[_Call], x: Tensor) -> int | None:
    """Width that the layer which receives the features was built for, if the run ended there."""
    if len(calls) > 1:
        return None
    received = calls[0].x if calls else x
    if not isinstance(received, Tensor) or received.shape != x.shape:  # something before it has changed the width
        return None
    first = calls[0].module if calls else next((m for m in gnn.modules() if hasattr(m, "in_features")), None)
    declared = getattr(first, "in_channels", getattr(first, "in_features", None))
    return declared if isinstance(declared, int) and declared > 0 else None


def _describe(call: _Call, num_nodes: int, config: BufferConfig) -> LayerSpec:
    conv, x = call.module, call.x
    name = _layer(call.name, conv)
    if isinstance(x, dict):
        raise ModelError(f"{name} is heterogeneous; a buffer needs one node type. Use a model for homogeneous graphs.")
    if isinstance(x, tuple | list):
        raise ModelError(f"{name} is called with a pair of feature matrices (bipartite); call it with one tensor.")
    if not isinstance(x, Tensor):
        raise ModelError(f"{name} is not called with node features first; found {type(x).__name__}, expected a tensor.")
    if edge_position(conv) is None:
        raise ModelError(f"{name} takes no argument named edge_index; a buffer needs to see the edges of its layer.")
    if x.dim() != 2 or x.size(0) != num_nodes:
        raise ModelError(
            f"{name} receives features of shape {list(x.shape)}; expected [{num_nodes}, width], one row per node of "
            "the graph. Models that pool nodes or add dimensions cannot carry a buffer."
        )
    out = call.output[0] if isinstance(call.output, tuple) else call.output
    if not isinstance(out, Tensor) or out.dim() != 2 or out.size(0) != num_nodes:
        found = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ModelError(f"{name} returns {found}; expected a tensor of shape [{num_nodes}, width].")
    if config.block == "agg" and not _keeps_forward(conv, GCNConv):
        raise ModelError(f"{name} is no GCNConv; block='agg' repeats the aggregation of GCN layers only.")
    kind, mlp = _kind(conv, call.propagations, name, config)
    out_width, count = int(out.size(1)), 1
    if kind == "mlp":
        out_width = int(cast(Any, conv).out_channels) if isinstance(conv, GENConv) else int(x.size(1))
    elif kind == "hops":
        out_width, count = hops.width(conv, int(x.size(1))), hops.count(conv)
    overwritten = _version(x) != call.version
    return LayerSpec(call.name, kind, int(x.size(1)), out_width, count, mlp, out.dtype, out.device, overwritten)


def _version(x: object) -> int:
    """How often a tensor was changed in place; tensors made in inference mode do not count."""
    return x._version if isinstance(x, Tensor) and not x.is_inference() else 0


def edge_position(conv: nn.Module) -> int | None:
    """Where in its arguments a layer takes its edges, told by their name."""
    names = list(inspect.signature(conv.forward).parameters)
    return next((names.index(name) for name in ("edge_index", "adj_t", "adj") if name in names), None)


def weighs_loops(conv: nn.Module) -> bool:
    """Whether a layer adds a self-loop of weight 1 to every node that has none, and takes one with another weight."""
    if not (_keeps_forward(conv, GCNConv) or _keeps_forward(conv, SGConv)):
        return False
    known = cast(Any, conv)
    return bool(known.add_self_loops and getattr(known, "normalize", True) and not getattr(known, "improved", False))


def _keeps_forward(conv: nn.Module, known: type[nn.Module]) -> bool:
    """Whether ``conv`` runs as ``known`` does, and not in a way of a subclass's own."""
    return isinstance(conv, known) and type(conv).forward is known.forward


def _kind(conv: nn.Module, propagations: int, name: str, config: BufferConfig) -> tuple[Kind, str]:
    if config.site == "output":
        return "output", ""
    for layer, mlp in _INNER_MLP.items():
        if _keeps_forward(conv, layer):
            return ("mlp", mlp) if isinstance(getattr(conv, mlp), nn.Module) else ("output", "")
    if propagations and hops.covers(conv):
        return "hops", ""
    if propagations > 1:
        raise ModelError(
            f"{name} aggregates {propagations} times in one call, and the library does not know how to reach inside; "
            "use BufferConfig(site='output') to add the term once, to its output."
        )
    return "output", ""
