"""What a GGUF file says of itself before its weights: single values, and the shapes of its tensors.

gguf's own reader makes an object of every token of the vocabulary, which takes seconds; here arrays are skipped. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graftline.core.errors import ModelError

_VERSIONS = (2, 3)
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Types of numbers."""
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Of one file."""

    values: Mapping[str, str | int | float]
    """By key; arrays are left out."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the tensors by name; (rows, columns) of a matrix."""


def read_header(path: Path) -> GgufHeader:
    """Return what the file says of itself.

    Raises:
        ModelError: it is none in GGUF, or cannot be read.
    """
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(content).header()
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(f"{path}: is no file in GGUF ({error}); fetch or convert it again") from None


class _Reader:
    """Goes through a file from its beginning."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 0

    def header(self) -> GgufHeader:
        magic, version = self._content[:4], struct.unpack_from("<I", self._content, 4)[0]
        if magic != b"GGUF" or version not in _VERSIONS:
            raise ValueError(f"it begins with {magic!r} and version {version}")
        self._at = 8
        tensors, entries = self._number(10), self._number(10)
        values: dict[str, str | int | float] = {}
        for _ in range(int(entries)):
            key, kind = self._text(), int(self._number(4))
            if kind == _ARRAY:
                self._skip_array()
            else:
                values[key] = self._text() if kind == _STRING else self._number(kind)
        shapes = {}
        for _ in range(int(tensors)):
            name = self._text()
            sizes = [int(self._number(10)) for _ in range(int(self._number(4)))]
            # the file names the columns first
            shapes[name] = tuple(reversed(sizes))
            self._at += 12  # its type, and where it is
        return GgufHeader(values, shapes)

    def _number(self, kind: int) -> int | float:
        format = _FORMATS[kind]
        (value,) = struct.unpack_from(format, self._content, self._at)
        self._at += struct.calcsize(format)
        number: int | float = value
        return number

    def _text(self) -> str:
        size = int(self._number(10))
        if self._at + size > len(self._content):
            raise ValueError("it ends within a text")
        text = self._content[self._at : self._at + size]
        self._at += size
        return text.decode("utf-8", "replace")

    def _skip_array(self) -> None:
        kind, count = int(self._number(4)), int(self._number(10))
        if kind not in (_STRING, _ARRAY):
            self._at += count * struct.calcsize(_FORMATS[kind])
            return
        at, content, size_of = self._at, self._content, struct.Struct("<Q").unpack_from
        for _ in range(count):
            if kind == _ARRAY:
                raise ValueError("it holds arrays of arrays")
            at += 8 + size_of(content, at)[0]
        self._at = at
