"""Stored records: what a raw one has to say, what a reader refuses, and that a text is written whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from graftline.core.build import Contents, Request, build
from graftline.core.errors import RecordError
from graftline.core.record import (
    RECORD_NAME,
    ArtifactRecord,
    NormalizedRecord,
    RawRecord,
    load_record,
    load_verified,
    write_atomically,
)

SHA256 = "a" * 64
CONTRACT = {
    "source": "release_pairs",
    "version": "1",
    "license": "MIT",
    "downloaded_at": "2026-01-02T03:04:05+00:00",
    "sha256": SHA256,
    "num_records": 2,
}
NORMALIZED = {**CONTRACT, "licenses": {"MIT": 2}, "tokenizer": "characters/4"}


def make(folder: Path) -> Contents:
    (folder / "rows.jsonl").write_bytes(b"{}\n{}\n")
    return Contents({"rows": 2}, CONTRACT)


def make_plain(folder: Path) -> Contents:
    (folder / "rows.jsonl").write_bytes(b"{}\n{}\n")
    return Contents({"rows": 2})


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A raw artifact."""
    return build(tmp_path / "source", Request("raw", "release_pairs", "c0de"), make).folder


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """An artifact of a later stage."""
    return build(tmp_path / "train", Request("tasks", "python/train", "c0de"), make_plain).folder


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object], is_identified: bool = True) -> None:
    """Change the stored record, with an identity as if it had been written like that."""
    path = folder / RECORD_NAME
    values = json.loads(path.read_text("utf-8"))
    change(values)
    if is_identified:
        model = RawRecord if values["kind"] == "raw" else ArtifactRecord
        values["identity"] = model.model_validate(values).compute_identity()
    path.write_text(json.dumps(values), "utf-8")


@pytest.mark.parametrize(
    "field", [*CONTRACT, "name", "inputs", "config", "code_version", "files", "counts", "written_at"]
)
def test_a_raw_record_without_a_field_of_the_contract_is_refused(raw: Path, field: str) -> None:
    rewrite(raw, lambda values: values.pop(field), is_identified=False)
    with pytest.raises(RecordError) as raised:
        load_record(raw)
    assert str(raised.value) == (
        f"{raw / RECORD_NAME}: is not a record (field {field!r} is missing); materialize its asset again"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", ""),
        ("version", 1),
        ("license", ["MIT"]),
        ("downloaded_at", "yesterday"),
        ("sha256", "a" * 63),
        ("sha256", SHA256 + "\n"),
        ("num_records", -1),
        ("files", {"a": {"sha256": "x", "size_bytes": 1}}),
        ("files", {"a": {"sha256": SHA256}}),
        ("inputs", {"source": 1}),
        ("counts", {"rows": "many"}),
    ],
)
def test_a_raw_record_with_a_malformed_field_is_refused(raw: Path, field: str, value: Any) -> None:
    rewrite(raw, lambda values: values.update({field: value}), is_identified=False)
    with pytest.raises(RecordError, match=rf"is not a record \(field '{field}[.'].*\); materialize its asset again$"):
        load_record(raw)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("num_records", "many", "field 'num_records' is 'many': input should be a valid integer, unable to parse string"
         " as an integer"),
        ("schema_version", 3, "field 'schema_version' is 3: input should be 1 or 2, which is what this version of graftline"
         " reads"),
        ("files", {"a": {"sha256": SHA256}}, "field 'files.a.size_bytes' is missing"),
        ("surprise", 1, "field 'surprise' belongs to no record of this kind"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_record_is_said_by_field(raw: Path, field: str, value: Any, fault: str) -> None:
    rewrite(raw, lambda values: values.update({field: value}), is_identified=False)
    with pytest.raises(RecordError) as raised:
        load_record(raw)
    assert str(raised.value) == f"{raw / RECORD_NAME}: is not a record ({fault}); materialize its asset again"


def test_only_a_raw_artifact_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="license"):
        build(tmp_path / "train", Request("tasks", "python/train", "c0de"), make)


def normalized(folder: Path, **changes: Any) -> ArtifactRecord:
    contract = {name: value for name, value in {**NORMALIZED, **changes}.items() if value is not ...}
    return build(folder, Request("normalized", "demo", "c0de"), lambda _: Contents({}, contract)).record


def test_a_normalized_record_says_licenses_and_tokenizer_as_well(tmp_path: Path) -> None:
    record = normalized(tmp_path / "normalized")
    assert isinstance(record, NormalizedRecord)
    assert (record.licenses, record.tokenizer, record.source) == ({"MIT": 2}, "characters/4", "release_pairs")
    assert load_record(tmp_path / "normalized") == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, ...) for field in NORMALIZED),
        ("licenses", {"MIT": "many"}),
        ("licenses", None),
        ("tokenizer", ""),
        ("surprise", 1),
    ],
)
def test_a_normalized_artifact_is_not_made_with_a_field_missing_or_malformed(
    tmp_path: Path, field: str, value: Any
) -> None:
    with pytest.raises(ValidationError, match=field):
        normalized(tmp_path / "normalized", **{field: value})
    assert (tmp_path / "normalized").exists() is False


