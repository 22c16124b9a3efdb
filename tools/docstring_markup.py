"""What the reference needs to know about the docstrings: Sphinx roles are plain code here, and an example is code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|mod|attr|meth):(`[^`]+`)")


class DocstringMarkup(griffe.Extension):
    """Reads ``:func:`attach``` as ``attach``, and the section ``Example`` as the ``Examples`` that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"\1", obj.docstring.value)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
