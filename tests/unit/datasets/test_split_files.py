"""The files of the division and of the splits: what is in them is what was normalized, byte for byte."""

import json
from pathlib import Path

import pytest

from graftline.astgrep.binding import LANGUAGES
from graftline.core.parquet import GROUP_ROWS, read_parquet, write_parquet
from graftline.datasets.catalog import Splitting
from graftline.datasets.edit import DIVISION, EDITS, NORMALIZED, Edit
from graftline.datasets.splits import MOVES, SPLITS, read_assigned, read_splits, write_assignments, write_split
from tests.unit.datasets.shards import Row, change, written

Folders = dict[str, Path]
SHARED = ("id", "dataset", "instruction", "pre", "post", "tags", "license", "origin_group", "origin")


def rows(prefix: str, count: int) -> dict[str, Row]:
    """Return edits in two languages, every fifth of which repeats the one before."""
    table: dict[str, Row] = {}
    for number in range(count):
        name = f"{prefix}{number}"
        file = f"{name}.{'java' if number % 3 else 'py'}"
        row = change(name, old_file=file, new_file=file, message=f"Wish é {number}\u2028")
        table[name] = {**table[f"{prefix}{number - 1}"], "commit": name} if number % 5 == 4 else row
    return table


@pytest.fixture
def datasets(tmp_path: Path) -> Folders:
    """Two normalized datasets, of which the second repeats some of the first."""
    first = rows("a", 60)
    two = {**rows("b", 40), **{name: {**row, "commit": f"again {name}"} for name, row in list(first.items())[:7]}}
    for name, assigned in (("one", first), ("two", two)):
        written(tmp_path / name, assigned.values())
    return {name: tmp_path / name for name in ("one", "two")}


@pytest.fixture
def division(tmp_path: Path, datasets: Folders) -> Path:
    (tmp_path / "division").mkdir()
    write_assignments(datasets, LANGUAGES, Splitting(), tmp_path / "division")
    return tmp_path / "division"


def lines_of(folders: Folders, language: str) -> list[bytes]:
    return [
        line
        for folder in folders.values()
        for path in sorted(folder.glob(f"{language}-*.jsonl"))
        for line in path.read_bytes().splitlines(keepends=True)
    ]


def test_the_division_has_a_row_for_every_normalized_edit_in_their_order(datasets: Folders, division: Path) -> None:
    names = ["assigned.parquet", "moves.parquet", *(f"{language}.parquet" for language in LANGUAGES)]
    assert sorted(path.name for path in division.iterdir()) == sorted(names)
    for language in LANGUAGES:
        table = read_parquet(division / f"{language}.parquet")
        edits = [Edit.model_validate_json(line) for line in lines_of(datasets, language)]
        assert [(row["dataset"], row["id"]) for row in table] == [(edit.dataset, edit.id) for edit in edits]
        assert all(list(row) == list(DIVISION) for row in table)


def test_a_row_of_the_division_has_a_split_or_a_reason_and_what_is_kept(division: Path) -> None:
    table = [row for language in LANGUAGES for row in read_parquet(division / f"{language}.parquet")]
    kept = {row["id"] for row in table if row["split"]}
    assert {row["split"] for row in table} == {*SPLITS, None}
    for row in table:
        assert (row["split"] is None) == (row["reason"] is not None) == (row["kept_id"] in kept)
        assert len(row["cluster"]) == 16
    # 12 of 60, 8 of 40 and 1 of 7 repeat the one before; the other 6 of the 7 repeat one of the first dataset
    assert sum(row["reason"] is not None for row in table) == 12 + 8 + 7


def test_what_became_of_the_edits_is_counted(datasets: Folders, tmp_path: Path) -> None:
    counts = write_assignments(datasets, LANGUAGES, Splitting(), tmp_path)
    assert (counts["rows_in"], counts["rows"], counts["dropped.duplicate_row"]) == (107, 80, 27)


def test_the_division_says_which_edits_are_new_stayed_and_fell_out(
    datasets: Folders, division: Path, tmp_path: Path
) -> None:
    # what the first dataset repeats of the second now takes the place of it
    turned = dict(reversed(datasets.items()))
    counts = write_assignments(turned, LANGUAGES, Splitting(), tmp_path, read_assigned(division), read_splits(division))
    before, after = read_parquet(division / MOVES), read_parquet(tmp_path / MOVES)
    assert {move["earlier"] for move in before} == {None}
    assert sum(move["rows"] for move in before if move["split"]) == counts["rows"] == 80
    # 6 edits of the second dataset repeat one of the first, which is now the one that falls out
    assert [{name: counts[name] for name in ("new", "stayed", "lost")}] == [{"new": 6, "stayed": 74, "lost": 6}]
    assert all(move["earlier"] in (move["split"], None) or move["reason"] == "duplicate_row" for move in after)


