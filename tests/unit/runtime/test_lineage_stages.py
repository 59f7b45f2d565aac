"""The stages one by one: what they make, count, refuse and log."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.edit import Edit
from graftline.errors import ConfigError, DatasetError, RecordError
from graftline.jsonl import read_lines
from graftline.parquet import read_parquet
from graftline.paths import Paths
from graftline.record import RawRecord, load_record
from graftline.runtime.lineage import Lineage, open_lineage
from graftline.runtime.manifests import load_manifest
from graftline.runtime.run import run_all
from graftline.tasks.task import Task
from graftline.trajectories.step import Trajectory

Run = Callable[..., dict[str, str]]
Opened = Callable[[], AbstractContextManager[Lineage]]
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def opened(small_checkout: Any) -> Opened:
    """Open the lineage of the small checkout, without child processes."""

    @contextmanager
    def opened() -> Iterator[Lineage]:
        paths = Paths(small_checkout.root)
        with open_lineage(paths, load_manifest(paths, "local", {"sandbox": "memory"}), "test", lambda: NOON) as lineage:
            yield lineage

    return opened


def test_all_stages_lead_from_rows_to_verified_steps(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], run: Run
) -> None:
    small_checkout.write(varied_pairs)
    reasons = run(small_checkout.root)
    # 2 of the dataset, 2 over all datasets, and 5 stages of 3 languages in 3 splits
    assert (len(reasons), set(reasons.values())) == (49, {"not there yet"})
    paths = Paths(small_checkout.root)
    for language in ("java", "javascript", "python"):
        for split in ("train", "dev", "test"):
            # one real edit, and the two synthetic ones that were asked for, each solved in one step
            assert load_record(paths.partition("trajectories/parquet", language, split)).counts == {
                "rows": 3,
                "verified": 3,
                "verified_steps": 3,
                "no_reward": 0,
                "level.exact": 3,
                "steps": 3,
            }


def test_run_all_works_in_child_processes_as_the_manifest_says(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], run: Run
) -> None:
    small_checkout.write(varied_pairs[:1])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    run(small_checkout.root, overrides={})
    folder = Paths(small_checkout.root).partition("trajectories/parquet", "python", "train")
    assert {row["isolation"] for row in read_parquet(folder / "steps.parquet")} == {"compute/process"}


def test_everything_may_be_in_memory(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    text = "".join(json.dumps(row) + "\n" for row in varied_pairs[:3])
    run(small_checkout.root, {"dataset_hub.files": {"data/samples/release_pairs.jsonl": text}}, manifest="test")
    folder = Paths(small_checkout.root).partition("trajectories/raw", "python", "train")
    trajectories = list(read_lines(folder / "trajectories.jsonl", Trajectory))
    # that teacher knows the gold actions, which synthetic edits have and real ones have not
    assert sorted((one.dataset, one.ending, one.teacher) for one in trajectories) == [
        ("release_pairs", "gave_up", "memory"),
        ("synthetic_rules", "done", "memory"),
        ("synthetic_rules", "done", "memory"),
    ]


def test_the_memory_hub_of_the_test_manifest_holds_nothing_by_itself(small_checkout: Any, run: Run) -> None:
    with pytest.raises(DatasetError) as error:
        run(small_checkout.root, {}, manifest="test")
    assert str(error.value) == (
        "data/samples/release_pairs.jsonl: no such file; mend `files` of the dataset; found: nothing"
    )


def test_raw_keeps_the_bytes_and_says_where_they_come_from(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write([*varied_pairs[:2], "{broken", ""])
    with opened() as lineage:
        built = lineage.raw("release_pairs")
    copy = built.folder / "release_pairs.jsonl"
    assert copy.read_bytes() == small_checkout.sample.read_bytes()
    record = built.record
    assert isinstance(record, RawRecord)
    assert (
        record.source,
        record.version,
        record.license,
        record.downloaded_at,
        record.sha256,
        record.num_records,
        record.counts,
    ) == (
        "release_pairs",
        "1",
        "MIT",
        NOON,
        record.files["release_pairs.jsonl"].sha256,
        3,
        {"rows": 3, "files": 1},
    )


def test_raw_of_several_files_fetches_them_all(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None]
) -> None:
    home = small_checkout.sample.parent
    for name, row in zip(("a", "b"), varied_pairs, strict=False):
        (home / name).mkdir()
        (home / name / f"{name}.jsonl").write_text(json.dumps(row), "utf-8")
    files = [{"path": "a/a.jsonl"}, {"path": "b/b.jsonl"}]
    reconfigure(small_checkout.root, "datasets.yaml", {"datasets.release_pairs.files": files})
    with opened() as lineage:
        built = lineage.raw("release_pairs")
        edits = lineage.normalized("release_pairs").record.counts["rows"]
    assert (sorted(built.record.files), built.record.counts, edits) == (
        ["a/a.jsonl", "b/b.jsonl"],
        {"rows": 2, "files": 2},
        2,
    )


def test_a_file_that_is_not_the_pinned_one_stops_the_run_and_nothing_is_stored(
    opened: Opened, small_checkout: Any, reconfigure: Callable[..., None]
) -> None:
    files = [{"path": "release_pairs.jsonl", "size_bytes": 1}]
    reconfigure(small_checkout.root, "datasets.yaml", {"datasets.release_pairs.files": files})
    with opened() as lineage, pytest.raises(DatasetError, match=r"size_bytes is 0, but 1 is expected"):
        lineage.raw("release_pairs")
    assert Paths(small_checkout.root).raw("release_pairs").exists() is False


def test_normalized_counts_every_row_it_leaves_out(
    opened: Opened, small_checkout: Any, pair: Mapping[str, Any], varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write(
        [
            varied_pairs[0],
            "{broken",
            {**pair, "licence": "GPL-3.0-only"},
            varied_pairs[1],
            {**pair, "language": "cobol"},
            "[1]",
            {**pair, "post": pair["pre"]},
        ]
    )
    with opened() as lineage:
        lineage.raw("release_pairs")
        built = lineage.normalized("release_pairs")
    assert built.record.counts == {
        "rows_in": 7,
        "rows": 2,
        "labels": 0,
        "dropped.licence": 1,
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
        ("release_pairs", "release_pairs.jsonl", 3, "licence"),
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
        lineage.raw("release_pairs")
        counts = lineage.normalized("release_pairs").record.counts
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings[0] == "release_pairs: no evaluation is in use, so edits are kept away from none"
    assert (counts["dropped.malformed_json"], len(warnings[1:]), warnings[1]) == (
        25,
        20,
        "data/raw/release_pairs/source/release_pairs.jsonl: line 1: malformed_json: expected an object, found list",
    )


def test_a_dataset_without_a_good_row_makes_empty_splits(
    small_checkout: Any, reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    small_checkout.write(["{broken"])
    reasons = run(small_checkout.root)
    folder = Paths(small_checkout.root).partition("trajectories/parquet", "python", "train")
    counts = {"rows": 0, "verified": 0, "verified_steps": 0, "no_reward": 0, "steps": 0}
    assert (len(reasons), load_record(folder).counts) == (19, counts)


def test_duplicates_are_counted_in_the_division_and_are_in_no_split(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write([*varied_pairs, {**varied_pairs[0], "id": "release:again"}])
    with opened() as lineage:
        lineage.raw("release_pairs")
        lineage.normalized("release_pairs")
        division = lineage.division()
        counts = [lineage.splits(language, split).record.counts for language, split in lineage.partitions()]
    assert division.record.counts == {"rows_in": 10, "rows": 9, "clusters": 9, "dropped.duplicate_row": 1}
    # three packages of each language, one in each split
    assert counts == [{"rows": 1, "rows.release_pairs": 1}] * 9
    fallen = [row for row in read_parquet(division.folder / "python.parquet") if row["reason"]]
    assert fallen == [
        {
            "dataset": "release_pairs",
            "id": "release_pairs:again",
            "split": None,
            "reason": "duplicate_row",
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
        "licence": "MIT",
        "origin_group": edit.group,
        "cluster": row["cluster"],
        "origin": edit.origin,
        # 14 and 22 characters, of which 4 make a token
        "pre_tokens": 9,
        "post_tokens": 9,
    }


def test_synthetic_edits_stand_in_the_order_of_their_ids_and_their_families_are_counted(
    made: Path, reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(made, "datasets.yaml", {"synthesis.per_partition": 8})
    run(made)
    for split in ("train", "dev", "test"):
        folder = Paths(made).partition("synthetic", "python", split)
        ids = [edit.id for edit in read_lines(folder / "edits.jsonl", Edit)]
        assert ids == sorted(ids)
        # what can be done to the one call `old(a, b)`
        families = ("add_keyword", "rename_function", "swap_arguments", "wrap_function")
        assert load_record(folder).counts == {"rows": 4, **{f"rows.template:{family}": 1 for family in families}}


def test_an_unsound_edit_is_counted_and_no_task(
    opened: Opened, small_checkout: Any, pair: Mapping[str, Any], reconfigure: Callable[..., None]
) -> None:
    # only an optional semicolon is added: the text as it is passes already
    small_checkout.write([{**pair, "language": "javascript", "pre": "a = 1", "post": "a = 1;"}])
    reconfigure(small_checkout.root, "datasets.yaml", {"synthesis.per_partition": 0})
    with opened() as lineage:
        lineage.raw("release_pairs")
        lineage.normalized("release_pairs")
        lineage.division()
        for split in ("train", "dev", "test"):
            lineage.splits("javascript", split)
            lineage.synthetic_rules("javascript", split)
        built = lineage.tasks("javascript", "train")
    assert (built.record.counts, list(read_lines(built.folder / "tasks.jsonl", Task))) == (
        {"rows": 0, "unsound.unedited_passes": 1},
        [],
    )


@pytest.mark.parametrize(
    ("stage", "missing"),
    [
        ("normalized", "data/raw/release_pairs/source"),
        ("division", "data/raw/release_pairs/normalized"),
        ("label_tasks", "data/raw/release_pairs/normalized"),
        ("splits", "data/division"),
        ("synthetic_rules", "data/processed/python/dev"),
        ("tasks", "data/processed/python/dev"),
        ("teacher_trajectories", "data/tasks/python/dev"),
        ("trajectories", "data/trajectories/raw/python/dev"),
    ],
)
def test_a_stage_without_its_input_says_what_is_missing_and_what_to_do(
    opened: Opened, small_checkout: Any, stage: str, missing: str
) -> None:
    arguments = {"normalized": ("release_pairs",), "division": (), "label_tasks": ()}.get(stage, ("python", "dev"))
    with opened() as lineage, pytest.raises(RecordError) as error:
        getattr(lineage, stage)(*arguments)
    assert str(error.value) == (
        f"{small_checkout.root / missing}: has no _meta.json; materialise the asset that writes it"
    )


def test_a_stage_refuses_an_input_that_was_altered(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write(varied_pairs)
    with opened() as lineage:
        built = lineage.raw("release_pairs")
        (built.folder / "release_pairs.jsonl").write_text("", "utf-8")
        with pytest.raises(RecordError) as error:
            lineage.normalized("release_pairs")
    assert str(error.value) == (
        f"{built.folder}: file 'release_pairs.jsonl' was altered after it was written; materialise its asset again"
    )


def test_splits_are_not_made_of_a_division_of_other_edits(
    opened: Opened, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    small_checkout.write(varied_pairs)
    with opened() as lineage:
        lineage.raw("release_pairs")
        lineage.normalized("release_pairs")
        folder = lineage.division().folder
    small_checkout.write(varied_pairs[::-1])
    with opened() as lineage:
        lineage.raw("release_pairs")
        lineage.normalized("release_pairs")
        # a row of the division would be taken for that of another edit
        with pytest.raises(RecordError) as error:
            lineage.splits("python", "train")
    assert str(error.value) == f"{folder}: was made from other normalised edits; materialise its asset again"


def test_an_unknown_dataset_lists_the_known_ones(opened: Opened) -> None:
    with opened() as lineage, pytest.raises(ConfigError) as error:
        lineage.raw("commits")
    assert str(error.value) == "dataset 'commits' is unknown; known: release_pairs"


def test_a_run_that_stopped_goes_on_where_it_was(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], opened: Opened, run: Run
) -> None:
    small_checkout.write(varied_pairs[:3])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    with opened() as lineage:
        lineage.raw("release_pairs")
        lineage.normalized("release_pairs")
        lineage.division()
        lineage.splits("python", "train")
    reasons = run(small_checkout.root)
    unchanged = [name for name, reason in reasons.items() if not reason]
    assert (len(reasons), unchanged) == (
        19,
        ["raw release_pairs", "normalized release_pairs", "division all", "splits python/train"],
    )


def test_progress_is_told_of_every_artefact_in_order(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None]
) -> None:
    told: list[tuple[Any, ...]] = []

    class Told:
        def start(self, stage: str, name: str) -> None:
            told.append(("start", stage, name))

        def advance(self, done: int, total: int) -> None:
            told.append(("advance", done, total))

        def finish(self, reason: str) -> None:
            told.append(("finish", reason))

    small_checkout.write(varied_pairs[:2])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"], "synthesis.per_partition": 0})
    run_all(Paths(small_checkout.root), "local", {"sandbox": "memory"}, Told())
    size = small_checkout.sample.stat().st_size
    started = [what[1:] for what in told if what[0] == "start"]
    splits = ("train", "dev", "test")
    parts = ("splits", "synthetic_rules", "tasks", "teacher_trajectories", "trajectories")
    assert started == [
        ("raw", "release_pairs"),
        ("normalized", "release_pairs"),
        ("division", "all"),
        ("label_tasks", "all"),
        *((stage, f"python/{split}") for stage in parts for split in splits),
    ]
    assert told[:9] == [
        ("start", "raw", "release_pairs"),
        # bytes, of which the home says how many there are
        ("advance", size, size),
        ("finish", "not there yet"),
        ("start", "normalized", "release_pairs"),
        # how many rows there will be is not known
        ("advance", 2, 0),
        ("finish", "not there yet"),
        ("start", "division", "all"),
        ("finish", "not there yet"),
        ("start", "label_tasks", "all"),
    ]
    assert [what for what in told if what[0] == "advance"][2:] == [
        # the two tasks, one in train and one in dev, and an attempt at each
        ("advance", 1, 1),
        ("advance", 1, 1),
        ("advance", 1, 1),
        ("advance", 1, 1),
    ]
