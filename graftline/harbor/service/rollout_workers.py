"""Rollouts: from a row of the queue to a box, and from what came of it to the row.

Every attempt is kept. One that the machine failed is made again, after a while; a rollout that never got further has no
reward, and says whose failure that is.
"""

import logging
import platform
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Row

from graftline.core.errors import DataError, GraftlineError
from graftline.harbor.build_spec import TaskSeed
from graftline.harbor.contract import (
    TRIED_AGAIN,
    FailureCause,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    counts,
)
from graftline.harbor.executors.base import BuildContext, Execution, Executor, RolloutSpec
from graftline.harbor.limits import HarborLimits, VerifierSettings
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import job_rollouts, jobs, rollout_queue
from graftline.harbor.service.database import Database
from graftline.harbor.service.schemas import RolloutStatus
from graftline.harbor.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

_LEAST_TIMEOUT_S = 30
_AGENTS = ("agent", "agent_type")
_KEPT_READY = 256


class RolloutWorker:
    """Runs rollouts that were claimed; safe to be called from many threads."""

    def __init__(
        self,
        database: Database,
        executor: Executor,
        settings: ServiceSettings,
        owner: str,
        secrets: Mapping[str, str],
    ) -> None:
        self._database, self._executor = database, executor
        self._settings, self._owner, self._secrets = settings, owner, secrets
        self._ready: dict[str, Ready] = {}

    def run(self, rollout: Row[Any], is_cancelled: Callable[[], bool], is_stopping: Callable[[], bool]) -> bool:
        """Make one attempt at `rollout`, and write down how it ended; return whether the rollout has ended with it."""
        number = rollout.attempts + 1
        execution, lock = self._executed(rollout, number, lambda: is_cancelled() or is_stopping())
        if execution.failure_cause is FailureCause.CANCELLED and not is_cancelled():
            # nobody wanted it to end but this process, which ends itself
            execution = _failure(FailureCause.HARBOR_FAILED, "the service was stopped while it ran")
        is_again = execution.failure_cause in TRIED_AGAIN and number < self._settings.attempts and not is_cancelled()
        with self._database.writing() as connection:
            rollout_queue.end_attempt(connection, rollout.id, number, execution)
            # the row of a rollout before that of its job, as where both are taken elsewhere: else PostgreSQL finds deadlocks
            if is_again:
                not_before = 0.0 if is_stopping() else time.time() + self._pause_s(number)
                is_over = not rollout_queue.put_back(connection, rollout.id, self._owner, not_before)
            else:
                is_over = rollout_queue.settle(connection, rollout.id, self._owner, _ended(rollout, execution, lock))
            if rollout.job_id is not None:
                job_rollouts.spend(connection, rollout.job_id, execution)
                if not is_again:
                    jobs.end_if_done(connection, rollout.job_id)
        return is_over

    def _executed(
        self, rollout: Row[Any], number: int, is_cancelled: Callable[[], bool]
    ) -> tuple[Execution, dict[str, Any]]:
        if is_cancelled():
            return _failure(FailureCause.CANCELLED, "it was cancelled before it started"), {}
        try:
            ready = self._ready_for(rollout.deployment_id)
            box = box_of(rollout, ready, number, self._secrets)
            execution = self._executor.run(box, is_cancelled)
        except DataError as error:
            # what the request lays over the snapshot cannot be laid
            return Execution(SuccessStatus.APPLY_FAILED, None, FailureCause.UNCLASSIFIED, str(error)), {}
        except GraftlineError as error:
            return _failure(FailureCause.SANDBOX_FAILED, str(error)), {}
        except Exception as error:
            logger.exception("rollout %s: attempt %d was lost", rollout.id, number)
            return _failure(FailureCause.HARBOR_FAILED, f"the executor broke ({type(error).__name__})"), {}
        return execution, lock_of(ready, box, execution, self._executor.name)

    def _ready_for(self, deployment_id: str) -> "Ready":
        """Return what a box of a deployment is made of; its snapshots are made again where they have gone."""
        ready = self._ready.get(deployment_id)
        if ready is None:
            with self._database.reading() as connection:
                deployment = stored.find_deployment(connection, deployment_id)
                assert deployment is not None
                known = stored.builds_of(connection, [deployment])
            if len(self._ready) >= _KEPT_READY:
                self._ready.clear()
            ready = self._ready[deployment_id] = Ready(deployment, known)
        for build in ready.builds:
            if not self._executor.has(build.snapshot_id):
                self._executor.build(BuildContext(build.context_digest, self._archive(build), build.dockerfile))
        return ready

    def _archive(self, build: Row[Any]) -> Callable[[], bytes]:
        def read() -> bytes:
            with self._database.reading() as connection:
                return stored.archive_of(connection, build.context_digest)

        return read

    def _pause_s(self, attempts: int) -> float:
        longest = min(self._settings.longest_backoff_s, self._settings.backoff_s * 2 ** (attempts - 1))
        return random.uniform(0, longest)


