"""The stages from edits to Parquet, each a stored artefact that is made only when something changed.

The Dagster assets and `graftline run` call these methods; nothing here knows who calls. The stages before, from a
dataset's home to splits, are in `graftline.runtime.dataset_stages`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from graftline.actions.astgrep import Language, tool_version
from graftline.clock import Clock, utc_now
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.jsonl import read_lines, write_lines
from graftline.parquet import write_parquet
from graftline.paths import Paths
from graftline.record import Built, Contents, Record, Request
from graftline.runtime.dataset_stages import DatasetStages
from graftline.runtime.manifests import Manifest
from graftline.runtime.ports import open_ports
from graftline.runtime.run_log import RunLog
from graftline.runtime.settings import load_settings, stage_code
from graftline.runtime.stages import identities
from graftline.tasks.task import Task, sound_tasks
from graftline.trajectories.collect import attempt, collect_many, times_file
from graftline.trajectories.export import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.trajectories.step import Trajectory, tally
from graftline.trajectories.workers import Attempts, worker_attempts
from graftline.workers import default_workers


class Lineage(DatasetStages):
    """All stages over one root folder; made by `open_lineage`."""

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
        """Let the teacher attempt the tasks of one language and split."""
        source = self.paths.partition("tasks", language, split)
        teacher = self.ports.teacher
        config = {
            "collecting": self.settings.trajectories.collecting.model_dump(mode="json"),
            "teacher": teacher.name,
            "isolation": f"{self.ports.sandbox.isolation.level}/{self.ports.sandbox.isolation.implementation}",
            **self._rewriter,
        }
        request = self._request(
            "teacher_trajectories", f"{language}/{split}", {"tasks": self.verified(source, "tasks")}, config
        )

        def make(folder: Path) -> Contents:
            tasks = list(read_lines(source / "tasks.jsonl", Task))
            trajectories = []
            times = times_file(self.paths.logs, language, split)
            for trajectory in collect_many(tasks, self._attempts, folder, times):
                trajectories.append(trajectory)
                self.advance(len(trajectories), len(tasks))
            write_lines(folder / "trajectories.jsonl", trajectories)
            return Contents(tally(trajectories))

        return self.build(self.paths.partition("trajectories/raw", language, split), request, make)

    def trajectories(self, language: Language, split: Split) -> Built:
        """Write the trajectories of one language and split as Parquet, with their rewards as columns."""
        source = self.paths.partition("trajectories/raw", language, split)
        inputs = {"teacher_trajectories": self.verified(source, "teacher_trajectories")}
        request = self._request("trajectories", f"{language}/{split}", inputs, {})

        def make(folder: Path) -> Contents:
            trajectories = list(read_lines(source / "trajectories.jsonl", Trajectory))
            steps = step_rows(trajectories, split)
            write_parquet(folder / "steps.parquet", steps, STEPS)
            write_parquet(folder / "trajectories.parquet", trajectory_rows(trajectories, split), TRAJECTORIES)
            return Contents({**tally(trajectories), "steps": len(steps)})

        return self.build(self.paths.partition("trajectories/parquet", language, split), request, make)

    @cached_property
    def _attempts(self) -> Attempts:
        settings = self.settings.trajectories
        workers = settings.workers or default_workers()
        if workers == 1:
            teacher, sandbox = self.ports.teacher, self.ports.sandbox
            return lambda tasks: (attempt(task, teacher, sandbox, settings.collecting) for task in tasks)
        opened = worker_attempts(workers, self.manifest.sandbox, self.manifest.teacher, settings.collecting)
        return self.open_until_end.enter_context(opened)

    @property
    def _rewriter(self) -> dict[str, Any]:
        """What the outcome of an action depends on beside the action."""
        return {"ast_grep": tool_version(), "sandbox": self.manifest.sandbox.model_dump(mode="json")}

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
