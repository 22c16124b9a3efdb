"""How good a model is: overall, by degree, by agreement of the neighbours, and as edges go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from aggbuffer.config import TaskName, check_choice, check_integer
from aggbuffer.errors import AggBufferError, ConfigError, GraphError, ModelTypeError
from aggbuffer.forward import Forward, checked_forward, checked_logits
from aggbuffer.graph import Graph
from aggbuffer.layers import evaluation_mode, explain_failure, refuse_cached
from aggbuffer.model import BufferedGNN
from aggbuffer.perturb import generator_on, nested_removal
from aggbuffer.scale.source import as_source, is_source
from aggbuffer.scores import Score, predict, score
from aggbuffer.targets import Labels, Task, select
from aggbuffer.text import html_table, markdown_table, percent

GROUPS = ("overall", "head", "tail", "homophilous", "heterophilous")


@dataclass(frozen=True)
class Predictions:
    """What an evaluation was computed from, kept so that two of them can be compared node by node.

    Attributes:
        nodes: The evaluated nodes, ``[M]``.
        labels: Their labels, ``[M]`` or ``[M, L]``.
        full: Predictions on the whole graph, ``[M]`` or ``[M, L]``.
        groups: Positions within ``nodes`` of each group's members.
        removed: Predictions for each share of edges kept and each draw, ``[R, M]`` or ``[R, M, L]``.
        degree: Degree of each evaluated node, ``[M]``.
        agreement: Share of each node's neighbours with its own label, ``[M]``; NaN where there is none.
    """

    nodes: Tensor
    labels: Tensor
    full: Tensor
    groups: dict[str, Tensor]
    removed: dict[float, Tensor]
    degree: Tensor
    agreement: Tensor


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one graph.

    Attributes:
        overall: All evaluated nodes.
        head: The third with the highest degree.
        tail: The third with the lowest degree.
        homophilous: The third whose neighbours agree most with them; no nodes outside multi-class tasks.
        heterophilous: The third whose neighbours agree least.
        edge_removal: All evaluated nodes, by the share of undirected edges kept.
        task: What the labels are.
        predictions: What the scores were computed from.
    """

    overall: Score
    head: Score
    tail: Score
    homophilous: Score
    heterophilous: Score
    edge_removal: dict[float, Score]
    task: Task
    predictions: Predictions

    def rows(self) -> list[tuple[str, Score]]:
        """Every score with its name, in reading order."""
        removal = [(removal_name(share), s) for share, s in self.edge_removal.items()]
        return [*((name, getattr(self, name)) for name in GROUPS), *removal]

    def to_dict(self) -> dict[str, Any]:
        """The scores as JSON-ready values; what does not apply is None."""
        result: dict[str, Any] = {"task": self.task}
        result |= {name: plain(getattr(self, name)) for name in GROUPS}
        result["edge_removal"] = {str(share): plain(s) for share, s in self.edge_removal.items()}
        return result

    def to_markdown(self) -> str:
        """The scores as a markdown table."""
        return markdown_table(*self._table())

    def _repr_html_(self) -> str:
        return html_table(*self._table())

    def __str__(self) -> str:
        return self.to_markdown()

    def _table(self) -> tuple[list[str], list[list[str]]]:
        if self.task == "regression":
            return ["nodes", "RMSE", "count"], [
                [name, f"{s.rmse:.4f}", str(s.count)] for name, s in self.rows() if s.count
            ]
        headers = ["nodes", "accuracy", "macro-F1", "count"]
        return headers, [
            [name, percent(s.accuracy, 2), percent(s.macro_f1, 2), str(s.count)] for name, s in self.rows() if s.count
        ]


