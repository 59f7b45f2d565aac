"""The commands below `graftline env` that run rollouts, and those that bring tasks in and out."""

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
    pass_service,
    policy_options,
    seeds_option,
    show_count,
    show_waiting,
    url_option,
    wait_option,
)
from graftline.cli.options import (
    FILE,
    FOLDER,
    Output,
    Table,
    find_paths,
    format_cell,
    output_option,
    pluralize,
    tabulate,
)
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec
    from graftline.harbor.calibration import Calibration
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
@output_option
@pass_service
def run(
    service: "ServiceConnection", deployment: str, seeds: list[int] | None, model: str | None, agent: str | None,
    changes: dict[str, Any], concurrency: int, output: Path | None,
) -> Output:  # fmt: skip
    """Run a rollout of every seed, and say what it earned; fails where no seed has a reward that counts."""
    from graftline.harbor.coverage import summary_of
    from graftline.harbor.execution import run_rollouts
    from graftline.harbor.task_format.exporting import write_trial

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
    values = [
        {**rollout.model_dump(mode="json", include=_ROLLOUT_FIELDS), "seconds": rollout.seconds} for rollout in rollouts
    ]
    text = _summarize(summary) + (f"\n{len(trials)} trials are in {output}" if output else "")
    value = {"rollouts": values, "summary": summary, "trials": trials}
    return Output(value, [_seed_table(f"Rollouts of {deployment}", values)], text, is_failure=not summary["n_valid"])


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
    help="Share of seeds with a reward that counts, below which it is completed_with_errors.",
)
@url_option
@output_option
@click.pass_obj
def evaluate(
    root: Path | None, deployment: str, seeds: list[int] | None, model: str | None, agent: str | None,
    changes: dict[str, Any], concurrency: int, budget_usd: float | None, budget_rollouts: int | None,
    budget_tokens: int | None, min_coverage: float, url: str,
) -> Output:  # fmt: skip
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
    names = ("mean_reward", "interval", "n_valid", "n_infra", "coverage", "total_cost_usd", "total_tokens")
    summary = {**{name: getattr(result, name) for name in names}, "n_total": result.num_total}
    results = [seed.model_dump(mode="json") for seed in result.seed_results]
    value = {"job_id": result.job_id, "status": result.status, "error": result.error}
    text = f"{result.job_id}: {result.status}{format_reason(result.error)}\n{_summarize(summary)}"
    table = _seed_table(f"Evaluation of {deployment}", [{**row, "seconds": row["latency_s"]} for row in results])
    return Output({**value, "summary": summary, "results": results}, [table], text, is_failure=not result.n_valid)


@click.command()
@click.argument("deployment", metavar="FILE_OR_NAME")
@seeds_option("Which seeds; all of them if not given.")
@concurrency_option
@url_option
@output_option
@click.pass_obj
def calibrate(root: Path | None, deployment: str, seeds: list[int] | None, concurrency: int, url: str) -> Output:
    """Find what doing nothing and the reference solution earn; fails where that says that rewards are not to be trusted."""
    from graftline.harbor.calibration import AGENTS, calibrate
    from graftline.harbor.deployment_file import find_deployment

    configured = find_deployment(deployment, find_paths(root).root)
    service = open_service(root, url)
    with show_count("calibration", configured.file.name, 0) as advance:
        calibration = calibrate(
            configured, service, seeds, concurrency, lambda agent, total, rollout: advance(len(AGENTS) * total)
        )
    return _show_calibration(calibration, configured.calibration_path)


