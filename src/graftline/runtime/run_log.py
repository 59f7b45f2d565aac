"""What one run did: a line of JSON per artefact, made or found unchanged, in `logs/runs/<run>.jsonl`."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from graftline.paths import Paths


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one artefact in a run."""

    stage: str
    name: str
    reason: str
    """Why it was made; empty when it was found unchanged."""
    seconds: float


class RunLog:
    """Appends to the log of one run."""

    def __init__(self, paths: Paths, run: str) -> None:
        self.path = paths.logs / "runs" / f"{run}.jsonl"

    def append(self, stage: str, name: str, reason: str, seconds: float) -> None:
        """Add one line; lines of several processes do not mix."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(Outcome(stage, name, reason, round(seconds, 3)))) + "\n")


def last_run(paths: Paths) -> list[Outcome]:
    """Return the outcomes of the newest run; empty when there was none."""
    logs = sorted((paths.logs / "runs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return list(_outcomes(logs[-1])) if logs else []


def _outcomes(path: Path) -> Iterator[Outcome]:
    # a killed run leaves its last line half written, without an end
    for line in path.read_text("utf-8").split("\n")[:-1]:
        yield Outcome(**json.loads(line))
