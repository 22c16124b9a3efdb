"""The paper's tables and figures, measured.

Example: python -m paper run main --datasets Cora --splits 5 --root DIR; python -m paper table main
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aggbuffer.data import available
from aggbuffer.text import markdown_table
from paper import bars, durations, picks, readme, recipes, render, runner, runs, search
from paper.definitions import HERE, TABLES, WHY_ABSENT, Table
from paper.figures import FIGURES
from paper.methods import by_name
from paper.store import Store
from paper.tables import fill
from paper.units import Unit

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Datasets = Annotated[str | None, typer.Option(help="Names, separated by commas; all of the table's by default.")]
Methods = Annotated[str | None, typer.Option(help="Names, separated by commas; all of the table's by default.")]
Splits = Annotated[int | None, typer.Option(min=1, help="How many splits; the table's own number by default.")]
Root = Annotated[Path | None, typer.Option(envvar="AGGBUFFER_DATA_ROOT", help="Folder with the graphs.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes; they share the cores.")]


@app.command(name="list")
def list_all() -> None:
    """The tables and figures there are."""
    rows = [[t.name, t.title, str(len(t.lines)), str(len(t.datasets)), str(t.splits)] for t in TABLES.values()]
    rows.append(["search", "Grids of the searched hyperparameters", str(len(search.METHODS)), "12", "1"])
    rows += [[f"figure {f.name}", f.title, "", "", str(f.splits)] for f in FIGURES.values()]
    typer.echo(markdown_table(["name", "what", "lines", "graphs", "splits"], rows))


@app.command()
def run(
    table: Annotated[str, typer.Argument(help="A table, or 'search'.")],
    datasets: Datasets = None,
    methods: Methods = None,
    splits: Splits = None,
    jobs: Jobs = 1,
    root: Root = None,
) -> None:
    """Measure what is missing; a killed run loses the units it was at, and several runners share the work."""
    store, failed = Store(), 0
    if table == "search":
        names, grids = _datasets(datasets, tuple(HERE), root), _names(methods) or list(search.METHODS)
        # The next coordinate of a search is known when the last has been measured.
        while todo := [unit for unit in search.units(store, names, grids) if not store.has(unit)]:
            summary = _run(todo, store, root, jobs)
            failed += summary.failed
            if summary.failed or summary.held:
                break
    else:
        chosen = _table(table)
        todo = _buildable(chosen, _datasets(datasets, chosen.datasets, root), methods, splits)
        _refuse_unsearched([unit for unit in todo if not store.has(unit)])
        failed = _run(todo, store, root, jobs).failed
    raise typer.Exit(1 if failed else 0)


@app.command(name="table")
def show(
    table: str, form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(render.FORMATS)}.")] = "markdown"
) -> None:
    """Ours beside published, from the committed results."""
    if form not in render.FORMATS:
        raise typer.BadParameter(f"there is no format {form!r}; expected one of {', '.join(render.FORMATS)}")
    typer.echo(render.FORMATS[form](fill(_table(table), Store())))


@app.command()
def figure(name: str, splits: Splits = None, jobs: Jobs = 1, root: Root = None, draw_only: bool = False) -> None:
    """Measure what a figure shows, if that is missing, and draw it."""
    if name not in FIGURES:
        raise typer.BadParameter(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    chosen, store = FIGURES[name], Store()
    if not draw_only:
        summary = runner.run(
            list(chosen.units(splits)), chosen.measure, store=store, root=root, jobs=jobs, tell=typer.echo
        )
        if summary.failed:
            raise typer.Exit(1)
    for path in chosen.write(store):
        typer.echo(f"wrote {path}")


@app.command()
def status() -> None:
    """What is done, being measured, and to do, with the time left on one process."""
    store, rows = Store(), []
    past = durations.Durations(store)
    work = {table.name: list(table.units(_here(table))) for table in TABLES.values()}
    work["search"] = search.units(store, HERE, search.METHODS)  # what can be told of it so far
    work |= {f"figure {chosen.name}": list(chosen.units()) for chosen in FIGURES.values()}
    for name, every in work.items():
        todo = [unit for unit in every if not store.has(unit)]
        running = sum(store.is_claimed(unit) for unit in todo)
        left = durations.estimate(past, todo) if todo else "–"
        rows.append([name, str(len(every) - len(todo)), str(running), str(len(todo) - running), left])
    typer.echo(markdown_table(["what", "done", "running", "to do", "time left"], rows))


@app.command()
def estimate(
    table: Annotated[str | None, typer.Argument(help="All tables by default.")] = None,
    datasets: Datasets = None,
    methods: Methods = None,
    splits: Splits = None,
    jobs: Jobs = 1,
) -> None:
    """How long what is missing will take, by table and graph, from past durations."""
    store, rows = Store(), []
    past = durations.Durations(store)
    for chosen in [_table(table)] if table else TABLES.values():
        for dataset in _names(datasets) or _here(chosen):
            todo = [u for u in chosen.units([dataset], _names(methods), splits) if not store.has(u)]
            if todo:
                rows.append([chosen.name, dataset, str(len(todo)), durations.estimate(past, todo, jobs)])
    typer.echo(markdown_table(["table", "graph", "units", f"time with {jobs} processes"], rows))


@app.command(name="search-pick")
def search_pick(datasets: Datasets = None) -> None:
    """Write what finished searches picked to paper/configs, for ``run main`` to read."""
    for line in search.write_picks(Store(), _names(datasets) or HERE):
        typer.echo(line)


@app.command(name="bars")
def show_bars() -> None:
    """The bars of the reproduction: paired differences of GCN_B and GCN, and which bars each recipe clears."""
    typer.echo(bars.report(Store()))


@app.command(name="recipes")
def show_recipes() -> None:
    """What each recipe of GCN_B does to the validation loss, by which the library's default was chosen."""
    typer.echo(recipes.report(Store()))


