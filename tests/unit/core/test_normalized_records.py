"""Stored records of normalized datasets: what they have to say beside what the raw files say."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from graftline.core.build import Contents, Request, build
from graftline.core.record import ArtifactRecord, NormalizedRecord, load_record

RAW = {
    "source": "demo",
    "version": "1",
    "license": "MIT",
    "downloaded_at": "2026-01-02T03:04:05+00:00",
    "sha256": "a" * 64,
    "num_records": 2,
}
NORMALIZED = {**RAW, "licenses": {"MIT": 2}, "tokenizer": "characters/4"}


def normalized(folder: Path, **changes: Any) -> ArtifactRecord:
    contract = {name: value for name, value in {**NORMALIZED, **changes}.items() if value is not ...}
    return build(folder, Request("normalized", "demo", "c0de"), lambda _: Contents({}, contract)).record


def test_a_normalized_record_says_licenses_and_tokenizer_as_well(tmp_path: Path) -> None:
    record = normalized(tmp_path / "normalized")
    assert isinstance(record, NormalizedRecord)
    assert (record.licenses, record.tokenizer, record.source) == ({"MIT": 2}, "characters/4", "demo")
    assert load_record(tmp_path / "normalized") == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, ...) for field in NORMALIZED),
        ("licenses", {"MIT": "many"}),
        ("licenses", ["MIT"]),
        ("licenses", None),
        ("tokenizer", ""),
        ("tokenizer", None),
        ("surprise", 1),
    ],
)
def test_a_normalized_artifact_is_not_made_with_a_field_missing_or_malformed(
    tmp_path: Path, field: str, value: Any
) -> None:
    with pytest.raises(ValidationError, match=field):
        normalized(tmp_path / "normalized", **{field: value})
    assert (tmp_path / "normalized").exists() is False
