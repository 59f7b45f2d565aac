"""Values as they travel between tests and the process of the code under test, and the link that carries them.

Nothing that arrives is ever executed: what is plain comes as JSON that names its exact type, and everything else is a
number that its owner knows an object by. Each side decides what becomes of such numbers (`remote_objects` for tests,
`code_process` for the code). Whoever reads trusts no byte: another form than this is a `LinkError`.
"""

import importlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from graftline.sandbox.inside import frames

LINK = (3, 4)
"""What the process of the code reads questions from, and writes answers to."""
_MOST_BYTES = 32 << 20
_DEPTH = 100
_SMALL = 1 << 62
_STANDARD: Mapping[str, tuple[str, Callable[[Any], list[Any]]]] = {
    "range": ("builtins", lambda value: [value.start, value.stop, value.step]),
    "slice": ("builtins", lambda value: [value.start, value.stop, value.step]),
    "Decimal": ("decimal", lambda value: [str(value)]),
    "Fraction": ("fractions", lambda value: [value.numerator, value.denominator]),
    "date": ("datetime", lambda value: [value.year, value.month, value.day]),
    "time": ("datetime", lambda value: [value.hour, value.minute, value.second, value.microsecond, value.tzinfo]),
    "datetime": ("datetime", lambda value: [*value.timetuple()[:6], value.microsecond, value.tzinfo]),
    "timedelta": ("datetime", lambda value: [value.days, value.seconds, value.microseconds]),
    "timezone": ("datetime", lambda value: [value.utcoffset(None)]),
    "UUID": ("uuid", lambda value: [value.hex]),
    "PosixPath": ("pathlib", lambda value: [str(value)]),
    "PurePosixPath": ("pathlib", lambda value: [str(value)]),
    "OrderedDict": ("collections", lambda value: [[*value.items()]]),
    "Counter": ("collections", lambda value: [{**value}]),
    "deque": ("collections", lambda value: [[*value], value.maxlen]),
}
"""Types of the standard library that travel by value: where they are, and what they are made of anew."""
_SEQUENCES: Mapping[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_SINGLE: Mapping[str, Any] = {"NotImplemented": NotImplemented, "Ellipsis": Ellipsis}
MUTABLE = (list, dict, set, bytearray)
_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_PLAIN = frozenset((*_SCALARS, *MUTABLE, defaultdict, *_SEQUENCES.values(), *_VIEWS))


def is_plain(kind: type) -> bool:
    """Return whether objects of `kind`, and not of a subclass, travel by value."""
    return kind in _PLAIN or _is_standard(kind)


def _is_standard(kind: type) -> bool:
    module, _ = _STANDARD.get(kind.__name__, ("", None))
    # whoever has such an object has loaded its module; loading it here takes longer than all else
    return bool(module) and getattr(sys.modules.get(module), kind.__name__, None) is kind


class LinkError(Exception):
    """The other side has gone, or sent what has no valid form."""


class CodeEndedError(LinkError):
    """The other side has gone."""


def encode(value: Any, export: Callable[[Any], Any], depth: int = 0) -> Any:
    """Return `value` as JSON; `export` does it for whatever is not plain."""
    kind = type(value)
    if value is None or kind is bool or (kind is int and -_SMALL < value < _SMALL):
        return value
    if kind is str:
        return value if value.isascii() else {"str": value.encode("utf-8", "surrogatepass").hex()}
    if depth > _DEPTH:
        raise ValueError(f"a value that is nested more than {_DEPTH} levels deep cannot be sent")

    def inner(part: Any) -> Any:
        return encode(part, export, depth + 1)

    if kind is list:
        return [inner(part) for part in value]
    if kind is dict or kind is defaultdict:
        return {"dict": [[inner(key), inner(part)] for key, part in value.items()]}
    if kind in (tuple, set, frozenset):
        return {"is": kind.__name__, "of": [[inner(part) for part in value]]}
    if kind is int:
        return {"int": hex(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes or kind is bytearray:
        return {kind.__name__: value.hex()}
    if _is_standard(kind):
        return {"is": kind.__name__, "of": [inner(part) for part in _STANDARD[kind.__name__][1](value)]}
    if kind in _VIEWS:
        return {"view": _VIEWS[kind], "of": [inner(part) for part in value]}
    for name, single in _SINGLE.items():
        if value is single:
            return {"single": name}
    return export(value)


def decode(tree: Any, resolve: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Return the value of `tree`; `resolve` does it for what is not plain. LinkError if it has no valid form."""
    try:
        return _decode(tree, resolve)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
        raise LinkError(f"a value of no valid form ({type(error).__name__})") from None


def _decode(tree: Any, resolve: Callable[[Mapping[str, Any]], Any]) -> Any:
    if tree is None or isinstance(tree, (bool, int, str)):
        return tree
    if isinstance(tree, list):
        return [_decode(part, resolve) for part in tree]
    if not isinstance(tree, dict):
        raise ValueError("no value has this form")
    match tree:
        case {"dict": list(pairs)}:
            return {_decode(key, resolve): _decode(part, resolve) for key, part in pairs}
        case {"str": str(digits)}:
            return bytes.fromhex(digits).decode("utf-8", "surrogatepass")
        case {"int": str(digits)}:
            return int(digits, 16)
        case {"float": str(digits)}:
            return float.fromhex(digits)
        case {"complex": [str(real), str(imaginary)]}:
            return complex(float.fromhex(real), float.fromhex(imaginary))
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"bytearray": str(digits)}:
            return bytearray.fromhex(digits)
        case {"is": str(name), "of": list(parts)}:
            arguments = [_decode(part, resolve) for part in parts]
            kind: Any = _SEQUENCES.get(name) or getattr(importlib.import_module(_STANDARD[name][0]), name)
            return kind(*arguments)
        case {"view": str(name), "of": list(parts)}:
            values = [_decode(part, resolve) for part in parts]
            of_view: Mapping[str, Callable[[], dict[Any, Any]]] = {
                "keys": lambda: dict.fromkeys(values),
                "values": lambda: dict(enumerate(values)),
                "items": lambda: dict(values),
            }
            return getattr(of_view[name](), name)()
        case {"single": str(name)}:
            return _SINGLE[name]
    return resolve(tree)


class Link:
    """Questions and answers over two descriptors, strictly one inside the other: who waits for an answer also serves.

    A question is `{"ask": number, …}`, its answer `{"answer": number, …}`. An answer with another number than that of the
    last question ends the link, so that none can be given before it is asked for, twice, or to somebody else.
    """

    def __init__(self, reader: int, writer: int, serve: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        self._reader, self._writer, self._serve = reader, writer, serve
        self._number = 0

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to `question`; LinkError if there is none of a valid form."""
        self._number += 1
        number = self._number
        self._send({"ask": number, **question})
        while True:
            frame = self._receive()
            if frame is None:
                raise CodeEndedError("the process of the code under test has ended")
            if "ask" in frame:
                self.answer(frame)
            elif frame.get("answer") == number:
                return frame
            else:
                raise LinkError("an answer to another question than the last one")

    def serve(self) -> None:
        """Answer questions until the other side closes."""
        while (frame := self._receive()) is not None:
            self.answer(frame)

    def answer(self, question: Mapping[str, Any]) -> None:
        """Answer one question."""
        self._send({**self._serve(question), "answer": question["ask"]})

    def _send(self, frame: Mapping[str, Any]) -> None:
        try:
            frames.send(self._writer, json.dumps(frame, separators=(",", ":")).encode())
        except OSError:
            raise CodeEndedError("the process of the code under test has ended") from None

    def _receive(self) -> Mapping[str, Any] | None:
        try:
            data = frames.receive(self._reader, _MOST_BYTES)
            frame = {} if data is None else json.loads(data)
        except OverflowError as error:
            raise LinkError(str(error)) from None
        except (ValueError, RecursionError):
            raise LinkError("a message that is no JSON") from None
        if data is None:
            return None
        if not isinstance(frame, dict):
            raise LinkError("a message of no valid form")
        return frame
