"""Answers of language models: what is read, how strictly it kept to the format, and what a model is told to mend."""

import json

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.teachers.answer import (
    MAX_ANSWER_CHARACTERS,
    Answer,
    AnswerFormat,
    ParseError,
    fits_format,
    format_answer,
    parse_answer,
)

TAGS = AnswerFormat(layout="tags", forms=("pattern", "rule"), max_characters=4096)
JSON = AnswerFormat(layout="json", forms=("plain",), max_characters=240)
ALONE = AnswerFormat(layout="action", forms=("plain",), max_characters=240)
ACTION = PatternAction(pattern="old($$$A)", rewrite="new($$$A)")
RULE = RuleAction(rule={"kind": "identifier", "regex": "^x$"}, fix="y")
UPDATE = StateUpdate(history=["renamed it"], next_focus="done")
STRICT = Answer("Calls change.", ACTION, UPDATE, is_strict=True)
LOOSE = Answer("Calls change.", ACTION, UPDATE, is_strict=False)
BARE = Answer("", ACTION, StateUpdate(), is_strict=False)

A = '{"pattern": "old($$$A)", "rewrite": "new($$$A)"}'
U = '{"history": ["renamed it"], "next_focus": "done"}'
T = "<think>Calls change.</think>"


@pytest.mark.parametrize("answer_format", [TAGS, JSON])
def test_what_is_written_is_read_as_it_was(answer_format: AnswerFormat) -> None:
    assert parse_answer(format_answer(STRICT, answer_format.layout), answer_format) == STRICT


def test_a_rule_is_written_and_read_as_it_was() -> None:
    answer = Answer("I match by kind.", RULE, UPDATE, is_strict=True)
    assert parse_answer(format_answer(answer, "tags"), TAGS) == answer