def evaluate(
    model: nn.Module,
    data: object,
    *,
    mask: str | Tensor = "test_mask",
    keep: Sequence[float] = (1, 0.75, 0.5, 0.25, 0),
    seed: int = 0,
    repeats: int = 3,
    forward: Forward | None = None,
    task: TaskName = "auto",
    memory: int | None = None,
) -> Evaluation:
    """Score a model, with buffers or without, on the labelled nodes of ``mask``.

    Args:
        model: A ``BufferedGNN`` or any GNN; its mode is as before afterwards.
        data: The graph with labels in ``data.y``.
        mask: A name in ``data``, a bool mask, or node numbers.
        keep: Shares of the undirected edges to keep in the edge-removal scores.
        seed: Of the removed edges and of how ties at a group's border are broken.
        repeats: Draws of removed edges; the same draws for every model evaluated with the same seed.
        forward: How to call a base GNN; a ``BufferedGNN`` knows already.
        task: What the labels are, if they do not say it themselves.
        memory: Run the model layer by layer, in so many bytes beyond the graph; None for the whole graph in one pass.
            The scores are the same. For a graph on disk, which edges are removed follows from their ends and the seed.

    Example:
        >>> print(aggbuffer.evaluate(model, data).to_markdown())
    """
    shares = _checked_shares(keep)
    check_integer("repeats", repeats, 1)
    check_integer("seed", seed, 0)
    check_choice("task", task, get_args(TaskName))
    if memory is not None or is_source(data):
        from aggbuffer.scale.evaluation import observed  # which needs this module

        seen = observed(model, as_source(data), mask, shares, repeats, seed, forward, task, memory)
        return _evaluation(seen, seed)
    graph = Graph.of(data)
    nodes = chosen_nodes(graph.data, mask, graph.num_nodes)
    predictor = Predictor(model, graph, forward)
    if any(share < 1 for share in shares):
        refuse_cached(model)
    logits = predictor.logits(graph.data)
    labels = Labels.of(graph.data.get("y"), graph.num_nodes, logits.size(1), nodes, task)
    nodes = nodes.cpu()
    removed = {
        share: torch.stack([predict(predictor.logits(d), labels.task).cpu()[nodes] for d in draws])
        for share, draws in nested_removal(graph, shares, repeats, seed)
    }
    full = predict(logits, labels.task).cpu()[nodes]
    degree, agreement = graph.degree.cpu()[nodes], neighbour_agreement(graph, labels).cpu()[nodes]
    return _evaluation(Observed(nodes, labels, full, removed, degree, agreement), seed)


@dataclass(frozen=True)
class Observed:
    """What an evaluation is made of: the attributes of :class:`Predictions` but its groups, and all labels."""

    nodes: Tensor
    labels: Labels
    full: Tensor
    removed: dict[float, Tensor]
    degree: Tensor
    agreement: Tensor


def _evaluation(seen: Observed, seed: int) -> Evaluation:
    """The scores of what was observed."""
    task, full = seen.labels.task, seen.full
    truth = seen.labels.values.cpu()[seen.nodes]
    groups = _groups(seen.degree, seen.agreement, seed)
    scores = {name: score(full[at], truth[at], task) for name, at in groups.items()}
    removal = {share: _mean_score([score(p, truth, task) for p in runs]) for share, runs in seen.removed.items()}
    kept = Predictions(seen.nodes, truth, full, groups, seen.removed, seen.degree, seen.agreement)
    return Evaluation(**scores, edge_removal=removal, task=task, predictions=kept)


def chosen_nodes(data: Any, mask: str | Tensor, count: int) -> Tensor:
    """The nodes to be evaluated, ``[M]``."""
    nodes = select(data, mask, count)
    if nodes is None:
        raise GraphError(f"The graph has no {mask!r}; set data.{mask} or pass mask=<bool mask or node numbers>.")
    return nodes


