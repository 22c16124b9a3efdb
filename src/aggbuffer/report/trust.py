"""How far the numbers of a run can be trusted: what was held out, and what the reader should keep in mind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aggbuffer.report.told import Told

_FEW_NODES = 200


def held_out(record: Mapping[str, Any]) -> str:
    """Which nodes served for what, in a sentence or two."""
    told = record["held_out"]
    if "missing" in told:
        return str(told["missing"])
    trained = "" if told["train"] is None else f" on {_nodes(told['train'])} of train_mask and"
    monitor = record["fit"]["monitor"]
    if monitor == "rc_loss":
        stopped = "its own loss on nodes held out from training, which needs no labels"
    else:
        stopped = f"the {monitor.replace('val_', '')} of {_nodes(told['val'])} of val_mask"
    fitted = f"The buffer was trained{trained} on all edges, and stopped on {stopped}."
    if told["test"] is None:
        return f"{fitted} The graph has no test_mask, so no nodes were held out to judge the result."
    return f"{fitted} The scores are those of {_nodes(told['test'])} of test_mask."


def _nodes(count: int | None) -> str:
    return "the nodes" if count is None else "1 node" if count == 1 else f"{count:,} nodes"


def caveats(record: Mapping[str, Any], rows: Sequence[Told]) -> list[str]:
    """What to keep in mind, the weightiest first."""
    fit, told = record["fit"], []
    seen = record["held_out"].get("test_seen")
    if not rows:
        told.append(record.get("unlabelled", "Nothing was evaluated, so no claim about accuracy can be made."))
    if seen:
        told.append(f"{seen:,} test nodes are in train_mask or val_mask, too, so the scores flatter.")
    if rows and rows[0].count < _FEW_NODES:
        told.append(f"Only {rows[0].count:,} test nodes: intervals are wide, and those of bins wider still.")
    if rows and not any(row.clear for row in rows):
        told.append("Every interval of a change includes zero: this run shows no clear effect.")
    if fit["history"] and fit["best_epoch"] == 0:
        told.append("No epoch was better than the untouched base, so the buffer adds nothing.")
    if fit["stopped"] == "max_epochs":
        told.append("Training ended at its last epoch, not by patience: more epochs might do more.")
    told.append(
        "This is one fit with one seed on one split. Other seeds and splits give other numbers, by how much cannot be "
        "told from here; fit several and compare them with aggbuffer report."
    )
    told.append("Whether the base model itself saw the test nodes while it was trained is not known here.")
    if rows:
        told.append(
            "Of many 95 % intervals on a page, about one in twenty misses; look at the pattern, not at one bin."
        )
    return told
