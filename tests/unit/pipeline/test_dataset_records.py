"""`_meta.json` of a dataset as the stages write it: a missing or malformed field of the contract is refused.

Beside `tests/unit/core/test_record_contract.py`, which tests the mechanism on records made up; here they are
those of a run.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import RecordError
from graftline.core.hashing import sha256_file
from graftline.core.record import RECORD_NAME, NormalizedRecord, RawRecord, load_record, load_verified

Run = Callable[..., dict[str, str]]

PLAIN = ("name", "inputs", "config", "code_version", "files", "counts", "written_at")
OF_DATASETS = ("source", "version", "license", "downloaded_at", "sha256", "num_records")
OF_NORMALIZED = ("licences", "tokenizer")
MODELS = {"source": RawRecord, "normalized": NormalizedRecord}
SUM = {"sha256": "a" * 64, "size_bytes": 1}

MISSING = [
    *(("source", field) for field in (*PLAIN, *OF_DATASETS)),
    *(("normalized", field) for field in (*PLAIN, *OF_DATASETS, *OF_NORMALIZED)),
]

MALFORMED: list[tuple[str, Any]] = [
    ("schema_version", 2),  # of a later program
    ("schema_version", 0),
    ("schema_version", "1"),
    ("schema_version", None),
    ("name", 1),
    ("name", None),
    ("inputs", []),
    ("inputs", {"home": None}),
    ("config", "MIT"),
    ("code_version", None),
    ("written_at", 0),
    ("files", ["a.jsonl"]),
    ("files", {"a": "a" * 64}),
    ("files", {"a": {**SUM, "sha256": "a" * 63}}),
    ("files", {"a": {**SUM, "sha256": "A" * 64}}),
    ("files", {"a": {**SUM, "sha256": None}}),
    ("files", {"a": {**SUM, "size_bytes": -1}}),
    ("files", {"a": {**SUM, "size_bytes": 0.5}}),
    ("files", {"a": {"sha256": "a" * 64}}),
    ("files", {"a": {"size_bytes": 1}}),
    ("files", {"a": {**SUM, "md5": "b" * 32}}),
    ("counts", {"rows": "3 rows"}),
    ("counts", {"rows": None}),
    ("counts", 3),
    ("source", ""),
    ("source", None),
    ("version", ""),
    ("version", 1),
    ("license", ""),
    ("license", ["MIT"]),
    ("downloaded_at", "last week"),
    ("downloaded_at", ""),
    ("downloaded_at", None),
    ("sha256", ""),
    ("sha256", "z" * 64),
    ("sha256", "a" * 64 + "\n"),
    ("num_records", -1),
    ("num_records", 2.5),
    ("num_records", None),
    ("downloaded_by", "me"),  # no field of the contract
]
MALFORMED_LATER: list[tuple[str, Any]] = [
    ("licences", None),
    ("licences", ["MIT"]),
    ("licences", {"MIT": "three"}),
    ("licences", {"MIT": None}),
    ("licences", {"MIT": 0.5}),
    ("tokenizer", ""),
    ("tokenizer", None),
    ("tokenizer", 4),
]


def folder_of(made: Path, what: str) -> Path:
    return made / "data" / "raw" / "release_pairs" / what


def altered(folder: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Return what is said of the record in `folder` after `change`, whose identity is left as it was."""
    path = folder / RECORD_NAME
    values = json.loads(path.read_text("utf-8"))
    change(values)
    path.write_text(json.dumps(values), "utf-8")
    with pytest.raises(RecordError) as raised:
        load_record(folder)
    return str(raised.value)


def test_a_run_writes_every_field_of_the_contract(made: Path) -> None:
    raw, normalized = (json.loads((folder_of(made, what) / RECORD_NAME).read_text("utf-8")) for what in MODELS)
    assert sorted(raw) == sorted(("schema_version", "kind", "identity", "facts", *PLAIN, *OF_DATASETS))
    assert sorted(normalized) == sorted((*raw, *OF_NORMALIZED))
    contract = {field: raw[field] for field in OF_DATASETS}
    assert contract == {
        "source": "release_pairs",
        "version": "1",
        "license": "MIT",
        "downloaded_at": "2024-05-01T12:00:00Z",
        # of the one file there is
        "sha256": sha256_file(folder_of(made, "source") / "release_pairs.jsonl"),
        "num_records": 3,
    }
    assert {field: normalized[field] for field in (*OF_DATASETS, *OF_NORMALIZED)} == {
        **contract,
        "licences": {"MIT": 3},
        "tokenizer": "characters/4",
    }


def test_the_record_of_every_file_has_its_size_and_checksum(made: Path) -> None:
    folder = folder_of(made, "normalized")
    files = {path.name: path for path in folder.iterdir() if path.name != RECORD_NAME}
    assert sorted(files) == ["dropped.parquet", "python-00000.jsonl", "python-00000.parquet"]
    found = {name: (file.sha256, file.size_bytes) for name, file in load_record(folder).files.items()}
    assert found == {name: (sha256_file(path), path.stat().st_size) for name, path in files.items()}


