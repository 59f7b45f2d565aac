"""`graftline data stats|sample|export-dvc|publish`: what is said of what is stored."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from graftline.pipeline.dataset_views.stats import moves_table
from graftline.pipeline.instruction_counts import count_key
from tests.tasks import make_task
from tests.unit.cli.shop import Shop, row


def tokens(mean: float, median: int, p95: int, greatest: int) -> dict[str, float]:
    return {"mean": mean, "median": median, "p95": p95, "max": greatest}


def cell(language: str, split: str, edits: int, *lengths: float) -> dict[str, Any]:
    """Return a cell whose texts before and after are equally long."""
    of_side = tokens(lengths[0], *map(int, lengths[1:]))
    return {"language": language, "split": split, "edits": edits, "pre": of_side, "post": of_side}


def test_stats_count_what_is_normalized_before_anything_is_divided(shop: Shop) -> None:
    shop.run("fetch")
    shop.run("build", "pairs", "twins")

    # a quarter of the characters, rounded up: 7 of a, 24 of b, 33 of c; the p95 of two is the greater one
    assert shop.json("stats", "pairs") == {
        "datasets": [
            {
                "name": "pairs",
                "version": "1",
                "tokenizer": "characters/4",
                "rows_in": 5,
                "edits": 3,
                "labels": 0,
                "licenses": {"MIT": 2, "Apache-2.0": 1},
                "dropped": {"license": 1, "unparsable": 1},
                "duplicates": {},
                "cells": [
                    cell("java", "", 1, 9.0, 9, 9, 9),
                    cell("python", "", 2, 4.0, 2, 6, 6),
                    cell("all", "all", 3, 5.7, 6, 9, 9),
                ],
                "moves": [],
                "instructions": [],
            }
        ]
    }


def test_stats_count_splits_once_there_are_any(built_shop: Shop) -> None:
    pairs, twins = built_shop.json("stats")["datasets"]

    by_split = {(entry["language"], entry["split"]): entry["edits"] for entry in pairs["cells"]}
    assert (sum(by_split.values()), by_split["all", "all"]) == (6, 3)
    assert {split for _, split in by_split} <= {"train", "dev", "test", "all"}
    # what g says, a says already
    assert (twins["edits"], twins["duplicates"], [entry["edits"] for entry in twins["cells"]]) == (
        *(2, {"duplicate_code": 1}, [1]),
    )
    assert [{**move, "split": None, "language": ""} for move in twins["moves"]] == [
        {"language": "", "earlier": None, "split": None, "reason": reason, "rows": 1}
        for reason in ("duplicate_code", None)
    ]


def test_stats_are_tables_for_people(built_shop: Shop) -> None:
    code, out, err = built_shop.shown("stats")

    words = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert ["pairs", "1", "5", "3", "0", "2", "(40.0%)", "0", "(0.0%)", "characters/4"] in words
    for text in ("pre", "post"):
        assert ["pairs", "all", "all", "3", text, "5.7", "6", "9", "9"] in words
    assert ["pairs", "Apache-2.0", "1", "33.3%"] in words
    assert ["twins", "duplicate_code", "1", "50.0%"] in words


def test_moves_are_counted_by_language_and_split() -> None:
    move = {"language": "java", "earlier": None, "split": "test", "reason": None, "rows": 3}
    moves = [
        move, {**move, "rows": 4}, {**move, "earlier": "test"}, {**move, "language": "tsx", "split": "dev"},
        {**move, "earlier": "train", "split": None, "reason": "joins_splits"},
        {**move, "earlier": "test", "split": None, "reason": "near_duplicate", "rows": 1000},
        {**move, "split": None, "reason": "joins_splits", "rows": 2},
        {**move, "split": None, "reason": "duplicate_id"},
    ]  # fmt: skip
    assert moves_table(moves) == (
        "Since the last assignment",
        ["language", "split", "new", "stayed", "out: joins splits", "out: duplicate"],
        [
            ("java", "train", "0", "0", "3", "0"),
            ("java", "test", "7", "3", "0", "1,000"),
            ("java", "none", "0", "0", "2", "0"),
            ("tsx", "dev", "3", "0", "0", "0"),
        ],
    )


def test_stats_of_a_damaged_file_are_one_message(built_shop: Shop) -> None:
    folder = built_shop.raw / "pairs" / "normalized"
    (folder / "python-00000.parquet").write_bytes(b"PAR1")

    assert built_shop.shown("stats") == (
        1,
        "",
        f"error: {folder}: file 'python-00000.parquet' was altered after it was written; materialize its asset again\n",
    )


def test_equal_seeds_choose_equal_samples(built_shop: Shop) -> None:
    first = built_shop.json("show", "-n", "2", "--seed", "1")

    assert first == built_shop.json("show", "-n", "2", "--seed", "1")
    assert len({json.dumps(built_shop.json("show", "-n", "2", "--seed", str(seed))) for seed in range(9)}) > 1
    assert len(built_shop.json("show", "-n", "99")["edits"]) == 5
    assert len({json.dumps(built_shop.json("show", "-n", "2", "--random")) for _ in range(9)}) > 1


def test_a_typical_edit_can_be_done_changes_code_and_is_neither_long_nor_short(shop: Shop) -> None:
    comment = row("w", "# the old\nf(1)\n", "# the new\nf(1)\n")
    lengths = {f"l{n}": row(f"l{n}", f"f({'1, ' * n})\n", f"g({'1, ' * n})\n") for n in (4, 5, 6, 90)}
    shop.write("pairs", [comment, *lengths.values()])
    shop.make()
    shown = shop.json("show", "pairs", "-n", "9")["edits"]
    assert shown[0]["pre"] == lengths["l5"]["pre"]
    assert shown[-1]["pre"].startswith("# the old")
    # of every dataset and language in turn
    assert [edit["dataset"] for edit in shop.json("show", "-n", "2")["edits"]] == ["pairs", "twins"]


def test_a_sample_is_of_the_dataset_language_and_split_that_are_named(built_shop: Shop) -> None:
    def origins(*options: str) -> set[str]:
        return {entry["pre"].partition("(")[0] for entry in built_shop.json("show", "-n", "99", *options)["edits"]}

    assert origins("twins") == {"send", "old"}
    assert origins("pairs", "--language", "java") == {"int f"}
    # what g says is in no split
    divided = [origins("twins", "--split", split) for split in ("train", "dev", "test")]
    assert sorted(divided, key=len) == [set(), set(), {"send"}]


def test_a_sample_is_a_diff_that_can_be_applied(built_shop: Shop) -> None:
    code, out, err = built_shop.shown("show", "pairs", "--language", "java")

    edit = built_shop.json("show", "pairs", "--language", "java")["edits"][0]
    assert (code, err) == (0, "")
    assert out == (
        f"{edit['id']}  java  MIT  {edit['origin']}\n(no instruction: nothing says what to do)\n"
        "--- before\n+++ after\n@@ -1,3 +1,3 @@\n int f(int a) {\n-  return a + b;\n+  return a - b;\n }\n\n"
    )


def test_an_edit_without_an_instruction_shows_that_of_its_task_and_stats_say_how_many_can_be_done(
    built_shop: Shop,
) -> None:
    split, edit = next(
        (split, edits[0])
        for split in ("train", "dev", "test")
        if (edits := built_shop.json("show", "-n", "99", "--split", split)["edits"])
    )
    task = make_task(
        edit["pre"], language=edit["language"], id=edit["id"], dataset=edit["dataset"], instruction="Add `b` to `a`.", instruction_source="rule",
        answerable=True, answerable_by="reader",
    )  # fmt: skip
    folder = Paths(built_shop.root).partition("tasks", edit["language"], split)

    def make(partial: Path) -> Contents:
        write_lines(partial / "tasks.jsonl", [task])
        return Contents({"rows": 1, count_key(task.dataset, "rule", True): 1})

    build(folder, Request("tasks", f"{edit['language']}/{split}", "1", {}, {}), make)

    shown = built_shop.json("show", "-n", "99", "--split", split)["edits"]
    assert [row["instruction"] for row in shown if row["id"] == edit["id"]] == ["Add `b` to `a`."]
    stats = {dataset["name"]: dataset["instructions"] for dataset in built_shop.json("stats")["datasets"]}
    assert stats[edit["dataset"]] == [{"source": "rule", "answerable": 1, "unanswerable": 0, "untried": 0}]


def test_a_diff_has_colors_on_a_terminal(built_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = built_shop.run("show", "pairs", "--language", "java").stdout

    assert "\x1b[31m-  return a + b;\x1b[0m\n\x1b[32m+  return a - b;\x1b[0m\n" in out


def test_no_text_of_a_dataset_steers_the_terminal(shop: Shop) -> None:
    # clears the screen, and turns the order of letters around
    shop.write("pairs", [row("a", "x = '\x1b[2J\u202e'\r\n", "y = '\x1b[2J\u202e'")])
    shop.run("fetch")
    shop.run("build", "pairs", "twins")
    out = shop.run("show", "pairs").stdout

    assert out.splitlines()[5:] == [
        *("-x = '\\x1b[2J\\u202e'\\r", "+y = '\\x1b[2J\\u202e'", "\\ No newline at end of file", ""),
    ]
    assert shop.json("show", "pairs")["edits"][0]["pre"] == "x = '\x1b[2J\u202e'\r\n"


DROPS = [
    ("license", [("data/raw/pairs/source/rows.jsonl:4", "license")]),
    ("unparsable", [("data/raw/pairs/source/rows.jsonl:5", "unparsable")]),
    ("too_long", []),
    ("duplicate_code", [("twins:", "duplicate_code")]),
    ("all", [
        ("data/raw/pairs/source/rows.jsonl:4", "license"), ("data/raw/pairs/source/rows.jsonl:5", "unparsable"),
        ("twins:", "duplicate_code"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "expected"), DROPS)
def test_drops_are_shown_with_file_and_line(built_shop: Shop, reason: str, expected: list[tuple[str, str]]) -> None:
    drops = built_shop.json("show", "--rejected", reason)["drops"]

    assert [(entry["where"].partition("twins:")[1] or entry["where"], entry["reason"]) for entry in drops] == expected
    duplicates = [entry["detail"] for entry in drops if entry["reason"] == "duplicate_code"]
    assert [detail.partition(":")[0] for detail in duplicates] == ["pairs"] * len(duplicates)


def test_drops_are_a_table_for_people_and_none_is_a_sentence(built_shop: Shop) -> None:
    code, out, err = built_shop.shown("show", "--rejected", "license")
    assert (code, err) == (0, "")
    assert "data/raw/pairs/source/rows.jsonl:4" in out.split()
    assert built_shop.shown("show", "--rejected", "too_long") == (0, "There are no such drops.\n", "")


def test_an_unknown_reason_is_answered_with_those_that_there_are(built_shop: Shop) -> None:
    code, out, err = built_shop.shown("show", "--rejected", "licence")

    assert (code, out, err.partition("; known: ")[0]) == (1, "", "error: reason 'licence' is unknown")
    assert err.rstrip().partition("; known: ")[2].split(", ")[:2] == ["all", "line_too_long"]
    assert err.rstrip().endswith("duplicate_code, near_duplicate, joins_splits")


def test_an_export_copies_once_and_says_what_it_copied(built_shop: Shop) -> None:
    first, again = (built_shop.json("push", "dvc", "--remote", "storage") for _ in range(2))

    assert [entry["folder"] for entry in first["artifacts"]][:3] == [
        *("data/raw/pairs/source", "data/raw/twins/source", "data/raw/pairs/normalized"),
    ]
    assert (len(again["artifacts"]), {entry["copied"] for entry in again["artifacts"]}) == (
        len(first["artifacts"]),
        {0},
    )
    assert (built_shop.root / "data" / "division.dvc").is_file()


def test_an_export_goes_where_the_configuration_says_and_names_what_it_leaves_out(built_shop: Shop) -> None:
    (built_shop.root / "configs" / "governance.yaml").write_text("dvc: {remote: storage}\n", "utf-8")
    (built_shop.raw / "pairs" / "source" / "rows.jsonl").write_text("", "utf-8")
    code, out, err = built_shop.shown("push", "dvc")

    fault = f"error: {built_shop.raw}/pairs/source: file 'rows.jsonl' was altered after it was written"
    assert (code, out.splitlines()[0].strip(), err.splitlines()[-1].partition(";")[0]) == (1, "In storage", fault)
    assert not Path(f"{built_shop.raw}/pairs/source.dvc").exists()


def test_figures_are_published_offline(built_shop: Shop) -> None:
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    (built_shop.root / "configs" / "governance.yaml").write_text("wandb: {mode: offline}\n", "utf-8")
    code, out, err = built_shop.shown("push", "wandb")

    first, second = out.splitlines()
    assert (code, err, first.partition(", digest ")[0]) == (0, "", "offline: graftline-datasets")
    command, _, folder = second.rpartition(" ")
    assert (command, (built_shop.root / folder).is_dir()) == ("send it with: wandb sync", True)


def test_a_mirror_in_the_environment_is_read_by_every_stage(
    checkout: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = checkout.parent / "shared" / "data" / "mirror"
    if not mirror.is_dir():
        pytest.skip("needs the mirror of the datasets beside the checkout, in ../shared/data/mirror")
    shutil.copy(checkout / "configs" / "datasets.yaml", shop.root / "configs")
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(mirror))
    monkeypatch.setenv("GRAFTLINE_DATASETS", "marv,smellycode")
    shop.make()

    counts = {entry["name"]: (entry["rows_in"], entry["labels"]) for entry in shop.json("stats")["datasets"]}
    # counted without the readers: pairs of marv, rows of smellycode, and those of it that are not in C++
    assert (counts["marv"][0], counts["smellycode"], shop.json("verify")["faults"]) == (443, (478, 375), [])
