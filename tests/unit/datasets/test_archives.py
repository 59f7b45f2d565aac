"""Archives of unknown origin: what is read of them, and what is refused."""

import bz2
import gzip
import io
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import pytest

from graftline.core.errors import DataError
from graftline.datasets import archives
from graftline.datasets.archives import archive_path, files_of

FILES = {"a/one.py": b"x = 1\n", "a/two.py": b"y = 2\n"}


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: Mapping[str, bytes], *others: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in others:
            archive.addfile(member)
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def read(folder: Path, content: bytes) -> dict[str, bytes | None]:
    path = folder / "a.archive"
    path.write_bytes(content)
    return {str(name): text for name, text in files_of(path, lambda name: name.suffix == ".py")}


def refusal(folder: Path, content: bytes) -> str:
    with pytest.raises(DataError) as caught:
        read(folder, content)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    "pack",
    [zipped, lambda files: gzip.compress(tarred(files), mtime=0), lambda files: bz2.compress(tarred(files))],
    ids=["zip", "gzip", "bzip2"],
)
def test_wanted_files_are_read_in_the_order_of_the_archive(
    tmp_path: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    assert list(read(tmp_path, pack({**FILES, "a/notes.md": b"#"})).items()) == list(FILES.items())


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    others = (
        special("a/link.py", tarfile.SYMTYPE, "/etc/passwd"),
        special("a/hard.py", tarfile.LNKTYPE, "../../secret.py"),
        special("a/null.py", tarfile.CHRTYPE),
        special("a/pipe.py", tarfile.FIFOTYPE),
        special("a/folder.py", tarfile.DIRTYPE),
        special("a/folder.py", tarfile.DIRTYPE),  # the same folder twice is no harm
    )
    assert read(tmp_path, gzip.compress(tarred(FILES, *others), mtime=0)) == FILES


def test_a_link_in_a_zip_file_is_left_out(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("a/link.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("a/one.py", FILES["a/one.py"])
    assert read(tmp_path, buffer.getvalue()) == {"a/one.py": FILES["a/one.py"]}


@pytest.mark.parametrize("name", ["../one.py", "/one.py", "a/../../one.py", "a\\..\\one.py", "C:\\one.py"])
@pytest.mark.parametrize("pack", [zipped, lambda files: gzip.compress(tarred(files), mtime=0)], ids=["zip", "gzip"])
def test_a_name_that_leaves_the_folder_is_refused_wanted_or_not(
    tmp_path: Path, name: str, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    message = f"a.archive: {name!r} leaves the archive's folder; do not use this release"
    assert refusal(tmp_path, pack({name: b""})) == message
    unwanted = name.replace(".py", ".bin")
    assert refusal(tmp_path, pack({unwanted: b""})) == message.replace(".py", ".bin")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a/one.py", "a//one.py", "./a/one.py"])
def test_two_files_of_one_name_are_refused(tmp_path: Path, second: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/one.py", "seen by one reader")
        archive.writestr(second, "seen by another")
    assert refusal(tmp_path, buffer.getvalue()) == f"a.archive: holds {second!r} twice; do not use this release"


@pytest.mark.parametrize("pack", [zipped, lambda files: gzip.compress(tarred(files), mtime=0)], ids=["zip", "gzip"])
def test_a_wanted_file_that_is_too_large_is_named_without_its_text(
    tmp_path: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    large = {"a/large.py": bytes(archives.MAX_FILE_BYTES + 1), "a/most.py": bytes(archives.MAX_FILE_BYTES)}
    assert read(tmp_path, pack(large)) == {"a/large.py": None, "a/most.py": large["a/most.py"]}


@pytest.mark.parametrize("pack", [zipped, lambda files: gzip.compress(tarred(files), mtime=0)], ids=["zip", "gzip"])
def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    monkeypatch.setattr(archives, "MAX_CONTENT_BYTES", 1 << 20)
    bomb = pack({"a/one.py": bytes(600_000), "a/two.py": bytes(600_000)})
    assert len(bomb) < 10_000
    assert refusal(tmp_path, bomb) == "a.archive: holds more than 1048576 bytes; a release of that size is not read"


def test_an_archive_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 3)
    files = {f"a/{number}.bin": b"" for number in range(4)}
    message = "a.archive: holds more than 3 files; a release of that size is not read"
    assert refusal(tmp_path, zipped(files)) == refusal(tmp_path, gzip.compress(tarred(files), mtime=0)) == message


def test_an_archive_that_is_too_large_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ARCHIVE_BYTES", 10)
    assert refusal(tmp_path, b"PK" + bytes(20)) == "a.archive: is 22 bytes large; at most 10 are read"


def test_a_header_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    header = special("a/header", tarfile.XHDTYPE)
    header.size = 1 << 40
    content = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert refusal(tmp_path, content) == (
        "a.archive: is damaged, or no archive (a header claims 1099511627776 bytes); fetch it again"
    )


def test_headers_of_headers_end_in_a_refusal(tmp_path: Path) -> None:
    header = special("a/header", tarfile.XHDTYPE).tobuf(tarfile.GNU_FORMAT)
    assert refusal(tmp_path, gzip.compress(header * 5000, mtime=0)).startswith("a.archive: is damaged, or no archive (")


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped(FILES))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert refusal(tmp_path, bytes(content)) == (
        "a.archive: 'a/one.py' is encrypted, or packed in a way that is not read;"
        " expected a release as its registry holds it"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is neither zip nor gzip nor bzip2; expected a release as its registry holds it"),
        (b"<html>not found</html>", "is neither zip nor gzip nor bzip2; expected a release as its registry holds it"),
        (gzip.compress(b"no tar file", mtime=0), "is damaged, or no archive (truncated header); fetch it again"),
        (zipped(FILES)[:-30], "is damaged, or no archive (File is not a zip file); fetch it again"),
        (
            gzip.compress(tarred(FILES), mtime=0)[:-30],
            "is damaged, or no archive (Compressed file ended before the end-of-stream marker was reached);"
            " fetch it again",
        ),
        (
            zipped(FILES).replace(b"PK\x01\x02", b"PK\x01\x03"),
            "is damaged, or no archive (Bad magic number for central directory); fetch it again",
        ),
    ],
)
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert refusal(tmp_path, content) == f"a.archive: {reason}"


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(files_of(tmp_path / "none.archive", bool))
    assert str(caught.value) == f"{tmp_path}/none.archive: no such file; fetch the dataset"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_damage_anywhere_is_read_or_refused_but_never_anything_else(tmp_path: Path) -> None:
    rng = random.Random(0)
    whole = [zipped(FILES), tarred(FILES, special("a/link", tarfile.SYMTYPE, "x" * 150))]
    for turn in range(400):
        content = bytearray(whole[turn % 2])
        for _ in range(rng.randint(1, 6)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        packed = bytes(content) if turn % 2 == 0 else gzip.compress(bytes(content), 1)
        try:
            files = read(tmp_path, packed)
        except DataError:
            continue
        assert all(".." not in PurePosixPath(name).parts for name in files)


def test_the_path_of_a_release_tells_names_and_versions_apart() -> None:
    assert archive_path("npm", "@scope/a", "1.0") == "npm/@scope/a@1.0.archive"
    assert archive_path("pypi", "a", "b-1") != archive_path("pypi", "a-b", "1")
