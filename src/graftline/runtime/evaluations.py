"""The stage `evaluation`: every seed of a deployment once, by the policy that its file names, and what that is worth.

A seed whose reward is not known is never a 0. It is asked for again, alone, when the evaluation is made once more; an
evaluation of which nothing is known is an error, and what was known before stays. Where the file requires it, doing nothing
and the reference solution are run as well.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graftline.errors import ConfigError, HarborError, RecordError
from graftline.evals.results import EvalResult, EvalStatus, SeedResult, result_of_seeds
from graftline.harbor.calibration import Calibration, calibrated
from graftline.harbor.deployment_file import (
    DeploymentFile,
    EvaluationBudget,
    EvaluationSettings,
    IdleAgent,
    Refactoring,
    calibration_run,
)
from graftline.harbor.environments.manifest import load_tasks
from graftline.paths import Paths
from graftline.record import Built, Contents, Record, Request, verified
from graftline.runtime.deployments import (
    DEPLOYMENT,
    SEEDS,
    TASKS,
    Version,
    deployment_file,
    deployment_names,
    kept_deployment,
    mended_in_file,
    read_rows,
    uploaded,
    write_rows,
)
from graftline.runtime.evaluation_page import evaluation_page
from graftline.runtime.lineage import Lineage
from graftline.runtime.settings import stage_code

RESULTS, SUMMARY, REPORT, CALIBRATION = "results.jsonl", "summary.json", "report.md", "calibration.json"
_IDLE: tuple[IdleAgent, IdleAgent] = ("nop", "oracle")


def evaluated_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/harbor` that ask for an evaluation."""
    return [name for name in deployment_names(paths) if deployment_file(paths, name).evaluation is not None]


def evaluation(lineage: Lineage, name: str) -> Built:
    """Have the service run every seed of a deployment by the policy of its file; seeds without a reward are not zeros."""
    file, settings = _asked_for(lineage.paths, name)
    record, place = kept_deployment(lineage, name)
    batch = lineage.verified(lineage.paths.harbor("instances", name), "instance_batch")
    inputs = {
        "harbor_deployment": lineage.part_of(lineage.paths.harbor("deployments", name), record, DEPLOYMENT, TASKS),
        "instance_batch": lineage.part_of(lineage.paths.harbor("instances", name), batch, SEEDS),
    }
    config = {
        "policy": _policy(file, settings),
        "budget": settings.budget.model_dump(mode="json"),
        "service": place["service"],
        "is_calibrated": file.calibration.is_required,
    }
    is_ours = isinstance(file.environment, Refactoring)
    code = stage_code("evaluation of our tasks" if is_ours else "evaluation")
    folder = lineage.paths.harbor("evaluations", name)
    known, after = _known(folder, Request("evaluation", name, code, inputs, config))
    request = Request("evaluation", name, code, inputs, {**config, "after": after})

    def make(partial: Path) -> Contents:
        tasks = {row["seed"]: row["task_id"] for row in read_rows(lineage.paths.harbor("instances", name) / SEEDS)}
        decided = json.loads((lineage.paths.harbor("deployments", name) / DEPLOYMENT).read_text("utf-8"))
        timeout_s = float(decided["limits"]["timeout_s"])
        rollouts = _Rollouts(lineage, name, file, settings, place["deployment"], timeout_s, partial)
        calibration = rollouts.calibration(tasks, folder if known else None) if file.calibration.is_required else None
        result = rollouts.rewards([seed for seed in tasks if seed not in known])
        found = _together(result, known, len(tasks))
        _check_known(found)
        if calibration is not None:
            calibration.write(partial / CALIBRATION)
        return _written(partial, name, found, config["policy"], tasks, calibration)

    return lineage.build(folder, request, make)


