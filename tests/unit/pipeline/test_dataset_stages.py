"""The stages of datasets one by one: what they make, count, refuse and log."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DownloadError, RecordError
from graftline.core.jsonl import read_lines
from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.core.record import RawRecord
from graftline.datasets.edit import Edit
from graftline.pipeline.stages.table import make
from graftline.testing.datasets import memory_hub
from tests.lineages import NOON, Opened


def test_raw_keeps_the_bytes_and_says_where_they_come_from(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write([*varied_pairs[:2], "{broken", ""])
    with opened() as lineage:
        built = make("raw", lineage, "release_pairs")
    copy = built.folder / "release_pairs.jsonl"
    assert copy.read_bytes() == small_checkout.sample.read_bytes()
    record = built.record
    assert isinstance(record, RawRecord)
    # all the contract says has test_dataset_records.py
    assert (record.downloaded_at, record.num_records, record.counts) == (NOON, 3, {"rows": 3, "files": 1})


def test_a_file_that_is_not_the_pinned_one_stops_the_run_and_nothing_is_stored(
    opened: Opened, small_checkout: Any, reconfigure: Callable[..., None]
) -> None:
    files = [{"path": "release_pairs.jsonl", "size_bytes": 1}]
    reconfigure(small_checkout.root, "datasets.yaml", {"datasets.release_pairs.files": files})
    with opened() as lineage, pytest.raises(DownloadError, match=r"size_bytes is 0, but 1 is expected"):
        make("raw", lineage, "release_pairs")
    assert Paths(small_checkout.root).raw("release_pairs").exists() is False


def test_normalized_counts_every_row_it_leaves_out(
    opened: Opened, small_checkout: Any, pair: Mapping[str, Any], varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write(
        [
            varied_pairs[0],
            "{broken",
            {**pair, "license": "GPL-3.0-only"},
            varied_pairs[1],
            {**pair, "language": "cobol"},
            "[1]",
            {**pair, "post": pair["pre"]},
        ]
    )
    with opened() as lineage:
        make("raw", lineage, "release_pairs")
        built = make("normalized", lineage, "release_pairs")
    assert built.record.counts == {
        "rows_in": 7,
        "rows": 2,
        "labels": 0,
        "dropped.license": 1,
        "dropped.malformed_json": 2,
        "dropped.unchanged": 1,
        "dropped.unknown_language": 1,
    }
    found = [
        (row["dataset"], row["file"], row["line"], row["reason"])
        for row in read_parquet(built.folder / "dropped.parquet")
    ]
    assert found == [
        ("release_pairs", "release_pairs.jsonl", 2, "malformed_json"),
        ("release_pairs", "release_pairs.jsonl", 3, "license"),
        ("release_pairs", "release_pairs.jsonl", 5, "unknown_language"),
        ("release_pairs", "release_pairs.jsonl", 6, "malformed_json"),
        ("release_pairs", "release_pairs.jsonl", 7, "unchanged"),
    ]
    assert [edit.id for edit in read_lines(built.folder / "python-00000.jsonl", Edit)] == [
        "release_pairs:python0",
        "release_pairs:python1",
    ]


def test_the_first_drops_are_logged_with_file_and_line(
    opened: Opened, small_checkout: Any, caplog: pytest.LogCaptureFixture
) -> None:
    small_checkout.write(["[1]"] * 25)
    # whatever level a command of another test has set
    with caplog.at_level(logging.WARNING, "graftline"), opened() as lineage:
        make("raw", lineage, "release_pairs")
        counts = make("normalized", lineage, "release_pairs").record.counts
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings[0].startswith("no evaluation is in use, so edits are kept away from none; add one to `use`")
    assert (counts["dropped.malformed_json"], len(warnings[1:]), warnings[1]) == (
        25,
        20,
        "data/raw/release_pairs/source/release_pairs.jsonl: line 1: malformed_json: expected an object, found list",
    )


def test_duplicates_are_counted_in_the_division_and_are_in_no_split(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write([*varied_pairs, {**varied_pairs[0], "id": "release:again"}])
    with opened() as lineage:
        make("raw", lineage, "release_pairs")
        make("normalized", lineage, "release_pairs")
        division = make("division", lineage)
        counts = [make("splits", lineage, language, split).record.counts for language, split in lineage.partitions()]
    assert division.record.counts == {
        **{"rows_in": 10, "rows": 9, "clusters": 9, "dropped.duplicate_code": 1},
        **{"new": 9, "stayed": 0, "lost": 0},
    }
    # three packages of each language, one in each split
    assert counts == [{"rows": 1, "rows.release_pairs": 1}] * 9
    fallen = [row for row in read_parquet(division.folder / "python.parquet") if row["reason"]]
    assert fallen == [
        {
            "dataset": "release_pairs",
            "id": "release_pairs:again",
            "split": None,
            "reason": "duplicate_code",
            "kept_id": "release_pairs:python0",
            "cluster": fallen[0]["cluster"],
        }
    ]


def test_the_rows_of_a_split_are_there_as_parquet_too(made: Path) -> None:
    folder = Paths(made).partition("processed", "python", "train")
    [edit], [row] = list(read_lines(folder / "edits.jsonl", Edit)), read_parquet(folder / "edits.parquet")
    assert row == {
        "id": edit.id,
        "dataset": "release_pairs",
        "language": "python",
        "split": "train",
        "instruction": edit.instruction,
        "pre": edit.pre,
        "post": edit.post,
        "tags": json.dumps(edit.tags, separators=(",", ":")),
        "license": "MIT",
        "origin_group": edit.group,
        "cluster": row["cluster"],
        "origin": edit.origin,
        # 14 and 22 characters, of which 4 make a token
        "pre_tokens": 9,
        "post_tokens": 9,
        "instruction_source": "none",
        "answerable": False,
        "answerable_by": "no_instruction",
    }


def test_splits_are_not_made_of_a_division_of_other_edits(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write(varied_pairs)
    with opened() as lineage:
        make("raw", lineage, "release_pairs")
        make("normalized", lineage, "release_pairs")
        folder = make("division", lineage).folder
    small_checkout.write(varied_pairs[::-1])
    with opened() as lineage:
        make("raw", lineage, "release_pairs")
        make("normalized", lineage, "release_pairs")
        # a row of the division would be taken for that of another edit
        with pytest.raises(RecordError) as error:
            make("splits", lineage, "python", "train")
    assert str(error.value) == f"{folder}: was made from other normalized edits; materialize its asset again"


@pytest.mark.parametrize(
    ("sizes", "keep", "counted"),
    [
        ({"a.jsonl": 5, "b.jsonl": 3}, "all", [(5, 8), (8, 8)]),
        # a total that is not known is not made up
        ({"a.jsonl": None, "b.jsonl": 3}, "all", [(5, 0), (8, 0)]),
        # one file says itself how large it is
        ({"a.jsonl": None}, "all", [(5, 5)]),
        # what is streamed is counted as it is read; the end of a file is found by reads of nothing
        ({"a.jsonl": 5, "b.jsonl": 3}, "wanted", [(5, 8), (8, 8)]),
    ],
)
def test_the_bytes_of_a_dataset_are_counted_over_all_its_files(
    opened: Opened,
    small_checkout: Any,
    reconfigure: Callable[..., None],
    sizes: Mapping[str, int | None],
    keep: str,
    counted: list[tuple[int, int]],
) -> None:
    files = [{"path": name, **({} if size is None else {"size_bytes": size})} for name, size in sizes.items()]
    changes = {"files": files, "url": "memory://source", "keep": keep}
    settings = {f"datasets.release_pairs.{key}": value for key, value in changes.items()}
    reconfigure(small_checkout.root, "datasets.yaml", settings)
    shown: list[tuple[int, int]] = []
    with opened() as lineage:
        lineage.ports.replace(
            "dataset_hub", memory_hub({"memory://source/a.jsonl": b"12345", "memory://source/b.jsonl": b"123"})
        )
        lineage.advance = lambda done, total: shown.append((done, total))
        make("raw", lineage, "release_pairs")
    assert list(dict.fromkeys(shown)) == counted