class Ready:
    """A deployment whose snapshots are made; it never changes."""

    def __init__(self, deployment: Row[Any], known: Mapping[str, Row[Any]]) -> None:
        self.deployment = deployment
        self.builds = [known[one] for one in (deployment.build_id, deployment.verifier_build_id) if one is not None]
        self.snapshot_id: str = known[deployment.build_id].snapshot_id
        self.verifier_snapshot_id: str = (
            known[deployment.verifier_build_id].snapshot_id if deployment.verifier_build_id is not None else ""
        )
        self.limits = HarborLimits.model_validate(deployment.limits)
        self.verifier = None if deployment.verifier is None else VerifierSettings.model_validate(deployment.verifier)
        self.tasks = {one.seed: one for one in map(TaskSeed.model_validate, deployment.tasks)}


def box_of(rollout: Row[Any], ready: Ready, number: int, secrets: Mapping[str, str]) -> RolloutSpec:
    """Return the box that one attempt at a rollout runs in."""
    request = RolloutRequest.model_validate(rollout.request)
    task = ready.tasks.get(rollout.seed)
    files: dict[str, str] = {}
    overriding: dict[str, str] = {}
    for override in request.context_overrides:
        files |= override.file_artifacts
        overriding |= override.env_vars
    return RolloutSpec(
        rollout_id=rollout.id,
        attempt=number,
        snapshot_id=ready.snapshot_id,
        entrypoint=ready.deployment.entrypoint,
        entrypoint_mode=ready.deployment.entrypoint_mode,
        request=runner_input(rollout, request, ready.deployment),
        limits=_limits(ready.limits, request.safety.max_time_s),
        env_vars=ready.deployment.env_vars,
        overriding_vars=overriding,
        secrets=secrets,
        files=files,
        verifier=ready.verifier,
        verifier_snapshot_id=ready.verifier_snapshot_id,
        agent_files=task.agent_files if task else (),
        verifier_files=task.verifier_files if task else (),
    )


def runner_input(rollout: Row[Any], request: RolloutRequest, deployment: Row[Any]) -> dict[str, Any]:
    """Return what an entrypoint is given: the request, and beside it the keys that the first runners read."""
    sent = request.model_dump(mode="json")
    config = request.policy.config
    agents = {name: deployment.metadata[name] for name in _AGENTS if name in deployment.metadata}
    given = sent.get("params")
    return {
        **sent,
        "seed": rollout.seed,
        "task_id": rollout.task_id,
        "prompt_template": sent.get("prompt_template")
        or {**config.get("prompt_template", {}), "context_overrides": sent["context_overrides"]},
        "inference_url": sent.get("inference_url") or config.get("inference_url"),
        "limits": {**deployment.limits, "timeout_s": _limits_timeout(deployment.limits, request.safety.max_time_s)},
        "params": {**agents, **config, **(given if isinstance(given, dict) else {})},
    }


