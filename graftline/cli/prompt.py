"""The commands below `graftline prompt`: prompts that are made better by what their rollouts come to."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.env_options import open_service, url_option, wait_option
from graftline.cli.options import (
    FOLDER,
    ManifestChoice,
    Output,
    find_paths,
    manifest_options,
    output_option,
    pass_paths,
    tabulate,
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
@output_option
@pass_paths
def list_(paths: "Paths") -> Output:
    """List the prompts that are configured below configs/prompts/."""
    from graftline.core.record import RECORD_NAME
    from graftline.pipeline.stages.optimized_prompt import prompt_file, prompt_names

    rows = [
        {"name": name, "prompt": prompt_file(paths, name).prompt, "made": (paths.prompt(name) / RECORD_NAME).exists()}
        for name in prompt_names(paths)
    ]
    columns = {"name": "name", "prompt": "begins with", "made": "made"}
    return Output({"prompts": rows}, [tabulate("Prompts", rows, columns)])


@click.command()
@click.argument("prompt", metavar="NAME|FILE")
@manifest_options
@folder_option
@wait_option
@url_option
@output_option
@click.pass_obj
def optimize(
    root: Path | None, prompt: str, manifest: ManifestChoice, folder: Path | None, is_waiting: bool, url: str,
) -> Output:  # fmt: skip
    """Make a prompt better: NAME of configs/prompts with the ports of a manifest, or what a TOML FILE says."""
    if prompt.endswith(".toml"):
        job = _make_job(root, prompt, folder, url)
        job.submit()
        return _follow(job, is_waiting)
    return _make_prompt(find_paths(root), prompt, manifest)


@click.command()
@click.argument("prompt", metavar="NAME|JOB")
@url_option
@output_option
@click.pass_obj
def show(root: Path | None, prompt: str, url: str) -> Output:
    """Show the prompts that were found for NAME of configs/prompts, or by a JOB of the service."""
    if not _is_job(prompt):
        from graftline.pipeline.stages.optimized_prompt import load_outcome

        return _show_outcome(prompt, load_outcome(find_paths(root), prompt))
    job = _find_job(root, prompt, url)
    result = job.status()
    if not result.is_terminal or result.best_prompt is None:
        return _show_result(result)
    return _show_outcome(prompt, job.results())


@click.command()
@click.argument("prompt", metavar="NAME|FILE|JOB")
@manifest_options
@folder_option
@wait_option
@url_option
@output_option
@click.pass_obj
def resume(
    root: Path | None, prompt: str, manifest: ManifestChoice, folder: Path | None, is_waiting: bool, url: str,
) -> Output:  # fmt: skip
    """Go on with an optimization that failed, was cancelled or was killed; what is paid is not paid again."""
    if _is_job(prompt):
        job = _find_job(root, prompt, url)
    elif prompt.endswith(".toml"):
        if folder is None:
            raise click.UsageError("a FILE is resumed from the folder that it was begun with; name it by --folder")
        job = _make_job(root, prompt, folder, url)
    else:
        return _make_prompt(find_paths(root), prompt, manifest)
    job.resume()
    return _follow(job, is_waiting)


@click.command()
@click.argument("prompt", metavar="NAME|FOLDER|JOB")
@url_option
@output_option
@click.pass_obj
def cancel(root: Path | None, prompt: str, url: str) -> Output:
    """End an optimization that runs: of NAME, in the FOLDER of a file, or a JOB of the service; what is paid stays."""
    if _is_job(prompt):
        return _show_result(_find_job(root, prompt, url).cancel())
    from graftline.pipeline.stages.optimized_prompt import prompt_file, stop_optimized_prompt
    from graftline.prompts.journal import request_stop

    if Path(prompt).is_dir():
        request_stop(Path(prompt))
        count = 1
    else:
        paths = find_paths(root)
        prompt_file(paths, prompt)
        count = stop_optimized_prompt(paths.prompt(prompt))
    return Output({"asked_to_end": count}, text=f"{prompt}: {count or 'none'} asked to end")


COMMANDS = (list_, optimize, show, resume, cancel)


def _is_job(prompt: str) -> bool:
    return prompt.startswith("job_")


def _make_prompt(paths: "Paths", name: str, manifest: ManifestChoice) -> Output:
    from graftline.core.progress import progress_bars
    from graftline.pipeline.run import run_one
    from graftline.pipeline.stages.optimized_prompt import read_outcome

    with progress_bars() as bars:
        built = run_one(paths, manifest.load(paths), "optimized_prompt", name, bars)
    return _show_outcome(name, read_outcome(built.folder))


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


def _follow(job: "PromptLearningJob", is_waiting: bool) -> Output:
    # a job in this process would end with it
    if not is_waiting and job.is_of_service:
        return _show_result(job.status())
    result = job.poll_until_complete(progress=True)
    if not result.succeeded:
        reason = result.error or "it was ended"
        raise ConfigError(f"optimization {result.job_id!r}: {result.status} ({reason}); resume it")
    return _show_outcome(result.job_id, job.results())


def _show_result(result: "PromptLearningResult") -> Output:
    values: dict[str, Any] = {
        "job_id": result.job_id,
        "status": str(result.status),
        "rollouts": result.num_completed,
        "best_score": result.best_score,
        "error": result.error,
    }
    rows = [(key, "-" if value is None else str(value)) for key, value in values.items()]
    return Output(values, [("Optimization", ["", "is"], rows)])


def _show_outcome(name: str, outcome: "Outcome") -> Output:
    from graftline.pipeline.stages.optimized_prompt import front_rows

    best, rows = outcome.best_prompt, front_rows(outcome)
    value = {"name": name, **outcome.summary(), "best_prompt": best.texts if best else None, "prompts": rows}
    cells = [tuple("-" if cell is None else str(cell) for cell in row.values()) for row in rows]
    table = (f"Prompts of {name}, ended by: {outcome.ending}", list(rows[0]) if rows else ["prompt"], cells)
    return Output(
        value, [table], "\n".join(f"--- {part} ---\n{text}" for part, text in (best.texts if best else {}).items())
    )
