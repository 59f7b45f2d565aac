"""What a workspace refuses to hold, to read and to write over."""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.workspaces import Workspaces
from tests.security.foreign_folders import NOBODY, as_nobody, is_untouched, mounted, needs_root

LIMITS = WorkspaceLimits()


def bound_socket(path: Path) -> None:
    # a path of its own length, for that of a socket is limited
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


PLANTED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "link to a file": (lambda path, outside: path.symlink_to(outside / "secret"), "is a symbolic link"),
    "link to a folder": (lambda path, outside: path.symlink_to(outside), "is a symbolic link"),
    "link within": (lambda path, _: path.symlink_to("a.py"), "is a symbolic link"),
    "dangling link": (lambda path, _: path.symlink_to("nowhere"), "is a symbolic link"),
    "link to itself": (lambda path, _: path.symlink_to(path.name), "is a symbolic link"),
    "link to descriptors": (lambda path, _: path.symlink_to("/proc/self/fd"), "is a symbolic link"),
    "hard link": (lambda path, outside: path.hardlink_to(outside / "secret"), "is a hard link"),
    "FIFO": (lambda path, _: os.mkfifo(path), "is a FIFO"),
    "socket": (lambda path, _: bound_socket(path), "is a socket"),
    "large file": (lambda path, _: sparse(path), "is larger than 1024 KB"),
    "project file": (lambda path, _: path.with_name("SGConfig.yml").touch(), "native code"),
    "odd bytes": (lambda path, _: path.with_name("\udcff").touch(), "control character"),
    "backslash": (lambda path, _: path.with_name("a\\b").touch(), "forward slashes"),
    "line break": (lambda path, _: path.with_name("a\nb").touch(), "control character"),
    "reserved": (lambda path, _: path.with_name("nul").touch(), "reserved name"),
    "deep": (lambda path, _: (path / "/".join("a" * 40)).mkdir(parents=True), "nested deeper than 32 levels"),
    "deep file in odd bytes": (
        lambda path, _: (path / "\udcff").mkdir(parents=True) or (path / "\udcff" / "x").touch(),
        "control character",
    ),
}


@pytest.mark.parametrize("at", ["planted", "b/planted"])
@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_no_plain_file_is_not_read(workspaces: Workspaces, outside: Path, kind: str, at: str) -> None:
    plant, reason = PLANTED[kind]
    workspace = workspaces.prepare("t", {"a.py": "1", "b/c.py": "2"})
    plant(workspace / at, outside)
    with pytest.raises(DataError, match=reason):
        workspaces.read(workspace)
    with pytest.raises(DataError, match=reason):
        workspaces.write(workspace, {"a.py": b"3"})
    assert (workspace / "a.py").read_text() == "1"
    workspaces.cleanup(workspace)
    assert not workspace.exists()
    assert is_untouched(outside)


@needs_root
def test_a_device_is_not_opened(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {})
    os.mknod(workspace / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with pytest.raises(DataError, match="'zero': is a device"):
        workspaces.read(workspace)


def test_more_entries_than_are_allowed_are_not_listed(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {})
    for number in range(4001):
        (workspace / str(number)).mkdir()
    with pytest.raises(DataError, match="holds more than 2000 files and as many folders"):
        workspaces.read(workspace)


def test_a_workspace_that_became_a_link_is_not_followed(workspaces: Workspaces, outside: Path) -> None:
    workspace = workspaces.prepare("t", {"secret": "1"})
    shutil.rmtree(workspace)
    workspace.symlink_to(outside)
    with pytest.raises(DataError, match="expected folders and regular files only"):
        workspaces.read(workspace)
    with pytest.raises(DataError, match="expected folders and regular files only"):
        workspaces.write(workspace, {"secret": b"2"})
    workspaces.cleanup(workspace)
    assert (os.path.lexists(workspace), is_untouched(outside)) == (False, True)


@needs_root
def test_a_file_without_rights_is_named_by_a_user_without_privileges() -> None:
    with as_nobody() as folder, Workspaces(folder / "w", LIMITS) as workspaces:
        workspace = workspaces.prepare("t", {"a/b": "1"})
        (workspace / "a" / "b").chmod(0)
        with pytest.raises(DataError, match=r"'a/b': cannot be used \(Permission denied\)"):
            workspaces.read(workspace)


@needs_root
def test_the_folder_of_another_user_is_refused() -> None:
    with as_nobody() as folder, Workspaces(folder / "w", LIMITS):
        os.seteuid(0)
        with pytest.raises(SandboxError, match="belongs to another user"):
            Workspaces(folder / "w", LIMITS)
        os.seteuid(NOBODY)


@needs_root
def test_a_full_disk_is_an_error_of_the_sandbox_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    with mounted(tmp_path / "disk", 1 << 20), Workspaces(tmp_path / "disk", LIMITS) as workspaces:
        with pytest.raises(SandboxError, match="No space left on device"):
            workspaces.prepare("t", {f"{number}": b"x" * 500_000 for number in range(4)})
        workspace = workspaces.prepare("t", {"a": "old"})
        with pytest.raises(SandboxError, match="No space left on device"):
            workspaces.write(workspace, {"a": b"x" * (1 << 20)})
        assert workspaces.read(workspace) == {"a": b"old"}
        assert [path.name for path in (tmp_path / "disk").glob("t-*")] == [workspace.name]
