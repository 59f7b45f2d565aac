"""The stages from edits to Parquet, each a stored artefact that is made only when something changed.

The Dagster assets and `graftline run` call these methods; nothing here knows who calls. The stages before, from a
dataset's home to splits, are in `graftline.runtime.dataset_stages`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from graftline.actions.astgrep import Language
from graftline.building import Built, Contents, Request
from graftline.clock import Clock, utc_now
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.errors import RecordError
from graftline.hashing import digest
from graftline.jobs.base import Job
from graftline.jsonl import read_lines, write_lines
from graftline.parquet import write_parquet
from graftline.paths import Paths
from graftline.record import Record, verified
from graftline.runtime.attempt_settings import attempt_settings, has_examples, rewriter
from graftline.runtime.dataset_stages import DatasetStages
from graftline.runtime.job_feed import JobFeed
from graftline.runtime.manifests import Manifest
from graftline.runtime.ports import open_ports
from graftline.runtime.run_log import RunLog
from graftline.runtime.settings import load_settings, stage_code
from graftline.runtime.stages import identities
from graftline.tasks.task import Task, sound_tasks
from graftline.trajectories.collect import attempt
from graftline.trajectories.current import current_attempts
from graftline.trajectories.export import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.trajectories.journal import collect_many, times_folder
from graftline.trajectories.shards import latest_by_key, linked_shards, read_shards, sealed_shards
from graftline.trajectories.step import Trajectory, attempt_key, tally
from graftline.trajectories.workers import Attempts, worker_attempts
from graftline.workers import default_workers


class Lineage(DatasetStages):
    """All stages over one root folder; made by `open_lineage`."""

    feed: JobFeed | None = None
    """The attempts that a run comes to later, where workers make them."""

    def synthetic_rules(self, language: Language, split: Split) -> Built:
        """Make synthetic edits, each with its gold action, on the snippets of one language and split."""
        sources = {of: self.paths.partition("processed", of, split) for of in self.catalogue.snippets_of(language)}
        synthesis = self.catalogue.synthesis
        inputs = {
            "splits" if of == language else f"splits.{of}": self.verified(source, "splits")
            for of, source in sources.items()
        }
        config = {"synthesis": synthesis.model_dump(mode="json"), **self._rewriter}
        request = self._request("synthetic_rules", f"{language}/{split}", inputs, config)

        def make(folder: Path) -> Contents:
            edits = [edit for source in sources.values() for edit in read_lines(source / "edits.jsonl", Edit)]
            made: list[Edit] = []
            found = synthesize(
                edits, language, synthesis.per_partition, synthesis.seed, self.ports.sandbox, split,
                synthesis.per_snippet,
            )  # fmt: skip
            for edit in found:
                made.append(edit)
                self.advance(len(made), synthesis.per_partition)
            made.sort(key=lambda edit: edit.id)
            write_lines(folder / "edits.jsonl", made)
            families = Counter(tag for edit in made for tag in edit.tags if tag.startswith("template:"))
            return Contents({"rows": len(made), **{f"rows.{tag}": count for tag, count in sorted(families.items())}})

        return self.build(self.paths.partition("synthetic", language, split), request, make)

    def tasks(self, language: Language, split: Split) -> Built:
        """Keep the edits, real and synthetic, that make sound tasks."""
        folders = {stage: self.paths.partition(where, language, split) for stage, where in _TASK_SOURCES.items()}
        inputs = {stage: self.verified(folder, stage) for stage, folder in folders.items()}
        request = self._request("tasks", f"{language}/{split}", inputs, self._rewriter)

        def make(folder: Path) -> Contents:
            edits = [edit for source in folders.values() for edit in read_lines(source / "edits.jsonl", Edit)]
            soundness = sound_tasks(self.counted(edits), self.ports.sandbox)
            write_lines(folder / "tasks.jsonl", soundness.tasks)
            unsound = {f"unsound.{reason}": count for reason, count in sorted(soundness.unsound.items())}
            return Contents({"rows": len(soundness.tasks), **unsound})

        return self.build(self.paths.partition("tasks", language, split), request, make)

    def teacher_trajectories(self, language: Language, split: Split) -> Built:
        """Let the teacher attempt the tasks of one language and split; earlier attempts, and other teachers', stay."""
        source, teacher = self.paths.partition("tasks", language, split), self.ports.teacher
        folder = self.paths.attempts(language, split, teacher.name)
        request, made_by = self._attempts_request(language, split)
        if self.feed is not None:
            self.feed.begin((language, split))

        def make(partial: Path) -> Contents:
            tasks = list(read_lines(source / "tasks.jsonl", Task))
            record = self._stored(folder, "teacher_trajectories")
            earlier = linked_shards(folder, partial) if record else []
            known = latest_by_key(read_shards(earlier))
            if teacher.listens:
                current = self._asked(language, split, made_by, tasks, known)
            else:
                # another code may come to something else at all of them
                is_same_code = record is not None and record.code_version == request.code_version
                times = times_folder(self.paths.logs, language, split) / f"{folder.name}.jsonl"
                current = self._worked_out(tasks, made_by, known if is_same_code else {}, partial, times)
            added = [trajectory for trajectory in current if known.get(trajectory.key) != trajectory]
            if added or not earlier:
                write_lines(partial / f"shard-{len(earlier) + 1:05}.jsonl", added)
            return Contents(tally(current))

        return self.build(folder, request, make)

    def _attempts_request(self, language: Language, split: Split) -> tuple[Request, str]:
        """Return the request of `teacher_trajectories`, and the digest of the settings of its attempts."""
        teacher = self.ports.teacher
        folder = self.paths.attempts(language, split, teacher.name)
        config = attempt_settings(self.paths, self.manifest, self.settings, self.ports)
        made_by = digest(config)
        if teacher.listens:
            config["asking"] = self.settings.trajectories.asking.model_dump(mode="json", exclude={"at_once"})
        inputs = {"tasks": self.verified(self.paths.partition("tasks", language, split), "tasks")}
        name = f"{language}/{split}/{folder.name}"
        return self._request("teacher_trajectories", name, inputs, config), made_by

    def feed_workers(self) -> None:
        """Put the attempts of all partitions into the queue of workers as soon as the first one waits for its own.

        To be called once the tasks of all are made. Nothing changes where attempts are made in this process.
        """
        if self.ports.teacher.listens and self.manifest.queue.kind != "memory":
            examples = has_examples(self.paths, self.manifest)
            self.feed = JobFeed(self.partitions(), self._missing_jobs, examples)

    def _missing_jobs(self, language: Language, split: Split) -> list[Job]:
        """Return the jobs of the attempts that `teacher_trajectories` would wait for."""
        from graftline.runtime.asked_attempts import Partition, missing, stored  # as in `_asked`

        folder = self.paths.attempts(language, split, self.ports.teacher.name)
        request, made_by = self._attempts_request(language, split)
        record = self._known(folder)
        if record is not None:
            if not request.difference(record):
                return []
            self.bring(folder)
        partition = Partition(language, split, self.ports.teacher, made_by)
        tasks = list(read_lines(self.paths.partition("tasks", language, split) / "tasks.jsonl", Task))
        known = latest_by_key(read_shards(sealed_shards(folder))) | stored(self.paths, partition)
        return [one.job() for one in missing(tasks, partition, self.settings.trajectories.asking, known)]

    def trajectories(self, language: Language, split: Split) -> Built:
        """Write the trajectories of all teachers at the tasks of one language and split as Parquet."""
        source = self.paths.partition("tasks", language, split)
        folders = self._attempted(language, split)
        records = {f"teacher_trajectories.{name}": folders[name] for name in folders}
        inputs = {name: self.verified(folder, "teacher_trajectories") for name, folder in records.items()}
        inputs["tasks"] = self.verified(source, "tasks")
        request = self._request("trajectories", f"{language}/{split}", inputs, {})

        def make(partial: Path) -> Contents:
            tasks = list(read_lines(source / "tasks.jsonl", Task))
            shards = (shard for folder in folders.values() for shard in sealed_shards(folder))
            chosen = current_attempts(read_shards(shards), tasks)
            steps = step_rows(chosen.attempts, split)
            write_parquet(partial / "steps.parquet", steps, STEPS)
            write_parquet(partial / "trajectories.parquet", trajectory_rows(chosen.attempts, split), TRAJECTORIES)
            return Contents({**tally(chosen.attempts), "steps": len(steps), **chosen.left_out})

        return self.build(self.paths.partition("trajectories/parquet", language, split), request, make)

    def _attempted(self, language: Language, split: Split) -> dict[str, Path]:
        """Return the folder of every teacher that attempted these tasks, by name.

        Raises:
            RecordError: there is none.
        """
        if found := {path.name: path for path in self.attempted(language, split)}:
            return found
        folder = self.paths.partition("trajectories/raw", language, split)
        raise RecordError(
            f"{folder}: has no _meta.json, so it was not made yet; run `graftline run`, or materialize its asset"
        )

    def _asked(
        self, language: Language, split: Split, made_by: str, tasks: Sequence[Task], known: Mapping[str, Trajectory]
    ) -> list[Trajectory]:
        """Let a teacher that asks a language model attempt what is missing, here or by workers of the queue."""
        # loads all that asking takes, which is much, for whoever only wants to know the assets
        from graftline.runtime.asked_attempts import Partition, ask

        partition = Partition(language, split, self.ports.teacher, made_by)
        settings = self.settings.trajectories
        queue = self.manifest.queue
        return ask(tasks, partition, known, settings, queue, self.ports, self.paths, self.advance, self.feed)

    def _worked_out(
        self, tasks: Sequence[Task], made_by: str, known: Mapping[str, Trajectory], folder: Path, times: Path
    ) -> list[Trajectory]:
        """Let a teacher that always comes to the same attempt what is not known, in worker processes."""
        teacher = self.ports.teacher.name
        keys = [attempt_key(task.digest, teacher, made_by, 1) for task in tasks]
        todo = [task for task, key in zip(tasks, keys, strict=True) if key not in known]
        found = {}
        for trajectory in collect_many(todo, self._attempts(made_by), folder, times):
            found[trajectory.key] = trajectory
            self.advance(len(found), len(todo))
        return [found[key] if key in found else known[key] for key in keys]

    def _attempts(self, made_by: str) -> Attempts:
        """Return what makes attempts that say by which settings they were made."""
        attempts = self._workers
        return lambda tasks: (one.model_copy(update={"made_by": made_by}) for one in attempts(tasks))

    @cached_property
    def _workers(self) -> Attempts:
        settings = self.settings.trajectories
        workers = settings.workers or default_workers()
        if workers == 1:
            teacher, sandbox = self.ports.teacher, self.ports.sandbox
            return lambda tasks: (attempt(task, teacher, sandbox, settings.collecting) for task in tasks)
        opened = worker_attempts(workers, self.manifest.sandbox, self.manifest.teacher, settings.collecting)
        return self.open_until_end.enter_context(opened)

    def _stored(self, folder: Path, kind: str) -> Record | None:
        """Return the record of an artefact that is whole; None where there is none."""
        try:
            return verified(folder, kind)
        except RecordError:
            return None

    @property
    def _rewriter(self) -> dict[str, Any]:
        """What the outcome of an action depends on beside the action."""
        return rewriter(self.manifest)

    def _request(self, stage: str, name: str, inputs: Mapping[str, Record], config: Mapping[str, Any]) -> Request:
        return Request(stage, name, stage_code(stage), identities(inputs), config)


@contextmanager
def open_lineage(paths: Paths, manifest: Manifest, run: str, clock: Clock = utc_now) -> Iterator[Lineage]:
    """Open the ports of `manifest` for the run called `run`, and close them, and worker processes, at the end.

    Raises:
        ConfigError: a configuration file does not fit.
        BoundaryError: a port cannot be had on this machine.
    """
    settings = load_settings(paths)
    with open_ports(manifest, paths) as ports, ExitStack() as stack:
        yield Lineage(paths, settings, manifest, ports, RunLog(paths, run), stack, clock)


_TASK_SOURCES = {"splits": "processed", "synthetic_rules": "synthetic"}
