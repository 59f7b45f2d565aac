"""`_meta.json` of a dataset as the stages write it, and what a normalized record has beside a raw one.

The contract of both, field by field, has `tests/unit/core/test_record_contract.py`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import RecordError
from graftline.core.hashing import sha256_file
from graftline.core.record import RECORD_NAME, NormalizedRecord, RawRecord, load_record
from tests.lineages import Run

PLAIN = ("name", "inputs", "config", "code_version", "files", "counts", "written_at")
OF_DATASETS = ("source", "version", "license", "downloaded_at", "sha256", "num_records")
OF_NORMALIZED = ("licenses", "tokenizer")
MODELS = {"source": RawRecord, "normalized": NormalizedRecord}


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
        "licenses": {"MIT": 3},
        "tokenizer": "characters/4",
    }


def test_the_record_of_every_file_has_its_size_and_checksum(made: Path) -> None:
    folder = folder_of(made, "normalized")
    files = {path.name: path for path in folder.iterdir() if path.name != RECORD_NAME}
    assert sorted(files) == ["dropped.parquet", "python-00000.jsonl", "python-00000.parquet"]
    found = {name: (file.sha256, file.size_bytes) for name, file in load_record(folder).files.items()}
    assert found == {name: (sha256_file(path), path.stat().st_size) for name, path in files.items()}


def test_licenses_are_counted_by_the_row(made: Path, run: Run) -> None:
    sample = made / "data" / "samples" / "release_pairs.jsonl"
    lines = sample.read_text("utf-8").splitlines(keepends=True)
    allowed, refused = lines[1].replace('"MIT"', '"ISC"'), lines[2].replace('"MIT"', '"AGPL-3.0-only"')
    sample.write_text(lines[0] + allowed + refused, "utf-8")
    run(made)
    record = load_record(folder_of(made, "normalized"))
    assert isinstance(record, NormalizedRecord)
    assert (record.licenses, record.counts["dropped.license"]) == ({"ISC": 1, "MIT": 1}, 1)


@pytest.mark.parametrize("field", OF_NORMALIZED)
def test_a_normalized_record_without_a_field_of_its_own_is_refused(made: Path, field: str) -> None:
    folder = folder_of(made, "normalized")
    assert altered(folder, lambda values: values.pop(field)) == (
        f"{folder / RECORD_NAME}: is not a record (field {field!r} is missing); materialize its asset again"
    )


@pytest.mark.parametrize("what", MODELS)
def test_a_record_that_leaves_out_its_schema_version_is_of_this_version(made: Path, what: str) -> None:
    path = folder_of(made, what) / RECORD_NAME
    record = load_record(path.parent)
    values = json.loads(path.read_text("utf-8"))
    assert values.pop("schema_version") == 2
    path.write_text(json.dumps(values), "utf-8")
    assert load_record(path.parent) == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("licenses", value) for value in (None, ["MIT"], {"MIT": "three"}, {"MIT": None}, {"MIT": 0.5})),
        *(("tokenizer", value) for value in ("", None, 4)),
        # no field of the contract
        ("downloaded_by", "me"),
    ],
)
def test_a_normalized_record_with_a_malformed_field_is_refused(made: Path, field: str, value: Any) -> None:
    folder = folder_of(made, "normalized")
    assert altered(folder, lambda values: values.update({field: value})).startswith(
        f"{folder / RECORD_NAME}: is not a record (field '{field}"
    )


@pytest.mark.parametrize("field", OF_NORMALIZED)
def test_a_raw_record_has_no_field_of_a_normalized_one(made: Path, field: str) -> None:
    folder = folder_of(made, "source")
    message = altered(folder, lambda values: values.update({field: "MIT"}))
    assert message.startswith(f"{folder / RECORD_NAME}: is not a record (field {field!r} belongs to no record")


@pytest.mark.parametrize(("field", "value"), [("licenses", {"MIT": 2, "ISC": 1}), ("tokenizer", "o200k_base")])
def test_a_field_of_a_normalized_record_that_was_edited_shows(made: Path, field: str, value: Any) -> None:
    folder = folder_of(made, "normalized")
    assert altered(folder, lambda values: values.update({field: value})) == (
        f"{folder / RECORD_NAME}: identity is not that of its content; materialize its asset again"
    )


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
