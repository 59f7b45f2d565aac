"""The rollouts of one evaluation: those of its policy, and those that find floor and ceiling of its tasks.

The service runs them as jobs, which are begun once, followed to their end, and found again after an interruption. Not here:
what is kept of an evaluation (`graftline.pipeline.stages.evaluation`).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from graftline.core.errors import HarborError, RecordError
from graftline.evals.results import EvalResult, EvalStatus
from graftline.harbor.calibration import Calibration, calibration_of
from graftline.harbor.deployment_file import (
    DeploymentFile,
    EvaluationSettings,
    IdleAgent,
    Refactoring,
    calibration_policy,
    deployment_spec,
)
from graftline.harbor.environments.manifest import load_tasks
from graftline.harbor.messages import Budget
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.harbor_deployment import Version, report_in_file, upload

if TYPE_CHECKING:
    from graftline.evals.job import ServiceRun

_IDLE: tuple[IdleAgent, IdleAgent] = ("nop", "oracle")
_DOES_NOTHING = {"agent": "nop"}
_NOT_FOUND = 404
_UNSUCCESSFUL = (EvalStatus.FAILED, EvalStatus.CANCELLED)


def policy_of(file: DeploymentFile) -> dict[str, Any]:
    """Return who acts; where the file does not say so, what costs nothing."""
    if file.evaluation is not None and file.evaluation.policy is not None:
        return file.evaluation.policy
    return {"teacher": "induction"} if isinstance(file.environment, Refactoring) else _DOES_NOTHING


def is_known(calibration: Calibration) -> bool:
    """Return whether floor and ceiling of every task are known."""
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
    """Of each rollout."""
    partial: Path
    """Of the artifact, where the ids of jobs are kept while they run."""
    _finished: dict[tuple[IdleAgent, tuple[int, ...]], tuple[EvalResult, str]] = field(default_factory=dict)

    def rewards(self, seeds: Sequence[int]) -> EvalResult:
        """Return what the policy of the file comes to."""
        policy = policy_of(self.file)
        if policy == _DOES_NOTHING and not isinstance(self.file.environment, Refactoring):
            return self._run_idle("nop", seeds)[0]
        return self._run(self.deployment, policy, seeds, "policy", self.settings.budget)

    def calibration(self, tasks: Mapping[int, str], earlier: Calibration | None) -> Calibration:
        """Return floor and ceiling of the tasks: of an `earlier` evaluation, of the checkout, or of rollouts made now."""
        if earlier is not None and is_known(earlier):
            return earlier
        if (stored := self._read_stored(tasks)) is not None:
            return stored
        solvable = self._filter_solvable(tasks)
        if not solvable:
            return calibration_of({}, {}, self.file.name)
        (nop, nop_digest), (oracle, oracle_digest) = (self._run_idle(agent, [*solvable]) for agent in _IDLE)
        floors, ceilings = _rewards_by_task(nop, solvable), _rewards_by_task(oracle, solvable)
        calibration = calibration_of(floors, ceilings, self.file.name, (nop_digest, oracle_digest))
        if not isinstance(self.file.environment, Refactoring):
            calibration.write(self.lineage.paths.root / self.file.calibration_path)
        return calibration

    def _filter_solvable(self, tasks: Mapping[int, str]) -> Mapping[int, str]:
        """Return the tasks with a reference solution: an edit of ours says what is to change, and not always how."""
        if not isinstance(self.file.environment, Refactoring):
            return tasks
        all_tasks = load_tasks(self.lineage.paths.root / self.file.environment.tasks)
        solvable = {task.id for task in all_tasks if task.gold_action is not None}
        return {seed: task_id for seed, task_id in tasks.items() if task_id in solvable}

    def _read_stored(self, tasks: Mapping[int, str]) -> Calibration | None:
        """Return the calibration of the checkout; None for our own tasks, whose grading is the code of this package."""
        if isinstance(self.file.environment, Refactoring):
            return None
        with suppress(RecordError):
            stored = Calibration.read(self.lineage.paths.root / self.file.calibration_path)
            digests = tuple(self._upload(agent)[0].digest for agent in _IDLE)
            if stored.digests == digests and stored.tasks.keys() >= set(tasks.values()) and is_known(stored):
                return stored
        return None

    def _run_idle(self, agent: IdleAgent, seeds: Sequence[int]) -> tuple[EvalResult, str]:
        """Return what an agent comes to, and the digest of its deployment; one that was run on these seeds is not again."""
        key = agent, (*seeds,)
        if key not in self._finished:
            version, policy = self._upload(agent)
            self._finished[key] = self._run(version.id, policy, seeds, agent, Budget()), version.digest
        return self._finished[key]

    def _upload(self, agent: IdleAgent) -> tuple[Version, dict[str, Any]]:
        with TemporaryDirectory(prefix="graftline-") as staging:
            with report_in_file(self.name):
                spec = deployment_spec(self.file, self.lineage.paths.root, Path(staging), agent)
            return upload(self.lineage.ports.harbor.uploader(), spec), calibration_policy(self.file, agent)

    def _run(
        self, deployment: str, policy: Mapping[str, Any], seeds: Sequence[int], label: str, budget: Budget
    ) -> EvalResult:
        """Return how an evaluation by the service ended."""
        # loads the client of the service, which whoever only wants to know the assets need not wait for
        from graftline.evals.job import EvalBudget, EvalJobConfig, ServiceRun
        from graftline.harbor import event_loop

        service = self.lineage.ports.harbor
        ref = service.ref(deployment)
        job = EvalJobConfig(
            task_app_url=ref.task_app_url,
            api_key=service.plain_key,
            seeds=seeds,
            policy_config=policy,
            concurrency=self.settings.at_once,
            timeout=self.timeout_s,
            budget=EvalBudget(**budget.model_dump()),
            min_coverage=self.settings.min_coverage,
        )
        # hidden: it is no part of the artifact, and there for whoever goes on where this one was interrupted
        job_file = self.partial / f".{label}.job"
        result = event_loop.run(self._follow(ServiceRun(job, ref), job_file))
        job_file.unlink(missing_ok=True)
        if result.status in _UNSUCCESSFUL:
            reason = result.error or "the service does not say why"
            raise HarborError(f"evaluation {result.job_id!r}: {result.status} ({reason}); run again")
        return result

    async def _follow(self, run: "ServiceRun", job_file: Path) -> EvalResult:
        """Wait for a job, the one of `job_file` if that is not lost: nothing is paid for twice."""
        from graftline.harbor.job_polling import poll

        async with run.client.session():
            run.job_id = await _find_job(run, job_file)
            if not run.job_id:
                job_file.write_text(await run.submit(), "utf-8")
            await poll(run.look, str, self.lineage.advance)
            return await run.results()


async def _find_job(run: "ServiceRun", job_file: Path) -> str:
    """Return the id of a job that was begun before and is not lost; empty where there is none."""
    from graftline.harbor.client import HarborAPIError

    with suppress(FileNotFoundError):
        run.job_id = job_file.read_text("utf-8").strip()
    if not run.job_id:
        return ""
    try:
        result = await run.look()
    except HarborAPIError as error:
        if error.status_code != _NOT_FOUND:
            raise
        return ""
    return "" if result.status in _UNSUCCESSFUL else run.job_id


def _rewards_by_task(result: EvalResult, tasks: Mapping[int, str]) -> dict[str, float | None]:
    return {tasks[seed.seed]: seed.reward if seed.reward_valid else None for seed in result.seed_results}
