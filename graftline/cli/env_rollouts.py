"""The commands below `graftline env` that run rollouts, and those that bring tasks in and out."""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.env_options import (
    concurrency_option,
    format_reason,
    make_policy,
    open_service,
    policy_options,
    seeds_option,
    show_count,
    show_waiting,
    url_option,
    wait_option,
)
from graftline.cli.options import FILE, FOLDER, find_paths, json_option, pluralize, print_json, print_table
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.evals.results import EvalResult
    from graftline.harbor.build_spec import HarborBuildSpec
    from graftline.harbor.calibration import Calibration
    from graftline.harbor.messages import RolloutAnswer
    from graftline.harbor.service_connection import ServiceConnection
    from graftline.harbor.uploader import HarborDeploymentResult

_ROLLOUT_FIELDS = {
    *("seed", "task_id", "rollout_id", "trace_correlation_id", "status", "success_status", "reward", "reward_valid"),
    *("failure_cause", "error", "cost_usd", "tokens"),
}
_DEPLOYMENT_FIELDS = ("id", "name", "version", "status", "build_id", "snapshot_id", "error")


@click.command()
@click.argument("deployment")
@seeds_option("Which seeds; those of all instances if not given.")
@policy_options
@click.option("--output", type=FOLDER, help="Gets a Harbor trial folder of every rollout.")
@url_option
@json_option
@click.pass_obj
def run(
    root: Path | None, deployment: str, seeds: list[int] | None, model: str | None, agent: str | None,
    changes: dict[str, Any], concurrency: int, output: Path | None, url: str, as_json: bool,
) -> None:  # fmt: skip
    """Run a rollout of every seed, and say what it earned; fails where no seed has a reward that counts."""
    from graftline.harbor.coverage import summary_of
    from graftline.harbor.execution import run_rollouts
    from graftline.harbor.task_format.exporting import write_trial

    service = open_service(root, url)
    ref = service.deployment(deployment)
    seeds = seeds or _list_seeds(service, deployment)
    with show_count("rollouts", deployment, len(seeds)) as advance:
        rollouts = run_rollouts(ref, seeds, make_policy(model, agent, changes), concurrency, lambda rollout: advance())
    trials = [
        str(write_trial(rollout.model_dump(mode="json"), output))
        for rollout in rollouts
        if output and rollout.rollout_id
    ]
    summary = summary_of(rollouts).model_dump()
    if as_json:
        values = [
            {**rollout.model_dump(mode="json", include=_ROLLOUT_FIELDS), "seconds": rollout.seconds}
            for rollout in rollouts
        ]
        print_json({"rollouts": values, "summary": summary, "trials": trials})
    else:
        _print_rollouts(deployment, rollouts, summary)
        if output:
            click.echo(f"{len(trials)} trials are in {output}")
    if not summary["n_valid"]:
        raise click.exceptions.Exit(1)


@click.command("eval")
@click.argument("deployment", metavar="DEPLOYMENT_OR_URL")
@seeds_option("Which seeds; those of all instances if not given, which only a deployment has.")
@policy_options
@click.option("--budget-usd", type=click.FloatRange(0, min_open=True), help="USD that it may use.")
@click.option("--budget-rollouts", type=click.IntRange(1), help="Rollouts that it may begin.")
@click.option("--budget-tokens", type=click.IntRange(1), help="Tokens that it may use.")
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 1),
    default=0.95,
    show_default=True,
    help="Share of seeds with a reward that counts, below which it is completed_with_errors.",
)
@url_option
@json_option
@click.pass_obj
def evaluate(
    root: Path | None, deployment: str, seeds: list[int] | None, model: str | None, agent: str | None,
    changes: dict[str, Any], concurrency: int, budget_usd: float | None, budget_rollouts: int | None,
    budget_tokens: int | None, min_coverage: float, url: str, as_json: bool,
) -> None:  # fmt: skip
    """Evaluate a deployment, or the task app at a URL; fails where no seed has a reward that counts."""
    from graftline.evals.job import EvalJob, EvalJobConfig

    config = EvalJobConfig(
        **_find_task_app(root, deployment, url, seeds),
        policy_config=make_policy(model, agent, changes),
        concurrency=concurrency,
        budget={"max_usd": budget_usd, "max_rollouts": budget_rollouts, "max_tokens": budget_tokens},
        min_coverage=min_coverage,
    )
    job = EvalJob(config)
    job.submit()
    try:
        result = job.poll_until_complete(progress=True, interval_s=0.1)
    except KeyboardInterrupt:
        job.cancel()
        raise
    _print_evaluation(deployment, result, as_json)
    if not result.n_valid:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("deployment", metavar="FILE_OR_NAME")
