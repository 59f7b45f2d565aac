"""The stage `trajectories`: the attempts of all teachers as Parquet."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents, Request
from graftline.core.errors import RecordError
from graftline.core.hashing import digest
from graftline.core.jsonl import read_lines, write_lines
from graftline.core.parquet import write_parquet
from graftline.core.processes import default_workers
from graftline.core.record import ArtifactRecord, load_verified
from graftline.datasets.splits import Split
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import attempt_settings, has_examples
from graftline.rollouts.collect import collect
from graftline.rollouts.collect_many import Attempts, collect_many, times_folder, worker_attempts
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.rollouts.queue.base import Job
from graftline.rollouts.shards import current_attempts, latest_by_key, link_shards, read_shards, sealed_shards
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory, attempt_key, tally


def trajectories(lineage: Lineage, language: Language, split: Split) -> Built:
    """Write the trajectories of all teachers at the tasks of one language and split as Parquet."""
    source = lineage.paths.partition("tasks", language, split)
    folders = _find_teacher_folders(lineage, language, split)
    records = {f"teacher_trajectories.{name}": folders[name] for name in folders}
    inputs = {name: lineage.read_input(folder, "teacher_trajectories") for name, folder in records.items()}
    inputs["tasks"] = lineage.read_input(source, "tasks")
    request = request_of("trajectories", f"{language}/{split}", inputs, {})

    def make(partial: Path) -> Contents:
        tasks = list(read_lines(source / "tasks.jsonl", Task))
        shards = (shard for folder in folders.values() for shard in sealed_shards(folder))
        chosen = current_attempts(read_shards(shards), tasks)
        steps = step_rows(chosen.attempts, split)
        write_parquet(partial / "steps.parquet", steps, STEPS)
        write_parquet(partial / "trajectories.parquet", trajectory_rows(chosen.attempts, split), TRAJECTORIES)
        return Contents({**tally(chosen.attempts), "steps": len(steps), **chosen.left_out})

    return lineage.build(lineage.paths.partition("trajectories/parquet", language, split), request, make)


def _find_teacher_folders(lineage: Lineage, language: Language, split: Split) -> dict[str, Path]:
    """Return the folder of every teacher that attempted these tasks, by name."""
    if folders := {path.name: path for path in lineage.teacher_folders(language, split)}:
        return folders
    folder = lineage.paths.partition("trajectories/raw", language, split)
    raise RecordError(
        f"{folder}: has no _meta.json, so it was not made yet; run `graftline run`, or materialize its asset"
    )


def teacher_trajectories(lineage: Lineage, language: Language, split: Split) -> Built:
    """Let the teacher attempt the tasks of one language and split; earlier attempts, and other teachers', stay."""
    source, teacher = lineage.paths.partition("tasks", language, split), lineage.ports.teacher
    folder = lineage.paths.attempts(language, split, teacher.name)
    request, made_by = _attempts_request(lineage, language, split)
    if lineage.feed is not None:
        lineage.feed.begin((language, split))

    def make(target: Path) -> Contents:
        tasks = list(read_lines(source / "tasks.jsonl", Task))
        record = _find_record(folder, "teacher_trajectories")
        earlier = link_shards(folder, target) if record else []
        known_attempts = latest_by_key(read_shards(earlier))
        if teacher.uses_feedback:
            current = _sample(lineage, language, split, made_by, tasks, known_attempts)
        else:
            # another code may come to something else at all of them
            is_same_code = record is not None and record.code_version == request.code_version
            times = times_folder(lineage.paths.logs, language, split) / f"{folder.name}.jsonl"
            current = _compute(lineage, tasks, made_by, known_attempts if is_same_code else {}, target, times)
        added = [trajectory for trajectory in current if known_attempts.get(trajectory.key) != trajectory]
        if added or not earlier:
            write_lines(target / f"shard-{len(earlier) + 1:05}.jsonl", added)
        return Contents(tally(current))

    return lineage.build(folder, request, make)


def feed_workers(lineage: Lineage) -> None:
    """Put the attempts of all partitions into the queue of workers as soon as the first one waits for its own.

    To be called once the tasks of all are made. Nothing changes where attempts are made in this process.
    """
    if lineage.ports.teacher.uses_feedback and lineage.manifest.queue.kind != "memory":
        from graftline.pipeline.attempts import JobFeed  # as in `_sample`

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
    from graftline.pipeline.attempts import Partition, load_stored_attempts, missing  # as in `_sample`

    folder = lineage.paths.attempts(language, split, lineage.ports.teacher.name)
    request, made_by = _attempts_request(lineage, language, split)
    record = lineage._find_record(folder)
    if record is not None:
        if not request.difference(record):
            return []
        lineage.pull(folder)
    partition = Partition(language, split, lineage.ports.teacher, made_by)
    tasks = list(read_lines(lineage.paths.partition("tasks", language, split) / "tasks.jsonl", Task))
    known_attempts = latest_by_key(read_shards(sealed_shards(folder))) | load_stored_attempts(lineage.paths, partition)
    return [
        assignment.job()
        for assignment in missing(tasks, partition, lineage.settings.trajectories.asking, known_attempts)
    ]


def _sample(
    lineage: Lineage,
    language: Language,
    split: Split,
    made_by: str,
    tasks: Sequence[Task],
    known_attempts: Mapping[str, Trajectory],
) -> list[Trajectory]:
    """Let a teacher that asks a language model attempt what is missing, here or by workers of the queue."""
    # loads all that asking takes, which is much, for whoever only wants to know the assets
    from graftline.pipeline.attempts import Partition, ask

    partition = Partition(language, split, lineage.ports.teacher, made_by)
    settings = lineage.settings.trajectories
    queue = lineage.manifest.queue
    return ask(
        tasks, partition, known_attempts, settings, queue, lineage.ports, lineage.paths, lineage.advance, lineage.feed
    )


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
    computed = {}
    for trajectory in collect_many(todo, _attempts(lineage, made_by), folder, times):
        computed[trajectory.key] = trajectory
        lineage.advance(len(computed), len(todo))
    return [computed[key] if key in computed else known_attempts[key] for key in keys]


def _attempts(lineage: Lineage, made_by: str) -> Attempts:
    """Return what makes attempts that say by which settings they were made."""
    attempts = lineage.once("attempt_workers", lambda: _workers(lineage))
    return lambda tasks: (attempt.model_copy(update={"made_by": made_by}) for attempt in attempts(tasks))


def _workers(lineage: Lineage) -> Attempts:
    """Return what makes attempts, in processes that live as long as the lineage is open."""
    settings = lineage.settings.trajectories
    workers = settings.workers or default_workers()
    if workers == 1:
        teacher, sandbox = lineage.ports.teacher, lineage.ports.sandbox
        return lambda tasks: (collect(task, teacher, sandbox, settings.collecting) for task in tasks)
    opened = worker_attempts(workers, lineage.manifest.sandbox, lineage.manifest.teacher, settings.collecting)
    return lineage.open_until_end.enter_context(opened)


def _find_record(folder: Path, kind: str) -> ArtifactRecord | None:
    """Return the record of an artifact that is whole; None where there is none."""
    try:
        return load_verified(folder, kind)
    except RecordError:
        return None
