"""What foreign code that swaps files for links while it works cannot make the owner of a workspace do."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.workspaces import Workspaces
from tests.security.foreign_folders import is_untouched

SWAP = """
import ctypes, os, sys
libc, place, link = ctypes.CDLL(None), *map(os.fsencode, sys.argv[1:])
print("ready", flush=True)
while True:
    libc.renameat2(-100, place, -100, link, 2)  # exchange
"""


@contextmanager
def swapping(place: Path, target: Path, beside: Path) -> Iterator[None]:
    """Let `place` be itself and a link to `target` by turns, and nothing else in between."""
    link = Path(tempfile.mkdtemp(dir=beside)) / "link"
    link.symlink_to(target)
    process = subprocess.Popen([sys.executable, "-c", SWAP, str(place), str(link)], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


def test_a_folder_that_turns_into_a_link_is_never_followed_by_a_reader(
    workspaces: Workspaces, outside: Path, tmp_path: Path
) -> None:
    workspace = workspaces.prepare("t", {"d/secret": "own", "e": "1"})
    contents, refusals = [], 0
    with swapping(workspace / "d", outside, tmp_path):
        for _ in range(1000):
            try:
                contents += [
                    content for path, content in workspaces.read(workspace).items() if path.endswith("/secret")
                ]
            except DataError:
                refusals += 1
    assert set(contents) <= {b"own"}
    assert refusals > 0


def test_a_folder_that_turns_into_a_link_is_never_followed_by_a_writer(
    workspaces: Workspaces, outside: Path, tmp_path: Path
) -> None:
    workspace = workspaces.prepare("t", {"d/secret": "own"})
    refusals = 0
    with swapping(workspace / "d", outside, tmp_path):
        for _ in range(300):
            try:
                workspaces.write(workspace, {"d/secret": b"own", "d/new": b"own", "d/deep/new": b"own"})
            except DataError:
                refusals += 1
    assert is_untouched(outside)
    assert refusals > 0


def test_a_file_that_turns_into_a_link_is_never_followed(workspaces: Workspaces, outside: Path, tmp_path: Path) -> None:
    workspace = workspaces.prepare("t", {"d/f": "own"})
    contents: set[bytes] = set()
    with swapping(workspace / "d" / "f", outside / "secret", tmp_path):
        for _ in range(3000):
            with suppress(DataError):
                contents.update(workspaces.read(workspace).values())
        for _ in range(100):
            with suppress(DataError):
                workspaces.write(workspace, {"d/f": b"own"})
    assert contents == {b"own"}
    assert is_untouched(outside)


def test_a_folder_that_turns_into_a_link_is_never_emptied(
    workspaces: Workspaces, outside: Path, tmp_path: Path
) -> None:
    for _ in range(10):
        workspace = workspaces.prepare("t", {f"d/{number}/f": "own" for number in range(20)})
        with swapping(workspace / "d", outside, tmp_path), suppress(SandboxError):
            workspaces.cleanup(workspace)
    assert is_untouched(outside)
