"""The stages from a dataset's home to Parquet, each a stored artefact that is made only when something changed.

The Dagster assets and `graftline run` call these methods; nothing here knows who calls. A stage reads its inputs
through their records, so that what it makes is tied to exactly those files.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from pydantic import BaseModel

from graftline.actions.astgrep import Language, tool_version
from graftline.clock import Clock, utc_now
from graftline.datasets.catalogue import Catalogue, Dataset
from graftline.datasets.edit import Edit
from graftline.datasets.ingest import Row, number_of_lines, rows
from graftline.datasets.sources import READERS
from graftline.datasets.split import SPLITS, Division, Split, divide
from graftline.datasets.synthetic import synthesize
from graftline.datasets.tables import DROPS, EDITS, drop_rows, edit_rows
from graftline.datasets.tokens import TOKENIZER
from graftline.errors import ConfigError, RecordError
from graftline.hashing import digest, sha256_file
from graftline.jsonl import read_lines, write_lines
from graftline.parquet import write_parquet
from graftline.paths import Paths
from graftline.record import Built, Contents, Record, Request, build, load_record, verified
from graftline.runtime.manifests import Manifest
from graftline.runtime.ports import Ports, open_ports
from graftline.runtime.run_log import RunLog
from graftline.runtime.settings import Settings, load_settings, stage_code
from graftline.tasks.task import Task, sound_tasks
from graftline.trajectories.collect import attempt, collect_many
from graftline.trajectories.export import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.trajectories.step import Trajectory, tally
from graftline.trajectories.workers import Attempts, default_workers, worker_attempts

logger = logging.getLogger(__name__)

_MAX_LOGGED_DROPS = 20  # all of them are in dropped.parquet

Advance = Callable[[int, int], None]
"""Called with the number done and the number there are."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass
class Lineage:
    """The stages over one root folder; made by `open_lineage`."""

    paths: Paths
    settings: Settings
    manifest: Manifest
    ports: Ports
    run_log: RunLog
    open_until_end: ExitStack
    clock: Clock = utc_now
    advance: Advance = lambda done, total: None
    _division: tuple[str, Division] | None = field(default=None, repr=False)
    _read: dict[str, Path] = field(default_factory=dict, repr=False)

    @cached_property
    def catalogue(self) -> Catalogue:
        return self.settings.catalogue

    def raw(self, name: str) -> Built:
        """Fetch the files of the dataset called `name`, unchanged."""
        dataset = self._dataset(name)
        request = Request(
            "raw",
            name,
            stage_code("raw"),
            inputs={"home": self.ports.dataset_hub.revision(dataset)},
            config=dataset.model_dump(mode="json", exclude={"reader"}),
        )
        return self.build(self.paths.raw(name), request, lambda folder: self._fetch(name, dataset, folder))

    def normalized(self, name: str) -> Built:
        """Turn the rows of the dataset called `name` into edits and counted drops."""
        dataset = self._dataset(name)
        raw = self.verified(self.paths.raw(name), "raw")
        config = {"reader": dataset.reader, "cleaning": self.catalogue.cleaning.model_dump(mode="json")}
        request = self._request("normalized", name, {"raw": raw}, config)
        return self.build(self.paths.normalized(name), request, lambda folder: self._normalize(name, folder))

    def splits(self, language: Language, split: Split) -> Built:
        """Write the edits of one language and split; the division is made over all datasets together."""
        inputs = {
            name: self.verified(self.paths.normalized(name), "normalized") for name in sorted(self.catalogue.datasets)
        }
        config = {
            "splitting": self.catalogue.splitting.model_dump(mode="json"),
            "tokenizer": TOKENIZER,
            "counts_duplicates": (language, split) == self.partitions()[0],
        }
        request = self._request("splits", f"{language}/{split}", inputs, config)
        folder = self.paths.partition("processed", language, split)
        return self.build(folder, request, lambda partial: self._split(inputs, language, split, partial))

    def synthetic_rules(self, language: Language, split: Split) -> Built:
        """Make synthetic edits, each with its gold action, on the snippets of one language and split."""
        source = self.paths.partition("processed", language, split)
        synthesis = self.catalogue.synthesis
        request = self._request(
            "synthetic_rules", f"{language}/{split}", {"splits": self.verified(source, "splits")},
            {"synthesis": synthesis.model_dump(mode="json"), **self._rewriter},
        )  # fmt: skip

        def make(folder: Path) -> Contents:
            edits = list(read_lines(source / "edits.jsonl", Edit))
            made: list[Edit] = []
            for edit in synthesize(edits, language, synthesis.per_partition, synthesis.seed, self.ports.sandbox):
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
            soundness = sound_tasks(self._counted(edits), self.ports.sandbox)
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
            for trajectory in collect_many(tasks, self._attempts, folder):
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

    def build(self, folder: Path, request: Request, make: Callable[[Path], Contents]) -> Built:
        """Return the artefact of `request` in `folder` (see `record.build`), and log what became of it."""
        started = monotonic()
        built = build(folder, request, lambda partial: self._undisturbed(request, make(partial)), self.clock)
        self.run_log.append(request.kind, request.name, built.reason, monotonic() - started)
        return built

    def _undisturbed(self, request: Request, contents: Contents) -> Contents:
        """Return `contents` if what they were made from is still what the request names.

        Raises:
            RecordError: another run replaced an input in between.
        """
        for name, identity in request.inputs.items():
            folder = self._read.get(identity)
            if folder is not None and load_record(folder).identity != identity:
                raise RecordError(f"{request.kind} {request.name}: {name} was replaced while it was read; run again")
        return contents

    def verified(self, folder: Path, kind: str) -> Record:
        """Return the record of an input (see `record.verified`), and remember where it was read from."""
        record = verified(folder, kind)
        self._read[record.identity] = folder
        return record

    def partitions(self) -> list[tuple[Language, Split]]:
        """Return every language and split, in order."""
        return [(language, split) for language in self.catalogue.languages for split in SPLITS]

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

    def _dataset(self, name: str) -> Dataset:
        if name not in self.catalogue.datasets:
            raise ConfigError(f"dataset {name!r} is unknown; known: {', '.join(sorted(self.catalogue.datasets))}")
        return self.catalogue.datasets[name]

    def _request(self, stage: str, name: str, inputs: Mapping[str, Record], config: Mapping[str, Any]) -> Request:
        identities = {key: record.identity for key, record in inputs.items()}
        return Request(stage, name, stage_code(stage), identities, config)

    def _fetch(self, name: str, dataset: Dataset, folder: Path) -> Contents:
        for file in dataset.files:
            target = folder / Path(file.path).name
            self.ports.dataset_hub.fetch(dataset, file, target)
        sums = [sha256_file(folder / Path(file.path).name) for file in dataset.files]
        number = number_of_lines(folder, self.catalogue.cleaning)
        contract = {
            "source": name,
            "version": dataset.version,
            "license": dataset.license,
            "downloaded_at": self.clock().isoformat(),
            "sha256": sums[0] if len(sums) == 1 else digest(sorted(sums)),
            "num_records": number,
        }
        return Contents({"rows": number, "files": len(dataset.files)}, contract)

    def _normalize(self, name: str, folder: Path) -> Contents:
        dataset = self.catalogue.datasets[name]
        edits: list[Edit] = []
        dropped: list[Row] = []
        for row in rows(self.paths.raw(name), READERS[dataset.reader], self.catalogue.cleaning):
            if isinstance(row.outcome, Edit):
                edits.append(row.outcome)
            else:
                dropped.append(row)
                if len(dropped) <= _MAX_LOGGED_DROPS:
                    logger.warning("%s: line %d: %s", self._source(name, row.file), row.line, row.outcome)
            self.advance(len(edits) + len(dropped), 0)
        write_lines(folder / "edits.jsonl", edits)
        found = drop_rows(name, dropped)
        write_parquet(folder / "dropped.parquet", found, DROPS)
        reasons = Counter(drop["reason"] for drop in found)
        counts = {f"dropped.{reason}": count for reason, count in sorted(reasons.items())}
        return Contents({"rows_in": len(edits) + len(dropped), "rows": len(edits), **counts})

    def _source(self, name: str, file: str) -> str:
        return self.paths.relative(self.paths.raw(name) / file)

    def _split(self, inputs: Mapping[str, Record], language: Language, split: Split, folder: Path) -> Contents:
        division = self._divided(inputs)
        edits = division.splits.get((language, split), [])
        write_lines(folder / "edits.jsonl", edits)
        write_parquet(folder / "edits.parquet", edit_rows(edits, split), EDITS)
        # duplicates are counted once for the whole division, with the first partition
        first = (language, split) == self.partitions()[0]
        return Contents({"rows": len(edits), **({"dropped.duplicate": division.duplicates} if first else {})})

    def _divided(self, inputs: Mapping[str, Record]) -> Division:
        key = digest({name: record.identity for name, record in inputs.items()})
        if self._division is None or self._division[0] != key:
            edits = (edit for name in inputs for edit in read_lines(self.paths.normalized(name) / "edits.jsonl", Edit))
            self._division = key, divide(edits, self.catalogue.splitting)
        return self._division[1]

    def _counted(self, items: Sequence[ModelT]) -> Iterator[ModelT]:
        for number, item in enumerate(items, 1):
            yield item
            self.advance(number, len(items))


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
