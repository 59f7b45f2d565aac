"""What is left behind by very many actions: memory, processes, descriptors, mounts, folders."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from graftline.sandbox import Request, WarmSandboxConfig, open_sandbox

_WARM_UP = 0.1


def endurance(requests: Sequence[Request], actions: int, cores: int) -> dict[str, Any]:
    """Apply at least so many actions; return what there was after a tenth of them, and at their end."""
    per_round = sum(len(request.actions) for request in requests)
    rounds = max(2, -(-actions // per_round))
    with closing(open_sandbox(WarmSandboxConfig(workers=cores))) as sandbox:
        early: dict[str, int] = {}
        for number in range(rounds):
            sandbox.apply_each(requests)
            if not early and number + 1 >= rounds * _WARM_UP:
                early = standing()
        late = standing()
    return {"actions": rounds * per_round, "early": early, "late": late, "after_closing": standing()}


def standing() -> dict[str, int]:
    """Return what this process and its children hold."""
    own = psutil.Process()
    memory, count = 0, 0
    for process in (own, *own.children(recursive=True)):
        try:
            memory += process.memory_full_info().pss
            count += 1
        except psutil.NoSuchProcess:  # a child of a batch, between two looks
            continue
    temporary = tempfile.gettempdir()
    folders = islice(Path(temporary).glob("graftline-*"), 10_000)
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    return {
        "memory_mb": memory >> 20,
        "processes": count,
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        # those of other programs come and go
        "mounts": sum(f" {temporary}/" in line for line in mounts),
        "folders": len(list(folders)),
    }
