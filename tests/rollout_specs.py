"""Contexts of deployments, and rollouts of them, for tests of executors.

The entrypoint of `CONTEXT` does what the request says; that of `a_script` is a script of the test's own.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.harbor.contract import HarborLimits, VerifierSettings
from graftline.harbor.executors.base import BuildContext, Execution, Executor, RolloutSpec
from graftline.harbor.executors.local import LocalExecutor, LocalExecutorConfig
from tests.harbor_parts import archive
from tests.jails import has_user_namespaces

DOCKERFILE = r"""FROM debian:13
WORKDIR /app
COPY . /app
RUN if [ -f run_rollout ]; then cp run_rollout /usr/local/bin; else printf '#!/bin/sh\nexec python3 /app/run_rollout.py "$@"\n' > /usr/local/bin/run_rollout && chmod +x /usr/local/bin/run_rollout; fi
"""
ENTRYPOINT = "run_rollout --input /tmp/rollout.json --output /tmp/result.json"
FILES = {"run_rollout": '#!/bin/sh\nprintf \'{"reward_info": {"outcome_reward": 0.5}}\' > "$4"\n'}


def packed_context(files: Mapping[str, str] = FILES, dockerfile: str = DOCKERFILE) -> BuildContext:
    """Return what a snapshot is made of."""
    packed = archive(files, 0o755)
    return BuildContext(hashlib.sha256(packed).hexdigest(), lambda: packed, dockerfile)


OWNER = "graftline.harbor.owner"
SECRET = "sk-0123456789"
_FAR = {"graftline.harbor.holder": "far:1:2:3"}
LEFT_LABELS = {
    "of a killed process": {OWNER: "graftline", "graftline.harbor.holder": "", "graftline.harbor.lease": "1"},
    "whose lease is over": {OWNER: "graftline", **_FAR, "graftline.harbor.lease": "9"},
    "of another machine": {OWNER: "graftline", **_FAR, "graftline.harbor.lease": "99999999999"},
    "of another owner": {OWNER: "somebody"},
}
"""Labels of containers that no live run of the owner `graftline` has, and of two that are not for it to remove."""


def a_script(lines: str, **more: str) -> BuildContext:
    """Return a context whose entrypoint is a shell script: `$4` is where its result goes."""
    return packed_context({"run_rollout": f"#!/bin/sh\n{lines}\n", **more})


def a_spec(snapshot_id: str, **changes: Any) -> RolloutSpec:
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


DOES_WHAT_IS_SAID = """#!/usr/bin/env python3
import json, os, sys
if "--input" in sys.argv:
    request, output = json.load(open(sys.argv[2])), sys.argv[4]
else:
    request, output = json.load(sys.stdin), None

def say(result):
    text = result if isinstance(result, str) else json.dumps(result)
    if output is None:
        print(text)
    else:
        open(output, "w").write(text)

def reward(number):
    say({"reward_info": {"outcome_reward": number}})

exec(request["code"])
"""
GRADES_WHAT_WAS_LEFT = """
import os, sys
left = open("score.txt").read() if os.path.exists("score.txt") else "0"
open(sys.argv[1] + "/reward.txt", "w").write(left)
"""
CONTEXT = packed_context({"run_rollout": DOES_WHAT_IS_SAID, "task/words.txt": "in the context"})
VERIFIER_CONTEXT = packed_context({"verify.py": GRADES_WHAT_WAS_LEFT, "secret.txt": "only the verifier has it"})
VERIFIER = VerifierSettings(entrypoint="python3 verify.py /logs/verifier", artifacts=("score.txt", "made"))
LIMITS = HarborLimits(memory_mb=512, disk_mb=1024)
SOON_OVER = HarborLimits.model_construct(timeout_s=3, cpu_cores=2, memory_mb=512, disk_mb=1024)
"""Less than a deployment may ask for; enough for an interpreter to start and to say something, on a busy machine too."""

on_local = pytest.mark.skipif(not has_user_namespaces(), reason="this machine gives no user namespaces")
has_cargo = shutil.which("cargo") is not None


def a_local(folder: Path, **changes: Any) -> LocalExecutor:
    return LocalExecutor(folder, LocalExecutorConfig(**{"programs": ("python", "shell"), **changes}))


def a_rollout(executor: Executor, code: str = "reward(0.5)", **changes: Any) -> RolloutSpec:
    """Return a rollout whose entrypoint runs `code`; it may call `say(result)` and `reward(number)`."""
    request = {"trace_correlation_id": "t1", "code": code}
    values = {"snapshot_id": executor.build(CONTEXT).snapshot_id, "request": request, "limits": LIMITS, **changes}
    return a_spec(**values)


def ran(executor: Executor, code: str = "reward(0.5)", **changes: Any) -> Execution:
    return executor.run(a_rollout(executor, code, **changes), never)


def ran_script(executor: Executor, lines: str, **changes: Any) -> Execution:
    """Return the end of a rollout whose entrypoint is a shell script."""
    return executor.run(a_spec(executor.build(a_script(lines)).snapshot_id, **changes), never)


def graded(executor: Executor, code: str, verifier: VerifierSettings = VERIFIER, **changes: Any) -> Execution:
    """Return the end of a rollout that another box grades by what is in `score.txt`."""
    snapshot = executor.build(VERIFIER_CONTEXT).snapshot_id
    return ran(executor, code, verifier=verifier, verifier_snapshot_id=snapshot, **changes)


def a_graded_script(executor: Executor, agent: str, verifier: str, **settings: Any) -> RolloutSpec:
    """Return a rollout whose verifier is a script of a snapshot of its own."""
    snapshot = executor.build(a_script(agent)).snapshot_id
    second = executor.build(a_script("true", verify=f"#!/bin/sh\n{verifier}\n")).snapshot_id
    verifying = VerifierSettings(entrypoint="/app/verify", **{"artifacts": ("out", "missing"), **settings})
    return a_spec(snapshot, verifier=verifying, verifier_snapshot_id=second, secrets={"API_KEY": SECRET})


def never() -> bool:
    return False


def after(times: int) -> Callable[[], bool]:
    """Return what says that nobody wants it any more, once it was asked so often."""
    left = [times]

    def is_cancelled() -> bool:
        left[0] -= 1
        return left[0] < 0

    return is_cancelled
