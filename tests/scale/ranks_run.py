"""A fit in several processes; ``torchrun --nproc-per-node=N ranks_run.py OUT SETTINGS`` writes what it came to.

SETTINGS is JSON: keywords of ``fit``, and ``kill``: the rank, and the epoch after which it ends itself with SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))

import aggbuffer
from aggbuffer.errors import RanksError
from aggbuffer.result import EpochRecord
from aggbuffer.scale.distributed import joined
from helpers_fit import base, community_graph, weights


def main(out: Path, settings: dict[str, Any]) -> None:
    kill, data = settings.pop("kill", None), community_graph(nodes=settings.pop("nodes", 90))
    batch = aggbuffer.BatchConfig(**settings.pop("batch"))
    model = aggbuffer.attach(base(settings.pop("kind", "gcn")), data)
    with joined(timeout=settings.pop("timeout", 60)) as ranks:

        def after(record: EpochRecord) -> None:
            if kill is not None and ranks.rank == kill[0] and record.epoch == kill[1]:
                os.kill(os.getpid(), signal.SIGKILL)

        result = aggbuffer.fit(
            model, data, batch=batch, progress=False, callbacks=[after], checkpoint_every=0, **settings
        )
        save_file(
            {str(i): value for i, value in enumerate(weights(model))}, out.with_suffix(f".{ranks.rank}.safetensors")
        )
        if ranks.rank == 0:
            out.write_text(json.dumps(result.to_dict()))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except RanksError as error:
        sys.exit(f"{error.speaker}: {error}")
