"""What must hold of evaluations of contestants: the candidate is not worse than what is deployed."""

from dataclasses import dataclass
from typing import Literal

from graftline.evals.contest_file import ContestFile, TrainedEntry
from graftline.evals.figures import compared
from graftline.evals.page import between, number, signed
from graftline.record import Record
from graftline.runtime.contest_names import contest_names
from graftline.runtime.contests import contest_file, read_attempts, stored_contest
from graftline.runtime.deployed import Deployed, read_deployed
from graftline.runtime.lineage import Lineage

Outcome = Literal["passed", "warned", "failed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate beside what is deployed."""

    name: str
    """Of the evaluation."""
    outcome: Outcome
    candidate: str
    deployed: str
    found: str
    """The numbers, in words."""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    coverage: float | None = None


def adapter_not_worse_than_deployed(lineage: Lineage) -> list[Standing]:
    """Return how each candidate stands: it fails where all of the 95 % interval of its difference lies below 0."""
    names = [name for name in contest_names(lineage.paths) if contest_file(lineage.paths, name).candidate]
    return [standing for name in names if (standing := standing_of(lineage, name)) is not None]


def standing_of(lineage: Lineage, name: str) -> Standing | None:
    """Return how the candidate of an evaluation stands; None where it is not made yet, or has no candidate."""
    file, stored = contest_file(lineage.paths, name), stored_contest(lineage, name)
    if stored is None or not file.candidate:
        return None
    record, folder = stored
    deployed, doubt = _deployed(file, record, read_deployed(lineage.paths))
    if not deployed:
        return Standing(name, "warned", file.candidate, "nothing", doubt)
    found = compared(read_attempts(folder), file.candidate, deployed)
    low, high = found.interval or (None, None)
    said = (
        f"{number(found.of_first)} against {number(found.of_second)}: {signed(found.difference)},"
        f" {between(found.interval)} (95 %), at {found.tasks} tasks, which are {found.coverage:.0%} of all"
    )
    outcome: Outcome = "passed"
    if doubt or high is None or found.coverage < file.min_coverage:
        outcome = "warned"
        said += doubt and f"; {doubt}"
        said += "" if found.coverage >= file.min_coverage else f"; {file.min_coverage:.0%} or more were expected"
    if high is not None and high < 0:
        outcome = "failed"
    return Standing(name, outcome, file.candidate, deployed, said, found.difference, low, high, found.coverage)


def _deployed(file: ContestFile, record: Record, deployed: Deployed | None) -> tuple[str, str]:
    """Return the contestant that is deployed, and what is doubtful about it; empty texts where there is none, or nothing."""
    if file.deployed:
        return file.deployed, ""
    if deployed is None:
        return "", "nothing is deployed; name `deployed` in the file, or record an adapter by `graftline eval deploy`"
    for name, entry in file.contestants.items():
        if name != file.candidate and isinstance(entry, TrainedEntry) and entry.recipe == deployed.adapter:
            if entry.is_bare or entry.run:
                continue
            is_same = record.inputs.get(f"trained_adapter.{entry.recipe}") == deployed.identity
            return name, "" if is_same else f"{entry.recipe} was trained anew since it was deployed"
    return "", f"the adapter {deployed.adapter!r}, which is deployed, is no contestant; add it"
