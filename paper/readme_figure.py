"""The figure in the README, drawn from committed results: ``python -m paper.readme_figure``."""

from __future__ import annotations

from pathlib import Path

from aggbuffer.report.svg import Chart, Line
from paper import runs

FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "cora.svg"
DATASET = "Cora"
SHARES = ("1.0", "0.75", "0.5", "0.25", "0.0")
METHODS = {"before": "GCN", "after": "GCN_B paper"}

# Colours that can be read on light and on dark paper alike.
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #6e7781 }
.label { font-size: 12px } .value { font-weight: 600 } .value.before, .name.before { fill: #8c6d1f }
.value.after, .name.after { fill: #1a7f6b } .name { font-size: 13px; font-weight: 600 }
.grid { stroke: #8b949e; stroke-opacity: .3 } .curve { fill: none; stroke-width: 2.5 }
.curve.before { stroke: #b08d2a } .curve.after { stroke: #1f9d83 }
.dot.before { fill: #b08d2a } .dot.after { fill: #1f9d83 }
.band { fill-opacity: .12 } .band.before { fill: #b08d2a } .band.after { fill: #1f9d83 }
"""


def draw() -> str:
    """The chart as a self-contained SVG."""
    lines, splits = [], 0
    for kind, method in METHODS.items():
        found = [result["test"]["edge_removal"] for result in runs.results(DATASET, method)]
        splits = len(found)
        columns = [[f[share]["accuracy"] for f in found] for share in SHARES]
        means = [sum(column) / len(column) for column in columns]
        spread = [(sum((a - m) ** 2 for a in c) / (len(c) - 1)) ** 0.5 for c, m in zip(columns, means, strict=True)]
        xs = [float(share) for share in SHARES]
        lines.append(Line(kind, xs, means, spread, dots=True, below=kind == "before"))
    chart = Chart(
        name="cora",
        title=f"Accuracy on {DATASET} as edges go missing, before and after fitting a buffer",
        description=f"Mean over {splits} splits; bands are one standard deviation.",
        lines=lines,
        x_label=f"edges that are still there ({DATASET}, mean and deviation of {splits} splits)",
        x_ticks=[(float(share), f"{100 * float(share):.0f} %") for share in SHARES],
        percent=True,
        reverse=True,
    )
    names = (
        '<text class="name after" x="180" y="22">with aggregation buffer</text>'
        '<text class="name before" x="180" y="190">the same frozen GCN without</text>'
    )
    svg = chart.svg(720, 300).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return svg.replace("</desc>", f"</desc><style>{STYLE}</style>", 1).replace("</svg>", f"{names}</svg>")


if __name__ == "__main__":
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_text(draw())
