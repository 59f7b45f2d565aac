"""Attempts of a teacher that asks a language model: many at a time, in this process or by the workers of a queue.

What was attempted before is not attempted again: it cost tokens. It stands in the shards of the workers
(`pipeline.worker_loop`), whoever they were, and whether or not the run they worked for came to its end.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from graftline.astgrep.binding import Language
from graftline.core.errors import ActorError, ConfigError, GraftlineError
from graftline.core.hashing import digest
from graftline.core.metrics import Metrics
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_record
from graftline.datasets.splits import Split
from graftline.llm.fleet import load_fleet
from graftline.llm.open import ActorsConfig
from graftline.pipeline.exports import read_stored_attempts
from graftline.pipeline.lineage import Advance, Lineage
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.settings import Budget, SamplingConfig, TrajectorySettings, stage_code
from graftline.pipeline.worker_loop import AttemptMaker, Spent, Store, WorkMetrics, open_states, spool
from graftline.rollouts.collect_many import AttemptJob
from graftline.rollouts.queue.base import Job, JobQueue, MemoryQueueConfig
from graftline.rollouts.queue.memory import MemoryJobQueue
from graftline.rollouts.queue.worker import StopRequest, WorkerSettings, run_worker, worker_name
from graftline.rollouts.shards import latest_by_key, read_shards, sealed_shards
from graftline.rollouts.task import Task, select_for_agents
from graftline.rollouts.teachers.base import Teacher
from graftline.rollouts.teachers.examples import Examples, VerifiedStep
from graftline.rollouts.teachers.prompt import Shot
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.base import Sandbox

logger = logging.getLogger(__name__)

_LOOK_S = 2.0
_REMIND_S = 60.0

Place = tuple[Language, Split]


class JobFeed:
    """The jobs of `places`, in their order; those of one place are in memory at a time.

    Where prompts show examples, which are verified steps of the training split of the same language, the other splits of a
    language wait until that one is made: their prompts are what they are in a run of one partition after the other.
    """

    def __init__(
        self, places: Sequence[Place], jobs_of: Callable[[Language, Split], Sequence[Job]], has_examples: bool
    ) -> None:
        self._pending, self._jobs_of, self._has_examples = [*places], jobs_of, has_examples
        self._begun: list[Place] = []
        self._waiting: list[Job] = []

    def begin(self, place: Place) -> None:
        """Leave the jobs of `place` to its stage, which begins now; those that began before are made."""
        self._begun.append(place)
        if place in self._pending:
            self._pending.remove(place)

    def put(self, queue: JobQueue) -> None:
        """Put as many jobs as there are, and as there is room for."""
        while True:
            if self._waiting:
                self._waiting = self._waiting[queue.put(self._waiting) :]
            if self._waiting:
                return  # the queue is full
            place = next(filter(self._is_ready, self._pending), None)
            if place is None:
                return
            self._pending.remove(place)
            try:
                self._waiting = [*self._jobs_of(*place)]
            except GraftlineError as error:  # its own stage ends with it
                logger.warning("%s/%s: its attempts wait for their stage: %s", *place, error)

    def _is_ready(self, place: Place) -> bool:
        language, split = place
        return not self._has_examples or split == "train" or (language, "train") in self._begun[:-1]


@dataclass(frozen=True, slots=True)
class Partition:
    """Whose tasks are attempted, and by whom."""

    language: Language
    split: Split
    teacher: Teacher
    made_by: str


def sample_attempts(
    lineage: Lineage, partition: Partition, tasks: Sequence[Task], known_attempts: Mapping[str, Trajectory]
) -> list[Trajectory]:
    """Make the attempts that are neither known nor stored, and return all there are at `tasks`, in their order.

    Where the queue is one of this process, threads of it make them; with any other, workers do.
    """
    settings, paths = lineage.settings.trajectories, lineage.paths

    def all_known() -> dict[str, Trajectory]:
        return {**known_attempts, **load_stored_attempts(paths, partition)}

    def find_missing() -> list[AttemptJob]:
        return missing(tasks, partition, settings.asking, all_known())

    assignments = find_missing()
    if assignments:
        check_price(settings.asking.budget, lineage.manifest, paths)
        refresh_examples(paths, lineage.ports.examples)
        queue = lineage.manifest.queue
        if isinstance(queue, MemoryQueueConfig):
            make_here(assignments, partition, settings, queue, lineage.ports.sandbox, paths, lineage.advance)
        else:
            wait_for_workers(assignments, lineage.ports.queue, find_missing, lineage.advance, lineage.feed)
    attempts = all_known()
    ways = (_way(task, partition, settings.asking, attempts) for task in tasks[: settings.asking.most_tasks])
    return [trajectory for made_before, _ in ways for trajectory in made_before]


def check_price(budget: Budget, manifest: Manifest, paths: Paths) -> None:
    """Refuse a budget in money where the fleet that is asked has no price: it would never be reached."""
    config = manifest.chat_model
    if budget.usd is None or not isinstance(config, ActorsConfig):
        return
    if load_fleet(paths.configs, config.fleet).price is None:
        raise ConfigError(
            f"{paths.configs / 'trajectories.yaml'}: asking.budget.usd: fleet {config.fleet!r} has no `price`, so that it would"
            " never be reached; give the fleet one, or bound `tokens` or `steps`"
        )


def load_stored_attempts(paths: Paths, partition: Partition) -> dict[str, Trajectory]:
    """Return what workers stored of `partition`, by key; attempts by other settings are among it."""
    folder = spool(paths, partition.language, partition.split, partition.teacher.name)
    return latest_by_key(read_shards(sealed_shards(folder)))


def missing(
    tasks: Sequence[Task], partition: Partition, asking: SamplingConfig, known_attempts: Mapping[str, Trajectory]
) -> list[AttemptJob]:
    """Return the next attempt at every task that has no verified one yet, nor all that it is to have."""
    ways = (_way(task, partition, asking, known_attempts) for task in tasks[: asking.most_tasks])
    return [following for _, following in ways if following is not None]


def _way(
    task: Task, partition: Partition, asking: SamplingConfig, known_attempts: Mapping[str, Trajectory]
) -> tuple[list[Trajectory], AttemptJob | None]:
    """Return the attempts at `task`, and the one that comes next."""
    following: AttemptJob | None = AttemptJob(
        task=task,
        split=partition.split,
        teacher=partition.teacher.name,
        made_by=partition.made_by,
        attempts=asking.attempts,
    )
    attempts = []
    while following is not None and following.key in known_attempts:
        attempts.append(known_attempts[following.key])
        following = None if attempts[-1].is_verified else following.next()
    return attempts, following


def make_here(
    assignments: Sequence[AttemptJob],
    partition: Partition,
    settings: TrajectorySettings,
    rules: MemoryQueueConfig,
    sandbox: Sandbox,
    paths: Paths,
    advance: Advance,
) -> None:
    """Make `assignments`, and those that follow from them, in threads of this process; they are stored then.

    `rules` say how often an attempt is tried that could not be made, and after which pause.
    """
    queue = MemoryJobQueue(rules.model_copy(update={"max_waiting": max(rules.max_waiting, len(assignments))}))
    asking, stop, done = settings.asking, StopRequest(), 0
    with ExitStack() as stack:
        stack.callback(queue.close)
        metrics = Metrics()
        store = stack.enter_context(Store(paths, worker_name()))
        states = open_states(paths, stack)

        def check_budget(spent: Spent) -> None:
            if spent.exceeds(asking.budget) and not stop.is_asked:
                logger.warning("%s/%s: the budget is spent: %s", partition.language, partition.split, spent)
                stop.ask()

        def count_ended(_outcome: str) -> None:
            nonlocal done
            done += 1
            advance(min(done, len(assignments)), len(assignments))

        make = AttemptMaker(
            queue, partition.teacher, sandbox, settings.collecting, states, store, metrics, partition.made_by,
            stage_code("teacher_trajectories"), check_budget,
        )  # fmt: skip
        queue.put([assignment.job() for assignment in assignments])
        working = WorkerSettings(concurrency=asking.at_once, until_empty=True, drain_s=600.0)
        run_worker(queue, make, working, stop, worker_name(), WorkMetrics(metrics, count_ended))
        dead = queue.dead()
    if dead:
        raise ActorError(
            f"{partition.language}/{partition.split}: attempts of {partition.teacher.name} that could not be made: {len(dead)},"
            f" the first because of {dead[0].reason}; mend it and run again, what was made is kept"
        )


def wait_for_workers(
    assignments: Sequence[AttemptJob],
    queue: JobQueue,
    is_missing: Callable[[], Sequence[AttemptJob]],
    advance: Advance,
    feed: JobFeed | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Put `assignments` into `queue`, then what `feed` has, and wait until workers made all that `is_missing` says is left."""
    waiting = [assignment.job() for assignment in assignments]
    reminded = time.monotonic()
    while True:
        waiting = waiting[queue.put(waiting) :] if waiting else []
        if feed is not None and not waiting:
            feed.put(queue)
        remaining = is_missing()
        advance(max(0, len(assignments) - len(remaining)), len(assignments))
        if not remaining and not waiting:
            return
        dead = {letter.job.key: letter.reason for letter in queue.dead()}
        lost = [assignment for assignment in remaining if assignment.key in dead]
        if lost and len(lost) == len(remaining) and not waiting:
            raise ActorError(
                f"attempts that became dead letters: {len(lost)}, the first because of {dead[lost[0].key]}; mend it,"
                " `graftline worker retry`, and run again; what was made is kept"
            )
        if time.monotonic() - reminded > _REMIND_S:
            reminded = time.monotonic()
            logger.info(
                "attempts left: %d; the queue has %s; workers are started by `graftline worker run`",
                len(remaining),
                queue.depth(),
            )
        sleep(_LOOK_S)


def refresh_examples(paths: Paths, examples: Examples) -> bool:
    """Bring `examples` up to date with what is stored; return whether anything was to be done."""
    raw = paths.data / "trajectories" / "raw"
    folders = sorted(path.parent for path in raw.glob(f"*/train/[!.]*/{RECORD_NAME}"))
    if not folders:
        return False
    identity = digest({paths.relative(folder): load_record(folder).identity for folder in folders})
    return examples.rebuild(identity, _read_verified_steps(paths))


def _read_verified_steps(paths: Paths) -> Iterator[VerifiedStep]:
    for attempt in select_for_agents(read_stored_attempts(paths, "train"), "answerable", Counter()):
        for step in attempt.path if attempt.is_verified else ():
            output, outcome = step.model_output, step.sandbox_result
            # of a verified step
            assert output.action is not None
            assert outcome is not None
            yield VerifiedStep(
                id=f"{attempt.key}:{step.step}",
                task_id=attempt.task_id,
                group=attempt.group,
                split="train",
                shot=Shot(
                    language=attempt.language,
                    instruction=attempt.instruction,
                    code=step.prompt.text,
                    think=output.think,
                    action=output.action,
                    state_update=output.state_update,
                ),
                after=outcome.after or "",
            )
