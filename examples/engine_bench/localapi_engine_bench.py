#!/usr/bin/env python3
"""EngineBench as a task app of this machine, for development: the same programs and scores, without boxes.

Usage:
    python examples/engine_bench/localapi_engine_bench.py --port 8030
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from context import stage

from graftline.harbor import LocalAPIConfig, create_local_api
from graftline.harbor.contract import RolloutRequest, RolloutResponse, TaskInfo
from graftline.harbor.engine_bench.environment import EngineBenchEnvironment

AGENT = os.environ.get("ENGINE_BENCH_AGENT", "codex")


@cache
def environment() -> EngineBenchEnvironment:
    """Return the cards; they are staged when the first of them is asked for."""
    folder = Path(tempfile.mkdtemp(prefix="engine-bench-"))
    return EngineBenchEnvironment(stage(folder, AGENT), target=folder / "target")


def provide_taskset_description() -> dict[str, Any]:
    """Return what all cards have in common."""
    return environment().provide_taskset_description()


def provide_task_instances(seeds: Sequence[int]) -> list[TaskInfo]:
    """Return the card of every seed."""
    return environment().provide_task_instances(seeds)


def run_rollout(request: RolloutRequest, fastapi_request: Any = None) -> RolloutResponse:
    """Run one rollout here."""
    return environment().run_rollout(request, fastapi_request)


def main() -> None:
    """Serve the task app."""
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8030)
    args = parser.parse_args()

    config = LocalAPIConfig(
        app_id="engine_bench",
        name="EngineBench - Trading Card Implementation",
        description="EngineBench evaluates coding agents on trading card implementations in Rust.",
        provide_taskset_description=provide_taskset_description,
        provide_task_instances=provide_task_instances,
        rollout=run_rollout,
    )
    uvicorn.run(create_local_api(config), host=args.host, port=args.port)


if __name__ == "__main__":
    main()
