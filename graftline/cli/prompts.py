"""The commands below `graftline prompts`: prompts that are made better by what their rollouts come to."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.harbor_options import backend_option, service_of, wait_option
from graftline.cli.main import json_option, manifest_options, overrides_of, paths_of, print_table
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.prompts.outcome import Outcome
    from graftline.prompts.prompt_learning import PromptLearningJob, PromptLearningResult

_WHAT = "NAME|FILE"
_FOLDER = click.Path(path_type=Path, file_okay=False)
folder_option = click.option(
    "--folder", type=_FOLDER, help="Of a FILE whose task app is no deployment: where it is kept, to be resumed."
)


@click.command("list")
@json_option
@click.pass_obj
def list_(root: Path | None, as_json: bool) -> None:
    """List the prompts that are configured below configs/prompts/."""
    from graftline.core.record import RECORD_NAME
    from graftline.pipeline.stages.optimized_prompt import prompt_file, prompt_names

    paths = paths_of(root)
    rows = [
        {"name": name, "prompt": prompt_file(paths, name).prompt, "made": (paths.prompt(name) / RECORD_NAME).exists()}
        for name in prompt_names(paths)
    ]
    if as_json:
        click.echo(json.dumps({"prompts": rows}))
        return
    shown = [(str(row["name"]), str(row["prompt"]), "yes" if row["made"] else "no") for row in rows]
    print_table("Prompts", ["name", "begins with", "made"], shown)


@click.command()
@click.argument("what", metavar=_WHAT)
@manifest_options
@folder_option
@wait_option
@backend_option
@json_option
@click.pass_obj
def optimize(
    root: Path | None,
    what: str,
    manifest: str,
    ports: tuple[str, ...],
    folder: Path | None,
    is_waiting: bool,
    backend_url: str,
    as_json: bool,
) -> None:
    """Make a prompt better: NAME of configs/prompts with the ports of a manifest, or what a TOML FILE says."""
    if _is_file(what):
        job = _job(root, what, folder, backend_url)
        job.submit()
        _follow(job, is_waiting, as_json)
        return
    _make(paths_of(root), what, manifest, ports, as_json)


@click.command()
@click.argument("what", metavar="NAME|JOB")
@backend_option
@json_option
@click.pass_obj
def show(root: Path | None, what: str, backend_url: str, as_json: bool) -> None:
    """Show the prompts that were found for NAME of configs/prompts, or by a JOB of the service."""
    if not _is_job(what):
        from graftline.pipeline.stages.optimized_prompt import kept_outcome

        _print_outcome(what, kept_outcome(paths_of(root), what)[1], as_json)
        return
    job = _known_job(root, what, backend_url)
    found = job.status()
    if not found.is_terminal or found.best_prompt is None:
        _print_result(found, as_json)
        return
    _print_outcome(what, job.results(), as_json)


@click.command()
@click.argument("what", metavar="NAME|FILE|JOB")
@manifest_options
@folder_option
@wait_option
@backend_option
@json_option
@click.pass_obj
def resume(
    root: Path | None,
    what: str,
    manifest: str,
    ports: tuple[str, ...],
    folder: Path | None,
    is_waiting: bool,
    backend_url: str,
    as_json: bool,
) -> None:
    """Go on with an optimization that failed, was cancelled or was killed; what is paid is not paid again."""
    if _is_job(what):
        job = _known_job(root, what, backend_url)
        job.resume()
        _follow(job, is_waiting, as_json)
    elif _is_file(what):
        if folder is None:
            raise click.UsageError("a FILE is resumed from the folder that it was begun with; name it by --folder")
        job = _job(root, what, folder, backend_url)
        job.resume()
        _follow(job, is_waiting, as_json)
    else:
        _make(paths_of(root), what, manifest, ports, as_json)


@click.command()
@click.argument("what", metavar="NAME|FOLDER|JOB")
@backend_option
@json_option
@click.pass_obj
def cancel(root: Path | None, what: str, backend_url: str, as_json: bool) -> None:
    """End an optimization that runs: of NAME, in the FOLDER of a file, or a JOB of the service; what is paid stays."""
    if _is_job(what):
        _print_result(_known_job(root, what, backend_url).cancel(), as_json)
        return
    from graftline.pipeline.stages.optimized_prompt import prompt_file, stop_optimized_prompt
    from graftline.prompts.journal import request_stop

    if Path(what).is_dir():
        request_stop(Path(what))
        asked = 1
    else:
        paths = paths_of(root)
        prompt_file(paths, what)
        asked = stop_optimized_prompt(paths.prompt(what))
    click.echo(json.dumps({"asked_to_end": asked}) if as_json else f"{what}: {asked or 'none'} asked to end")


def _is_job(what: str) -> bool:
    return what.startswith("job_")


def _is_file(what: str) -> bool:
    return what.endswith(".toml")


def _make(paths: "Paths", name: str, manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    from graftline.core.progress import progress_bars
    from graftline.pipeline.stages.optimized_prompt import make_optimized_prompt

    with progress_bars() as progress:
        try:
            _, outcome = make_optimized_prompt(paths, manifest, overrides_of(ports), name, progress)
        except BaseException:
            progress.fail()
            raise
    _print_outcome(name, outcome, as_json)


def _job(root: Path | None, path: str, folder: Path | None, backend_url: str) -> "PromptLearningJob":
    from graftline.prompts.prompt_learning import PromptLearningConfig, PromptLearningJob

    config = PromptLearningConfig.from_toml(path)
    if not config.task_app_url or config.harbor is not None:
        # a file that names neither is told so by the job
        url, key = service_of(root, backend_url) if config.harbor is not None else (None, None)
        return PromptLearningJob(config, url, key.get_secret_value() if key else None, folder=folder)
    from graftline.harbor.deployment_ref import HarborDeploymentRef

    if ref := HarborDeploymentRef.of_url(config.task_app_url):
        url, key = service_of(root, ref.backend_url or backend_url)
        return PromptLearningJob(config, url, key.get_secret_value())
    return PromptLearningJob(config, folder=folder)


def _known_job(root: Path | None, job_id: str, backend_url: str) -> "PromptLearningJob":
    from graftline.prompts.prompt_learning import PromptLearningConfig, PromptLearningJob

    service = service_of(root, backend_url)
    return PromptLearningJob(PromptLearningConfig(), service.url, service.key.get_secret_value(), job_id=job_id)


def _follow(job: "PromptLearningJob", is_waiting: bool, as_json: bool) -> None:
    # one that runs in this process would end with it
    if not is_waiting and job.is_of_service:
        _print_result(job.status(), as_json)
        return
    found = job.poll_until_complete(progress=True)
    if not found.succeeded:
        raise ConfigError(f"optimization {found.job_id!r}: {found.status} ({found.error or 'it was ended'}); resume it")
    _print_outcome(found.job_id, job.results(), as_json)


def _print_result(found: "PromptLearningResult", as_json: bool) -> None:
    said: dict[str, Any] = {
        "job_id": found.job_id,
        "status": str(found.status),
        "rollouts": found.num_completed,
        "best_score": found.best_score,
        "error": found.error,
    }
    if as_json:
        click.echo(json.dumps(said))
        return
    print_table(
        "Optimization", ["", "is"], [(key, "-" if value is None else str(value)) for key, value in said.items()]
    )


def _print_outcome(name: str, outcome: "Outcome", as_json: bool) -> None:
    from graftline.pipeline.stages.optimized_prompt import front_rows

    if as_json:
        best = outcome.best_prompt
        said = {"name": name, **outcome.summary(), "best_prompt": best.texts if best else None}
        click.echo(json.dumps({**said, "prompts": front_rows(outcome)}))
        return
    rows = front_rows(outcome)
    print_table(
        f"Prompts of {name}, ended by: {outcome.ending}",
        list(rows[0]) if rows else ["prompt"],
        [tuple("-" if value is None else str(value) for value in row.values()) for row in rows],
    )
    if (best := outcome.best_prompt) is not None:
        for part, text in best.texts.items():
            click.echo(f"--- {part} ---\n{text}")


COMMANDS = (list_, optimize, show, resume, cancel)
