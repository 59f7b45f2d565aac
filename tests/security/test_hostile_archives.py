"""Archives that are made to do harm: each is refused, and nothing is written, beside its folder or in it."""

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.harbor.archive import ArchiveLimits, check_archive, unpack
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.packager import HarborPackager

POSIX, GNU, OLD = b"ustar\x0000", b"ustar  \0", bytes(8)
END = bytes(1024)
LIMITS = ArchiveLimits(archive_bytes=1 << 20, content_bytes=256 << 10, entries=20)


def header(
    name: bytes,
    kind: bytes = b"0",
    size: int | bytes = 0,
    target: bytes = b"",
    prefix: bytes = b"",
    magic: bytes = POSIX,
    mode: bytes = b"0000644\0",
    checksum: int | None = None,
) -> bytes:
    """Return one block, whose fields are exactly those."""
    length = size if isinstance(size, bytes) else b"%011o\0" % size
    start = (
        name.ljust(100, b"\0") + mode.ljust(8, b"\0") + b"0000000\0" * 2 + length.ljust(12, b"\0") + b"0" * 11 + b"\0"
    )
    end = kind + target.ljust(100, b"\0") + magic + bytes(80) + prefix.ljust(155, b"\0") + bytes(12)
    value = sum(start) + sum(end) + 8 * 32 if checksum is None else checksum
    block = start + b"%06o\0 " % value + end
    assert len(block) == 512
    return block


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def file(name: bytes, content: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    return header(name, kind, len(content), **fields) + padded(content)


def folder(name: bytes) -> bytes:
    return header(name, b"5", mode=b"0000755\0")


def link(name: bytes, target: bytes, kind: bytes = b"2") -> bytes:
    return header(name, kind, target=target)


def pax(content: bytes, kind: bytes = b"x") -> bytes:
    return file(b"pax", content, kind)


def said(**records: bytes) -> bytes:
    """Return the records of a PAX header."""
    lines = []
    for key, value in records.items():
        record = b" %b=%b\n" % (key.replace("__", ".").encode(), value)
        length = len(record) + 1
        while length != len(record) + len(str(length)):
            length = len(record) + len(str(length))
        lines.append(b"%d%b" % (length, record))
    return b"".join(lines)


def gnu(text: bytes, kind: bytes = b"L") -> bytes:
    return file(b"././@LongLink", text + b"\0", kind, magic=GNU)


def packed(*parts: bytes) -> bytes:
    return gzip.compress(b"".join(parts) + END, mtime=0)


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "a")
    return buffer.getvalue()


