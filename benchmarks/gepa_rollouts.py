"""How many rollouts a minute an optimization evaluates, of what the bare actor pool answers of the same chats.

The optimization is the one of users: `gepa`, a journal on disk, the refactoring environment with its sandbox and grading, the
offline proposer; each attempt is one step, so that a rollout is one chat. Every chat that it has the model asked is kept, and
asked again of the pool alone, in the same order, as many at a time: that is the bare rate. Both take turns, after an
optimization that warms the server up and does not count, and what is said is the median over the turns.

* `rollouts_per_minute`, `chats_per_minute`: of the optimization, from its first rollout to its end, and of the pool;
* `of_bare`: the one of the other;
* `twice`: pairs of prompt and task that were paid twice.

The server has to be running, or is started for the time of the measurement where a model is in `data/models`:

    python -m benchmarks.gepa_rollouts [--url http://127.0.0.1:8011] [--quick]
"""

import argparse
import asyncio
import json
import operator
import os
import socket
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from graftline.astgrep.action import PatternAction
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets
from graftline.harbor.environments.policy import ServedModel
from graftline.harbor.environments.refactoring import RefactoringEnvironment
from graftline.harbor.task_app_client import create_task_app_client
from graftline.llm.base import ChatAnswer, ChatModel, ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Actor, Fleet, PoolSettings, load_fleet
from graftline.llm.pool import ActorPool
from graftline.llm.servers.processes import down, up
from graftline.llm.weights.fetch import fetch_model
from graftline.prompts.journal import FileJournal
from graftline.prompts.optimize import optimize
from graftline.prompts.proposers import OfflineProposer
from graftline.prompts.settings import PromptLearningConfig
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.actions.memory import MemorySandbox

FLEET = "smoke"
_SLOTS = 4
_WAIT_S = 120.0


@dataclass(frozen=True)
class Sizes:
    """How much is asked."""

    train: int
    validation: int
    generations: int
    turns: int


FULL = Sizes(train=48, validation=24, generations=6, turns=3)
QUICK = Sizes(train=8, validation=8, generations=1, turns=1)


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="of a server that runs already")
    parser.add_argument("--quick", action="store_true", help="few rollouts: shows that it runs, not how fast")
    given = parser.parse_args()
    figures = measure(QUICK if given.quick else FULL, given.url)
    print(json.dumps({"name": "gepa_rollouts", "figures": figures, "machine": machine()}))


def measure(sizes: Sizes = FULL, url: str = "") -> dict[str, Any]:
    """Return the figures; `url` is of a server that runs already."""
    rates, bare_rates = list[float](), list[float]()
    with _served(url) as fleet, tempfile.TemporaryDirectory() as folder:
        _optimized(fleet, sizes, Path(folder, "warm-up"))
        for turn in range(sizes.turns):
            optimized, chats = _optimized(fleet, sizes, Path(folder, str(turn)))
            rates.append(60 * len(chats) / optimized["seconds"])
            bare_rates.append(60 * len(chats) / asyncio.run(_bare(fleet, chats)))
    rate, bare_rate = statistics.median(rates), statistics.median(bare_rates)
    return {
        "rollouts": optimized["rollouts"],
        "chats": len(chats),
        "twice": optimized["twice"],
        "rollouts_per_minute": round(rate, 1),
        "chats_per_minute": round(bare_rate, 1),
        "of_bare": round(statistics.median(map(operator.truediv, rates, bare_rates)), 3),
        "load": round(os.getloadavg()[0], 1),
    }


class _Kept:
    """A chat model that keeps what it is asked."""

    def __init__(self, model: ChatModel) -> None:
        self._model, self.requests, self.began = model, list[ChatRequest](), 0.0

    @property
    def name(self) -> str:
        return self._model.name

    async def generate(self, request: ChatRequest) -> ChatAnswer:
        self.began = self.began or time.perf_counter()
        self.requests.append(request)
        return await self._model.generate(request)

    async def close(self) -> None:
        await self._model.close()


