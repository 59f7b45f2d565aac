"""A tar.gz of unknown origin, read member by member.

Read is the part of tar that contexts need: files, folders and symbolic links, in ustar with the longer names of PAX or of
GNU. All else is refused rather than read as one of several programs reads it, since the container engine may read the same
bytes later. Python's `tarfile` is no help: it takes a damaged header for the end of an archive, and a sparse file for a file.
"""

import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from graftline.core.errors import DataError
from graftline.harbor.context_tree import MAX_ENTRIES, Entry, check_name
from graftline.sandbox.file_names import short

MAX_RATIO, FREE_BYTES = 500, 64 << 20
"""How many times its own size an archive may unpack to, where that is more than `FREE_BYTES`."""
_BLOCK = 512
_CHUNK_BYTES = 256 << 10
_MAX_HEADER_BYTES, _MAX_HEADERS_BYTES = 64 << 10, 32 << 20
"""Of one extended header, and of all."""
_MAX_PADDING_BYTES = 1 << 20
_MAX_GZIP_MEMBERS = 64
_POSIX, _GNU, _OLD = b"ustar\x0000", b"ustar  \x00", bytes(8)
_OCTAL = re.compile(rb" *([0-7]{1,11})[ \0]*")
_LENGTH = re.compile(rb"([1-9][0-9]{0,5}) ")
_FILES, _FOLDER, _LINK = (b"0", b"\0"), b"5", b"2"
_PAX, _PAX_OF_ALL = b"x", b"g"
_NAMES = {b"L": "path", b"K": "linkpath"}
_IGNORED_FIELDS = frozenset({"mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment", "charset"})
_VENDOR_PREFIXES = ("SCHILY.", "LIBARCHIVE.", "RHT.", "MSWINDOWS.")
"""Attributes of files, which are not unpacked."""
_REFUSED = {
    b"1": "a hard link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file",
}


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much an archive may be."""

    archive_bytes: int = 128 << 20
    content_bytes: int = 512 << 20
    """Unpacked, headers included."""
    entries: int = MAX_ENTRIES
    """Files, folders and links."""


class _Header(NamedTuple):
    kind: bytes
    name: str
    target: str
    size: int
    mode: int


class TarStream:
    """The members of an archive, in its order.

    Every step, the last one too, raises a `DataError` of an archive that is refused; what came before is not to be used
    then.
    """

    def __init__(self, data: bytes, limits: ArchiveLimits) -> None:
        self._plain = _Plain(data, limits)
        self._limits = limits
        self._unread = self._padding = 0

    def __iter__(self) -> Iterator[Entry]:
        count = 0
        extended = _Extended(self._plain)
        while (block := self._plain.take(_BLOCK)) != bytes(_BLOCK):
            header = _header(block)
            if extended.takes(header):
                continue
            entry = _entry(header, *extended.names(header))
            self._unread = _pad_size(entry.size)
            self._padding = self._unread - entry.size
            count += 1
            if count > self._limits.entries:
                raise DataError(f"the archive holds more than {self._limits.entries} members; leave some out")
            if entry.path != ".":
                yield entry
            for _ in self._plain.pieces(self._unread):
                pass
        extended.end()
        self._plain.end()

    def content(self) -> Iterator[bytes]:
        """Yield the content of the member that was yielded last, once."""
        size, self._unread = self._unread - self._padding, self._padding
        yield from self._plain.pieces(size)

    def sha256(self) -> str:
        """Return the digest of what the archive unpacks to, after all of it was read."""
        return self._plain.sha256.hexdigest()


class _Extended:
    """What stands before the header of a member: longer names, as PAX or GNU writes them."""

    def __init__(self, plain: "_Plain") -> None:
        self._plain = plain
        self._size = 0
        self._kinds = set[bytes]()
        self._fields: dict[str, str] = {}

    def takes(self, header: _Header) -> bool:
        """Read a header that is about the next one; return whether it is."""
        if header.kind not in (_PAX, _PAX_OF_ALL, *_NAMES):
            return False
        self._size += header.size + _BLOCK
        if header.size > _MAX_HEADER_BYTES or self._size > _MAX_HEADERS_BYTES:
            raise DataError("the archive has headers that are too large; package it again")
        content = self._plain.take(_pad_size(header.size))[: header.size]
        if header.kind in _NAMES:
            fields = {_NAMES[header.kind]: _text(content.partition(b"\0")[0])}
        else:
            fields = _records(content)
        is_global = header.kind == _PAX_OF_ALL
        if (is_global and fields) or fields.keys() & self._fields.keys() or header.kind in self._kinds:
            raise DataError("the archive says twice what a member is called; package it again")
        self._fields |= fields
        self._kinds |= set() if is_global else {header.kind}
        return True

    def names(self, header: _Header) -> tuple[str, str]:
        """Return path and target of the member whose header this is."""
        if self._fields.get("size", str(header.size)) != str(header.size):
            raise DataError(f"the archive gives {short(header.name)} two sizes; package it again")
        names = self._fields.get("path", header.name), self._fields.get("linkpath", header.target)
        self._fields, self._kinds = {}, set()
        return names

    def end(self) -> None:
        """Refuse a header that is about nothing."""
        if self._kinds:
            raise DataError("the archive ends after a header; package it again")


def _header(block: bytes) -> _Header:
    """Return what a block says, if all programs read it alike."""
    checksum, size, mode = (_OCTAL.fullmatch(block, *place) for place in ((148, 156), (124, 136), (100, 108)))
    if checksum is None or int(checksum[1], 8) != sum(block) - sum(block[148:156]) + 8 * 32:
        raise DataError("the archive is damaged: a header cannot be read; package it again")
    layout = block[257:265]
    if layout not in (_POSIX, _GNU, _OLD) or (layout != _POSIX and any(block[345:500])):
        raise DataError("the archive is of an unknown format; package it again as PAX, GNU or ustar")
    name, target, above = (_text(field.partition(b"\0")[0]) for field in (block[:100], block[157:257], block[345:500]))
    if size is None or mode is None:
        raise DataError(f"the archive says of {short(name)} what is no size or mode; package it again")
    return _Header(block[156:157], f"{above}/{name}" if above else name, target, int(size[1], 8), int(mode[1], 8))


def _records(content: bytes) -> dict[str, str]:
    """Return what a PAX header says that counts here: `12 path=a/b\\n` is a path."""
    fields: dict[str, str] = {}
    keys = set[str]()
    position = 0
    while position < len(content):
        length = _LENGTH.match(content, position)
        record = content[position : position + int(length[1])] if length else b""
        if length is None or len(record) < int(length[1]) or record[-1:] != b"\n" or b"=" not in record:
            raise DataError("the archive is damaged: a PAX header cannot be read; package it again")
        position += len(record)
        raw_key, _, value = record[len(length[0]) : -1].partition(b"=")
        key = _text(raw_key)
        if key in keys:
            raise DataError(f"the archive says twice what {short(key)} is; package it again")
        keys.add(key)
        if key in ("path", "linkpath", "size"):
            fields[key] = _text(value)
        elif key not in _IGNORED_FIELDS and not key.startswith(_VENDOR_PREFIXES):
            raise DataError(
                f"the archive has {short(key)} in a PAX header, which is not read; package it again without"
            )
    return fields


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DataError(f"the archive has {raw[:40]!r} in a header, which is not UTF-8; package it again") from None


def _pad_size(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _entry(header: _Header, name: str, target: str) -> Entry:
    is_folder, is_link = header.kind == _FOLDER, header.kind == _LINK
    if not is_folder and not is_link and header.kind not in _FILES:
        kind = _REFUSED.get(header.kind, f"a member of the type {header.kind!r}")
        raise DataError(f"file name {short(name)}: is {kind}; expected files, folders and symbolic links only")
    if header.size and (is_folder or is_link):
        raise DataError(f"file name {short(name)}: has a content, but is no file; package it again")
    path = name.removesuffix("/") if is_folder else name
    if is_folder and path == ".":
        return Entry(".", is_folder=True)
    path = path.removeprefix("./")
    check_name(path)
    return Entry(path, header.size, is_folder, bool(header.mode & 0o111), target if is_link else None)


class _Plain:
    """What an archive unpacks to, a piece at a time."""

    def __init__(self, data: bytes, limits: ArchiveLimits) -> None:
        self.sha256 = hashlib.sha256()
        self._chunks = self._unpack(data, limits)
        self._rest = memoryview(b"")

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next bytes, exactly so many."""
        while size > 0:
            if not self._rest:
                self._rest = memoryview(next(self._chunks, b""))
                if not self._rest:
                    raise DataError("the archive is cut off; package it again")
            piece = self._rest[:size]
            self._rest = self._rest[len(piece) :]
            size -= len(piece)
            yield bytes(piece)

    def take(self, size: int) -> bytes:
        """Return the next bytes, exactly so many."""
        return b"".join(self.pieces(size))

    def end(self) -> None:
        """Refuse whatever follows the end of the tar, but for zeros up to the size of a record."""
        padding = 0
        for chunk in chain([bytes(self._rest)], self._chunks):
            padding += len(chunk)
            if padding > _MAX_PADDING_BYTES or chunk.count(0) < len(chunk):
                raise _trailing_data()

    def _unpack(self, data: bytes, limits: ArchiveLimits) -> Iterator[bytes]:
        if len(data) > limits.archive_bytes:
            raise DataError(f"the archive has {len(data)} bytes; at most {limits.archive_bytes} are accepted")
        view, position, size, members = memoryview(data), 0, 0, 0
        while not members or position < len(data):
            members += 1
            if data[position : position + 2] != b"\x1f\x8b":
                raise _trailing_data() if members > 1 else DataError("the archive is no gzip; expected a tar.gz")
            if members > _MAX_GZIP_MEMBERS:
                raise DataError(f"the archive is more than {_MAX_GZIP_MEMBERS} gzip files; package it again as one")
            unzip = zlib.decompressobj(wbits=31)
            while not unzip.eof:
                packed: bytes | memoryview = unzip.unconsumed_tail
                if not packed:
                    packed = view[position : position + _CHUNK_BYTES]
                    position += len(packed)
                try:
                    chunk = unzip.decompress(packed, _CHUNK_BYTES)
                except zlib.error as error:
                    raise DataError(f"the archive is damaged ({error}); package it again") from None
                if not packed and not chunk and not unzip.eof:
                    raise DataError("the archive is cut off; package it again")
                size += len(chunk)
                if size > limits.content_bytes or size > max(FREE_BYTES, MAX_RATIO * len(data)):
                    raise DataError(
                        f"the archive unpacks to more than {limits.content_bytes} bytes, or than {MAX_RATIO} times its own"
                        " size; leave files out"
                    )
                self.sha256.update(chunk)
                if chunk:
                    yield chunk
            position -= len(unzip.unused_data)


def _trailing_data() -> DataError:
    return DataError("the archive goes on after its end; package it again")
