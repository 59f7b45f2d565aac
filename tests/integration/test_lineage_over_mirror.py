"""`graftline run` over a mirror of every dataset: from files to splits and tasks without gold, nothing lost or leaked."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from graftline.core.config import load_yaml
from graftline.core.jsonl import read_lines
from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.core.record import DatasetRecord, NormalizedRecord, load_record
from graftline.datasets.catalog import Catalog
from graftline.datasets.edit import Edit
from graftline.datasets.splits import language_files
from graftline.pipeline import checks
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.rollouts.task import OpenTask
from tests.small_mirror import LANGUAGES, PLANTED_LINES, configure, shared_data, small_mirror

SOURCES = ("commitpackft", "editpackft", "oce_dataft", "agentpack", "marv", "smellycode")
PARTITIONS = [
    (language, split)
    for language in ("java", "javascript", "python", "tsx", "typescript")
    for split in ("train", "dev", "test")
]


class World:
    """A mirror, and a root that runs over it."""

    def __init__(self, mirror: Path, root: Path) -> None:
        self.mirror, self.root, self.paths = mirror, root, Paths(root)

    def run(self) -> dict[str, Any]:
        # the stages after the splits have tests of their own
        command = [Path(sys.executable).with_name("graftline"), "--root", self.root, "run", "--json"]
        ports = ["--set", "sandbox=memory", "--set", "teacher=memory"]
        environment = {**os.environ, "GRAFTLINE_DATASET_MIRROR": str(self.mirror)}
        done = subprocess.run([*command, *ports], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        return summary

    def raw(self, name: str) -> DatasetRecord:
        record = load_record(self.paths.raw(name))
        assert isinstance(record, DatasetRecord)
        return record

    def normalized(self, name: str) -> NormalizedRecord:
        record = load_record(self.paths.normalized(name))
        assert isinstance(record, NormalizedRecord)
        return record

    def edits(self) -> Iterator[tuple[str, Edit]]:
        """Yield every edit of the splits, with its split."""
        for language, split in PARTITIONS:
            folder = self.paths.partition("processed", language, split)
            yield from ((split, edit) for edit in read_lines(folder / "edits.jsonl", Edit))

    def division(self) -> list[dict[str, Any]]:
        files = language_files(load_record(self.paths.division).files)
        return [row for file in files for row in read_parquet(self.paths.division / file)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    checkout = Path(__file__).resolve().parents[2]
    folder = tmp_path_factory.mktemp("world")
    shared = shared_data(checkout)
    configure(checkout, folder / "root")
    world = World(small_mirror(shared, folder / "mirror"), folder / "root")
    world.run()
    return world


@pytest.mark.parametrize("name", ["commitpackft", "editpackft", "oce_dataft", "agentpack", "marv", "canitedit"])
def test_what_a_mirror_holds_does_not_pass_for_the_pinned_revision(world: World, name: str) -> None:
    dataset = load_yaml(world.root / "configs" / "datasets.yaml", Catalog).datasets[name]
    record = world.raw(name)
    found, _, sums = record.version.partition("+mirror.")
    # one that follows its source has the revision of whatever that holds
    assert (found, len(sums)) == (record.inputs["source"] if dataset.follow else dataset.version, 12)
    assert name == "canitedit" or world.normalized(name).version == record.version


def test_a_mirror_whose_files_are_the_pinned_ones_is_as_good_as_the_source(world: World) -> None:
    assert world.raw("smellycode").version == "70d987a032355d25651b62a7df8fa56e5ea09e85"


def test_an_evaluation_is_fetched_and_nothing_more_is_made_of_it(world: World) -> None:
    assert (world.raw("canitedit").num_records, world.paths.normalized("canitedit").exists()) == (40, False)
    assert {edit.dataset for _, edit in world.edits()} <= set(SOURCES)


def test_every_row_of_every_file_is_an_edit_a_label_or_a_counted_drop(world: World) -> None:
    lines = {
        language: len(_lines(world.mirror / f"commitpackft/data/{language}/data.jsonl.gz")) for language in LANGUAGES
    }
    assert lines == {"java": 25, "javascript": 25, "python": 27, "typescript": 25}
    pairs = json.loads((world.mirror / "marv/MaRV.json").read_text("utf-8"))
    assert {name: world.raw(name).num_records for name in SOURCES} == {
        "commitpackft": sum(lines.values()),
        "editpackft": pq.read_metadata(world.mirror / "editpackft/data/train.parquet").num_rows,
        "oce_dataft": 2,
        "agentpack": 75,
        "marv": sum(map(len, pairs.values())),
        # that CSV holds no line breaks within cells
        "smellycode": 478,
    }
    for name in SOURCES:
        counts = world.normalized(name).counts
        dropped = sum(count for key, count in counts.items() if key.startswith("dropped."))
        assert counts["rows_in"] == world.raw(name).counts["rows"]
        assert len(read_parquet(world.paths.normalized(name) / "dropped.parquet")) == dropped
        # of agentpack a row may become several edits, or drops
        assert name == "agentpack" or counts["rows_in"] == counts["rows"] + counts["labels"] + dropped
        assert sum(world.normalized(name).licenses.values()) == counts["rows"] + counts["labels"]


def test_rows_that_are_not_worth_keeping_are_counted_and_the_others_kept_as_they_are(world: World) -> None:
    counts = world.raw("agentpack").counts
    assert counts["rows"] + sum(count for key, count in counts.items() if key.startswith("not_kept.")) == 75
    kept = _lines(world.paths.raw("agentpack") / "train/part-0000.jsonl.gz")
    there = _lines(world.mirror / "agentpack/train/part-0000.jsonl.gz")
    assert (len(kept), [line for line in kept if line not in there]) == (counts["rows"], [])


def _lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines()


def test_the_division_says_of_every_edit_where_it_is_or_why_it_is_nowhere(world: World) -> None:
    division = world.division()
    assert len(division) == sum(world.normalized(name).counts["rows"] for name in SOURCES)
    assert {row["id"]: row["split"] for row in division if not row["reason"]} == {
        edit.id: split for split, edit in world.edits()
    }
    reasons = Counter(f"dropped.{row['reason']}" for row in division if row["reason"])
    counts = load_record(world.paths.division).counts
    assert counts == {
        "rows_in": len(division),
        "rows": len(division) - reasons.total(),
        "clusters": len({row["cluster"] for row in division if not row["reason"]}),
        # a first division: every row is new, and none could move
        "new": len(division) - reasons.total(),
        "stayed": 0,
        "lost": 0,
        **reasons,
    }


def test_planted_texts_of_the_evaluation_are_found_with_their_lines_and_are_in_no_split(world: World) -> None:
    dropped = read_parquet(world.paths.normalized("commitpackft") / "dropped.parquet")
    found = [(row["file"], row["line"]) for row in dropped if row["reason"] == "contaminated"]
    assert found == [("data/python/data.jsonl.gz", line) for line in PLANTED_LINES]
    assert [edit.id for _, edit in world.edits() if edit.commit in ("1" * 40, "2" * 40)] == []


def test_no_group_commit_alias_or_cluster_is_in_two_splits(world: World) -> None:
    where: dict[tuple[str, str], set[str]] = defaultdict(set)
    for split, edit in world.edits():
        where["id", edit.id].add(split)
        where["text", "".join(edit.pre.split()).lower()].add(split)
        where["commit", edit.commit].add(split)
        for name in (edit.group, *edit.aliases):
            where["group", name.lower()].add(split)
    for row in world.division():
        if row["split"]:
            where["cluster", row["cluster"]].add(row["split"])
    assert [key for key, splits in where.items() if len(splits) > 1] == []
    # it is no test where everything is in one split
    assert {split for split, _ in world.edits()} == {"train", "dev", "test"}


def test_the_checks_of_the_lineage_find_nothing(world: World) -> None:
    manifest = load_manifest(world.paths, "local", {"sandbox": "memory", "dataset_hub": "memory"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAFTLINE_DATASETS", ",".join((*SOURCES, "canitedit")))
        with open_lineage(world.paths, manifest, "checks") as lineage:
            faults = [fault for name in SOURCES for fault in checks.invalid_edits(lineage, name)]
            assert (faults, checks.invalid_splits(lineage), checks.leaks(lineage)) == ([], [], [])


def test_what_was_made_of_a_commit_stays_with_it(world: World) -> None:
    rows = {row["id"]: row for row in world.division()}
    again = [row for row in rows.values() if row["dataset"] == "editpackft"]
    # all of them are commits of CommitPackFT, which comes first
    assert {rows[row["kept_id"]]["dataset"] for row in again if row["kept_id"]} == {"commitpackft"}
    assert (len(again), [row["id"] for row in again if row["split"]]) == (8, [])
    splits = {(edit.dataset, edit.commit): split for split, edit in world.edits()}
    grown = {commit: split for (dataset, commit), split in splits.items() if dataset == "oce_dataft"}
    assert len(grown) == 1
    assert grown == {commit: splits["commitpackft", commit] for commit in grown}


def test_labels_become_tasks_without_gold_and_never_edits(world: World) -> None:
    tasks = [task for path in world.paths.label_tasks.glob("*.jsonl") for task in read_lines(path, OpenTask)]
    disputed = world.normalized("marv").counts["labels"]
    # the smells of three languages; people agree on none of the labels of marv, or they would be edits
    assert disputed > 0
    assert Counter((task.dataset, bool(task.holds)) for task in tasks) == {
        ("smellycode", True): 375,
        ("marv", False): disputed,
    }
    assert len({task.id for task in tasks}) == len(tasks)
    assert load_record(world.paths.label_tasks).counts == {"rows_in": disputed + 375, "rows": disputed + 375}


def test_no_instruction_says_who_wrote_it(world: World) -> None:
    instructions = [edit.instruction.lower() for _, edit in world.edits()]
    traces = ("co-authored-by", "signed-off-by", "example.invalid", "generated with")
    assert [trace for trace in traces for text in instructions if trace in text] == []


def test_a_dataset_that_was_fetched_by_itself_is_the_one_that_a_run_fetches(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.root / "configs", tmp_path / "configs")
    command = [
        Path(sys.executable).with_name("graftline"),
        "--root",
        tmp_path,
        "data",
        "fetch",
        "agentpack",
        "marv",
    ]
    environment = {**os.environ, "GRAFTLINE_DATASET_MIRROR": str(world.mirror)}
    subprocess.run(command, env=environment, capture_output=True, check=True, timeout=300)
    for name in ("agentpack", "marv"):
        assert load_record(Paths(tmp_path).raw(name)).identity == world.raw(name).identity


def test_a_second_run_makes_nothing(world: World) -> None:
    stages = world.run()["stages"]
    assert {stage: found["made"] for stage, found in stages.items() if found["made"]} == {}
    assert stages["splits"]["unchanged"] == 15
