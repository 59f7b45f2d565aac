"""What answers that are drawn are worth, by the name of the reward: `sandbox`, `agent`, `math`.

`sandbox`: what the sandbox makes of the answer. An example is a task of one text, or a change of a whole repository
(`rollouts.repository_task`), of which one place is shown and the reward is the F1 of the places that the rule makes in all files.
`agent`: the answer is code, the edit of one place of a change of a repository, and the reward is the F1 of the places that come out
when the rest of the repository follows it, as `graftline refactor` has it follow. `math`: an example is a problem with its answer, and
an answer is right or wrong (`training.math_answers`).

Rewards are those of trajectories (`rollouts.reward`): 1 for the target text by a general action, less for one that memorizes or
changes too much, a share for what is on the way, -1 for an answer that cannot be read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from graftline.agent.single_places import SinglePlace, list_single_places, task_of_place
from graftline.agent.texts import follow_place_edit
from graftline.core.errors import ConfigError, DataError
from graftline.rollouts.answer_grading import first_question, grade_answer
from graftline.rollouts.exports.chats import Chat
from graftline.rollouts.fenced_code import read_code
from graftline.rollouts.repository_task import (
    RepositoryTask,
    grade_repository_answer,
    grade_texts,
    is_repository_task,
)
from graftline.rollouts.reward import BAD_FORMAT, RewardWeights, rl_reward
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox
from graftline.training.math_answers import MathProblem, find_answer, verify_answer
from graftline.training.recipes.base import OpenSandbox
from graftline.training.recipes.rollouts import Scored

RewardName = Literal["sandbox", "agent", "math"]
Question = tuple[Chat, Any]
"""What is asked, and what is needed beside the answer to say what it is worth."""


class AnswerReward(Protocol):
    """Makes questions of rows, and says what answers are worth."""

    def ask(self, row: Mapping[str, Any], origin: str) -> Question:
        """Return the question of a row; DataError, which names its `origin`, where it is of another kind."""

    def score(self, item: Any, text: str) -> Scored:
        """Return what the answer `text` is worth; the same answer is worth the same. SandboxError where nobody can say."""


def open_reward(name: RewardName, prompt: Prompt, open_sandbox: OpenSandbox, weights: RewardWeights) -> AnswerReward:
    """Return the reward of that name; ConfigError where `prompt` asks for other answers than it rewards."""
    if name == "agent" and prompt.settings.answer.layout != "code":
        raise ConfigError(
            "reward: 'agent' is of code, and the prompt asks for actions; use prompt: edit, or reward: sandbox"
        )
    rewards: Mapping[RewardName, Callable[[], AnswerReward]] = {
        "sandbox": lambda: SandboxReward(prompt, open_sandbox, weights),
        "agent": lambda: AgentReward(prompt, open_sandbox),
        "math": MathReward,
    }
    return rewards[name]()


@dataclass
class SandboxReward:
    """Of tasks, and of changes of repositories."""

    prompt: Prompt
    open_sandbox: OpenSandbox
    weights: RewardWeights

    @cached_property
    def _sandbox(self) -> Sandbox:
        return self.open_sandbox()

    def ask(self, row: Mapping[str, Any], origin: str) -> Question:
        task = read_task(row, origin)
        shown = task.block if isinstance(task, RepositoryTask) else task
        return first_question(shown, self.prompt), task

    def score(self, item: Task | RepositoryTask, text: str) -> Scored:
        answer_format = self.prompt.settings.answer
        if isinstance(item, RepositoryTask):
            is_read, reward = grade_repository_answer(item, text, answer_format, self._sandbox)
            return Scored(rl_reward(is_read, reward), reward.cause)
        graded = grade_answer(item, text, answer_format, self._sandbox, self.weights)
        return Scored(rl_reward(graded.is_read, graded.reward), graded.reward.cause)


@dataclass
class AgentReward:
    """Of changes of repositories, by what follows from the edit of one place."""

    prompt: Prompt
    open_sandbox: OpenSandbox

    @cached_property
    def _sandbox(self) -> Sandbox:
        return self.open_sandbox()

    def ask(self, row: Mapping[str, Any], origin: str) -> Question:
        task = read_task(row, origin)
        if not isinstance(task, RepositoryTask):
            raise DataError(
                f"{origin}: is a task of one text, and reward 'agent' is of repositories; use reward: sandbox"
            )
        places = list_single_places(task.change)
        if not places:
            raise DataError(f"{origin}: has no place that is small enough to be shown; leave it out")
        return first_question(task_of_place(task, places[0]), self.prompt), (task, places[0])

    def score(self, item: tuple[RepositoryTask, SinglePlace], text: str) -> Scored:
        task, place = item
        code = read_code(text, place.code)
        if code is None:
            return Scored(-1.0, BAD_FORMAT)
        reward = grade_texts(task, follow_place_edit(task, place, code, self._sandbox), self._sandbox).reward
        return Scored(reward.value, reward.cause)


class MathReward:
    """Of problems of mathematics, asked as they are."""

    def ask(self, row: Mapping[str, Any], origin: str) -> Question:
        try:
            problem = MathProblem.model_validate(row)
        except ValidationError as error:
            raise DataError(
                f"{origin}: is no problem ({_describe(error)}); `question` and `answer` were expected"
            ) from None
        return [{"role": "user", "content": problem.question}], problem

    def score(self, item: MathProblem, text: str) -> Scored:
        if not find_answer(text):
            return Scored(-1.0, BAD_FORMAT)
        is_right = verify_answer(item.answer, text)
        return Scored(float(is_right), "verified" if is_right else "wrong")


def read_task(row: Mapping[str, Any], origin: str) -> Task | RepositoryTask:
    """Return the task of a row; DataError, which names its `origin`, where it is none."""
    try:
        return RepositoryTask.model_validate(row) if is_repository_task(row) else Task.model_validate(row)
    except ValidationError as error:
        raise DataError(
            f"{origin}: is no task ({_describe(error)}); tasks are below data/tasks, and what `sft_dataset` makes of a recipe of"
            " this kind"
        ) from None


def _describe(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
