"""Answers of language models: a thought, one action, a state update; written, and read again.

Of the layouts (`answer_schema`), `json` is one object with `think`, `action` and `state_update`; `tags` is `<think>`,
`<action>` and `<state_update>`, with JSON in the last two, and the last tag may be missing, since generation stops there;
`action` is the action as JSON, and nothing else; `thought` has one line before that.

Reading is tolerant: of prose and fences around, tags that are not closed, a bare action, YAML in place of JSON (rule files
are YAML, and it allows the commas and quotes that JSON does not), a rule file's other keys. It does not guess: text that is
cut off is not completed, and of several different actions none is chosen.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from jsonschema import Draft202012Validator
from pydantic import Field

from graftline.astgrep.action import ACTION, MAX_TEXT, PatternAction, RuleAction
from graftline.core.config import Config, parse_yaml
from graftline.core.errors import ConfigError, DataError
from graftline.rollouts.state.state import MAX_CHARACTERS, StateUpdate, state_update_of

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


MAX_ANSWER_CHARACTERS = 65_536
"""Of an answer that is read."""
_MAX_TRIES = 64
_MAX_ACTIONS = 8
_MAX_REASONS, _MAX_REASON = 3, 200
_PARTS = ("think", "action", "state_update")
_KNOWN = frozenset({"action", "pattern", "rule", *StateUpdate.model_fields})
_RULE_FILE_KEYS = frozenset({"id", "language", "message", "note", "severity", "url", "metadata", "files", "ignores"})
_FENCE = re.compile(r"\s*```[\w-]*[ \t]*\n?")
_STRICT = re.compile(
    r"\s*<think>(?P<think>.*?)</think>\s*<action>(?P<action>.*?)</action>"
    r"\s*<state_update>(?P<state_update>.*?)(</state_update>)?\s*",
    re.DOTALL,
)
_FORM_OF = {
    "json": "one JSON object with `think`, `action` and `state_update`",
    "tags": "<think>...</think><action>{...}</action><state_update>{...}</state_update>",
    "action": "one JSON object with `pattern` and `rewrite`",
    "thought": "a line that says what becomes what, and after it one JSON object with `pattern` and `rewrite`",
}
_VALID_PATTERN = Draft202012Validator(action_schema(["pattern"], MAX_TEXT))
_VALID_RULE = Draft202012Validator(action_schema(["rule"], MAX_TEXT))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said."""

    think: str
    action: PatternAction | RuleAction
    state_update: StateUpdate
    is_strict: bool
    """Whether it was said in the layout that was asked for, to the letter."""


@dataclass(frozen=True, slots=True)
class ParseError:
    """Why nothing was said that can be taken for a step."""

    reason: str
    """In words for the model."""


class _Unreadable(Exception):
    """Carries the reason out of the reading of a part."""


def format_answer(answer: Answer, layout: Layout) -> str:
    """Return `answer` as a model should have said it."""
    parts = _tree(answer)
    if layout == "thought":
        return f"{' '.join(answer.think.split())}\n{_dump(parts['action'])}"
    if layout != "tags":
        return _dump(parts if layout == "json" else parts["action"])
    texts = {name: part if isinstance(part, str) else _dump(part) for name, part in parts.items()}
    return "\n".join(f"<{name}>{text}</{name}>" for name, text in texts.items())


def fits_format(answer: Answer, answer_format: AnswerFormat) -> bool:
    """Return whether `answer` is one that may be given in `answer_format`."""
    return _is_valid(_tree(answer), answer_format)


def parse_answer(text: str, answer_format: AnswerFormat) -> Answer | ParseError:
    """Return the step in `text`, for which `answer_format` was asked."""
    if len(text) > MAX_ANSWER_CHARACTERS:
        return ParseError(
            f"The answer has {len(text)} characters, of which {MAX_ANSWER_CHARACTERS} are read: answer shorter."
        )
    try:
        parts = _strictly(text, answer_format.layout)
        is_strict = parts is not None and _is_valid(parts, answer_format)
        return _answer(parts or _tolerantly(text, answer_format.layout), is_strict)
    except _Unreadable as fault:
        return ParseError(str(fault))
    except RecursionError:
        return ParseError("The answer is nested too deep: give a simpler action.")