def test_licences_are_counted_by_the_row(made: Path, run: Run) -> None:
    sample = made / "data" / "samples" / "release_pairs.jsonl"
    lines = sample.read_text("utf-8").splitlines(keepends=True)
    allowed, refused = lines[1].replace('"MIT"', '"ISC"'), lines[2].replace('"MIT"', '"AGPL-3.0-only"')
    sample.write_text(lines[0] + allowed + refused, "utf-8")
    run(made)
    record = load_record(folder_of(made, "normalized"))
    assert isinstance(record, NormalizedRecord)
    assert (record.licences, record.counts["dropped.licence"]) == ({"ISC": 1, "MIT": 1}, 1)


@pytest.mark.parametrize(("what", "field"), MISSING)
def test_a_record_without_a_field_is_refused(made: Path, what: str, field: str) -> None:
    folder = folder_of(made, what)
    assert altered(folder, lambda values: values.pop(field)) == (
        f"{folder / RECORD_NAME}: is not a record (field {field!r} is missing); materialize its asset again"
    )


@pytest.mark.parametrize("what", MODELS)
def test_a_record_that_leaves_out_its_schema_version_is_of_the_first(made: Path, what: str) -> None:
    path = folder_of(made, what) / RECORD_NAME
    record = load_record(path.parent)
    values = json.loads(path.read_text("utf-8"))
    assert values.pop("schema_version") == 1
    path.write_text(json.dumps(values), "utf-8")
    assert load_record(path.parent) == record


@pytest.mark.parametrize("what", MODELS)
def test_a_record_without_its_identity_is_refused(made: Path, what: str) -> None:
    folder = folder_of(made, what)
    assert altered(folder, lambda values: values.pop("identity")) == (
        f"{folder / RECORD_NAME}: identity is not that of its content; materialize its asset again"
    )


@pytest.mark.parametrize(
    ("what", "field", "value"),
    [
        *(("source", field, value) for field, value in MALFORMED),
        *(("normalized", field, value) for field, value in (*MALFORMED, *MALFORMED_LATER)),
    ],
)
def test_a_record_with_a_malformed_field_is_refused(made: Path, what: str, field: str, value: Any) -> None:
    folder = folder_of(made, what)
    assert altered(folder, lambda values: values.update({field: value})).startswith(
        f"{folder / RECORD_NAME}: is not a record (field '{field}"
    )


@pytest.mark.parametrize("field", OF_NORMALIZED)
def test_a_raw_record_has_no_field_of_a_normalized_one(made: Path, field: str) -> None:
    folder = folder_of(made, "source")
    message = altered(folder, lambda values: values.update({field: "MIT"}))
    assert message.startswith(f"{folder / RECORD_NAME}: is not a record (field {field!r} belongs to no record")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", "other"),
        ("version", "2"),
        ("license", "ISC"),
        ("sha256", "b" * 64),
        ("num_records", 4),
        ("licences", {"MIT": 2, "ISC": 1}),
        ("tokenizer", "o200k_base"),
        ("counts", {"rows": 4}),
        ("inputs", {}),
    ],
)
def test_a_field_that_was_edited_shows(made: Path, field: str, value: Any) -> None:
    folder = folder_of(made, "normalized")
    assert altered(folder, lambda values: values.update({field: value})) == (
        f"{folder / RECORD_NAME}: identity is not that of its content; materialize its asset again"
    )


@pytest.mark.parametrize("what", MODELS)
def test_when_it_was_fetched_is_no_part_of_what_it_is(made: Path, what: str) -> None:
    path = folder_of(made, what) / RECORD_NAME
    values = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**values, "downloaded_at": "2030-01-01T00:00:00Z"}), "utf-8")
    record = load_record(path.parent)
    assert isinstance(record, RawRecord | NormalizedRecord)
    assert (record.identity, record.downloaded_at) == (values["identity"], datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("what", MODELS)
def test_a_record_that_was_refused_is_made_anew_as_it_was(made: Path, run: Run, what: str) -> None:
    path = folder_of(made, what) / RECORD_NAME
    record = load_record(path.parent)
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "tokenizer": None}), "utf-8")
    made_again = {name: reason for name, reason in run(made).items() if reason}
    kind = "raw" if what == "source" else "normalized"
    assert list(made_again) == [f"{kind} release_pairs"]
    assert made_again[f"{kind} release_pairs"].startswith(
        f"unreadable record: {path}: is not a record (field 'tokenizer'"
    )
    assert load_record(path.parent) == record


def test_a_dataset_that_was_altered_is_not_read_on(made: Path) -> None:
    for what, name in (("source", "release_pairs.jsonl"), ("normalized", "python-00000.parquet")):
        folder = folder_of(made, what)
        with (folder / name).open("ab") as stream:
            stream.write(b"\n")
        with pytest.raises(RecordError) as raised:
            load_verified(folder, "raw" if what == "source" else "normalized")
        assert str(raised.value) == (
            f"{folder}: file {name!r} was altered after it was written; materialize its asset again"
        )
