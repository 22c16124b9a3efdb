"""Buffer files: round trips, other types, damage, foreign files, other bases, and the file kept from version 0.1."""

from __future__ import annotations

import copy
import json
import pickle
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GAT, GCN, GIN, GCNConv, GINConv, SGConv

import aggbuffer
from aggbuffer import BufferConfig, BufferedGNN, io
from aggbuffer.errors import BufferFileError, ModelError, ModelTypeError
from conftest import CLASSES, FEATURES, Footprint, answer, seeded, shake, small_graph

KEPT = Path(__file__).parent / "data"


class Mixed(nn.Module):
    """One layer of each kind: on the output, before an MLP, at each hop; also the base of the kept file."""

    def __init__(self, hops: int = 2) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), train_eps=True)
        self.third = SGConv(8, CLASSES, K=2)
        self.fourth = APPNP(K=hops, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.first(x, edge_index)).relu()
        x = self.second(x, edge_index).relu()
        return self.fourth(self.third(x, edge_index), edge_index)


BASES: dict[str, Callable[[], nn.Module]] = {
    "mixed": Mixed,
    "GCN": lambda: GCN(FEATURES, 8, 3, CLASSES, norm="BatchNorm", dropout=0.5),
    "GAT": lambda: GAT(FEATURES, 8, 2, CLASSES, heads=2, jk="cat"),
    "lstm": lambda: GIN(FEATURES, 8, 2, CLASSES, jk="lstm"),
}


def buffered(name: str, graph: Data, config: BufferConfig | None = None) -> BufferedGNN:
    return shake(aggbuffer.attach(seeded(BASES[name]), graph, config))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffers.safetensors"


@pytest.fixture
def saved(path: Path, graph: Data) -> Path:
    """A file for ``seeded(Mixed)``."""
    aggbuffer.save(buffered("mixed", graph), path)
    return path


