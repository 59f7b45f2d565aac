"""What an agent carries from step to step, capped so that it fits into a prompt.

What is kept of it on disk is in `store.py`; the answer of a model becomes a `StateUpdate` by
`state_update_of`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from graftline.core.errors import DataError
from graftline.core.tokens import count_tokens

MAX_HISTORY = 3
"""Texts of the history; one of them says what was left out, once something was."""
MAX_ITEMS = 8
"""Texts of every other list."""
MAX_CHARACTERS = 256
"""Of one text."""
BUDGET_TOKENS = 800
"""Of the whole state in a prompt; one that is longer is summarized."""
TARGET_TOKENS = 400
"""What a summary comes down to, so that not every step that follows makes one; the newest update is kept all the same."""

Note = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]

_LOGS = ("decisions", "history")
_DISPENSABLE = ("hypotheses", "decisions", "history", "open_issues", "next_focus", "goals", "constraints")
"""What goes first where there is no room: the older texts of all fields but the last, their newest, then the last."""
_LEFT_OUT = "left out to save room: "
_LEFT_OUT_NOTE = re.compile(_LEFT_OUT + r"[a-z ]+ [0-9]{1,9}(, [a-z ]+ [0-9]{1,9})*")


class StateUpdate(BaseModel):
    """What one step changes; a list that is not given stays as it was."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    goals: list[Note] | None = None
    constraints: list[Note] | None = None
    decisions: list[Note] | None = None
    """Added to the earlier ones."""
    hypotheses: list[Note] | None = None
    history: list[Note] | None = None
    """Added to the earlier ones; the oldest fall out."""
    open_issues: list[Note] | None = None
    next_focus: str | None = Field(default=None, max_length=MAX_CHARACTERS)


class State(BaseModel):
    """The state before a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goals: tuple[Note, ...] = ()
    constraints: tuple[Note, ...] = ()
    decisions: tuple[Note, ...] = ()
    hypotheses: tuple[Note, ...] = ()
    history: tuple[Note, ...] = ()
    open_issues: tuple[Note, ...] = ()
    next_focus: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""

    def apply(self, update: StateUpdate) -> "State":
        """Return the state after `update`, as `merge` has it."""
        return merge(self, update)

    def token_budget(self) -> int:
        """Return about how many tokens of a prompt the state takes (`tokens.count_tokens`).

        Names and texts are counted one by one, and each once in its life, because most of a state is what it was a step
        ago. Of real states, 1 to 8 % more come out than if they were counted as a whole.
        """
        fields = {name: texts for name in State.model_fields if (texts := _texts(self, name))}
        return 1 + sum(_tokens(name) + sum(map(_tokens, texts)) for name, texts in fields.items())


def render(state: State) -> str:
    """Return `state` for the `<state>` block of a prompt: compact JSON in a fixed order, without what is empty.

    No text in it can end the block, or the turn: `</` and `<|` are written as JSON's escapes.
    """
    return _escape(state.model_dump_json(exclude_defaults=True))


def merge(
    state: State, update: StateUpdate, budget_tokens: int = BUDGET_TOKENS, target_tokens: int = TARGET_TOKENS
) -> State:
    """Return `state` after `update`: logs grow, everything else is replaced, all is capped.

    Merging the same update once more changes nothing. Texts that differ in blanks alone, or in case outside of backticks,
    are the same text; what is said again becomes the newest. Over the budget, what is older than `update` is summarized;
    an update that alone is over it is cut.
    """
    changes = cap_update(update.model_dump(exclude_none=True))
    merged = _join(state, changes)
    if not _note(state) and _fits(merged, budget_tokens):
        return merged
    # once there is a note it takes the place of a text of the update, which then is looked at by itself
    alone = _join(State(), changes)
    if not _fits(alone, budget_tokens):
        alone = _without_note(_shorten(alone, budget_tokens, {}))
        changes = {name: getattr(alone, name) for name in changes}
        merged = _join(state, changes)
    if _fits(merged, budget_tokens):
        return merged
    mentioned = {name: len(_texts_but_note(alone, name)) for name in changes}
    merged = _shorten(merged, target_tokens, mentioned)
    return merged if _fits(merged, budget_tokens) else alone


def summarize_history(state: State, budget: int) -> State:
    """Return `state` in at most `budget` tokens; where something is left out, the history begins with what.

    The oldest go first, the newest of each field later, constraints last:

        {"decisions":["a","b"],"history":["c"]}  ->  {"decisions":["b"],"history":["left out to save room: decisions 1","c"]}
    """
    shorter = _shorten(state, budget, {})
    return shorter if _fits(shorter, budget) else _without_note(shorter)


def cap_update(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an update as far as they count: long texts clipped, repeats once, the last of long lists."""
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "next_focus":
            fields[name] = _clip(value)
        # a list of nothing but blanks says nothing; an empty one says that there is nothing left
        elif (texts := _distinct(value)) or not value:
            fields[name] = texts[-_most(name) :]
    return fields


def _join(state: State, changes: Mapping[str, Any]) -> State:
    values = dict(changes)
    for name in _LOGS:
        if name in changes:
            mentioned = {_key(text) for text in changes[name]}
            earlier = [text for text in _texts_but_note(state, name) if _key(text) not in mentioned]
            note = _note(state) if name == "history" else ()
            room = _most(name) - len(note)
            values[name] = (*note, *[*earlier, *changes[name]][-room:])
    return state.model_copy(update=values)


