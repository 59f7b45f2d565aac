"""YAML files into frozen pydantic models: strict, and every fault of a file in one message; and YAML from plain values.

This is the one place that knows YAML. Files are read as YAML 1.2 (`no` is a word, not False; duplicate keys are
an error), up to 1 MiB, without anchors: a configuration that needs them is a program.
"""

import json
import pickle
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.core.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
_MAX_SHOWN = 80
_PLAIN_CHARACTERS = re.compile(r"[\t\n -~\xa0-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
"""Characters that every reader of YAML takes for what they are, without an escape."""
_AMBIGUOUS = re.compile(r"y|n|yes|no|on|off|true|false|null|[=~]|<<|[-+]?\.(inf|nan)|[-+.]*[0-9].*", re.IGNORECASE)
"""What some version of YAML takes for a truth, a number, a date or nothing, where it is not in quotes."""


class Config(BaseModel):
    """The base of everything that is configured: unknown keys are refused, values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


ConfigT = TypeVar("ConfigT", bound=BaseModel)


def load_yaml(path: Path, model: type[ConfigT], overrides: Mapping[str, Any] | None = None) -> ConfigT:
    """Read `path` into `model`; `overrides` replaces single values by dotted key, before validation, as `--set` does.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or does not fit; one line `path: key: reason` per fault, or
            `--set key: reason` where the value is one of `overrides`.
    """
    return validate(read_tree(path, overrides), model, str(path), tuple(overrides or ()))


def read_tree(path: Path, overrides: Mapping[str, Any] | None = None) -> Any:
    """Return what `path` holds, with `overrides` in it, before any of it is validated.

    Raises:
        ConfigError: as `load_yaml`, where it cannot be read, is not YAML, or a value cannot be put there.
    """
    tree = parse_yaml(_text(path), str(path))
    for key, value in (overrides or {}).items():
        put(tree, key, value, "--set")
    return tree


def validate(tree: Any, model: type[ConfigT], source: str, set_keys: Sequence[str] = ()) -> ConfigT:
    """Return `tree` as `model`; `source` stands before every fault, and `--set` before those of `set_keys`.

    Raises:
        ConfigError: as `load_yaml`.
    """
    try:
        # through JSON's rules: strict, yet a list may become a tuple and a string an enum member
        return model.model_validate_json(json.dumps(tree, allow_nan=False))
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise ConfigError(
            "\n".join(f"{_place(fault, tree, source, set_keys)}: {_explain(fault, model)}" for fault in faults)
        ) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: a value is neither text, number, list nor mapping ({error}); quote it") from None


def parse_yaml(text: str, source: str) -> Any:
    """Return the plain value of one YAML 1.2 document.

    Raises:
        ConfigError: it is too large, not one YAML document, or uses anchors, tags or duplicate keys.
    """
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigError(f"{source}: is larger than {MAX_BYTES} bytes; expected a hand-written file")
    try:
        return pickle.loads(_pickle_document(text))
    except _NotPlainError as error:
        raise ConfigError(f"{source}: {error}") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise ConfigError(f"{source}: {position}: not valid YAML: {error.problem or error.context}") from None
    except (YAMLError, RecursionError, ValueError, LookupError, TypeError) as error:  # some are of the reader itself
        first = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"{source}: not valid YAML: {first}") from None


@lru_cache(maxsize=64)
def _pickle_document(text: str) -> bytes:
    """Return the value of a document as bytes of which whoever asks makes a value of their own.

    A process reads the same few files for every stage and every asset, and the reader takes 5 ms for one of them.
    """
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.Parser = _plain_parser()
    return pickle.dumps(yaml.load(StringIO(text)))


def to_yaml(tree: Mapping[str, Any]) -> str:
    """Return `tree`, of the kinds of values that JSON has, as one document that `parse_yaml` reads as the same.

    Texts of several lines are literal blocks (`|`), others plain where any reader takes that for a text.
    """
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # it starts as None
    yaml.width = sys.maxsize
    yaml.indent(mapping=2, sequence=4, offset=2)
    # of this instance: `add_representer` would change every writer of the process
    yaml.representer.yaml_representers = {**yaml.representer.yaml_representers, str: _represent_text}
    yaml.representer.ignore_aliases = lambda _: True
    document = StringIO()
    yaml.dump(tree, document)
    return document.getvalue()


def _represent_text(representer: Any, text: str) -> Any:
    style = None
    if not _PLAIN_CHARACTERS.fullmatch(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    elif _AMBIGUOUS.fullmatch(text):
        style = "'"
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=style)


class _NotPlainError(Exception):
    """A document holds more than a hand-written file needs."""


@cache
def _plain_parser() -> type[Any]:
    """Return the parser that refuses, at the first of them, events that a hand-written file does not need."""
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentStartEvent
    from ruamel.yaml.parser import Parser

    class PlainParser(Parser):
        depth = 0

        def get_event(self) -> Any:
            event = super().get_event()
            if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
                raise _NotPlainError("uses a YAML anchor or alias (&name, *name); write the value out")
            if getattr(event, "tag", None):
                raise _NotPlainError(f"uses a YAML tag ({event.tag}); write the value without it")
            if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
                raise _NotPlainError("asks for another version of YAML than 1.2; take the %YAML line out")
            # the parser takes time in the square of the depth
            self.depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if self.depth > MAX_DEPTH:
                raise _NotPlainError(f"is nested deeper than {MAX_DEPTH} levels")
            return event

    return PlainParser


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from None


def _place(fault: Any, tree: Any, source: str, set_keys: Sequence[str]) -> str:
    """Return where a fault is: in `source`, or in the one of `set_keys` that put the value there."""
    key, value = list[str](), tree
    for step in fault["loc"]:
        inner = value.get(step) if isinstance(value, Mapping) else None
        # below a union stands the `kind` of the member that was tried, which nobody typed
        if inner is not None or not isinstance(value, Mapping) or value.get("kind") != step:
            key.append(str(step))
            value = inner
    for set_key in sorted(set_keys, key=len, reverse=True):
        parts = set_key.split(".")
        if key[: len(parts)] == parts or (fault["type"] == "extra_forbidden" and parts[: len(key)] == key):
            return f"--set {'.'.join(key)}"
    return f"{source}: {'.'.join(map(str, fault['loc'])) or '(whole file)'}"


def _explain(fault: Any, model: type[BaseModel]) -> str:
    if fault["type"] == "extra_forbidden":
        return f"unknown key; known here: {', '.join(known_keys(model, fault['loc'][:-1])) or 'none'}"
    value = repr(fault["input"])
    value = value if len(value) <= _MAX_SHOWN else value[: _MAX_SHOWN - 3] + "..."
    return f"{fault['msg'][0].lower()}{fault['msg'][1:]}" + ("" if fault["type"] == "missing" else f" (got {value})")


def known_keys(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the keys of the model at `location`, as far as the annotations lead there."""
    models = [model]
    for step in location:
        # below a union stands the `kind` of the member that was tried
        tagged = [member for member in models if step in get_args(_annotation(member, "kind"))]
        inner = [nested for member in models for nested in _models_in(_annotation(member, step))]
        models = (tagged if len(models) > 1 else inner) or models
    return sorted({key for member in models for key in member.model_fields})


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _annotation(model: type[BaseModel], field: str) -> Any:
    return model.model_fields[field].annotation if field in model.model_fields else None


def put(tree: Any, dotted: str, value: Any, source: str) -> None:
    """Set a value of nested mappings by dotted key.

    Raises:
        ConfigError: something on the way is no mapping; `source` stands before the key.
    """
    keys = dotted.split(".")
    for depth, key in enumerate(keys):
        if not isinstance(tree, dict):
            parent = repr(".".join(keys[:depth])) if depth else "the file"
            raise ConfigError(f"{source} {dotted}: cannot be set, {parent} is not a mapping")
        if depth < len(keys) - 1:
            tree = tree.setdefault(key, {})
    tree[keys[-1]] = value