def refused(gnn: nn.Module, path: Path, message: str) -> None:
    footprint = Footprint(gnn)
    with pytest.raises(BufferFileError, match=message) as caught:
        aggbuffer.load(gnn, path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    footprint.check()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", BASES)
def test_round_trip_to_the_bit(name: str, bias: bool, graph: Data, path: Path) -> None:
    model = buffered(name, graph, BufferConfig(bias=bias))
    expected = model.run(graph)
    aggbuffer.save(model, str(path))
    gnn = seeded(BASES[name]).train()
    footprint, calls, randomness = Footprint(gnn), [], torch.get_rng_state()
    handle = gnn.register_forward_hook(lambda *_: calls.append(1))
    loaded = aggbuffer.load(gnn, str(path))
    handle.remove()
    assert not calls
    assert torch.equal(torch.get_rng_state(), randomness)
    assert torch.equal(loaded.run(graph), expected)
    assert (loaded.config, loaded.layers, loaded.num_features) == (model.config, model.layers, model.num_features)
    for ours, theirs in zip(loaded.base.parameters(), model.base.parameters(), strict=True):
        assert ours.requires_grad == theirs.requires_grad
    assert not any(part.training for part in gnn.modules())
    aggbuffer.detach(loaded)
    footprint.check()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mixed", "GAT"])
def test_another_type_on_either_side(name: str, dtype: torch.dtype, graph: Data, tmp_path: Path) -> None:
    model = buffered(name, graph)
    expected = model.run(graph)
    aggbuffer.save(model, tmp_path / "a")
    other = aggbuffer.load(seeded(BASES[name]).to(dtype), tmp_path / "a")
    assert {p.dtype for p in other.buffer_parameters()} == {dtype}
    out = answer(other, graph.x.to(dtype), graph.edge_index)
    tolerance = 1e-5 if dtype == torch.float64 else 0.1
    torch.testing.assert_close(out.double(), expected.double(), rtol=tolerance, atol=tolerance)
    aggbuffer.save(other, tmp_path / "b")
    back = aggbuffer.load(seeded(BASES[name]), tmp_path / "b")
    assert {p.dtype for p in back.buffer_parameters()} == {torch.float32}
    again = seeded(BASES[name], seed=5).to(dtype)
    for file in ("a", "b"):
        refused(again, tmp_path / file, "the weights differ")


def test_the_header(graph: Data, path: Path) -> None:
    model = buffered("mixed", graph)
    aggbuffer.save(model, path, extra={"accuracy": "84.8", "epochs": 12})
    header = io.read_header(path)
    assert header.library_version == aggbuffer.__version__
    assert header.torch_version == torch.__version__
    assert (header.config, header.num_features) == (model.config, FEATURES)
    assert tuple(layer.spec for layer in header.layers) == model.layers
    assert [layer.class_name for layer in header.layers] == ["GCNConv", "GINConv", "SGConv", "APPNP"]
    assert header.num_parameters == model.num_buffer_parameters
    assert header.fingerprint == io.fingerprint(model.base)
    assert header.extra == {"accuracy": "84.8", "epochs": "12"}
    assert header.precision == "float32"
    with pytest.raises(AttributeError):
        header.num_features = 3
    with safe_open(path, "pt") as file:  # plain safetensors, readable by anyone
        assert json.loads(file.metadata()["config"]) == model.config.to_dict()


def test_fingerprint() -> None:
    print_of = io.fingerprint
    gnn = seeded(Mixed)
    first = print_of(gnn)
    assert len(first) == 64
    assert print_of(seeded(Mixed).train()) == print_of(copy.deepcopy(gnn).eval()) == first
    assert print_of(seeded(Mixed, seed=1)) != first
    assert print_of(seeded(Mixed).double()) != first
    with torch.no_grad():
        gnn.second.eps += 1e-7
    assert print_of(gnn) != first
    gnn = seeded(Mixed)
    gnn.norm.num_batches_tracked += 1
    assert print_of(gnn) != first
    assert print_of(nn.ReLU()) == print_of(nn.Tanh())  # no state


def test_another_base(saved: Path, graph: Data) -> None:
    gnn = seeded(Mixed)
    with torch.no_grad():
        gnn.norm.running_mean[2] += 0.001
    refused(gnn, saved, r"made for another base model: the weights differ \(fingerprint \w{12}, expected \w{12}\)")
    with pytest.warns(UserWarning, match="the weights differ"):
        model = aggbuffer.load(gnn, saved, strict=False)
    assert model.run(graph).shape == (14, CLASSES)
    refused(seeded(Mixed).double().float().bfloat16().float(), saved, "the weights differ")  # rounded, so another


class Shallow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, 8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.first(x, edge_index)


def swapped(name: str, layer: nn.Module) -> nn.Module:
    gnn = seeded(Mixed)
    setattr(gnn, name, layer)
    return gnn


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (Shallow, "'second', which this model lacks"),
        (lambda: swapped("first", GINConv(nn.Linear(FEATURES, 8))), "a GCNConv at 'first', but .* a GINConv"),
        (lambda: swapped("first", GCNConv(FEATURES, 9)), "out_channels=8, but this model has out_channels=9"),
        (lambda: swapped("first", GCNConv(5, 8)), "in_channels=6, but this model has in_channels=5"),
        (lambda: Mixed(hops=5), "'fourth' with K=2, but this model has K=5"),
        (lambda: swapped("norm", nn.Identity()), "parameters have other names or shapes"),
    ],
)
def test_a_base_of_another_build(build: Callable[[], nn.Module], message: str, saved: Path) -> None:
    refused(seeded(build), saved, message)
    if "names or shapes" not in message:  # a layer that does not fit is refused even if the user insists
        with pytest.raises(BufferFileError, match=message):
            aggbuffer.load(seeded(build), saved, strict=False)


def test_the_refusals_of_attach_come_first(saved: Path, graph: Data) -> None:
    gnn = seeded(Mixed)
    model = aggbuffer.attach(gnn, graph)
    for carrying in (gnn, model, nn.Sequential(gnn)):
        with pytest.raises((ModelError, BufferFileError), match="already carries buffers"):
            aggbuffer.load(carrying, saved)
    with pytest.raises(ModelTypeError, match=r"expected a torch\.nn\.Module"):
        aggbuffer.load("gnn.pt", saved)
    with pytest.raises(ModelError, match="cached=True"):
        aggbuffer.load(GCN(FEATURES, 8, 2, CLASSES, cached=True), saved)
    with pytest.raises(ModelError, match="already compiled"):
        aggbuffer.load(torch.compile(seeded(Mixed), backend="eager"), saved)
    with pytest.raises(ModelError, match="no shape yet"):
        aggbuffer.load(GCN(-1, 8, 2, CLASSES), saved)


