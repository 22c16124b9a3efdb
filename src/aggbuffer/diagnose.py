"""How fragile a trained GNN is when edges go, and whether a buffer would pay. Needs no labels."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from aggbuffer.config import BufferConfig, FitConfig, TaskName
from aggbuffer.discrepancy import LayerDiscrepancy, layer_discrepancies
from aggbuffer.errors import ConfigError
from aggbuffer.evaluate import Predictor, extreme_thirds
from aggbuffer.forward import Forward
from aggbuffer.graph import Graph
from aggbuffer.layers import discover, forked_randomness
from aggbuffer.model import BufferedGNN
from aggbuffer.perturb import nested_removal
from aggbuffer.scores import predict
from aggbuffer.targets import Task, infer_task
from aggbuffer.text import html_table, markdown_table, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Verdict = Literal["likely to pay", "may pay", "unlikely to pay"]

KEEP = (1.0, 0.75, 0.5, 0.25, 0.0)

# For each share of edges kept: the share whose flips tell (with all edges there are none), and the points of accuracy
# gained for each percent of flips. Least squares over ten GCNs on Cora, CiteSeer and the demonstration graph, measured
# by benchmarks/calibrate_diagnosis.py: it prints every run, also those on other models and on filtered Chameleon, and
# the errors that ``in_words`` tells; a test compares its committed results with these numbers.
POINTS_PER_FLIP: dict[float, tuple[float, float]] = {
    1.0: (0.5, 0.17),
    0.75: (0.75, 0.48),
    0.5: (0.5, 0.42),
    0.25: (0.25, 0.41),
    0.0: (0.0, 0.38),
}
# Expected points with half of the edges. All ten GCNs expected 3.3 or more and gained at least 0.9; less than half a
# point few evaluations could tell from nothing.
LIKELY, UNLIKELY = 3.0, 0.5
_ADVICE: dict[Verdict, str] = {
    "likely to pay": "Fitting one is worth a try; judge it on validation nodes.",
    "may pay": "It costs seconds to try; judge it on validation nodes.",
    "unlikely to pay": "The model hardly listens to its edges; do not bother.",
}
# How the estimate did on graphs left out of its calibration; see benchmarks/calibrate_diagnosis.py.
_BASIS = (
    "That is a guess from changed predictions alone: on a graph left out it was off by 2 points on average (3 with no "
    "edges), elsewhere by up to 18, and it promises too much where the model is mostly wrong."
)


@dataclass(frozen=True)
class FlipShares:
    """How much of the predictions changes once edges are gone.

    For classes, the share of nodes whose class changes; for several labels at once, of nodes with any changed label;
    for regression, the root mean square change over the outputs' own spread.

    Attributes:
        overall: All nodes.
        low: The third with the lowest degree.
        middle: What is between.
        high: The third with the highest degree.
    """

    overall: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Diagnosis:
    """How fragile a GNN is.

    Attributes:
        layers: Every message-passing layer, in the order they run.
        flips: By the share of undirected edges kept, averaged over draws.
        expected_gain: By the share of edges kept, the points of accuracy that a buffer would be expected to add: a
            guess, whose basis and error ``in_words`` tells. Empty for regression.
        task: What the outputs were taken for.
        drop_edge: Share of edges that ``layers`` were measured without.
        buffered: Whether the model carried buffers already.
    """

    layers: tuple[LayerDiscrepancy, ...]
    flips: dict[float, FlipShares]
    expected_gain: dict[float, float]
    task: Task
    drop_edge: float
    buffered: bool

    @property
    def verdict(self) -> Verdict:
        """Whether a buffer is worth its few seconds, judged with half of the edges gone."""
        gain = self.expected_gain[0.5] if self.expected_gain else _points(0.5, {0.5: self.flips[0.5].overall})
        return "likely to pay" if gain >= LIKELY else "may pay" if gain >= UNLIKELY else "unlikely to pay"

    def in_words(self) -> str:
        """The diagnosis in a few plain sentences."""
        half = self.flips[0.5]
        if self.task == "regression":
            told = f"With half of the edges gone, the outputs move by {percent(half.overall)} of their own spread."
        else:
            told = f"With half of the edges gone, {percent(half.overall, 1)} of the predictions change"
            told += f"; with all of them gone, {percent(self.flips[0.0].overall, 1)}."
        sentences = [told, self._degrees_in_words(half)]
        if self.expected_gain:
            full, less, none = (self.expected_gain[share] for share in (1.0, 0.5, 0.0))
            what = "Another buffer" if self.buffered else "A buffer"
            told = f"{what} would be expected to add about {full:.1f} points of accuracy on the full graph, {less:.1f} "
            sentences += [f"{told}with half of the edges and {none:.1f} with none.", _BASIS]
        return " ".join([*filter(None, sentences), _ADVICE[self.verdict]])

    def _degrees_in_words(self, flips: FlipShares) -> str:
        if flips.overall == 0 or math.isnan(flips.low):
            return ""
        if flips.high == 0:
            return "Nodes with many neighbours do not change at all."
        ratio = flips.low / flips.high
        if 0.8 <= ratio <= 1.25:
            return "Nodes with few and with many neighbours suffer alike."
        more, fewer = ("few", "many") if ratio > 1 else ("many", "few")
        ratio = max(ratio, 1 / ratio if ratio else math.inf)
        if math.isinf(ratio):
            return "Nodes with few neighbours do not change at all."
        return f"Nodes with {more} neighbours suffer {ratio:.1f} times as much as those with {fewer}."

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "verdict": self.verdict,
            "in_words": self.in_words(),
            "task": self.task,
            "drop_edge": self.drop_edge,
            "buffered": self.buffered,
            "flips": {str(share): _plain(flips) for share, flips in self.flips.items()},
            "expected_gain": {str(share): gain for share, gain in self.expected_gain.items()},
            "layers": [_plain(layer) for layer in self.layers],
        }

    def to_markdown(self) -> str:
        """The words, then both tables."""
        tables = (markdown_table(*self._flip_table()), markdown_table(*self._layer_table()))
        return "\n\n".join([f"A buffer is {self.verdict}. {self.in_words()}", *tables])

    def _repr_html_(self) -> str:
        words = f"<p><b>A buffer is {self.verdict}.</b> {self.in_words()}</p>"
        from aggbuffer.plots import inline

        tables = html_table(*self._flip_table()) + html_table(*self._layer_table())
        return words + tables + inline(self.plot, "Predictions that change as edges are removed, by degree")

    def __str__(self) -> str:
        return self.to_markdown()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what moves as edges go, by degree, on ``ax`` or on axes of its own; needs matplotlib."""
        from aggbuffer.plots import plot_diagnosis

        return plot_diagnosis(self, ax)

    def _flip_table(self) -> tuple[list[str], list[list[str]]]:
        changed = "change" if self.task == "regression" else "changed"
        headers = ["edges kept", changed, "low degree", "middle", "high degree", "expected gain"]
        rows = []
        for share, flips in self.flips.items():
            shares = (flips.overall, flips.low, flips.middle, flips.high)
            gain = f"{self.expected_gain[share]:+.1f}" if share in self.expected_gain else "–"
            rows.append([percent(share), *(percent(value, 1) for value in shares), gain])
        return headers, rows

    def _layer_table(self) -> tuple[list[str], list[list[str]]]:
        headers = ["layer", "type", "C1", "C2", "basis", "input moves", "output moves", "by edges alone"]
        return headers, [
            [x.name or x.layer, x.layer, f"{x.c1:.3g}", f"{x.c2:.3g}", x.basis]
            + [f"{value:.3g}" for value in (x.input, x.output, x.structural)]
            for x in self.layers
        ]


