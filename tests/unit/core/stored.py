"""What the tests of stored artifacts build, and how they look at it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from graftline.core.build import Contents, Request

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 3, tzinfo=UTC)
REQUEST = Request("tasks", "python/train", "c0de", {"splits": "1d"}, {"seed": 1, "tool": {"version": "2"}})
FILES = {"rows.jsonl": b"{}\n", "deep/more.bin": b"\x00\xff"}


class Maker:
    """Writes the given files and counts how often; keeps what it found in the folder it was given."""

    def __init__(self, files: Mapping[str, bytes] = FILES) -> None:
        self.files = files
        self.calls = 0
        self.found: dict[str, bytes] = {}

    def __call__(self, folder: Path) -> Contents:
        self.calls += 1
        self.found = tree(folder)
        write(folder, self.files)
        return Contents({"rows": 1})


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below `folder`, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def noon() -> datetime:
    return NOON


def append(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as stream:
        stream.write(b"x")
