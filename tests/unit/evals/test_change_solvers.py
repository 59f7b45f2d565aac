"""Changes of repositories, whole and at single places, attempted by the agent, by a rule, by what is shown and by words."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graftline.agent.model import AgentModel
from graftline.agent.proposal import Settings
from graftline.codemod.place_score import PlaceScore
from graftline.core.errors import DataError
from graftline.evals.attempt import Attempt, Produced, Question, Unaskable
from graftline.evals.cases import Case, case_of_repository, cases_of_places, digest_of
from graftline.evals.change_solvers import AgentSolver, DemonstrationSolver, WordsSolver, replace_words
from graftline.evals.evaluation import evaluate
from graftline.evals.grading import Grader
from graftline.evals.metrics import choose_by_agreement, summarize_changes, summarize_selections
from graftline.evals.place_metrics import summarize_places
from graftline.evals.report import markdown_page
from graftline.evals.solvers import ChatSolver, Sampling, Solver
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.actions.memory import MemorySandbox
from tests.repository_tasks import TESTS, repository_task
from tests.tasks import make_task
from tests.training_root import CHECKOUT

INSTRUCTION = "Let clients answer by `client.get()` instead of `client.fetch()`"
RULE = json.dumps(
    {
        "think": "a",
        "action": {"pattern": "client.fetch($A, timeout=$B)", "rewrite": "client.get($A, timeout=$B)"},
        "state_update": {"history": ["b"], "next_focus": "c"},
    }
)


@pytest.fixture
def model() -> Iterator[Callable[..., BlockingChatModel]]:
    opened: list[BlockingChatModel] = []

    def open_model(drawn: str = "get") -> BlockingChatModel:
        """Return a model that writes the rule, or edits a place; an answer that is drawn calls `drawn`."""

        async def answer(request: ChatRequest) -> str:
            question = request.messages[-1].content
            if question.endswith("Answer yes or no."):
                return "no" if "dog" in question else "yes"
            if "whole code after the change" not in request.messages[0].content:
                return RULE
            code = question.split("```")[1].partition("\n")[2]
            name = drawn if request.temperature else "get"
            return f"```\n{code.replace('client.fetch', f'client.{name}')}```"

        opened.append(BlockingChatModel(MemoryChatModel(answer)))
        return opened[-1]

    yield open_model
    for chat in opened:
        chat.close()


def agent(chat: BlockingChatModel, **settings: int) -> AgentSolver:
    return AgentSolver(AgentModel(chat, 4_096), MemorySandbox(), Settings(**settings))


def attempt_all(cases: list[Case], solvers: dict[str, Solver], attempts: int = 1) -> list[Attempt]:
    return evaluate(cases, solvers, Grader(MemorySandbox()), attempts)


@pytest.fixture
def solvers(model: Callable[..., BlockingChatModel]) -> dict[str, Solver]:
    prompt = load_prompt(CHECKOUT / "configs", "small")
    return {
        "edit": agent(model(), questions=5),
        "rule": ChatSolver(model(), prompt, Sampling(), 4_096),
        "shown": DemonstrationSolver(MemorySandbox(), 1),
        "sed": WordsSolver(),
    }


def test_whole_repositories_are_graded_by_their_places(solvers: dict[str, Solver]) -> None:
    case = case_of_repository(repository_task(instruction=INSTRUCTION))
    attempts = attempt_all([case], solvers)
    assert {attempt.solver: attempt.places for attempt in attempts} == {
        "edit": PlaceScore(3, 3, 3, 3, 0, 1),
        "rule": PlaceScore(3, 3, 3, 3, 0, 1),
        # one of the three is shown and does not count; one place does not say whose `fetch` is meant
        "shown": PlaceScore(2, 2, 3, 2, 1, 1),
        "sed": PlaceScore(3, 3, 4, 3, 1, 1),
    }
    assert {attempt.solver: attempt.is_verified for attempt in attempts} == {
        "edit": True, "rule": True, "shown": False, "sed": False,
    }  # fmt: skip
    assert "+        client.get(url, timeout=5)" in attempts[0].text
    rows = {row.solver: row.places for row in summarize_changes(attempts)}
    assert (rows["edit"].recall_at_p90, rows["sed"].recall_at_p90, rows["sed"].false_per_1000) == (1.0, 0.0, 1000.0)
    page = markdown_page("mine", "", attempts)
    assert "## Whole repositories" in page
    assert "## The best of several attempts" not in page


@pytest.mark.parametrize(
    ("instruction", "after"),
    [
        ("Use `get` instead of `fetch`", "@get\ndef f(a):\n    get()\n    return get(a)\n"),
        ("Remove `fetch`", "def f(a):\n    return (a)\n"),
        ("Make it better", "@fetch\ndef f(a):\n    fetch()\n    return fetch(a)\n"),
    ],
)
def test_words_are_replaced_or_taken_out_with_lines_that_have_no_others(instruction: str, after: str) -> None:
    text = "@fetch\ndef f(a):\n    fetch()\n    return fetch(a)\n"
    assert replace_words(instruction, {"a.py": text}) == {"a.py": after}


def test_a_change_that_was_shown_as_a_whole_is_left_out_of_the_recall() -> None:
    whole, half, shown = PlaceScore(2, 2, 2, 2, 0, 1), PlaceScore(2, 1, 1, 1, 0, 1), PlaceScore(0, 0, 1, 0, 1, 1)
    metrics = summarize_places({"a": [whole, half, shown], "b": [shown]})
    assert (metrics.tasks, metrics.recall, metrics.recall_at_p90, metrics.solved) == (2, 0.75, 0.0, 0.0)
    assert metrics.of_attempts == {"recall_at_p90": 0.75, "solved": 0.5}
    assert (metrics.precision, summarize_places({"b": [shown]}).recall) == (0.333, 0.0)


def test_of_a_single_place_the_lines_that_a_model_answers_count(model: Callable[..., BlockingChatModel]) -> None:
    async def answer(request: ChatRequest) -> str:
        code = request.messages[-1].content.partition("\n")[2]
        edited = f"```python\n{code.replace('client.fetch', 'client.get')}```"
        return {"1": "", "2": f"```\n{code}```"}.get(code.rstrip()[-1], edited)

    prompt = load_prompt(CHECKOUT / "configs", "edit")
    cases = cases_of_places(repository_task(instruction=INSTRUCTION))
    with BlockingChatModel(MemoryChatModel(answer)) as chat:
        attempts = attempt_all(cases, {"adapter": ChatSolver(chat, prompt, Sampling(), 4_096)})
    causes = {attempt.cause: attempt.is_verified for attempt in attempts}
    assert causes == {"verified": True, "bad_format": False, "no_progress": False}


def test_single_places_are_right_or_not(solvers: dict[str, Solver]) -> None:
    cases = cases_of_places(repository_task(instruction=INSTRUCTION))
    assert len(cases) == 3
    assert len(digest_of(cases)) == 64
    attempts = attempt_all(cases, solvers)
    right = {name: [a.is_verified for a in attempts if a.solver == name] for name in solvers}
    assert right == dict.fromkeys(solvers, [True] * 3)
    assert not summarize_changes(attempts)


def test_of_several_attempts_the_one_is_chosen_that_most_do_the_same_as(
    model: Callable[..., BlockingChatModel],
) -> None:
    cases = cases_of_places(repository_task(instruction=INSTRUCTION))
    # the likeliest answer is right, and the two that are drawn are wrong alike
    attempts = attempt_all(cases, {"edit": agent(model("post"))}, attempts=3)
    [selection] = summarize_selections(attempts)
    assert (selection.single, selection.chosen, selection.best) == (pytest.approx(1 / 3), 0.0, 1.0)
    assert (selection.tasks, selection.agreed, selection.places) == (3, 0, None)
    assert "| edit" in markdown_page("mine", "", attempts).partition("## The best of several attempts")[2]
    repositories = [case_of_repository(repository_task(instruction=INSTRUCTION))]
    [whole] = summarize_selections(
        attempt_all(repositories, {"edit": agent(model(), attempts=1, questions=5)}, attempts=2)
    )
    assert (whole.agreed, whole.agreed_right, whole.places) == (1, 1, {"single": 1.0, "chosen": 1.0, "best": 1.0})


def test_where_nothing_is_changed_nobody_is_chosen() -> None:
    assert choose_by_agreement([]) == (None, 0)


def test_one_text_is_edited_and_what_induction_makes_of_the_edit_counts(
    model: Callable[..., BlockingChatModel],
) -> None:
    task = make_task("client.fetch(1)\nclient.fetch(2)\n", "client.get(1)\nclient.get(2)\n", instruction=INSTRUCTION)
    [attempt] = attempt_all([Case(task=task, edit_class="one")], {"edit": agent(model())})
    assert attempt.is_verified
    assert len(attempt.actions) == 1
    [nothing] = attempt_all([Case(task=task, edit_class="one")], {"edit": agent(model("post"), attempts=2)})
    assert (nothing.is_verified, nothing.actions) == (False, ())


@pytest.mark.parametrize(("files", "places"), [({}, PlaceScore(3, 0, 0, 0, 0, 1)), ({"files": []}, None)])
def test_what_cannot_be_asked_reproduces_no_place_where_there_are_some(
    files: dict[str, Any], places: PlaceScore | None
) -> None:
    case = case_of_repository(repository_task(tests=TESTS, **files))
    attempt = Grader(MemorySandbox()).attempt("rule", Unaskable(Question(case, 1), "too_long"))
    assert (attempt.reward, attempt.places) == (0.0, places)


def test_where_tests_of_a_repository_cannot_run_nothing_is_known() -> None:
    case = case_of_repository(repository_task(tests=TESTS))
    assert case.repository is not None
    reply = Produced(Question(case, 1), {file.path: file.after for file in case.repository.files})
    attempt = Grader(_Silent()).attempt("edit", reply)
    assert (attempt.reward, attempt.is_infra, attempt.is_verified) == (None, True, False)


class _Silent(MemorySandbox):
    """A sandbox whose jail has no interpreter."""

    def run_tests(self, requests: Any) -> Any:
        raise DataError("there is no pytest")