def _plain(record: FlipShares | LayerDiscrepancy) -> dict[str, Any]:
    """A record as JSON-ready values; what is not known is None."""
    values = asdict(record)
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}


def diagnose(
    gnn: nn.Module,
    data: object,
    *,
    forward: Forward | None = None,
    drop_edge: float = 0.5,
    repeats: int = 3,
    seed: int = 0,
    task: TaskName = "auto",
) -> Diagnosis:
    """Find out how fragile a trained GNN is, with no labels, and whether a buffer is likely to pay.

    The model is afterwards as it was, and so is the global random state.

    Args:
        gnn: Any trained PyG model for one homogeneous graph, or a ``BufferedGNN``.
        data: The graph, a ``Data`` or a pair ``(x, edge_index)``.
        forward: ``forward(model, data) -> logits``, as for :func:`attach`; a ``BufferedGNN`` knows already.
        drop_edge: Share of edges that the layers are measured without.
        repeats: Draws of dropped edges to average over.
        seed: Of the draws, and of how ties of degree at a group's border are broken.
        task: What the outputs mean; read off ``data.y`` where there is one, else classes.

    Raises:
        AggBufferError: If model or graph cannot be used.

    Example:
        >>> print(aggbuffer.diagnose(gnn, data))
    """
    FitConfig(drop_edge=drop_edge, seed=seed, task=task)  # refuses what is out of range
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ConfigError(f"repeats must be a whole number of at least 1 (got {repeats!r}).")
    gnn = getattr(gnn, "_orig_mod", gnn)  # a compiled model's layers run in the original
    graph = Graph.of(data)
    predictor = Predictor(gnn, graph, forward)
    with forked_randomness(graph.x.device):
        layers = _layers(predictor, graph)
        full = predictor.logits(graph.data)
        labels = graph.data.get("y")
        kind = infer_task(labels if isinstance(labels, Tensor) else None, full.size(1), task)
        flips, moved = _flips(predictor, graph, predict(full, kind), kind, repeats, seed)
        found = layer_discrepancies(predictor, layers, graph, share=drop_edge, repeats=repeats, seed=seed)
    gain = {} if kind == "regression" else {share: _points(share, moved) for share in KEEP}
    return Diagnosis(tuple(found), flips, gain, kind, drop_edge, isinstance(gnn, BufferedGNN))


