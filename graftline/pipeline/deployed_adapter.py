"""Which adapter is deployed, what a candidate has to be no worse than: an artifact, so that every worker knows of it.

It has no files; all there is to say stands in its record.
"""

from dataclasses import dataclass
from typing import Literal

from graftline.core.build import Contents
from graftline.core.errors import RecordError
from graftline.core.record import ArtifactRecord
from graftline.evals.evaluation_file import ActorsEntry, Entry, EvaluationFile, TrainedEntry
from graftline.evals.metrics import LEAST_TASKS, compare
from graftline.evals.report import format_difference, format_interval, format_share
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.stages.model_evaluation import (
    load_model_evaluation,
    model_evaluation_names,
    read_attempts,
)

KIND = "deployed"
_CODE_VERSION = "1"
_ADAPTER = "trained_adapter"


@dataclass(frozen=True, slots=True)
class Deployed:
    """What the record says."""

    adapter: str
    """The recipe it is of."""
    identity: str
    """Of its artifact: one that is trained anew is another adapter."""
    run_id: str
    """Of the run that it came of, whose weights are there still when it was trained anew."""
    deployed_at: str


def deploy(lineage: Lineage, adapter: str) -> Deployed:
    """Record that the adapter of a recipe is the one that is deployed, and return the record."""
    record = lineage.read_input(lineage.paths.adapter(adapter), "trained_adapter")
    config = {"adapter": adapter, "run_id": str(record.config.get("run_id", ""))}
    request = request_of(KIND, KIND, {_ADAPTER: record}, config, _CODE_VERSION)
    return _read(lineage.build(lineage.paths.deployed_adapter, request, lambda partial: Contents({})).record)


def read_deployed(lineage: Lineage) -> Deployed | None:
    """Return what is recorded; None where nothing was deployed yet."""
    folder = lineage.paths.deployed_adapter
    try:
        record = lineage.find(folder, KIND)
        return None if record is None else _read(record)
    except (RecordError, KeyError):
        place = lineage.paths.relative(folder)
        raise RecordError(f"{place}: is no record of an adapter; write it again by `graftline eval promote`") from None


def _read(record: ArtifactRecord) -> Deployed:
    return Deployed(record.config["adapter"], record.inputs[_ADAPTER], record.config["run_id"], record.written_at)


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
    standings = (standing_of(lineage, name) for name in model_evaluation_names(lineage.paths))
    return [standing for standing in standings if standing is not None]


def standing_of(lineage: Lineage, name: str) -> Standing | None:
    """Return how the candidate of an evaluation stands; None where it is not made yet, or has no candidate."""
    file, folder = load_model_evaluation(lineage.paths, name), lineage.paths.evaluation(name)
    record = lineage.find(folder, "evaluation") if file.candidate else None
    if record is None:
        return None
    deployed, doubt = _find_deployed(file, record, read_deployed(lineage))
    stale = _stale(lineage, file.solvers[file.candidate], record)
    if deployed in ("", file.candidate):
        summary = "; ".join(part for part in (doubt, stale) if part)
        outcome: Outcome = "passed" if deployed and not stale else "warned"
        return Standing(name, outcome, file.candidate, deployed or "nothing", summary)
    try:
        comparison = compare(read_attempts(folder), file.candidate, deployed)
    except ValueError as error:
        return Standing(name, "warned", file.candidate, deployed, f"{error}; evaluate it again")
    low, high = comparison.interval or (None, None)
    summary = (
        f"{format_share(comparison.of_first)} against {format_share(comparison.of_second)}: {format_difference(comparison.difference)},"
        f" {format_interval(comparison.interval)} (95 %), at {comparison.tasks} tasks, which are {comparison.coverage:.0%} of all"
    )
    doubts = [
        doubt,
        stale,
        "" if comparison.coverage >= file.min_coverage else f"{file.min_coverage:.0%} or more were expected",
        "" if comparison.tasks >= LEAST_TASKS else f"fewer than {LEAST_TASKS} tasks tell nothing",
    ]
    if high is None or comparison.tasks < LEAST_TASKS:
        outcome = "warned"
    elif high < 0:
        outcome = "failed"
    else:
        outcome = "warned" if any(doubts) else "passed"
    summary = "; ".join([summary, *(doubt_ for doubt_ in doubts if doubt_)])
    return Standing(
        name, outcome, file.candidate, deployed, summary, comparison.difference, low, high, comparison.coverage
    )


def _find_deployed(file: EvaluationFile, record: ArtifactRecord, deployed: Deployed | None) -> tuple[str, str]:
    """Return the solver that is deployed, and what there is to say of that; an empty name where there is none."""
    if file.deployed:
        return file.deployed, ""
    if deployed is None:
        return "", "nothing is deployed; name `deployed` in the file, or record an adapter by `graftline eval promote`"
    same = [name for name, entry in file.solvers.items() if _is_deployed(entry, record, deployed)]
    if file.candidate in same:
        return file.candidate, "it is the adapter that is deployed"
    if same:
        return same[0], ""
    for name, entry in file.solvers.items():
        if name != file.candidate and _recipe_of(entry) == deployed.adapter:
            return name, f"{deployed.adapter} was trained anew since it was deployed"
    as_what = f" (recipe: {deployed.adapter}, run: {deployed.run_id})" if deployed.run_id else ""
    return "", f"the adapter {deployed.adapter!r}, which is deployed, is no solver; add it{as_what}"


def _is_deployed(entry: Entry, record: ArtifactRecord, deployed: Deployed) -> bool:
    if isinstance(entry, TrainedEntry) and entry.run:
        return (entry.recipe, entry.run) == (deployed.adapter, deployed.run_id)
    recipe = _recipe_of(entry)
    return recipe == deployed.adapter and record.inputs.get(f"trained_adapter.{recipe}") == deployed.identity


def _stale(lineage: Lineage, candidate: Entry, record: ArtifactRecord) -> str:
    """Return what is to be said where the candidate is not the one any more that was evaluated."""
    recipe = _recipe_of(candidate)
    evaluated = record.inputs.get(f"trained_adapter.{recipe}")
    adapter = lineage.find(lineage.paths.adapter(recipe), _ADAPTER) if evaluated is not None else None
    if adapter is None or adapter.identity == evaluated:
        return ""
    return f"the candidate was evaluated before {recipe} was trained anew; evaluate it again"


def _recipe_of(entry: Entry) -> str:
    """Return the recipe whose stored adapter a solver asks; empty where it asks none."""
    match entry:
        case TrainedEntry(recipe=recipe, is_bare=False, run=""):
            return recipe
        case ActorsEntry(adapter=adapter):
            return adapter
        case _:
            return ""
