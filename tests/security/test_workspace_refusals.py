"""What a workspace refuses to hold, and what foreign code that works in one cannot make its owner do."""

import ctypes
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from graftline.errors import DataError, SandboxError
from graftline.sandbox.workspace_limits import WorkspaceLimits
from graftline.sandbox.workspaces import Workspaces

LIMITS = WorkspaceLimits()
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this; run as root")


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[Workspaces]:
    with Workspaces(tmp_path / "workspaces", LIMITS) as opened:
        yield opened


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that nothing in a workspace may reach."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


def is_untouched(outside: Path) -> bool:
    return [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_text() == "secret"


REFUSED = [
    ("", "is empty"),
    (".", "must stay inside"),
    ("..", "must stay inside"),
    ("../a", "must stay inside"),
    ("a/../../b", "must stay inside"),
    ("a/..", "must stay inside"),
    ("/a", "must be relative"),
    ("//a", "must be relative"),
    ("./a", "write it as 'a'"),
    ("a//b", "write it as 'a/b'"),
    ("a/./b", "write it as 'a/b'"),
    ("a/", "write it as 'a'"),
    ("a/.", "write it as 'a'"),
    ("C:/a", "forward slashes"),
    ("a:b", "forward slashes"),
    ("a\\b", "forward slashes"),
    ("..\\a", "forward slashes"),
    ("CON", "reserved name"),
    ("con", "reserved name"),
    ("a/Nul.py", "reserved name"),
    ("com1.txt", "reserved name"),
    ("LPT9", "reserved name"),
    ("aux.tar.gz", "reserved name"),
    ("a.", "reserved name"),
    ("a ", "reserved name"),
    ("a./b", "reserved name"),
    ("...", "reserved name"),
    ("a*b", "reserved one"),
    ("a?", "reserved one"),
    ('a"', "reserved one"),
    ("<a>", "reserved one"),
    ("a|b", "reserved one"),
    ("a\0b", "control character"),
    ("a\nb", "control character"),
    ("a\tb", "control character"),
    ("\x1b[31m", "control character"),
    ("a\x7f", "control character"),
    ("a\ud800", "control character"),
    ("\udcff", "control character"),
    ("a" * 256, "255 bytes"),
    ("é" * 128, "255 bytes"),
    ("a/" * 600 + "b", "1024 are accepted"),
    ("x" * 10_000_000, "1024 are accepted"),
    ("a/" * 32 + "b", "nested deeper than 32"),
    ("sgconfig.yml", "native code"),
    ("sgconfig.yaml", "native code"),
    ("SGCONFIG.YML", "native code"),
    ("a/b/SgConfig.yaml", "native code"),
    ("sgconfig.yml/a.py", "native code"),
    ("\u017fgconfig.yml", "native code"),  # a long s is an s where case does not count
]


@pytest.mark.parametrize(("name", "reason"), REFUSED, ids=[ascii(name)[:30] for name, _ in REFUSED])
def test_a_name_that_some_system_takes_otherwise_is_refused(
    workspaces: Workspaces, tmp_path: Path, name: str, reason: str
) -> None:
    workspace = workspaces.prepare("t", {})
    for refused in (
        lambda: workspaces.prepare("t", {name: "x"}),
        lambda: workspaces.write(workspace, {name: b"x"}),
    ):
        with pytest.raises(DataError, match=reason) as caught:
            refused()
        assert len(str(caught.value)) < 12_000
    assert (workspaces.read(workspace), len(list((tmp_path / "workspaces").glob("t-*")))) == ({}, 1)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        ".gitignore",
        "a b.py",
        "console.py",
        "com10",
        "a..b",
        "-x",
        "--config=x",
        "$(id)",
        "é/漢字.py",
        "a" * 255,
        "mysgconfig.yml",
        "sgconfig.yml.bak",
        ".partial-" + "0" * 32,
        "/".join("a" * 32),
    ],
)
def test_a_name_that_means_the_same_everywhere_is_accepted(workspaces: Workspaces, name: str) -> None:
    workspace = workspaces.prepare("t", {name: "x"})
    workspaces.write(workspace, {name: b"y"})
    assert workspaces.read(workspace) == {name: b"y"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.py", "A.py"),
        ("a/b.py", "A/c.py"),
        ("a/b.py", "a/B.PY"),
        ("straße", "STRASSE"),
        ("\u00e9", "e\u0301"),
        ("\u00c9", "e\u0301"),
        ("\u212a", "k"),  # the sign for kelvin
        ("a", "a/b"),
        ("a/b/c", "a/b"),
        ("A", "a/b"),
    ],
)
def test_two_names_that_are_one_to_some_system_are_refused(workspaces: Workspaces, one: str, other: str) -> None:
    with pytest.raises(DataError, match="rename one of them"):
        workspaces.prepare("t", {one: "x", other: "y"})
    workspace = workspaces.prepare("t", {one: "x"})
    with pytest.raises(DataError, match="rename one of them"):
        workspaces.write(workspace, {other: b"y"})
    assert workspaces.read(workspace) == {one: b"x"}


