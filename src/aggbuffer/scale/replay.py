"""A model's own forward on a few nodes, with what its layers have said of them already in place of the layers.

What a model does between its message-passing layers concerns each node by itself. So with the outputs of the first
layers at hand, the forward on any few nodes yields what the next layer receives for them, or the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.errors import ModelError
from aggbuffer.forward import Forward, checked_logits
from aggbuffer.hooks import ForwardPass
from aggbuffer.layers import LayerSpec
from aggbuffer.model import BufferedGNN
from aggbuffer.scale.source import Nodes


@dataclass(frozen=True)
class Call:
    """What one layer was called with.

    Attributes:
        hidden: H(0) … H(l-1), of which the last is its input.
        args: Its arguments.
        kwargs: Likewise.
    """

    hidden: list[Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Reached(Exception):  # noqa: N818 (no error: the forward need go no further)
    """Carries out of the forward what it was run for."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found


@dataclass
class _Pass:
    """One run of the forward."""

    stage: int  # the layer that it is run for
    whole: bool  # whether that layer is to run, too
    rows: Nodes
    hidden: list[Tensor] = field(default_factory=list)


class Replay:
    """Runs the parts of a model.

    Args:
        model: A base model, or one with buffers.
        specs: Its layers in the order they run.
        call: How the base is called.
    """

    def __init__(self, model: nn.Module, specs: Sequence[LayerSpec], call: Forward) -> None:
        self.owner = model if isinstance(model, BufferedGNN) and model._enabled else None
        self.base: nn.Module = model.base if isinstance(model, BufferedGNN) else model
        self.specs, self.forward = list(specs), call
        modules = dict(self.base.named_modules())
        self.convs = [modules[spec.name] for spec in specs]
        self.tables: list[Tensor] = []  # the output of every layer so far, ``[N, width]``
        self._pass: _Pass | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """The context of all runs; afterwards the model is as it was."""
        handles = []
        stubs = {conv: _Stub(self, k, conv) for k, conv in enumerate(self.convs) if "forward" not in conv.__dict__}
        if len(stubs) < len(self.convs):
            raise ModelError("A layer of the model has a forward of its own instance; it cannot be run by itself.")
        try:
            for k, conv in enumerate(self.convs):
                conv.__dict__["forward"] = stubs[conv]
                handles.append(conv.register_forward_hook(_Last(self, k)))  # after all other hooks
            yield
        finally:
            for handle in handles:
                handle.remove()
            for conv in stubs:
                conv.__dict__.pop("forward", None)

    def call(self, layer: int, data: Data, rows: Nodes) -> Call:
        """What a layer is called with for some nodes.

        Args:
            layer: Its number; the outputs of all before it are in :attr:`tables`.
            data: The nodes, without edges.
            rows: Their numbers.
        """
        return cast(Call, self._run(_Pass(layer, False, rows), data))

    def output(self, layer: int, data: Data, rows: Nodes) -> Tensor:
        """A layer's output with its buffer's term, ``[n, width]``, on a part of the graph that is complete for it."""
        return cast(Tensor, self._run(_Pass(layer, True, rows), data))

    def logits(self, data: Data, rows: Nodes) -> Tensor:
        """``[n, C]``, once the outputs of all layers are in :attr:`tables`."""
        return checked_logits(self._run(_Pass(len(self.convs), False, rows), data), cast(Tensor, data.x).size(0))

    def _run(self, this: _Pass, data: Data) -> Any:
        self._pass = this
        try:
            self._enter_stage(0)
            return self.forward(self.base, data)
        except _Reached as reached:
            return reached.found
        finally:
            self._pass = None
            if self.owner is not None:
                self.owner._pass = None

    def _enter_stage(self, number: int) -> None:
        """Before layer ``number``: have the buffer's hooks act in the layer that is to run."""
        this = self._pass
        assert this is not None
        if self.owner is not None and this.whole and number == this.stage:
            state = ForwardPass(self.owner.config.weighted_degree)
            state.hidden = list(this.hidden)
            self.owner._pass = state


class _Stub:
    """Stands in for the ``forward`` of a layer."""

    def __init__(self, replay: Replay, number: int, conv: nn.Module) -> None:
        self.replay, self.number = replay, number
        self.plain: Callable[..., Any] = conv.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        this, spec = self.replay._pass, self.replay.specs[self.number]
        if this is None:
            return self.plain(*args, **kwargs)
        x = args[0] if args else kwargs["x"]
        if len(this.hidden) != self.number:
            raise ModelError(
                f"The layer {spec.name!r} ran as number {len(this.hidden) + 1}, but as number {self.number + 1} "
                "before; layer-wise inference needs the same layers in the same order for all nodes."
            )
        this.hidden.append(x.clone() if spec.overwritten else x)
        if self.number < this.stage:
            return x.new_empty(()).expand(x.size(0), self.replay.tables[self.number].size(1))
        if not this.whole:
            raise _Reached(Call(this.hidden, args, kwargs))
        return self.plain(*args, **kwargs)


class _Last:
    """The last hook of a layer: puts in what is known of its output, or ends the run."""

    def __init__(self, replay: Replay, number: int) -> None:
        self.replay, self.number = replay, number

    def __call__(self, conv: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        this = self.replay._pass
        if this is None:
            return output
        if self.number == this.stage:
            raise _Reached(_one_tensor(output, self.replay.specs[self.number].name))
        self.replay._enter_stage(self.number + 1)
        rows = self.replay.tables[self.number][this.rows]
        return rows.clone() if isinstance(this.rows, slice) else rows  # the model may write into it


def _one_tensor(output: Any, name: str) -> Tensor:
    if not isinstance(output, Tensor):
        raise ModelError(
            f"The layer {name!r} returns a {type(output).__name__}; layer-wise inference needs layers that return one "
            "tensor with a row per node."
        )
    return output


def recorded(
    model: nn.Module, specs: Sequence[LayerSpec], run: Callable[[], Tensor]
) -> tuple[list[Call], list[Tensor], Tensor]:
    """One ordinary run of a model: what every layer was called with, what it answered, and the logits."""
    base: nn.Module = model.base if isinstance(model, BufferedGNN) else model
    modules = dict(base.named_modules())
    calls: list[Call] = []
    outputs: list[Tensor] = []
    hidden: list[Tensor] = []
    handles = []

    def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["x"]
        hidden.append(x if len(hidden) == 0 else x.clone())
        calls.append(Call(list(hidden), args, kwargs))

    def leaving(spec: LayerSpec) -> Callable[..., None]:
        return lambda module, args, output: outputs.append(_one_tensor(output, spec.name).clone())

    try:
        for spec in specs:
            handles.append(modules[spec.name].register_forward_pre_hook(entering, with_kwargs=True))
            handles.append(modules[spec.name].register_forward_hook(leaving(spec)))
        with torch.no_grad():
            logits = run()
    finally:
        for handle in handles:
            handle.remove()
    return calls, outputs, logits
