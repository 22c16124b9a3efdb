"""The paper's figures: what each measures, a unit a split, and how it is drawn."""

from __future__ import annotations

from paper.figures.figure import Figure

FIGURES: dict[str, Figure] = {}
