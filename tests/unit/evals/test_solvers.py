"""Solvers that are models: what they are asked, and what becomes of what they answer."""

import pytest

from graftline.core.errors import ActorError
from graftline.evals.attempt import Answered, Failed, Question, Unaskable
from graftline.evals.cases import Case
from graftline.evals.solvers import ChatSolver, Sampling
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel
from graftline.pipeline.sampled_solver import SampledSolver
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.training.answers import Questions
from graftline.training.memory import MemoryTrainingService, memory_tokenizer
from tests.eval_cases import RIGHT, case
from tests.training_root import CHECKOUT


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    return load_prompt(CHECKOUT / "configs", "brief")


async def right(request: ChatRequest) -> str:
    return RIGHT


def questions(attempts: int = 1) -> list[Question]:
    return [Question(case(number), attempt) for number in range(2, 6) for attempt in range(1, attempts + 1)]


def test_a_served_model_is_asked_by_its_prompt_with_a_seed_for_each_attempt(prompt: Prompt) -> None:
    model = MemoryChatModel(right)
    with BlockingChatModel(model) as blocking:
        asked = ChatSolver(blocking, prompt, Sampling(0.5, 64), 4096, "an-adapter", at_once=2, deadline_s=9.0)
        found = [*asked.replies(questions(2))]

    assert sorted((one.question.case.id, one.question.attempt) for one in found) == [
        (f"demo:{number}", attempt) for number in range(2, 6) for attempt in (1, 2)
    ]
    assert all(isinstance(one, Answered) and one.text == RIGHT and one.cost.tokens for one in found)
    assert len({request.seed for request in model.requests}) == 8
    assert {(one.temperature, one.max_tokens, one.adapter, one.deadline_s) for one in model.requests} == {
        (0.5, 64, "an-adapter", 9.0)
    }
    shown = model.requests[0].messages[-1].content
    assert "Rename `old` to `new`" in shown
    assert "new(" not in shown


def test_a_model_that_does_not_answer_is_a_failure_of_a_machine(prompt: Prompt) -> None:
    async def gone(request: ChatRequest) -> str:
        raise ActorError("the actor is gone")

    with BlockingChatModel(MemoryChatModel(gone)) as blocking:
        [found] = ChatSolver(blocking, prompt, Sampling(), 4096).replies(questions()[:1])

    assert found == Failed(questions()[0], "the actor is gone")


def test_what_does_not_fit_or_is_no_text_is_not_asked(prompt: Prompt) -> None:
    task = case(2).task
    long = Case(task=task.model_copy(update={"before": "x = 1\n" * 4000}), edit_class="c")
    broken = Case(task=task.model_copy(update={"instruction": "\ud800"}), edit_class="c")
    model = MemoryChatModel(right)
    with BlockingChatModel(model) as blocking:
        asked = ChatSolver(blocking, prompt, Sampling(), 1024)
        found = [*asked.replies([Question(long, 1), Question(broken, 1)])]

    assert {(one.cause) for one in found if isinstance(one, Unaskable)} == {"too_long", "unreadable"}
    assert model.requests == []


def test_who_needs_no_more_replies_does_not_wait_for_all(prompt: Prompt) -> None:
    model = MemoryChatModel(right)
    with BlockingChatModel(model) as blocking:
        replies = ChatSolver(blocking, prompt, Sampling(), 4096, at_once=1).replies(questions(2))
        next(replies)
        replies.close()

    assert len(model.requests) < 8


def test_a_model_of_the_training_service_answers_all_attempts_at_a_task_together(prompt: Prompt) -> None:
    with MemoryTrainingService(0) as service:
        sampler = service.sampling_client(base_model="smollm2-135m")
        rendered = Questions("qwen3_instruct", memory_tokenizer())
        asked = SampledSolver(service, sampler, rendered, prompt, Sampling(0.8, 8), at_once=2)
        found, again = [*asked.replies(questions(3))], [*asked.replies(questions(3))]

    assert [(one.question.case.id, one.question.attempt) for one in found] == [
        (one.case.id, one.attempt) for one in questions(3)
    ]
    assert all(isinstance(one, Answered) for one in found)
    texts = [one.text for one in found if isinstance(one, Answered)]
    assert texts == [one.text for one in again if isinstance(one, Answered)]
    assert len({*texts}) > 1
    # the question is paid for once
    tokens = [one.cost.tokens or 0 for one in found if isinstance(one, Answered)]
    assert tokens[0] > 8 >= tokens[1] > 0


def test_what_is_asked_again_comes_out_as_if_all_was_asked_for(prompt: Prompt) -> None:
    with MemoryTrainingService(0) as service:
        sampler = service.sampling_client(base_model="smollm2-135m")
        rendered = Questions("qwen3_instruct", memory_tokenizer())
        asked = SampledSolver(service, sampler, rendered, prompt, Sampling(0.8, 8), model="smollm2-135m")
        whole = [*asked.replies(questions(3))]
        some = [one for one in questions(3) if one.attempt > 1]
        again = [*asked.replies(some)]

    texts = {(one.question.case.id, one.question.attempt): one.text for one in whole if isinstance(one, Answered)}
    assert [one.text for one in again if isinstance(one, Answered)] == [texts[one.case.id, one.attempt] for one in some]


def test_solvers_that_may_answer_otherwise_have_other_digests(prompt: Prompt) -> None:
    with BlockingChatModel(MemoryChatModel(right)) as model:
        found = [
            ChatSolver(model, prompt, sampling, 4096, adapter).digest
            for sampling, adapter in ((Sampling(), ""), (Sampling(), "a"), (Sampling(seed=2), ""))
        ]
        assert ChatSolver(model, prompt, Sampling(), 4096, at_once=2).digest == found[0]

    assert len({*found}) == 3


def test_a_greedy_model_does_not_draw(prompt: Prompt) -> None:
    with BlockingChatModel(MemoryChatModel(right)) as blocking:
        assert not ChatSolver(blocking, prompt, Sampling(0.0), 4096).draws
        assert ChatSolver(blocking, prompt, Sampling(0.1), 4096).draws
