"""Prompts that show the wanted text, and answers with a line of thought before the action."""

from pathlib import Path

import pytest

from graftline.astgrep.action import PatternAction
from graftline.core.errors import ConfigError
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.teachers.answer import Answer, AnswerFormat, ParseError, format_answer, parse_answer
from graftline.rollouts.teachers.prompt import Prompt, PromptSettings, Shot, load_prompt

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
FORMAT = AnswerFormat(layout="thought", forms=("plain",))
ACTION = PatternAction(pattern="f($A)", rewrite="g($A)")


class Asked:
    instruction = "Call g."
    language = "python"


def settings(**given: object) -> PromptSettings:
    base = {"state": "$state", "user": "$change", "failed": "$feedback", "kept": "-", "few_shots": {"count": 0}}
    return PromptSettings.model_validate({**base, **given})


def last(prompt: Prompt, wanted: str | None) -> str:
    return prompt.chat(Asked(), "a = f(1)\n", State(), target=wanted)[-1].content  # type: ignore[arg-type]


def test_the_prompt_of_trained_models_shows_the_change_alone() -> None:
    assert last(load_prompt(CONFIGS, "example"), "a = g(1)\n") == "python\n-a = f(1)\n+a = g(1)"


def test_the_prompt_of_other_models_shows_both_texts_after_examples_of_both() -> None:
    chat = load_prompt(CONFIGS, "example_shots").chat(Asked(), "a = f(1)\n", State(), target="a = g(1)\n")  # type: ignore[arg-type]
    assert chat[-1].content == "Language: python\nBefore:\na = f(1)\nAfter:\na = g(1)\n"
    assert (
        chat[1].content == "Language: python\nBefore:\nx = old(1)\ny = old(a, b)\nAfter:\nx = new(1)\ny = new(a, b)\n"
    )


def test_a_prompt_that_shows_the_wanted_text_is_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigError, match="shows the target, which is not known here"):
        last(load_prompt(CONFIGS, "example"), None)


@pytest.mark.parametrize("name", ["small", "large", "brief"])
def test_other_prompts_do_not_show_the_wanted_text(name: str) -> None:
    prompt = load_prompt(CONFIGS, name)
    assert not prompt.settings.shows_target
    assert last(prompt, "WANTED") == last(prompt, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"user": "$wanted"}, r"\$code is missing"),
        ({"user": "$code"}, r"\$instruction is missing"),
        ({"user": "$change $post"}, r"\$post is unknown"),
        ({"few_shots": {"count": 1}}, "set few_shots.count to 0"),
    ],
)
def test_templates_say_what_they_lack(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**given)


def test_a_shot_without_its_text_after_is_refused_where_that_is_shown() -> None:
    shot = Shot(
        language="python", instruction="-", code="f(1)", think="-", action=ACTION, state_update=StateUpdate()
    )  # fmt: skip
    with pytest.raises(ConfigError, match="has no `after`"):
        Prompt(settings(), [shot])


def test_a_thought_is_one_line_before_the_action_and_is_read_again() -> None:
    answer = Answer("f(1)\n  => g(1)", ACTION, StateUpdate(), is_strict=True)
    text = format_answer(answer, "thought")
    assert text == 'f(1) => g(1)\n{"pattern": "f($A)", "rewrite": "g($A)"}'
    assert parse_answer(text, FORMAT) == Answer("f(1) => g(1)", ACTION, StateUpdate(), is_strict=True)


def test_braces_in_a_thought_are_not_taken_for_the_action() -> None:
    found = parse_answer('f({}) => g({"pattern": 1})\n{"pattern": "f($A)", "rewrite": "g($A)"}', FORMAT)
    assert not isinstance(found, ParseError)
    assert (found.action, found.is_strict) == (ACTION, True)


@pytest.mark.parametrize("text", ["f(1) => g(1)", 'f(1) => g(1)\n{"pattern": "f($A)", "rew'])
def test_a_thought_without_a_whole_action_cannot_be_read(text: str) -> None:
    assert isinstance(parse_answer(text, FORMAT), ParseError)
