"""An attempt of four steps by a model that answers by what it reads and its seed, made by jobs of a queue below a root.

`python -m tests.resumed_attempts ROOT NUMBER` makes it in a process that ends by SIGKILL at the request of this number.
"""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from graftline.core.hashing import digest
from graftline.core.metrics import Metrics
from graftline.core.paths import Paths
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel
from graftline.pipeline.worker_loop import AttemptMaker, Spent, Store, open_states, spool
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.collect_many import AttemptJob
from graftline.rollouts.queue.base import MemoryQueueConfig
from graftline.rollouts.queue.memory import MemoryJobQueue
from graftline.rollouts.queue.worker import JobOutcome, StopRequest, WorkerSettings, run_worker
from graftline.rollouts.shards import read_shards, sealed_shards
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.openai import OpenAITeacher
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
TASK = Task(
    id="d:1",
    dataset="d",
    language="python",
    instruction="Rename all of them.",
    before="old(1)\ng(2)\nk(3)\n",
    target="x(1)\ny(2)\nz(3)\n",
    license="MIT",
    group="g",
    origin="o",
)
ACTIONS = {"old(1)": ("old($A)", "x($A)"), "g(2)": ("g($A)", "y($A)"), "k(3)": ("k($A)", "z($A)")}
"""What is done to the first of these that is still there; the second one after an action that fails."""
_FAILING = ("nowhere($A)", "y($A)")


class Attempts:
    """Makes the attempt below `root`; the model calls `before` with the number of every request before it answers."""

    def __init__(self, root: Path, before: Callable[[int], None] = lambda number: None) -> None:
        self._root, self._before = root, before
        self.requests: list[ChatRequest] = []
        self.spent = Spent()

    def make(self, made_by: str = "settings", code_version: str = "code", max_tries: int = 5) -> Counter[JobOutcome]:
        """Return how the deliveries of the one job ended."""

        async def answer(request: ChatRequest) -> str:
            self.requests.append(request)
            self._before(len(self.requests))
            asked = request.messages[-1].content
            call = next(call for call in ACTIONS if call in asked)
            is_new = call == "g(2)" and "Nothing in the text matches" not in asked
            pattern, rewrite = _FAILING if is_new else ACTIONS[call]
            read = digest([[message.model_dump() for message in request.messages], request.temperature, request.seed])
            return json.dumps(
                {
                    "think": read,
                    "action": {"pattern": pattern, "rewrite": rewrite},
                    "state_update": {"history": [f"changed {pattern}"]},
                }
            )

        with ExitStack() as stack:
            model = stack.enter_context(BlockingChatModel(MemoryChatModel(answer)))
            teacher = OpenAITeacher(model, load_prompt(CONFIGS, "small"), 8192)
            queue = MemoryJobQueue(MemoryQueueConfig(retry_s=0.0, max_tries=max_tries))
            stack.callback(queue.close)
            store = stack.enter_context(Store(Paths(self._root), "worker"))
            states = open_states(Paths(self._root), stack)
            maker = AttemptMaker(
                queue, teacher, MemorySandbox(), RolloutConfig(), states, store, Metrics(), made_by, code_version
            )
            self.spent = maker.spent
            assignment = AttemptJob(task=TASK, split="train", teacher=teacher.name, made_by=made_by)
            queue.put([assignment.job()])
            return run_worker(queue, maker, WorkerSettings(concurrency=1, until_empty=True), StopRequest(), "worker")

    def stored(self) -> list[Trajectory]:
        """Return the trajectories that were stored."""
        folder = spool(Paths(self._root), "python", "train", "openai/memory")
        return [*read_shards(sealed_shards(folder))]


def _kill_at(number: int) -> Callable[[int], None]:
    return lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == number else None


if __name__ == "__main__":
    Attempts(Path(sys.argv[1]), _kill_at(int(sys.argv[2]))).make()