@pytest.mark.parametrize(
    ("field", "value", "is_other"),
    [
        ("downloaded_at", "2026-05-05T00:00:00+00:00", False),
        ("written_at", "2026-05-05T00:00:00+00:00", False),
        ("code_version", "c1", False),
        ("facts", {"precision": "bfloat16"}, False),
        ("source", "other", True),
        ("version", "2", True),
        ("license", "ISC", True),
        ("sha256", "b" * 64, True),
        ("num_records", 3, True),
        ("name", "other", True),
        ("counts", {"rows": 3}, True),
        ("config", {"a": None}, True),
        ("inputs", {"splits": "2e"}, True),
        ("files", {"a": {"sha256": SHA256, "size_bytes": 1}}, True),
    ],
)
def test_the_identity_of_a_raw_record_is_that_of_its_content(raw: Path, field: str, value: Any, is_other: bool) -> None:
    before = load_record(raw).identity
    rewrite(raw, lambda values: values.update({field: value}))
    assert (load_record(raw).identity != before) == is_other


def test_a_stored_record_is_read_back_equal(raw: Path, plain: Path) -> None:
    for folder, model in ((raw, RawRecord), (plain, ArtifactRecord)):
        text = (folder / RECORD_NAME).read_text("utf-8")
        assert model.model_validate_json(text) == load_record(folder)


def fault(folder: Path, kind: str = "tasks") -> str:
    with pytest.raises(RecordError) as raised:
        load_verified(folder, kind)
    return str(raised.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    assert (
        fault(folder)
        == f"{folder}: has no _meta.json, so it was not made yet; run `graftline run`, or materialize its asset"
    )


def test_an_artifact_of_another_kind_is_refused(plain: Path) -> None:
    assert fault(plain, "splits") == f"{plain}: holds 'tasks', but 'splits' was asked for"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "rows.jsonl").unlink(), "file 'rows.jsonl' is missing"),
        (
            lambda folder: (folder / "rows.jsonl").write_bytes(b"{}\n[]\n"),
            "file 'rows.jsonl' was altered after it was written",
        ),
        (
            lambda folder: (folder / "rows.jsonl").write_bytes(b""),
            "file 'rows.jsonl' was altered after it was written",
        ),
    ],
)
def test_files_that_are_not_the_recorded_ones_are_refused(
    plain: Path, damage: Callable[[Path], object], reason: str
) -> None:
    damage(plain)
    assert fault(plain) == f"{plain}: {reason}; materialize its asset again"


def test_a_recorded_file_outside_the_folder_is_refused(plain: Path) -> None:
    outside = plain.parent / "outside.txt"
    outside.write_bytes(b"{}\n{}\n")

    def move(values: dict[str, Any]) -> None:
        values["files"] = {"../outside.txt": values["files"]["rows.jsonl"]}

    rewrite(plain, move)
    (plain / "rows.jsonl").unlink()
    assert fault(plain) == f"{plain}: file '../outside.txt' is missing; materialize its asset again"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"kind": "tasks",', "Expecting property name enclosed in double quotes: line 1 column 18 (char 17)"),
        (b"[]", "expected an object, got []"),
        (b"null", "expected an object, got None"),
        (b'{"kind": "raw"}', "field 'name' is missing; 12 more"),
        (b'{"kind": "\xe9"}', "'utf-8' codec can't decode byte 0xe9 in position 10: invalid continuation byte"),
    ],
)
def test_a_corrupt_record_is_refused(plain: Path, content: bytes, reason: str) -> None:
    path = plain / RECORD_NAME
    path.write_bytes(content)
    assert fault(plain) == f"{path}: is not a record ({reason}); materialize its asset again"


def test_a_record_that_is_a_folder_is_refused(plain: Path) -> None:
    (plain / RECORD_NAME).unlink()
    (plain / RECORD_NAME).mkdir()
    assert fault(plain) == (
        f"{plain / RECORD_NAME}: is not a record ([Errno 21] Is a directory: '{plain / RECORD_NAME}');"
        " materialize its asset again"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["counts"].update(rows=3),
        lambda values: values.pop("identity"),
        lambda values: values.update(identity="0" * 64),
        lambda values: values.update(config={"rate": float("nan")}),
        lambda values: values.update(kind="splits"),
    ],
)
def test_a_record_that_was_edited_is_refused(plain: Path, change: Callable[[dict[str, Any]], object]) -> None:
    rewrite(plain, change, is_identified=False)
    assert fault(plain) == (f"{plain / RECORD_NAME}: identity is not that of its content; materialize its asset again")


@pytest.mark.parametrize("text", ["", "a\n", "a\r\nb\n", "é\U0001f600\u2028"])
def test_a_text_is_written_as_it_is_in_utf8(tmp_path: Path, text: str) -> None:
    write_atomically(tmp_path / "a.txt", text)
    assert (tmp_path / "a.txt").read_bytes() == text.encode()


def test_writing_makes_the_folders_and_leaves_nothing_else_behind(tmp_path: Path) -> None:
    write_atomically(tmp_path / "b" / "c" / "a.txt", "x")
    write_atomically(tmp_path / "b" / "c" / "a.txt", "y")
    assert [(path.name, path.read_text("utf-8")) for path in (tmp_path / "b" / "c").iterdir()] == [("a.txt", "y")]


def test_a_writing_that_is_cut_off_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    sync, contents = os.fsync, []

    def fail(descriptor: int) -> None:
        sync(descriptor)
        contents.append(path.read_text("utf-8"))
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, "new")
    assert (contents, path.read_text("utf-8")) == (["old"], "old")