A = file(b"a", b"hello")
TREE = A + folder(b"dir/") + file(b"dir/b", b"there")
SOUND = packed(TREE)
NAMES: Mapping[str, bytes] = {
    "absolute": b"/etc/passwd",
    "absolute by two slashes": b"//etc/passwd",
    "above": b"../a",
    "above, further down": b"dir/../../a",
    "up and down": b"dir/../a",
    "the folder above": b"..",
    "up at the end": b"dir/..",
    "three dots and a blank": b"... ",
    "backslash": b"dir\\a",
    "above by backslash": b"..\\a",
    "drive": b"C:/a",
    "drive without a slash": b"C:a",
    "stream of another system": b"a:hidden",
    "line break": b"a\nb",
    "tab": b"a\tb",
    "escape": b"a\x1b[2J",
    "delete": b"a\x7f",
    "less than": b"a<b",
    "quote": b'a"b',
    "bar": b"a|b",
    "question mark": b"a?b",
    "star": b"a*b",
    "device of another system": b"con",
    "device with a suffix": b"dir/AUX.txt",
    "port": b"lpt1",
    "dot at the end": b"a.",
    "blank at the end": b"a ",
    "two slashes": b"dir//a",
    "dot within": b"dir/./a",
    "two dots before": b"././a",
    "slash at the end of a file": b"a/",
    "the folder itself": b".",
    "the folder itself, with a slash": b"./",
    "not UTF-8": b"\xff\xfe",
    "half of a surrogate pair": b"\xed\xa0\x80",
    "overlong": b"\xc0\xaf",
    "long part": b"x" * 256,
    "long": b"/".join([b"x" * 90] * 12),
    "long in bytes alone": "/".join(["ü" * 100] * 6).encode(),
}
NOT_IN_USTAR = {"long part", "long", "long in bytes alone"}
LINKS: Mapping[str, tuple[bytes, str]] = {
    "absolute": (b"/etc/passwd", "is not a relative path"),
    "above": (b"../outside", "leaves the context"),
    "above, by the way of a folder": (b"dir/../../outside", "leaves the context"),
    "above, and in again": (b"../target/a", "leaves the context"),
    "to nothing": (b"nowhere", "leads to nothing that is packed"),
    "to itself": (b"link", "leads to or through another link"),
    "to its folder": (b".", "leads to a folder that it is in"),
    "to its folder, by another way": (b"dir/..", "leads to a folder that it is in"),
    "through a file": (b"a/../dir", "leads through a file"),
    "to a file as a folder": (b"a/", "leads through a file"),
    "through nothing": (b"nowhere/../a", "leads to nothing that is packed"),
    "to another link": (b"dir/link", "leads to or through another link"),
    "through another link": (b"twin/b", "leads to or through another link"),
    "by backslash": (b"..\\outside", "leads to nothing that is packed"),
    "to nowhere at all": (b"", "is not a relative path"),
    "to a root of another system": (b"C:/a", "leads to nothing that is packed"),
}
MALFORMED: Mapping[str, bytes] = {
    "no length": b"path=a\n",
    "length of nought": b"0 path=a\n",
    "length with a nought before it": b"010 path=a\n",
    "length too great": b"99 path=a\n",
    "length too small": b"5 path=a\n",
    "length of many digits": b"9" * 5000 + b" path=a\n",
    "length below nought": b"-9 path=a\n",
    "no sign between": b"8 patha\n",
    "no line break": b"9 path=ab",
    "zeros after it": b"9 path=a\n\0\0\0",
    "key that is not UTF-8": b"6 \xff=a\n",
    "name that is not UTF-8": b"9 path=\xff\n",
    "name with a zero byte": said(path=b"a\0b"),
    "empty name": said(path=b""),
    "two names": said(path=b"x") + said(path=b"y"),
    "another size": said(size=b"6"),
    "size that is no number": said(size=b"x"),
    "sparse file": said(GNU__sparse__major=b"1", GNU__sparse__minor=b"0", GNU__sparse__name=b"x"),
    "other characters": said(hdrcharset=b"BINARY"),
    "what is not known": said(custom=b"x"),
}
GZIP_OF_A_KIND = {"flags that are reserved": b"\x1f\x8b\x08\xe0", "method that is none": b"\x1f\x8b\x07\x00"}

