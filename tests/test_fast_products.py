"""The products behind the fast path are the plain ones, with the plain gradients; which is taken is decided once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aggbuffer.fast import rates, tall
from aggbuffer.fast.csr import by_rows, to_sparse, transposed
from aggbuffer.perturb import DropoutMask


def numbers(*shape: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("width", [1, 3, 8, 9, 15, 16, 31, 32, 64, 65])
@pytest.mark.parametrize("rows", [1, 15, 16, 100])
def test_a_tall_product_is_the_product(rows: int, width: int) -> None:
    x, weight = numbers(rows, 12).requires_grad_(), numbers(12, width, seed=1).requires_grad_()
    found, expected = tall.times(x, weight), x @ weight
    torch.testing.assert_close(found, expected)
    of_found = torch.autograd.grad(found.sin().sum(), (x, weight))
    for ours, plain in zip(of_found, torch.autograd.grad(expected.sin().sum(), (x, weight)), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("a", "b"), [(3, 3), (7, 7), (16, 16), (40, 40)])
def test_joined_products_are_both_products(a: int, b: int, dropped: bool) -> None:
    x, frozen, own = numbers(50, 12).requires_grad_(), numbers(12, a, seed=1), numbers(12, b, seed=2).requires_grad_()
    mask = DropoutMask.draw(x.detach(), 0.5 if dropped else 0.0, torch.Generator().manual_seed(3))
    received = mask.apply(x)
    expected = (received @ frozen).sin().sum() + (x @ own).cos().sum()
    if dropped:
        first, second = tall.joined_dropped(x, received, lambda: mask.numbers(x.dtype), frozen, own)
    else:
        first, second = tall.joined(x, frozen, own)
    found = first.sin().sum() + second.cos().sum()
    torch.testing.assert_close(found, expected)
    plain = torch.autograd.grad(expected, (x, own))
    for ours, theirs in zip(torch.autograd.grad(found, (x, own)), plain, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("rows", "columns", "density"), [(3000, 5, 0.5), (700, 40, 0.02), (10, 10, 0.0), (1, 4, 1.0)])
def test_the_transpose_in_blocks_is_the_transpose(rows: int, columns: int, density: float) -> None:
    x = numbers(rows, columns) * (torch.rand(rows, columns, generator=torch.Generator().manual_seed(1)) < density)
    sparse = to_sparse(x)
    dense, gradient = numbers(columns, 3, seed=2), numbers(rows, 3, seed=3)
    torch.testing.assert_close(sparse @ dense, x @ dense)
    torch.testing.assert_close(transposed(sparse, columns) @ gradient, x.t() @ gradient)


def test_a_matrix_of_ones_needs_no_values() -> None:
    row, column = torch.tensor([0, 0, 2]), torch.tensor([1, 2, 0])
    dense = numbers(3, 4)
    expected = torch.stack([dense[1] + dense[2], torch.zeros(4, dtype=dense.dtype), dense[0]])
    torch.testing.assert_close(by_rows(row, column, None, 3) @ dense, expected)


def test_the_rate_is_measured_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measurements = iter([0.31, 0.42])
    monkeypatch.setattr(rates, "measured", lambda: next(measurements))
    rates.sparse_below.cache_clear()
    assert rates.sparse_below() == 0.31
    rates.sparse_below.cache_clear()  # as in another process
    assert rates.sparse_below() == 0.31
    kept = tmp_path / "aggbuffer" / "sparse-below.json"
    assert list(json.loads(kept.read_text()).values()) == [0.31]
    kept.write_text("not JSON")
    rates.sparse_below.cache_clear()
    assert rates.sparse_below() == rates.USUAL
    rates.sparse_below.cache_clear()


def test_a_rate_that_cannot_be_kept_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aggbuffer").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rates.sparse_below.cache_clear()
    assert rates.sparse_below() == rates.USUAL
    rates.sparse_below.cache_clear()


def test_a_user_without_a_home_keeps_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", none)
    rates.sparse_below.cache_clear()
    assert rates.sparse_below() == rates.USUAL
    rates.sparse_below.cache_clear()


def test_the_measurement_gives_a_share() -> None:
    assert 0 < rates.measured() <= 0.5