def _tree(answer: Answer) -> dict[str, Any]:
    return {
        "think": answer.think,
        "action": ACTION.dump_python(answer.action, mode="json"),
        "state_update": answer.state_update.model_dump(mode="json", exclude_none=True),
    }


def _dump(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False)


def _is_valid(tree: Mapping[str, Any], answer_format: AnswerFormat) -> bool:
    is_alone = answer_format.layout in ("action", "thought")
    return _validator(answer_format).is_valid(tree["action"] if is_alone else tree)


@cache
def _validator(answer_format: AnswerFormat) -> Draft202012Validator:
    return Draft202012Validator(answer_format.json_schema)


def _strictly(text: str, layout: Layout) -> dict[str, Any] | None:
    """Return the three parts where `text` keeps to `layout`; None where it does not."""
    try:
        if layout in ("action", "thought"):
            think, _, action = text.rpartition("\n") if layout == "thought" else ("", "", text)
            tree = _STRICT_DECODER.decode(action)
            is_action = isinstance(tree, dict) and "action" not in tree and "\n" not in think
            return {"think": think, "action": tree, "state_update": {}} if is_action else None
        if layout == "json":
            parts = _STRICT_DECODER.decode(text)
        else:
            is_once = all(text.count(f"<{name}>") == 1 for name in _PARTS)
            match = _STRICT.fullmatch(text) if is_once else None
            parts = match and {
                name: match[name] if name == "think" else _STRICT_DECODER.decode(match[name]) for name in _PARTS
            }
    except ValueError:
        return None
    return parts if isinstance(parts, dict) and {*parts} == {*_PARTS} else None


def _tolerantly(text: str, layout: Layout) -> dict[str, Any]:
    think, remaining = _thought(text)
    parts = _read_tags(remaining) if "<action>" in remaining else _bare(remaining)
    if not parts:
        raise _Unreadable(f"There is no action in the answer: give {_FORM_OF[layout]}.")
    actions = {json.dumps(candidate["action"], sort_keys=True, default=str): candidate for candidate in parts}
    if len(actions) > 1:
        raise _Unreadable(f"There are {len(actions)} different actions in the answer: give exactly one.")
    return {"think": think, **parts[0]}


def _thought(text: str) -> tuple[str, str]:
    """Return what is thought aloud, and what comes after it."""
    head, closing, remaining = text.rpartition("</think>")
    if closing:
        return head.rpartition("<think>")[2].strip(), remaining
    before, opening, after = text.partition("<think>")
    head, tag, remaining = (after if opening else before).partition("<action>")
    return (head.strip(), tag + remaining) if tag else ("", text)


def _read_tags(text: str) -> list[dict[str, Any]]:
    """Return the parts of every `<action>`, each with the update that follows it."""
    parts: list[dict[str, Any]] = []
    if (count := text.count("<action>")) > _MAX_ACTIONS:
        raise _Unreadable(f"There are {count} actions in the answer: give exactly one.")
    while (start := text.find("<action>")) >= 0:
        action, text = _value(text[start + len("<action>") :], "action")
        parts.append({"action": action})
        update = text.partition("<action>")[0].find("<state_update>")
        if update >= 0:
            parts[-1]["state_update"], text = _value(text[update + len("<state_update>") :], "state_update")
    return parts


def _bare(text: str) -> list[dict[str, Any]]:
    """Return the objects in `text` that are an answer or an action."""
    trees = list(_objects(text))
    if not trees:
        try:
            trees = [_value(text, "answer")[0]]
        except _Unreadable:
            return []
    return list(filter(None, map(_parts, trees)))


