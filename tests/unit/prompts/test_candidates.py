"""Which texts may stand in place of a prompt, and how prompts are compared: on the seeds that both have a reward on."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.core.errors import ConfigError
from graftline.prompts.candidates import (
    PromptShape,
    best_by_seed,
    best_of,
    differences,
    digest_of,
    gain,
    is_better,
    mean,
    policy_prompt,
    rank,
)
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


# comparisons

REWARDS = st.floats(min_value=0, max_value=1, allow_nan=False).map(lambda value: round(value, 3))
SCORES = st.dictionaries(st.integers(0, 12), REWARDS, max_size=12)


@given(SCORES, SCORES, SCORES)
def test_seeds_that_one_prompt_alone_has_a_reward_on_change_no_comparison(
    one: dict[int, float], other: dict[int, float], more: dict[int, float]
) -> None:
    alone = {seed: reward for seed, reward in more.items() if seed not in other}
    assert is_better({**alone, **one}, other) == is_better(
        {seed: reward for seed, reward in {**alone, **one}.items() if seed in other}, other
    )


@given(SCORES, SCORES)
def test_of_two_prompts_at_most_one_is_better(one: dict[int, float], other: dict[int, float]) -> None:
    assert not (is_better(one, other) and is_better(other, one))
    assert math.fsum(differences(one, other)) == pytest.approx(-math.fsum(differences(other, one)))


@given(st.lists(SCORES, min_size=1, max_size=6))
def test_the_front_holds_a_best_prompt_for_every_seed_that_anything_is_known_of(scores: list[dict[int, float]]) -> None:
    front = best_by_seed(scores)
    assert set(front) == {seed for one in scores for seed in one}
    for seed, numbers in front.items():
        assert numbers
        assert all(scores[number][seed] == max(one[seed] for one in scores if seed in one) for number in numbers)
    assert sorted(rank(scores)) == [*range(len(scores))]
    assert 0 <= best_of(scores) < len(scores)


def test_a_missing_reward_is_no_zero() -> None:
    # child: 0.5 on seed 1 and nothing on seed 2; taken for 0 it would lose 0.5 to 0.9
    parent, child = {1: 0.4, 2: 0.5}, {1: 0.5}
    assert is_better(child, parent)
    assert gain(child, parent) == (pytest.approx(0.1), None, 1)
    assert (mean({}), is_better({}, parent), is_better(parent, {})) == (None, False, False)


def test_a_prompt_that_is_known_on_few_seeds_is_not_called_better() -> None:
    known, lucky = {seed: 0.9 for seed in range(20)}, {0: 1.0}
    assert not is_better(lucky, known)
    assert (best_of([known, lucky]), rank([lucky, known])) == (0, [0, 1])
    half = {seed: 1.0 for seed in range(10)}
    assert (is_better(half, known), best_of([known, half])) == (True, 1)


def test_the_first_of_equal_prompts_stays_the_best() -> None:
    assert best_of([{1: 0.5}, {1: 0.5}, {1: 0.6}, {2: 1.0}]) == 2
    assert best_of([{}, {1: 0.0}]) == 1
