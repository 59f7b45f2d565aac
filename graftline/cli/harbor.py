"""The commands below `graftline harbor`: deployments of a service, their instances, rollouts, evaluations, ways in and out."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.harbor_instances import instances
from graftline.cli.harbor_options import (
    STATUS,
    backend_option,
    counted,
    policy_of,
    policy_options,
    seeds_option,
    service_of,
    wait_option,
    waiting,
)
from graftline.cli.harbor_printing import (
    print_calibration,
    print_deployments,
    print_evaluation,
    print_needs,
    print_rollouts,
    print_status,
)
from graftline.cli.harbor_service import COMMANDS as OF_SERVICE
from graftline.cli.main import json_option, paths_of
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.evals.results import EvalResult
    from graftline.harbor.build_spec import HarborBuildSpec
    from graftline.harbor.known_service import KnownService
    from graftline.harbor.rollout_batch import EndedRollout
    from graftline.harbor.uploader import HarborDeploymentResult

_PAGE = 1000
_AGENT = click.Choice(["codex", "opencode", "claude_code"])


@click.command()
@click.argument("deployment", metavar="FILE_OR_NAME")
@click.option("--name", help="Of the deployment, in place of the file's.")
@click.option("--build/--no-build", "is_building", default=True, show_default=True, help="Queue its build.")
@wait_option
@backend_option
@json_option
@click.pass_obj
def upload(
    root: Path | None,
    deployment: str,
    name: str | None,
    is_building: bool,
    is_waiting: bool,
    backend_url: str,
    as_json: bool,
) -> None:
    """Make a deployment of a file of configs/harbor/; the same content again is the version that is there."""
    from graftline.harbor.configured import configured_deployment

    found = configured_deployment(deployment, paths_of(root).root)
    with tempfile.TemporaryDirectory() as folder:
        spec = found.spec(Path(folder), name)
        made = _uploaded(service_of(root, backend_url), spec, is_building, is_waiting)
    print_deployments([made], as_json)
    if found.file.calibration.is_required and not found.calibration_path.exists() and not as_json:
        click.echo(f"its floor and ceiling are not known yet: graftline harbor calibrate {deployment}")


@click.command("list")
@click.option("--status", type=STATUS, help="Only those of one status.")
@click.option("--limit", type=click.IntRange(1, _PAGE), default=50, show_default=True, help="The newest so many.")
@backend_option
@json_option
@click.pass_obj
def list_(root: Path | None, status: str | None, limit: int, backend_url: str, as_json: bool) -> None:
    """List the deployments of the service, newest first."""
    found = service_of(root, backend_url).uploader.list_deployments(status, limit)
    print_deployments(found, as_json, "deployments")


@click.command()
@click.argument("deployment")
@backend_option
@json_option
@click.pass_obj
def status(root: Path | None, deployment: str, backend_url: str, as_json: bool) -> None:
    """Say what a deployment waits for, with its builds; DEPLOYMENT is its id, or its name for the newest version."""
    service = service_of(root, backend_url)
    found = service.uploader.get_deployment_status(service.deployment(deployment).deployment_id)
    if as_json:
        click.echo(found.model_dump_json())
        return
    print_status(found)


@click.command()
@click.argument("deployment")
@click.option("--force", "is_forced", is_flag=True, help="Build what is built already.")
@wait_option
@backend_option
@json_option
@click.pass_obj
def build(
    root: Path | None, deployment: str, is_forced: bool, is_waiting: bool, backend_url: str, as_json: bool
) -> None:
    """Have a deployment built, where it is not."""
    service = service_of(root, backend_url)
    uploader = service.uploader
    uploader.trigger_build(service.deployment(deployment).deployment_id, force=is_forced)
    with waiting(f"building {deployment}"):
        found = uploader.wait_for_build(deployment) if is_waiting else uploader.get_deployment(deployment)
    print_deployments([found], as_json)


@click.command()
@click.argument("deployment")
@seeds_option("Which seeds; those of all instances if not given.")
@policy_options
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="Gets a Harbor trial folder of every rollout."
)
@backend_option
@json_option
@click.pass_obj
def run(
    root: Path | None,
    deployment: str,
    seeds: list[int] | None,
    model: str | None,
    agent: str | None,
    changes: tuple[str, ...],
    at_once: int,
    output: Path | None,
    backend_url: str,
    as_json: bool,
) -> None:
    """Run a rollout of every seed, and say what it earned; fails where no seed has a reward that counts."""
    from graftline.harbor.coverage import summary_of
    from graftline.harbor.rollout_batch import run_rollouts

    service = service_of(root, backend_url)
    ref = service.deployment(deployment)
    wanted = seeds or _seeds_of_instances(service, deployment)
    with counted("rollouts", deployment, len(wanted)) as advance:
        ended = run_rollouts(ref, wanted, policy_of(model, agent, changes), at_once, lambda one: advance())
    folders = _trials(ended, output)
    summary = asdict(summary_of(ended))
    if as_json:
        click.echo(json.dumps({"rollouts": [one.as_dict() for one in ended], "summary": summary, "trials": folders}))
    else:
        print_rollouts(deployment, ended, summary)
        if output:
            click.echo(f"{len(folders)} trials are in {output}")
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
@backend_option
@json_option
@click.pass_obj
def evaluate(
    root: Path | None,
    deployment: str,
    seeds: list[int] | None,
    model: str | None,
    agent: str | None,
    changes: tuple[str, ...],
    at_once: int,
    budget_usd: float | None,
    budget_rollouts: int | None,
    budget_tokens: int | None,
    min_coverage: float,
    backend_url: str,
    as_json: bool,
) -> None:
    """Evaluate a deployment, or the task app at a URL; fails where no seed has a reward that counts."""
    from graftline.evals.job import EvalJob, EvalJobConfig

    app = _task_app(root, deployment, backend_url, seeds)
    config = EvalJobConfig(
        **app,
        policy_config=policy_of(model, agent, changes),
        concurrency=at_once,
        budget={"max_usd": budget_usd, "max_rollouts": budget_rollouts, "max_tokens": budget_tokens},
        min_coverage=min_coverage,
    )
    result = _evaluated(EvalJob(config))
    print_evaluation(deployment, result, as_json)
    if not result.n_valid:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("deployment", metavar="FILE_OR_NAME")
@seeds_option("Which seeds; all of them if not given.")
@click.option(
    "--at-once", type=click.IntRange(1, 1000), default=8, show_default=True, help="Rollouts at the same time."
)
@backend_option
@json_option
@click.pass_obj
def calibrate(
    root: Path | None, deployment: str, seeds: list[int] | None, at_once: int, backend_url: str, as_json: bool
) -> None:
    """Find what doing nothing and the reference solution earn; fails where that says that rewards are not to be trusted."""
    from graftline.harbor.calibrating import AGENTS, calibrate
    from graftline.harbor.configured import configured_deployment

    found = configured_deployment(deployment, paths_of(root).root)
    service = service_of(root, backend_url)
    with counted("calibration", found.file.name, 0) as advance:
        calibration = calibrate(found, service, seeds, at_once, lambda agent, total, one: advance(len(AGENTS) * total))
    print_calibration(calibration, found.calibration_path, as_json)
    if not calibration.is_sound:
        raise click.exceptions.Exit(1)


@click.command("import")
@click.argument("tasks", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--name", required=True, help="Of the deployment.")
@click.option("--agent", type=_AGENT, default="codex", show_default=True, help="Who acts where a rollout names nobody.")
@click.option(
    "--dockerfile", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Of one image for all tasks."
)
@click.option(
    "--image/--no-image", "has_image", default=True, show_default=True, help="Whether the executor builds images."
)
@click.option("--reward-key", default="reward", show_default=True, help="Which number of reward.json is the reward.")
@wait_option
@backend_option
@json_option
@click.pass_obj
def import_(
    root: Path | None,
    tasks: Path,
    name: str,
    agent: str,
    dockerfile: Path | None,
    has_image: bool,
    reward_key: str,
    is_waiting: bool,
    backend_url: str,
    as_json: bool,
) -> None:
    """Make a deployment of the Harbor task in FOLDER, or of the tasks in it: a seed for each, in the order of their names."""
    from graftline.harbor.task_format.importing import import_harbor_tasks

    with tempfile.TemporaryDirectory() as folder:
        try:
            spec = import_harbor_tasks(
                tasks,
                name,
                Path(folder),
                agent=agent,
                dockerfile=dockerfile,
                has_image=has_image,
                reward_key=reward_key,
            )
        except ValueError as error:
            raise ConfigError(f"{tasks}: {error}") from None
        made = _uploaded(service_of(root, backend_url), spec, True, is_waiting)
    print_deployments([made], as_json)
    if not as_json:
        click.echo(f"{len(spec.tasks)} tasks, seeds 0 to {len(spec.tasks) - 1}")
        print_needs([(task.task_id, task.metadata.get("needs")) for task in spec.tasks])


@click.command()
@click.argument("source")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@backend_option
@json_option
@click.pass_obj
def export(root: Path | None, source: str, folder: Path, backend_url: str, as_json: bool) -> None:
    """Write SOURCE to folders in FOLDER: a tasks.jsonl as Harbor tasks, or a rollout, by its id, as a Harbor trial."""
    written = (
        _tasks_written(Path(source), folder) if Path(source).exists() else _trial(root, source, folder, backend_url)
    )
    text = f"{len(written)} {'folder' if len(written) == 1 else 'folders'} in {folder}"
    click.echo(json.dumps({"folders": [str(path) for path in written]}) if as_json else text)


def _uploaded(
    service: "KnownService", spec: "HarborBuildSpec", is_building: bool, is_waiting: bool
) -> "HarborDeploymentResult":
    uploader = service.uploader
    with waiting(f"uploading {spec.name}"):
        made = uploader.create_deployment(spec, auto_build=is_building)
    if not is_building or not is_waiting or made.status == "ready":
        return made
    with waiting(f"building {spec.name}, version {made.version}"):
        return uploader.wait_for_build(made.id)


def _seeds_of_instances(service: "KnownService", deployment: str) -> list[int]:
    from graftline.harbor.instances import list_harbor_instances

    ref = service.deployment(deployment)
    found = list_harbor_instances(ref.deployment_id, None, ref.backend_url, ref.api_key)
    if not found:
        raise ConfigError(
            f"deployment {deployment!r}: has no instances; name --seeds, or make some with `graftline harbor instances create`"
        )
    return [instance.seed for instance in found]


def _task_app(root: Path | None, deployment: str, backend_url: str, seeds: list[int] | None) -> dict[str, Any]:
    """Return what `EvalJobConfig` is told of where the rollouts run."""
    from graftline.core.secrets import open_secrets
    from graftline.harbor.contract import MAX_TIMEOUT_S
    from graftline.harbor.deployment_ref import HarborDeploymentRef
    from graftline.harbor.localapi.keys import KEY_VARIABLE

    is_url = deployment.startswith(("http://", "https://"))
    ref = HarborDeploymentRef.of_url(deployment) if is_url else None
    if is_url and ref is None:
        if seeds is None:
            raise click.UsageError("a task app that is no deployment does not say which seeds it has; name --seeds")
        key = open_secrets(os.environ, paths_of(root).root).get(KEY_VARIABLE)
        return {"task_app_url": deployment, "task_app_api_key": key and key.get_secret_value(), "seeds": seeds}
    service = service_of(root, (ref.backend_url if ref else None) or backend_url)
    found = service.deployment(ref.deployment_id if ref else deployment)
    wanted = seeds or _seeds_of_instances(service, found.deployment_id)
    timeout_s = float(MAX_TIMEOUT_S)  # the deployment says for itself how long a rollout may take
    return {"task_app_url": found.task_app_url, "api_key": found.api_key, "seeds": wanted, "timeout": timeout_s}


def _evaluated(job: Any) -> "EvalResult":
    job.submit()
    try:
        result: EvalResult = job.poll_until_complete(progress=True, interval_s=0.1)
    except KeyboardInterrupt:
        job.cancel()
        raise
    return result


def _trials(ended: Sequence["EndedRollout"], output: Path | None) -> list[str]:
    from graftline.harbor.task_format.exporting import write_trial

    return [str(write_trial(one.view, output)) for one in ended if output and one.view]


def _tasks_written(source: Path, folder: Path) -> list[Path]:
    from graftline.harbor.environments.manifest import by_id, load_tasks
    from graftline.harbor.task_format.exporting import export_harbor_task

    tasks = by_id(load_tasks(source))
    return [folder / export_harbor_task(task, folder).id for task in tasks.values()]


def _trial(root: Path | None, rollout_id: str, folder: Path, backend_url: str) -> list[Path]:
    from urllib.parse import quote

    from graftline.harbor.execution import ROLLOUTS
    from graftline.harbor.task_format.exporting import write_trial

    view = service_of(root, backend_url).client.request("GET", f"{ROLLOUTS}/{quote(rollout_id, safe='')}")
    return [write_trial(view, folder)]


COMMANDS = (*OF_SERVICE, upload, list_, status, build, instances, run, evaluate, calibrate, import_, export)
