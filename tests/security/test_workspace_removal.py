"""A workspace is removed whatever foreign code left in it, and nothing else is."""

import os
from pathlib import Path

import pytest

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.workspaces import Workspaces
from tests.security.foreign_folders import as_nobody, is_untouched, mounted, needs_root

LIMITS = WorkspaceLimits()


def deepen(folder: Path, levels: int) -> None:
    """Make a chain of folders that no path can name as a whole."""
    current = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)


def test_a_folder_of_any_depth_is_removed(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {})
    deepen(workspace, 3000)
    workspaces.cleanup(workspace)
    assert not workspace.exists()


def test_a_folder_of_any_width_is_removed(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {})
    for number in range(2500):
        (workspace / f"d{number}").mkdir()
        (workspace / f"f{number}").touch()
    workspaces.cleanup(workspace)
    assert not workspace.exists()


def test_links_are_removed_and_not_what_they_lead_to(workspaces: Workspaces, outside: Path) -> None:
    workspace = workspaces.prepare("t", {"d/f": "1"})
    (workspace / "file").symlink_to(outside / "secret")
    (workspace / "d" / "folder").symlink_to(outside)
    (workspace / "d" / "name").hardlink_to(outside / "secret")
    workspaces.cleanup(workspace)
    assert (workspace.exists(), is_untouched(outside)) == (False, True)


def lock_up(workspace: Path) -> None:
    """Take all rights off folders, names that are no text included."""
    odd = workspace / os.fsdecode(b"d\xff\n")
    (odd / "\udc80" / "e").mkdir(parents=True)
    (odd / "\udc80" / "f").touch()
    for path in (odd / "\udc80" / "e", odd / "\udc80", odd):
        path.chmod(0)
    (workspace / "listed").mkdir()
    (workspace / "listed" / "f").touch()
    (workspace / "listed").chmod(0o400)
    (workspace / "read only").mkdir()
    (workspace / "read only" / "f").touch()
    (workspace / "read only").chmod(0o500)
    workspace.chmod(0)


def test_folders_without_any_rights_are_removed(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a/b": "1"})
    lock_up(workspace)
    workspaces.cleanup(workspace)
    assert not workspace.exists()


@needs_root
def test_folders_without_any_rights_are_removed_by_a_user_without_privileges() -> None:
    with as_nobody() as folder, Workspaces(folder / "w", LIMITS) as workspaces:
        workspace = workspaces.prepare("t", {"a/b": "1"})
        lock_up(workspace)
        workspaces.cleanup(workspace)
        assert not workspace.exists()


@needs_root
def test_a_folder_that_cannot_be_removed_is_an_error_and_tried_again(workspaces: Workspaces, tmp_path: Path) -> None:
    workspace = workspaces.prepare("t", {"a/b": "1"})
    with mounted(workspace / "a", 1 << 20):
        (workspace / "a" / "foreign").touch()
        with pytest.raises(SandboxError, match="folder 'a' in it is another file system"):
            workspaces.cleanup(workspace)
        with pytest.raises(DataError, match="'a': is another file system"):
            workspaces.read(workspace)
        assert (workspace / "a" / "foreign").exists()
    workspaces.cleanup(workspace)
    assert not workspace.exists()
