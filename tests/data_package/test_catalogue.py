"""The table of benchmark graphs is consistent with itself."""

import re

import pytest

from aggbuffer.data import BENCHMARKS, find
from aggbuffer.errors import ConfigError


def test_names_and_aliases_are_unique_and_found():
    names = [name for b in BENCHMARKS for name in (b.name.lower(), *b.aliases)]
    assert len(set(names)) == len(names)
    assert find("a.photo") is find("PHOTO")
    assert len(BENCHMARKS) == 14


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="no benchmark graph 'Coral'; choose one of Cora, CiteSeer"):
        find("Coral")


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda b: b.name)
def test_hashes_and_notes(benchmark):
    assert benchmark.files
    for digest in (*benchmark.files.values(), *benchmark.packaged_files.values()):
        assert digest is None or re.fullmatch("[0-9a-f]{64}", digest)
    counts_differ = benchmark.paper_edges not in (None, benchmark.edges) and benchmark.edges is not None
    if counts_differ or benchmark.paper_nodes not in (None, benchmark.nodes):
        assert benchmark.note
