"""The embedded server: `python -m graftline.llm.servers.embedded`, llama.cpp's own server in one process of ours.

It speaks OpenAI's dialect on `/v1`, and has `/health`, `/metrics` and `/slots`; it listens when the weights are loaded. An
API key is read from the environment variable that `KEY_VARIABLE` names. At SIGTERM it takes nothing more and ends when
everything that it has taken is answered.

Adapters are converted and loaded when it starts. A request names one, or the bare model, as its `model`: see
`embedded_front.py`.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.core.errors import ConfigError, GraftlineError, install_command
from graftline.core.listener import open_listener

if TYPE_CHECKING:
    from xllamacpp import CommonParams

KEY_VARIABLE = "LLAMA_API_KEY"
_CACHED_PROMPTS_MIB = 512  # the library's own limit is 8 GiB
_OTHER_CONNECTIONS = 32  # for /health and /metrics


@click.command()
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, help="GGUF file.")
@click.option("--name", required=True, help="As requests call the model.")
@click.option("--host", required=True)
@click.option("--port", type=click.IntRange(1, 65535), required=True)
@click.option("--slots", type=click.IntRange(1), required=True, help="Requests at a time; the others wait.")
@click.option("--context-tokens", type=click.IntRange(1), required=True, help="Of each slot.")
@click.option("--threads", type=click.IntRange(1), help="All cores that this process may use if not given.")
@click.option(
    "--adapter",
    "adapters",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder of a LoRA adapter in the layout of PEFT; requests name it as the folder is called.",
)
@click.option("--shutdown-timeout", type=int, default=30, help="Seconds that what was taken has after SIGTERM.")
def main(
    model: Path,
    name: str,
    host: str,
    port: int,
    slots: int,
    context_tokens: int,
    threads: int | None,
    adapters: tuple[Path, ...],
    shutdown_timeout: int,
) -> None:
    """Serve one model, and adapters of it."""
    # threads of OpenMP turn round at barriers while they wait, which takes the cores from whatever else runs: five
    # times slower beside one busy process. It is read once, when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    try:
        import uvicorn
        from xllamacpp import CommonParams, Server

        from graftline.llm.servers.embedded_front import EmbeddedFront
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error.name} is missing, but the embedded server needs it; {install_command('embedded')}")

    settings = CommonParams()
    settings.model.path = str(model)
    settings.model_alias = {name}
    settings.n_parallel = slots
    settings.n_ctx = context_tokens * slots  # it is divided among the slots
    settings.cpuparams.n_threads = threads or len(os.sched_getaffinity(0))
    settings.cpuparams_batch.n_threads = settings.cpuparams.n_threads
    # a connection has a thread for as long as it is open
    settings.n_threads_http = 2 * slots + _OTHER_CONNECTIONS
    settings.cache_ram_mib = _CACHED_PROMPTS_MIB
    settings.endpoint_metrics = settings.endpoint_slots = settings.use_jinja = True
    settings.ui = False
    if key := os.environ.get(KEY_VARIABLE):
        settings.api_keys = [key]
    folders = {folder.absolute().name: folder for folder in adapters}
    if len({*folders, name}) <= len(adapters):
        sys.exit("error: adapters: each needs a folder whose name is its own, and not that of the model")
    try:
        listener = open_listener(host, port, takes_connections=False)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    with tempfile.TemporaryDirectory(prefix="graftline-embedded-") as temporary, listener:
        private = Path(temporary)  # others may not look into it
        llama = private / "llama.sock"
        settings.hostnames = [str(llama)]
        try:
            _add_adapters(settings, folders, model, private)
            server = Server(settings)
        except GraftlineError as error:
            sys.exit(f"error: {error}")
        except ModuleNotFoundError as error:
            sys.exit(f"error: {error.name} is missing, but adapters need it; {install_command('embedded')}")
        except RuntimeError as error:
            sys.exit(f"error: {model}: llama.cpp cannot serve it: {error}")
        # until here nothing was taken, and the signal ends the process as it is. uvicorn raises it again when it has ended
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        web = uvicorn.Config(
            EmbeddedFront(llama, name, folders),
            lifespan="off",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=shutdown_timeout,
        )
        uvicorn.Server(web).run(sockets=[listener])
        del server


def _add_adapters(settings: "CommonParams", adapters: Mapping[str, Path], model: Path, folder: Path) -> None:
    """Write `adapters` for `model` to `folder`, and have them loaded, none of them in use.

    What was read of a prompt is what one adapter made of it, but llama.cpp looks at that only where a request names the
    adapters it is for, and only in the slot that it goes to. So prompts that no slot holds any more are not kept, and a
    request has to allow that the others are used again (`cache_prompt`).
    """
    if not adapters:
        return
    from xllamacpp import CommonAdapterLoraInfo

    from graftline.llm.weights.lora_gguf import read_base, write_lora

    base = read_base(model)
    loaded = []
    for number, adapter in enumerate(adapters.values()):
        file = folder / f"{number}.gguf"
        write_lora(adapter, base, file)
        loaded.append(CommonAdapterLoraInfo(str(file), 0.0))
    settings.lora_adapters = loaded
    settings.cache_prompt = False
    settings.cache_ram_mib = 0


if __name__ == "__main__":
    main()