@click.command("import")
@click.argument("tasks", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--name", required=True, help="Of the deployment.")
@click.option(
    "--agent",
    type=click.Choice(["codex", "opencode", "claude_code", "mini_swe_agent"]),
    default="codex",
    help="Who acts where a rollout names nobody.",
)
@click.option("--dockerfile", type=FILE, help="Of one image for all tasks.")
@click.option("--image/--no-image", "has_image", default=True, help="Whether the executor builds images.")
@click.option("--reward-key", default="reward", help="Which number of reward.json is the reward.")
@click.option("--calibrate", "is_calibrating", is_flag=True, help="Run doing nothing and the solution of each.")
@concurrency_option
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Gets the verdict on each task.")
@wait_option
@url_option
@output_option
@click.pass_obj
def import_(
    root: Path | None, tasks: Path, name: str, agent: str, dockerfile: Path | None, has_image: bool,
    reward_key: str, is_calibrating: bool, concurrency: int, report: Path | None, is_waiting: bool, url: str,
) -> Output:  # fmt: skip
    """Make a deployment of the Harbor task in FOLDER, or of the tasks in it: a seed for each, in the order of their names."""
    from graftline.harbor.task_format.importing import import_harbor_tasks

    if has_image and dockerfile is None:
        report = report or find_paths(root).data / "harbor" / "imports" / f"{name}.jsonl"
        service = open_service(root, url)
        return _import_with_images(service, root, tasks, name, agent, reward_key, is_calibrating, concurrency, report)
    if is_calibrating or report:
        raise click.UsageError("--calibrate and --report are of tasks with their own images")
    options: dict[str, Any] = {"agent": agent, "dockerfile": dockerfile, "has_image": has_image}
    with tempfile.TemporaryDirectory() as folder:
        try:
            spec = import_harbor_tasks(tasks, name, Path(folder), reward_key=reward_key, **options)
        except ValueError as error:
            raise ConfigError(f"{tasks}: {error}") from None
        result = create_deployment(open_service(root, url), spec, True, is_waiting)
    text = f"{len(spec.tasks)} tasks, seeds 0 to {len(spec.tasks) - 1}"
    return show_deployment(
        result, text, _needs_tables([(task.task_id, task.metadata.get("needs")) for task in spec.tasks])
    )


def _import_with_images(
    service: "ServiceConnection", root: Path | None, folder: Path, name: str, agent: str, reward_key: str,
    is_calibrating: bool, concurrency: int, report: Path,
) -> Output:  # fmt: skip
    """Import what of a folder can be run, and say what of it cannot, and why."""
    from graftline.harbor.calibration import AGENTS
    from graftline.harbor.compatibility import judge, select_tasks, write_report
    from graftline.harbor.execution import run_rollouts
    from graftline.harbor.task_format.importing import spec_of_tasks

    tasks, verdicts = select_tasks(folder)
    with tempfile.TemporaryDirectory() as staging:
        try:
            spec = spec_of_tasks(tasks, name, Path(staging), agent=agent, reward_key=reward_key)
        except ValueError as error:
            raise ConfigError(f"{folder}: {error}") from None
        result = create_deployment(service, spec, True, is_waiting=True)
    refused = sum(verdict.verdict == "refused" for verdict in verdicts)
    text = f"{len(tasks)} tasks, seeds 0 to {len(tasks) - 1}; {refused} refused"
    write_report(report, verdicts)
    if is_calibrating:
        ref, seeds = service.deployment(result.id), [task.seed for task in spec.tasks]
        with show_count("calibration", name, len(AGENTS) * len(seeds)) as advance:
            rollouts = {
                who: run_rollouts(ref, seeds, {"agent": who}, concurrency, lambda rollout: advance()) for who in AGENTS
            }
        verdicts, calibration = judge(verdicts, rollouts, name)
        calibration.write(find_paths(root).data / "harbor" / "calibration" / f"{name}.json")
        write_report(report, verdicts)
        sound = sum(verdict.verdict == "sound" for verdict in verdicts)
        text += f"; {sound} sound: the solution earns 1, and doing nothing less"
    records = [{name: getattr(verdict, name) for name in ("task", "verdict", "reason")} for verdict in verdicts]
    shown = [{**row, "reason": format_reason(row["reason"]).removeprefix(": ")} for row in records]
    columns = {key: key for key in ("task", "verdict", "reason")}
    table = tabulate(
        f"Tasks of {folder}", [row for row in shown if row["verdict"] != "imported" or row["reason"]], columns
    )
    output = show_deployment(result, f"{text}\nthe verdict on each task is in {report}", [table] if table[2] else [])
    return Output({**output.value, "tasks": records, "report": str(report)}, output.tables, output.text)


@click.command()
@click.argument("source")
@click.argument("folder", type=FOLDER)
@url_option
@output_option
@click.pass_obj
def export(root: Path | None, source: str, folder: Path, url: str) -> Output:
    """Write SOURCE to folders in FOLDER: a tasks.jsonl, or changes of repositories, as Harbor tasks, or a rollout or an
    evaluation, by its id, as Harbor trials."""
    if Path(source).exists():
        from graftline.harbor.environments.manifest import by_id, load_tasks
        from graftline.harbor.task_format.exporting import export_harbor_task
        from graftline.harbor.task_format.repository_tasks import repository_harbor_task
        from graftline.rollouts.repository_task import holds_repository_tasks, load_repository_tasks

        if holds_repository_tasks(Path(source)):
            tasks = [repository_harbor_task(task) for task in load_repository_tasks(Path(source))]
            folders = [folder / export_harbor_task(task, folder).id for task in tasks]
        else:
            by_ids = by_id(load_tasks(Path(source)))
            folders = [folder / export_harbor_task(task, folder).id for task in by_ids.values()]
    else:
        from graftline.harbor.model_proxy.exports import export_rollouts

        folders = export_rollouts(open_service(root, url).client, source, folder)
    return Output({"folders": folders}, text=f"{pluralize(len(folders), 'folder')} in {folder}")


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


def describe_deployments(deployments: "Sequence[HarborDeploymentResult]") -> tuple[list[dict[str, Any]], Table]:
    """Return the fields of deployments, and a table of the most important ones."""
    values = [{name: getattr(deployment, name) for name in _DEPLOYMENT_FIELDS} for deployment in deployments]
    columns = {"id": "id", "name": "name", "version": "version", "status": "status", "snapshot_id": "snapshot"}
    return values, tabulate("Deployments", values, columns)


def show_deployment(deployment: "HarborDeploymentResult", text: str = "", tables: Sequence[Table] = ()) -> Output:
    """Return what is printed of one deployment, with what else there is to say."""
    [value], table = describe_deployments([deployment])
    return Output(value, [table, *tables], text)


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


def _needs_tables(tasks: Sequence[tuple[str, dict[str, Any] | None]]) -> list[Table]:
    """Return which tasks need what a container may lack; their rollouts have no reward there, and say what was missing."""
    rows = []
    for task_id, needs in tasks:
        if needs:
            first = next(iter(needs.values()))
            places = (
                ", ".join(f"{place}: {name}" for name, place in first.items()) if isinstance(first, dict) else first
            )
            rows.append((task_id, ", ".join(needs), str(places)))
    title = f"{len(rows)} of {len(tasks)} tasks need more than every box has"
    return [(title, ["task", "needs", "for"], rows)] if rows else []


def _seed_table(title: str, seeds: Sequence[dict[str, Any]]) -> Table:
    """Return a table of what every seed came to."""
    records = [
        {
            **seed,
            "reward": format_cell(seed["reward"])
            + ("" if seed["reward_valid"] or seed["reward"] is None else " (does not count)"),
            "cause": f"{seed['failure_cause']}{format_reason(seed['error'])}" if seed["failure_cause"] else "",
            "seconds": seed["seconds"] and f"{seed['seconds']:.2f}",
        }
        for seed in seeds
    ]
    # an evaluation does not say which task a seed stands for
    keys = [
        "seed",
        *(["task_id"] if records and "task_id" in records[0] else []),
        "status",
        "reward",
        "cause",
        "seconds",
    ]
    return tabulate(title, records, {key: key.removesuffix("_id") for key in keys})


def _show_calibration(calibration: "Calibration", path: Path) -> Output:
    """Return floor and ceiling of every task."""
    values = {"floor": calibration.floor, "ceiling": calibration.ceiling, "is_sound": calibration.is_sound}
    value = {"path": path, **values, **calibration.model_dump(mode="json"), "faults": calibration.faults}
    rows = [
        (task_id, format_cell(task.floor), format_cell(task.ceiling), ", ".join(task.faults))
        for task_id, task in calibration.tasks.items()
    ]
    table = (f"Calibration of {calibration.deployment}", ["task", "floor", "ceiling", "faults"], rows)
    verdict = "sound" if calibration.is_sound else f"not sound: {len(calibration.faults)} tasks have faults"
    bounds = f"floor {format_cell(calibration.floor)}, ceiling {format_cell(calibration.ceiling)}"
    return Output(value, [table], f"{bounds}, {verdict}; kept in {path}", is_failure=not calibration.is_sound)


def _summarize(summary: dict[str, Any]) -> str:
    bounds, cost, tokens = summary["interval"], summary["total_cost_usd"], summary["total_tokens"]
    interval = f" (95 %: {format_cell(bounds[0])} to {format_cell(bounds[1])})" if bounds else ""
    usage = ("" if cost is None else f", {cost:,.4f} USD") + ("" if tokens is None else f", {tokens:,} tokens")
    return (
        f"mean reward {format_cell(summary['mean_reward'])}{interval} over {summary['n_valid']} of {summary['n_total']} seeds;"
        f" coverage {summary['coverage']:.0%}, {summary['n_infra']} without a reward that counts{usage}"
    )
