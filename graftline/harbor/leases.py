"""Who holds what: a worker's name, and whether it can still be alive.

A worker that was killed leaves what it held as `running`. Its lease ends by itself; on the same machine nobody has to wait
for that, for its process can be seen to be gone.
"""

import os
import socket
from pathlib import Path
from uuid import uuid4


def new_owner() -> str:
    """Return a name for the worker that this process is about to be: `host:process:started:random`."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}:{_read_start_time(os.getpid())}:{uuid4().hex[:12]}"


def is_dead(owner: str) -> bool:
    """Return whether the process of `owner` is gone for sure; of another machine nothing is known."""
    host, _, remainder = owner.partition(":")
    process, _, started = remainder.partition(":")
    if host != socket.gethostname()[:40] or not process.isdigit():
        return False
    return _read_start_time(int(process)) != started.partition(":")[0]


def _read_start_time(process: int) -> str:
    """Return when a process started, in ticks; empty where there is none. Numbers of processes are used again."""
    try:
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""
