"""One attempt at a rollout: from a row of the queue to a container, and from what came of it to the row.

Every attempt is kept. One that the machine failed is made again, after a while; a rollout that never got further has no
reward, and says whose failure that is.
"""

import logging
import platform
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Row, select

from graftline.core.errors import DataError, GraftlineError
from graftline.harbor.contract import (
    TRIED_AGAIN,
    FailureCause,
    HarborLimits,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    TaskSeed,
    VerifierSettings,
    counts,
)
from graftline.harbor.executors.base import BuildContext, Execution, RolloutSpec
from graftline.harbor.messages import RolloutStatus
from graftline.harbor.service import queue
from graftline.harbor.service.builds import Builds, builds_of, read_archive
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import deployments, rollouts

logger = logging.getLogger(__name__)

_LEAST_TIMEOUT_S = 30
_AGENT_KEYS = ("agent", "agent_type")
_MOST_CACHED = 256


class PreparedDeployment:
    """A deployment whose snapshots are made; it never changes."""

    def __init__(self, row: Row[Any], builds_by_id: Builds) -> None:
        self.row = row
        self.builds = [builds_by_id[name] for name in (row.build_id, row.verifier_build_id) if name is not None]
        self.limits = HarborLimits.model_validate(row.limits)
        self.verifier = None if row.verifier is None else VerifierSettings.model_validate(row.verifier)
        self.tasks = {task.seed: task for task in map(TaskSeed.model_validate, row.tasks)}


class AttemptRunner:
    """Makes attempts at rollouts that `owner` has claimed; safe to use from many threads."""

    def __init__(self, service: Service, owner: str) -> None:
        self._service, self._owner = service, owner
        self._prepared: dict[str, PreparedDeployment] = {}

    def run(self, rollout: Row[Any], cancelled: threading.Event, is_stopping: Callable[[], bool]) -> bool:
        """Make one attempt at `rollout`, and write down how it ended; return whether the rollout has ended with it."""
        number, settings = rollout.attempts + 1, self._service.settings
        execution, lock = self._execute(rollout, number, cancelled, is_stopping)
        if execution.failure_cause is FailureCause.CANCELLED and not cancelled.is_set():
            # nobody wanted it to end but this process, which ends itself
            execution = _failure(FailureCause.HARBOR_FAILED, "the service was stopped while it ran")
        is_retried = execution.failure_cause in TRIED_AGAIN and number < settings.attempts and not cancelled.is_set()
        with self._service.database.writing() as connection:
            queue.end_attempt(connection, rollout.id, number, execution)
            # the row of a rollout before that of its job, as everywhere: else PostgreSQL meets deadlocks
            if is_retried:
                longest_s = min(settings.longest_backoff_s, settings.backoff_s * 2 ** (number - 1))
                not_before = 0.0 if is_stopping() else time.time() + random.uniform(0, longest_s)
                values: dict[str, Any] = {"status": RolloutStatus.QUEUED, "not_before": not_before}
            else:
                values = {**_end_values(rollout, execution, lock), "finished_at": time.time()}
            is_released = queue.release(connection, rollouts, rollout.id, self._owner, **values)
            if rollout.job_id is not None:
                queue.count_spending(connection, rollout.job_id, execution)
                if not is_retried:
                    queue.end_if_done(connection, rollout.job_id)
        return is_released != is_retried

    def _execute(
        self, rollout: Row[Any], number: int, cancelled: threading.Event, is_stopping: Callable[[], bool]
    ) -> tuple[Execution, dict[str, Any]]:
        def is_cancelled() -> bool:
            return cancelled.is_set() or is_stopping()

        if is_cancelled():
            return _failure(FailureCause.CANCELLED, "it was cancelled before it started"), {}
        try:
            prepared = self._prepare(rollout.deployment_id)
            spec = rollout_spec(rollout, prepared, number, self._service.secrets)
            proxy = self._service.proxy
            if proxy is None:
                execution = self._service.executor.run(spec, is_cancelled)
            else:
                with proxy.session_of(spec, rollout.job_id, _budget(rollout), cancelled.set) as (spec, session):
                    execution = self._service.executor.run(spec, is_cancelled)
                params = spec.request["params"]
                agent = next((str(params[name]) for name in _AGENT_KEYS if params.get(name)), "")
                execution = proxy.judge(session, execution, agent)
        except DataError as error:
            # what the request lays over the snapshot cannot be laid
            return Execution(SuccessStatus.APPLY_FAILED, None, FailureCause.UNCLASSIFIED, str(error)), {}
        except GraftlineError as error:
            return _failure(FailureCause.SANDBOX_FAILED, str(error)), {}
        except Exception as error:
            logger.exception("rollout %s: attempt %d was lost", rollout.id, number)
            return _failure(FailureCause.HARBOR_FAILED, f"the executor broke ({type(error).__name__})"), {}
        return execution, lock_of(prepared, spec, execution, self._service.executor.name)

    def _prepare(self, deployment_id: str) -> PreparedDeployment:
        """Return what containers of a deployment are made of; its snapshots are made again where they have gone."""
        database, executor = self._service.database, self._service.executor
        prepared = self._prepared.get(deployment_id)
        if prepared is None:
            with database.reading() as connection:
                row = connection.execute(select(deployments).where(deployments.c.id == deployment_id)).one()
                builds_by_id = builds_of(connection, [row])
            if len(self._prepared) >= _MOST_CACHED:
                self._prepared.clear()
            prepared = self._prepared[deployment_id] = PreparedDeployment(row, builds_by_id)
        for build in prepared.builds:
            if not executor.has(build.snapshot_id):
                archive = read_archive(database, build.context_digest)
                executor.build(BuildContext(build.context_digest, archive, build.dockerfile))
        return prepared


