"""The stage `evaluation`: every seed of a deployment once, by the policy that its file names, and what that is worth.

A seed whose reward is not known is never a 0. It is asked for again, alone, when the evaluation is made once more; an
evaluation of which nothing is known is an error, and what was known before stays. Where the file requires it, doing nothing
and the reference solution are run as well.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftline.core.build import Built, Contents, Request
from graftline.core.errors import ConfigError, HarborError, RecordError
from graftline.core.markdown import plain_table
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, load_verified
from graftline.evals.results import EvalResult, EvalStatus, result_of_seeds
from graftline.harbor.calibration import Calibration
from graftline.harbor.deployment_file import DeploymentFile, EvaluationSettings, Refactoring
from graftline.harbor.messages import SeedResult
from graftline.pipeline.evaluation_rollouts import Rollouts, is_known, policy_of
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.harbor_deployment import (
    DEPLOYMENT,
    SEEDS,
    TASKS,
    deployment_file,
    deployment_names,
    read_deployment,
    read_rows,
    write_rows,
)
from graftline.pipeline.stages.model_evaluation import model_evaluation_names

if TYPE_CHECKING:
    from graftline.pipeline.solvers import Solvers

RESULTS, SUMMARY, REPORT, CALIBRATION = "results.jsonl", "summary.json", "report.md", "calibration.json"


def deployment_evaluation_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/harbor` that ask for an evaluation."""
    return [name for name in deployment_names(paths) if deployment_file(paths, name).evaluation is not None]


def evaluation_names(paths: Paths) -> list[str]:
    """Return the names of all evaluations: of deployments, and those in `configs/evaluations`."""
    deployments, contests = deployment_evaluation_names(paths), model_evaluation_names(paths)
    if both := sorted({*deployments} & {*contests}):
        raise ConfigError(
            f"evaluation {both[0]!r}: is in configs/harbor and in configs/evaluations; rename one of the two files"
        )
    return [*deployments, *contests]


def evaluation(lineage: Lineage, name: str, shared: "Solvers | None" = None) -> Built:
    """Evaluate a deployment, every seed by the policy of its file, or contestants at the same tasks; unknown is not 0."""
    if name in model_evaluation_names(lineage.paths):
        from graftline.pipeline.stages.model_evaluation import contest

        return contest(lineage, name, shared)
    file, settings = _load_settings(lineage.paths, name)
    record, place = read_deployment(lineage, name)
    batch = lineage.read_input(lineage.paths.harbor("instances", name), "instance_batch")
    inputs = {
        "harbor_deployment": lineage.read_part(lineage.paths.harbor("deployments", name), record, DEPLOYMENT, TASKS),
        "instance_batch": lineage.read_part(lineage.paths.harbor("instances", name), batch, SEEDS),
    }
    config = {
        "policy": policy_of(file),
        "budget": settings.budget.model_dump(mode="json"),
        "service": place["service"],
        "is_calibrated": file.calibration.is_required,
    }
    is_ours = isinstance(file.environment, Refactoring)
    code = stage_code("evaluation of our tasks" if is_ours else "evaluation")
    folder = lineage.paths.harbor("evaluations", name)
    lineage.pull(folder)
    known_results, after = _read_known(folder, Request("evaluation", name, code, inputs, config))
    request = Request("evaluation", name, code, inputs, {**config, "after": after})

    def make(partial: Path) -> Contents:
        tasks = {row["seed"]: row["task_id"] for row in read_rows(lineage.paths.harbor("instances", name) / SEEDS)}
        decided = json.loads((lineage.paths.harbor("deployments", name) / DEPLOYMENT).read_text("utf-8"))
        timeout_s = float(decided["limits"]["timeout_s"])
        rollouts = Rollouts(lineage, name, file, settings, place["deployment"], timeout_s, partial)
        calibration = None
        if file.calibration.is_required:
            calibration = rollouts.calibration(tasks, _calibration(folder) if known_results else None)
        missing = [seed for seed in tasks if seed not in known_results]
        result = rollouts.rewards(missing) if missing else None
        merged = _merge(result, known_results, len(tasks), settings.min_coverage)
        _check_known(merged)
        if calibration is not None:
            calibration.write(partial / CALIBRATION)
        return _write(partial, name, merged, config["policy"], tasks, calibration)

    return lineage.build(folder, request, make)


