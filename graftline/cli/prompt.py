"""The commands below `graftline prompt`: prompts that are made better by what their rollouts come to."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.env_options import open_service, url_option, wait_option
from graftline.cli.options import (
    FOLDER,
    ManifestChoice,
    find_paths,
    json_option,
    manifest_options,
    pass_paths,
    print_json,
    print_table,
)
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.prompts.outcome import Outcome
    from graftline.prompts.prompt_learning import PromptLearningJob, PromptLearningResult

folder_option = click.option(
    "--folder", type=FOLDER, help="Of a FILE whose task app is no deployment: where it is kept, to be resumed."
)


@click.command("list")
@json_option
@pass_paths
def list_(paths: "Paths", as_json: bool) -> None:
    """List the prompts that are configured below configs/prompts/."""
    from graftline.core.record import RECORD_NAME
    from graftline.pipeline.stages.optimized_prompt import prompt_file, prompt_names

    rows = [
        {"name": name, "prompt": prompt_file(paths, name).prompt, "made": (paths.prompt(name) / RECORD_NAME).exists()}
        for name in prompt_names(paths)
    ]
    if as_json:
        print_json({"prompts": rows})
        return
    cells = [(str(row["name"]), str(row["prompt"]), "yes" if row["made"] else "no") for row in rows]
    print_table("Prompts", ["name", "begins with", "made"], cells)


@click.command()
@click.argument("prompt", metavar="NAME|FILE")
@manifest_options
@folder_option
@wait_option
@url_option
@json_option
@click.pass_obj
def optimize(
    root: Path | None, prompt: str, manifest: ManifestChoice, folder: Path | None, is_waiting: bool, url: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Make a prompt better: NAME of configs/prompts with the ports of a manifest, or what a TOML FILE says."""
    if prompt.endswith(".toml"):
        job = _make_job(root, prompt, folder, url)
        job.submit()
        _follow(job, is_waiting, as_json)
    else:
        _make_prompt(find_paths(root), prompt, manifest, as_json)


@click.command()
@click.argument("prompt", metavar="NAME|JOB")
@url_option
@json_option
@click.pass_obj
def show(root: Path | None, prompt: str, url: str, as_json: bool) -> None:
    """Show the prompts that were found for NAME of configs/prompts, or by a JOB of the service."""
    if not _is_job(prompt):
        from graftline.pipeline.stages.optimized_prompt import load_outcome

        _print_outcome(prompt, load_outcome(find_paths(root), prompt), as_json)
        return
    job = _find_job(root, prompt, url)
    result = job.status()
    if not result.is_terminal or result.best_prompt is None:
        _print_result(result, as_json)
        return
    _print_outcome(prompt, job.results(), as_json)


