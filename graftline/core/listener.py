"""Sockets that programs of this machine serve on."""

import socket

from graftline.core.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Hosts that other machines cannot reach."""


def open_listener(host: str, port: int, takes_connections: bool = True) -> socket.socket:
    """Return a socket that has an address of this machine already; ConfigError where it is not one, or taken.

    Without `takes_connections` nobody gets one before the socket listens: a server that is yet to load looks down.
    """
    # named, for asyncio sends small answers at once only over sockets that say so; else each waits for 40 ms
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        if takes_connections:
            # now, not when somebody serves: until then others could have the port as well
            listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"port {port} of {host} cannot be had ({reason}); name another, or 0 for a free one"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of what listens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