class Predictor:
    """A model in evaluation mode, called without gradients, whose failures are told in a sentence."""

    def __init__(self, model: nn.Module, graph: Graph, forward: Forward | None) -> None:
        if not isinstance(model, nn.Module):
            raise ModelTypeError(f"The model is a {type(model).__name__}; expected a torch.nn.Module.")
        inner = getattr(model, "_orig_mod", model)  # a compiled model keeps the original here
        self.model, self.graph = model, graph
        if isinstance(inner, BufferedGNN):
            self.forward = inner.forward_call
            if inner.num_features != graph.x.size(1):
                raise GraphError(
                    f"The graph has {graph.x.size(1)} features per node, but the model was attached to one with "
                    f"{inner.num_features}; pass a graph with the same features."
                )
        else:
            self.forward = checked_forward(forward)

    def logits(self, data: Any) -> Tensor:
        """Logits ``[N, C]`` on a graph with the nodes of the one this was made for."""
        try:
            with evaluation_mode(self.model), torch.no_grad():
                logits = checked_logits(self.forward(self.model, data), self.graph.num_nodes)
        except AggBufferError:
            raise
        except Exception as error:
            raise explain_failure(error, self.graph, self.model, _expected_width(self.model)) from error
        if not bool(torch.isfinite(logits).all()):
            raise GraphError("The model's outputs on this graph hold NaN or infinite values; check its weights.")
        return logits


def _expected_width(model: nn.Module) -> int | None:
    declared = getattr(model, "in_channels", None)
    return declared if isinstance(declared, int) and declared > 0 else None


def neighbour_agreement(graph: Graph, labels: Labels) -> Tensor:
    """Share of each node's in-neighbours with its label, ``[N]``; NaN without neighbours, and for other tasks."""
    if labels.task != "multiclass":
        return torch.full((graph.num_nodes,), math.nan, device=graph.x.device)
    counted = ~graph.is_loop & (labels.values[graph.source] >= 0)
    source, target = graph.source[counted], graph.target[counted]
    same = (labels.values[source] == labels.values[target]).float()
    total = torch.zeros(graph.num_nodes, device=graph.x.device).scatter_add_(0, target, torch.ones_like(same))
    agreeing = torch.zeros(graph.num_nodes, device=graph.x.device).scatter_add_(0, target, same)
    return agreeing / total  # 0 / 0 is the NaN that is meant


def _groups(degree: Tensor, agreement: Tensor, seed: int) -> dict[str, Tensor]:
    tail, head = extreme_thirds(degree, seed)
    heterophilous, homophilous = extreme_thirds(agreement, seed)
    return {
        "overall": torch.arange(degree.numel()),
        "head": head,
        "tail": tail,
        "homophilous": homophilous,
        "heterophilous": heterophilous,
    }


def extreme_thirds(values: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Positions of the lowest and of the highest third of ``values``, leaving NaN out.

    Ties at a border are broken by a seeded shuffle, so that node numbers decide nothing.
    """
    known = (~values.isnan()).nonzero().squeeze(-1)
    shuffled = known[torch.randperm(known.numel(), generator=generator_on(torch.device("cpu"), seed))]
    ordered = shuffled[values[shuffled].argsort(stable=True)]
    size = known.numel() // 3
    return ordered[:size], ordered[known.numel() - size :]


def removal_name(share: float) -> str:
    """What the score with this share of edges kept is called."""
    return f"{100 * share:.6g} % of edges"


def _checked_shares(keep: Sequence[float]) -> list[float]:
    try:
        shares = [float(share) for share in keep]
    except (TypeError, ValueError):
        raise ConfigError(f"keep must be a list of shares of edges in [0, 1] (got {keep!r}).") from None
    for share in shares:
        if not 0 <= share <= 1:
            raise ConfigError(f"keep must hold shares of edges in [0, 1] (got {share}).")
    return shares


def _mean_score(scores: list[Score]) -> Score:
    accuracies = torch.tensor([s.accuracy for s in scores], dtype=torch.float64)
    return Score(
        accuracy=accuracies.mean().item(),
        macro_f1=sum(s.macro_f1 for s in scores) / len(scores),
        count=scores[0].count,
        deviation=accuracies.std(correction=0).item(),
        rmse=sum(s.rmse for s in scores) / len(scores),
    )


def plain(s: Score) -> dict[str, float | int | None]:
    """A score as JSON-ready values; what does not apply is None."""
    values = {"accuracy": s.accuracy, "macro_f1": s.macro_f1, "deviation": s.deviation, "rmse": s.rmse}
    return {"count": s.count} | {key: None if math.isnan(value) else value for key, value in values.items()}
