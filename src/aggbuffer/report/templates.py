"""How templates of pages are read: everything that is put into them is escaped, and nothing may be missing."""

from __future__ import annotations

import jinja2


def templates(package: str) -> jinja2.Environment:
    """The templates that lie in a package.

    Args:
        package: Its full name.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
