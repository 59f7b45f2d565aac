"""The stage `evaluation`: every seed of a deployment once, by the policy that its file names, and what that is worth.

A seed whose reward is not known is never a 0. It is asked for again, alone, when the evaluation is made once more; an
evaluation of which nothing is known is an error, and what was known before stays. Where the file requires it, doing nothing
and the reference solution are run as well. Not here: evaluations of models (`graftline.pipeline.stages.model_evaluation`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftline.core.build import Built, Contents
from graftline.core.errors import ConfigError, HarborError
from graftline.core.markdown import plain_table
from graftline.core.paths import Paths
from graftline.evals.results import EvalResult, EvalStatus, result_of_seeds
from graftline.harbor.calibration import Calibration
from graftline.harbor.deployment_file import Refactoring
from graftline.harbor.messages import SeedResult
from graftline.pipeline.evaluation_rollouts import Rollouts, is_known, policy_of
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.harbor_deployment import (
    DEPLOYMENT,
    SEEDS,
    TASKS,
    deployment_file,
    deployment_names,
    read_deployment,
    read_rows,
    write_json,
    write_rows,
)
from graftline.pipeline.stages.model_evaluation import evaluate_models, find_known, model_evaluation_names

if TYPE_CHECKING:
    from graftline.pipeline.solvers import Solvers

RESULTS, SUMMARY, REPORT, CALIBRATION = "results.jsonl", "summary.json", "report.md", "calibration.json"
_MOST_SEEDS = 20


def deployment_evaluation_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/harbor` that ask for an evaluation."""
    return [name for name in deployment_names(paths) if deployment_file(paths, name).evaluation is not None]


def evaluation_names(paths: Paths) -> list[str]:
    """Return the names of all evaluations: of deployments, and those in `configs/evaluations`; each is a name once."""
    deployments, models = deployment_evaluation_names(paths), model_evaluation_names(paths)
    if both := sorted({*deployments} & {*models}):
        raise ConfigError(
            f"evaluation {both[0]!r}: is in configs/harbor and in configs/evaluations; rename one of the two files"
        )
    return [*deployments, *models]


def evaluation(lineage: Lineage, name: str, shared: "Solvers | None" = None) -> Built:
    """Evaluate a deployment, every seed by the policy of its file, or solvers at the same tasks; unknown is not 0."""
    paths = lineage.paths
    if name in model_evaluation_names(paths):
        return evaluate_models(lineage, name, shared)
    file = deployment_file(paths, name)
    settings = file.evaluation
    if settings is None:
        names = ", ".join(deployment_evaluation_names(paths)) or "none"
        raise ConfigError(f"configs/harbor/{name}.yaml: asks for no `evaluation`; those that do: {names}")
    deployments, instances = paths.harbor("deployments", name), paths.harbor("instances", name)
    record, place = read_deployment(lineage, name)
    batch = lineage.read_input(instances, "instance_batch")
    inputs = {
        "harbor_deployment": lineage.read_part(deployments, record, DEPLOYMENT, TASKS),
        "instance_batch": lineage.read_part(instances, batch, SEEDS),
    }
    policy = policy_of(file)
    config = {
        "policy": policy,
        "budget": settings.budget.model_dump(mode="json"),
        "service": place["service"],
        "is_calibrated": file.calibration.is_required,
    }
    is_ours = isinstance(file.environment, Refactoring)
    code = stage_code("evaluation of our tasks" if is_ours else "evaluation")
    folder = paths.harbor("evaluations", name)
    request = request_of("evaluation", name, inputs, config, code)
    request, known_results = find_known(
        lineage, folder, request, _read_valid, lambda: (stored := read_calibration(folder)) is None or is_known(stored)
    )

    def make(partial: Path) -> Contents:
        tasks = {row["seed"]: row["task_id"] for row in read_rows(instances / SEEDS)}
        timeout_s = float(json.loads((deployments / DEPLOYMENT).read_text("utf-8"))["limits"]["timeout_s"])
        rollouts = Rollouts(lineage, name, file, settings, place["deployment"], timeout_s, partial)
        calibration = None
        if file.calibration.is_required:
            calibration = rollouts.calibration(tasks, read_calibration(folder) if known_results else None)
        known_seeds = {seed_result.seed for seed_result in known_results}
        missing = [seed for seed in tasks if seed not in known_seeds]
        result = rollouts.rewards(missing) if missing else None
        if result is None or known_results:
            result = _merge(result, known_results, len(tasks), settings.min_coverage)
        _check_known(result)
        if calibration is not None:
            calibration.write(partial / CALIBRATION)
        return _write(partial, name, result, policy, tasks, calibration)

    return lineage.build(folder, request, make)


def read_calibration(folder: Path) -> Calibration | None:
    """Return the floor and ceiling that were measured for an evaluation; None where none were."""
    return Calibration.read(folder / CALIBRATION) if (folder / CALIBRATION).exists() else None


def _read_valid(folder: Path) -> list[SeedResult]:
    results = map(SeedResult.model_validate, read_rows(folder / RESULTS))
    return [seed_result for seed_result in results if seed_result.reward_valid]


