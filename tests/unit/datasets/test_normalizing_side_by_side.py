"""Normalizing in several processes: the same bytes with any number of them, and nothing in place when one dies."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.errors import BoundaryError, DataError
from graftline.core.record import load_record
from graftline.datasets.catalog import Cleaning
from graftline.datasets.decontaminate import evaluations
from graftline.datasets.normalize import CHUNK_BYTES
from graftline.datasets.readers.base import RawRow
from tests.processes import children_with
from tests.unit.datasets.fixtures import dataset
from tests.unit.datasets.shards import change, written

EXTENSIONS = ("py", "js", "java")
CONTRACT = {
    "source": "demo",
    "version": "1",
    "license": "MIT",
    "downloaded_at": "2026-01-02T03:04:05+00:00",
    "sha256": "a" * 64,
    "num_records": 2,
    "licenses": {},
    "tokenizer": "characters/4",
}


FILLER = b" " * CHUNK_BYTES  # one drop, which ends a unit
EXAM = "\n".join(f"assert solve({number}) == {number * 17}" for number in range(20))


def rows() -> Iterator[dict[str, Any] | bytes]:
    """Yield four units of rows in three languages, some broken, some near the exam."""
    for unit in range(4):
        for number in range(60):
            name = f"f{unit}_{number}"
            file = f"{name}.{EXTENSIONS[number % 3]}"
            sides = {"old_contents": f"{name}(1);", "new_contents": f"{name}(2);"}
            match number % 10:
                case 3:
                    yield b'{"commit": '
                case 6:
                    yield change(name, old_contents=EXAM)
                case _:
                    yield change(name, old_file=file, new_file=file, **sides)
        yield FILLER


def test_any_number_of_workers_writes_the_same_bytes_and_says_the_same(tmp_path: Path) -> None:
    outputs = []
    for workers in (0, 1, 3):
        folder = tmp_path / str(workers) / "demo"
        against = evaluations([("exam.jsonl:1", EXAM)])
        done = written(folder, rows(), workers, Cleaning(), against=against)
        outputs.append((done, {path.name: path.read_bytes() for path in sorted(folder.iterdir())}))
    assert [names for _, names in outputs[1:]] == [outputs[0][1]] * 2
    assert [done for done, _ in outputs[1:]] == [outputs[0][0]] * 2
    done, names = outputs[0]
    # of 60 rows 6 are broken and 6 near the exam, and the two of Java's that are left
    assert done.counts == {
        "rows_in": 4 * 61,
        "rows": 4 * 48,
        "labels": 0,
        "dropped.contaminated": 4 * 6,
        "dropped.malformed_json": 4 * 7,
    }
    units = {name.partition(".")[0] for name in names if name != "dropped.parquet"}
    assert units == {f"{language}-0000{unit}" for language in ("python", "javascript", "java") for unit in range(4)}


def test_labels_stand_in_the_order_of_the_rows_with_any_number_of_workers(tmp_path: Path) -> None:
    pair = {
        "type": "Rename Method",
        "commit_sha": "c0ffee",
        "commit_link": "https://github.com/demo/demo/commit/c0ffee",
        "file_path": "A.java",
        "description": "Rename Method private f() : int renamed to private g() : int in class demo.A",
        "code_before": "int f() { return 1; }",
        "code_after": "int g() { return 1; }",
        "evaluations": [{"vote": 0}, {"vote": 1}],
    }
    labels = []
    for workers in (0, 2):
        pairs = [RawRow("MaRV.json", number, {**pair, "refactoring_id": number}) for number in range(90)]
        units = [*pairs[:30], FILLER, *pairs[30:60], FILLER, *pairs[60:]]
        written(tmp_path / str(workers), units, workers, entry=dataset("marv"))
        lines = (tmp_path / str(workers) / "labels.jsonl").read_bytes().splitlines()
        labels.append([json.loads(line)["origin"].rpartition("#")[2] for line in lines])
    assert labels[0] == labels[1] == [str(number) for number in range(90)]


def dying() -> Iterator[dict[str, Any] | bytes]:
    """Yield rows, and end the workers when they have some."""
    for number, row in enumerate(rows()):
        if number == 150:
            for child in children_with("spawn_main"):
                child.kill()
        yield row


def test_a_worker_that_dies_is_an_error_and_nothing_is_put_in_place(tmp_path: Path) -> None:
    request, target = Request("normalized", "demo", "c0de"), tmp_path / "normalized"

    def made(given: Iterable[dict[str, Any] | bytes], workers: int, folder: Path) -> Contents:
        for path in folder.iterdir():
            path.unlink()
        return Contents(written(folder, given, workers).counts, CONTRACT)

    with pytest.raises(BoundaryError, match="a worker process ended; start again, with fewer workers"):
        build(target, request, partial(made, dying(), 1))
    assert not target.exists()
    built = build(target, request, partial(made, rows(), 0))
    assert (load_record(target).counts["rows_in"], built.reason) == (4 * 61, "not there yet")
    assert [path.name for path in tmp_path.iterdir()] == ["normalized"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_raw_file_of_another_shape_ends_the_work_with_what_is_wrong(tmp_path: Path, workers: int) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield change("a")
        raise DataError("a.parquet: has no column 'commit'; found: sha")

    with pytest.raises(DataError, match="has no column 'commit'"):
        written(tmp_path / "demo", broken(), workers)
