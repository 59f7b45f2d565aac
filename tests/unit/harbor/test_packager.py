"""Contexts as archives: what is in them, and that they are the same everywhere."""

import base64
import gzip
import hashlib
import io
import os
import random
import string
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.harbor.archive import check_archive, unpack
from graftline.harbor.build_spec import HarborBuildSpec, HarborVerifier
from graftline.harbor.packager import HarborPackager, Package
from tests.conftest import CHECKOUT

TOKEN = "hf_" + "".join(random.Random(3).choices(string.ascii_letters, k=34))
_ANOTHER_PROCESS = """
import os, sys
os.umask(int(sys.argv[2], 8))
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.packager import HarborPackager
print(HarborPackager(HarborBuildSpec(name="a", context_dir=sys.argv[1])).package())
"""


def lay(top: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return top


@pytest.fixture
def context(tmp_path: Path) -> Path:
    top = lay(
        tmp_path / "context",
        {
            "Dockerfile": "FROM scratch\n",
            "run.sh": "exit 0\n",
            "a/b.txt": "b",
            "a-b.txt": "",
            "a.txt": "a",
            "ü/é.txt": "e",
        },
    )
    (top / "run.sh").chmod(0o775)
    (top / "empty").mkdir()
    (top / "a" / "link").symlink_to("../run.sh")
    (top / "folder").symlink_to("a")
    return top


def package(top: Path, max_size_mb: float = 100, **values: Any) -> Package:
    return HarborPackager(HarborBuildSpec(name="a", context_dir=top, **values), max_size_mb).package_bytes()


def refusal(top: Path, max_size_mb: float = 100, **values: Any) -> str:
    with pytest.raises(DataError) as caught:
        package(top, max_size_mb, **values)
    return str(caught.value).replace(str(top), "context")


def members(archive: bytes) -> list[tuple[Any, ...]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return [(m.name, m.type, m.mode, m.size, m.linkname, m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar]


def test_an_archive_holds_files_folders_and_links_in_the_order_of_their_bytes(context: Path) -> None:
    nobody = (0, 0, 0, "", "")
    assert members(package(context).archive) == [
        ("Dockerfile", b"0", 0o644, 13, "", *nobody),
        ("a", b"5", 0o755, 0, "", *nobody),
        ("a-b.txt", b"0", 0o644, 0, "", *nobody),
        ("a.txt", b"0", 0o644, 1, "", *nobody),
        ("a/b.txt", b"0", 0o644, 1, "", *nobody),
        ("a/link", b"2", 0o644, 0, "../run.sh", *nobody),
        ("empty", b"5", 0o755, 0, "", *nobody),
        ("folder", b"2", 0o644, 0, "a", *nobody),
        ("run.sh", b"0", 0o755, 7, "", *nobody),
        ("ü", b"5", 0o755, 0, "", *nobody),
        ("ü/é.txt", b"0", 0o644, 1, "", *nobody),
    ]


def test_a_package_says_what_is_in_it(context: Path) -> None:
    made = package(context, dockerfile_path="Dockerfile")
    files = ("Dockerfile", "a-b.txt", "a.txt", "a/b.txt", "a/link", "folder", "run.sh", "ü/é.txt")
    digest = hashlib.sha256(made.archive).hexdigest()
    assert made == Package(made.archive, digest, 8, 23, files)
    packager = HarborPackager(HarborBuildSpec(name="a", context_dir=context, dockerfile_path="Dockerfile"))
    assert base64.b64decode(packager.package()) == made.archive
    assert packager.get_package_info() == {
        "file_count": 8,
        "total_size_bytes": 23,
        "total_size_mb": 0.0,
        "context_dir": str(context),
        "dockerfile": "Dockerfile",
        "digest": digest,
    }


def test_the_service_takes_the_archive_and_unpacks_the_same_files(context: Path, tmp_path: Path) -> None:
    made = package(context)
    info = check_archive(made.archive)
    assert info.dockerfile == "FROM scratch\n"
    assert info.content_sha256 == hashlib.sha256(gzip.decompress(made.archive)).hexdigest()
    unpack(made.archive, tmp_path / "unpacked")
    assert package(tmp_path / "unpacked") == made


def test_the_bytes_are_the_same_in_every_process_and_whatever_the_disk_says(context: Path, tmp_path: Path) -> None:
    # the same files, made in another order, with other modes and times
    other = tmp_path / "other"
    for path in sorted(context.rglob("*"), reverse=True):
        twin = other / path.relative_to(context)
        twin.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            twin.symlink_to(path.readlink())
        elif path.is_dir():
            twin.mkdir(exist_ok=True)
        else:
            twin.write_bytes(path.read_bytes())
            twin.chmod(0o700 if path.name == "run.sh" else 0o600)
            os.utime(twin, (1, 1))
    (other / "empty").chmod(0o700)
    runs = [
        (context, "000", tmp_path, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LC_ALL": "C"}),
        (other, "077", Path("/"), {"TZ": "America/Lima", "PYTHONHASHSEED": "2", "LANG": "C.UTF-8"}),
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _ANOTHER_PROCESS, str(top), umask],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        for top, umask, folder, environment in runs
    ]
    printed = {process.communicate()[0].strip() for process in running}
    assert printed == {base64.b64encode(package(context).archive).decode()}


def test_ignored_files_and_the_folders_they_are_in_are_not_packed(tmp_path: Path) -> None:
    top = lay(
        tmp_path / "context",
        {
            ".dockerignore": "out\n!out/kept/a.txt\n",
            ".harborignore": "*.log\n",
            "a/.env": "A=1",
            "a/b.log": "b",
            "svc/node_modules/c.js": "c",
            "out/d.txt": "d",
            "out/kept/a.txt": "e",
            "out/other/f.txt": "f",
        },
    )
    names = [name for name, *_ in members(package(top).archive)]
    assert names == [".dockerignore", ".harborignore", "a", "out", "out/kept", "out/kept/a.txt", "svc"]


def test_folders_are_packed_for_what_is_included_of_them(tmp_path: Path) -> None:
    top = lay(tmp_path / "context", {"a/b/c.py": "", "d/e.txt": ""})
    names = [name for name, *_ in members(package(top, include_globs=["*.py"]).archive)]
    assert names == ["a", "a/b", "a/b/c.py"]


def test_what_is_never_packed_is_told_unless_it_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    top = lay(tmp_path / "context", {"a/server.pem": "", ".env": "", "b.txt": ""})
    assert package(top).files == ("b.txt",)
    assert caplog.messages == [f"{top}: 1 never packed, as secrets or of a repository: 'a/server.pem'"]


def test_a_folder_is_never_entered_through_a_link(tmp_path: Path) -> None:
    lay(tmp_path / "outside", {"secret.txt": "secret"})
    top = lay(tmp_path / "context", {"a/b.txt": "b"})
    (top / "link").symlink_to("a")
    assert package(top).files == ("a/b.txt", "link")


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("/etc/passwd", "is not a relative path"),
        ("../outside.txt", "leaves the context"),
        ("a/b.log", "leads to nothing that is packed"),
        ("a/twin", "leads to or through another link"),
    ],
)
def test_a_link_that_leads_anywhere_else_is_refused(tmp_path: Path, target: str, fault: str) -> None:
    lay(tmp_path, {"outside.txt": "secret"})
    top = lay(tmp_path / "context", {"a/b.txt": "b", "a/b.log": "b", ".harborignore": "*.log"})
    (top / "a" / "twin").symlink_to("b.txt")
    (top / "link").symlink_to(target)
    expected = f"context: symbolic link 'link' to {target!r}: {fault}; put a copy in its place, or leave it out"
    assert refusal(top) == expected.replace(str(top), "context")
    assert package(top, exclude_globs=["link"]).files == (".harborignore", "a/b.txt", "a/twin")


def test_a_fifo_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path) == "context: 'pipe' is a FIFO; expected files, folders and symbolic links only"


