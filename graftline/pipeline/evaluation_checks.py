"""What must hold of the evaluations that are stored, as findings: one for each, with what was found and what was wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graftline.harbor.calibration import Calibration
from graftline.harbor.deployment_file import DeploymentFile, EvaluationSettings
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.evaluation import (
    CALIBRATION,
    deployment_evaluation_names,
    find_evaluation,
    number,
    read_summary,
)
from graftline.pipeline.stages.harbor_deployment import deployment_file

_MOST_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One evaluation, and whether it is as it should be."""

    name: str
    is_right: bool
    found: str
    wanted: str
    value: float | None = None
    """What was found, where that is a number."""


@dataclass(frozen=True, slots=True)
class _Stored:
    file: DeploymentFile
    settings: EvaluationSettings
    summary: dict[str, Any]
    calibration: Calibration | None


def coverage(lineage: Lineage) -> list[Finding]:
    """Return which share of its seeds has a reward that counts."""

    def check(name: str, stored: _Stored) -> Finding:
        share, least = stored.summary["coverage"], stored.settings.min_coverage
        counted = f"{stored.summary['valid']} of {stored.summary['total']} seeds"
        return Finding(name, share >= least, counted, f"{least:g} of them or more", share)

    return _check_each(lineage, check)


def mean_reward(lineage: Lineage) -> list[Finding]:
    """Return the mean with its interval; it is wrong only below what the file asks for."""

    def check(name: str, stored: _Stored) -> Finding:
        mean, interval, least = (
            stored.summary["mean_reward"],
            stored.summary["interval"],
            stored.settings.least_mean_reward,
        )
        between = "" if interval is None else f", between {number(interval[0])} and {number(interval[1])} (95 %)"
        is_right = least is None or (mean is not None and mean >= least)
        return Finding(name, is_right, number(mean) + between, "any" if least is None else f"{least:g} or more", mean)

    return _check_each(lineage, check)


def cost(lineage: Lineage) -> list[Finding]:
    """Return what it cost; what nobody said is not known, which is said, and is not too much."""

    def check(name: str, stored: _Stored) -> Finding:
        usd, most = stored.summary["cost_usd"], stored.settings.budget.max_usd
        is_right = usd is None or most is None or usd <= most
        return Finding(
            name,
            is_right,
            f"{number(usd)} USD" if usd is not None else "not known",
            "any" if most is None else f"{most:g} USD or less",
            usd,
        )

    return _check_each(lineage, check)


def calibration(lineage: Lineage) -> list[Finding]:
    """Return whether the reference solution earns everything, and doing nothing less than it."""

    def check(name: str, stored: _Stored) -> Finding:
        measured = stored.calibration
        if not stored.file.calibration.is_required:
            return Finding(name, True, "none", "none")
        target = "oracle 1, nop less than that, at every task"
        if measured is None or not measured.tasks:
            return Finding(name, False, "no task has a reference solution", target)
        summary = f"oracle {number(measured.ceiling)}, nop {number(measured.floor)} at {len(measured.tasks)} tasks"
        faults = [f"{task}: {', '.join(of_task)}" for task, of_task in sorted(measured.faults.items())]
        return Finding(name, measured.is_sound, "; ".join([summary, *faults[:_MOST_FAULTS]]), target, measured.ceiling)

    return _check_each(lineage, check)


def _check_each(lineage: Lineage, check: Callable[[str, _Stored], Finding]) -> list[Finding]:
    return [
        check(name, stored)
        for name in deployment_evaluation_names(lineage.paths)
        if (stored := _load_stored(lineage, name))
    ]


def _load_stored(lineage: Lineage, name: str) -> _Stored | None:
    evaluation = find_evaluation(lineage, name)
    if evaluation is None:
        return None
    record, folder = evaluation
    file = deployment_file(lineage.paths, name)
    assert file.evaluation is not None  # it is among those that ask for one
    measured = Calibration.read(folder / CALIBRATION) if CALIBRATION in record.files else None
    return _Stored(file, file.evaluation, read_summary(folder), measured)


def all_right(findings: Sequence[Finding]) -> bool:
    """Return whether there is an evaluation, and nothing wrong with any."""
    return bool(findings) and all(finding.is_right for finding in findings)