def _layers(predictor: Predictor, graph: Graph) -> list[tuple[str, nn.Module]]:
    """Names and modules of the message-passing layers, in the order they run."""
    model = predictor.model
    if isinstance(model, BufferedGNN):
        gnn, specs = model.base, list(model.layers)
    else:
        # The most lenient configuration: what a buffer at the output can be added to can be diagnosed.
        gnn = model
        specs, _ = discover(gnn, graph, lambda: predictor.logits(graph.data), BufferConfig(site="output"))
    modules = dict(gnn.named_modules())
    return [(spec.name, modules[spec.name]) for spec in specs]


def _flips(
    predictor: Predictor, graph: Graph, full: Tensor, task: Task, repeats: int, seed: int
) -> tuple[dict[float, FlipShares], dict[float, float]]:
    """What changes at each share of edges kept, and the share of all single predictions (node and label) that do."""
    low, high = extreme_thirds(graph.degree.cpu(), seed)
    everyone = torch.arange(graph.num_nodes)
    middle = everyone[~torch.isin(everyone, torch.cat([low, high]))]
    groups = (everyone, low, middle, high)
    flips, moved = {}, {}
    for share, draws in nested_removal(graph, KEEP, repeats, seed):
        changes = [_change(predict(predictor.logits(d), task), full, task).cpu() for d in draws]
        moved[share] = float(sum(change.mean().item() for change in changes)) / len(changes)
        # A node has changed once any of its labels has; for regression its outputs count alike.
        nodes = [change.mean(-1) if task == "regression" else change.amax(-1) for change in changes]
        mean = torch.stack(nodes).mean(0)
        shares = [mean[group].mean().item() if group.numel() else math.nan for group in groups]
        flips[share] = FlipShares(*map(math.sqrt, shares)) if task == "regression" else FlipShares(*shares)
    return flips, moved


def _change(now: Tensor, full: Tensor, task: Task) -> Tensor:
    """``[N, L]``: 1 where a class or label differs, or the squared change over the outputs' variance."""
    if task == "regression":
        full = full.double()
        spread = (full - full.mean(0)).square().mean().clamp(min=torch.finfo(torch.float32).tiny)
        return (now.double() - full).square() / spread
    return (now != full).double().view(full.size(0), -1)


def _points(share: float, moved: dict[float, float]) -> float:
    observed_at, coefficient = POINTS_PER_FLIP[share]
    return coefficient * 100 * moved[observed_at]
