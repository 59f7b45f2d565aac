"""What one run did: a line of JSON per artifact, made or found unchanged, in `logs/runs/<run>.jsonl`."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass

from graftline.core.paths import Paths


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one artifact in a run."""

    stage: str
    name: str
    reason: str
    """Why it was made; empty when it was found unchanged."""
    seconds: float
    worked_s: float = 0.0
    """Of these, those in which its files were made: the others are records, checks and locks."""


class RunLog:
    """Appends to the log of one run."""

    def __init__(self, paths: Paths, run: str) -> None:
        self.path = paths.logs / "runs" / f"{run}.jsonl"

    def append(self, stage: str, name: str, reason: str, seconds: float, worked_s: float = 0.0) -> None:
        """Add one line; lines of several processes do not mix."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        outcome = Outcome(stage, name, reason, round(seconds, 3), round(worked_s, 3))
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(outcome)) + "\n")


def last_run(paths: Paths, with_before: Collection[str] = ()) -> list[Outcome]:
    """Return the outcomes of the newest run; empty when there was none.

    Where it is of the stages `with_before` alone, which are made in a run of their own, those of the run before it count too.
    """
    outcomes: list[Outcome] = []
    logs = sorted((paths.logs / "runs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    for path in reversed(logs):
        # a killed run leaves its last line half written, without an end
        lines = path.read_text("utf-8").split("\n")[:-1]
        earlier = [Outcome(**json.loads(line)) for line in lines]
        is_alone = bool(with_before) and all(outcome.stage in with_before for outcome in earlier)
        # of several runs of those stages the newest alone counts
        outcomes = outcomes if outcomes and is_alone else [*earlier, *outcomes]
        if not is_alone:
            break
    return outcomes
