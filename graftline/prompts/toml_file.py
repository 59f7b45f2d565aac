"""TOML files of people: read with a bound, and their faults told with the key that was meant."""

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


def message_of(fault: Any, model: type[BaseModel], flat_names: Mapping[type[BaseModel], Collection[str]]) -> str:
    """Return what is wrong, with the key that was meant; `flat_names` are keys that a table has beside its fields."""
    if fault["type"] == "extra_forbidden":
        tables = [model]
        for step in fault["loc"][:-1]:
            fields = [table.model_fields[step] for table in tables if step in table.model_fields]
            tables = [below for field in fields for below in _tables(field.annotation)] or tables
        keys = {key for table in tables for key in (*table.model_fields, *flat_names.get(table, ()))}
        return f"unknown key{suggest(str(fault['loc'][-1]), sorted(keys))}; known here: {', '.join(sorted(keys))}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def suggest(name: str, candidates: Sequence[str]) -> str:
    """Return a question about the known name that is near to `name`; empty where none is."""
    close = get_close_matches(name, candidates, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _tables(inner)