def test_an_action_alone_is_written_and_read_as_it_was_without_thought_and_update() -> None:
    alone = Answer("", ACTION, StateUpdate(), is_strict=True)
    assert (format_answer(STRICT, "action"), parse_answer(A, ALONE)) == (A, alone)
    assert fits_format(STRICT, ALONE)
    # the form of actions that was asked for is another one
    assert not fits_format(Answer("", RULE, StateUpdate(), is_strict=True), ALONE)
    assert parse_answer(format_answer(Answer("", RULE, StateUpdate(), is_strict=True), "action"), ALONE) == Answer(
        "", RULE, StateUpdate(), is_strict=False
    )


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{A}\n```",
        f"Sure: {A}",
        format_answer(STRICT, "json"),
        format_answer(STRICT, "tags"),
        A[:-1] + ', "selector": "call"}',
    ],
)
def test_more_than_the_action_alone_is_read_but_not_strict(text: str) -> None:
    answer = parse_answer(text, ALONE)
    assert isinstance(answer, Answer)
    assert (isinstance(answer.action, PatternAction), answer.is_strict) == (True, False)


def test_no_action_at_all_is_a_fault_that_says_the_form() -> None:
    fault = parse_answer("I do not know.", ALONE)
    assert isinstance(fault, ParseError)
    assert "one JSON object with `pattern` and `rewrite`" in fault.reason


TOLERATED = {
    "the last tag is cut off by a stop string": (f"{T}\n<action>{A}</action>\n<state_update>{U}", STRICT),
    "no tag is closed": (f"<think>Calls change.<action>{A}<state_update>{U}", LOOSE),
    "the think tag was opened by the chat template": (f"Calls change.</think><action>{A}</action><state_update>{U}", LOOSE),
    "the reasoning of the model itself comes first": (f"<think>Hm. {{</think>\n{T}<action>{A}</action><state_update>{U}", LOOSE),
    "an action is drafted while thinking": (
        f"<think>Maybe <action>{{}}</action>? No.</think>{T}<action>{A}</action><state_update>{U}</state_update>",
        LOOSE,
    ),
    "prose round the tags": (f"Sure!\n{T} So:\n<action>\n{A}\n</action> and <state_update>{U}</state_update> Bye.", LOOSE),
    "fences inside the tags": (f"{T}<action>\n```json\n{A}\n```\n</action><state_update>```{U}```</state_update>", LOOSE),
    "prose inside the tag": (f"{T}<action>Here it is: {A}, I think.</action><state_update>{U}", LOOSE),
    "a comma too many": (f'{T}<action>{A[:-1]},}}</action><state_update>{U}</state_update>', LOOSE),
    "other quotes": (f"{T}<action>{A.replace(chr(34), chr(39))}</action><state_update>{U}", LOOSE),
    "YAML": (f'{T}<action>\npattern: old($$$A)\nrewrite: "new($$$A)"\n</action><state_update>history: renamed it\nnext_focus: done\n', LOOSE),
    "one note in the place of a list of one": (f'{T}<action>{A}</action><state_update>{{"history": "renamed it", "next_focus": "done"}}', LOOSE),
    "a colon before the object": (f"{T}<action>So: {A}</action><state_update>This: {U}</state_update>", LOOSE),
    "a list of one action": (f"{T}<action>[{A}]</action><state_update>{U}", LOOSE),
    "the same action twice": (f"{T}<action>{A}</action><state_update>{U}</state_update><action>{A}</action>", LOOSE),
    "JSON where tags were asked for": (f'{{"think": "Calls change.", "action": {A}, "state_update": {U}}}', LOOSE),
    "a bare action": (A, BARE),
    "a fenced action after prose": (f"I {{think}} this is it:\n```json\n{A}\n```\nIt renames.", BARE),
    "a bare action as YAML": ("pattern: old($$$A)\nrewrite: new($$$A)\n", BARE),
    "no update": (f"<action>{A}</action>", BARE),
    "a rule file, by its rule": (
        "<think>By kind.</think><action>\nid: rename-x\nlanguage: python\nseverity: hint\nrule:\n  kind: identifier\n"
        "  regex: ^x$\nfix: y\n</action>",
        Answer("By kind.", RULE, StateUpdate(), is_strict=False),
    ),
    "YAML with JSON in it": (
        '<action>\nrule:\n  pattern: {"context": "f($A)", "selector": "call"}\nfix: g($A)\n</action>',
        Answer("", RuleAction(rule={"pattern": {"context": "f($A)", "selector": "call"}}, fix="g($A)"), StateUpdate(), is_strict=False),
    ),
    "tags and line breaks in the texts of JSON": (
        '<think>t</think><action>{"pattern": "<action>$A</action>", "rewrite": "a\nb"}</action><state_update>{}',
        Answer("t", PatternAction(pattern="<action>$A</action>", rewrite="a\nb"), StateUpdate(), is_strict=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLERATED)
def test_what_everybody_understands_is_read(name: str) -> None:
    text, answer = TOLERATED[name]
    assert parse_answer(text, TAGS) == answer


def test_json_is_strict_only_without_anything_around() -> None:
    text = format_answer(STRICT, "json")
    assert [parse_answer(each, JSON) for each in (text, f"\n{text}\n", f"```json\n{text}\n```", f"So: {text}")] == [
        STRICT,
        STRICT,
        LOOSE,
        LOOSE,
    ]


def test_an_answer_beyond_the_schema_that_was_asked_for_is_read_but_not_strict() -> None:
    long = Answer("x" * 300, ACTION, UPDATE, is_strict=True)
    rule = Answer("By kind.", RULE, UPDATE, is_strict=True)
    assert [fits_format(each, JSON) for each in (STRICT, long, rule)] == [True, False, False]
    assert parse_answer(format_answer(rule, "json"), JSON) == Answer("By kind.", RULE, UPDATE, is_strict=False)


B = A.replace("new", "newer")
UNREADABLE = {
    "nothing": ("", "There is no action in the answer: give <think>...</think><action>{...}</action>"),
    "prose": ("I would rename it.", "There is no action in the answer: give <think>"),
    "a thought alone": (T, "There is no action in the answer: give <think>"),
    "two actions": (f"{T}<action>{A}</action><action>{B}</action>", "There are 2 different actions in the answer: give"),
    "two bare actions": (f"{A} or {B}", "There are 2 different actions in the answer: give exactly one."),
    "a list of two actions": (f"<action>[{A}, {B}]</action>", "`action` is a list of 2 actions: give exactly one,"),
    "an empty action": ("<action></action>", "`action` is no object: give its `pattern` and `rewrite`."),
    "an action that is cut off": (f"<action>{A[:-12]}", "The action is neither JSON nor YAML (action: line 1, column "),
    "no rewrite": ('<action>{"pattern": "a"}</action>', "The action does not fit: action: 'rewrite' is a required property."),
    "no text": (
        '<action>{"pattern": 5, "rewrite": ""}</action>',
        "The action does not fit: action.pattern: 5 is not of type 'string'.",
    ),
    "an empty pattern": (
        '<action>{"pattern": "", "rewrite": ""}</action>',
        "The action does not fit: action.pattern: '' should be non-empty.",
    ),
    "another key": (
        '<action>{"pattern": "a", "rewrite": "", "where": 1}</action>',
        "The action does not fit: action: Additional properties are not allowed ('where' was unexpected).",
    ),
    "a rule without a fix": ('<action>{"rule": {}}</action>', "The action does not fit: action: 'fix' is a required property."),
    "the same key twice": ('<action>{"pattern": "a", "pattern": "b", "rewrite": ""}</action>', "The action is neither JSON"),
    "a wrong update": (
        f'<action>{A}</action><state_update>{{"history": 5}}</state_update>',
        "The state update: history: expected a list of texts, got a number.",
    ),
    "an update that is no object": (
        f"<action>{A}</action><state_update>[]</state_update>",
        "The state update: expected an object with some of goals,",
    ),
    "too long": ("x" * (MAX_ANSWER_CHARACTERS + 1), f"The answer has 65537 characters, of which {MAX_ANSWER_CHARACTERS} are read: "),
    "too deep": (f'<action>{{"rule": {"[" * 9000}', "The a"),
    "deep but closed": (f'<action>{{"rule": {{"all": {"[" * 9000}{"]" * 9000}}}, "fix": ""}}', "The answer is nested too deep"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_step_is_said_so_that_it_can_be_mended(name: str) -> None:
    text, reason = UNREADABLE[name]
    found = parse_answer(text, TAGS)
    assert isinstance(found, ParseError)
    assert found.reason.startswith(reason)
    assert len(found.reason) < 700


HOSTILE = {
    "braces": "{" * MAX_ANSWER_CHARACTERS,
    "objects": '{"a":' * (MAX_ANSWER_CHARACTERS // 5),
    "tags": "<action>" * (MAX_ANSWER_CHARACTERS // 8),
    "thoughts": "<think></think>" * (MAX_ANSWER_CHARACTERS // 15),
    "whole answers": "<think></think><action></action><state_update>" * (MAX_ANSWER_CHARACTERS // 47),
    "dashes": "<action>" + "- " * 30_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_made_to_take_long_is_refused(name: str) -> None:
    assert isinstance(parse_answer(HOSTILE[name], TAGS), ParseError)


def test_the_schema_is_one_that_servers_know() -> None:
    text = json.dumps([JSON.json_schema, TAGS.json_schema, ALONE.json_schema])
    assert ALONE.json_schema == JSON.json_schema["properties"]["action"]
    assert "$ref" not in text
    assert list(JSON.json_schema["properties"]) == ["think", "action", "state_update"]
    assert JSON.json_schema["properties"]["action"] == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "maxLength": 240, "minLength": 1},
            "rewrite": {"type": "string", "maxLength": 240},
        },
        "required": ["pattern", "rewrite"],
        "additionalProperties": False,
    }
    assert [list(form["properties"]) for form in TAGS.json_schema["properties"]["action"]["anyOf"]] == [
        ["pattern", "rewrite", "selector", "strictness"],
        ["rule", "fix", "constraints", "transform", "utils"],
    ]