@dataclass(frozen=True, slots=True)
class _Rollouts:
    """What the service is asked for, for one evaluation."""

    lineage: Lineage
    name: str
    file: DeploymentFile
    settings: EvaluationSettings
    deployment: str
    """Its id."""
    timeout_s: float
    partial: Path

    def rewards(self, seeds: Sequence[int]) -> EvalResult:
        """Return what the policy of the file comes to."""
        policy = _policy(self.file, self.settings)
        if policy == {"agent": "nop"}:
            return self._idle("nop", seeds)[0]
        return self._asked(self.deployment, policy, seeds, "policy", is_paid=True)

    def calibration(self, tasks: Mapping[int, str], earlier: Path | None) -> Calibration:
        """Return floor and ceiling of the tasks: those of an `earlier` evaluation of the same, or what was kept, or found now."""
        if earlier is not None:
            return Calibration.read(earlier / CALIBRATION)
        if (kept := self._kept(tasks)) is not None:
            return kept
        solved = self._with_solution(tasks)
        if not solved:
            return calibrated({}, {}, self.file.name)
        (nop, of_nop), (oracle, of_oracle) = (self._idle(agent, [*solved]) for agent in _IDLE)
        digests = (of_nop, of_oracle)
        found = calibrated(_by_task(nop, solved), _by_task(oracle, solved), self.file.name, digests)
        if not isinstance(self.file.environment, Refactoring):
            found.write(self.lineage.paths.root / self.file.calibration_path)
        return found

    def _with_solution(self, tasks: Mapping[int, str]) -> Mapping[int, str]:
        """Return those of `tasks` that have a reference solution: of our own, an edit says what, and not always how."""
        if not isinstance(self.file.environment, Refactoring):
            return tasks
        known = load_tasks(self.lineage.paths.root / self.file.environment.tasks)
        with_solution = {task.id for task in known if task.gold_action is not None}
        return {seed: task_id for seed, task_id in tasks.items() if task_id in with_solution}

    def _kept(self, tasks: Mapping[int, str]) -> Calibration | None:
        """Return the calibration that was kept; none of our own tasks, whose grading is the code of this package."""
        if isinstance(self.file.environment, Refactoring):
            return None
        with suppress(RecordError):
            kept = Calibration.read(self.lineage.paths.root / self.file.calibration_path)
            digests = tuple(self._uploaded(agent)[0].digest for agent in _IDLE)
            if kept.digests == digests and kept.tasks.keys() >= set(tasks.values()):
                return kept
        return None

    def _idle(self, agent: IdleAgent, seeds: Sequence[int]) -> tuple[EvalResult, str]:
        version, policy = self._uploaded(agent)
        return self._asked(version.id, policy, seeds, agent, is_paid=False), version.digest

    def _uploaded(self, agent: IdleAgent) -> tuple[Version, dict[str, Any]]:
        with TemporaryDirectory(prefix="graftline-") as staging:
            with mended_in_file(self.name):
                run = calibration_run(self.file, agent, self.lineage.paths.root, Path(staging))
            return uploaded(self.lineage.ports.harbor.uploader(), run.spec), run.policy

    def _asked(
        self, deployment: str, policy: Mapping[str, Any], seeds: Sequence[int], what: str, is_paid: bool
    ) -> EvalResult:
        # loads the client of the service, for whoever only wants to know the assets
        from graftline.runtime.evaluation_jobs import Asked, evaluated

        settings = self.settings
        budget = settings.budget if is_paid else EvaluationBudget()
        asked = Asked(deployment, seeds, policy, settings.at_once, self.timeout_s, budget, settings.min_coverage)
        # hidden: it is not part of the artefact, and there for whoever goes on where this one was interrupted
        return evaluated(self.lineage.ports.harbor, asked, self.partial / f".{what}.job", self.lineage.advance)


def _asked_for(paths: Paths, name: str) -> tuple[DeploymentFile, EvaluationSettings]:
    file = deployment_file(paths, name)
    if file.evaluation is None:
        known = ", ".join(evaluated_names(paths)) or "none"
        raise ConfigError(f"configs/harbor/{name}.yaml: asks for no `evaluation`; those that do: {known}")
    return file, file.evaluation


