"""Questions of the engine, answered by a model within limits, and never asked twice."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graftline.agent.edits import edit_messages
from graftline.agent.model import AgentModel, Limits, find_edit_prompt, open_model, read_probability
from graftline.agent.questions import answer_with_model, list_examples, show_place
from graftline.codemod.migration.generalize import Question
from graftline.codemod.migration.units import Demonstration
from graftline.core.errors import ConfigError
from graftline.core.secrets import open_secrets
from graftline.llm.base import ChatAnswer, ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import load_fleet
from graftline.llm.memory import MemoryChatModel, script_answers
from graftline.rollouts.teachers.prompt import PROMPT_FILE, PROMPTS_FILE, load_prompt, pack_prompt

TEXT = "a = 1\nb = get(url)\nc = get(\n    name)\nd = 4\ne = 5\n"
PLACE = Question("app/b.py", TEXT.index("get(url"), TEXT.index("(url"), "fetch", TEXT)
EXAMPLES = [("x = get(1)\n", "x = fetch(1)\n")]


class CertainModel(MemoryChatModel):
    """Also says how likely its first token was."""

    first_tokens: Mapping[str, float] = {}

    async def generate(self, request: ChatRequest) -> ChatAnswer:
        return replace(await super().generate(request), first_tokens=self.first_tokens)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[AgentModel]:
    with BlockingChatModel(CertainModel(script_answers(["yes", "No.", "maybe"]))) as blocking:
        yield AgentModel(blocking, 2_000, tmp_path / "answers")


def test_an_answer_is_yes_no_or_not_known_and_the_model_sees_instruction_example_and_place(model: AgentModel) -> None:
    places = [replace(PLACE, path=f"{name}.py") for name in "abc"]
    ask = answer_with_model("Use fetch", model, EXAMPLES)
    assert [ask(place) for place in places] == [True, False, None]
    assert [ask(place) for place in places] == [True, False, None]
    assert (model.spent.questions, model.spent.replayed, len(model.model.model.requests)) == (6, 3, 3)  # type: ignore[attr-defined]
    shown = model.model.model.requests[0].messages[-1].content  # type: ignore[attr-defined]
    for part in ("Use fetch", "-x = get(1)\n+x = fetch(1)", " a = 1\n-b = get(url)\n+b = fetch(url)\n c = get("):
        assert part in shown


def test_probabilities_of_the_first_token_count_for_more_than_the_token() -> None:
    assert read_probability({"Yes": -0.7, " no": -1.4, "The": -2.0}, "Yes") == pytest.approx(0.668, abs=0.001)
    assert read_probability({"The": -0.1, "yes": -9.0}, "The") is None
    assert (read_probability({}, "NO."), read_probability({}, "")) == (0.0, None)


@pytest.mark.parametrize(("first", "answer"), [({"yes": -0.7, "no": -0.7}, None), ({"yes": -3.0, "no": -0.1}, False)])
def test_a_model_that_is_undecided_does_not_know(model: AgentModel, first: Any, answer: bool | None) -> None:
    model.model.model.first_tokens = first  # type: ignore[attr-defined]
    assert answer_with_model("Use fetch", model)(PLACE) is answer


def test_beyond_its_limits_nothing_is_asked_and_what_was_answered_before_still_counts(model: AgentModel) -> None:
    ask = answer_with_model("Use fetch", model)
    assert ask(PLACE) is True
    model.limits = Limits(tokens=1)
    assert (ask(PLACE), ask(replace(PLACE, path="c.py")), model.is_exhausted) == (True, None, True)
    model.limits, model.context_tokens = Limits(), 20
    assert ask(replace(PLACE, path="d.py")) is None


def test_a_kept_answer_that_is_damaged_is_asked_for_again(model: AgentModel) -> None:
    ask = answer_with_model("Use fetch", model)
    assert ask(PLACE) is True
    assert model.answers is not None
    [file] = model.answers.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:20])
    assert (ask(PLACE), file.read_bytes() == content) == (False, False)  # the script's next answer


def test_a_place_is_shown_by_whole_lines() -> None:
    place = Question("a.py", TEXT.index("get(\n"), TEXT.index("\nd"), "fetch(name)", TEXT)
    assert show_place(place) == " a = 1\n b = get(url)\n-c = get(\n-    name)\n+c = fetch(name)\n d = 4\n e = 5"
    assert show_place(Question("a.py", 0, 1, "x", "a")) == "-a\n+x"


def test_examples_are_the_small_edits_of_files() -> None:
    before = "def f():\n    return get(1)\n\n\ndef g():\n    return 2\n"
    shown = [Demonstration("a.py", before, before.replace("get", "fetch")), Demonstration("a.txt", "a", "b")]
    [(old, new)] = list_examples(shown)
    assert ("get(1)" in old, "fetch(1)" in new, "def g" in old) == (True, True, False)


def test_a_model_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "vllm_actors.yaml").write_text(
        "fleets:\n  near:\n    engine: vllm\n    model: m\n    adapters: [models/adapters/small]\n"
        "    actors: [{name: a, url: 'http://127.0.0.1:9'}]\n"
    )
    secrets = open_secrets({}, tmp_path)
    for name, message in (("far", "known: near"), ("near:big", "no adapter 'big'; it has small")):
        with pytest.raises(ConfigError, match=message):
            open_model(name, tmp_path, secrets)
    opened = open_model("near:small", tmp_path, secrets)
    opened.model.close()
    assert (opened.adapter, opened.name) == ("small", "near:small")


def test_an_adapter_is_asked_as_it_was_trained_to_be(checkout: Path, tmp_path: Path) -> None:
    fleet = load_fleet(checkout / "configs", "embedded").model_copy(
        update={"adapters": ("adapters/edits", "adapters/rules", "adapters/foreign")}
    )
    for name, prompt in (("edits", "edit"), ("rules", "brief")):
        folder = tmp_path / "adapters" / name
        folder.mkdir(parents=True)
        settings = load_prompt(checkout / "configs", prompt).settings
        (folder / PROMPT_FILE).write_text(pack_prompt(prompt, settings, ()), "utf-8")

    def find(adapter: str) -> Any:
        return find_edit_prompt(tmp_path / "configs", fleet, adapter)

    assert (find("rules"), find("foreign")) == (None, None)
    # a fleet that names no prompt needs none, whatever prompts there are
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / PROMPTS_FILE).write_text(pack_prompt("mine", settings, ()), "utf-8")
    assert (find(""), "prompt" in fleet.model_fields_set) == (None, False)
    [message] = edit_messages("Use `b`.", "a(1)\n", "python", "The file imports:\nimport a\n\n", find("edits"))
    assert (message.role, message.content) == ("user", "python: Use `b`.\na(1)\n")
    assert len(edit_messages("Use `b`.", "a(1)\n", "python")) > 1
    (tmp_path / "adapters" / "edits" / PROMPT_FILE).write_text("prompts: {}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"edits/prompt\.yaml"):
        find("edits")
