"""The embedded server: `python -m graftline.actors.embedded`, llama.cpp's own server in one process of ours.

It speaks OpenAI's dialect on `/v1`, answers 503 on `/health` while the weights are loaded, and has `/metrics` and
`/slots`. An API key is read from the environment variable that `KEY_VARIABLE` names. At SIGTERM it takes nothing
more and ends when everything that it has taken is answered.

Adapters are converted and loaded when it starts. A request says which one it is for by the number that `/lora-adapters`
has for it; without one, it is for the bare model.
"""

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.errors import GraftlineError

if TYPE_CHECKING:
    from xllamacpp import CommonParams, Server

KEY_VARIABLE = "LLAMA_API_KEY"
_CACHED_PROMPTS_MIB = 512  # the library's own limit is 8 GiB
_OTHER_CONNECTIONS = 32  # kept alive without a request, or for /health and /metrics
_BUSY = ("llamacpp:requests_processing", "llamacpp:requests_deferred")
_LOOK_S = 0.1


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
    help="Folder of a LoRA adapter in the layout of PEFT.",
)
@click.option("--shutdown-timeout", type=float, default=30.0, help="Seconds that what was taken has after SIGTERM.")
def main(
    model: Path,
    name: str,
    host: str,
    port: int,
    slots: int,
    context_tokens: int,
    threads: int | None,
    adapters: tuple[Path, ...],
    shutdown_timeout: float,
) -> None:
    """Serve one model, and adapters of it."""
    # threads of OpenMP turn round at barriers while they wait, which takes the cores from whatever else runs: five
    # times slower beside one busy process. It is read once, when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    try:
        from xllamacpp import CommonParams, Server
    except ModuleNotFoundError:
        sys.exit("error: xllamacpp is missing, but the embedded server needs it; pip install xllamacpp")

    settings = CommonParams()
    settings.model.path = str(model)
    settings.model_alias = {name}
    settings.hostnames = [host]
    settings.port = port
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
    # files of adapters are read once
    with tempfile.TemporaryDirectory(prefix="graftline-adapters-") as folder:
        try:
            _add_adapters(settings, adapters, model, Path(folder))
            server = Server(settings)
        except GraftlineError as error:
            sys.exit(f"error: {error}")
        except ModuleNotFoundError as error:
            sys.exit(f"error: {error.name} is missing, but adapters need it; pip install gguf safetensors")
        except RuntimeError as error:
            sys.exit(f"error: {model}: llama.cpp cannot serve it: {error}")
    # before that, nothing has been taken, and the signal ends the process as it is
    _wait_for_signal()
    # ends this process at the latest: with requests that are not finished, the server waits for whoever asked to hang up
    signal.setitimer(signal.ITIMER_REAL, shutdown_timeout)
    _refuse_connections()
    _wait_until_idle(server)


def _add_adapters(settings: "CommonParams", adapters: Sequence[Path], model: Path, folder: Path) -> None:
    """Write `adapters` for `model` to `folder`, and have them loaded, none of them in use.

    What was read of a prompt is what one adapter made of it, but the server looks at that only where a request names the
    adapters it is for, and only in the slot that it goes to. So prompts that no slot holds any more are not kept, and
    requests that want the others used again have to say so (`cache_prompt`), and name the adapters.
    """
    if not adapters:
        return
    from xllamacpp import CommonAdapterLoraInfo

    from graftline.models.lora_gguf import read_base, write_lora

    base = read_base(model)
    loaded = []
    for adapter in adapters:
        file = adapter_file(folder, adapter)
        write_lora(adapter, base, file)
        loaded.append(CommonAdapterLoraInfo(str(file), 0.0))
    settings.lora_adapters = loaded
    settings.cache_prompt = False
    settings.cache_ram_mib = 0


def adapter_file(folder: Path, adapter: Path) -> Path:
    """Return where below `folder` the file of `adapter` is written: its end says which adapter it is."""
    whole = adapter.absolute()
    return folder.joinpath(*whole.parts[1:-1], f"{whole.name}.gguf")


def _wait_for_signal() -> None:
    # threads of the server may be the ones that a signal arrives in; the descriptor is written to all the same
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    os.read(reading, 1)


def _wait_until_idle(server: "Server") -> None:
    idle_looks = 0
    # a request that has arrived is not counted before it is read
    while idle_looks < 2:
        time.sleep(_LOOK_S)
        idle_looks = 0 if _is_busy(server.handle_metrics()) else idle_looks + 1


def _refuse_connections() -> None:
    """Close the listening sockets of this process; the server has no call for it."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        try:
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # no socket, or the folder that is listed here
            continue
        with copy:
            if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                copy.shutdown(socket.SHUT_RDWR)


def _is_busy(metrics: str) -> bool:
    return any(line.startswith(_BUSY) and not line.endswith(" 0") for line in metrics.splitlines())


if __name__ == "__main__":
    main()
