"""TOML files of people: read with a bound, and their faults said with the key that was meant."""

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from graftline.core.errors import ConfigError

MAX_BYTES = 1 << 20


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file holds.

    Raises:
        ConfigError: it cannot be read, is larger than a hand-written one, or no TOML.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a TOML file") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_BYTES} bytes; expected a hand-written file")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def why(fault: Any, model: type[BaseModel], flat: Mapping[type[BaseModel], Collection[str]]) -> str:
    """Return what is wrong, with the key that was meant; `flat` are names that a table has beside its fields."""
    if fault["type"] == "extra_forbidden":
        known = sorted(_keys(model, fault["loc"][:-1], flat))
        return f"unknown key{meant(str(fault['loc'][-1]), known)}; known here: {', '.join(known)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def meant(given: str, known: Sequence[str]) -> str:
    """Return a question about the name that is near to what was given; empty where none is."""
    close = get_close_matches(given, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _keys(model: type[BaseModel], location: Sequence[Any], flat: Mapping[type[BaseModel], Collection[str]]) -> set[str]:
    """Return the keys of the table at `location`."""
    models = [model]
    for step in location:
        below = [
            found for one in models if step in one.model_fields for found in _tables(one.model_fields[step].annotation)
        ]
        models = below or models
    return {key for one in models for key in (*one.model_fields, *flat.get(one, ()))}


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _tables(inner)
