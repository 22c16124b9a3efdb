"""A frozen base GNN and the buffers that correct its aggregations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from aggbuffer import hops
from aggbuffer.buffer import AggregationBuffer
from aggbuffer.config import BufferConfig
from aggbuffer.fast.inference import Inference
from aggbuffer.forward import Forward, checked_logits
from aggbuffer.hooks import Accelerator, ForwardPass, LayerHooks, Masks
from aggbuffer.layers import LayerSpec


class BufferedGNN(nn.Module):
    """A frozen base GNN with an aggregation buffer in every message-passing layer; called exactly as the base is.

    Calling ``model.base`` itself always gives the base's own output. The base stays in evaluation mode, whatever
    mode this module is put into, so that none of its statistics move while buffers are trained.

    As ``forward`` takes whatever the base takes, ``torch.export`` wants dynamic shapes under the name ``"args"``:
    ``dynamic_shapes={"args": ({0: nodes}, {1: edges})}``.
    """

    base: nn.Module

    def __init__(
        self,
        base: nn.Module,
        specs: list[LayerSpec],
        config: BufferConfig,
        forward: Forward,
        num_features: int,
    ) -> None:
        super().__init__()
        self.config = config
        self.layers = tuple(specs)
        self.num_features = num_features
        self.forward_call = forward
        self._enabled, self._accelerates = True, True
        self._inference = Inference()
        self._pass: ForwardPass | None = None
        self._accelerator: Accelerator | None = None
        self._dropout: tuple[float, torch.Generator | Masks | None] = (0.0, None)
        modules = dict(base.named_modules())
        with torch.inference_mode(False):  # what is made in that mode can never be trained
            self._starts, blocks = _make_blocks(specs, modules, config)
        self._modes = [(module, module.training) for module in base.modules()]
        self._requires_grad = [(parameter, parameter.requires_grad) for parameter in base.parameters()]
        self.base = base
        self.blocks = nn.ModuleList(blocks)
        base.eval()
        self._hooks = [LayerHooks(self, i, spec, modules[spec.name]) for i, spec in enumerate(specs)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The base's forward with every aggregation corrected."""
        if not self._enabled:
            return self.base(*args, **kwargs)
        if torch.compiler.is_compiling():
            return self._run_hooked(args, kwargs)
        with self._inference.turn:
            if self._accelerates and (answer := self._inference.answer(self, args, kwargs)) is not None:
                return answer
            return self._run_hooked(args, kwargs)

    def _run_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The base's forward, in which the hooks of its layers act."""
        self._pass = ForwardPass(self.config.weighted_degree)
        try:
            return self.base(*args, **kwargs)
        finally:
            self._pass = None

    def train(self, mode: bool = True) -> BufferedGNN:
        """Set the mode of this module and its blocks; the base stays in evaluation mode."""
        super().train(mode)
        self.base.eval()
        return self

    @contextmanager
    def disabled(self) -> Iterator[BufferedGNN]:
        """Inside, the model answers exactly as its base."""
        before, self._enabled = self._enabled, False
        try:
            yield self
        finally:
            self._enabled = before

    @contextmanager
    def plainly(self) -> Iterator[BufferedGNN]:
        """Inside, calls take the plain path: the model's own layers, and nothing kept between calls."""
        before, self._accelerates = self._accelerates, False
        try:
            yield self
        finally:
            self._accelerates = before

    @contextmanager
    def dropping(self, ratio: float, generator: torch.Generator | Masks | None = None) -> Iterator[BufferedGNN]:
        """Inside, every layer but the first receives its input with a share ``ratio`` of the entries dropped."""
        before, self._dropout = self._dropout, (ratio, generator)
        try:
            yield self
        finally:
            self._dropout = before

    def buffer_parameters(self) -> list[nn.Parameter]:
        """The parameters that the library added, and no others."""
        return list(self.blocks.parameters())

    @property
    def num_buffer_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.buffer_parameters())

    def run(self, data: object) -> Tensor:
        """Logits ``[N, C]`` on a graph, called as ``attach`` was told to."""
        return checked_logits(self.forward_call(self, cast(Any, data)), cast(Any, data).x.size(0))

    def _blocks_of(self, index: int) -> list[AggregationBuffer]:
        start = self._starts[index]
        return [cast(AggregationBuffer, self.blocks[i]) for i in range(start, start + self.layers[index].hops)]

    def _release(self) -> nn.Module:
        if not self._hooks:
            return self.base  # detached before: what became of the base since is the user's
        for hooks in self._hooks:
            for handle in hooks.handles:
                handle.remove()
        for module, training in self._modes:
            module.training = training
        self._restore_requires_grad()
        self._hooks, self._enabled = [], False
        return self.base

    def _restore_requires_grad(self) -> None:
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)

    def extra_repr(self) -> str:
        return f"{len(self.layers)} layers, {self.num_buffer_parameters:,} buffer parameters"


def _make_blocks(
    specs: list[LayerSpec], modules: dict[str, nn.Module], config: BufferConfig
) -> tuple[list[int], list[AggregationBuffer]]:
    """One block for every aggregation, in order, and where each layer's blocks start."""
    starts: list[int] = []
    blocks: list[AggregationBuffer] = []
    widths: list[int] = []
    for spec in specs:
        starts.append(len(blocks))
        widths.append(spec.in_width)
        reads_first = spec.kind == "hops" and hops.reads_first(modules[spec.name])
        for hop in range(spec.hops):
            states = (hop + int(reads_first)) if spec.kind == "hops" else 0
            read = [*widths, *([spec.out_width] * states)]
            blocks.append(
                AggregationBuffer(
                    read,
                    spec.out_width,
                    block=config.block,
                    bias=config.bias,
                    device=spec.device,
                    dtype=spec.dtype,
                )
            )
    return starts, blocks
