"""Evaluations that a service runs for the lineage: begun once, followed to their end, and found again after an interruption.

Not here: what is evaluated, and what is kept of it (`graftline.pipeline.stages.evaluation`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.core.errors import HarborError
from graftline.evals.job import EvalBudget, EvalJobConfig, ServiceRun
from graftline.evals.results import EvalResult, EvalStatus
from graftline.harbor import event_loop
from graftline.harbor.client import HarborAPIError
from graftline.harbor.deployment_file import EvaluationBudget
from graftline.pipeline.harbor_port import HarborService
from graftline.pipeline.lineage import Advance

_FIRST_LOOK_S, _LONGEST_S, _GROWTH = 0.1, 5.0, 1.5
_GONE = 404


@dataclass(frozen=True, slots=True)
class Asked:
    """What one evaluation asks for."""

    deployment: str
    """Its id."""
    seeds: Sequence[int]
    policy: Mapping[str, Any]
    at_once: int
    timeout_s: float
    """Of each rollout."""
    budget: EvaluationBudget
    min_coverage: float


def evaluated(service: HarborService, asked: Asked, note: Path, advance: Advance) -> EvalResult:
    """Return how an evaluation ended.

    Args:
        service: What runs it.
        asked: What is asked for.
        note: Where the id of the job stays for as long as it is not over: whoever comes after an interruption waits for it,
            and pays nothing twice.
        advance: What is told how many seeds have ended.

    Raises:
        HarborError: the service is not to be had, or the evaluation as a whole failed.
    """
    ref = service.ref(asked.deployment)
    run = ServiceRun(
        EvalJobConfig(
            task_app_url=ref.task_app_url,
            api_key=service.plain_key,
            seeds=asked.seeds,
            policy_config=asked.policy,
            concurrency=asked.at_once,
            timeout=asked.timeout_s,
            budget=EvalBudget(**asked.budget.model_dump()),
            min_coverage=asked.min_coverage,
        ),
        ref,
    )
    result = event_loop.run(_followed(run, note, advance))
    note.unlink(missing_ok=True)
    if result.status in (EvalStatus.FAILED, EvalStatus.CANCELLED):
        raise HarborError(
            f"evaluation {result.job_id!r}: {result.status} ({result.error or 'the service does not say why'}); run again"
        )
    return result


async def _followed(run: ServiceRun, note: Path, advance: Advance) -> EvalResult:
    async with run.client.session():
        run.job_id = await _noted(run, note)
        if not run.job_id:
            note.write_text(await run.submit(), "utf-8")
        pause_s = _FIRST_LOOK_S
        while not (result := await run.look()).is_terminal:
            advance(result.num_completed, result.num_total)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _GROWTH, _LONGEST_S)
        return await run.results()


async def _noted(run: ServiceRun, note: Path) -> str:
    """Return the id of a job that was begun before and is not lost; empty where there is none."""
    with suppress(FileNotFoundError):
        run.job_id = note.read_text("utf-8").strip()
    if not run.job_id:
        return ""
    try:
        result = await run.look()
    except HarborAPIError as error:
        if error.status_code != _GONE:
            raise
        return ""
    is_lost = result.status in (EvalStatus.FAILED, EvalStatus.CANCELLED)
    return "" if is_lost else run.job_id