def test_the_lines_of_a_split_are_those_of_the_normalized_edits_byte_for_byte(
    datasets: Folders, division: Path, tmp_path: Path
) -> None:
    for language in ("python", "java"):
        places = [row["split"] for row in read_parquet(division / f"{language}.parquet")]
        for split in SPLITS:
            folder = tmp_path / language / split
            folder.mkdir(parents=True)
            counts = write_split(division, datasets, language, split, folder)
            expected = [
                line for line, assigned in zip(lines_of(datasets, language), places, strict=True) if assigned == split
            ]
            assert (folder / "edits.jsonl").read_bytes() == b"".join(expected)
            assert (counts["rows"], sorted(path.name for path in folder.iterdir())) == (
                len(expected),
                ["edits.jsonl", "edits.parquet"],
            )


def test_the_rows_of_a_split_say_what_its_lines_say(datasets: Folders, division: Path, tmp_path: Path) -> None:
    write_split(division, datasets, "java", "train", tmp_path)
    edits = [json.loads(line) for line in (tmp_path / "edits.jsonl").read_bytes().splitlines()]
    clusters = {row["id"]: row["cluster"] for row in read_parquet(division / "java.parquet") if row["split"]}
    table = read_parquet(tmp_path / "edits.parquet")
    assert len(table) > 10
    assert all(list(row) == list(EDITS) for row in table)
    for row, edit in zip(table, edits, strict=True):
        said = {**edit, "origin_group": edit["group"], "tags": json.dumps(edit["tags"], separators=(",", ":"))}
        assert {name: row[name] for name in SHARED} == {name: said[name] for name in SHARED}
        assert (row["language"], row["split"], row["cluster"]) == ("java", "train", clusters[edit["id"]])
        assert (row["pre_tokens"], row["post_tokens"]) == (-(-len(row["pre"]) // 4), -(-len(row["post"]) // 4))


def test_how_edits_are_spread_over_shards_does_not_show_in_a_split(datasets: Folders, tmp_path: Path) -> None:
    # the same lines and rows, cut into several shards
    parted = {name: tmp_path / "parted" / name for name in datasets}
    for name, folder in datasets.items():
        parted[name].mkdir(parents=True)
        for number, line_numbers in enumerate((slice(0, 1), slice(1, 20), slice(20, None))):
            cut(folder / "java-00000", parted[name] / f"java-{number:05d}", line_numbers)
    outputs = []
    for place, folders in (("whole", datasets), ("cut", parted)):
        target = tmp_path / place
        target.mkdir()
        write_assignments(folders, ("java",), Splitting(), target)
        write_split(target, folders, "java", "train", target)
        outputs.append({path.name: path.read_bytes() for path in sorted(target.iterdir())})
    assert outputs[0] == outputs[1]


def cut(source: Path, target: Path, part: slice) -> None:
    lines = source.with_suffix(".jsonl").read_bytes().splitlines(keepends=True)[part]
    target.with_suffix(".jsonl").write_bytes(b"".join(lines))
    write_parquet(target.with_suffix(".parquet"), read_parquet(source.with_suffix(".parquet"))[part], NORMALIZED)


def test_edits_of_several_row_groups_are_all_there(tmp_path: Path) -> None:
    # all of one repository, so that all are in one split
    count, datasets = GROUP_ROWS + 7, {"one": tmp_path / "one"}
    written(datasets["one"], (change(f"e{number}", repos="owner/one") for number in range(count)))
    counts = write_assignments(datasets, ("python",), Splitting(), tmp_path)
    assert counts == {"rows_in": count, "rows": count, "clusters": 1, "new": count, "stayed": 0, "lost": 0}
    assert write_split(tmp_path, datasets, "python", "train", tmp_path) == {"rows": count, "rows.one": count}
    table = read_parquet(tmp_path / "edits.parquet", ["instruction"])
    assert [row["instruction"] for row in table] == [f"Change e{number}" for number in range(count)]
    lines = [line for path in sorted(datasets["one"].glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    assert (tmp_path / "edits.jsonl").read_bytes().splitlines() == lines


def test_a_language_without_edits_has_empty_files(datasets: Folders, division: Path, tmp_path: Path) -> None:
    assert write_split(division, datasets, "tsx", "dev", tmp_path) == {"rows": 0}
    assert (tmp_path / "edits.jsonl").read_bytes() == b""
    assert read_parquet(tmp_path / "edits.parquet") == []
