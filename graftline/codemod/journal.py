"""What was induced from the changes of a history, kept in a file so that an interrupted mining goes on from there."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from pydantic import ValidationError

from graftline.codemod.history import FileChange
from graftline.codemod.mine import Pair, induced_pairs
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import code_version, digest, sha256_text
from graftline.sandbox.actions import SandboxConfig


class _Line(Config):
    key: str
    pairs: tuple[Pair, ...]


class Journal:
    """A file with one line per change; lines of other code than this are not looked at."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, nothing is kept."""
        self._path = path
        self._known: dict[str, tuple[Pair, ...]] = {}
        self._stream: IO[str] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                if self._path.exists():
                    self._known = dict(_lines(self._path))
                self._stream = self._path.open("a", encoding="utf-8")
                if self._stream.tell() and not self._path.read_bytes().endswith(b"\n"):
                    self._stream.write("\n")  # after the line that an interrupt cut
            except OSError as error:
                raise DataError(f"{self._path}: cannot be kept as a journal ({error.strerror}); name a file") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def get(self, change: FileChange) -> tuple[Pair, ...] | None:
        """Return what was induced from `change` before."""
        return self._known.get(_key(change)) if self._known else None

    def add(self, change: FileChange, pairs: Sequence[Pair]) -> None:
        """Keep what was induced from `change`."""
        if self._stream is not None:
            line = _Line(key=_key(change), pairs=tuple(pairs))
            self._stream.write(line.model_dump_json() + "\n")
            self._stream.flush()


@dataclass(slots=True)
class Gathered:
    """The small changes of a history."""

    pairs: list[Pair] = field(default_factory=list)
    changes: int = 0
    is_interrupted: bool = False
    """Whether these are not all of them, for somebody had enough."""


def gathered(
    changes: Iterable[FileChange],
    journal: Journal,
    count: int,
    config: SandboxConfig,
    advance: Callable[[FileChange], None] = lambda change: None,
) -> Gathered:
    """Return the small changes of `changes`, in their order, with what is induced from them on `count` processes.

    An interrupt (Ctrl-C) ends it with what there is until then.

    Raises:
        SandboxError: the sandbox failed.
    """
    found: dict[int, Sequence[Pair]] = {}
    waiting: list[int] = []

    def unknown() -> Iterator[FileChange]:
        for number, change in enumerate(changes):
            known = journal.get(change)
            if known is None:
                waiting.append(number)
                yield change
            else:
                found[number] = known
                advance(change)

    is_interrupted = False
    try:
        for number, (change, pairs) in enumerate(induced_pairs(unknown(), count, config)):
            found[waiting[number]] = pairs
            journal.add(change, pairs)
            advance(change)
    except KeyboardInterrupt:
        is_interrupted = True
    ordered = [pair for number in sorted(found) for pair in found[number]]
    return Gathered(ordered, len(found), is_interrupted)


def _lines(path: Path) -> Iterator[tuple[str, tuple[Pair, ...]]]:
    with path.open("rb") as stream:
        for line in stream:
            try:
                row = _Line.model_validate_json(line)
            except ValidationError:
                continue  # the line that an interrupt cut, or one of another version
            yield row.key, row.pairs


def _key(change: FileChange) -> str:
    sides = sha256_text(change.before), sha256_text(change.after)
    return digest([code_version("graftline.codemod.mine"), change.commit, change.path, change.language, *sides])
