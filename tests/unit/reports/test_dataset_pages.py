"""The page of a dataset and the page over all of them, from rows of the marts and from records."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assets.reports.dataset_page import dataset_page
from assets.reports.evaluations import describe_evaluations, evaluations_of
from assets.reports.index_page import index_page
from graftline.core.build import Contents, Request, build
from graftline.core.paths import Paths
from graftline.core.record import FileSum, NormalizedRecord, RawRecord

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
CONTRACT: dict[str, Any] = {
    "source": "one",
    "version": "1+mirror.abc",
    "license": "MIT",
    "downloaded_at": NOON,
    "sha256": "a" * 64,
    "num_records": 1200,
}
COMMON: dict[str, Any] = {"name": "one", "code_version": "1", "files": {}, "counts": {}, "written_at": NOON.isoformat()}
FUNNEL = [("at_source", "", 1200), ("read", "", 1200), ("outcomes", "", 1200), ("dropped", "license", 3)]
MARTS = (
    "dataset_stats", "dataset_tokens", "dataset_languages", "dataset_licenses", "dataset_drops", "dataset_overlaps",
    "dataset_labels", "dataset_examples", "dataset_instructions",
)  # fmt: skip


def raw(**changes: Any) -> RawRecord:
    files = {name: FileSum(sha256="b" * 64, size_bytes=700) for name in ("a.jsonl", "b.jsonl")}
    values = {**COMMON, "kind": "raw", "inputs": {}, "config": {"url": "data/samples"}, **CONTRACT, "files": files}
    return RawRecord.model_validate({**values, **changes})


def normalized(**changes: Any) -> NormalizedRecord:
    values = {**COMMON, "kind": "normalized", "inputs": {}, "config": {}, "licenses": {}, **CONTRACT}
    return NormalizedRecord.model_validate({**values, "tokenizer": "o200k_base", **changes})


def funnel(*steps: tuple[str, str, int], dataset: str = "one") -> list[dict[str, Any]]:
    losses = ("dropped", "duplicates", "labels", "contaminated")
    return [
        {"dataset": dataset, "step": step, "reason": reason, "number": number, "is_loss": step in losses}
        for step, reason, number in steps
    ]


def page(record: RawRecord | None = None, **marts: list[dict[str, Any]]) -> str:
    rows = {**dict[str, list[dict[str, Any]]]((name, []) for name in MARTS), "dataset_funnel": funnel(*FUNNEL), **marts}
    return dataset_page(record or raw(), normalized(), rows, [], {"funnel": "one.funnel.png"})


def section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n\n")[2].partition("\n## ")[0]


def test_the_facts_are_those_of_the_contract() -> None:
    assert page().partition("## ")[0] == (
        "# Dataset `one`\n\n[All datasets](index.md)\n\n"
        "| fact | value |\n|---|---|\n| source | one |\n| url | data/samples |\n| version | 1+mirror.abc |\n"
        f"| license | MIT |\n| sha256 | {'a' * 64} |\n| rows | 1,200 |\n| files | 2 |\n| bytes | 1,400 |\n"
        "| tokenizer | o200k_base |\n\n"
    )


def test_a_page_does_not_say_when_the_files_came() -> None:
    later = raw(downloaded_at=datetime(2025, 1, 1, tzinfo=UTC), written_at="2025-01-01T00:00:00+00:00")
    assert page(later) == page()


def test_a_page_begins_with_a_warning_where_most_rows_are_lost_to_one_reason() -> None:
    record = raw(counts={"rows": 148, "not_kept.several_files": 732})
    assert page(record).startswith(
        "# Dataset `one`\n\n[All datasets](index.md)\n\n**Warning**: dataset 'one': 732 of 880 rows (83%) are rejected as"
        " several_files; they were not stored, which `keep: all` of the dataset in configs/datasets.yaml changes.\n\n|"
    )


def test_losses_have_a_dash_and_a_row_that_holds_one_thing_is_not_told_twice() -> None:
    assert section(page(), "From rows to splits").partition("\n\n")[2] == (
        "| step | rows | % |\n|---|---:|---:|\n| rows at the source | 1,200 | 100.0 |\n| rows read | 1,200 | 100.0 |\n"
        "| - dropped: a license that is not allowed, or none | 3 | 0.25 |\n\n![from rows to splits](one.funnel.png)\n"
    )


def test_an_empty_dataset_has_a_page_without_percentages() -> None:
    text = page(dataset_funnel=funnel(("at_source", "", 0), ("read", "", 0)))
    assert "| rows at the source | 0 | - |" in text
    assert section(text, "A typical edit") == "*No edit is kept.*\n"


def test_splits_stand_in_their_order_and_all_languages_first() -> None:
    stats = [{"dataset": "one", "language": "java", "split": split, "edits": 2} for split in ("dev", "test", "train")]
    tokens = [
        {"dataset": "one", "side": side, "language": language, "mean": 1.5}
        for side in ("post", "pre")
        for language in ("java", None)
    ]
    text = page(dataset_stats=stats, dataset_tokens=tokens)
    assert section(text, "Edits by language and split").partition("\n\n")[2] == (
        "| language | split | edits |\n|---|---|---:|\n| java | train | 2 |\n| java | dev | 2 |\n| java | test | 2 |\n"
        "| all | all | 6 |\n"
    )
    assert section(text, "Tokens") == (
        "How long the texts are, counted by `o200k_base`; so many percent of them are not longer.\n\n"
        "| side | language | mean |\n|---|---|---:|\n| before | all | 1.5 |\n| before | java | 1.5 |\n"
        "| after | all | 1.5 |\n| after | java | 1.5 |\n"
    )


def test_an_example_with_backticks_and_markup_stays_in_its_fence() -> None:
    example = {
        "dataset": "one", "id": "one:1", "language": "python", "split": "train", "license": "MIT",
        "origin": "owner/*name*", "instruction": "Close ```this```\n# Not a heading", "pre": "a\n````\n", "post": "b\n````\n",
        "instruction_source": "commit", "answerable": True,
    }  # fmt: skip
    assert section(page(dataset_examples=[example]), "A typical edit").partition("| origin")[2] == (
        " | owner/&#42;name&#42; |\n| instruction from | commit |\n| answerable | yes |\n\n````text\nClose ```this```\n# Not a heading\n````\n\n"
        "`````diff\n--- before\n+++ after\n@@ -1,3 +1,3 @@\n-a\n+b\n ````\n \n`````\n"
    )


def test_the_share_of_answerable_tasks_is_on_the_page() -> None:
    rows = [
        {"dataset": "one", "source": "none", "tasks": 1, "answerable": 0, "untried": 0},
        {"dataset": "one", "source": "rule", "tasks": 3, "answerable": 2, "untried": 1},
    ]
    text = section(page(dataset_instructions=rows), "Instructions")
    assert text.startswith("2 of 4 tasks (50.0 %) are **answerable**")
    assert "| rule | 3 | 2 | 1 | 66.67 |" in text


def test_an_example_of_a_drop_cannot_break_its_table() -> None:
    drop = {"dataset": "one", "reason": "bad_field", "dropped": 1, "example": "f:1: 'a|b'\n\\ <b>"}
    assert "| bad_field | a field missing or of another type | 1 | f:1: 'a\\|b' \\\\ &#60;b&#62; |\n" in page(
        dataset_drops=[drop]
    )


def test_no_evaluation_is_said_too() -> None:
    text = describe_evaluations([], 0)
    assert (text.startswith("**No evaluation.**"), section(page(), "Evaluations it was kept away from")) == (True, text)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Folders in which the raw files of the evaluation `canitedit` lie."""

    def make(folder: Path) -> Contents:
        (folder / "test.jsonl").write_text("{}\n", "utf-8")
        return Contents({"rows": 1}, {**CONTRACT, "source": "canitedit", "num_records": 105})

    build(Paths(tmp_path).raw("canitedit"), Request("raw", "canitedit", "1"), make)
    return Paths(tmp_path)


