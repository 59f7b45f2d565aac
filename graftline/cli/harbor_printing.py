"""What the commands of `graftline harbor` print: tables for people, or one line of JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import print_table

if TYPE_CHECKING:
    from graftline.evals.results import EvalResult
    from graftline.harbor.answers import HarborDeploymentStatus, HarborInstance
    from graftline.harbor.calibration import Calibration
    from graftline.harbor.rollout_batch import EndedRollout
    from graftline.harbor.uploader import HarborDeploymentResult

_SHOWN = 60
"""Instances of a table; JSON has all of them."""
_MOST_SAID = 160
"""Characters of a reason in a table."""


def print_deployments(found: Sequence["HarborDeploymentResult"], as_json: bool, key: str = "") -> None:
    """Print deployments; as JSON, the only one alone, or all of them below `key`."""
    shown = [
        {name: getattr(one, name) for name in ("id", "name", "version", "status", "build_id", "snapshot_id", "error")}
        for one in found
    ]
    if as_json:
        click.echo(json.dumps({key: shown} if key else shown[0]))
        return
    rows = [(one.id, one.name, str(one.version), one.status, one.snapshot_id or "-") for one in found]
    print_table("Deployments", ["id", "name", "version", "status", "snapshot"], rows)


def print_needs(tasks: Sequence[tuple[str, dict[str, Any] | None]]) -> None:
    """Print which tasks need what a box may not have; their rollouts have no reward there, and say what was missing."""
    rows = [(task_id, ", ".join(needs), _place_of(needs)) for task_id, needs in tasks if needs]
    if rows:
        print_table(f"{len(rows)} of {len(tasks)} tasks need more than every box has", ["task", "needs", "for"], rows)


def _place_of(needs: dict[str, Any]) -> str:
    first = next(iter(needs.values()))
    return ", ".join(f"{place}: {name}" for name, place in first.items()) if isinstance(first, dict) else str(first)


def print_status(found: "HarborDeploymentStatus") -> None:
    """Print what a deployment waits for, and its builds."""
    click.echo(f"{found.name}, version {found.version} ({found.id}): {found.status}{_reason(found.error)}")
    rows = [
        (one.build_id or one.id, one.status, one.snapshot_id or "-", one.error_message or "") for one in found.builds
    ]
    print_table("Builds", ["id", "status", "snapshot", "error"], rows)


def print_instances(deployment: str, found: Sequence["HarborInstance"], as_json: bool) -> None:
    """Print instances by seed."""
    if as_json:
        click.echo(json.dumps({"instances": [one.model_dump(mode="json") for one in found]}))
        return
    rows = [(str(one.seed), one.task_id, one.status, one.id, one.error or "") for one in found[:_SHOWN]]
    print_table(f"Instances of {deployment}", ["seed", "task", "status", "id", "error"], rows)
    ready = sum(one.status == "ready" for one in found)
    more = f", the first {_SHOWN} are shown" if len(found) > _SHOWN else ""
    click.echo(f"{ready} of {len(found)} are ready{more}")


def print_rollouts(deployment: str, ended: Sequence["EndedRollout"], summary: dict[str, Any]) -> None:
    """Print what came of every seed, and what that comes to."""
    rows = [
        (
            str(one.seed),
            one.task_id or "-",
            str(one.response.success_status),
            _number(one.reward) + ("" if one.reward_valid or one.reward is None else " (does not count)"),
            f"{one.cause}{_reason(one.response.status_detail)}" if one.cause else "",
            _number(one.seconds, 2),
        )
        for one in ended
    ]
    print_table(f"Rollouts of {deployment}", ["seed", "task", "status", "reward", "cause", "seconds"], rows)
    click.echo(_summed_up(summary))


def print_evaluation(deployment: str, result: "EvalResult", as_json: bool) -> None:
    """Print an evaluation, seed by seed and altogether."""
    summary = {
        "mean_reward": result.mean_reward,
        "interval": result.interval,
        "n_valid": result.n_valid,
        "n_infra": result.n_infra,
        "n_total": result.num_total,
        "coverage": result.coverage,
        "total_cost_usd": result.total_cost_usd,
        "total_tokens": result.total_tokens,
    }
    if as_json:
        seeds = [one.model_dump(mode="json") for one in result.seed_results]
        said = {"job_id": result.job_id, "status": result.status, "error": result.error}
        click.echo(json.dumps({**said, "summary": summary, "results": seeds}))
        return
    rows = [
        (
            str(one.seed),
            one.status,
            _number(one.reward) + ("" if one.reward_valid or one.reward is None else " (does not count)"),
            f"{one.failure_cause}{_reason(one.error)}" if one.failure_cause else "",
            _number(one.latency_s, 2),
        )
        for one in result.seed_results
    ]
    print_table(f"Evaluation of {deployment}", ["seed", "status", "reward", "cause", "seconds"], rows)
    click.echo(f"{result.job_id}: {result.status}{_reason(result.error)}\n{_summed_up(summary)}")


def print_calibration(calibration: "Calibration", path: Path, as_json: bool) -> None:
    """Print floor and ceiling of every task."""
    if as_json:
        said = {"floor": calibration.floor, "ceiling": calibration.ceiling, "is_sound": calibration.is_sound}
        click.echo(
            json.dumps({"path": str(path), **said, **calibration.model_dump(mode="json"), "faults": calibration.faults})
        )
        return
    rows = [
        (task_id, _number(task.floor), _number(task.ceiling), ", ".join(task.faults))
        for task_id, task in calibration.tasks.items()
    ]
    print_table(f"Calibration of {calibration.deployment}", ["task", "floor", "ceiling", "faults"], rows)
    verdict = "sound" if calibration.is_sound else f"not sound: {len(calibration.faults)} tasks have faults"
    click.echo(f"floor {_number(calibration.floor)}, ceiling {_number(calibration.ceiling)}, {verdict}; kept in {path}")


def _summed_up(summary: dict[str, Any]) -> str:
    between = summary["interval"]
    interval = f" (95 %: {_number(between[0])} to {_number(between[1])})" if between else ""
    cost, tokens = summary["total_cost_usd"], summary["total_tokens"]
    used = ("" if cost is None else f", {cost:,.4f} USD") + ("" if tokens is None else f", {tokens:,} tokens")
    return (
        f"mean reward {_number(summary['mean_reward'])}{interval} over {summary['n_valid']} of {summary['n_total']} seeds;"
        f" coverage {summary['coverage']:.0%}, {summary['n_infra']} without a reward that counts{used}"
    )


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _reason(text: str | None) -> str:
    from graftline.harbor.messages import find_message

    message = find_message(text or "")
    return f": {message[:_MOST_SAID]}{'…' if len(message) > _MOST_SAID else ''}" if message else ""
