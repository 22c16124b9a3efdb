"""The drawings behind ``.plot()``, in matplotlib and in colours that the colour-blind can tell apart."""

from __future__ import annotations

import base64
import html
import importlib.util
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aggbuffer.evaluate import GROUPS, removal_share
from aggbuffer.extras import require
from aggbuffer.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from aggbuffer.compare import Comparison
    from aggbuffer.diagnose import Diagnosis
    from aggbuffer.evaluate import Evaluation
    from aggbuffer.result import FitResult
    from aggbuffer.targets import Task

# Of Okabe and Ito. Lines differ in their markers besides, for print and for whoever sees no colour at all.
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
_MONITORS = {
    "val_loss": "validation loss",
    "val_accuracy": "validation accuracy (%)",
    "rc_loss": "loss on held-out nodes",
}
_BAND = "standard deviation over draws"
_KEPT = "undirected edges kept (%)"
_FIRST_GROUP, _GROUP_STEP = 118.0, 14.0  # where groups stand on an axis that ends with 100 % of the edges


def plot_evaluation(evaluation: Evaluation, ax: Axes | None = None) -> Axes:
    """Scores of the groups, then of all nodes as edges go, with a band of one standard deviation over draws."""
    ax = _axes(ax)
    scores = dict(evaluation.rows())
    _draw_scores(ax, scores, evaluation.task, _BLUE, "o", "score", band=_BAND)
    _label_scores(ax, scores, evaluation.task)
    _legend(ax)
    return ax


def plot_comparison(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """The same before and after, with the paired intervals of what was gained as bars on what came after."""
    ax = _axes(ax)
    before = {d.name: d.before for d in comparison.differences}
    after = {d.name: d.after for d in comparison.differences}
    _draw_scores(ax, before, comparison.task, _ORANGE, "s", "before")
    _draw_scores(ax, after, comparison.task, _BLUE, "o", "after", band=_BAND)
    if comparison.task != "regression":
        places = _places(after)
        x = [places[d.name] for d in comparison.differences]
        y = [100 * d.after.accuracy for d in comparison.differences]
        # The interval of the gain, hung on the score before.
        low = [100 * (d.accuracy.difference - d.accuracy.low) for d in comparison.differences]
        high = [100 * (d.accuracy.high - d.accuracy.difference) for d in comparison.differences]
        ax.errorbar(
            x, y, [low, high], fmt="none", ecolor=_BLUE, capsize=3, lw=1,
            label=f"{100 * comparison.level:.0f} % interval of the gain",
        )  # fmt: skip
    _label_scores(ax, after, comparison.task)
    _legend(ax)
    return ax


def plot_diagnosis(diagnosis: Diagnosis, ax: Axes | None = None) -> Axes:
    """What moves as edges go, for all nodes and by degree."""
    ax = _axes(ax)
    kept = [100 * share for share in diagnosis.flips]
    groups = (
        ("overall", "all nodes", _GREY, "o"),
        ("low", "third of lowest degree", _ORANGE, "v"),
        ("middle", "between", _GREEN, "d"),
        ("high", "third of highest degree", _BLUE, "^"),
    )
    for name, label, color, marker in groups:
        moved = [100 * getattr(flips, name) for flips in diagnosis.flips.values()]
        ax.plot(kept, moved, color=color, marker=marker, label=label)
    regression = diagnosis.task == "regression"
    ax.set_xticks(kept)
    ax.set_xlabel(_KEPT)
    ax.set_ylabel("change of the outputs (% of their spread)" if regression else "predictions that change (%)")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_inverted(True)
    _legend(ax)
    return ax


def plot_fit(result: FitResult, ax: Axes | None = None) -> Axes:
    """Both terms of the loss, and what the run was stopped on, over epochs; a line marks the epoch that was kept."""
    ax = _axes(ax)
    epochs = [record.epoch for record in result.history]
    scale = -100 if result.monitor == "val_accuracy" else 1
    lines = ax.plot(epochs, [record.bias for record in result.history], color=_ORANGE, label="bias")
    lines += ax.plot(epochs, [record.robust for record in result.history], color=_BLUE, ls="--", label="robustness")
    ax.set_xlabel("epoch")
    ax.set_ylabel("terms of the training loss")
    right = ax.twinx()
    score = [scale * record.score for record in result.history]
    lines += right.plot(epochs, score, color=_GREEN, ls=":", lw=2, label=_MONITORS[result.monitor])
    right.set_ylabel(_MONITORS[result.monitor])
    lines.append(ax.axvline(result.best_epoch, color=_GREY, lw=1, label=f"epoch {result.best_epoch}, kept"))
    _legend(ax, handles=lines)
    return ax


def inline(plot: Callable[[Axes], object], told: str) -> str:
    """A drawing as HTML that needs no file, for what a notebook shows by itself; nothing where matplotlib is missing.

    Args:
        plot: Draws on axes.
        told: What is drawn, for who cannot see it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return ""
    from matplotlib.figure import Figure

    figure, png = Figure(layout="constrained"), io.BytesIO()
    plot(figure.subplots())
    figure.savefig(png, format="png")
    picture = base64.b64encode(png.getvalue()).decode()
    return f'<img alt="{html.escape(told)}" src="data:image/png;base64,{picture}"/>'


def _axes(ax: Axes | None) -> Axes:
    """The caller's axes, or those of a new figure, which notebooks show by themselves."""
    require("matplotlib", "plots", "A plot")
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _legend(ax: Axes, **options: Any) -> None:
    """Above the axes, where no curve can be."""
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False, **options)


