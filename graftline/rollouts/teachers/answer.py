"""Answers of language models: a thought, one action, a state update; how they are asked for, written, and read again.

Of the layouts, `json` is one object with `think`, `action` and `state_update`; `tags` is `<think>`, `<action>` and
`<state_update>`, with JSON in the last two, and the last tag may be missing, since generation stops there; `action` is the
action as JSON, and nothing else; `thought` has one line before that. `code` says no action: it is the text after, of which
induction makes them (`rollouts.answer_grading`).

The schema uses what the grammars of vLLM and of llama.cpp both know: no references, all properties in the order in which they
are to be written.

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

Layout = Literal["json", "tags", "action", "thought", "code"]
"""`json`: one object, by a schema that the server keeps the model to; `tags`: for models that need no such help; `action`:
the action alone, by a schema too, for models that are trained to say nothing else; `thought`: a line of thought before it,
for models that are trained to say that; `code`: the whole text after in a fenced block, for models that edit."""

BY_SCHEMA: frozenset[Layout] = frozenset({"json", "action"})
"""Layouts that a JSON schema can say."""

MAX_ANSWER_CHARACTERS = 65_536
"""Of an answer that is read."""
_MAX_NOTES = 3
_MAX_TRIES = 64
_MAX_ACTIONS = 8
_MAX_REASONS, _MAX_REASON = 3, 200
_PARTS = ("think", "action", "state_update")
_KNOWN_KEYS = frozenset({"action", "pattern", "rule", *StateUpdate.model_fields})
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
    "code": "the whole code after the change in one fenced block",
}


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
        action = _action_schema(self.forms, self.max_characters)
        if self.layout not in ("json", "tags"):
            return action
        notes: dict[str, Any] = {}
        for name in StateUpdate.model_fields:
            items, most = {**_text(MAX_CHARACTERS), "minLength": 1}, 1 if name == "history" else _MAX_NOTES
            notes[name] = {"type": "array", "items": items, "maxItems": most}
        notes["next_focus"] = _text(MAX_CHARACTERS)
        think = _text(self.max_characters)
        return _object({"think": think, "action": action, "state_update": _object(notes, ["history"])})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered."""

    think: str
    action: PatternAction | RuleAction
    state_update: StateUpdate
    is_strict: bool
    """Whether it is in the layout that was asked for, to the letter."""


@dataclass(frozen=True, slots=True)
class ParseError:
    """Why there is nothing in an answer that can be taken for a step."""

    reason: str
    """In words for the model."""


class _Unreadable(Exception):
    """Carries the reason out of the reading of a part."""


def format_answer(answer: Answer, layout: Layout) -> str:
    """Return `answer` as a model should have written it."""
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
    length = len(text)
    if length > MAX_ANSWER_CHARACTERS:
        return ParseError(
            f"The answer has {length} characters, of which {MAX_ANSWER_CHARACTERS} are read: answer shorter."
        )
    try:
        parts = _parse_strictly(text, answer_format.layout)
        is_strict = parts is not None and _is_valid(parts, answer_format)
        parts = parts or _parse_tolerantly(text, answer_format.layout)
        think = parts.get("think", "")
        return Answer(
            think=(think if isinstance(think, str) else json.dumps(think)).strip(),
            action=_read_action(parts["action"]),
            state_update=_read_update(parts.get("state_update", {})),
            is_strict=is_strict,
        )
    except _Unreadable as error:
        return ParseError(str(error))
    except RecursionError:
        return ParseError("The answer is nested too deep: give a simpler action.")


def _action_schema(forms: Sequence[ActionForm], characters: int) -> dict[str, Any]:
    """Return the schema of an action in one of `forms` whose texts have at most so many `characters`."""
    text = _text(characters)
    plain = {"pattern": {**text, "minLength": 1}, "rewrite": text}
    strictness = PatternAction.model_json_schema()["properties"]["strictness"]["anyOf"][0]
    options = {name: {"type": "object"} for name in ("constraints", "transform", "utils")}
    schemas = {
        "plain": _object(plain),
        "pattern": _object({**plain, "selector": text, "strictness": strictness}, [*plain]),
        "rule": _object(
            {"rule": {"type": "object"}, "fix": {"anyOf": [text, {"type": "object"}]}, **options}, ["rule", "fix"]
        ),
    }
    return schemas[forms[0]] if len(forms) == 1 else {"anyOf": [schemas[form] for form in forms]}


