"""Calls of functions under test, whose results are compared outside, where the code under test is not.

Its request is a file of JSON: a module, and calls with their arguments. What comes back is written down by exact type,
so that no object can claim to be equal to another:

    {"nonce", "call": number, "value": as `encode` returns it} or {"nonce", "call": number, "raised": name of the class}
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
    calls = json.loads(Path(folder, REQUEST).read_text("utf-8"))
    write, to_json = os.write, json.JSONEncoder().encode

    def say(line: dict[str, Any]) -> None:
        data = to_json({"nonce": nonce, **line}).encode() + b"\n"
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
            say({"call": number, "value": encode(value)})
    say({"end": len(calls)})


def encode(value: Any, depth: int = 0) -> Any:
    """Return `value` as JSON that tells the exact type of every part; an object of another class is its name alone."""
    kind = type(value)
    if depth > _DEPTH:
        return {"deep": kind.__name__}
    if value is None or kind is bool:
        return value
    if kind is str:
        # half a surrogate pair is no JSON to everybody
        data = value.encode("utf-8", "surrogatepass")
        return value if data.decode("utf-8", "ignore") == value else {"str": data.hex()}
    if kind is int:
        return {"int": str(value) if abs(value) < 1 << 4096 else hex(value)}
    if kind is float:
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind in (list, tuple):
        return {kind.__name__: [encode(part, depth + 1) for part in value]}
    if kind in (set, frozenset):
        parts = [encode(part, depth + 1) for part in value]
        return {kind.__name__: sorted(parts, key=lambda part: json.dumps(part, sort_keys=True))}
    if kind is dict:
        return {"dict": [[encode(key, depth + 1), encode(part, depth + 1)] for key, part in value.items()]}
    return {"object": kind.__name__}


def is_plain(value: Any) -> bool:
    """Return whether `encode` tells all of `value`: it has no object of another class, and is not too deep."""
    pending = [encode(value)]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if {"object", "deep"} & part.keys():
                return False
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return True
