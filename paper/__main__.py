"""The paper's tables, measured.

Example: python -m paper run main --datasets Cora --splits 5 --root DIR; python -m paper table main
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aggbuffer.text import markdown_table
from paper import runs
from paper.methods import by_name

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)
SIX = "Cora,CiteSeer,PubMed,Photo,CS,Chameleon"

Datasets = Annotated[str, typer.Option(help="Names, separated by commas.")]
Methods = Annotated[str, typer.Option(help="Names, separated by commas.")]


@app.command()
def run(
    table: Annotated[str, typer.Argument(help="Only 'main' so far.")],
    datasets: Datasets = SIX,
    methods: Methods = "GCN,GCN_B paper",
    splits: Annotated[int, typer.Option(help="How many splits.")] = 10,
    root: Annotated[Path | None, typer.Option(envvar="AGGBUFFER_DATA_ROOT", help="Folder with the graphs.")] = None,
) -> None:
    """Measure what is missing; a killed run loses one unit."""
    _known(table)
    todo = [unit for unit in runs.units(datasets.split(","), methods.split(","), splits) if not unit.is_done]
    for number, unit in enumerate(todo, 1):
        result = runs.measure(unit, root)
        accuracy = 100 * result["test"]["overall"]["accuracy"]
        told = f"{unit.dataset} {unit.method} split {unit.split}: {accuracy:.2f} % in {result['seconds']:.0f} s"
        typer.echo(f"[{number}/{len(todo)}] {told}")


@app.command(name="table")
def show(table: Annotated[str, typer.Argument(help="Only 'main' so far.")], datasets: Datasets = SIX) -> None:
    """Means and standard deviations of what has been measured, as markdown."""
    _known(table)
    typer.echo(main_table(datasets.split(",")))


def main_table(datasets: list[str]) -> str:
    """Overall, head, tail, and accuracy without edges, in percent over the measured splits."""
    rows = []
    for dataset in datasets:
        for method in by_name():
            found = [result["test"] for result in runs.results(dataset, method)]
            if found:
                columns = [[f[group]["accuracy"] for f in found] for group in ("overall", "head", "tail")]
                columns += [[f["edge_removal"][share]["accuracy"] for f in found] for share in ("0.5", "0.0")]
                rows.append([dataset, method, *map(_told, columns), str(len(found))])
    return markdown_table(["graph", "method", "overall", "head", "tail", "half the edges", "no edges", "splits"], rows)


def _told(accuracies: list[float]) -> str:
    mean = sum(accuracies) / len(accuracies)
    deviation = (sum((a - mean) ** 2 for a in accuracies) / max(1, len(accuracies) - 1)) ** 0.5
    return f"{100 * mean:.2f} ± {100 * deviation:.2f}"


def _known(table: str) -> None:
    if table != "main":
        raise typer.BadParameter(f"there is no table {table!r} yet; expected 'main'")


if __name__ == "__main__":
    app()