HOSTILE: dict[str, bytes] = {
    **{f"file: {kind}": packed(file(name)) for kind, name in NAMES.items() if kind not in NOT_IN_USTAR},
    **{f"file, by PAX: {kind}": packed(pax(said(path=name)), file(b"x")) for kind, name in NAMES.items()},
    **{f"file, by GNU: {kind}": packed(gnu(name), file(b"x", magic=GNU)) for kind, name in NAMES.items()},
    **{
        f"folder: {kind}": packed(folder(NAMES[kind] + b"/x/"))
        for kind in ("absolute", "above", "up and down", "backslash", "two slashes", "line break", "drive")
    },
    **{f"link called: {kind}": packed(A, link(NAMES[kind], b"a")) for kind in ("absolute", "above", "backslash")},
    "file: above by the field before the name": packed(header(b"a", prefix=b"..")),
    "file: absolute by the field before the name": packed(header(b"a", prefix=b"/etc")),
    **{
        f"link: {kind}": packed(TREE, link(b"dir/link", b"b"), link(b"twin", b"dir"), link(b"link", target))
        for kind, (target, _) in LINKS.items()
    },
    **{
        f"link, by PAX: {kind}": packed(TREE, link(b"dir/link", b"b"), pax(said(linkpath=LINKS[kind][0])), link(b"link", b"a"))
        for kind in ("absolute", "above", "to another link")
    },
    "link, by PAX: zero byte": packed(A, pax(said(linkpath=b"a\0b")), link(b"link", b"a")),
    "link, by GNU: above": packed(A, gnu(b"../outside", b"K"), header(b"link", b"2", target=b"a", magic=GNU)),
    "link: longer than a path": packed(A, pax(said(linkpath=b"./" * 4000 + b"a")), link(b"link", b"a")),
    "links: each to the other": packed(link(b"x", b"y"), link(b"y", b"x")),
    "link: to the folder above its own": packed(folder(b"d/"), folder(b"d/e/"), link(b"d/e/up", b"..")),
    "link and a file below it": packed(folder(b"d/"), link(b"x", b"d"), file(b"x/evil")),
    "file below a link that comes later": packed(folder(b"d/"), file(b"x/evil"), link(b"x", b"d")),
    "link in the place of a folder": packed(TREE, link(b"dir", b"a")),
    "link in the place of a file": packed(TREE, link(b"a", b"dir/b")),
    "file in the place of a link": packed(TREE, link(b"x", b"a"), file(b"x")),
    "hard link": packed(A, link(b"x", b"a", b"1")),
    "hard link to a file outside": packed(link(b"x", b"/etc/passwd", b"1")),
    "hard link to a link": packed(A, link(b"x", b"a"), link(b"y", b"x", b"1")),
    "hard link with a content": packed(A, header(b"x", b"1", 5, b"a"), padded(b"other")),
    "link with a content": packed(A, header(b"x", b"2", 5, b"a"), padded(b"other")),
    "folder with a content": packed(header(b"x/", b"5", 5), padded(b"other")),
    "character device": packed(header(b"null", b"3")),
    "block device": packed(header(b"disk", b"4")),
    "FIFO": packed(header(b"pipe", b"6")),
    "contiguous file": packed(file(b"x", b"x", b"7")),
    "sparse file of GNU": packed(file(b"x", b"x", b"S", magic=GNU)),
    "rest of a file of another volume": packed(file(b"x", b"x", b"M", magic=GNU)),
    "label of a volume": packed(header(b"x", b"V", magic=GNU)),
    "list of a folder": packed(file(b"x", b"Ya\0", b"D", magic=GNU)),
    "extended header of Solaris": packed(file(b"x", said(path=b"y"), b"X")),
    "kind that is unknown": packed(header(b"x", b"Z")),
    "the same file twice": packed(A, A),
    "the same file twice, written in another way": packed(A, file(b"./a")),
    "the same folder twice": packed(folder(b"d/"), folder(b"d/")),
    "the same link twice": packed(A, link(b"x", b"a"), link(b"x", b"a")),
    "file that is a folder": packed(file(b"x"), folder(b"x/")),
    "file below a file": packed(file(b"x"), file(b"x/y")),
    "file below a file that comes later": packed(file(b"x/y"), file(b"x")),
    "names that differ in case": packed(file(b"Makefile"), file(b"makefile")),
    "folders that differ in case": packed(file(b"src/a"), file(b"SRC/b")),
    "names that differ in how they are composed": packed(file("é".encode()), file("e\u0301".encode())),
    "names that differ in a letter that folds to two": packed(file("straße".encode()), file(b"strasse")),
    **{f"PAX: {kind}": packed(pax(content), A) for kind, content in MALFORMED.items()},
    "PAX: two headers of one file": packed(pax(said(path=b"x")), pax(said(linkpath=b"y")), A),
    "PAX: name, and one of GNU": packed(pax(said(path=b"x")), gnu(b"y"), A),
    "PAX: name of every file": packed(pax(said(path=b"../a"), b"g"), A),
    "PAX: size of every file": packed(pax(said(size=b"5"), b"g"), A),
    "PAX: header of nothing": packed(A, pax(said(mtime=b"1"))),
    "PAX: header that claims the rest": packed(header(b"pax", b"x", 8**11 - 1), A),
    "PAX: header too large": packed(pax(said(comment=b"x" * (64 << 10))), A),
    "PAX: headers too many": gzip.compress(pax(said(comment=b"x" * 65_000), b"g") * 520 + A + END, 1, mtime=0),
    "GNU: two names": packed(gnu(b"x"), gnu(b"y"), A),
    "GNU: name of nothing": packed(A, gnu(b"x")),
    "GNU: name that claims the rest": packed(header(b"././@LongLink", b"L", 8**11 - 1, magic=GNU), A),
    "size: below nought": packed(header(b"x", size=b"\xff" * 12)),
    "size: in another notation": packed(header(b"x", size=b"\x80" + bytes(10) + b"\1"), padded(b"x")),
    "size: with a line below": packed(header(b"x", size=b"0000000_005\0"), padded(b"hello")),
    "size: with a letter before": packed(header(b"x", size=b"0o000000005\0"), padded(b"hello")),
    "size: with a sign": packed(header(b"x", size=b"+0000000005\0"), padded(b"hello")),
    "size: no number": packed(header(b"x", size=b"hello\0")),
    "size: none": packed(header(b"x", size=bytes(12))),
    "size: eight gigabytes": packed(header(b"x", size=8**11 - 1)),
    "mode: no number": packed(header(b"x", mode=b"rwxrwxr\0")),
    "layout that is unknown": packed(header(b"x", magic=b"ustar\x0001")),
    "layout of 1979 with a name before the name": packed(header(b"a", prefix=b"..", magic=OLD)),
    "layout of GNU with a name before the name": packed(header(b"a", prefix=b"..", magic=GNU)),
    "sum of the first header": packed(header(b"x", checksum=1), A),
    # other programs take it for the end of the archive
    "sum of the second header": packed(A, header(b"x", checksum=1), TREE),
    "random block": packed(random.Random(1).randbytes(512)),
    "text in the place of a header": packed(A, b"hello".ljust(512, b"!")),
    "no end": gzip.compress(TREE),
    "end of one block": gzip.compress(TREE + bytes(512)) + gzip.compress(b"x" * 511),
    "cut off in a header": gzip.compress(TREE[:700]),
    "cut off in a content": gzip.compress(file(b"x", b"x" * 2000)[:1400]),
    "cut off before the padding": gzip.compress(header(b"x", size=5) + b"hello"),
    "content after the end": gzip.compress(TREE + END + A),
    "padding without an end": gzip.compress(TREE + END + bytes(2 << 20)),
    "nothing": b"",
    "one byte": b"\x1f",
    "two bytes": b"\x1f\x8b",
    "head of gzip alone": SOUND[:10],
    "gzip of nothing": gzip.compress(b""),
    "gzip of a text": gzip.compress(b"hello" * 300),
    "gzip within gzip": gzip.compress(SOUND),
    "tar without gzip": TREE + END,
    "zip": zipped("../a"),
    "bzip2": bz2.compress(TREE + END),
    "xz": lzma.compress(TREE + END),
    "zlib": zlib.compress(TREE + END),
    "page of a server": b"<!doctype html><title>404</title>",
    **{kind: start + SOUND[4:] for kind, start in GZIP_OF_A_KIND.items()},
    "sum of gzip": SOUND[:-8] + bytes(4) + SOUND[-4:],
    "length of gzip": SOUND[:-4] + struct.pack("<L", 1),
    "without the end of gzip": SOUND[:-8],
    "half": SOUND[: len(SOUND) // 2],
    "text after the end": SOUND + b"hello",
    "zeros after the end": SOUND + bytes(512),
    "gzip after the end": SOUND + packed(file(b"evil")),
    "more than 64 files of gzip": b"".join(gzip.compress(bytes([byte]), mtime=0) for byte in TREE[:70]),
    "files of gzip without a content": SOUND + gzip.compress(b"", mtime=0) * 64,
    "bomb of zeros": gzip.compress(file(b"zeros", bytes(70 << 20)) + END, 9, mtime=0),
    "bomb of zeros after the end": gzip.compress(TREE + END + bytes(70 << 20), 9, mtime=0),
}  # fmt: skip


def listing(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder beside one that is to be reached."""
    (tmp_path / "outside").write_text("untouched")
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "snapshots"


def refused(data: bytes, place: Path, limits: ArchiveLimits = ArchiveLimits()) -> str:  # noqa: B008
    before = listing(place.parent)
    with pytest.raises(DataError) as caught:
        unpack(data, place / "target", limits)
    with pytest.raises(DataError) as again:
        check_archive(data, limits)
    assert listing(place.parent) == before
    assert (place.parent / "outside").read_text() == "untouched"
    assert str(again.value) == str(caught.value)
    return str(caught.value)


def test_there_are_enough_of_them_and_all_are_different() -> None:
    assert len(HOSTILE) >= 200
    assert len(set(HOSTILE.values())) == len(HOSTILE)


def test_what_they_are_made_of_is_sound(place: Path) -> None:
    parts = (
        TREE,
        link(b"dir/link", b"b"),
        link(b"x", b"dir"),
        pax(said(path=b"y", mtime=b"1.5")),
        file(b"n"),
        gnu(b"z"),
        file(b"n", magic=GNU),
    )
    unpack(packed(*parts), place / "target")
    assert listing(place / "target") == ["a", "dir", "dir/b", "dir/link", "x", "y", "z"]


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive_is_refused_and_nothing_is_written(data: bytes, place: Path) -> None:
    message = refused(data, place)
    assert len(message) < 400
    assert message.isprintable()


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind, (_, fault) in LINKS.items()])
def test_a_link_is_refused_for_where_it_leads(kind: str, fault: str) -> None:
    with pytest.raises(DataError, match=f"symbolic link 'link' to .*: {fault}; put a copy"):
        check_archive(HOSTILE[f"link: {kind}"])


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (gzip.compress(random.Random(1).randbytes(2 << 20)), "bytes; at most 1048576 are accepted"),
        (packed(file(b"x", b"ab" * (200 << 10))), "unpacks to more than 262144 bytes"),
        (packed(*[file(b"%d" % number) for number in range(21)]), "holds more than 20 members"),
        (packed(*[folder(b"%d/" % number) for number in range(21)]), "holds more than 20 members"),
        (packed(*[folder(b"./")] * 21), "holds more than 20 members"),
    ],
    ids=["archive", "content", "files", "folders", "folders that are the top"],
)
def test_an_archive_that_is_too_large_is_refused(data: bytes, fault: str, place: Path) -> None:
    assert fault in refused(data, place, LIMITS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes | str]]:
    """An archive as it is packed, and its tree."""
    top = tmp_path_factory.mktemp("context")
    (top / "dir" / "deeper").mkdir(parents=True)
    (top / "a.txt").write_text("hello\n" * 50)
    (top / "dir" / ("ü" * 60)).write_text("a name that takes a header of its own")
    (top / "dir" / "deeper" / "b.bin").write_bytes(random.Random(2).randbytes(3000))
    (top / "dir" / "link").symlink_to("../a.txt")
    return HarborPackager(HarborBuildSpec(name="a", context_dir=top)).package_bytes().archive, tree(top)


def tree(top: Path) -> dict[str, bytes | str]:
    """Return what is below a folder, and where it stands."""
    value: dict[str, bytes | str] = {}
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if path.is_symlink():
            assert path.resolve().is_relative_to(top.resolve())
            value[name] = f"to {os.readlink(path)}"  # noqa: PTH115
        else:
            value[name] = path.read_bytes() if path.is_file() else "folder"
    return value


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def shortened(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def shifted(data: bytes, chance: random.Random) -> bytes:
    start, length = chance.randrange(len(data)), chance.randint(1, 600)
    return (
        data[:start] + data[start + length :]
        if chance.random() < 0.5
        else data[:start] + data[start : start + length] + data[start:]
    )


@pytest.mark.parametrize("change", [flipped, shortened, shifted])
def test_a_damaged_archive_is_refused_or_unpacks_to_the_same(
    change: Callable[[bytes, random.Random], bytes], sound: tuple[bytes, dict[str, bytes | str]], place: Path
) -> None:
    data, expected = sound
    chance = random.Random(11)
    refusals = 0
    for number in range(150):
        target = place / str(number)
        try:
            unpack(change(data, chance), target)
        except DataError:
            refusals += 1
            assert not target.exists()
        else:
            assert tree(target) == expected
    assert refusals > 130
    assert listing(place.parent)[0] == "outside"


def test_a_tar_with_other_headers_is_refused_or_stays_in_its_folder(
    sound: tuple[bytes, dict[str, bytes | str]], place: Path
) -> None:
    plain = gzip.decompress(sound[0])
    headers = [start for start in range(0, len(plain), 512) if plain[start + 257 : start + 265] == POSIX]
    chance = random.Random(12)
    refusals = 0
    for number in range(200):
        changed = bytearray(plain)
        start = chance.choice(headers)
        for _ in range(chance.randint(1, 3)):
            position = start + chance.choice([*range(20), *range(100, 108), *range(124, 136), 156, *range(157, 170)])
            changed[position] = chance.choice([*b"/.\\\0007123456ax", chance.randrange(256)])
        block = bytes(changed[start : start + 148]) + b" " * 8 + bytes(changed[start + 156 : start + 512])
        changed[start + 148 : start + 156] = b"%06o\0 " % sum(block)
        try:
            unpack(gzip.compress(bytes(changed), 1), place / str(number))
        except DataError:
            refusals += 1
        else:
            tree(place / str(number))
    assert 40 < refusals < 160
    assert [path.name for path in place.parent.iterdir() if path.name != "snapshots"] == ["outside"]
    assert not [path for path in place.iterdir() if path.name.startswith(".")]
