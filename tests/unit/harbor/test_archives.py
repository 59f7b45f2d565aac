"""Archives that come out of containers nobody trusts."""

import io
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from graftline.core.errors import DataError, HarborError
from graftline.harbor.executors.archives import DOCKERFILE, add_dockerfile, pack, read_file, read_files
from tests.rollout_specs import packed_context


def a_tar(*members: tuple[str, bytes | str | None]) -> list[bytes]:
    """Return a tar in small chunks: files of bytes, links to texts, devices."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
                continue
            member.type = tarfile.SYMTYPE if isinstance(content, str) else tarfile.CHRTYPE
            member.linkname = content or ""
            tar.addfile(member)
    whole = archive.getvalue()
    return [whole[start : start + 700] for start in range(0, len(whole), 700)]


@pytest.mark.parametrize(
    ("members", "read"),
    [
        ([("result.json", b"{}")], b"{}"),
        ([("result.json", b"12345678")], b"12345"),
        ([("result.json", "/etc/passwd")], None),
        ([("result.json", None)], None),
        ([("other", b"{}"), ("result.json", b"{}")], None),
        ([], None),
    ],
    ids=["a file", "a large one", "a link", "a device", "another one first", "nothing"],
)
def test_one_regular_file_is_read_up_to_a_bound(
    members: list[tuple[str, bytes | str | None]], read: bytes | None
) -> None:
    assert read_file(a_tar(*members), "result.json", 4) == read


def test_what_is_no_tar_holds_no_file() -> None:
    assert read_file([b"x" * 5000], "x", 4) is None


def test_a_file_that_breaks_off_is_a_failure_and_no_short_file() -> None:
    for read in (lambda chunks: read_file(chunks, "x", 9000), lambda chunks: read_files(chunks, ("x",))):
        with pytest.raises(HarborError, match="a file out of a container broke off"):
            read(a_tar(("x", b"y" * 2000))[:2])


def test_files_of_a_folder_keep_their_place_and_what_leads_elsewhere_is_left_out() -> None:
    members = [
        ("app/a", b"1"),
        ("app/../../b", b"2"),
        ("/etc/c", b"3"),
        ("other/d", b"4"),
        ("app/e", "/etc"),
        ("app/f", None),
    ]
    assert read_files(a_tar(*members), ("src/app",), PurePosixPath("src")) == {"src/app/a": b"1"}
    assert read_files(a_tar(*members, ("src/g", b"5")), ("src", "app")) == {"app/a": b"1", "src/g": b"5"}


def test_more_than_may_travel_is_refused() -> None:
    with pytest.raises(DataError, match="more than 3 bytes"):
        read_files(a_tar(("app/a", b"12"), ("app/b", b"34")), ("app",), limit=3)


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", ""])
def test_nothing_is_packed_outside_of_its_folder(path: str) -> None:
    with pytest.raises(HarborError, match="leads out of the working folder"):
        pack({path: b""})


def test_a_context_gets_its_dockerfile_whatever_is_in_it(tmp_path: Path) -> None:
    target = tmp_path / "context.tar"
    with target.open("wb") as stream:
        add_dockerfile(packed_context({DOCKERFILE: "of somebody else", "a": "1"}).archive(), "FROM scratch", stream)
    with tarfile.open(target) as tar:
        assert {member.name: tar.extractfile(member).read() for member in tar} == {
            DOCKERFILE: b"FROM scratch",
            "a": b"1",
        }  # type: ignore[union-attr]


@pytest.mark.parametrize("archive", [b"", b"no archive", packed_context().archive()[:60]])
def test_a_context_that_is_no_archive_is_refused(archive: bytes) -> None:
    with pytest.raises(DataError, match=r"the context is not a tar\.gz"):
        add_dockerfile(archive, "FROM scratch", io.BytesIO())
