"""Contexts of deployments, and rollouts of them, for tests of executors that run containers."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from typing import Any

from graftline.harbor.contract import HarborLimits
from graftline.harbor.executors.base import BuildContext, RolloutSpec

DOCKERFILE = r"""FROM debian:13
WORKDIR /app
COPY . /app
RUN if [ -f run_rollout ]; then cp run_rollout /usr/local/bin; else printf '#!/bin/sh\nexec python3 /app/run_rollout.py "$@"\n' > /usr/local/bin/run_rollout && chmod +x /usr/local/bin/run_rollout; fi
"""
ENTRYPOINT = "run_rollout --input /tmp/rollout.json --output /tmp/result.json"
FILES = {"run_rollout": '#!/bin/sh\nprintf \'{"reward_info": {"outcome_reward": 0.5}}\' > "$4"\n'}


def packed_context(files: Mapping[str, str] = FILES, dockerfile: str = DOCKERFILE) -> BuildContext:
    """Return what a snapshot is made of."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(text.encode()), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
    packed = gzip.compress(archive.getvalue(), mtime=0)
    return BuildContext(hashlib.sha256(packed).hexdigest(), lambda: packed, dockerfile)


def a_script(lines: str, **more: str) -> BuildContext:
    """Return a context whose entrypoint is a shell script: `$4` is where its result goes."""
    return packed_context({"run_rollout": f"#!/bin/sh\n{lines}\n", **more})


def a_box(snapshot_id: str, **changes: Any) -> RolloutSpec:
    """Return a rollout of a snapshot."""
    values: dict[str, Any] = {
        "rollout_id": "r1",
        "attempt": 1,
        "snapshot_id": snapshot_id,
        "entrypoint": ENTRYPOINT,
        "entrypoint_mode": "file",
        "request": {"trace_correlation_id": "t1"},
        "limits": HarborLimits(),
    }
    return RolloutSpec(**{**values, **changes})