def _parts(tree: Any) -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {}
    if "action" in tree:
        return {name: tree[name] for name in _PARTS if name in tree}
    return {"action": tree} if "pattern" in tree or "rule" in tree else {}


def _objects(text: str) -> Iterable[Any]:
    """Yield the JSON objects in `text`, outermost ones."""
    place = 0
    for _ in range(_MAX_TRIES):
        place = text.find("{", place)
        if place < 0:
            return
        try:
            tree, place = _DECODER.raw_decode(text, place)
            yield tree
        except ValueError:
            place += 1


def _value(text: str, name: str) -> tuple[Any, str]:
    """Return the JSON or YAML that `text` begins with, up to the tag that closes `name`, and what follows."""
    fence = _FENCE.match(text)
    body = text[fence.end() :] if fence else text.lstrip()
    if body[:1] in ("{", "["):
        try:
            value, end = _DECODER.raw_decode(body)
            return value, body[end:]
        except ValueError:
            pass  # YAML may know it
    ends = [at for mark in (f"</{name}>", "<state_update>", "<action>") if (at := body.find(mark)) >= 0]
    end = min(ends, default=len(body))
    block = body[:end].partition("```")[0] if fence else body[:end]
    try:
        tree, reason = parse_yaml(block, name), ""
    except ConfigError as error:
        tree, reason = None, str(error)[:_MAX_REASON]
    if not (isinstance(tree, dict) and _KNOWN & {*tree}) and not body.startswith("{"):
        # prose with an object in it; "So: {...}" is YAML, too
        tree = next(iter(_objects(block)), tree)
    if tree is None and reason:
        raise _Unreadable(f"The {name} is neither JSON nor YAML ({reason}): write it as JSON.")
    return tree, body[end:]


def _answer(parts: Mapping[str, Any], is_strict: bool) -> Answer:
    think, update = parts.get("think", ""), parts.get("state_update", {})
    return Answer(
        think=(think if isinstance(think, str) else json.dumps(think)).strip(),
        action=_action(parts["action"]),
        state_update=_update(update),
        is_strict=is_strict,
    )


def _action(tree: Any) -> PatternAction | RuleAction:
    if isinstance(tree, list):
        if len(tree) != 1:
            raise _Unreadable(f"`action` is a list of {len(tree)} actions: give exactly one, as an object.")
        tree = tree[0]
    if not isinstance(tree, dict):
        raise _Unreadable("`action` is no object: give its `pattern` and `rewrite`.")
    is_rule = "rule" in tree
    if is_rule:
        tree = {key: value for key, value in tree.items() if key not in _RULE_FILE_KEYS}
    faults = sorted((_VALID_RULE if is_rule else _VALID_PATTERN).iter_errors(tree), key=lambda fault: fault.json_path)
    if faults:
        raise _Unreadable(f"The action does not fit: {_said(faults)}.")
    try:
        return ACTION.validate_python(tree)
    except ValueError as error:
        raise _Unreadable(f"The action does not fit: {' '.join(str(error).split())[:_MAX_REASON]}.") from None


def _update(tree: Any) -> StateUpdate:
    if isinstance(tree, dict):
        # one note is as good as a list of one
        tree = {
            key: [value] if key != "next_focus" and isinstance(value, str) else value for key, value in tree.items()
        }
    try:
        return state_update_of(tree)
    except DataError as error:
        raise _Unreadable(f"The {error}.") from None


def _said(faults: Sequence[Any]) -> str:
    reasons = [f"{fault.json_path.replace('$', 'action', 1)}: {fault.message[:_MAX_REASON]}" for fault in faults]
    return "; ".join(reasons[:_MAX_REASONS])


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        raise ValueError("a key stands twice")
    return tree


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
# a line break inside a text is a fault that everybody understands
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_once, parse_constant=_no_constant)