@pytest.mark.parametrize("name", ["a:b", "aux.txt", "a\\b", "a\nb", "end.", "a?b", b"\xff.txt"])
def test_a_name_that_some_system_does_not_take_is_refused(tmp_path: Path, name: str | bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))  # noqa: PTH118 - no Path of bytes
    with open(path, "wb"):  # noqa: PTH123
        pass
    assert refusal(tmp_path).startswith("context: file name ")


@pytest.mark.parametrize("names", [("a.txt", "A.txt"), ("é.txt", "e\u0301.txt"), ("a/x", "A/y")])
def test_names_that_some_system_takes_for_one_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    assert "are the same to some systems; rename one of them" in refusal(lay(tmp_path, dict.fromkeys(names, "")))


def test_secrets_are_told_by_file_and_line_and_never_shown(tmp_path: Path) -> None:
    top = lay(tmp_path / "context", {"a.py": f"a = 1\nb = '{TOKEN}'\n", "sub/b.txt": TOKEN, "c.txt": "c"})
    message = refusal(top)
    assert message == (
        "context: holds what looks like secrets: a.py, line 2: holds a token of Hugging Face (hf_…); sub/b.txt, line 1:"
        " holds a token of Hugging Face (hf_…); take them out, or name the files in allow_secrets_in"
    )
    assert package(top, allow_secrets_in=("a.py", "sub/b.txt")).files == ("a.py", "c.txt", "sub/b.txt")
    assert "a.py, line 2" in refusal(top, allow_secrets_in=("sub/b.txt",))


