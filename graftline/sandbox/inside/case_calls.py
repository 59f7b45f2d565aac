"""Calls of functions under test, whose results are compared outside, where the code under test is not.

Its request is a file of JSON: a module, and calls with their arguments. What comes back is written down by exact type,
so that no object can claim to be equal to another:

    {"nonce", "call": number, "value": encoded} or {"nonce", "call": number, "raised": name of the class}
    {"nonce", "end": number of calls}
"""

import importlib
import json
import os
from pathlib import Path
from typing import Any

_DEPTH = 64
REQUEST = "calls.json"


def run(module: str, folder: str, report: int, nonce: str) -> None:
    """Import `module` and make the calls that the request names."""
    path = Path(folder, REQUEST)
    calls = json.loads(path.read_text("utf-8"))
    write, encode = os.write, json.JSONEncoder().encode

    def say(line: dict[str, Any]) -> None:
        data = encode({"nonce": nonce, **line}).encode() + b"\n"
        while data:
            data = data[write(report, data) :]

    imported = importlib.import_module(module)
    for number, call in enumerate(calls):
        try:
            function = imported
            for part in call["function"].split("."):
                function = getattr(function, part)
            value = function(*call["args"], **call["kwargs"])  # type: ignore[operator]
        except Exception as error:
            say({"call": number, "raised": type(error).__name__})
        else:
            say({"call": number, "value": encoded(value)})
    say({"end": len(calls)})


def encoded(value: Any, depth: int = 0) -> Any:
    """Return `value` as JSON that tells the exact type of every part; an object of another class is its name alone."""
    kind = type(value)
    if depth > _DEPTH:
        return {"deep": kind.__name__}
    if value is None or kind is bool:
        return value
    if kind is str:
        # half a surrogate pair is no JSON to everybody
        return value if value.isascii() or _is_whole(value) else {"str": value.encode("utf-8", "surrogatepass").hex()}
    if kind is int:
        return {"int": str(value) if abs(value) < 1 << 4096 else hex(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind in (list, tuple):
        return {kind.__name__: [encoded(part, depth + 1) for part in value]}
    if kind in (set, frozenset):
        parts = [encoded(part, depth + 1) for part in value]
        return {kind.__name__: sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))}
    if kind is dict:
        return {"dict": [[encoded(key, depth + 1), encoded(part, depth + 1)] for key, part in value.items()]}
    return {"object": kind.__name__}


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plain(value: Any) -> bool:
    """Return whether `encoded` tells all of `value`: it has no object of another class, and is not too deep."""
    pending = [encoded(value)]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if {"object", "deep"} & part.keys():
                return False
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return True
