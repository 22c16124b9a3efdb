"""Writes the tables of docs/supported-models.md from the tests that prove them.

    python tools/supported_models.py

The models, norms and formats are those that tests/test_attach.py runs; what is refused, and in which words, is what
tests/test_layers.py expects. Where a layer's buffer acts and whether a fast path exists is asked of the library.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "supported-models.md"
BEGIN, END = "<!-- begin: python tools/supported_models.py -->", "<!-- end -->"

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # the tests import each other by their plain names

import aggbuffer  # noqa: E402
import test_attach as attached  # noqa: E402
import test_layers as refused  # noqa: E402
from aggbuffer.fast.layers import fast_form, sgc_propagation  # noqa: E402
from aggbuffer.text import markdown_table  # noqa: E402
from conftest import seeded, small_graph  # noqa: E402

_ACTS = {"output": "on the layer's output", "mlp": "before its MLP", "hops": "at each hop"}


def tables() -> str:
    """All tables, with their headings."""
    parts = [
        ("Ready models", ready_models()),
        ("Layers in hand-written models", layers()),
        ("Other types of numbers", types()),
        ("What is refused", refusals()),
    ]
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts)


def ready_models() -> str:
    """PyG's models with every norm and jumping knowledge that is tested, on both formats of edges."""
    values = parameters(attached.test_ready_models)
    headers = ["model", *(f"norm: {norm}" for norm in named(values["norm"])), "COO", "CSR", "fast"]
    rows = []
    for name in values["name"]:
        data = small_graph()
        model = aggbuffer.attach(seeded(lambda name=name: attached.READY[name](6, 8, 2, 4)), data)
        rows.append([name, *("yes" for _ in values["norm"]), "yes", "yes", yes(is_fast(model))])
    knowledge = ", ".join(f"`{jk}`" for jk in named(values["jk"]))
    return f"Each of them also with every jumping knowledge: {knowledge}.\n\n{markdown_table(headers, rows)}"


def layers() -> str:
    """Convolutions inside a module with an encoder, residual connections and a head."""
    rows = []
    for name in dict.fromkeys([*attached.CONVS, *attached.WITH_ATTRIBUTES]):
        attributes, plain = name in attached.WITH_ATTRIBUTES, name in attached.CONVS
        data = small_graph(attributes=0 if plain else 3)
        model = aggbuffer.attach(seeded(lambda name=name: hand_written(name)), data)
        kinds = sorted({layer.kind for layer in model.layers})
        formats = ["yes", yes(plain and name not in attached.NO_CSR)]
        cells = [yes(name in attached.WEIGHTED), yes(attributes), *formats, yes(is_fast(model))]
        rows.append([spoken(name), ", ".join(_ACTS[kind] for kind in kinds), *cells])
    return markdown_table(
        ["layer", "the term is added", "edge weights", "edge attributes", "COO", "CSR", "fast"], sorted(rows)
    )


def types() -> str:
    """Models that are tested in other floating-point types."""
    rows = []
    for test in (attached.test_ready_models_in_other_types, attached.test_a_change_of_type_takes_the_buffers_along):
        values = parameters(test)
        made = "attached in that type" if test is attached.test_ready_models_in_other_types else "converted afterwards"
        found = ", ".join(str(dtype).removeprefix("torch.") for dtype in values["dtype"])
        rows.append([", ".join(values["name"]), found, made])
    return markdown_table(["models", "types beside float32", "how"], rows)


def refusals() -> str:
    """What cannot carry a buffer, and the sentence that says so, without what torch adds to it."""
    graph = small_graph()
    lines = []
    for name, (build, _) in refused.REFUSED.items():
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                aggbuffer.attach(build(), graph)  # type: ignore[arg-type]
        except aggbuffer.AggBufferError as error:
            told = re.sub(r"could not run on this graph \(.*?\)\. ", "could not run on this graph (…). ", str(error))
            lines.append(f"- **{name}**: `{told}`")
    return "\n".join(lines)


def parameters(test: Any) -> dict[str, list[Any]]:
    """The values that a test is run for."""
    marks: Iterable[Any] = (mark for mark in test.pytestmark if mark.name == "parametrize")
    return {mark.args[0]: list(mark.args[1]) for mark in marks}


def named(values: list[Any]) -> list[str]:
    """Values as words."""
    return ["none" if value is None else str(value) for value in values]


def spoken(name: str) -> str:
    """The zoo's name of a layer, for readers."""
    if name == "flow":
        return 'GCNConv, `flow="target_to_source"`'
    base, _, variant = name.partition("-")
    return {"": base, "mean": f"{base}, `concat=False`", "max-project": f'{base}, `aggr="max", project=True`'}[variant]


def hand_written(name: str) -> nn.Module:
    """The tests' model over one kind of layer, with edge attributes where the layer is tested with nothing else."""
    if name in attached.CONVS:
        return attached.HandWritten(attached.CONVS[name])
    return attached.HandWrittenWithAttributes(attached.WITH_ATTRIBUTES[name], "edge_attr")


def is_fast(model: aggbuffer.BufferedGNN) -> bool:
    """Whether every layer has a form of the library's own; the others run as PyG has them."""
    modules = dict(model.base.named_modules())
    convs = [modules[layer.name] for layer in model.layers]
    return all(fast_form(conv) is not None or sgc_propagation(conv) for conv in convs)


def yes(value: bool) -> str:
    return "yes" if value else "–"


def page(text: str) -> str:
    """The page with its tables replaced."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), flags=re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote {PAGE.relative_to(ROOT)}")
