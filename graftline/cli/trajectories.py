"""The commands below `graftline trajectories`: files for training, and the way into object storage."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from graftline.cli.main import json_option, manifest_options, overrides_of, paths_of

if TYPE_CHECKING:
    from graftline.astgrep.binding import Language
    from graftline.datasets.splits import Split


@click.command()
@click.argument("format", type=click.Choice(["sft", "dpo", "rl", "srl", "atif"]))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--split", type=click.Choice(["train", "dev", "test"]), default="train", show_default=True, help="Whose attempts."
)
@click.option("--language", "languages", multiple=True, help="Of this language only; may be given several times.")
@click.option("--teacher", "teachers", multiple=True, help="Of this teacher only; may be given several times.")
@click.option("--prompt", default="brief", show_default=True, help="Name of the prompt in teacher_prompts.yaml by which chats are made.")  # fmt: skip
@json_option
@click.pass_obj
def export(
    root: Path | None, format: str, target: Path, split: str, languages: tuple[str, ...], teachers: tuple[str, ...],
    prompt: str, as_json: bool,
) -> None:  # fmt: skip
    """Write the attempts that count to TARGET, a JSON object per line."""
    from graftline.pipeline import exporting

    made = exporting.export(
        paths_of(root),
        format,
        target,
        prompt,
        cast("Split", split),
        cast("tuple[Language, ...]", languages) or None,
        teachers or None,
    )
    if as_json:
        click.echo(json.dumps({"file": str(made.file), "rows": made.rows, "attempts": made.attempts}))
    else:
        click.echo(f"{made.file}: {made.rows} rows of {made.attempts} attempts")


@click.command()
@manifest_options
@json_option
@click.pass_obj
def upload(root: Path | None, manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Put every shard of attempts into the blob store of the manifest that is not there yet."""
    from graftline.pipeline.manifests import load_manifest
    from graftline.pipeline.worker import upload_attempts

    paths = paths_of(root)
    done = upload_attempts(paths, load_manifest(paths, manifest, overrides_of(ports)))
    click.echo(
        json.dumps(done) if as_json else f"{done['sent']} sent ({done['sent_bytes']} bytes), {done['kept']} were there"
    )


COMMANDS = (export, upload)
