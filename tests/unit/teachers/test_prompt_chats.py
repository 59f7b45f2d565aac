"""Prompts: what the file may say, and the chat that is made of it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from graftline.astgrep.action import PatternAction
from graftline.core.config import load_yaml
from graftline.core.errors import ConfigError
from graftline.llm.base import Message
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.teachers.answer import Answer, fits_format
from graftline.rollouts.teachers.base import InvalidAnswer, Proposal, Turn
from graftline.rollouts.teachers.prompt import Prompt, Prompts, PromptSettings, Shot, load_prompt
from tests.tasks import make_generation, make_task

TEXTS: dict[str, Any] = {
    "system": "Rewrite with $A and $$$ARGS, $$b and ${c}.",
    "state": "State: $state\n",
    "user": "$language: $instruction\n$code",
    "failed": "No. $feedback",
    "kept": "$feedback Then:\n$code",
}
SETTINGS = PromptSettings(**TEXTS)
ACTION = PatternAction(pattern="old($A)", rewrite="new($A)")
UPDATE = StateUpdate(history=["renamed"])
SHOT = Shot(language="java", instruction="Do.", code="f();", think="t", action=ACTION, state_update=UPDATE)
SAID = (
    '{"think": "t", "action": {"pattern": "old($A)", "rewrite": "new($A)"}, "state_update": {"history": ["renamed"]}}'
)
TASK = make_task("old(1)\nold($state)\n", "new(1)\nnew($state)\n", instruction="Rename $code.")


def said(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


def test_a_first_step_is_asked_for_after_the_shots() -> None:
    chat = Prompt(SETTINGS, [SHOT]).chat(TASK, TASK.before, State(), shots=[SHOT.model_copy(update={"code": "g();"})])
    assert said(chat) == [
        ("system", "Rewrite with $A and $$$ARGS, $$b and ${c}."),
        ("user", "java: Do.\nf();"),
        ("assistant", SAID),
        ("user", "java: Do.\ng();"),
        ("assistant", SAID),
        ("user", "python: Rename $code.\nold(1)\nold($state)\n"),
    ]


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    chat = Prompt(SETTINGS).chat(TASK, "$instruction $feedback", State(goals=("$code",)))
    assert chat[-1].content == 'State: {"goals":["$code"]}\npython: Rename $code.\n$instruction $feedback'


def test_steps_before_are_told_as_a_talk_and_the_state_stands_in_the_last_message() -> None:
    step = Proposal("t", ACTION, UPDATE, generation=make_generation("as it came"))
    turns = [
        Turn("one", step, "It is no match.", is_kept=False),
        Turn("one", InvalidAnswer("No JSON.", make_generation("Well, ...")), "No JSON.", is_kept=False),
        Turn("one", step, "That is right so far.", is_kept=True),
    ]
    chat = Prompt(SETTINGS).chat(TASK, "two", State(history=("h",)), turns)
    assert said(chat)[1:] == [
        ("user", "python: Rename $code.\none"),
        ("assistant", SAID),
        ("user", "No. It is no match."),
        ("assistant", "Well, ..."),
        ("user", "No. No JSON."),
        ("assistant", SAID),
        ("user", 'State: {"history":["h"]}\nThat is right so far. Then:\ntwo'),
    ]


def test_a_small_model_is_told_in_notes_what_was_tried_on_the_text_as_it_is() -> None:
    settings = PromptSettings.model_validate(
        {**TEXTS, "turns": "notes", "failed": "In vain: $action: $feedback\n", "kept": "Done: $action\n"}
    )
    tried = Turn("two", Proposal("t", ACTION, UPDATE), "No match.", is_kept=False)
    turns = [
        Turn("one", Proposal("t", ACTION, UPDATE), "Too broad.", is_kept=False),
        Turn("one", Proposal("t", ACTION, UPDATE), "Right so far.", is_kept=True),
        tried,
        tried,
        Turn("two", InvalidAnswer("No JSON.", make_generation("Well, ...")), "No JSON.", is_kept=False),
    ]
    action = '{"pattern": "old($A)", "rewrite": "new($A)"}'
    assert said(Prompt(settings).chat(TASK, "two\n", State(history=("h",)), turns))[1:] == [
        (
            "user",
            'State: {"history":["h"]}\npython: Rename $code.\ntwo\n'
            f"Done: {action}\nIn vain: {action}: No match.\nIn vain: Well, ...: No JSON.\n",
        )
    ]


def test_what_could_not_be_read_is_said_back_in_part() -> None:
    turns = [Turn("one", InvalidAnswer("Too long.", make_generation("x" * 5000)), "Too long.", is_kept=False)]
    assert Prompt(SETTINGS).chat(TASK, "one", State(), turns)[2].content == "x" * 600


def test_the_digest_tells_templates_settings_and_shots_apart() -> None:
    other = SETTINGS.model_copy(update={"failed": "Wrong. $feedback"})
    warmer = PromptSettings.model_validate({**TEXTS, "sampling": {"temperature": 0.5}})
    digests = [
        Prompt(SETTINGS).digest(),
        Prompt(SETTINGS).digest(),
        Prompt(SETTINGS).digest(["t#1"]),
        Prompt(SETTINGS, [SHOT]).digest(),
        Prompt(other).digest(),
        Prompt(warmer).digest(),
    ]
    assert (digests[0] == digests[1], len(set(digests))) == (True, 5)


FAULTY = {
    "an unknown name": ("user", "$instruction $code $post", "$post is unknown; known here: $instruction, $code, $lang"),
    "a name where none is known": ("system", "You know $language.", "$language is unknown; known here: none"),
    "a name that is missing": ("user", "$instruction", "$code is missing: the model has to be told"),
    "feedback without feedback": ("failed", "No.", "$feedback is missing: the model has to be told"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_template_is_checked_when_it_is_read(name: str) -> None:
    key, template, reason = FAULTY[name]
    with pytest.raises(ValidationError) as raised:
        PromptSettings.model_validate({**TEXTS, key: template})
    assert reason in str(raised.value)


def test_the_prompts_of_the_checkout_show_answers_that_they_ask_for(checkout: Path) -> None:
    found = load_yaml(checkout / "configs" / "teacher_prompts.yaml", Prompts)
    shown = [
        fits_format(Answer(shot.think, shot.action, shot.state_update, True), settings.answer)
        for settings in found.prompts.values()
        if settings.answer.layout != "code"
        for shot in found.shots
    ]
    # the others show the code after the change
    code = load_prompt(checkout / "configs", "edit_shots").chat(TASK, TASK.before, State())
    shown += [shot.after in answer.content for shot, answer in zip(found.shots, code[2::2], strict=True)]
    names = ["brief", "edit", "edit_shots", "example", "example_shots", "large", "small"]
    assert (sorted(found.prompts), all(shown), len(found.shots)) == (names, True, 3)


def test_a_prompt_is_loaded_by_its_name(checkout: Path) -> None:
    configs = checkout / "configs"
    assert load_prompt(configs, "small").settings.answer.layout == "json"
    with pytest.raises(
        ConfigError, match=r"teacher_prompts\.yaml: prompt 'huge' is unknown; known: brief, edit, edit_shots, example, "
    ):
        load_prompt(configs, "huge")


def test_the_brief_prompt_is_the_task_alone_and_wants_the_action_alone(checkout: Path) -> None:
    prompt = load_prompt(checkout / "configs", "brief")
    turn = Turn(TASK.before, Proposal("t", ACTION, UPDATE), "Too much.", is_kept=False)
    [first] = prompt.chat(TASK, TASK.before, State())
    [later] = prompt.chat(TASK, TASK.before, State(), [turn])
    assert first == Message(role="user", content=f"{TASK.instruction}\n\n{TASK.before}\n")
    assert later == Message(role="user", content=f"{first.content}Too much.\n")
    assert prompt.settings.answer.json_schema["required"] == ["pattern", "rewrite"]


def test_shots_of_the_file_are_left_out_where_a_prompt_wants_none(checkout: Path, tmp_path: Path) -> None:
    found = load_yaml(checkout / "configs" / "teacher_prompts.yaml", Prompts)
    chats = {
        name: load_prompt(checkout / "configs", name).chat(TASK, "x", State(), target="y") for name in found.prompts
    }
    # a system prompt, a question and an answer for each shot, and the question
    with_shots = 1 + 2 * 3 + 1
    assert {name: len(chat) for name, chat in chats.items()} == {
        "brief": 1, "edit": 1, "edit_shots": with_shots, "example": 1, "example_shots": with_shots, "large": with_shots,
        "small": with_shots,
    }  # fmt: skip


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "teacher_prompts.yaml").write_text("prompts: {}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"teacher_prompts\.yaml: .*there is none"):
        load_prompt(tmp_path, "small")