def _policy(file: DeploymentFile, settings: EvaluationSettings) -> dict[str, Any]:
    """Return who acts; where nobody says so, what costs nothing."""
    if settings.policy is not None:
        return settings.policy
    return {"teacher": "induction"} if isinstance(file.environment, Refactoring) else {"agent": "nop"}


def _known(folder: Path, request: Request) -> tuple[dict[int, SeedResult], str]:
    """Return what counts of the evaluation that is stored, where it answers `request`, and what the next one comes after."""
    try:
        record = verified(folder, "evaluation")
    except RecordError:
        return {}, ""
    without = record.model_copy(update={"config": {key: v for key, v in record.config.items() if key != "after"}})
    if request.difference(without):
        return {}, ""
    results = [SeedResult.model_validate(row) for row in read_rows(folder / RESULTS)]
    known = {one.seed: one for one in results if one.reward_valid}
    is_whole = len(known) == record.counts["rows"]
    return known, str(record.config["after"] if is_whole else record.identity)


def _together(result: EvalResult, known: Mapping[int, SeedResult], total: int) -> EvalResult:
    """Return `result` with what was known before it."""
    if not known:
        return result
    ended = [*known.values(), *result.seed_results]
    is_whole = all(one.reward_valid for one in ended)
    status = EvalStatus.COMPLETED if is_whole else EvalStatus.COMPLETED_WITH_ERRORS
    return result_of_seeds(result.job_id, status, ended, total, result.error)


def _check_known(found: EvalResult) -> None:
    """See to it that an evaluation says something.

    Raises:
        HarborError: it does not.
    """
    if not found.n_valid:
        first = next((one.error for one in found.seed_results if one.error), None)
        raise HarborError(
            f"evaluation {found.job_id!r}: none of its {found.num_total} seeds has a reward that counts, so nothing is"
            f" known ({first or found.error or 'the service does not say why'}); mend that and run again"
        )


def _by_task(result: EvalResult, tasks: Mapping[int, str]) -> dict[str, float | None]:
    return {tasks[one.seed]: one.reward if one.reward_valid else None for one in result.seed_results}


def _written(
    partial: Path,
    name: str,
    found: EvalResult,
    policy: Mapping[str, Any],
    tasks: Mapping[int, str],
    calibration: Calibration | None,
) -> Contents:
    rows = [{**one.model_dump(mode="json"), "task_id": tasks[one.seed]} for one in found.seed_results]
    rewards = {tasks[one.seed]: one.reward for one in found.seed_results if one.reward_valid}
    summary = {
        "job_id": found.job_id,
        "status": found.status,
        "policy": dict(policy),
        "mean_reward": found.mean_reward,
        "interval": found.interval,
        "valid": found.n_valid,
        "infra": found.n_infra,
        "total": found.num_total,
        "coverage": found.coverage,
        "cost_usd": found.total_cost_usd,
        "tokens": found.total_tokens,
        "error": found.error,
        "floor": calibration.floor if calibration else None,
        "ceiling": calibration.ceiling if calibration else None,
        "mean_normalised": calibration.mean_normalised(rewards) if calibration else None,
    }
    write_rows(partial / RESULTS, rows)
    (partial / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    (partial / REPORT).write_text(evaluation_page(name, summary, rows), "utf-8")
    return Contents({"rows": found.num_total, "valid": found.n_valid, "infra": found.n_infra, **_causes(found)})


def _causes(found: EvalResult) -> dict[str, int]:
    causes = [f"cause.{one.failure_cause}" for one in found.seed_results if one.failure_cause]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}


def read_summary(folder: Path) -> dict[str, Any]:
    """Return what a stored evaluation comes to."""
    found: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
    return found


def stored_evaluation(lineage: Lineage, name: str) -> tuple[Record, Path] | None:
    """Return an evaluation that is stored, whole and as it was written; None where there is none."""
    folder = lineage.paths.harbor("evaluations", name)
    return (lineage.verified(folder, "evaluation"), folder) if folder.exists() else None
