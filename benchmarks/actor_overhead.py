"""What the loop of an actor adds to the wall time of a real model's server.

The loop makes one attempt of one step at each task: state, prompt, answer, sandbox, critic, grade, shard. What it asked
stands in its trajectories, and is asked again by a plain `httpx` client that does nothing else, with as many requests in
flight as the server has slots. Both take turns, after one pass of the loop that warms up; chats are greedy, so that a pass
has the same answers as the one before it but for the rounding of batches.

* `overhead_percent`: of the loop over the bare client, medians of the passes; `per_token_percent` is the same with wall
  time divided by the tokens that were written;
* `loop_s`, `bare_s`: seconds of each pass.

The server has to be running, and nothing else: server and client share the cores of this machine.

    graftline model serve --fleet embedded
    python -m benchmarks.actor_overhead [--fleet embedded] [--rounds 3] [--tasks 13] [--quick]
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from benchmarks.teacher_tasks import QUALITY_TASKS
from graftline.core.paths import Paths
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.client import encode_chat
from graftline.llm.fleet import Fleet, load_fleet
from graftline.llm.pool import ActorPool
from graftline.pipeline.attempts import Partition, load_stored_attempts, make_here, missing
from graftline.pipeline.settings import SamplingConfig, TrajectorySettings
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.queue.base import MemoryQueueConfig
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Generation
from graftline.rollouts.teachers.openai import OpenAITeacher, chat_request
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.sandbox import Sandbox, WarmSandboxConfig, open_sandbox

TASKS = tuple(task.task for task in QUALITY_TASKS if task.language == "python")
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all tasks."""

    seconds: float
    tokens: int
    """Written by the model."""

    @property
    def per_token(self) -> float:
        return self.seconds / self.tokens


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", default="embedded", help="a fleet of configs/vllm_actors.yaml that is up")
    parser.add_argument("--prompt", default="small", help="a prompt of configs/teacher_prompts.yaml")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="the first so many")
    parser.add_argument("--quick", action="store_true", help="one round of four: shows that it runs, not what it costs")
    arguments = parser.parse_args()
    fleet = load_fleet(CHECKOUT / "configs", arguments.fleet)
    prompt = load_prompt(CHECKOUT / "configs", arguments.prompt)
    rounds, tasks = (1, 4) if arguments.quick else (arguments.rounds, arguments.tasks)
    figures = measure(fleet, prompt, rounds, TASKS[:tasks])
    print(json.dumps({"name": "actor_overhead", "figures": figures, "peers": {}, "machine": machine()}))


def measure(fleet: Fleet, prompt: Prompt, rounds: int, tasks: Sequence[Task] = TASKS) -> dict[str, Any]:
    """Return the figures of the claim."""
    loops, bares = list[Pass](), list[Pass]()
    with BlockingChatModel(ActorPool(fleet, None)) as model, tempfile.TemporaryDirectory() as folder:
        sandbox = open_sandbox(WarmSandboxConfig(workers=1))
        try:
            teacher = OpenAITeacher(model, prompt, fleet.context_tokens)
            _, asked = _loop(tasks, teacher, sandbox, fleet, Paths(Path(folder, "warm")))
            requests = [chat_request(prompt.settings, one.messages, one.temperature, one.seed) for one in asked]
            bodies = [encode_chat(one, fleet.called, one.seed) for one in requests]
            for number in range(rounds):
                bares.append(asyncio.run(_bare(bodies, fleet)))
                loops.append(_loop(tasks, teacher, sandbox, fleet, Paths(Path(folder, str(number))))[0])
        finally:
            sandbox.close()
    return {
        "model": fleet.called,
        "requests": len(bodies),
        "in_flight": _slots(fleet),
        "overhead_percent": _percent_over([one.seconds for one in loops], [one.seconds for one in bares]),
        "per_token_percent": _percent_over([one.per_token for one in loops], [one.per_token for one in bares]),
        "loop_s": [round(one.seconds, 2) for one in loops],
        "bare_s": [round(one.seconds, 2) for one in bares],
        "tokens": {"loop": [one.tokens for one in loops], "bare": [one.tokens for one in bares]},
        "load": round(os.getloadavg()[0], 1),
    }


def _loop(
    tasks: Sequence[Task], teacher: OpenAITeacher, sandbox: Sandbox, fleet: Fleet, paths: Paths
) -> tuple[Pass, list[Generation]]:
    partition = Partition("python", "train", teacher, "benchmark")
    # as many again as there are slots are graded or written while the others are asked
    asking = SamplingConfig(at_once=2 * _slots(fleet))
    settings = TrajectorySettings(collecting=RolloutConfig(max_steps=1), asking=asking)
    began = time.perf_counter()
    assignments = missing(tasks, partition, asking, {})
    make_here(assignments, partition, settings, MemoryQueueConfig(), sandbox, paths, lambda done, of: None)
    seconds = time.perf_counter() - began
    steps = [step for trajectory in load_stored_attempts(paths, partition).values() for step in trajectory.steps]
    asked = [step.model_output.generation for step in steps if step.model_output.generation is not None]
    assert len(asked) == len(tasks)
    return Pass(seconds, sum(one.completion_tokens for one in asked)), asked


async def _bare(bodies: Sequence[bytes], fleet: Fleet) -> Pass:
    waiting, tokens = [*reversed(bodies)], 0

    async def ask(client: httpx.AsyncClient) -> None:
        nonlocal tokens
        while waiting:
            answer = await client.post("/v1/chat/completions", content=waiting.pop())
            answer.raise_for_status()
            tokens += orjson.loads(answer.content)["usage"]["completion_tokens"]

    headers = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(base_url=fleet.actors[0].url, headers=headers, timeout=_TIMEOUT_S) as client:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_slots(fleet)):
                group.create_task(ask(client))
        return Pass(time.perf_counter() - began, tokens)


def _slots(fleet: Fleet) -> int:
    [actor] = fleet.actors
    return actor.slots


def _percent_over(loops: Sequence[float], bares: Sequence[float]) -> float:
    return round(100 * (statistics.median(loops) / statistics.median(bares) - 1), 1)


if __name__ == "__main__":
    main()