def test_every_truncation(saved: Path) -> None:
    whole, gnn = saved.read_bytes(), seeded(Mixed)
    for length in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        saved.write_bytes(whole[:length])
        refused(gnn, saved, "not a safetensors file, or is truncated")
    saved.write_bytes(whole + b"more")
    refused(gnn, saved, "not a safetensors file, or is truncated")


class Trap:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return pytest.exit, ("unpickled!",)


def test_foreign_files(path: Path, graph: Data, shared: Path) -> None:
    gnn = seeded(Mixed)
    refused(gnn, path, "There is no file")
    refused(gnn, path.parent, "There is no file")
    path.write_text("accuracy,84.8\n")
    refused(gnn, path, "not a safetensors file")
    path.write_bytes(pickle.dumps(Trap()))
    refused(gnn, path, "not a safetensors file")
    torch.save({"trap": Trap()}, path)
    refused(gnn, path, "not a safetensors file")
    torch.save(buffered("mixed", graph), path)
    refused(gnn, path, "not a safetensors file")
    save_file({"weight": torch.ones(2)}, path)
    refused(gnn, path, "not one that aggbuffer.save wrote")
    save_file({"weight": torch.ones(2)}, path, {"format": "pt"})
    refused(gnn, path, "not one that aggbuffer.save wrote")
    refused(gnn, shared / "reference_checkpoints" / "gcn_sym.safetensors", r"aggbuffer\.interop\.load_reference")
    with pytest.raises(BufferFileError, match="There is no file"):
        io.read_header(path.with_name("nothing"))


def rewritten(path: Path, change: Callable[[dict[str, Tensor], dict[str, str]], object]) -> None:
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118
    change(tensors, metadata)
    save_file(tensors, path, metadata)