def rollout_spec(
    rollout: Row[Any], prepared: PreparedDeployment, number: int, secrets: Mapping[str, str]
) -> RolloutSpec:
    """Return what an executor is asked for by one attempt at a rollout."""
    request = RolloutRequest.model_validate(rollout.request)
    timeout_s = _timeout_s(prepared.limits, request)
    task, row = prepared.tasks.get(rollout.seed), prepared.row
    files: dict[str, str] = {}
    overriding: dict[str, str] = {}
    for override in request.context_overrides:
        files |= override.file_artifacts
        overriding |= override.env_vars
    return RolloutSpec(
        rollout_id=rollout.id,
        attempt=number,
        snapshot_id=prepared.builds[0].snapshot_id,
        entrypoint=row.entrypoint,
        entrypoint_mode=row.entrypoint_mode,
        request=entrypoint_input(rollout, request, row, timeout_s),
        limits=prepared.limits.model_copy(update={"timeout_s": timeout_s}),
        env_vars=row.env_vars,
        overriding_vars=overriding,
        secrets=secrets,
        files=files,
        verifier=prepared.verifier,
        verifier_snapshot_id=prepared.builds[1].snapshot_id if row.verifier_build_id is not None else "",
        agent_files=task.agent_files if task else (),
        verifier_files=task.verifier_files if task else (),
    )


def entrypoint_input(
    rollout: Row[Any], request: RolloutRequest, deployment: Row[Any], timeout_s: int
) -> dict[str, Any]:
    """Return what an entrypoint reads: the request, and beside it the keys that the first runners read."""
    fields, config = request.model_dump(mode="json"), request.policy.config
    agents = {name: deployment.metadata[name] for name in _AGENT_KEYS if name in deployment.metadata}
    params = fields.get("params")
    return {
        **fields,
        "seed": rollout.seed,
        "task_id": rollout.task_id,
        "prompt_template": fields.get("prompt_template")
        or {**config.get("prompt_template", {}), "context_overrides": fields["context_overrides"]},
        "inference_url": fields.get("inference_url") or config.get("inference_url"),
        "limits": {**deployment.limits, "timeout_s": timeout_s},
        "params": {**agents, **config, **(params if isinstance(params, dict) else {})},
    }


def _budget(rollout: Row[Any]) -> dict[str, Any]:
    names = {"max_usd": "max_usd", "max_tokens": "max_tokens", "usd": "spent_usd", "tokens": "spent_tokens"}
    return {name: rollout._mapping[column] for name, column in names.items() if rollout.job_id is not None}


