"""The contexts of the example's deployment: what agents see, and what only the verifier has."""

import shutil
from dataclasses import replace
from pathlib import Path

from graftline.harbor.engine_bench.cards import read_cards, stage_cards
from graftline.harbor.task_format.importing import StagedTasks

HERE = Path(__file__).resolve().parent
HARBOR = HERE / "harbor"
ENTRYPOINT = "python3 run_rollout.py --input /tmp/rollout.json --output /tmp/result.json"


def stage(folder: Path, agent: str, tasks: Path = HERE / "tasks", crate: Path = HARBOR / "crate") -> StagedTasks:
    """Write the contexts below `folder`, with our `run_rollout.py` beside the programs of the box."""
    staged = stage_cards(read_cards(tasks), crate, HARBOR / "Dockerfile", folder, agent=agent)
    shutil.copyfile(HARBOR / "run_rollout.py", staged.context / "common" / "run_rollout.py")
    return replace(staged, entrypoint=ENTRYPOINT)
