"""The stages from a dataset's home to splits: `raw`, `normalized`, `division`, `splits`, `label_tasks`."""

import logging
import os
from collections import Counter
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graftline.actions.astgrep import LANGUAGES, Language
from graftline.building import Built, Contents, Request
from graftline.datasets.catalogue import Dataset
from graftline.datasets.decontaminate import Evaluations, evaluation_files, evaluations, texts_in
from graftline.datasets.division import Split
from graftline.datasets.edit import Label
from graftline.datasets.normalize import Plan, normalize
from graftline.datasets.raw_rows import keep_wanted, number_of_rows
from graftline.datasets.sources import source_of
from graftline.datasets.split import write_division, write_split
from graftline.downloads.download import Fetched
from graftline.errors import DataError, RecordError
from graftline.hashing import digest, sha256_file
from graftline.jsonl import read_lines, write_lines
from graftline.record import DatasetRecord, Record
from graftline.runtime.settings import stage_code
from graftline.runtime.stages import Stages, identities
from graftline.tasks.open_task import OpenTask, open_task_of
from graftline.tokens import TokenizerName
from graftline.workers import default_workers

logger = logging.getLogger(__name__)
decontamination = logging.getLogger("graftline.decontamination")  # the command shows its warnings without -v

_INLINE_BYTES = 4 << 20  # starting workers takes as long as so much raw text


