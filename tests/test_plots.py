"""The drawings hold the very numbers of the objects, on the caller's axes or on their own."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import aggbuffer as ab
from aggbuffer.evaluate import GROUPS, removal_share
from helpers_fit import base, buffered, community_graph, refused, targets_of


@pytest.fixture(autouse=True)
def drawing_to_files() -> Iterator[None]:
    """No window is opened."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    yield
    plt.close("all")


class Objects:
    """One of each that can be drawn."""

    def __init__(self, task: str = "multiclass", **options: Any) -> None:
        data = community_graph()
        data.y = targets_of(task, data)
        gnn = base(task=task)
        self.diagnosis = ab.diagnose(gnn, data)
        self.before = ab.evaluate(gnn, data)
        with buffered(gnn, data) as model:
            self.result = ab.fit(model, data, max_epochs=12, lr=0.03, progress=False, **options)
            self.comparison = ab.compare(self.before, ab.evaluate(model, data))

    def all(self) -> list[Any]:
        return [self.before, self.comparison, self.diagnosis, self.result]


def line(ax: Axes, label: str) -> list[tuple[float, float]]:
    (found,) = [each for each in ax.lines if each.get_label() == label]
    return list(zip(found.get_xdata(), found.get_ydata(), strict=True))


def on_its_own(drawn: Any) -> Axes:
    """Drawn on the caller's axes, as a picture that can be made."""
    figure = Figure()
    ax = figure.add_subplot()
    assert drawn.plot(ax) is ax
    figure.savefig(io.BytesIO(), format="png")
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    return ax


def test_an_evaluation_shows_its_curve_and_its_groups() -> None:
    evaluation = Objects().before
    ax = on_its_own(evaluation)
    assert line(ax, "score") == [(100 * kept, 100 * s.accuracy) for kept, s in evaluation.edge_removal.items()]
    (groups,) = [each for each in ax.lines if each.get_linestyle() == "None"]
    ticks = {tick.get_text(): place for tick, place in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)}
    shown = dict(zip(groups.get_xdata(), groups.get_ydata(), strict=True))
    for name in GROUPS:
        assert shown[ticks[name]] == 100 * getattr(evaluation, name).accuracy
    assert {"100", "75", "50", "25", "0"} <= set(ticks)
    left, right = ax.get_xlim()
    assert left > right  # fewer edges to the right
    assert ax.get_ylabel() == "accuracy (%)"


def test_a_comparison_shows_both_sides_and_the_interval_of_the_gain() -> None:
    comparison = Objects().comparison
    ax = on_its_own(comparison)
    curve = [(removal_share(d.name), d) for d in comparison.differences]
    rows = [(100 * kept, d) for kept, d in curve if kept is not None]
    assert line(ax, "before") == [(kept, 100 * d.before.accuracy) for kept, d in rows]
    assert line(ax, "after") == [(kept, 100 * d.after.accuracy) for kept, d in rows]
    (bars,) = [each for each in ax.collections if isinstance(each, matplotlib.collections.LineCollection)]
    ends = {x: (low, high) for (x, low), (_, high) in bars.get_segments()}
    assert len(ends) == len(comparison.differences)
    for kept, d in rows:
        was = d.before.accuracy
        assert ends[kept] == pytest.approx((100 * (was + d.accuracy.low), 100 * (was + d.accuracy.high)))
    # Told apart without colours too.
    kinds = {(each.get_color(), each.get_marker()) for each in ax.lines if each.get_label() in ("before", "after")}
    assert len({color for color, _ in kinds}) == len({marker for _, marker in kinds}) == 2


def test_a_diagnosis_shows_what_flips_by_degree() -> None:
    diagnosis = Objects().diagnosis
    ax = on_its_own(diagnosis)
    labels = {
        "overall": "all nodes", "low": "third of lowest degree", "middle": "between", "high": "third of highest degree",
    }  # fmt: skip
    for name, label in labels.items():
        assert line(ax, label) == [(100 * kept, 100 * getattr(f, name)) for kept, f in diagnosis.flips.items()]
    assert {each.get_text() for each in ax.get_legend().get_texts()} == set(labels.values())


@pytest.mark.parametrize(("monitor", "scale"), [("val_loss", 1), ("val_accuracy", -100), ("rc_loss", 1)])
def test_a_fit_shows_its_epochs_and_the_one_that_was_kept(monitor: Any, scale: float) -> None:
    result = Objects(monitor=monitor).result
    ax = on_its_own(result)
    assert line(ax, "bias") == [(r.epoch, r.bias) for r in result.history]
    assert line(ax, "robustness") == [(r.epoch, r.robust) for r in result.history]
    (right,) = [each for each in ax.figure.axes if each is not ax]
    assert list(right.lines[0].get_ydata()) == [scale * r.score for r in result.history]
    assert right.get_ylabel() == right.lines[0].get_label()
    assert line(ax, f"epoch {result.best_epoch}, kept")[0][0] == result.best_epoch


def test_regression_is_drawn_in_its_own_units() -> None:
    objects = Objects("regression")
    evaluation, comparison, diagnosis, _ = (on_its_own(each) for each in objects.all())
    assert line(evaluation, "score") == [(100 * k, s.rmse) for k, s in objects.before.edge_removal.items()]
    assert evaluation.get_ylabel() == comparison.get_ylabel() == "RMSE (units of the target)"
    assert "spread" in diagnosis.get_ylabel()


def test_without_axes_each_gets_a_figure_and_given_axes_leave_pyplot_alone() -> None:
    import matplotlib.pyplot as plt

    objects = Objects().all()
    for each in objects:
        on_its_own(each)
    assert plt.get_fignums() == []
    assert len({id(each.plot().figure) for each in objects}) == 4
    assert len(plt.get_fignums()) == 4


def test_an_evaluation_without_removal_shows_its_groups() -> None:
    data = community_graph()
    ax = on_its_own(ab.evaluate(base(), data, keep=()))
    assert "kept (%)" not in ax.get_xlabel()
    assert [each.get_label() for each in ax.lines] == ["score"]


def test_two_drawings_on_one_axes_keep_their_direction() -> None:
    evaluation, ax = Objects().before, Figure().add_subplot()
    evaluation.plot(ax)
    evaluation.plot(ax)
    left, right = ax.get_xlim()
    assert left > right


def test_the_colours_are_those_that_the_colour_blind_tell_apart() -> None:
    okabe_ito = {"#0072b2", "#d55e00", "#009e73", "#666666"}
    for each in Objects().all():
        lines = [line for axes in on_its_own(each).figure.axes for line in axes.lines]
        # Caps of the error bars are markers without a line.
        colours = {line.get_markeredgecolor() if line.get_linestyle() == "None" else line.get_color() for line in lines}
        assert len(lines) >= 2
        assert {to_hex(colour) for colour in colours} <= okabe_ito


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Objects().result
    found = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "matplotlib" else found(name))
    with refused(r"A plot needs matplotlib, which is not installed; run pip install 'aggbuffer\[plots\]'"):
        result.plot()
    assert "<table>" in result._repr_html_()
    assert "<img" not in result._repr_html_()


@pytest.mark.slow
def test_matplotlib_is_not_imported_before_something_is_drawn() -> None:
    code = (
        "import sys\n"
        "from helpers_fit import base, community_graph\n"
        "import aggbuffer as ab\n"
        "str(ab.evaluate(base(), community_graph()))\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=__file__.rpartition("/")[0], check=True, timeout=120)
