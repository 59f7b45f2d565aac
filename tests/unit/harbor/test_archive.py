"""Archives of contexts, as the service takes them: what is read, and what stands on the disk afterwards."""

import gzip
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graftline.harbor.archive import ArchiveInfo, check_archive, unpack


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, mode: int = 0o644, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.mode, made.linkname = len(content), kind, mode, target
    made.mtime, made.uid, made.uname = 1_700_000_000, 1000, "somebody"
    return made, content


def tarred(*members: tuple[tarfile.TarInfo, bytes], layout: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=layout) as archive:
        for made, content in members:
            archive.addfile(made, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


TREE = (
    member("run.sh", b"exit 0\n", mode=0o6755),
    member("dir", kind=tarfile.DIRTYPE, mode=0o2700),
    member("dir/" + "n" * 150, b"long"),
    member("dir/ü", b"", mode=0o400),
    member("dir/link", kind=tarfile.SYMTYPE, target="../run.sh"),
    member("deep/er/file", b"x" * 1000),
    member("Dockerfile", b"FROM scratch\n"),
)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(top: Path) -> dict[str, int]:
    return {
        str(path.relative_to(top)): stat.S_IMODE(path.lstat().st_mode)
        for path in top.rglob("*")
        if not path.is_symlink()
    }


@pytest.mark.parametrize("layout", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_an_archive_is_read_in_either_layout(tmp_path: Path, layout: int) -> None:
    data = tarred(*TREE, layout=layout)
    unpack(data, tmp_path / "target")
    assert (tmp_path / "target" / "dir" / ("n" * 150)).read_bytes() == b"long"
    content = hashlib.sha256(gzip.decompress(data)).hexdigest()
    assert check_archive(data) == ArchiveInfo(content, "FROM scratch\n")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files_are_written_with_modes_of_our_own(tmp_path: Path, umask: Callable[[int], int], mask: int) -> None:
    umask(mask)
    unpack(tarred(*TREE), tmp_path / "a" / "target")
    assert modes(tmp_path / "a" / "target") == {
        "run.sh": 0o755,
        "dir": 0o755,
        "dir/" + "n" * 150: 0o644,
        "dir/ü": 0o644,
        "deep": 0o755,
        "deep/er": 0o755,
        "deep/er/file": 0o644,
        "Dockerfile": 0o644,
    }
    assert stat.S_IMODE((tmp_path / "a" / "target").stat().st_mode) == 0o755
    assert (tmp_path / "a" / "target" / "dir" / "link").read_bytes() == b"exit 0\n"
    assert (tmp_path / "a" / "target" / "deep" / "er" / "file").read_bytes() == b"x" * 1000
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["target"]


@pytest.mark.parametrize("layout", ["pax", "gnu", "ustar"])
@pytest.mark.skipif(shutil.which("tar") is None, reason="has no tar")
def test_what_tar_makes_of_a_folder_is_read(tmp_path: Path, layout: str) -> None:
    (tmp_path / "context" / "dir").mkdir(parents=True)
    (tmp_path / "context" / "dir" / "a.txt").write_text("a")
    (tmp_path / "context" / "link").symlink_to("dir/a.txt")
    data = subprocess.run(
        ["tar", "czf", "-", f"--format={layout}", "-C", str(tmp_path / "context"), "."], capture_output=True, check=True
    ).stdout
    unpack(data, tmp_path / "target")
    assert (tmp_path / "target" / "link").read_text() == "a"


def test_attributes_and_comments_are_left_aside(tmp_path: Path) -> None:
    made, content = member("a", b"a")
    made.pax_headers = {"SCHILY.xattr.user.x": "y", "comment": "z", "mtime": "1.5"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", pax_headers={"comment": "of git"}) as archive:
        archive.addfile(made, io.BytesIO(content))
    unpack(gzip.compress(buffer.getvalue()), tmp_path / "target")
    assert (tmp_path / "target" / "a").read_bytes() == b"a"
    assert os.listxattr(tmp_path / "target" / "a") == []


def test_an_empty_archive_is_an_empty_folder(tmp_path: Path) -> None:
    unpack(tarred(), tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []
    info = check_archive(tarred())
    assert info.dockerfile is None


@pytest.mark.parametrize(
    "others",
    [
        (member("Dockerfile", b"\xff"),),
        (member("Dockerfile", b"a\0"),),
        (member("Dockerfile", b"#" * ((1 << 20) + 1)),),
        (member("sub/Dockerfile", b"FROM scratch"),),
        (member("Dockerfile", kind=tarfile.DIRTYPE),),
        (member("a", b"FROM scratch"), member("Dockerfile", kind=tarfile.SYMTYPE, target="a")),
    ],
    ids=["not UTF-8", "zero byte", "large", "below", "folder", "link"],
)
def test_a_dockerfile_is_a_text_at_the_top(others: tuple[tuple[tarfile.TarInfo, bytes], ...]) -> None:
    assert check_archive(tarred(*others)).dockerfile is None


def test_an_archive_of_several_gzip_files_is_one() -> None:
    plain = gzip.decompress(tarred(*TREE))
    data = b"".join(gzip.compress(plain[start : start + 1000]) for start in range(0, len(plain), 1000))
    assert check_archive(data) == check_archive(tarred(*TREE))
