"""Files that are read as they come, of which only the rows that can be used are kept."""

import gzip
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError, DownloadError
from graftline.datasets.catalog import DatasetFile
from graftline.datasets.raw_rows import fetch_usable_rows, number_of_rows
from graftline.testing.datasets import memory_hub
from tests.unit.datasets.fixtures import dataset

ENTRY = dataset("agentpack", url="hub/agentpack", keep="wanted")
NAME = "train/part-0000.jsonl.gz"
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-old({0})\n+new({0})\n"


def line(number: int, **changes: Any) -> bytes:
    """Return a wanted row, with blanks and an order of keys of its own."""
    row = {"sha": f"{number:040x}", "repo": "demo/tool", "agent": "claude", "event_id": None, "description": "Call new"}
    return json.dumps({**row, "patch": PATCH.format(number), **changes}).encode().replace(b'"repo": ', b'"repo" :  ')


SEVERAL = line(9, patch=PATCH.format(1) + PATCH.format(2).replace("a.py", "b.py"))
WANTED = [line(number) for number in range(5)]
ROWS = [WANTED[0], b"{", *WANTED[1:3], SEVERAL, b"", line(8, patch="no patch"), *WANTED[3:]]
CONTENT = b"\n".join(ROWS) + b"\n"
PACKED = gzip.compress(CONTENT, mtime=0)  # the time of packing would make other bytes of it a second later
COUNTS = {"rows_in": 8, "rows": 5, "not_kept.malformed_json": 1, "not_kept.several_files": 1, "not_kept.bad_patch": 1}


def keep(
    folder: Path, content: bytes | None, name: str = NAME, pins: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, int]]:
    """Keep the wanted rows of a source that holds `content`, or nothing, below `folder`."""
    hub = memory_hub({} if content is None else {f"hub/agentpack/{name}": content})
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    return fetch_usable_rows(hub, "agentpack", ENTRY, DatasetFile(path=name, **(pins or {})), target, 1 << 20)


def kept(folder: Path, name: str = NAME) -> list[bytes]:
    content = (folder / name).read_bytes()
    return (gzip.decompress(content) if name.endswith(".gz") else content).splitlines()


@pytest.mark.parametrize("name", [NAME, "train/part-0000.jsonl"])
def test_wanted_rows_are_kept_byte_for_byte_and_the_others_counted(tmp_path: Path, name: str) -> None:
    _, counts = keep(tmp_path, PACKED if name.endswith(".gz") else CONTENT, name)
    assert (counts, kept(tmp_path, name)) == (COUNTS, WANTED)


def test_equal_rows_are_equal_bytes_however_they_were_packed(tmp_path: Path) -> None:
    packed = [
        gzip.compress(CONTENT, 1, mtime=1),
        gzip.compress(CONTENT[:300], 9) + gzip.compress(CONTENT[300:], mtime=2),
    ]
    for number, content in enumerate(packed):
        keep(tmp_path / str(number), content)
    first, other = ((tmp_path / str(number) / NAME).read_bytes() for number in range(2))
    assert first == other


def test_a_file_without_a_wanted_row_is_kept_empty_and_counted(tmp_path: Path) -> None:
    assert keep(tmp_path, gzip.compress(b"{\n", mtime=0))[1] == {"rows_in": 1, "rows": 0, "not_kept.malformed_json": 1}
    assert kept(tmp_path) == []


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert (keep(tmp_path, b"")[1], kept(tmp_path)) == ({"rows_in": 0, "rows": 0}, [])


def test_what_comes_before_the_damage_of_a_file_is_kept(tmp_path: Path) -> None:
    first, second = gzip.compress(b"\n".join(ROWS[:3]) + b"\n", mtime=0), PACKED
    _, counts = keep(tmp_path, first + second[:15] + b"\xff" * 40)
    assert (counts["rows"], counts["rows_in"], counts["not_kept.truncated_file"]) == (2, 4, 1)
    assert kept(tmp_path) == WANTED[:2]


def test_a_damaged_file_is_read_to_its_end_for_its_sums(tmp_path: Path) -> None:
    damaged = PACKED + b"garbage" * 500_000
    pins = {"sha256": sha256(damaged).hexdigest(), "size_bytes": len(damaged)}
    fetched, counts = keep(tmp_path, damaged, pins=pins)
    assert (fetched.sha256, fetched.size_bytes) == (pins["sha256"], pins["size_bytes"])
    assert counts == {**COUNTS, "rows_in": 9, "not_kept.truncated_file": 1}


@pytest.mark.parametrize("pins", [{"sha256": "a" * 64}, {"size_bytes": 7}])
def test_a_file_that_is_not_the_pinned_one_is_refused_and_none_is_left(tmp_path: Path, pins: dict[str, Any]) -> None:
    with pytest.raises(DownloadError, match=r"hub/agentpack/train/part-0000\.jsonl\.gz: "):
        keep(tmp_path, PACKED, pins=pins)
    assert not (tmp_path / NAME).exists()


def test_a_file_that_was_read_to_its_end_is_not_read_again(tmp_path: Path) -> None:
    first = keep(tmp_path, PACKED)
    content = (tmp_path / NAME).read_bytes()
    # the source holds nothing any more
    assert keep(tmp_path, None) == first
    assert (tmp_path / NAME).read_bytes() == content


@pytest.mark.parametrize("damage", [b"", b"other"])
def test_a_kept_file_that_was_altered_is_made_again(tmp_path: Path, damage: bytes) -> None:
    first = keep(tmp_path, PACKED)
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(damage)
    assert (keep(tmp_path, PACKED), (tmp_path / NAME).read_bytes()) == (first, content)


def test_what_a_killed_call_left_half_written_is_written_anew(tmp_path: Path) -> None:
    first = keep(tmp_path / "whole", PACKED)
    half = tmp_path / "killed" / "train" / ".part-0000.jsonl.gz.partial"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half a file")
    assert keep(tmp_path / "killed", PACKED) == first
    assert (half.exists(), kept(tmp_path / "killed")) == (False, WANTED)


def test_kept_rows_are_the_rows_of_the_dataset(tmp_path: Path) -> None:
    _, counts = keep(tmp_path, PACKED)
    assert number_of_rows(tmp_path, ENTRY, 1 << 20) == counts["rows"]


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.jsonl.zst"])
def test_only_json_lines_can_be_read_as_they_come(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as error:
        keep(tmp_path, b"", name)
    assert str(error.value) == f"agentpack: {name}: only files of JSON lines can be read with `keep: wanted`"


def test_a_file_that_is_not_there_is_an_error_and_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="no such file in memory"):
        keep(tmp_path, None)
    assert not (tmp_path / NAME).exists()


def test_rows_of_an_evaluation_are_counted_by_their_places(tmp_path: Path) -> None:
    (tmp_path / "exam.jsonl").write_bytes(b'{"a": "x", "b": "y"}\n\n{"a": "z"}\n')
    assert number_of_rows(tmp_path, dataset("evaluation"), 1 << 20) == 2


def test_an_evaluation_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no row of a \.jsonl, \.jsonl\.gz or \.parquet file; mend `files`"):
        number_of_rows(tmp_path, dataset("evaluation"), 1 << 20)