def edited(key: str, old: str, new: str) -> Callable[[dict[str, Tensor], dict[str, str]], object]:
    def change(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        assert old in metadata[key]
        metadata[key] = metadata[key].replace(old, new)

    return change


DAMAGE: dict[str, Callable[[dict[str, Tensor], dict[str, str]], object]] = {
    "no config": lambda tensors, metadata: metadata.pop("config"),
    "no layers": lambda tensors, metadata: metadata.pop("layers"),
    "half a config": edited("config", "}", ""),
    "an unknown setting": edited("config", "bias", "boas"),
    "a wrong setting": edited("config", "agg_b", "agg_c"),
    "no number": edited("num_features", "6", "six"),
    "no version": lambda tensors, metadata: metadata.update(format_version="one"),
    "no such type": edited("layers", "float32", "float33"),
    "not a type": edited("layers", "float32", "nn"),
    "an unknown kind": edited("layers", '"mlp", "in', '"map", "in'),
    "no such MLP": edited("layers", '"nn"', '"mm"'),
    "hops where none are": edited("layers", '"kind": "output"', '"kind": "hops"'),
    "other widths": edited("layers", '"in_width": 8', '"in_width": 7'),
    "a block missing": lambda tensors, metadata: tensors.pop("1.weight"),
    "a block too many": lambda tensors, metadata: tensors.update({"9.weight": torch.ones(2)}),
    "a block of other shape": lambda tensors, metadata: tensors.update({"1.weight": torch.ones(2)}),
    "no probe": lambda tensors, metadata: tensors.pop("base.probe"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name: str, saved: Path) -> None:
    rewritten(saved, DAMAGE[name])
    refused(seeded(Mixed), saved, "is damaged")


def test_a_newer_format(saved: Path) -> None:
    rewritten(saved, lambda tensors, metadata: metadata.update(format_version="2", library_version="7.0"))
    refused(seeded(Mixed), saved, r"written by aggbuffer 7\.0, which is newer than this one .*upgrade")


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """A disk that is full after ``size`` bytes, as far as this process can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_unwritable_paths_leave_nothing_behind(graph: Data, saved: Path, tmp_path: Path) -> None:
    model, before = buffered("mixed", graph), saved.read_bytes()
    shake(model, seed=4)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "no" / "such", tmp_path / "folder", saved / "inside", tmp_path / ("x" * 300)):
        with pytest.raises(BufferFileError, match="cannot be written") as caught:
            aggbuffer.save(model, path)
        assert "\n" not in str(caught.value)
    with files_limited_to(1000), pytest.raises(BufferFileError, match="cannot be written"):
        aggbuffer.save(model, saved)
    assert saved.read_bytes() == before  # the file that was there still is
    assert sorted(part.name for part in tmp_path.iterdir()) == [saved.name, "folder"]
    aggbuffer.save(model, saved)
    assert saved.read_bytes() != before
    assert saved.stat().st_mode & 0o777 == 0o666 & ~_umask(tmp_path)
    assert torch.equal(aggbuffer.load(seeded(Mixed), saved).run(graph), model.run(graph))


def _umask(folder: Path) -> int:
    (folder / "plain").touch()
    return 0o666 & ~((folder / "plain").stat().st_mode & 0o777)


def test_only_buffered_models_are_saved(graph: Data, path: Path) -> None:
    with pytest.raises(ModelTypeError, match="only a BufferedGNN can be saved"):
        aggbuffer.save(seeded(Mixed), path)
    assert not path.exists()
    model = buffered("mixed", graph)
    aggbuffer.save(torch.compile(model, backend="eager"), path)
    assert torch.equal(aggbuffer.load(seeded(Mixed), path).run(graph), model.run(graph))


def test_a_custom_forward(graph: Data, path: Path) -> None:
    class Swapped(Mixed):
        def forward(self, edges: Tensor, x: Tensor) -> Tensor:
            return super().forward(x, edges)

    def forward(model: nn.Module, data: Data) -> Tensor:
        return model(data.edge_index, data.x)

    model = shake(aggbuffer.attach(seeded(Swapped), graph, forward=forward))
    aggbuffer.save(model, path)
    loaded = aggbuffer.load(seeded(Swapped), path, forward=forward)
    assert torch.equal(loaded.run(graph), model.run(graph))


def test_the_file_of_version_0_1() -> None:
    """Every later version loads it; never write it anew."""
    kept = load_file(KEPT / "v0.1-base.safetensors")
    gnn = Mixed()
    gnn.load_state_dict({key.removeprefix("base/"): value for key, value in kept.items() if key.startswith("base/")})
    path = KEPT / "v0.1.aggbuffer.safetensors"
    assert io.read_header(path).library_version == "0.1.0"
    model = aggbuffer.load(gnn, path)
    for name in ("full", "dropped"):
        out = answer(model, kept["graph/x"], kept[f"graph/{name}"])
        torch.testing.assert_close(out, kept[f"logits/{name}"], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(answer(gnn, kept["graph/x"], kept[f"graph/{name}"]), out, atol=0.01)


def write_kept_file() -> None:
    """How the kept file came to be."""
    graph = small_graph(seed=7, loops=True, directed=True)
    gnn = seeded(Mixed)
    with torch.no_grad():
        gnn.norm.running_mean.add_(0.1)
        gnn.second.eps.add_(0.2)
    model = shake(aggbuffer.attach(gnn, graph))
    aggbuffer.save(model, KEPT / "v0.1.aggbuffer.safetensors", extra={"note": "kept for later versions"})
    edges = {"full": graph.edge_index, "dropped": graph.edge_index[:, ::3].contiguous()}
    kept = {f"base/{key}": value.clone() for key, value in gnn.state_dict().items()}
    kept |= {f"graph/{name}": part for name, part in edges.items()} | {"graph/x": graph.x}
    kept |= {f"logits/{name}": answer(model, graph.x, part) for name, part in edges.items()}
    save_file(kept, KEPT / "v0.1-base.safetensors")


if __name__ == "__main__":
    write_kept_file()