class DatasetStages(Stages):
    """The stages of datasets over one root folder."""

    _is_warned = False

    def raw(self, name: str) -> Built:
        """Fetch the files of the dataset called `name`, unchanged."""
        dataset = self.dataset(name)
        revision = self.ports.dataset_hub.revision(name, dataset)
        what = dataset.model_dump(
            mode="json", include={"home", "version", "license", "files", "follow", "keep", "packages"}
        )
        request = Request("raw", name, stage_code("raw", dataset.reader), {"home": revision}, what)
        folder = self.paths.raw(name)
        # what reads the files fetches them; to say that they are unchanged takes their record alone
        return self.build(folder, request, lambda partial: self._fetch(name, dataset, revision, partial), False)

    def normalized(self, name: str) -> Built:
        """Turn the rows of the dataset called `name` into edits, labels and counted drops."""
        dataset = self.dataset(name)
        raw = self.verified(self.paths.raw(name), "raw")
        config = {
            "reader": dataset.reader,
            "cleaning": self.catalogue.cleaning.model_dump(mode="json"),
            "decontamination": self.catalogue.decontamination.model_dump(mode="json"),
            "evaluation_files": {self.paths.relative(path): sha256_file(path) for path in self._evaluation_files()},
            "tools": tool_versions(self.catalogue.cleaning.tokenizer),
            **dataset.model_dump(mode="json", include={"licences", "columns"}),
        }
        records = self._evaluation_records()
        if not records and not config["evaluation_files"]:
            self._warn_of_no_evaluation()
        inputs = {"raw": raw, **records}
        code = stage_code("normalized", dataset.reader)
        request = Request("normalized", name, code, identities(inputs), config)
        make = partial(self._normalize, name, dataset, raw)
        return self.build(self.paths.normalized(name), request, make)

    def division(self) -> Built:
        """Decide which edits are kept once, and in which split each is, over all datasets together."""
        inputs = {name: self.verified(self.paths.normalized(name), "normalized") for name in self.catalogue.sources}
        config = {
            "splitting": self.catalogue.splitting.model_dump(mode="json"),
            "languages": list(self.catalogue.languages),
            "precedence": list(inputs),
        }
        request = Request("division", "all", stage_code("division"), identities(inputs), config)
        folders = {name: self.paths.normalized(name) for name in inputs}
        return self.build(
            self.paths.division,
            request,
            lambda folder: Contents(
                write_division(folders, self.catalogue.languages, self.catalogue.splitting, folder)
            ),
        )

    def splits(self, language: Language, split: Split) -> Built:
        """Write the edits of one language and split."""
        folder = self.paths.division
        division = self.verified(folder, "division")
        inputs = {"division": self.part_of(folder, division, f"{language}.parquet")}
        folders = {name: self.paths.normalized(name) for name in self.catalogue.sources}
        records = {name: self.verified(normalized, "normalized") for name, normalized in folders.items()}
        if division.inputs != identities(records):
            # its rows are those of the normalised files in their order, and would be taken for those of others
            raise RecordError(f"{folder}: was made from other normalised edits; materialise its asset again")
        for name, record in records.items():
            if names := [file for file in record.files if file.startswith(f"{language}-")]:
                inputs[f"normalized/{name}"] = self.part_of(folders[name], record, *sorted(names))
        config = {"tokenizer": self.catalogue.cleaning.tokenizer}
        request = Request("splits", f"{language}/{split}", stage_code("splits"), inputs, config)
        return self.build(
            self.paths.partition("processed", language, split),
            request,
            lambda partial: Contents(write_split(folder, folders, language, split, partial)),
        )

    def label_tasks(self) -> Built:
        """Make tasks without gold of the labels of all datasets."""
        folders = {name: self.paths.normalized(name) for name in self.catalogue.sources}
        inputs = {}
        for name, folder in folders.items():
            record = self.verified(folder, "normalized")
            if "labels.jsonl" in record.files:
                inputs[f"normalized/{name}"] = self.part_of(folder, record, "labels.jsonl")
        config = {"languages": list(self.catalogue.languages), "precedence": list(inputs)}
        request = Request("label_tasks", "all", stage_code("label_tasks"), inputs, config)

        def make(target: Path) -> Contents:
            tasks: dict[str, OpenTask] = {}
            labels = 0
            for name in inputs:
                for label in read_lines(folders[name.partition("/")[2]] / "labels.jsonl", Label):
                    labels += 1
                    if label.language in self.catalogue.languages:
                        tasks.setdefault(label.id, open_task_of(label))
            for language in LANGUAGES:
                of_language = [task for task in tasks.values() if task.language == language]
                if of_language:
                    write_lines(target / f"{language}.jsonl", of_language)
            return Contents({"rows_in": labels, "rows": len(tasks)})

        return self.build(self.paths.label_tasks, request, make)

    def _fetch(self, name: str, dataset: Dataset, revision: str, folder: Path) -> Contents:
        hub, max_line_bytes = self.ports.dataset_hub, self.catalogue.cleaning.max_line_bytes
        files = hub.files(name, dataset)
        old = self._still_good(name, revision) if dataset.keep == "all" else None
        fetched: list[Fetched] = []
        counts: Counter[str] = Counter()
        for file in files:
            target = folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if dataset.keep == "wanted":
                one, of_file = keep_wanted(hub, name, dataset, file, target, max_line_bytes)
                counts.update(of_file)
            else:
                if old is not None and not target.exists() and file.path in old.files:
                    # the home holds what it held: only the code changed
                    with suppress(OSError):  # where there are no links, it is fetched
                        os.link(self.paths.raw(name) / file.path, target)
                one = hub.fetch(name, dataset, file, target, self.advance)
            fetched.append(one)
        is_upstream = all(file.is_upstream for file in fetched)
        sums = sorted(file.sha256 for file in fetched)
        version = revision if dataset.follow else dataset.version
        if dataset.keep == "all":
            counts["rows_in"] = counts["rows"] = number_of_rows(folder, dataset, max_line_bytes)
        contract = {
            "source": name,
            # what a mirror holds may go by the names of the revision without being it
            "version": version if is_upstream else f"{version}+mirror.{digest(sums)[:12]}",
            "license": dataset.license,
            "downloaded_at": self.clock().isoformat(),
            "sha256": sums[0] if len(sums) == 1 else digest(sums),
            "num_records": counts.pop("rows_in"),
        }
        return Contents({"rows": counts.pop("rows"), "files": len(files), **dict(sorted(counts.items()))}, contract)

    def _still_good(self, name: str, revision: str) -> Record | None:
        """Return the record of the raw files, if they are those of `revision`."""
        try:
            record = self.verified(self.paths.raw(name), "raw")
        except RecordError:
            return None
        return record if record.inputs.get("home") == revision else None

    def _normalize(self, name: str, dataset: Dataset, raw: Record, folder: Path) -> Contents:
        for left in folder.iterdir():  # by a killed run; with another order of units it would not be replaced
            left.unlink()
        source = source_of(dataset.reader)
        cleaning = self.catalogue.cleaning
        plan = Plan(name, dataset, cleaning, self.catalogue.decontamination, self._evaluations(), folder)
        size = sum(file.size_bytes for file in raw.files.values())
        cores = default_workers()
        workers = cores if size > _INLINE_BYTES and cores > 1 else 0
        rows = source.rows(self.paths.raw(name), dataset, cleaning.max_line_bytes)
        done = normalize(rows, plan, workers, self.advance)
        for file, line, reason, detail in done.first_drops:
            path = self.paths.relative(self.paths.raw(name) / file)
            logger.warning("%s: line %d: %s: %s", path, line, reason, detail)
        contract: dict[str, Any] = raw.contract() if isinstance(raw, DatasetRecord) else {}
        return Contents(done.counts, {**contract, "licences": done.licences, "tokenizer": cleaning.tokenizer})

    def _warn_of_no_evaluation(self) -> None:
        """Say once for these stages that no edit is kept away from any evaluation."""
        if not self._is_warned:
            self._is_warned = True
            decontamination.warning(
                "no evaluation is in use, so edits are kept away from none; add one to `use` of configs/datasets.yaml, or"
                " put its file into %s",
                self.paths.relative(self.paths.evaluations),
            )

    def _evaluation_records(self) -> dict[str, Record]:
        used = {name: dataset for name, dataset in self.catalogue.used.items() if dataset.is_evaluation}
        return {f"evaluation/{name}": self.verified(self.paths.raw(name), "raw") for name in used}

    def _evaluation_files(self) -> list[Path]:
        folder = self.paths.evaluations
        found = evaluation_files(folder)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.is_file() and path not in found and not path.name.startswith(".") and path.suffix != ".md":
                raise DataError(f"{path}: cannot be read as an evaluation; expected .jsonl, .jsonl.gz or .parquet")
        return found

    def _evaluations(self) -> Evaluations:
        folders = [self.paths.raw(name.partition("/")[2]) for name in self._evaluation_records()]
        files = [*(path for folder in folders for path in evaluation_files(folder)), *self._evaluation_files()]
        return evaluations(text for path in files for text in texts_in(path))


_TOOLS = (
    *("tree-sitter", "tree-sitter-java", "tree-sitter-javascript", "tree-sitter-python", "tree-sitter-typescript"),
    *("rensa", "xxhash"),
)


def tool_versions(tokenizer: TokenizerName) -> dict[str, str]:
    """Return the versions of what decides whether a text parses, how long it is, and what it is like."""
    tools = _TOOLS if tokenizer == "characters/4" else (*_TOOLS, "bpe-openai")
    return {tool: version(tool) for tool in tools}


def raw_record(stages: Stages, name: str) -> DatasetRecord:
    """Return the record of the raw files of the dataset called `name`."""
    folder = stages.paths.raw(name)
    record = stages.record(folder)
    if not isinstance(record, DatasetRecord):
        raise RecordError(f"{folder}: holds {record.kind!r}, but a dataset was asked for")
    return record
