"""What was exported comes back with the real DVC, in a clone that holds nothing but `.dvc` files."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.paths import Paths
from graftline.core.record import load_verified
from graftline.datasets.dvc import export_dvc

DVC = shutil.which("dvc")
IGNORED = "/data/**\n!/data/**/\n!/data/samples/**\n!/data/**/*.dvc\n"
"""What has git see the `.dvc` files and nothing else; the same lines are in docs/governance.md."""

pytestmark = pytest.mark.skipif(DVC is None, reason="there is no dvc on the PATH; pipx install dvc")

Shell = Callable[..., str]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a command in a folder, apart from the home folder and settings of the user."""
    home = tmp_path / "home"
    home.mkdir()
    identity = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **identity}
    environment |= {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(home / "site")}

    def run(folder: Path, *command: str) -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def store(folder: Path, kind: str, name: str, text: str) -> None:
    """Make an artifact of three files, one of them empty and one in a folder."""

    def make(partial: Path) -> Contents:
        (partial / "sub folder").mkdir()
        (partial / "edits.jsonl").write_text(text, "utf-8")
        (partial / "sub folder" / "ü.bin").write_bytes(bytes(range(256)) * 1000)
        (partial / "empty.txt").write_bytes(b"")
        return Contents({"rows": 1})

    build(folder, Request(kind, name, "code", {}, {"text": text}), make)


def stored(paths: Paths) -> dict[str, bytes]:
    """Return the files of the artifacts, records included."""
    files = (path for path in paths.data.rglob("*") if path.is_file() and path.suffix != ".dvc")
    return {paths.relative(path): path.read_bytes() for path in files if not path.name.startswith(".")}


@pytest.fixture
def paths(tmp_path: Path, shell: Shell) -> Paths:
    """A root under git and DVC with two artifacts, whose remote is a folder."""
    paths = Paths(tmp_path / "root")
    store(paths.division, "division", "all", "{}\n")
    store(paths.partition("processed", "python", "train"), "splits", "python/train", "one\r\n")
    (paths.root / ".gitignore").write_text(IGNORED, "utf-8")
    shell(paths.root, "git", "init", "-q", "-b", "main")
    shell(paths.root, "dvc", "init", "-q")
    shell(paths.root, "dvc", "config", "core.check_update", "false")
    shell(paths.root, "dvc", "remote", "add", "-q", "-d", "storage", str(tmp_path / "storage"))
    return paths


def commit(paths: Paths, shell: Shell, message: str) -> None:
    shell(paths.root, "git", "add", "-A")
    shell(paths.root, "git", "commit", "-q", "-m", message)


def test_a_clone_pulls_the_bytes_that_were_exported_and_follows_their_versions(
    paths: Paths, shell: Shell, tmp_path: Path
) -> None:
    export_dvc(paths, str(tmp_path / "storage"))
    commit(paths, shell, "first")
    first = stored(paths)
    seen = shell(paths.root, "git", "ls-files", "data").split()
    assert seen == ["data/division.dvc", "data/processed/python/train.dvc"]

    clone = Paths(tmp_path / "clone")
    shell(tmp_path, "git", "clone", "-q", str(paths.root), str(clone.root))
    assert stored(clone) == {}
    shell(clone.root, "dvc", "pull", "-q")
    assert stored(clone) == first
    assert load_verified(clone.division, "division") == load_verified(paths.division, "division")

    store(paths.partition("processed", "python", "train"), "splits", "python/train", "two\n")
    export_dvc(paths, str(tmp_path / "storage"))
    commit(paths, shell, "second")
    shell(clone.root, "git", "pull", "-q")
    shell(clone.root, "dvc", "pull", "-q")
    assert stored(clone) == stored(paths) != first
    shell(clone.root, "git", "checkout", "-q", "HEAD~1")
    shell(clone.root, "dvc", "pull", "-q")
    assert stored(clone) == first


def test_dvc_itself_would_write_the_same_and_has_nothing_to_push(paths: Paths, shell: Shell, tmp_path: Path) -> None:
    export_dvc(paths, str(tmp_path / "storage"))
    files = {path: path.read_bytes() for path in paths.data.rglob("*.dvc")}
    objects = {path.relative_to(tmp_path / "storage") for path in (tmp_path / "storage" / "files").rglob("*")}
    shell(paths.root, "dvc", "fetch", "-q")  # the objects went past its cache
    assert shell(paths.root, "dvc", "status").strip() == "Data and pipelines are up to date."
    for path in files:
        path.unlink()
        shell(paths.root, "dvc", "add", "-q", str(path.with_suffix("")))
    assert {path: path.read_bytes() for path in paths.data.rglob("*.dvc")} == files
    shell(paths.root, "dvc", "push", "-q")
    assert {path.relative_to(tmp_path / "storage") for path in (tmp_path / "storage" / "files").rglob("*")} == objects