def _draw_scores(
    ax: Axes, scores: dict[str, Score], task: Task, color: str, marker: str, label: str, band: str | None = None
) -> None:
    places = _places(scores)
    curve = [name for name in places if name not in GROUPS]
    x, y = [places[name] for name in curve], [_height(scores[name], task) for name in curve]
    spread = [100 * scores[name].deviation for name in curve]
    if curve:
        ax.plot(x, y, color=color, marker=marker, label=label)
        if task != "regression":
            low, high = ([v + sign * s for v, s in zip(y, spread, strict=True)] for sign in (-1, 1))
            ax.fill_between(x, low, high, color=color, alpha=0.2, lw=0, label=band)
    groups = [name for name in places if name in GROUPS]
    heights = [_height(scores[name], task) for name in groups]
    ax.plot(
        [places[name] for name in groups],
        heights,
        color=color,
        marker=marker,
        ls="none",
        label=None if curve else label,
    )


def _label_scores(ax: Axes, scores: dict[str, Score], task: Task) -> None:
    places = _places(scores)
    curve = [name for name in places if name not in GROUPS]
    ticks = {name: places[name] for name in (*(name for name in places if name in GROUPS), *curve)}
    ax.set_xticks(list(ticks.values()), [name if name in GROUPS else f"{ticks[name]:g}" for name in ticks])
    for tick, name in zip(ax.get_xticklabels(), ticks, strict=True):
        tick.set(rotation=40 if name in GROUPS else 0, ha="right" if name in GROUPS else "center")
    if curve and len(curve) < len(places):
        ax.axvline((_FIRST_GROUP + 100) / 2, color=_GREY, lw=0.8)
    ax.set_xlabel(f"groups, all edges kept | {_KEPT}" if curve else "groups, all edges kept")
    ax.set_ylabel("RMSE (units of the target)" if task == "regression" else "accuracy (%)")
    ax.xaxis.set_inverted(True)


def _places(scores: dict[str, Score]) -> dict[str, float]:
    """Where each score stands on the axis: shares in percent, and groups beyond them."""
    groups = [name for name in GROUPS if name in scores and scores[name].count]
    found = {name: _FIRST_GROUP + _GROUP_STEP * i for i, name in enumerate(reversed(groups))}
    for name in scores:
        if (share := removal_share(name)) is not None:
            found[name] = 100 * share
    return found


def _height(score: Score, task: Task) -> float:
    return score.rmse if task == "regression" else 100 * score.accuracy
