"""A server that runs until it is told to end: `graftline tinker serve`.

It listens on a loopback address. Clients need its key, which stands in `<root>/api_key` unless `TINKER_API_KEY` gives one.
"""

import asyncio
import ctypes
import fcntl
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from pydantic import Field, SecretStr

from graftline.core.config import Config
from graftline.core.errors import ConfigError, ModelError
from graftline.training.local.checkpoints import CheckpointStore
from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.server import TinkerServer
from graftline.training.sdk import KEY_PREFIXES, KEY_VARIABLE

logger = logging.getLogger(__name__)

_KEY_PREFIX = KEY_PREFIXES[0]
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ENDS_WITHIN_S = 10
_KEPT_OPEN_S = 60
"""For how long a connection is kept that nothing comes over: longer than the 5 s of clients, which else write to closed ones."""


class ServeSettings(Config):
    """What is served, and where."""

    model: str
    """What clients call it."""
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    """0 for a free one."""
    engine: EngineSettings = EngineSettings()


def serve(
    settings: ServeSettings,
    folder: Path,
    root: Path,
    environment: Mapping[str, str],
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the model in `folder`, with checkpoints below `root`, until SIGTERM or SIGINT; `started` gets the address.

    Raises:
        ConfigError: the address is not one of this machine, or taken; the key has the wrong shape.
        ModelError: the model cannot be loaded, or another server has `root`.
    """
    if settings.host not in _LOOPBACK:
        raise ConfigError(
            f"host {settings.host!r} would offer the model to other machines, without encryption; use 127.0.0.1, and"
            " a tunnel from elsewhere"
        )
    with _alone(root):
        key = api_key(root, environment)
        listener = _listener(settings)
        keep_freed_memory()
        try:
            engine = _engine(folder, settings)
            server = TinkerServer(engine, CheckpointStore(root), key, _secret(root / "url_secret").encode())
            asyncio.run(_run(server, listener, started))
        finally:
            listener.close()


def api_key(root: Path, environment: Mapping[str, str]) -> SecretStr:
    """Return the key of the server below `root`; it is made, for this user's eyes only, if there is none.

    Raises:
        ConfigError: the one in the environment is none that the SDK would send.
    """
    given = environment.get(KEY_VARIABLE, "")
    if given and not given.startswith(_KEY_PREFIX):
        raise ConfigError(
            f"{KEY_VARIABLE} does not begin with {_KEY_PREFIX!r}, so the SDK would refuse it; mend or unset it"
        )
    return SecretStr(given or _secret(root / "api_key", _KEY_PREFIX))


class _Web(uvicorn.Server):
    """One that ends when it is told to; uvicorn's own then dies of the signal that told it, before anything can be ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(server: TinkerServer, listener: socket.socket, started: Callable[[str], None]) -> None:
    config = uvicorn.Config(
        server.app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=_KEPT_OPEN_S,
        timeout_graceful_shutdown=_ENDS_WITHIN_S,
    )
    web = _Web(config)

    def end() -> None:
        web.should_exit = True
        server.let_go()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    server.start()
    host, port = listener.getsockname()[:2]
    task = asyncio.create_task(web.serve(sockets=[listener]))
    while not web.started and not task.done():
        await asyncio.sleep(0.01)
    if web.started:
        started(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    try:
        await task
    finally:
        server.stop()


def _engine(folder: Path, settings: ServeSettings) -> Engine:
    """Return the engine, made in a thread that ends, so that only the one that computes has threads of OpenMP.

    libgomp gives up waiting after a thousandth of what GOMP_SPINCOUNT says while a process has more of them than cores, and
    those of the thread that made the engine would count for as long as it lives: a quarter of the speed of training.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="load") as loader:
        return loader.submit(Engine, folder, settings.model, settings.engine).result()


def _listener(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # named, for asyncio sends small answers at once only over sockets that say so; else each waits for 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        # now, not when the model is loaded: until then others could have the port as well
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port {settings.port} of {settings.host} cannot be had ({error.strerror}); name another"
        ) from None
    return listener


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """See to it that no other server writes below `root`."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ModelError(
                f"{root}: another server has its checkpoints there; stop it, or name another folder"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _secret(path: Path, prefix: str = "") -> str:
    """Return the secret in `path`; if there is none it is made, beginning with `prefix`."""
    with suppress(FileNotFoundError):
        return path.read_text("utf-8").strip()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(made := prefix + secrets.token_hex(32))
    return made


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of mallopt: https://man7.org/linux/man-pages/man3/mallopt.3.html."""
_LARGEST_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Have this process keep what it frees; nothing happens where the allocator is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
    mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    # arenas of threads are too small for such pieces
    mallopt(_ARENA_MAX, 1)