def test_the_size_is_known_before_a_file_is_read(tmp_path: Path) -> None:
    lay(tmp_path, {"small.txt": "a"})
    with (tmp_path / "large.bin").open("wb") as stream:
        stream.truncate(1 << 40)  # a file of a terabyte, of which nothing is on the disk
    assert refusal(tmp_path) == (
        "context: what is to be packed has 1099511627777 bytes, and at most 104857600 are accepted; leave files out by"
        " .harborignore, the largest is 'large.bin' with 1099511627776 bytes, or raise max_size_mb"
    )
    (tmp_path / ".harborignore").write_text("*.bin")
    assert package(tmp_path).file_count == 2


def test_the_archive_itself_has_a_size_as_well(tmp_path: Path) -> None:
    lay(tmp_path, {f"{number}/{number}.bin": random.Random(number).randbytes(1024) for number in range(64)})
    assert refusal(tmp_path, max_size_mb=1 / 16).startswith("context: has ")


def test_so_many_files_are_packed_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graftline.harbor.packager.MAX_ENTRIES", 3)
    lay(tmp_path, {"a/b": "", "c": ""})
    assert package(tmp_path).file_count == 2
    lay(tmp_path, {"d": ""})
    assert refusal(tmp_path) == ("context: holds more than 3 files, folders and links; leave some out by .harborignore")


def test_what_a_service_would_take_for_a_bomb_is_refused_here(tmp_path: Path) -> None:
    with (tmp_path / "zeros.bin").open("wb") as stream:
        stream.truncate(70 << 20)
    assert refusal(tmp_path) == "context: packs to less than 1/500 of its size, which services refuse; leave files out"


def test_a_file_that_has_another_size_when_it_is_read_is_an_error() -> None:
    # the kernel says of its files that they are empty
    top = Path("/proc/sys/kernel/random")
    message = "context: 'boot_id' changes while it is packed; wait until it is done, or leave it out"
    assert refusal(top, include_globs=["boot_id"]) == message


def test_a_verifier_is_packed_on_its_own_and_whole(tmp_path: Path) -> None:
    agent = lay(tmp_path / "agent", {"a.py": "", "b.txt": ""})
    grader = lay(
        tmp_path / "grader", {"grade.sh": "exit 0", "c.txt": "", ".env": "", "out.log": "", ".harborignore": "*.log"}
    )
    verifier = HarborVerifier(entrypoint="sh grade.sh", context_dir=grader)
    packager = HarborPackager(HarborBuildSpec(name="a", context_dir=agent, include_globs=["*.py"], verifier=verifier))
    made = packager.package_verifier()
    assert made is not None
    assert (packager.package_bytes().files, made.files) == (("a.py",), (".harborignore", "c.txt", "grade.sh"))
    assert base64.b64decode(made.base64) == made.archive


@pytest.mark.parametrize("size", [0, -1, float("nan")])
def test_a_size_that_is_none_is_refused(context: Path, size: float) -> None:
    with pytest.raises(ValueError, match=r"max_size_mb: .* is no size"):
        HarborPackager(HarborBuildSpec(name="a", context_dir=context), size)
