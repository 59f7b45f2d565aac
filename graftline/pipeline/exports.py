"""Files for training, made of the attempts that count: `graftline data export`."""

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graftline.astgrep.binding import Language
from graftline.core.clock import Clock, utc_now
from graftline.core.errors import RecordError
from graftline.core.hashing import code_version, sha256_file
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, ArtifactRecord, FileSum, load_record, load_verified, write_atomically
from graftline.datasets.splits import Split
from graftline.pipeline.teacher_terms import select_trainable, teachers_without_training
from graftline.rollouts.exports.atif import atif
from graftline.rollouts.exports.chats import dpo_rows, rl_rows, sft_rows, srl_rows
from graftline.rollouts.shards import current_attempts, read_shards, sealed_shards
from graftline.rollouts.task import Instructions, Task, select_for_agents
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.rollouts.trajectory import Trajectory

KIND = "export"
_SUFFIX = ".meta.json"
Rows = Callable[[Iterable[Trajectory], Prompt], Iterator[dict[str, Any]]]

FORMATS: Mapping[str, Rows] = {
    "sft": sft_rows,
    "dpo": dpo_rows,
    "rl": rl_rows,
    "srl": srl_rows,
    "atif": lambda trajectories, prompt: map(atif, trajectories),
}


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written."""

    file: Path
    rows: int
    attempts: int
    """Attempts they were made from."""
    left_out: Mapping[str, int]
    """Attempts that no row is made of, by reason: those at tasks that are not for whoever is told what to do, and those that may not be
    trained on."""


def export(
    paths: Paths,
    format: str,
    target: Path,
    prompt: str,
    split: Split = "train",
    languages: Collection[Language] | None = None,
    teachers: Iterable[str] | None = None,
    instructions: Instructions = "answerable",
    clock: Clock = utc_now,
) -> ExportResult:
    """Write the attempts of one split to `target`, a JSON object per line, whole or not at all, and its record beside it.

    Of the `languages` and `teachers` that are named alone, of all where those are None; none of a teacher whose answers may
    not be trained on, but for `atif`, which is for reading. `format` is one of `FORMATS`, and
    `prompt` the one of `configs/teacher_prompts.yaml` that chats are made by. `instructions` says at which tasks.
    """
    chosen_languages = None if languages is None else sorted(set(languages))
    chosen_teachers = None if teachers is None else sorted(set(teachers))
    prompt_of_chats = load_prompt(paths.configs, prompt)
    inputs = _inputs(paths, split, chosen_languages)
    stored = (
        attempt
        for attempt in read_stored_attempts(paths, split, chosen_languages)
        if chosen_teachers is None or attempt.teacher in chosen_teachers
    )
    left_out = Counter[str]()
    chosen = select_for_agents(stored, instructions, left_out)
    if format != "atif":
        chosen = select_trainable(chosen, teachers_without_training(paths.configs), left_out)
    if _inputs(paths, split, chosen_languages) != inputs:
        raise RecordError(f"{target.name}: attempts of split {split!r} were replaced while they were read; run again")
    licenses = Counter[str]()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8", newline="") as stream:
            for row in FORMATS[format](chosen, prompt_of_chats):
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                licenses[str(row.get("license", ""))] += 1
            stream.flush()
            os.fsync(stream.fileno())
        # a file without a record is seen for what it is; one beside the record of another file would not be
        record_path(target).unlink(missing_ok=True)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    rows = licenses.total()
    config = {
        "format": format, "split": split, "languages": chosen_languages, "teachers": chosen_teachers,
        "prompt": {"name": prompt, "digest": prompt_of_chats.digest()}, "instructions": instructions,
    }  # fmt: skip
    counts = {f"license.{license}": count for license, count in sorted(licenses.items()) if license}
    record = ArtifactRecord(
        kind=KIND,
        name=target.name,
        inputs=inputs,
        config=config,
        code_version=code_version("graftline.pipeline.exports"),
        files={target.name: _sum(target)},
        counts={"rows": rows, "attempts": len(chosen), **left_out, **counts},
        written_at=clock().isoformat(),
    ).with_identity()
    write_atomically(record_path(target), record.model_dump_json(indent=2) + "\n")
    return ExportResult(target, rows, len(chosen), dict(left_out))


def _inputs(paths: Paths, split: Split, languages: Collection[Language] | None) -> dict[str, str]:
    """Return the identities of what an export is made of, by the names that `sft_dataset` calls its inputs by."""
    inputs = {}
    for folder in _folders(paths, split, languages):
        language = folder.parent.name
        tasks = load_record(paths.partition("tasks", language, split))
        inputs[f"tasks.{language}.{split}"] = tasks.identity
        for path in sorted(folder.glob(f"[!.]*/{RECORD_NAME}")):
            name = f"teacher_trajectories.{language}.{split}.{path.parent.name}"
            inputs[name] = load_record(path.parent).identity
    return inputs


def _folders(paths: Paths, split: Split, languages: Collection[Language] | None) -> list[Path]:
    folders = sorted((paths.data / "trajectories" / "raw").glob(f"*/{split}"))
    return [folder for folder in folders if languages is None or folder.parent.name in languages]


def read_stored_attempts(
    paths: Paths, split: Split, languages: Collection[Language] | None = None
) -> Iterator[Trajectory]:
    """Yield the attempts of one split that count, of all teachers, by language and task."""
    folders = _folders(paths, split, languages)
    if not folders:
        place = "" if languages is None else f" in {', '.join(sorted(languages))}"
        raise RecordError(
            f"{paths.data / 'trajectories' / 'raw'}: holds no attempts of split {split!r}{place};"
            " materialize `teacher_trajectories` first"
        )
    for folder in folders:
        source = paths.partition("tasks", folder.parent.name, split)
        load_verified(source, "tasks")
        shards = []
        for record in sorted(folder.glob(f"[!.]*/{RECORD_NAME}")):
            load_verified(record.parent, "teacher_trajectories")
            shards += sealed_shards(record.parent)
        tasks = [*read_lines(source / "tasks.jsonl", Task)]
        yield from current_attempts(read_shards(shards), tasks).attempts


def record_path(file: Path) -> Path:
    """Return where the record of an exported file is."""
    return file.with_name(file.name + _SUFFIX)


def is_export(path: Path) -> bool:
    """Return whether `path` is an exported file, or the record of one."""
    return path.name.endswith(_SUFFIX) or record_path(path).is_file()


def list_exports(folder: Path) -> list[Path]:
    """Return the exported files below `folder` that have records, whether they are still there or not."""
    return sorted(path.with_name(path.name.removesuffix(_SUFFIX)) for path in folder.rglob(f"[!.]*{_SUFFIX}"))


def read_export_record(file: Path) -> ArtifactRecord:
    """Return the record of an exported file, without looking at the file."""
    path = record_path(file)
    try:
        record = ArtifactRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise RecordError(
            f"{file}: has no record {path.name} beside it; write it again by `graftline data export`"
        ) from None
    except (ValidationError, OSError) as error:
        cause = str(error).partition("\n")[0]
        raise RecordError(f"{path}: is not a record ({cause}); export the file again") from None
    if record.kind != KIND or record.identity != record.compute_identity():
        raise RecordError(f"{path}: is not the record of an export, or was altered; export the file again")
    return record


def find_export_fault(file: Path, record: ArtifactRecord) -> str:
    """Return what is wrong with an exported file; empty where it is what its record says."""
    if not file.is_file():
        return "is missing"
    return "" if record.files.get(file.name) == _sum(file) else "was altered after it was written"


def _sum(file: Path) -> FileSum:
    return FileSum(sha256=sha256_file(file), size_bytes=file.stat().st_size)
