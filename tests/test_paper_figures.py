"""Figures show what was measured, and measuring does not change what is measured."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest
import torch

from aggbuffer.losses import divergence
from conftest import CLASSES, small_graph
from paper.bases import Augmentation, new, train_new
from paper.figures import FIGURES, approximation, curves, discrepancy, panels
from paper.figures.figure import Figure
from paper.figures.watch import Watched, terms
from paper.settings import BaseSettings, BufferSettings
from paper.store import Store

SETTINGS = BaseSettings(hidden=8, lr=1e-2, weight_decay=0.0, dropout=0.5, max_epochs=9, patience=9)


def test_a_look_does_not_change_the_training() -> None:
    data = small_graph()
    seen: list[int] = []
    look = Watched(Augmentation(), 0.5, 4, lambda epoch, clean, perturbed: seen.append(epoch), seed=1)
    watched, alone = train_new(data, SETTINGS, 0, look), train_new(data, SETTINGS, 0)
    assert seen == [0, 4, 8]
    for name, value in alone.gnn.state_dict().items():
        assert torch.equal(value, watched.gnn.state_dict()[name])


def test_terms_by_hand() -> None:
    draw = torch.Generator().manual_seed(0)
    clean, perturbed = torch.randn(2, 5, CLASSES, generator=draw)
    labels = torch.tensor([0, 1, 2, 3, 0])
    found = terms(clean, perturbed, labels)
    log_q, log_p = clean.log_softmax(-1), perturbed.log_softmax(-1)
    at = torch.arange(5)
    assert found["bias"] == pytest.approx(-log_q[at, labels].mean().item(), abs=1e-5)
    assert found["robust_by_label"] == pytest.approx((log_q - log_p)[at, labels].mean().item(), abs=2e-5)
    assert found["robust"] == pytest.approx(divergence(clean, perturbed, "multiclass").mean().item(), abs=1e-5)
    assert found["accuracy"] == pytest.approx((clean.argmax(-1) == labels).float().mean().item(), abs=1e-5)


def test_histories_have_a_point_a_look() -> None:
    data = small_graph(nodes=40, edges=120)
    histories = curves.watched(data, SETTINGS, 0.5, seed=0, epochs=9, every=3)
    assert {len(values) for history in histories.values() for values in history.values()} == {3}
    assert histories["GCN"]["bias"][0] == histories["DropEdge"]["bias"][0]  # the same first weights
    assert histories["GCN"]["bias"][1] != histories["DropEdge"]["bias"][1]
    first = approximation.while_base_trains(data, SETTINGS, 0.5, seed=0, epochs=9, every=3)
    gnn = new(data, SETTINGS, 0).eval()
    before = {name: value.clone() for name, value in gnn.state_dict().items()}
    second = approximation.while_buffer_trains(gnn, data, BufferSettings(0.5, 0.0, 0.5), seed=0, epochs=9, every=3)
    assert {len(values) for history in (first, second) for values in history.values()} == {3}
    assert all(torch.equal(value, before[name]) for name, value in gnn.state_dict().items())


def test_layers_without_edges_do_not_move() -> None:
    data = small_graph(nodes=40, edges=120)
    mlp = new(data, BaseSettings(8, 1e-2, 0.0, 0.0, architecture="mlp"), 0).eval()
    rows = discrepancy._layers(mlp, data, seed=0)
    assert [row["output"] for row in rows] == [0.0, 0.0]
    norms = [torch.linalg.matrix_norm(conv.weight, 2).item() for conv in mlp.convs]
    assert [row["c1_bound"] for row in rows] == pytest.approx(norms, rel=1e-3)
    rows = discrepancy._layers(new(data, SETTINGS, 0).eval(), data, seed=0)
    assert rows[0]["c1"] == 0.0
    assert all(0 < row["output"] <= row["output_bound"] for row in rows)
    assert all(row["c1"] <= row["c1_bound"] * 1.001 and row["c2"] <= row["c2_bound"] for row in rows)


def test_a_band_reaches_from_the_least_to_the_most() -> None:
    lines = panels.band("after", [0, 1], [[1.0, 5.0], [2.0, 1.0], [6.0, 3.0]])
    assert list(lines[-1].ys) == [3.0, 3.0]
    middle, half = lines[0].ys, lines[0].spread
    assert [m - h for m, h in zip(middle, half, strict=True)] == [1.0, 1.0]
    assert [m + h for m, h in zip(middle, half, strict=True)] == [6.0, 5.0]


RESULTS: dict[str, dict[str, Any]] = {
    "curves": {
        "epochs": [0, 4],
        "histories": {m: {name: [0.5, 0.7] for name in curves.TOLD} for m in curves.METHODS},
    },
    "approximation": {
        "epochs": {"base": [0, 4], "buffer": [0, 6]},
        "histories": {stage: {way: [0.1, 0.2] for way in approximation.WAYS} for stage in approximation.TOLD},
    },
    "discrepancy": {
        "layers": {
            method: [dict.fromkeys([*discrepancy.QUANTITIES, *(f"{q}_bound" for q in discrepancy.QUANTITIES)], 2.0)] * 2
            for method in discrepancy.METHODS
        }
    },
}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
def test_every_figure_is_well_formed(figure: Figure) -> None:
    for name, svg in figure.draw([RESULTS[figure.name]] * 2).items():
        root = ET.fromstring(svg)
        assert name.endswith(".svg")
        assert root.tag.endswith("svg")
        assert "nan" not in svg


@pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
def test_committed_figures_are_drawn_from_committed_results(figure: Figure) -> None:
    for path, svg in figure.drawn(Store()).items():
        assert path.read_text() == svg, f"run `python -m paper figure {figure.name} --draw-only`"