def _merge(result: EvalResult | None, earlier: Sequence[SeedResult], total: int, min_coverage: float) -> EvalResult:
    """Return what a job came to, if one was needed, with what was known before it."""
    ended = [*earlier, *(result.seed_results if result else ())]
    n_valid = sum(seed_result.reward_valid for seed_result in ended)
    status = EvalStatus.COMPLETED if n_valid >= min_coverage * total else EvalStatus.COMPLETED_WITH_ERRORS
    job_id, error = (result.job_id, result.error) if result else ("", None)
    return result_of_seeds(job_id, status, ended, total, error)


def _check_known(result: EvalResult) -> None:
    if not result.n_valid:
        first = next((seed_result.error for seed_result in result.seed_results if seed_result.error), None)
        raise HarborError(
            f"evaluation {result.job_id!r}: none of its {result.num_total} seeds has a reward that counts, so nothing is"
            f" known ({first or result.error or 'the service does not say why'}); mend that and run again"
        )


def _write(
    partial: Path,
    name: str,
    result: EvalResult,
    policy: Mapping[str, Any],
    tasks: Mapping[int, str],
    calibration: Calibration | None,
) -> Contents:
    rows = [
        {**seed_result.model_dump(mode="json"), "task_id": tasks[seed_result.seed]}
        for seed_result in result.seed_results
    ]
    rewards = {row["task_id"]: row["reward"] for row in rows if row["reward_valid"]}
    summary = {
        "job_id": result.job_id,
        "status": result.status,
        "policy": dict(policy),
        "mean_reward": result.mean_reward,
        "interval": result.interval,
        "valid": result.n_valid,
        "infra": result.n_infra,
        "total": result.num_total,
        "coverage": result.coverage,
        "cost_usd": result.total_cost_usd,
        "tokens": result.total_tokens,
        "error": result.error,
        "floor": calibration.floor if calibration else None,
        "ceiling": calibration.ceiling if calibration else None,
        "mean_normalised": calibration.mean_normalised(rewards) if calibration else None,
    }
    write_rows(partial / RESULTS, rows)
    write_json(partial / SUMMARY, summary, sort_keys=False)
    (partial / REPORT).write_text(evaluation_page(name, summary, rows), "utf-8")
    counts = Counter(f"cause.{row['failure_cause']}" for row in rows if row["failure_cause"])
    totals = {"rows": result.num_total, "valid": result.n_valid, "infra": result.n_infra}
    return Contents({**totals, **dict(sorted(counts.items()))})


def read_summary(folder: Path) -> dict[str, Any]:
    """Return what a stored evaluation comes to, of a deployment or of models."""
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
    return summary


def evaluation_page(name: str, summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page as Markdown."""
    policy = json.dumps(summary["policy"], sort_keys=True)
    parts = [f"# Evaluation of {name}\n", f"By the policy `{policy}`.\n", figures(summary)]
    return "\n".join([*parts, "## Causes\n", causes(rows), "## The lowest rewards\n", lowest(rows)])


def figures(summary: Mapping[str, Any]) -> str:
    """Return what the evaluation came to, as a table."""
    interval = summary["interval"]
    shown = {
        "mean reward": number(summary["mean_reward"]),
        "95 % interval": "not known" if interval is None else " to ".join(map(number, interval)),
        "seeds with a reward that counts": f"{summary['valid']} of {summary['total']}",
        "coverage": number(summary["coverage"]),
        "cost in USD": number(summary["cost_usd"]),
        "tokens": "not known" if summary["tokens"] is None else f"{summary['tokens']:,}",
    }
    if summary["floor"] is not None or summary["ceiling"] is not None:
        shown["doing nothing earns"] = number(summary["floor"])
        shown["the reference solution earns"] = number(summary["ceiling"])
        shown["mean between the two"] = number(summary["mean_normalised"])
    return plain_table([{"figure": figure, "value": value} for figure, value in shown.items()])


def causes(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return why rollouts ended otherwise than they should, and how many of those have a reward that counts."""
    counts: dict[tuple[str, str], Counter[bool]] = {}
    for row in rows:
        ending = row["failure_cause"] or "none", row["success_status"] or "not known"
        counts.setdefault(ending, Counter())[row["reward_valid"]] += 1
    return plain_table(
        [
            {"cause": cause, "ended as": status, "seeds": seeds.total(), "with a reward that counts": seeds[True]}
            for (cause, status), seeds in sorted(counts.items())
        ]
    )


def lowest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the seeds to look at first: those without a reward that counts, then those with the least."""
    unknown = [row for row in rows if not row["reward_valid"]]
    valid = sorted((row for row in rows if row["reward_valid"]), key=lambda row: (row["reward"], row["seed"]))
    return plain_table(
        [
            {
                "seed": row["seed"],
                "task": row["task_id"],
                "reward": row["reward"] if row["reward_valid"] else None,
                "ended as": row["success_status"] or row["status"],
                "said": row["error"] or "",
            }
            for row in (*unknown, *valid)[:_MOST_SEEDS]
        ]
    )


def number(value: float | None) -> str:
    """Return a figure for people; None is not 0."""
    return "not known" if value is None else f"{value:.4g}"
