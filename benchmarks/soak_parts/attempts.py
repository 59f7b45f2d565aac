"""Attempts that the workers of the queue make with a small language model, and what has to be stored of them in the end.

What the model says cannot be known beforehand, but what it is worth can: its actions are applied once more, undisturbed and
in this process, and have to come to the same reward.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence, Set
from contextlib import ExitStack
from typing import Any

from benchmarks.soak_parts.site import WORKERS_MANIFEST, Site
from graftline.core.errors import QueueError
from graftline.core.hashing import digest
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.ports import Ports
from graftline.pipeline.settings import attempt_settings, load_settings
from graftline.pipeline.worker_loop import spool
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.collect_many import AttemptJob
from graftline.rollouts.queue.base import Depth, JobQueue
from graftline.rollouts.reward import SAYS_NOTHING
from graftline.rollouts.shards import read_shards, sealed_shards
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import InvalidAnswer, NoProposal, Proposal, Turn
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox
from tests.harbor_lineage import task

_MOST_WAITING, _PAUSE_S = 3, 0.5
_FIRST_TASK = 10_000  # others than those of the deployment
_SAID = 100


class Replay:
    """The teacher that says again what was said in a trajectory."""

    uses_feedback = True

    def __init__(self, trajectory: Trajectory) -> None:
        self.name, self._steps = trajectory.teacher, trajectory.steps

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | InvalidAnswer | NoProposal:
        if len(turns) >= len(self._steps):
            return NoProposal("no_more")
        said = self._steps[len(turns)].model_output
        if said.action is None:
            assert said.generation is not None  # only a model gives an answer that cannot be read
            return InvalidAnswer(said.think, said.generation)
        return Proposal(said.think, said.action, said.state_update, generation=said.generation)


class Attempts:
    """Puts assignments into the queue, as many as keep the workers busy, until it is told to stop."""

    def __init__(self, site: Site, stack: ExitStack) -> None:
        self._site = site
        manifest, settings = load_manifest(site.paths, WORKERS_MANIFEST), load_settings(site.paths)
        self.collecting = settings.trajectories.collecting
        with ExitStack() as opened:  # a sandbox that is kept open is processes that would be taken for left behind
            ports = Ports(manifest, site.paths, opened)
            self._teacher = ports.teacher.name
            self._made_by = digest(attempt_settings(site.paths, manifest, settings, ports))
        self._queue: JobQueue = Ports(manifest, site.paths, stack).queue
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attempts", daemon=True)
        self.accepted: dict[str, Task] = {}
        """By key of the job: what the queue said that it has taken in."""
        self.unreachable = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def halt(self) -> None:
        """Ask for no more."""
        self._is_over.set()

    def stop(self, within_s: float) -> Depth:
        """Put no more, and wait so long until every job has ended; return what the queue has then."""
        self._is_over.set()
        self._thread.join()
        deadline = time.monotonic() + within_s
        while True:
            depth = self._queue.depth()
            if (not depth.waiting and not depth.in_flight) or time.monotonic() > deadline:
                return depth
            time.sleep(_PAUSE_S)

    def stored(self) -> list[Trajectory]:
        """Return every attempt in the shards of the workers, those that stand there twice included."""
        return [*read_shards(sealed_shards(spool(self._site.paths, "python", "train", self._teacher)))]

    def dead(self) -> dict[str, str]:
        """Return why jobs became dead letters, by key."""
        return {letter.job.key: letter.reason for letter in self._queue.dead()}

    def _run(self) -> None:
        for number in itertools.count(_FIRST_TASK):
            assignment = AttemptJob(task=task(number), split="train", teacher=self._teacher, made_by=self._made_by)
            while not self._is_over.is_set():
                try:
                    depth = self._queue.depth()
                    if depth.waiting < _MOST_WAITING and self._queue.put([assignment.job()]):
                        self.accepted[assignment.key] = assignment.task
                        break
                except QueueError:
                    # whether it was taken in is not known: it is put again, under its key
                    self.unreachable += 1
                self._is_over.wait(_PAUSE_S)
            if self._is_over.is_set():
                return


def judged(load: Attempts, depth: Depth) -> tuple[dict[str, Any], list[str]]:
    """Return figures of the attempts, and everything about them that is not as it has to be."""
    stored, dead = load.stored(), load.dead()
    times = Counter(one.key for one in stored)
    latest = {one.key: one for one in stored}
    faults = lost(load.accepted.keys(), latest.keys() | dead.keys(), depth)
    faults += [f"job {key}: is a dead letter: {reason[:_SAID]}" for key, reason in dead.items()]
    # one may have been put when the answer of the queue was lost at the very end
    strangers = latest.keys() - load.accepted.keys()
    faults += [f"attempt {key}: nobody asked for it" for key in sorted(strangers)[1:]]
    for key, one in latest.items():
        if (known := load.accepted.get(key)) is not None:
            faults += [f"attempt {key}: {fault}" for fault in faults_of(one, known, load.collecting)]
    figures = {
        "accepted": len(load.accepted),
        "stored": len(latest),
        "still_queued": depth.waiting + depth.in_flight,
        "dead_letters": len(dead),
        "made_again_after_a_kill": sum(times.values()) - len(times),
        "levels": dict(Counter(str(one.level) for one in latest.values())),
        "without_reward": sum(one.reward.value is None for one in latest.values()),
        "calls_without_queue": load.unreachable,
    }
    return figures, faults


def lost(accepted: Set[str], ended: Set[str], depth: Depth) -> list[str]:
    """Return what is wrong with jobs of which nothing came; the queue does not say which ones it still holds."""
    missing = accepted - ended
    left = depth.waiting + depth.in_flight
    return [f"{len(missing)} jobs have no attempt, and the queue holds {left}"] if missing else []


def faults_of(stored: Trajectory, known: Task, collecting: RolloutConfig) -> list[str]:
    """Return what is wrong with the reward of an attempt at a task."""
    verdicts = {step.sandbox_result.verdict for step in stored.steps if step.sandbox_result is not None}
    if verdicts & SAYS_NOTHING or stored.ending in SAYS_NOTHING:
        return [] if stored.reward.value is None else ["says nothing, and has a reward all the same"]
    again = collect(known, Replay(stored), MemorySandbox(), collecting, stored.attempt, stored.made_by)
    if (again.reward, again.level, again.ending) != (stored.reward, stored.level, stored.ending):
        return [
            f"is {stored.reward.value} ({stored.ending}), and what was said is worth {again.reward.value} ({again.ending})"
        ]
    return []
