"""How an answer is to be given: its layout, the forms of its action, and the JSON schema of both.

The schema keeps to what the grammars of vLLM and of llama.cpp both know: no references, all properties in the order in which
they are to be written.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from graftline.astgrep.action import PatternAction
from graftline.core.config import Config
from graftline.rollouts.state.state import MAX_CHARACTERS, StateUpdate

ActionForm = Literal["plain", "pattern", "rule"]
"""`plain`: a pattern and its rewrite; `pattern`: with selector and strictness, too; `rule`: a whole ast-grep rule."""

Layout = Literal["json", "tags", "action", "thought"]
"""`json`: one object, by a schema that the server keeps the model to; `tags`: for models that need no such help; `action`:
the action alone, by a schema too, for models that are trained to say nothing else; `thought`: a line of thought before it,
for models that are trained to say that."""

BY_SCHEMA: frozenset[Layout] = frozenset({"json", "action"})
"""Layouts that a JSON schema can say."""

_MAX_NOTES = 3


class AnswerFormat(Config):
    """How a model is to answer."""

    layout: Layout = "json"
    forms: tuple[ActionForm, ...] = Field(default=("plain",), min_length=1)
    """Of actions; others are read all the same."""
    max_characters: int = Field(default=400, ge=64, le=4096)
    """Of the thought, and of every text of an action."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """What an answer has to fit."""
        make = answer_schema if self.layout in ("json", "tags") else action_schema
        return make(self.forms, self.max_characters)


def answer_schema(forms: Sequence[ActionForm], characters: int) -> dict[str, Any]:
    """Return the schema of a whole answer whose texts have at most so many `characters`."""
    return _object(
        {
            "think": _text(characters),
            "action": action_schema(forms, characters),
            "state_update": _object({name: _notes(name) for name in StateUpdate.model_fields}, ["history"]),
        }
    )


def action_schema(forms: Sequence[ActionForm], characters: int) -> dict[str, Any]:
    """Return the schema of an action in one of `forms`."""
    schemas = [_FORMS[form](characters) for form in forms]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _plain(characters: int) -> dict[str, Any]:
    return _object({"pattern": {**_text(characters), "minLength": 1}, "rewrite": _text(characters)})


def _pattern(characters: int) -> dict[str, Any]:
    strictness = PatternAction.model_json_schema()["properties"]["strictness"]["anyOf"][0]
    plain = _plain(characters)
    return _object({**plain["properties"], "selector": _text(characters), "strictness": strictness}, plain["required"])


def _rule(characters: int) -> dict[str, Any]:
    parts = {name: {"type": "object"} for name in ("rule", "constraints", "transform", "utils")}
    fix = {"anyOf": [_text(characters), {"type": "object"}]}
    return _object({"rule": parts.pop("rule"), "fix": fix, **parts}, ["rule", "fix"])


_FORMS = {"plain": _plain, "pattern": _pattern, "rule": _rule}


def _notes(name: str) -> dict[str, Any]:
    note = _text(MAX_CHARACTERS)
    if name == "next_focus":
        return note
    return {"type": "array", "items": {**note, "minLength": 1}, "maxItems": 1 if name == "history" else _MAX_NOTES}


def _text(characters: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": characters}


def _object(properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }
