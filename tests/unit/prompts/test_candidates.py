"""Which texts may stand in place of a prompt."""

import pytest

from graftline.core.errors import ConfigError
from graftline.prompts.candidates import PromptShape, digest_of, policy_prompt
from graftline.prompts.settings import InitialPrompt, TokenTable

INITIAL = InitialPrompt.model_validate(
    {
        "messages": [
            {"role": "user", "pattern": "Task: $instruction\n$code\n{query}", "order": 1},
            {"role": "system", "pattern": "Rewrite $A by $$$ARGS.", "order": 0},
        ],
        "wildcards": {"query": "REQUIRED"},
    }
)
SHAPE = PromptShape.of(INITIAL, TokenTable())


@pytest.mark.parametrize(
    ("part", "text", "said"),
    [
        ("user", "$code $instruction {query} and more", ""),
        ("user", "$instruction {query}", "user lost $code, which is filled in there"),
        ("user", "$code $instruction $wanted {query}", "user has $wanted, which nothing is filled in for"),
        ("user", "$code $instruction", "user lost {query}, which is filled in there"),
        ("system", "Rewrite $NAME by $$$REST.", ""),
        ("system", "Rewrite $name.", "system has $name, which nothing is filled in for"),
        ("system", " \n", "system is empty"),
        ("system", "x" * 100_001, "system has more than 100000 characters"),
        ("state", "x", "part 'state' is unknown; known: system, user"),
    ],
)
def test_a_text_that_lost_what_is_filled_in_is_refused(part: str, text: str, said: str) -> None:
    assert SHAPE.fault({**SHAPE.initial, part: text}) == said


def test_a_prompt_that_is_too_long_is_refused_where_that_is_bounded() -> None:
    bounded = PromptShape.of(INITIAL, TokenTable(max_limit=40))
    assert "token.max_limit is 40" in bounded.fault({**SHAPE.initial, "system": "word " * 100})
    unbounded = PromptShape.of(INITIAL, TokenTable(max_limit=40, enforce_pattern_limit=False))
    assert unbounded.fault({**SHAPE.initial, "system": "word " * 100}) == ""


def test_a_prompt_is_sent_as_a_text_or_by_part() -> None:
    assert policy_prompt({"system": "Do."}) == "Do."
    assert policy_prompt(SHAPE.initial) == dict(SHAPE.initial)
    assert digest_of({"b": "1", "a": "2"}) == digest_of({"a": "2", "b": "1"})


def test_without_a_prompt_there_is_nothing_to_make_better() -> None:
    with pytest.raises(ConfigError, match="initial_prompt: has no messages"):
        PromptShape.of(None, TokenTable())