def test_names_that_collide_are_refused_when_they_are_read(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "x"})
    (workspace / "A.py").touch()
    with pytest.raises(DataError, match=r"files 'A\.py' and 'a\.py': are the same to some systems"):
        workspaces.read(workspace)


@pytest.mark.parametrize("content", ["\ud800", "a\udcffb"])
def test_a_text_that_is_no_unicode_is_refused(workspaces: Workspaces, content: str) -> None:
    with pytest.raises(DataError, match=r"^file 'a\.py': character \d is half of a surrogate pair"):
        workspaces.prepare("t", {"a.py": content})


def bound_socket(path: Path) -> None:
    # a path of its own length, for that of a socket is limited
    here = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


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
    seen, refusals = [], 0
    with swapping(workspace / "d", outside, tmp_path):
        for _ in range(1000):
            try:
                seen += [content for path, content in workspaces.read(workspace).items() if path.endswith("/secret")]
            except DataError:
                refusals += 1
    assert set(seen) <= {b"own"}
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
    seen: set[bytes] = set()
    with swapping(workspace / "d" / "f", outside / "secret", tmp_path):
        for _ in range(3000):
            with suppress(DataError):
                seen.update(workspaces.read(workspace).values())
        for _ in range(100):
            with suppress(DataError):
                workspaces.write(workspace, {"d/f": b"own"})
    assert seen == {b"own"}
    assert is_untouched(outside)


def test_a_folder_that_turns_into_a_link_is_never_emptied(
    workspaces: Workspaces, outside: Path, tmp_path: Path
) -> None:
    for _ in range(10):
        workspace = workspaces.prepare("t", {f"d/{number}/f": "own" for number in range(20)})
        with swapping(workspace / "d", outside, tmp_path), suppress(SandboxError):
            workspaces.cleanup(workspace)
    assert is_untouched(outside)


def deepen(folder: Path, levels: int) -> None:
    """Make a chain of folders that no path can name as a whole."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


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


@contextmanager
def as_nobody() -> Iterator[Path]:
    """Be a user without privileges, with a folder of its own that it can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)
            os.setegid(0)


@needs_root
def test_folders_without_any_rights_are_removed_by_a_user_without_privileges() -> None:
    with as_nobody() as folder, Workspaces(folder / "w", LIMITS) as workspaces:
        workspace = workspaces.prepare("t", {"a/b": "1"})
        lock_up(workspace)
        workspaces.cleanup(workspace)
        assert not workspace.exists()


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


@contextmanager
def mounted(place: Path, size_bytes: int) -> Iterator[None]:
    """Put a small disk at `place`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(place), b"tmpfs", 0, f"size={size_bytes},mode=700".encode()):
        pytest.skip(f"no tmpfs can be mounted here ({os.strerror(ctypes.get_errno())})")
    try:
        yield
    finally:
        libc.umount2(os.fsencode(place), 2)