def _optimized(fleet: Fleet, sizes: Sizes, folder: Path) -> tuple[dict[str, Any], list[ChatRequest]]:
    kept, prompt = _Kept(_pool(fleet)), load_prompt(CHECKOUT / "configs", "small")
    journal = FileJournal(folder / "journal.jsonl")
    seeds = range(sizes.train + sizes.validation)
    config = PromptLearningConfig.from_mapping(
        {
            "initial_prompt": {"messages": [{"role": "system", "pattern": prompt.settings.system}]},
            "policy": {"config": {"teacher": "openai", "max_steps": 1, "max_tokens": 48, "temperature": 0.0}},
            "gepa": {
                "proposer_type": "offline",
                # as many at a time as keep every slot busy, and one more waiting for each
                "rollout": {"max_concurrent": 2 * _SLOTS, "minibatch_size": 2 * _SLOTS},
                "evaluation": {"train_seeds": [*seeds][: sizes.train], "validation_seeds": [*seeds][sizes.train :]},
                "population": {"num_generations": sizes.generations, "children_per_generation": 4},
            },
        }
    )
    with BlockingChatModel(kept) as model:
        environment = RefactoringEnvironment(
            [_task(number) for number in seeds],
            MemorySandbox(),
            models={"policy": ServedModel(model, prompt, fleet.context_tokens)},
            collecting=RolloutConfig(max_steps=1),
        )
        outcome = optimize(
            config, create_task_app_client(environment.task_app()), OfflineProposer(), journal, "benchmark"
        )
        seconds = time.perf_counter() - kept.began
    pairs = Counter((line["candidate"], line["seed"]) for line in journal.lines() if line["kind"] == "rollout")
    twice = sum(times > 1 for times in pairs.values())
    return {"seconds": seconds, "rollouts": outcome.rollouts, "twice": twice}, kept.requests


async def _bare(fleet: Fleet, chats: list[ChatRequest]) -> float:
    """Return how long the pool alone takes for the same chats."""
    pool, left = _pool(fleet), iter(chats)

    async def asker() -> None:
        for chat in left:
            await pool.generate(chat)

    began = time.perf_counter()
    await asyncio.gather(*(asker() for _ in range(2 * _SLOTS)))
    seconds = time.perf_counter() - began
    await pool.close()
    return seconds


def _pool(fleet: Fleet) -> ActorPool:
    return ActorPool(fleet, None, PoolSettings())


@contextmanager
def _served(url: str) -> Iterator[Fleet]:
    """Give a fleet of one server: that at `url`, or one of this machine for as long as the block runs."""
    known = load_fleet(CHECKOUT / "configs", FLEET)
    address = url or f"http://127.0.0.1:{_free_port()}"
    fleet = known.model_copy(update={"actors": (Actor(name="measured", url=address, slots=_SLOTS),)})
    if url:
        yield fleet
        return
    weights = fetch_model(known.model, Paths(CHECKOUT), os.environ)
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(Path(folder))
        up(paths, FLEET, fleet, str(weights), os.environ, Secrets([]), _WAIT_S)
        try:
            yield fleet
        finally:
            down(paths, FLEET)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _task(number: int) -> Task:
    old, new = f"load_{number}", f"read_{number}"
    return Task(
        id=f"t{number:04}",
        dataset="benchmark",
        language="python",
        instruction=f"Rename the function `{old}` to `{new}`.",
        before=f"x = {old}(path)\ny = {old}(other, {number})\n",
        target=f"x = {new}(path)\ny = {new}(other, {number})\n",
        gold_action=PatternAction(pattern=f"{old}($$$ARGS)", rewrite=f"{new}($$$ARGS)"),
        license="MIT",
        group=f"g{number}",
        origin="benchmark",
    )


if __name__ == "__main__":
    main()
