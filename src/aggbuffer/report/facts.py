"""What someone else needs to know in order to get the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = list[tuple[str, list[tuple[str, str]]]]


def facts(record: Mapping[str, Any]) -> Facts:
    """Titles, and names and values beneath each."""
    graph, base, buffer, fit = record["graph"], record["base"], record["buffer"], record["fit"]
    layers = ", ".join(layer["class"] for layer in base["layers"])
    kind = "undirected" if graph["undirected"] else "directed"
    return [
        (
            "What was fitted",
            [
                ("Graph", f"{graph['nodes']:,} nodes, {graph['edges']:,} {kind} edges, {graph['features']:,} features"),
                ("Base model", f"{base['class']} ({layers})"),
                ("Fingerprint of the base", base["fingerprint"]),
                ("Seed", str(fit["config"]["seed"])),
                ("Stopped by", f"{fit['stopped']}, after {len(fit['history'])} epochs"),
                ("Kept", f"epoch {fit['best_epoch']}, the best on {fit['monitor']}"),
            ],
        ),
        ("Training", _settings(fit["config"], leave_out=("seed",))),
        ("Buffer", _settings(buffer["config"])),
        (
            "Versions and machine",
            [
                *((name, value) for name, value in record["versions"].items()),
                *((name, str(value)) for name, value in record["machine"].items()),
            ],
        ),
    ]


def _settings(config: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(name, _told(value)) for name, value in config.items() if name not in leave_out and value is not None]


def _told(value: object) -> str:
    """A setting, or the settings that are set of a part such as ``batch``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {part}" for name, part in value.items() if part is not None)
    return str(value)
