"""The passes of a training step over a batch."""

from __future__ import annotations

from torch import Tensor, nn

from aggbuffer.fast.features import Features
from aggbuffer.fast.layers import FastForm
from aggbuffer.fast.passes import FastPasses
from aggbuffer.fast.tall import times
from aggbuffer.fast.views import View
from aggbuffer.model import BufferedGNN
from aggbuffer.scale.batch import Batch
from aggbuffer.scale.draws import Draw
from aggbuffer.scale.views import BatchView, Remaining


class BatchPasses(FastPasses):
    """Runs a model with buffers on a batch and on what perturbations leave of it.

    Layers with a fast form take sums and degrees from the view; others run as they are on the batch's own edges. The
    buffers' degrees are those of the view in either case.

    Args:
        model: The model.
        batch: The batch.
        fast: Whether layers may run in their fast forms.
        sparse: Whether most features are zero, so that it pays to look for those that are not.
    """

    def __init__(self, model: BufferedGNN, batch: Batch, *, fast: bool, sparse: bool = False) -> None:
        self.batch, self._fast = batch, fast
        self.graph, self.whole = batch.graph, BatchView(batch)
        self.features = Features(self.graph.x) if sparse else _Dense(self.graph.x)
        self.view = None
        self._own(model)

    def perturbed(self, draw: Draw, share: float) -> BatchView:
        """What a draw leaves of the batch; ``share`` of all edges go."""
        return BatchView(self.batch, Remaining.of(self.batch, draw, share))

    def of_seeds(self, view: View) -> Tensor:
        """Logits of the seeds, ``[S, C]``."""
        return self.run(view)[: self.batch.num_seeds]

    def _form(self, conv: nn.Module, index: int) -> FastForm | None:
        return super()._form(conv, index) if self._fast else None


class _Dense(Features):
    """The features of a batch as they are: they are not seen again, so that looking for zeros in them would not pay."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.columns, self._sparse = x, x.size(1), None

    def __matmul__(self, weight: Tensor) -> Tensor:
        return times(self.x, weight)