def lock_of(ready: Ready, box: RolloutSpec, execution: Execution, executor: str) -> dict[str, Any]:
    """Return what a rollout ran with: enough to run it again, and to tell why another one ends otherwise."""
    deployment = ready.deployment
    return {
        "deployment_digest": deployment.digest,
        "deployment_version": deployment.version,
        "snapshot_id": box.snapshot_id,
        "context_digest": deployment.context_digest,
        "verifier_snapshot_id": box.verifier_snapshot_id or None,
        "executor": executor,
        "limits_requested": box.limits.model_dump(),
        "limits_enforced": dict(execution.limits_enforced),
        "agent": {name: box.request["params"].get(name) for name in (*_AGENTS, "model", "provider")},
        "host": f"{platform.system()} {platform.machine()}",
    }


def response_of(rollout: Row[Any], execution: Execution, lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the synchronous shape: the unified contract, and beside it the keys that the first clients read."""
    details = {**execution.details, "agent_s": execution.agent_s, "verify_s": execution.verify_s}
    objectives = details.pop("objectives", {})
    info = RewardInfo(outcome_reward=execution.reward, outcome_objectives=objectives, details=details)
    is_valid = counts(execution.reward, execution.failure_cause)
    artifact = execution.result.get("artifact")
    response = RolloutResponse.model_validate(
        {
            "trace_correlation_id": rollout.trace_correlation_id,
            "reward_info": info.model_dump(),
            "success_status": execution.success_status,
            "status_detail": execution.error or None,
            "failure_cause": execution.failure_cause,
            "trace": _object(execution.result.get("trace")),
            "inference_url": _text(execution.result.get("inference_url")),
            "metadata": {"rollout_id": rollout.id, "deployment_id": rollout.deployment_id, "lock": dict(lock)},
            "metrics": {"reward_mean": execution.reward if is_valid else None, "details": details},
            "success": execution.success_status is SuccessStatus.SUCCESS,
            "error": execution.error or None,
            "execution_metadata": {"cost_usd": execution.cost_usd, "total_tokens": execution.tokens},
            "override_application_results": _applied(rollout, execution),
        }
    )
    answer = response.model_dump(mode="json")
    if isinstance(artifact, list):
        answer["artifact"] = artifact
    return answer


def never_ran(rollout: Row[Any]) -> dict[str, Any]:
    """Return the synchronous shape of a rollout that ended before, or outside of, any attempt."""
    status = SuccessStatus(rollout.success_status) if rollout.success_status is not None else SuccessStatus.FAILURE
    cause = FailureCause(rollout.failure_cause) if rollout.failure_cause is not None else FailureCause.HARBOR_FAILED
    return response_of(rollout, Execution(status, None, cause, rollout.error or ""), {})


def _ended(rollout: Row[Any], execution: Execution, lock: Mapping[str, Any]) -> dict[str, Any]:
    is_valid = counts(execution.reward, execution.failure_cause)
    status = RolloutStatus.COMPLETED if is_valid else RolloutStatus.FAILED
    if execution.failure_cause is FailureCause.CANCELLED:
        status = RolloutStatus.CANCELLED
    return {
        "status": status,
        "reward": execution.reward,
        "success_status": execution.success_status,
        "failure_cause": execution.failure_cause,
        "error": rollout_queue.plain(execution.error) or None,
        "cost_usd": execution.cost_usd,
        "tokens": execution.tokens,
        "lock": dict(lock),
        "response": response_of(rollout, execution, lock),
    }


def _applied(rollout: Row[Any], execution: Execution) -> list[dict[str, Any]]:
    """Return what became of each override: all of them were laid, or the box was not made."""
    status = "failed" if execution.success_status is SuccessStatus.APPLY_FAILED else "applied"
    return [
        {"override_id": override.get("override_id"), "status": status}
        for override in rollout.request.get("context_overrides", [])
    ]


def _failure(cause: FailureCause, error: str) -> Execution:
    return Execution(SuccessStatus.FAILURE, None, cause, error)


def _limits(limits: HarborLimits, max_time_s: float) -> HarborLimits:
    return limits.model_copy(update={"timeout_s": _limits_timeout(limits.model_dump(), max_time_s)})


def _limits_timeout(limits: Mapping[str, Any], max_time_s: float) -> int:
    return min(int(limits["timeout_s"]), max(_LEAST_TIMEOUT_S, int(max_time_s)))


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
