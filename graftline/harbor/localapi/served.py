"""A task app on a port of this machine: for tests, examples and evaluations that run beside it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from graftline.core.errors import ConfigError, HarborError
from graftline.core.listener import LOOPBACK, open_listener, url_of

_ENDS_WITHIN_S = 10
_KEPT_OPEN_S = 60
_STARTS_WITHIN_S = 60.0
_LOOKS_EVERY_S = 0.005


@contextmanager
def serve_task_app(app: Any, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve `app` from a thread while the context lasts, and give its address; port 0 is a free one.

    Raises:
        ConfigError: the address is not one of this machine, or taken.
        HarborError: the app does not start.
    """
    if host not in LOOPBACK:
        raise ConfigError(
            f"host {host!r} would offer the task app to other machines, without encryption; use 127.0.0.1"
        )
    with open_listener(host, port) as listener, serve_app(app, listener) as url:
        yield url


@contextmanager
def serve_app(app: Any, listener: socket.socket) -> Iterator[str]:
    """Serve `app` from a thread while the context lasts, and give the address of `listener`.

    Raises:
        HarborError: the app does not start.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        # logging is set up by whoever runs this process
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_ENDS_WITHIN_S,
        # longer than clients keep one, which else write to connections that are being closed
        timeout_keep_alive=_KEPT_OPEN_S,
    )
    web = uvicorn.Server(config)

    def run() -> None:
        with suppress(SystemExit):  # uvicorn's way to say that it did not start
            web.run(sockets=[listener])

    thread = threading.Thread(target=run, name="task-app", daemon=True)
    thread.start()
    deadline = time.monotonic() + _STARTS_WITHIN_S
    try:
        while not web.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise HarborError("the app did not start; its log says why")
            time.sleep(_LOOKS_EVERY_S)
        yield url_of(listener)
    finally:
        web.should_exit = True
        thread.join(2 * _ENDS_WITHIN_S)
