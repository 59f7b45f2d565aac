"""A server that runs until it is told to end: `graftline tinker serve`.

It listens on a loopback address. Clients need its key, which stands in `<root>/api_key` unless `TINKER_API_KEY` gives one.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from pydantic import SecretStr

from graftline.core.build import lock_folder
from graftline.core.errors import ConfigError, ModelError
from graftline.core.listener import LOOPBACK, open_listener, url_of
from graftline.core.processes import keep_freed_memory
from graftline.core.secrets import secret_in
from graftline.training.local.checkpoints import CheckpointStore
from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.server import TinkerServer
from graftline.training.sdk import KEY_PREFIXES, KEY_VARIABLE

_KEY_PREFIX = KEY_PREFIXES[0]
_SHUTDOWN_S = 10
_KEEP_ALIVE_S = 60
"""Longer than the 5 s of clients, which would otherwise write to closed connections."""
_FREED_BYTES = (1 << 30, (1 << 31) - 1)
"""Of one piece, and kept in all: a step asks for the same large ones as the one before it, and takes an eighth less so."""


def serve(
    folder: Path,
    model: str,
    settings: EngineSettings,
    root: Path,
    environment: Mapping[str, str],
    host: str = "127.0.0.1",
    port: int = 0,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the model in `folder` as `model`, with checkpoints below `root`, until SIGTERM or SIGINT.

    Port 0 is a free one; `on_start` gets the address.
    """
    if host not in LOOPBACK:
        raise ConfigError(
            f"host {host!r} would offer the model to other machines, without encryption; use 127.0.0.1, and"
            " a tunnel from elsewhere"
        )
    busy = ModelError(f"{root}: another server has its checkpoints there; stop it, or name another folder")
    with lock_folder(root, busy):
        key = api_key(root, environment)
        keep_freed_memory(*_FREED_BYTES)
        with open_listener(host, port) as listener:
            # made in a thread that ends, so that only the one that computes has threads of OpenMP: libgomp gives up
            # waiting after a thousandth of what GOMP_SPINCOUNT says while a process has more of them than cores, and
            # those of the thread that made the engine would count for as long as it lives: a quarter of the speed
            with ThreadPoolExecutor(1, thread_name_prefix="load") as loader:
                engine = loader.submit(Engine, folder, model, settings).result()
            server = TinkerServer(engine, CheckpointStore(root), key, secret_in(root / "url_secret").encode())

            def start(url: str, end: Callable[[], None]) -> None:
                for number in (signal.SIGINT, signal.SIGTERM):
                    asyncio.get_running_loop().add_signal_handler(number, end)
                on_start(url)

            asyncio.run(run_server(server, listener, start))


def api_key(root: Path, environment: Mapping[str, str]) -> SecretStr:
    """Return the key of the server below `root`; it is made, for this user's eyes only, if there is none."""
    key = environment.get(KEY_VARIABLE, "")
    if key and not key.startswith(_KEY_PREFIX):
        raise ConfigError(
            f"{KEY_VARIABLE} does not begin with {_KEY_PREFIX!r}, so the SDK would refuse it; mend or unset it"
        )
    return SecretStr(key or secret_in(root / "api_key", _KEY_PREFIX))


class _Web(uvicorn.Server):
    """One that ends when it is told to; uvicorn's own then dies of the signal that told it, before anything can be ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run_server(
    server: TinkerServer, listener: socket.socket, on_start: Callable[[str, Callable[[], None]], None]
) -> None:
    """Serve until the function is called that `on_start` gets besides the address; it is for the event loop."""
    config = uvicorn.Config(
        server.app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    web = _Web(config)

    def end() -> None:
        web.should_exit = True
        server.release_waiters()

    server.start()
    task = asyncio.create_task(web.serve(sockets=[listener]))
    while not web.started and not task.done():
        await asyncio.sleep(0.01)
    if web.started:
        on_start(url_of(listener), end)
    try:
        await task
    finally:
        server.stop()
