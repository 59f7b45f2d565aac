"""`graftline data verify`: stored files against their records and against the pins of the catalog."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.core.hashing import sha256_file
from tests.unit.cli.shop import PAIRS, Shop


def test_everything_that_was_made_is_sound(built_shop: Shop) -> None:
    report = built_shop.json("verify")

    sound = [f"{finding['stage']} {finding['name']}" for finding in report["findings"] if finding["state"] == "sound"]
    parts = [f"splits {language}/{split}" for language in ("java", "python") for split in ("train", "dev", "test")]
    stored = [
        "raw pairs",
        "raw twins",
        "normalized pairs",
        "normalized twins",
        "division all",
        "repository_changes all",
    ]
    assert (sound, report["faults"]) == ([*stored, *parts], [])
    # pairs has no pin, twins has one
    details = [finding["detail"] for finding in report["findings"][:2]]
    assert details == ["0 of 1 files as pinned", "1 of 1 files as pinned"]
    assert built_shop.shown("verify")[::2] == (0, "")


def _altered(shop: Shop) -> None:
    path = shop.root / "data" / "division" / "java.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def _pinned_otherwise(shop: Shop) -> None:
    shop.twins["sha256"] = "0" * 64
    shop.configure()


def _fetched_anew(shop: Shop) -> None:
    shop.write("pairs", PAIRS[:2])
    shop.run("fetch", "pairs")


def _divided_anew(shop: Shop) -> None:
    path = shop.root / "configs" / "datasets.yaml"
    tree = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**tree, "splitting": {"seed": 3}}), "utf-8")
    # or what was assigned would stay
    shutil.rmtree(shop.root / "data" / "division")
    shop.run("build", "--language", "java")


FAULTS: list[tuple[str, Callable[[Shop], object], list[str], list[str]]] = [
    (
        "a file was altered",
        _altered,
        [],
        ["{data}/division: file 'java.parquet' was altered after it was written; materialize its asset again"],
    ),
    (
        "a file is missing",
        lambda shop: (shop.raw / "pairs" / "source" / "rows.jsonl").unlink(),
        [],
        ["{data}/raw/pairs/source: file 'rows.jsonl' is missing; materialize its asset again"],
    ),
    (
        "a file was added",
        lambda shop: (shop.raw / "pairs" / "normalized" / "more.jsonl").touch(),
        ["pairs"],
        ["{data}/raw/pairs/normalized: file 'more.jsonl' is not in the record; materialize its asset again"],
    ),
    (
        "a raw file is not the pinned one",
        _pinned_otherwise,
        [],
        [
            "{data}/raw/twins/source/rows.jsonl: sha256 is {twins}, but " + "0" * 64 + " is expected; restore the file"
            " at its source, or pin the new version below configs/ if you mean to change it"
        ],
    ),
    (
        "edits were made of other raw files",
        _fetched_anew,
        [],
        ["{data}/raw/pairs/normalized: was not made of the raw that is stored now; make it again"],
    ),
    (
        "splits were made of another division",
        _divided_anew,
        [],
        [
            f"{{data}}/processed/python/{split}: was not made of the division that is stored now; make it again"
            for split in ("train", "dev", "test")
        ],
    ),
    (
        "a dataset that is named is not stored",
        lambda shop: None,
        ["far"],
        [
            "raw far: is not stored; run 'graftline data fetch far'",
            "normalized far: is not stored; run 'graftline data build far'",
        ],
    ),
]


@pytest.mark.parametrize(
    ("break_it", "names", "faults"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS]
)
def test_what_is_not_as_recorded_or_pinned_is_a_fault(
    built_shop: Shop, break_it: Callable[[Shop], object], names: list[str], faults: list[str]
) -> None:
    twins = sha256_file(built_shop.raw / "twins" / "source" / "rows.jsonl")
    break_it(built_shop)
    code, out, err = built_shop.shown("verify", *names, "--json")

    expected = [fault.format(data=built_shop.root / "data", twins=twins) for fault in faults]
    assert (code, json.loads(out)["faults"], err.splitlines()) == (
        1,
        expected,
        [f"error: {fault}" for fault in expected],
    )


def test_files_of_a_mirror_are_said_not_to_be_the_pinned_ones(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.configure(files=[{"path": "rows.jsonl", "sha256": "0" * 64}])
    shop.write("far", PAIRS, top="mirror")
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(shop.root / "mirror"))
    shop.run("fetch", "far")

    raw = next(finding for finding in shop.json("verify")["findings"] if finding["name"] == "far")
    assert (raw["state"], raw["detail"]) == ("sound", "of a mirror, and not the pinned files")


def test_the_pin_of_a_file_that_a_mirror_keeps_compressed_is_that_of_what_is_in_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = shop.write("far", PAIRS, top="mirror")
    shop.configure(files=[pin])
    plain = shop.root / "mirror" / "far" / "rows.jsonl"
    Path(f"{plain}.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(shop.root / "mirror"))
    shop.run("fetch", "far")
    before = [finding["detail"] for finding in shop.json("verify")["findings"] if finding["name"] == "far"]
    shop.configure(files=[{**pin, "size_bytes": 1}])
    after = shop.json("verify", "far")["faults"]

    stored = f"{shop.raw}/far/source/rows.jsonl.gz"
    assert before[0] == "1 of 1 files as pinned"
    assert after[0].partition(", but ")[0] == f"{stored}: size_bytes is {pin['size_bytes']}"


def test_a_dataset_that_is_in_use_and_not_stored_is_no_fault(shop: Shop) -> None:
    shop.run("fetch", "pairs")
    report = shop.json("verify")

    assert [
        f"{finding['stage']} {finding['name']}" for finding in report["findings"] if finding["state"] == "sound"
    ] == ["raw pairs"]
    assert report["faults"] == []