@click.command()
@click.argument("prompt", metavar="NAME|FILE|JOB")
@manifest_options
@folder_option
@wait_option
@url_option
@json_option
@click.pass_obj
def resume(
    root: Path | None, prompt: str, manifest: ManifestChoice, folder: Path | None, is_waiting: bool, url: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Go on with an optimization that failed, was cancelled or was killed; what is paid is not paid again."""
    if _is_job(prompt):
        job = _find_job(root, prompt, url)
    elif prompt.endswith(".toml"):
        if folder is None:
            raise click.UsageError("a FILE is resumed from the folder that it was begun with; name it by --folder")
        job = _make_job(root, prompt, folder, url)
    else:
        _make_prompt(find_paths(root), prompt, manifest, as_json)
        return
    job.resume()
    _follow(job, is_waiting, as_json)


@click.command()
@click.argument("prompt", metavar="NAME|FOLDER|JOB")
@url_option
@json_option
@click.pass_obj
def cancel(root: Path | None, prompt: str, url: str, as_json: bool) -> None:
    """End an optimization that runs: of NAME, in the FOLDER of a file, or a JOB of the service; what is paid stays."""
    if _is_job(prompt):
        _print_result(_find_job(root, prompt, url).cancel(), as_json)
        return
    from graftline.pipeline.stages.optimized_prompt import prompt_file, stop_optimized_prompt
    from graftline.prompts.journal import request_stop

    if Path(prompt).is_dir():
        request_stop(Path(prompt))
        count = 1
    else:
        paths = find_paths(root)
        prompt_file(paths, prompt)
        count = stop_optimized_prompt(paths.prompt(prompt))
    if as_json:
        print_json({"asked_to_end": count})
    else:
        click.echo(f"{prompt}: {count or 'none'} asked to end")


COMMANDS = (list_, optimize, show, resume, cancel)


def _is_job(prompt: str) -> bool:
    return prompt.startswith("job_")


def _make_prompt(paths: "Paths", name: str, manifest: ManifestChoice, as_json: bool) -> None:
    from graftline.core.progress import progress_bars
    from graftline.pipeline.run import run_one
    from graftline.pipeline.stages.optimized_prompt import read_outcome

    with progress_bars() as bars:
        built = run_one(paths, manifest.load(paths), "optimized_prompt", name, bars)
    _print_outcome(name, read_outcome(built.folder), as_json)


def _make_job(root: Path | None, path: str, folder: Path | None, url: str) -> "PromptLearningJob":
    from graftline.prompts.prompt_learning import PromptLearningConfig, PromptLearningJob

    config = PromptLearningConfig.from_toml(path)
    if not config.task_app_url or config.harbor is not None:
        # the job explains what is wrong with a file that names neither
        if config.harbor is None:
            return PromptLearningJob(config, folder=folder)
        service = open_service(root, url)
        return PromptLearningJob(config, service.url, service.key.get_secret_value(), folder=folder)
    from graftline.harbor.address import HarborDeploymentRef

    if ref := HarborDeploymentRef.of_url(config.task_app_url):
        service = open_service(root, ref.backend_url or url)
        return PromptLearningJob(config, service.url, service.key.get_secret_value())
    return PromptLearningJob(config, folder=folder)


def _find_job(root: Path | None, job_id: str, url: str) -> "PromptLearningJob":
    from graftline.prompts.prompt_learning import PromptLearningConfig, PromptLearningJob

    service = open_service(root, url)
    return PromptLearningJob(PromptLearningConfig(), service.url, service.key.get_secret_value(), job_id=job_id)


def _follow(job: "PromptLearningJob", is_waiting: bool, as_json: bool) -> None:
    # a job in this process would end with it
    if not is_waiting and job.is_of_service:
        _print_result(job.status(), as_json)
        return
    result = job.poll_until_complete(progress=True)
    if not result.succeeded:
        reason = result.error or "it was ended"
        raise ConfigError(f"optimization {result.job_id!r}: {result.status} ({reason}); resume it")
    _print_outcome(result.job_id, job.results(), as_json)


def _print_result(result: "PromptLearningResult", as_json: bool) -> None:
    values: dict[str, Any] = {
        "job_id": result.job_id,
        "status": str(result.status),
        "rollouts": result.num_completed,
        "best_score": result.best_score,
        "error": result.error,
    }
    if as_json:
        print_json(values)
        return
    rows = [(key, "-" if value is None else str(value)) for key, value in values.items()]
    print_table("Optimization", ["", "is"], rows)


def _print_outcome(name: str, outcome: "Outcome", as_json: bool) -> None:
    from graftline.pipeline.stages.optimized_prompt import front_rows

    best, rows = outcome.best_prompt, front_rows(outcome)
    if as_json:
        values = {"name": name, **outcome.summary(), "best_prompt": best.texts if best else None}
        print_json({**values, "prompts": rows})
        return
    cells = [tuple("-" if value is None else str(value) for value in row.values()) for row in rows]
    print_table(f"Prompts of {name}, ended by: {outcome.ending}", list(rows[0]) if rows else ["prompt"], cells)
    for part, text in best.texts.items() if best else ():
        click.echo(f"--- {part} ---\n{text}")