@seeds_option("Which seeds; all of them if not given.")
@concurrency_option
@url_option
@json_option
@click.pass_obj
def calibrate(
    root: Path | None, deployment: str, seeds: list[int] | None, concurrency: int, url: str, as_json: bool
) -> None:
    """Find what doing nothing and the reference solution earn; fails where that says that rewards are not to be trusted."""
    from graftline.harbor.calibration import AGENTS, calibrate
    from graftline.harbor.deployment_file import find_deployment

    configured = find_deployment(deployment, find_paths(root).root)
    service = open_service(root, url)
    with show_count("calibration", configured.file.name, 0) as advance:
        calibration = calibrate(
            configured, service, seeds, concurrency, lambda agent, total, rollout: advance(len(AGENTS) * total)
        )
    _print_calibration(calibration, configured.calibration_path, as_json)
    if not calibration.is_sound:
        raise click.exceptions.Exit(1)


@click.command("import")
@click.argument("tasks", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--name", required=True, help="Of the deployment.")
@click.option(
    "--agent",
    type=click.Choice(["codex", "opencode", "claude_code"]),
    default="codex",
    show_default=True,
    help="Who acts where a rollout names nobody.",
)
@click.option("--dockerfile", type=FILE, help="Of one image for all tasks.")
@click.option(
    "--image/--no-image", "has_image", default=True, show_default=True, help="Whether the executor builds images."
)
@click.option("--reward-key", default="reward", show_default=True, help="Which number of reward.json is the reward.")
@wait_option
@url_option
@json_option
@click.pass_obj
def import_(
    root: Path | None, tasks: Path, name: str, agent: str, dockerfile: Path | None, has_image: bool,
    reward_key: str, is_waiting: bool, url: str, as_json: bool,
) -> None:  # fmt: skip
    """Make a deployment of the Harbor task in FOLDER, or of the tasks in it: a seed for each, in the order of their names."""
    from graftline.harbor.task_format.importing import import_harbor_tasks

    options: dict[str, Any] = {"agent": agent, "dockerfile": dockerfile, "has_image": has_image}
    with tempfile.TemporaryDirectory() as folder:
        try:
            spec = import_harbor_tasks(tasks, name, Path(folder), reward_key=reward_key, **options)
        except ValueError as error:
            raise ConfigError(f"{tasks}: {error}") from None
        result = create_deployment(open_service(root, url), spec, True, is_waiting)
    print_deployments([result], as_json)
    if not as_json:
        click.echo(f"{len(spec.tasks)} tasks, seeds 0 to {len(spec.tasks) - 1}")
        _print_needs([(task.task_id, task.metadata.get("needs")) for task in spec.tasks])


@click.command()
@click.argument("source")
@click.argument("folder", type=FOLDER)
@url_option
@json_option
@click.pass_obj
def export(root: Path | None, source: str, folder: Path, url: str, as_json: bool) -> None:
    """Write SOURCE to folders in FOLDER: a tasks.jsonl as Harbor tasks, or a rollout, by its id, as a Harbor trial."""
    if Path(source).exists():
        from graftline.harbor.environments.manifest import by_id, load_tasks
        from graftline.harbor.task_format.exporting import export_harbor_task

        tasks = by_id(load_tasks(Path(source)))
        folders = [folder / export_harbor_task(task, folder).id for task in tasks.values()]
    else:
        from urllib.parse import quote

        from graftline.harbor.execution import ROLLOUTS
        from graftline.harbor.task_format.exporting import write_trial

        view = open_service(root, url).client.request("GET", f"{ROLLOUTS}/{quote(source, safe='')}")
        folders = [write_trial(view, folder)]
    text = f"{pluralize(len(folders), 'folder')} in {folder}"
    click.echo(json.dumps({"folders": [str(path) for path in folders]}) if as_json else text)


def create_deployment(
    service: "ServiceConnection", spec: "HarborBuildSpec", is_building: bool, is_waiting: bool
) -> "HarborDeploymentResult":
    """Return the deployment of `spec`; it is built, and that waited for, as asked."""
    uploader = service.uploader
    with show_waiting(f"uploading {spec.name}"):
        result = uploader.create_deployment(spec, auto_build=is_building)
    if not is_building or not is_waiting or result.status == "ready":
        return result
    with show_waiting(f"building {spec.name}, version {result.version}"):
        return uploader.wait_for_build(result.id)


def print_deployments(deployments: "Sequence[HarborDeploymentResult]", as_json: bool, key: str = "") -> None:
    """Print deployments; as JSON, the only one alone, or all of them below `key`."""
    if as_json:
        values = [{name: getattr(deployment, name) for name in _DEPLOYMENT_FIELDS} for deployment in deployments]
        click.echo(json.dumps({key: values} if key else values[0]))
        return
    rows = [
        (deployment.id, deployment.name, str(deployment.version), deployment.status, deployment.snapshot_id or "-")
        for deployment in deployments
    ]
    print_table("Deployments", ["id", "name", "version", "status", "snapshot"], rows)


def _list_seeds(service: "ServiceConnection", deployment: str) -> list[int]:
    """Return the seeds of the instances of a deployment."""
    from graftline.harbor.instances import list_harbor_instances

    ref = service.deployment(deployment)
    instances = list_harbor_instances(ref.deployment_id, None, ref.backend_url, ref.api_key)
    if not instances:
        raise ConfigError(
            f"deployment {deployment!r}: has no instances; name --seeds, or make some with `graftline env instances create`"
        )
    return [instance.seed for instance in instances]


def _find_task_app(root: Path | None, deployment: str, url: str, seeds: list[int] | None) -> dict[str, Any]:
    """Return the fields of `EvalJobConfig` that say where the rollouts run."""
    from graftline.core.secrets import open_secrets
    from graftline.harbor.address import HarborDeploymentRef
    from graftline.harbor.contract import MAX_TIMEOUT_S
    from graftline.harbor.localapi.app import KEY_VARIABLE

    is_url = deployment.startswith(("http://", "https://"))
    url_ref = HarborDeploymentRef.of_url(deployment) if is_url else None
    if is_url and url_ref is None:
        if seeds is None:
            raise click.UsageError("a task app that is no deployment does not say which seeds it has; name --seeds")
        key = open_secrets(os.environ, find_paths(root).root).get(KEY_VARIABLE)
        return {"task_app_url": deployment, "task_app_api_key": key and key.get_secret_value(), "seeds": seeds}
    service = open_service(root, (url_ref.backend_url if url_ref else None) or url)
    ref = service.deployment(url_ref.deployment_id if url_ref else deployment)
    seeds = seeds or _list_seeds(service, ref.deployment_id)
    timeout_s = float(MAX_TIMEOUT_S)  # the deployment says for itself how long a rollout may take
    return {"task_app_url": ref.task_app_url, "api_key": ref.api_key, "seeds": seeds, "timeout": timeout_s}


def _print_needs(tasks: Sequence[tuple[str, dict[str, Any] | None]]) -> None:
    """Print which tasks need what a container may lack; their rollouts have no reward there, and say what was missing."""
    rows = []
    for task_id, needs in tasks:
        if needs:
            first = next(iter(needs.values()))
            places = (
                ", ".join(f"{place}: {name}" for name, place in first.items()) if isinstance(first, dict) else first
            )
            rows.append((task_id, ", ".join(needs), str(places)))
    if rows:
        print_table(f"{len(rows)} of {len(tasks)} tasks need more than every box has", ["task", "needs", "for"], rows)


def _print_rollouts(deployment: str, rollouts: "Sequence[RolloutAnswer]", summary: dict[str, Any]) -> None:
    rows = [
        (
            str(rollout.seed),
            rollout.task_id or "-",
            rollout.status,
            _format_reward(rollout.reward, rollout.reward_valid),
            f"{rollout.failure_cause}{format_reason(rollout.error)}" if rollout.failure_cause else "",
            _format(rollout.seconds, 2),
        )
        for rollout in rollouts
    ]
    print_table(f"Rollouts of {deployment}", ["seed", "task", "status", "reward", "cause", "seconds"], rows)
    click.echo(_summarize(summary))


def _print_evaluation(deployment: str, result: "EvalResult", as_json: bool) -> None:
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
        seeds = [seed.model_dump(mode="json") for seed in result.seed_results]
        job = {"job_id": result.job_id, "status": result.status, "error": result.error}
        print_json({**job, "summary": summary, "results": seeds})
        return
    rows = [
        (
            str(seed.seed),
            seed.status,
            _format_reward(seed.reward, seed.reward_valid),
            f"{seed.failure_cause}{format_reason(seed.error)}" if seed.failure_cause else "",
            _format(seed.latency_s, 2),
        )
        for seed in result.seed_results
    ]
    print_table(f"Evaluation of {deployment}", ["seed", "status", "reward", "cause", "seconds"], rows)
    click.echo(f"{result.job_id}: {result.status}{format_reason(result.error)}\n{_summarize(summary)}")


def _print_calibration(calibration: "Calibration", path: Path, as_json: bool) -> None:
    """Print floor and ceiling of every task."""
    if as_json:
        values = {"floor": calibration.floor, "ceiling": calibration.ceiling, "is_sound": calibration.is_sound}
        faults = {"faults": calibration.faults}
        print_json({"path": str(path), **values, **calibration.model_dump(mode="json"), **faults})
        return
    rows = [
        (task_id, _format(task.floor), _format(task.ceiling), ", ".join(task.faults))
        for task_id, task in calibration.tasks.items()
    ]
    print_table(f"Calibration of {calibration.deployment}", ["task", "floor", "ceiling", "faults"], rows)
    verdict = "sound" if calibration.is_sound else f"not sound: {len(calibration.faults)} tasks have faults"
    click.echo(f"floor {_format(calibration.floor)}, ceiling {_format(calibration.ceiling)}, {verdict}; kept in {path}")


def _summarize(summary: dict[str, Any]) -> str:
    bounds, cost, tokens = summary["interval"], summary["total_cost_usd"], summary["total_tokens"]
    interval = f" (95 %: {_format(bounds[0])} to {_format(bounds[1])})" if bounds else ""
    usage = ("" if cost is None else f", {cost:,.4f} USD") + ("" if tokens is None else f", {tokens:,} tokens")
    return (
        f"mean reward {_format(summary['mean_reward'])}{interval} over {summary['n_valid']} of {summary['n_total']} seeds;"
        f" coverage {summary['coverage']:.0%}, {summary['n_infra']} without a reward that counts{usage}"
    )


def _format_reward(reward: float | None, is_valid: bool) -> str:
    return _format(reward) + ("" if is_valid or reward is None else " (does not count)")


def _format(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
