"""The commands below `graftline tinker`: the backend on this machine that the Tinker SDK can talk to."""

import json
import os
from pathlib import Path

import click

from graftline.cli.main import json_option, paths_of


@click.command()
@click.option(
    "--model", default="smollm2-135m", show_default=True, help="A model of configs/models.yaml, or a name for --folder."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="A model of transformers, in place of the catalog's.",
)
@click.option(
    "--root",
    "store",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where checkpoints are kept; data/tinker if not given.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8010, show_default=True, help="0 for a free one.")
@click.option(
    "--threads", type=click.IntRange(0, 256), default=0, show_default=True, help="Of torch; 0 for one per core."
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="What matrices are multiplied in; auto: what is faster here.",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="What computes."
)
@json_option
@click.pass_obj
def serve(
    root: Path | None,
    model: str,
    folder: Path | None,
    store: Path | None,
    host: str,
    port: int,
    threads: int,
    precision: str,
    device: str,
    as_json: bool,
) -> None:
    """Serve a model to the Tinker SDK, its command and its cookbook, until interrupted; says what they need."""
    # before torch: threads that wait for each other are to spin for about 0.1 ms, which saves a fifth of the time; for as
    # long as they like, as is the default, they take the cores from one another wherever anything else runs
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    # and its tensors are to lie in large pages, which saves a twentieth
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from rich.console import Console

    from graftline.core.config import validate
    from graftline.training.local.serve import ServeSettings, serve
    from graftline.training.sdk import KEY_VARIABLE

    paths, console = paths_of(root), Console(stderr=True)
    where = store or paths.data / "tinker"
    given = {
        "model": model,
        "host": host,
        "port": port,
        "engine": {"threads": threads, "precision": precision, "device": device},
    }
    settings = validate(given, ServeSettings, "graftline tinker serve")
    if folder is None:
        from graftline.llm.weights.convert import convert_here

        with console.status(f"converting {model}, which is done once"):
            folder = convert_here(model, paths, os.environ)
    key = f"{KEY_VARIABLE} of this command" if os.environ.get(KEY_VARIABLE) else str(where / "api_key")

    def started(url: str) -> None:
        if as_json:
            click.echo(json.dumps({"url": url, "model": model, "api_key_from": key, "root": str(where)}))
            return
        click.echo(f"TINKER_BASE_URL={url}\nthe key: {key}\nmodel {model}, checkpoints below {where}; interrupt to end")

    serve(settings, folder, where, os.environ, started)


COMMANDS = (serve,)