def test_evaluations_are_named_with_version_rows_and_checksum(paths: Paths) -> None:
    identity = build(paths.raw("canitedit"), Request("raw", "canitedit", "1"), lambda _: Contents({})).record.identity
    record = normalized(
        inputs={"raw": "x", "evaluation/canitedit": identity}, config={"evaluation_files": {"own.jsonl": "c" * 64}}
    )
    found = evaluations_of(record, paths)
    assert describe_evaluations(found, 1234) == (
        "Edits that fell out because they are too near to a text of one of these: 1,234.\n\n"
        "| evaluation | version | rows | sha256 |\n|---|---|---:|---|\n"
        f"| dataset `canitedit` | 1+mirror.abc | 105 | {'a' * 64} |\n"
        f"| file `configs/evals/own.jsonl` | - | - | {'c' * 64} |\n"
    )


def test_an_evaluation_that_was_fetched_anew_since_is_not_taken_for_the_old_one(paths: Paths) -> None:
    [row] = evaluations_of(normalized(inputs={"evaluation/canitedit": "0123456789abcdef"}), paths)
    assert row["version"] == "another one (0123456789ab)"


def test_the_index_shows_shares_and_which_dataset_repeats_which() -> None:
    one = [("at_source", "", 10), ("edits", "", 9), ("duplicates", "duplicate_row", 1), ("kept", "", 8)]
    two = [
        ("at_source", "", 5),
        ("labels", "", 1),
        ("edits", "", 4),
        ("duplicates", "duplicate_code", 2),
        ("kept", "", 2),
    ]
    splits_of_one = [("split", "train", 6), ("split", "test", 2)]
    text = index_page(
        ["two", "one"],
        {"one": "1", "two": "2"},
        {
            "dataset_funnel": funnel(*one, *splits_of_one)
            + funnel(*two, ("split", "dev", 2), ("contaminated", "", 3), dataset="two"),
            "dataset_overlaps": [
                {"dataset": "one", "kept_in": "two", "reason": "duplicate_row", "edits": 1},
                {"dataset": "two", "kept_in": "two", "reason": "duplicate_code", "edits": 1},
                {"dataset": "two", "kept_in": "two", "reason": "near_duplicate", "edits": 1},
            ],
            "dataset_instructions": [
                {
                    "dataset": "one", "source": "rule", "tasks": 4, "answerable": 3, "unanswerable": 1, "untried": 0,
                },
            ],
            "dataset_stats": [
                {"language": "python", "split": "train", "edits": 3},
                {"language": "java", "split": "train", "edits": 1},
            ],
            "dataset_licenses": [
                {"license": "MIT", "kept": 3}, {"license": "ISC", "kept": 0}, {"license": "MIT", "kept": 1},
            ],
        },
        [],
    )  # fmt: skip
    assert text.partition("\n\n")[2].partition("\n\n")[2].partition("\n## ")[0] == (
        "| dataset | version | rows | edits | duplicates | kept | % of all kept | train | dev | test | labels |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        "| [two](two.md) | 2 | 5 | 4 | 2 | 2 | 20.0 | 0 | 2 | 0 | 1 |\n"
        "| [one](one.md) | 1 | 10 | 9 | 1 | 8 | 80.0 | 6 | 0 | 2 | 0 |\n"
        "| all |  | 15 | 13 | 3 | 10 | 100.0 | 6 | 2 | 2 | 1 |\n"
    )
    assert section(text, "Duplicates between datasets").partition("\n\n")[2] == (
        "| edits of | two | one |\n|---|---:|---:|\n| two | 2 | 0 |\n| one | 1 | 0 |\n"
    )
    assert section(text, "Instructions").partition("\n\n")[2] == (
        "| dataset | instruction from | tasks | answerable | unanswerable | untried | % answerable |\n"
        "|---|---|---:|---:|---:|---:|---:|\n| one | rule | 4 | 3 | 1 | 0 | 75.0 |\n| all |  | 4 | 3 | 1 | 0 | 75.0 |\n"
    )
    assert section(text, "Languages") == (
        "| language | kept | % of all kept | train | dev | test |\n|---|---:|---:|---:|---:|---:|\n"
        "| java | 1 | 25.0 | 1 | 0 | 0 |\n| python | 3 | 75.0 | 3 | 0 | 0 |\n"
    )
    assert section(text, "Licenses") == ("| license | kept | % of all kept |\n|---|---:|---:|\n| MIT | 4 | 100.0 |\n")