def _text(characters: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": characters}


def _object(properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }


_VALID_PATTERN = Draft202012Validator(_action_schema(["pattern"], MAX_TEXT))
_VALID_RULE = Draft202012Validator(_action_schema(["rule"], MAX_TEXT))


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


def _parse_strictly(text: str, layout: Layout) -> dict[str, Any] | None:
    """Return the three parts where `text` keeps to `layout`; None where it does not."""
    try:
        if layout in ("action", "thought"):
            think, _, action = text.rpartition("\n") if layout == "thought" else ("", "", text)
            tree = _STRICT_DECODER.decode(action)
            is_action = isinstance(tree, dict) and "action" not in tree and "\n" not in think
            return {"think": think, "action": tree, "state_update": {}} if is_action else None
        if layout == "json":
            tree = _STRICT_DECODER.decode(text)
        else:
            is_once = all(text.count(f"<{name}>") == 1 for name in _PARTS)
            match = _STRICT.fullmatch(text) if is_once else None
            tree = match and {
                name: match[name] if name == "think" else _STRICT_DECODER.decode(match[name]) for name in _PARTS
            }
    except ValueError:
        return None
    return tree if isinstance(tree, dict) and {*tree} == {*_PARTS} else None


def _parse_tolerantly(text: str, layout: Layout) -> dict[str, Any]:
    think, text = _split_thought(text)
    candidates = _find_tagged(text) if "<action>" in text else _find_bare(text)
    if not candidates:
        raise _Unreadable(f"There is no action in the answer: give {_FORM_OF[layout]}.")
    actions = {json.dumps(parts["action"], sort_keys=True, default=str) for parts in candidates}
    if len(actions) > 1:
        raise _Unreadable(f"There are {len(actions)} different actions in the answer: give exactly one.")
    return {"think": think, **candidates[0]}


def _split_thought(text: str) -> tuple[str, str]:
    """Return what is thought aloud, and what comes after it."""
    head, closing, tail = text.rpartition("</think>")
    if closing:
        return head.rpartition("<think>")[2].strip(), tail
    before, opening, after = text.partition("<think>")
    head, tag, tail = (after if opening else before).partition("<action>")
    return (head.strip(), tag + tail) if tag else ("", text)


def _find_tagged(text: str) -> list[dict[str, Any]]:
    """Return the parts of every `<action>`, each with the update that follows it."""
    if (count := text.count("<action>")) > _MAX_ACTIONS:
        raise _Unreadable(f"There are {count} actions in the answer: give exactly one.")
    candidates: list[dict[str, Any]] = []
    while (start := text.find("<action>")) >= 0:
        action, text = _read_value(text[start + len("<action>") :], "action")
        candidates.append({"action": action})
        update = text.partition("<action>")[0].find("<state_update>")
        if update >= 0:
            candidates[-1]["state_update"], text = _read_value(text[update + len("<state_update>") :], "state_update")
    return candidates


def _find_bare(text: str) -> list[dict[str, Any]]:
    """Return the objects in `text` that are an answer or an action."""
    trees = list(_objects(text))
    if not trees:
        try:
            trees = [_read_value(text, "answer")[0]]
        except _Unreadable:
            return []
    candidates = []
    for tree in trees:
        if isinstance(tree, dict) and "action" in tree:
            candidates.append({name: tree[name] for name in _PARTS if name in tree})
        elif isinstance(tree, dict) and ("pattern" in tree or "rule" in tree):
            candidates.append({"action": tree})
    return candidates


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


def _read_value(text: str, name: str) -> tuple[Any, str]:
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
    if not (isinstance(tree, dict) and _KNOWN_KEYS & {*tree}) and not body.startswith("{"):
        # prose with an object in it; "So: {...}" is YAML, too
        tree = next(iter(_objects(block)), tree)
    if tree is None and reason:
        raise _Unreadable(f"The {name} is neither JSON nor YAML ({reason}): write it as JSON.")
    return tree, body[end:]


def _read_action(tree: Any) -> PatternAction | RuleAction:
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
        reasons = [f"{fault.json_path.replace('$', 'action', 1)}: {fault.message[:_MAX_REASON]}" for fault in faults]
        raise _Unreadable(f"The action does not fit: {'; '.join(reasons[:_MAX_REASONS])}.")
    try:
        return ACTION.validate_python(tree)
    except ValueError as error:
        raise _Unreadable(f"The action does not fit: {' '.join(str(error).split())[:_MAX_REASON]}.") from None


def _read_update(tree: Any) -> StateUpdate:
    if isinstance(tree, dict):
        # one note is as good as a list of one
        tree = {name: [note] if name != "next_focus" and isinstance(note, str) else note for name, note in tree.items()}
    try:
        return state_update_of(tree)
    except DataError as error:
        raise _Unreadable(f"The {error}.") from None


def _refuse_repeated_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        raise ValueError("a key stands twice")
    return tree


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
# a line break inside a text is a fault that everybody understands
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
