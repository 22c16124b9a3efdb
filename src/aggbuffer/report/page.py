"""From what ``run.json`` holds to one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from aggbuffer.config import PathLike
from aggbuffer.errors import BufferFileError
from aggbuffer.files import write_bytes
from aggbuffer.report.charts import overlay
from aggbuffer.report.reading import checked
from aggbuffer.report.sections import sections
from aggbuffer.report.templates import templates
from aggbuffer.report.told import Told, gone, number, seconds, share, short, size
from aggbuffer.version import __version__

_MOST_LINES = 6  # so many colours are told apart in one chart
_MOST_SECTIONS = 24  # more would make the page heavy

_DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, jinja2.UndefinedError)


def write_report(path: PathLike, record: Mapping[str, Any]) -> None:
    """Write the report of a run; the file appears whole or not at all.

    Args:
        path: Where to.
        record: What :meth:`Run.to_dict` returned, or ``run.json`` read back.

    Raises:
        BufferFileError: If the file cannot be written, or the record is damaged.
    """
    write_bytes(render(record).encode(), path)


def render(record: Mapping[str, Any], name: str = "the record") -> str:
    """The page of one run as text.

    Args:
        record: What :meth:`Run.to_dict` returned.
        name: What messages call it.
    """
    record = checked(record, name)
    try:
        view = sections(record)
        contents = [entry for entry in _CONTENTS if view["removal"] or entry[0] not in _NEED_LABELS]
        return _page("run.html.jinja", title=record["title"], v=view, contents=contents)
    except _DAMAGED as error:
        raise _damaged(name, error) from error


def render_several(records: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The page that shows runs side by side.

    Args:
        records: Where each came from, and what it holds.
    """
    views: list[dict[str, Any]] = []
    curves: dict[str, list[tuple[int, str, list[Told]]]] = {}
    titles = [str(record["title"]) for _, record in records]
    for index, (origin, record) in enumerate(records, start=1):
        try:
            view = sections(record, prefix=f"run{index}-")
            title = titles[index - 1]
            label = title if titles.count(title) == 1 else f"{index}. {title}"
            color = index if index <= _MOST_LINES else None
            views.append({**view, "label": label, "origin": origin, "color": color if view["removal"] else None})
            if view["removal"] and color:
                curves.setdefault(view["measure"], []).append((color, label, view["removal"]))
        except _DAMAGED as error:
            raise _damaged(origin, error) from error
    overlays = [overlay(runs) for runs in curves.values()]
    left_out = len(records) > _MOST_LINES
    title = f"{len(records)} runs side by side"
    each = views if len(views) <= _MOST_SECTIONS else []
    try:
        return _page(
            "several.html.jinja",
            title=title,
            views=views,
            overlays=overlays,
            left_out=left_out,
            most=_MOST_LINES,
            sections=each,
        )
    except _DAMAGED as error:
        raise _damaged("one of the files", error) from error


_CONTENTS = (
    ("result", "Did it help?"),
    ("fragile", "Fragile?"),
    ("removal", "As edges go"),
    ("groups", "Which nodes"),
    ("turned", "Predictions"),
    ("training", "Training"),
    ("layers", "Layers"),
    ("cost", "Cost"),
    ("trust", "Trust"),
    ("use", "Use it"),
    ("facts", "How made"),
)
_NEED_LABELS = ("removal", "groups", "turned")


def _page(template: str, **values: Any) -> str:
    environment = templates("aggbuffer.report")
    environment.filters |= {
        "gone": gone,
        "number": number,
        "position": list.index,
        "seconds": seconds,
        "share": share,
        "short": short,
        "size": size,
    }
    return environment.get_template(template).render(version=__version__, **values)


def _damaged(name: str, error: Exception) -> BufferFileError:
    reason = " ".join(f"{type(error).__name__} {error}".split())[:120]
    return BufferFileError(f"The record in {name} is damaged ({reason}); write it again with aggbuffer fit.")
