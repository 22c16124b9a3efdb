"""The paper's figures: what each measures, a unit a split, and how it is drawn."""

from __future__ import annotations

from paper.figures import approximation, curves, discrepancy

FIGURES = {module.FIGURE.name: module.FIGURE for module in (curves, approximation, discrepancy)}