def _timeout_s(limits: HarborLimits, request: RolloutRequest) -> int:
    return min(limits.timeout_s, max(_LEAST_TIMEOUT_S, int(request.safety.max_time_s)))


def lock_of(prepared: PreparedDeployment, spec: RolloutSpec, execution: Execution, executor: str) -> dict[str, Any]:
    """Return what a rollout ran with: enough to run it again, and to tell why another one ends otherwise."""
    return {
        "deployment_digest": prepared.row.digest,
        "deployment_version": prepared.row.version,
        "snapshot_id": spec.snapshot_id,
        "context_digest": prepared.row.context_digest,
        "verifier_snapshot_id": spec.verifier_snapshot_id or None,
        "executor": executor,
        "limits_requested": spec.limits.model_dump(),
        "limits_enforced": dict(execution.limits_enforced),
        "agent": {name: spec.request["params"].get(name) for name in (*_AGENT_KEYS, "model", "provider")},
        "host": f"{platform.system()} {platform.machine()}",
    }


def response_of(rollout: Row[Any], execution: Execution, lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the synchronous shape: the unified contract, and beside it the keys that the first clients read."""
    details = {**execution.details, "agent_s": execution.agent_s, "verify_s": execution.verify_s}
    objectives = details.pop("objectives", {})
    reward = RewardInfo(outcome_reward=execution.reward, outcome_objectives=objectives, details=details)
    is_valid = counts(execution.reward, execution.failure_cause)
    result = execution.result
    # either all overrides were laid, or the container was not made
    applied = "failed" if execution.success_status is SuccessStatus.APPLY_FAILED else "applied"
    overrides = rollout.request.get("context_overrides", [])
    response = RolloutResponse.model_validate(
        {
            "trace_correlation_id": rollout.trace_correlation_id,
            "reward_info": reward.model_dump(),
            "success_status": execution.success_status,
            "status_detail": execution.error or None,
            "failure_cause": execution.failure_cause,
            "trace": result.get("trace") if isinstance(result.get("trace"), dict) else None,
            "inference_url": result.get("inference_url") if isinstance(result.get("inference_url"), str) else None,
            "metadata": {"rollout_id": rollout.id, "deployment_id": rollout.deployment_id, "lock": dict(lock)},
            "metrics": {"reward_mean": execution.reward if is_valid else None, "details": details},
            "success": execution.success_status is SuccessStatus.SUCCESS,
            "error": execution.error or None,
            "execution_metadata": {"cost_usd": execution.cost_usd, "total_tokens": execution.tokens},
            "override_application_results": [
                {"override_id": override.get("override_id"), "status": applied} for override in overrides
            ],
        }
    )
    answer = response.model_dump(mode="json")
    if isinstance(result.get("artifact"), list):
        answer["artifact"] = result["artifact"]
    return answer


def response_without_attempt(rollout: Row[Any]) -> dict[str, Any]:
    """Return the synchronous shape of a rollout that ended before, or outside of, any attempt."""
    status = SuccessStatus(rollout.success_status or SuccessStatus.FAILURE)
    cause = FailureCause(rollout.failure_cause or FailureCause.HARBOR_FAILED)
    return response_of(rollout, Execution(status, None, cause, rollout.error or ""), {})


def _end_values(rollout: Row[Any], execution: Execution, lock: Mapping[str, Any]) -> dict[str, Any]:
    is_valid = counts(execution.reward, execution.failure_cause)
    status = RolloutStatus.COMPLETED if is_valid else RolloutStatus.FAILED
    if execution.failure_cause is FailureCause.CANCELLED:
        status = RolloutStatus.CANCELLED
    names = ("reward", "success_status", "failure_cause", "cost_usd", "tokens")
    return {
        **{name: getattr(execution, name) for name in names},
        "status": status,
        "error": queue.storable(execution.error) or None,
        "lock": dict(lock),
        "response": response_of(rollout, execution, lock),
    }


def _failure(cause: FailureCause, error: str) -> Execution:
    return Execution(SuccessStatus.FAILURE, None, cause, error)
