"""The stage `trajectories`: the attempts of all teachers as Parquet."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents, Request
from graftline.core.errors import RecordError
from graftline.core.hashing import digest
from graftline.core.jsonl import read_lines, write_lines
from graftline.core.parquet import write_parquet
from graftline.core.processes import default_workers
from graftline.core.record import load_record, load_verified
from graftline.datasets.splits import Split
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import attempt_settings, has_examples
from graftline.rollouts.collect import collect
from graftline.rollouts.collect_many import Attempts, collect_many, times_folder, worker_attempts
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.rollouts.queue.base import Job
from graftline.rollouts.recorded import adopt_recorded
from graftline.rollouts.shards import current_attempts, latest_by_key, link_shards, read_shards, sealed_shards
from graftline.rollouts.task import Task, select_for_agents
from graftline.rollouts.trajectory import Trajectory, attempt_key, tally


def trajectories(lineage: Lineage, language: Language, split: Split) -> Built:
    """Write the trajectories of all teachers at the tasks of one language and split as Parquet."""
    source = lineage.paths.partition("tasks", language, split)
    folders = lineage.teacher_folders(language, split)
    if not folders:
        load_record(lineage.paths.partition("trajectories/raw", language, split))  # says how attempts are made
    inputs = {
        f"teacher_trajectories.{folder.name}": lineage.read_input(folder, "teacher_trajectories") for folder in folders
    }
    inputs["tasks"] = lineage.read_input(source, "tasks")
    request = request_of("trajectories", f"{language}/{split}", inputs, {})

    def make(partial: Path) -> Contents:
        tasks = list(read_lines(source / "tasks.jsonl", Task))
        shards = (shard for folder in folders for shard in sealed_shards(folder))
        chosen = current_attempts(read_shards(shards), tasks)
        steps = step_rows(chosen.attempts, split)
        write_parquet(partial / "steps.parquet", steps, STEPS)
        write_parquet(partial / "trajectories.parquet", trajectory_rows(chosen.attempts, split), TRAJECTORIES)
        return Contents({**tally(chosen.attempts), "steps": len(steps), **chosen.left_out})

    return lineage.build(lineage.paths.partition("trajectories/parquet", language, split), request, make)


def teacher_trajectories(lineage: Lineage, language: Language, split: Split) -> Built:
    """Let the teacher attempt the tasks of one language and split; earlier attempts, those of others, and recorded ones stay."""
    source, teacher = lineage.paths.partition("tasks", language, split), lineage.ports.teacher
    folder = lineage.paths.attempts(language, split, teacher.name)
    request, made_by = _attempts_request(lineage, language, split)
    if lineage.feed is not None:
        lineage.feed.begin((language, split))

    def make(target: Path) -> Contents:
        tasks = list(read_lines(source / "tasks.jsonl", Task))
        try:
            record = load_verified(folder, "teacher_trajectories")
        except RecordError:
            record = None
        earlier = link_shards(folder, target) if record else []
        known_attempts, left_out = latest_by_key(read_shards(earlier)), Counter[str]()
        if teacher.uses_feedback:
            # loads all that asking takes, which is much, for whoever only wants to know the assets
            from graftline.pipeline.attempts import Partition, sample_attempts

            partition = Partition(language, split, teacher, made_by)
            instructions = lineage.settings.trajectories.asking.instructions
            chosen = select_for_agents(tasks, instructions, left_out)
            current = sample_attempts(lineage, partition, chosen, known_attempts)
        else:
            # another code may come to something else at all of them
            is_same_code = record is not None and record.code_version == request.code_version
            times = times_folder(lineage.paths.logs, language, split) / f"{folder.name}.jsonl"
            current = _compute(lineage, tasks, made_by, known_attempts if is_same_code else {}, target, times)
        current = [*current, *_read_recorded(lineage, language, tasks)]
        added = [trajectory for trajectory in current if known_attempts.get(trajectory.key) != trajectory]
        if added or not earlier:
            write_lines(target / f"shard-{len(earlier) + 1:05}.jsonl", added)
        return Contents({**tally(current), **left_out})

    return lineage.build(folder, request, make)


def _read_recorded(lineage: Lineage, language: Language, tasks: Sequence[Task]) -> list[Trajectory]:
    """Return the attempts that users recorded at those of `tasks` that are made of them.

    They are no input of their own: which of them there are follows from the tasks.
    """
    names = {name for name, dataset in lineage.catalog.sources.items() if dataset.reader == "recorded"}
    own = [task for task in tasks if task.dataset in names]
    if not own:
        return []
    folders = [lineage.paths.root / str(lineage.catalog.sources[name].url) / language for name in sorted(names)]
    return adopt_recorded((row for folder in folders for row in read_shards(sealed_shards(folder))), own)


def feed_workers(lineage: Lineage) -> None:
    """Put the attempts of all partitions into the queue of workers as soon as the first one waits for its own.

    To be called once the tasks of all are made. Nothing changes where attempts are made in this process.
    """
    if lineage.ports.teacher.uses_feedback and lineage.manifest.queue.kind != "memory":
        from graftline.pipeline.attempts import JobFeed  # as in `teacher_trajectories`

        examples = has_examples(lineage.paths, lineage.manifest)
        lineage.feed = JobFeed(lineage.partitions(), partial(_missing_jobs, lineage), examples)


def _attempts_request(lineage: Lineage, language: Language, split: Split) -> tuple[Request, str]:
    """Return the request of `teacher_trajectories`, and the digest of the settings of its attempts."""
    teacher = lineage.ports.teacher
    folder = lineage.paths.attempts(language, split, teacher.name)
    config = attempt_settings(lineage.paths, lineage.manifest, lineage.settings, lineage.ports)
    made_by = digest(config)
    if teacher.uses_feedback:
        config["asking"] = lineage.settings.trajectories.asking.model_dump(mode="json", exclude={"at_once"})
    inputs = {"tasks": lineage.read_input(lineage.paths.partition("tasks", language, split), "tasks")}
    name = f"{language}/{split}/{folder.name}"
    return request_of("teacher_trajectories", name, inputs, config), made_by


def _missing_jobs(lineage: Lineage, language: Language, split: Split) -> list[Job]:
    """Return the jobs of the attempts that `teacher_trajectories` would wait for."""
    from graftline.pipeline.attempts import Partition, load_stored_attempts, missing  # as in `teacher_trajectories`

    folder = lineage.paths.attempts(language, split, lineage.ports.teacher.name)
    request, made_by = _attempts_request(lineage, language, split)
    record = lineage.find_record(folder)
    if record is not None:
        if not request.difference(record):
            return []
        lineage.pull(folder)
    partition = Partition(language, split, lineage.ports.teacher, made_by)
    tasks = list(read_lines(lineage.paths.partition("tasks", language, split) / "tasks.jsonl", Task))
    known_attempts = latest_by_key(read_shards(sealed_shards(folder))) | load_stored_attempts(lineage.paths, partition)
    asking = lineage.settings.trajectories.asking
    chosen = select_for_agents(tasks, asking.instructions, Counter())
    return [assignment.job() for assignment in missing(chosen, partition, asking, known_attempts)]


def _compute(
    lineage: Lineage,
    tasks: Sequence[Task],
    made_by: str,
    known_attempts: Mapping[str, Trajectory],
    folder: Path,
    times: Path,
) -> list[Trajectory]:
    """Let a teacher that always comes to the same attempt what is not known, in worker processes."""
    teacher = lineage.ports.teacher.name
    keys = [attempt_key(task.digest, teacher, made_by, 1) for task in tasks]
    todo = [task for task, key in zip(tasks, keys, strict=True) if key not in known_attempts]
    attempts = lineage.once("attempt_workers", lambda: _attempts(lineage))

    def say_settings(tasks: Iterable[Task]) -> Iterator[Trajectory]:
        return (attempt.model_copy(update={"made_by": made_by}) for attempt in attempts(tasks))

    computed = {}
    for trajectory in collect_many(todo, say_settings, folder, times):
        computed[trajectory.key] = trajectory
        lineage.advance(len(computed), len(todo))
    return [computed[key] if key in computed else known_attempts[key] for key in keys]


def _attempts(lineage: Lineage) -> Attempts:
    """Return what makes attempts, in processes that live as long as the lineage is open."""
    settings = lineage.settings.trajectories
    workers = settings.workers or default_workers()
    if workers == 1:
        teacher, sandbox = lineage.ports.teacher, lineage.ports.sandbox
        return lambda tasks: (collect(task, teacher, sandbox, settings.collecting) for task in tasks)
    manifest, tests = lineage.manifest, lineage.ports.jail
    opened = worker_attempts(workers, manifest.sandbox, manifest.teacher, settings.collecting, tests)
    return lineage.open_until_end.enter_context(opened)
