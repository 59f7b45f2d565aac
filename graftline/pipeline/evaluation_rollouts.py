"""What the service is asked for, for one evaluation: rollouts of its policy, and floor and ceiling of its tasks.

Not here: how a job is followed (`graftline.pipeline.evaluation_jobs`), and what is kept of it (`graftline.pipeline.stages.evaluation`).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graftline.core.errors import RecordError
from graftline.evals.results import EvalResult
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
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.harbor_deployment import Version, mended_in_file, uploaded

_IDLE: tuple[IdleAgent, IdleAgent] = ("nop", "oracle")
_DOES_NOTHING = {"agent": "nop"}


def policy_of(file: DeploymentFile) -> dict[str, Any]:
    """Return who acts; where nobody says so, what costs nothing."""
    if file.evaluation is not None and file.evaluation.policy is not None:
        return file.evaluation.policy
    return {"teacher": "induction"} if isinstance(file.environment, Refactoring) else _DOES_NOTHING


def is_known(calibration: Calibration) -> bool:
    """Return whether floor and ceiling of every task are."""
    return all(task.floor is not None and task.ceiling is not None for task in calibration.tasks.values())


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What the service is asked for, for one evaluation."""

    lineage: Lineage
    name: str
    file: DeploymentFile
    settings: EvaluationSettings
    deployment: str
    """Its id."""
    timeout_s: float
    partial: Path
    """Of the artifact, where jobs are noted."""
    _done: dict[tuple[IdleAgent, tuple[int, ...]], tuple[EvalResult, str]] = field(default_factory=dict)

    def rewards(self, seeds: Sequence[int]) -> EvalResult:
        """Return what the policy of the file comes to."""
        policy = policy_of(self.file)
        if policy == _DOES_NOTHING and not isinstance(self.file.environment, Refactoring):
            return self._idle("nop", seeds)[0]
        return self._asked(self.deployment, policy, seeds, "policy", is_paid=True)

    def calibration(self, tasks: Mapping[int, str], earlier: Calibration | None) -> Calibration:
        """Return floor and ceiling of the tasks: those of an `earlier` evaluation of the same, or what was kept, or found now."""
        if earlier is not None and is_known(earlier):
            return earlier
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
            if kept.digests == digests and kept.tasks.keys() >= set(tasks.values()) and is_known(kept):
                return kept
        return None

    def _idle(self, agent: IdleAgent, seeds: Sequence[int]) -> tuple[EvalResult, str]:
        key = agent, (*seeds,)
        if key not in self._done:
            version, policy = self._uploaded(agent)
            self._done[key] = self._asked(version.id, policy, seeds, agent, is_paid=False), version.digest
        return self._done[key]

    def _uploaded(self, agent: IdleAgent) -> tuple[Version, dict[str, Any]]:
        with TemporaryDirectory(prefix="graftline-") as staging:
            with mended_in_file(self.name):
                run = calibration_run(self.file, agent, self.lineage.paths.root, Path(staging))
            return uploaded(self.lineage.ports.harbor.uploader(), run.spec), run.policy

    def _asked(
        self, deployment: str, policy: Mapping[str, Any], seeds: Sequence[int], what: str, is_paid: bool
    ) -> EvalResult:
        # loads the client of the service, for whoever only wants to know the assets
        from graftline.pipeline.evaluation_jobs import Asked, evaluated

        settings = self.settings
        budget = settings.budget if is_paid else EvaluationBudget()
        asked = Asked(deployment, seeds, policy, settings.at_once, self.timeout_s, budget, settings.min_coverage)
        # hidden: it is not part of the artifact, and there for whoever goes on where this one was interrupted
        return evaluated(self.lineage.ports.harbor, asked, self.partial / f".{what}.job", self.lineage.advance)


def _by_task(result: EvalResult, tasks: Mapping[int, str]) -> dict[str, float | None]:
    return {tasks[one.seed]: one.reward if one.reward_valid else None for one in result.seed_results}
