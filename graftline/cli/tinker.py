"""`graftline tinker serve`: a model of this machine, served to the Tinker SDK."""

import os
from pathlib import Path

import click

from graftline.cli.options import FOLDER, find_paths, json_option, print_json


@click.command()
@click.option("--model", default="smollm2-135m", help="A model of configs/models.yaml, or a name for --folder.")
@click.option("--folder", type=FOLDER, help="A model of transformers, in place of the catalog's.")
@click.option("--store", type=FOLDER, help="Where checkpoints are kept; data/tinker if not given.")
@click.option("--host", default="127.0.0.1", help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8010, help="0 for a free one.")
@click.option("--threads", type=click.IntRange(0, 256), default=0, help="Of torch; 0 for one per core.")
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="float32",
    help="What matrices are multiplied in; auto: what is faster here.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What computes.")
@json_option
@click.pass_obj
def serve(
    root: Path | None, model: str, folder: Path | None, store: Path | None, host: str, port: int, threads: int,
    precision: str, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Serve a model to the Tinker SDK, its command and its cookbook, until interrupted; says what they need."""
    # before torch: threads that wait for each other are to spin for about 0.1 ms, which saves a fifth of the time; for as
    # long as they like, as is the default, they take the cores from one another wherever anything else runs
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    # and its tensors are to lie in large pages, which saves a twentieth
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from rich.console import Console

    from graftline.core.config import validate
    from graftline.training.local.engine import EngineSettings
    from graftline.training.local.serve import serve
    from graftline.training.sdk import KEY_VARIABLE

    paths = find_paths(root)
    store = store or paths.data / "tinker"
    values = {"threads": threads, "precision": precision, "device": device}
    settings = validate(values, EngineSettings, "graftline tinker serve")
    if folder is None:
        from graftline.llm.weights.catalog import safetensors_path
        from graftline.llm.weights.convert import convert_here

        is_converted = safetensors_path(model, paths, os.environ).is_dir()
        with Console(stderr=True).status(
            f"checking the weights of {model}" if is_converted else f"converting {model}, which is done once"
        ):
            folder = convert_here(model, paths, os.environ)
    key = f"{KEY_VARIABLE} of this command" if os.environ.get(KEY_VARIABLE) else str(store / "api_key")

    def announce(url: str) -> None:
        if as_json:
            print_json({"url": url, "model": model, "api_key_from": key, "store": str(store)})
            return
        click.echo(f"TINKER_BASE_URL={url}\nthe key: {key}\nmodel {model}, checkpoints below {store}; interrupt to end")

    if not as_json:
        click.echo(f"loading {model}; the address follows once it can be used", err=True)
    serve(folder, model, settings, store, os.environ, host, port, announce)


COMMANDS = (serve,)
