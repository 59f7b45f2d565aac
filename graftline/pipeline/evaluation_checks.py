"""What must hold of the evaluations that are stored, as findings: one for each, with what was found and what was wanted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graftline.core.text_diff import pluralize
from graftline.harbor.deployment_file import DeploymentFile, EvaluationSettings
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.evaluation import deployment_evaluation_names, number, read_calibration, read_summary
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


def coverage(lineage: Lineage) -> list[Finding]:
    """Return which share of its seeds has a reward that counts."""
    findings = []
    for name, _, settings, folder in _read_stored(lineage):
        summary, least = read_summary(folder), settings.min_coverage
        share, counted = summary["coverage"], f"{summary['valid']} of {summary['total']} seeds"
        findings.append(Finding(name, share >= least, counted, f"{least:g} of them or more", share))
    return findings


def mean_reward(lineage: Lineage) -> list[Finding]:
    """Return the mean with its interval; it is wrong only below what the file asks for."""
    findings = []
    for name, _, settings, folder in _read_stored(lineage):
        summary, least = read_summary(folder), settings.least_mean_reward
        mean, interval = summary["mean_reward"], summary["interval"]
        between = "" if interval is None else f", between {number(interval[0])} and {number(interval[1])} (95 %)"
        is_right = least is None or (mean is not None and mean >= least)
        target = "any" if least is None else f"{least:g} or more"
        findings.append(Finding(name, is_right, number(mean) + between, target, mean))
    return findings


def cost(lineage: Lineage) -> list[Finding]:
    """Return what it cost; what nobody said is not known, which is said, and is not too much."""
    findings = []
    for name, _, settings, folder in _read_stored(lineage):
        usd, most = read_summary(folder)["cost_usd"], settings.budget.max_usd
        is_right = usd is None or most is None or usd <= most
        spent = "not known" if usd is None else f"{number(usd)} USD"
        target = "any" if most is None else f"{most:g} USD or less"
        findings.append(Finding(name, is_right, spent, target, usd))
    return findings


def calibration(lineage: Lineage) -> list[Finding]:
    """Return whether the reference solution earns everything, and doing nothing less than it."""
    findings = []
    for name, file, _, folder in _read_stored(lineage):
        measured, target = read_calibration(folder), "oracle 1, nop less than that, at every task"
        if not file.calibration.is_required:
            finding = Finding(name, True, "none", "none")
        elif measured is None or not measured.tasks:
            finding = Finding(name, False, "no task has a reference solution", target)
        else:
            rewards = f"oracle {number(measured.ceiling)}, nop {number(measured.floor)} at {pluralize(len(measured.tasks), 'task')}"
            faults = [f"{task}: {', '.join(of_task)}" for task, of_task in sorted(measured.faults.items())]
            summary = "; ".join([rewards, *faults[:_MOST_FAULTS]])
            finding = Finding(name, measured.is_sound, summary, target, measured.ceiling)
        findings.append(finding)
    return findings


def _read_stored(lineage: Lineage) -> Iterator[tuple[str, DeploymentFile, EvaluationSettings, Path]]:
    """Yield name and file where the evaluation is stored, whole and as it was written, and where it is."""
    for name in deployment_evaluation_names(lineage.paths):
        file, folder = deployment_file(lineage.paths, name), lineage.paths.harbor("evaluations", name)
        if file.evaluation is not None and lineage.find(folder, "evaluation") is not None:
            yield name, file, file.evaluation, folder


def all_right(findings: Sequence[Finding]) -> bool:
    """Return whether there is an evaluation, and nothing wrong with any."""
    return bool(findings) and all(finding.is_right for finding in findings)