def _load_settings(paths: Paths, name: str) -> tuple[DeploymentFile, EvaluationSettings]:
    file = deployment_file(paths, name)
    if file.evaluation is None:
        names = ", ".join(deployment_evaluation_names(paths)) or "none"
        raise ConfigError(f"configs/harbor/{name}.yaml: asks for no `evaluation`; those that do: {names}")
    return file, file.evaluation


def _read_known(folder: Path, request: Request) -> tuple[dict[int, SeedResult], str]:
    """Return what counts of the evaluation that is stored, where it answers `request`, and what the next one comes after."""
    try:
        record = load_verified(folder, "evaluation")
    except RecordError:
        return {}, ""
    without = record.model_copy(update={"config": {key: v for key, v in record.config.items() if key != "after"}})
    if request.difference(without):
        return {}, ""
    results = [SeedResult.model_validate(row) for row in read_rows(folder / RESULTS)]
    valid = {result.seed: result for result in results if result.reward_valid}
    calibration = _calibration(folder)
    is_whole = len(valid) == record.counts["rows"] and (calibration is None or is_known(calibration))
    return valid, str(record.config["after"] if is_whole else record.identity)


def _calibration(folder: Path) -> Calibration | None:
    path = folder / CALIBRATION
    return Calibration.read(path) if path.exists() else None


def _merge(result: EvalResult | None, earlier: Mapping[int, SeedResult], total: int, min_coverage: float) -> EvalResult:
    """Return what a job came to, if one was needed, with what was known before it."""
    if result is not None and not earlier:
        return result
    ended = [*earlier.values(), *(result.seed_results if result else ())]
    counting = sum(seed_result.reward_valid for seed_result in ended)
    status = EvalStatus.COMPLETED if counting >= min_coverage * total else EvalStatus.COMPLETED_WITH_ERRORS
    job_id, error = (result.job_id, result.error) if result else ("", None)
    return result_of_seeds(job_id, status, ended, total, error)


def _check_known(result: EvalResult) -> None:
    """See to it that an evaluation says something."""
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
    rewards = {
        tasks[seed_result.seed]: seed_result.reward for seed_result in result.seed_results if seed_result.reward_valid
    }
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
    (partial / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    (partial / REPORT).write_text(evaluation_page(name, summary, rows), "utf-8")
    return Contents({"rows": result.num_total, "valid": result.n_valid, "infra": result.n_infra, **_causes(result)})


def _causes(result: EvalResult) -> dict[str, int]:
    causes = [f"cause.{seed_result.failure_cause}" for seed_result in result.seed_results if seed_result.failure_cause]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}


def read_summary(folder: Path) -> dict[str, Any]:
    """Return what a stored evaluation comes to."""
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
    return summary


def find_evaluation(lineage: Lineage, name: str) -> tuple[ArtifactRecord, Path] | None:
    """Return an evaluation that is stored, whole and as it was written; None where there is none."""
    folder = lineage.paths.harbor("evaluations", name)
    lineage.pull(folder)
    return (lineage.read_input(folder, "evaluation"), folder) if folder.exists() else None


_MOST_SEEDS = 20


def evaluation_page(name: str, summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page as Markdown."""
    parts = [
        f"# Evaluation of {name}\n",
        f"By the policy `{json.dumps(summary['policy'], sort_keys=True)}`.\n",
        figures(summary),
        "## Causes\n",
        causes(rows),
        "## The lowest rewards\n",
        lowest(rows),
    ]
    return "\n".join(parts)


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
    ended = Counter(map(_ending, rows))
    counting = Counter(_ending(row) for row in rows if row["reward_valid"])
    return plain_table(
        [
            {"cause": cause, "ended as": status, "seeds": number, "with a reward that counts": counting[cause, status]}
            for (cause, status), number in sorted(ended.items())
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


def _ending(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["failure_cause"] or "none", row["success_status"] or "not known"


def number(value: float | None) -> str:
    """Return a figure for people; None is not 0."""
    return "not known" if value is None else f"{value:.4g}"
