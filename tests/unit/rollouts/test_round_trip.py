"""Round trips: what a model is asked about an instruction, which answers are right, and which other words survive."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from graftline.core.errors import ActorError, DataError
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel, script_answers
from graftline.rollouts.round_trip import (
    EditModel,
    is_fair,
    read_text,
    reword_instruction,
    try_instruction,
)
from graftline.rollouts.round_trip_config import RoundTripConfig
from graftline.sandbox.actions.memory import MemorySandbox
from tests.tasks import make_task

TASK = make_task("x = old(1)\ny = old(2)\n", "x = new(1)\ny = new(2)\n", instruction="Rename `old` to `new`.")
RIGHT, WRONG = "```python\nx = new(1)\ny = new( 2 )\n```", "Sure:\n```\nx = new(1)\ny = old(2)\n```\nOnly the first."


@contextmanager
def asked(
    answers: Sequence[str], context_tokens: int = 4096, **settings: int
) -> Iterator[tuple[EditModel, list[ChatRequest]]]:
    """Yield a model that gives `answers`, and the list of what it is asked."""
    model = MemoryChatModel(script_answers(answers))
    with BlockingChatModel(model) as blocking:
        yield EditModel(blocking, context_tokens, RoundTripConfig(**settings)), model.requests


@pytest.mark.parametrize(
    ("answers", "is_answerable", "questions"),
    [
        ([RIGHT], True, 1),
        ([WRONG, "x = new(1)\ny = new(2)", RIGHT], True, 2),
        ([WRONG], False, 4),
        (["```\n"], False, 4),
    ],
)
def test_an_instruction_is_answerable_if_an_answer_is_the_target(
    answers: Sequence[str], is_answerable: bool, questions: int
) -> None:
    with asked(answers) as (model, requests):
        trip = try_instruction(TASK, model, MemorySandbox())
    assert (trip.is_answerable, trip.instruction, len(requests)) == (is_answerable, TASK.instruction, questions)
    assert len({request.seed for request in requests}) == questions
    shown = {message.content for request in requests for message in request.messages}
    assert (any(TASK.instruction in text for text in shown), any("new(1)" in text for text in shown)) == (True, False)


def test_code_with_fences_is_shown_in_longer_ones() -> None:
    task = make_task('old("```")\n', 'new("```")\n')
    with asked(['````python\nnew("```")\n````']) as (model, requests):
        assert try_instruction(task, model, MemorySandbox()).is_answerable
    assert '````python\nold("```")\n````' in requests[0].messages[1].content


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"before": "x = 1\n" * 2000}, r"d:1: the question has \d+ tokens, but 3072 fit"),
        ({"instruction": "\ud800"}, "d:1: holds half a surrogate pair"),
    ],
)
def test_what_cannot_be_asked_is_said(changes: dict[str, str], fault: str) -> None:
    with asked([RIGHT]) as (model, requests), pytest.raises(DataError, match=fault):
        try_instruction(TASK.model_copy(update=changes), model, MemorySandbox())
    assert requests == []


def test_a_model_that_does_not_answer_is_an_error_and_no_verdict() -> None:
    with asked([RIGHT]) as (model, _):
        pass
    with pytest.raises(ActorError, match="is closed"):
        try_instruction(TASK, model, MemorySandbox())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("a\n", "a\n"),
        ("Here:\n```js\na\n```\nand\n```\nb\n```", "a\n"),
        ("```\na\n", None),  # not closed: nobody knows what is missing
        ("````\n```\na\n```\n````", "```\na\n```\n"),
        (" \n", None),
    ],
)
def test_the_text_of_an_answer_is_its_first_block(answer: str, text: str | None) -> None:
    assert read_text(answer) == text


@pytest.mark.parametrize(
    ("wording", "is_good"),
    [
        ("Call `new` in place of `old`, please.", True),
        ("Rename  `old` to\n`new`.", False),  # the same words
        ("Write `new(1)` and `fresh`.", True),  # `fresh` is nowhere in the target
        ("Call `new` with `limit`.", False),
        ("Call `new`.\x00", False),
        ("Call `new`. " * 200, False),
    ],
)
def test_other_words_give_away_no_more_of_the_target(wording: str, is_good: bool) -> None:
    task = make_task("x = old(1)\n", "x = new(1, limit)\n", instruction="Rename `old` to `new`.")
    assert is_fair(wording, task) == is_good


def test_other_words_are_taken_if_the_model_does_the_edit_from_them() -> None:
    words = "Please call `new` wherever `old` is called."
    with asked([TASK.instruction, words, WRONG, RIGHT], rewordings=2) as (model, requests):
        trip = reword_instruction(TASK, model, MemorySandbox())
    assert (trip.is_answerable, trip.instruction) == (True, words)
    assert [bool(re.search("Request:", request.messages[1].content)) for request in requests] == [
        True,
        True,
        False,
        False,
    ]
    with asked([words, WRONG], rewordings=1, attempts=1) as (model, _):
        shorter = reword_instruction(TASK, model, MemorySandbox())
    assert (shorter.is_answerable, shorter.instruction) == (False, TASK.instruction)
    assert trip.tokens > shorter.tokens > 0