def _shorten(state: State, tokens: int, mentioned: Mapping[str, int]) -> State:
    """Return `state` in `tokens` tokens, or with as little as may be: so many of the newest texts of each field as are `mentioned` stay."""
    left_out = Counter(_counts(state))
    while not _fits(state, tokens) and (name := _least(state, mentioned)):
        shorter = _without_oldest(state, name)
        # the note takes a place of the history
        history = _texts_but_note(shorter, "history")
        displaced = max(len(history) - (MAX_HISTORY - 1), 0)
        left_out.update([name.replace("_", " "), *["history"] * displaced])
        note = _LEFT_OUT + ", ".join(f"{words} {count}" for words, count in sorted(left_out.items()) if count)
        state = shorter.model_copy(update={"history": (note, *history[displaced:])})
    return state


def _least(state: State, mentioned: Mapping[str, int]) -> str | None:
    """Return the field whose oldest text matters least."""
    spare = {name: len(_texts_but_note(state, name)) - mentioned.get(name, 0) for name in _DISPENSABLE}
    *first_out, last = _DISPENSABLE
    older = [name for name in first_out if spare[name] > 0 and len(_texts_but_note(state, name)) > 1]
    return next((name for name in (*older, *first_out, last) if spare[name] > 0), None)


def _fits(state: State, tokens: int) -> bool:
    # no token is less than a byte: for a short state no vocabulary has to be read
    return len(render(state).encode()) <= tokens or state.token_budget() <= tokens


@lru_cache(4096)
def _tokens(text: str) -> int:
    return count_tokens(_escape(to_json(text).decode()))


def _escape(json_text: str) -> str:
    return json_text.replace("</", "<\\/").replace("<|", "<\\u007c")


def _texts_but_note(state: State, name: str) -> tuple[str, ...]:
    """Return the texts of a field, without the note of what was left out."""
    texts = _texts(state, name)
    return texts[len(_note(state)) :] if name == "history" else texts


def _texts(state: State, name: str) -> tuple[str, ...]:
    texts: str | tuple[str, ...] = getattr(state, name)
    return texts if isinstance(texts, tuple) else (texts,) if texts else ()


def _without_oldest(state: State, name: str) -> State:
    remaining = _texts_but_note(state, name)[1:]
    return state.model_copy(update={name: "" if name == "next_focus" else remaining})


def _note(state: State) -> tuple[str, ...]:
    return state.history[:1] if state.history and _LEFT_OUT_NOTE.fullmatch(state.history[0]) else ()


def _without_note(state: State) -> State:
    return state.model_copy(update={"history": _texts_but_note(state, "history")})


def _counts(state: State) -> dict[str, int]:
    """Return how many texts were left out before, by field in words."""
    pairs = [pair.rpartition(" ") for note in _note(state) for pair in note.removeprefix(_LEFT_OUT).split(", ")]
    return {words: int(count) for words, _, count in pairs}


def _most(name: str) -> int:
    return MAX_HISTORY if name == "history" else MAX_ITEMS


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    by_key: dict[str, str] = {}
    for text in texts:
        # a model says again what it read; a note of ours would then stand there for good
        if not _LEFT_OUT_NOTE.fullmatch(text) and (key := _key(short := _clip(text))):
            by_key.setdefault(key, short)
    return tuple(by_key.values())


@lru_cache(4096)
def _key(text: str) -> str:
    # what stands in backticks is code, where case makes a difference
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else part.casefold() for number, part in enumerate(parts))


def _clip(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


_FIELDS = tuple(StateUpdate.model_fields)
_MAX_SHOWN = 40
_KINDS = ((type(None), "null"), (bool, "true or false"), (int | float, "a number"), (str, "a text"), (list, "a list"))


def state_update_of(tree: object) -> StateUpdate:
    """Return the update that the JSON value `tree` says; null is the same as not given.

    Texts over the cap end in "…"; blank ones, repeats and the first of too many are left out.

    Raises:
        DataError: fields are unknown or of a wrong type; all of them in one message.
    """
    if not isinstance(tree, Mapping):
        raise DataError(f"state update: expected an object with some of {', '.join(_FIELDS)}, got {_kind(tree)}")
    changes = {name: value for name, value in tree.items() if value is not None}
    if faults := [fault for name, value in changes.items() if (fault := _find_fault(name, value))]:
        raise DataError(f"state update: {'; '.join(faults)}")
    texts = {
        name: _clean(value) if name == "next_focus" else list(map(_clean, value)) for name, value in changes.items()
    }
    fields = cap_update(texts)
    return StateUpdate.model_validate(
        {name: value if name == "next_focus" else [*value] for name, value in fields.items()}
    )


def _find_fault(name: object, value: object) -> str:
    if name not in _FIELDS:
        text = str(name)
        short = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
        return f"{short!r}: is not known; expected some of {', '.join(_FIELDS)}"
    if name == "next_focus":
        return "" if isinstance(value, str) else f"next_focus: expected a text, got {_kind(value)}"
    if not isinstance(value, list):
        return f"{name}: expected a list of texts, got {_kind(value)}"
    wrong = [f"{_kind(text)} in place {place}" for place, text in enumerate(value, 1) if not isinstance(text, str)]
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"{name}: expected a list of texts, got {wrong[0]}{more}" if wrong else ""


def _clean(text: str) -> str:
    # half a character, as JSON can say it, cannot be stored
    return text.encode("utf-8", "replace").decode("utf-8").strip()


def _kind(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "an object")
