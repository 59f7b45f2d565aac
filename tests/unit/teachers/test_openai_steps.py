"""The `openai` teacher: what it asks, what it makes of answers, and what never gets into a prompt."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest

from graftline.astgrep.action import PatternAction
from graftline.core.errors import ActorError
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel, script_answers
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.retrieval.hashed import HashedEmbedder
from graftline.rollouts.retrieval.memory import MemoryVectorStore
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.base import Generation, InvalidAnswer, NoProposal, Proposal, Turn
from graftline.rollouts.teachers.examples import Examples, VerifiedStep
from graftline.rollouts.teachers.openai import OpenAITeacher
from graftline.rollouts.teachers.prompt import Prompt, Shot, load_prompt
from graftline.sandbox.actions.memory import MemorySandbox
from tests.tasks import make_task

ACTION = PatternAction(pattern="old($A)", rewrite="new($A)")
UPDATE = StateUpdate(history=["renamed `old`"], next_focus="done")
RIGHT = format_answer(Answer("Calls change.", ACTION, UPDATE, True), "json")
OTHER = PatternAction(pattern="odl($A)", rewrite="new($A)")
WRONG = format_answer(Answer("One changes.", OTHER, UPDATE, True), "json")
TASK = make_task("x = old(1)\ny = old(2)\n", "x = new(1)\ny = new(2)\n", instruction="Rename `old` to `new`.")


@pytest.fixture
def prompt(checkout: Path) -> Prompt:
    return load_prompt(checkout / "configs", "small")


@contextmanager
def asked(
    prompt: Prompt, answers: Sequence[str], context_tokens: int = 4096, examples: Examples | None = None
) -> Iterator[tuple[OpenAITeacher, list[ChatRequest]]]:
    """Yield a teacher whose model gives `answers`, and the list of what it is asked."""
    model = MemoryChatModel(script_answers(answers), name="tiny")
    with BlockingChatModel(model) as blocking:
        yield OpenAITeacher(blocking, prompt, context_tokens, examples), model.requests


def test_an_answer_becomes_a_proposal_with_all_that_was_asked(prompt: Prompt) -> None:
    with asked(prompt, [RIGHT]) as (teacher, requests):
        proposal = teacher.propose(TASK, TASK.before, State())
    assert isinstance(proposal, Proposal)
    assert proposal == Proposal("Calls change.", ACTION, UPDATE, generation=proposal.generation, is_strict=True)
    [request], made = requests, proposal.generation
    assert made is not None
    assert made == Generation(
        messages=request.messages,
        prompt_digest=prompt.digest(),
        text=RIGHT,
        finish_reason="stop",
        model="tiny",
        actor="tiny",
        temperature=0.0,
        seed=request.seed,
        prompt_tokens=made.prompt_tokens,
        completion_tokens=made.completion_tokens,
        latency_s=made.latency_s,
        tries=1,
    )
    assert (request.json_schema, request.max_tokens) == (prompt.settings.answer.json_schema, 300)
    assert (teacher.name, teacher.uses_feedback) == ("openai/tiny", True)


def test_an_answer_without_a_step_is_unreadable_with_its_reason(prompt: Prompt) -> None:
    with asked(prompt, ["I would rename it.", "word " * 1000]) as (teacher, _):
        answers = [teacher.propose(TASK, TASK.before, State()) for _ in range(2)]
    reasons = [answer.reason for answer in answers if isinstance(answer, InvalidAnswer)]
    reason = "There is no action in the answer: give one JSON object with `think`, `action` and `state_update`."
    assert reasons == [reason, f"{reason} It was cut off after 300 tokens."]


def test_a_model_that_cannot_be_reached_is_an_error(prompt: Prompt) -> None:
    blocking = BlockingChatModel(MemoryChatModel(script_answers([RIGHT])))
    blocking.close()
    with pytest.raises(ActorError, match="is closed"):
        OpenAITeacher(blocking, prompt, 4096).propose(TASK, TASK.before, State())


def test_first_answers_are_greedy_and_what_follows_a_failure_is_drawn(prompt: Prompt) -> None:
    failed = Turn(TASK.before, Proposal("t", OTHER, UPDATE), "No.", is_kept=False)
    kept = Turn("x = older(1)\n", Proposal("t", ACTION, UPDATE), "Right so far.", is_kept=True)
    with asked(prompt, [RIGHT]) as (teacher, requests):
        for turns, attempt in [((), 1), ((failed,), 1), ((failed, kept), 1), ((), 2), ((), 2)]:
            teacher.propose(TASK, TASK.before, State(), turns, attempt)
        teacher.propose(TASK.model_copy(update={"id": "d:2"}), TASK.before, State(), (), 2)
    later = prompt.settings.sampling.later_temperature
    assert [request.temperature for request in requests] == [0.0, later, 0.0, later, later, later]
    seeds = [request.seed for request in requests]
    assert (seeds[3] == seeds[4], len(set(seeds))) == (True, 5)


def test_an_answer_that_failed_before_is_drawn_again_hotter(prompt: Prompt) -> None:
    tried = Turn(TASK.before, Proposal("t", OTHER, UPDATE), "No.", is_kept=False)
    with asked(prompt, [WRONG, WRONG, RIGHT]) as (teacher, requests):
        proposal = teacher.propose(TASK, TASK.before, State(), [tried])
    assert isinstance(proposal, Proposal)
    made, later = proposal.generation, prompt.settings.sampling.later_temperature
    assert made is not None
    assert (proposal.action, made.temperature, made.tries) == (ACTION, round(later + 0.6, 3), 3)
    assert [request.temperature for request in requests] == [later, round(later + 0.3, 3), round(later + 0.6, 3)]
    assert len({request.seed for request in requests}) == 3
    words = len(WRONG.split()) * 2 + len(RIGHT.split())
    assert made.completion_tokens == words


def test_drawing_again_ends(prompt: Prompt) -> None:
    tried = Turn(TASK.before, Proposal("t", OTHER, UPDATE), "No.", is_kept=False)
    with asked(prompt, [WRONG]) as (teacher, requests):
        proposal = teacher.propose(TASK, TASK.before, State(), [tried])
    assert isinstance(proposal, Proposal)
    assert (proposal.action, len(requests)) == (OTHER, 1 + prompt.settings.sampling.redraws)


def test_a_text_that_does_not_fit_is_refused_and_never_cut(prompt: Prompt) -> None:
    long = "x = old(1)\n" * 2_000
    with asked(prompt, [RIGHT]) as (teacher, requests):
        assert teacher.propose(TASK, long, State()) == NoProposal("too_long")
        assert teacher.propose(TASK, "\ud800", State()) == NoProposal("unreadable")
    assert requests == []


def test_examples_and_then_the_oldest_turns_make_room(prompt: Prompt) -> None:
    turns = [
        Turn(TASK.before, Proposal(f"thought {number} " * 20, ACTION, UPDATE), f"answer {number}", is_kept=False)
        for number in range(5)
    ]
    talk = Prompt(prompt.settings.model_copy(update={"turns": "chat"}))
    shown = []
    for context_tokens in range(2000, 300, -20):
        with asked(talk, [RIGHT], context_tokens, examples([step(1)])) as (teacher, requests):
            answer = teacher.propose(TASK, TASK.before, State(), turns)
        text = str(requests[0].messages) if requests else str(answer)
        shown.append(("Rename `old1` to `new`." in text, [n for n in range(5) if f"answer {n}" in text]))
    assert [found for found, _ in groupby(shown)] == [
        (True, [2, 3, 4]),
        (False, [2, 3, 4]),
        (False, [3, 4]),
        (False, [4]),
        (False, []),
    ]
    assert answer == NoProposal("too_long")


def step(number: int, **changed: str) -> VerifiedStep:
    shot = Shot(
        language="python",
        instruction=f"Rename `old{number}` to `new`.",
        code=f"z = old{number}(3)\n",
        think="long ago",
        action=PatternAction(pattern=f"old{number}($A)", rewrite="new($A)"),
        state_update=UPDATE,
    )
    given = {
        "id": f"o:{number}#1",
        "task_id": f"o:{number}",
        "group": "other",
        "split": "train",
        "after": "z = new(3)\n",
    }
    return VerifiedStep.model_validate({**given, **changed, "shot": shot})


def examples(steps: Sequence[VerifiedStep]) -> Examples:
    found = Examples(HashedEmbedder(), MemoryVectorStore())
    found.rebuild("made", steps)
    return found


def test_examples_are_shown_before_the_task_and_counted_in_the_digest(prompt: Prompt) -> None:
    with asked(prompt, [RIGHT], examples=examples([step(1), step(2)])) as (teacher, requests):
        proposal = teacher.propose(TASK, TASK.before, State())
    assert isinstance(proposal, Proposal)
    assert proposal.generation is not None
    assert proposal.generation.prompt_digest in (prompt.digest(["o:1#1", "o:2#1"]), prompt.digest(["o:2#1", "o:1#1"]))
    assert len(requests[0].messages) == 1 + 2 * (3 + 2) + 1


def test_nothing_of_the_wanted_text_or_the_gold_gets_into_a_prompt(prompt: Prompt) -> None:
    tainted = TASK.model_copy(
        update={
            "target": "x = zzwanted(1)\ny = zzwanted(2)\n",
            "gold_action": PatternAction(pattern="old($ZZGOLD)", rewrite="zzrewrite($ZZGOLD)"),
            "gold_next": (PatternAction(pattern="zznext", rewrite="zzlast"),),
            "origin": "zzorigin",
        }
    )
    answers = [WRONG, "prose", RIGHT, RIGHT.replace("old($A)", "x = $B"), RIGHT.replace("new", "newer")]
    with asked(prompt, answers, examples=examples([step(1), step(2)])) as (teacher, requests):
        collect(tainted, teacher, MemorySandbox(), RolloutConfig(max_steps=5, max_failed=5))
    said = "\n".join(message.content for request in requests for message in request.messages).lower()
    assert (len(requests), "zz" in said) == (5, False)


def test_feedback_gets_a_teacher_from_a_wrong_step_to_a_right_one(prompt: Prompt) -> None:
    with asked(prompt, [WRONG, "prose", RIGHT]) as (teacher, requests):
        trajectory = collect(TASK, teacher, MemorySandbox(), RolloutConfig())
    assert (trajectory.is_verified, [one.is_kept for one in trajectory.steps]) == (True, [False, False, True])
    told = [request.messages[-1].content for request in requests[1:]]
    assert ["Did you mean `old`" in told[0], "There is no action" in told[1]] == [True, True]


def test_many_threads_may_ask_at_the_same_time(prompt: Prompt) -> None:
    async def answer(request: ChatRequest) -> str:
        await asyncio.sleep(0)
        return RIGHT.replace("Calls", request.messages[-1].content.split("old")[1].split("(")[0])

    with BlockingChatModel(MemoryChatModel(answer)) as model:
        teacher = OpenAITeacher(model, prompt, 4096, examples([step(number) for number in range(9)]))

        def think(number: int) -> str:
            proposal = teacher.propose(TASK.model_copy(update={"instruction": "x"}), f"old{number}()", State())
            return proposal.think if isinstance(proposal, Proposal) else ""

        with ThreadPoolExecutor(8) as threads:
            thoughts = list(threads.map(think, range(24)))
    assert thoughts == [f"{number} change." for number in range(24)]