@app.command(name="readme")
def write_readme() -> None:
    """Regenerate what paper/README.md shows of the committed results."""
    typer.echo(f"wrote {readme.write(Store())}")


def _run(todo: Sequence[Unit], store: Store, root: Path | None, jobs: int) -> runner.Summary:
    summary = runner.run(todo, runs.measure, store=store, root=root, jobs=jobs, tell=typer.echo)
    told = f"{summary.done} measured"
    told += f", {summary.failed} failed (see standard error)" if summary.failed else ""
    typer.echo(told + (f", {summary.held} left to another runner" if summary.held else ""))
    return summary


def _buildable(table: Table, datasets: list[str], methods: str | None, splits: int | None) -> list[Unit]:
    """The units asked for; methods that are not written yet are refused if named, else left out aloud."""
    known, named, lines = by_name(), _names(methods), [line.method for line in table.lines]
    if named and (strange := [name for name in named if name not in lines]):
        raise typer.BadParameter(f"{table.name} has no method {strange[0]!r}; it has {', '.join(dict.fromkeys(lines))}")
    missing = sorted({name for name in named or lines if name not in known})
    if named and missing:
        raise typer.BadParameter(f"there is no code for {', '.join(missing)}")
    if missing:
        typer.echo(f"left out, for there is no code yet: {', '.join(missing)}", err=True)
    return [unit for unit in table.units(datasets, named, splits) if unit.method in known]


def _refuse_unsearched(todo: Sequence[Unit]) -> None:
    lacking: dict[str, list[str]] = {}
    for unit in todo:
        if picks.needed(unit) and unit.method not in picks.read(unit.dataset):
            methods = lacking.setdefault(unit.dataset, [])
            methods += [unit.method] if unit.method not in methods else []
    if lacking:
        told = "; ".join(f"{', '.join(methods)} on {dataset}" for dataset, methods in lacking.items())
        raise typer.BadParameter(
            f"not searched yet: {told}. First {picks.how_to_pick(','.join(lacking))} "
            "Or name other methods with --methods."
        )


def _datasets(asked: str | None, usual: Sequence[str], root: Path | None) -> list[str]:
    """The graphs asked for, or those of the table that are on disk, saying which are not."""
    if asked is not None:
        if strange := [name for name in _names(asked) or [] if name not in usual]:
            raise typer.BadParameter(f"there is no {strange[0]!r} in it; it has {', '.join(usual)}")
        return _names(asked) or []
    there = set(available(root))
    if absent := [name for name in usual if name not in there]:
        typer.echo(f"not on disk, so left out: {', '.join(absent)} (name them with --datasets to download)", err=True)
    return [name for name in usual if name in there]


def _here(table: Table) -> list[str]:
    return [dataset for dataset in table.datasets if dataset not in WHY_ABSENT]


def _names(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


def _table(name: str) -> Table:
    if name not in TABLES:
        raise typer.BadParameter(f"there is no table {name!r}; there are {', '.join((*TABLES, 'search'))}")
    return TABLES[name]


if __name__ == "__main__":
    app()
