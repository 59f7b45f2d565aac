"""Recipes whose examples are tasks: answers are drawn, and what the sandbox makes of them says what is learned of them.

A task is of one text, or of a whole repository (`rollouts.repository_task`): then one place is shown, and the reward is the F1 of
the places that the rule makes in all files. Rewards are those of trajectories (`rollouts.reward`): 1 for the target text by a general
action, less for one that memorizes or changes too much, a share for what is on the way, -1 for an answer that cannot be read. One
that the sandbox says nothing about is left out.

`rl_grpo`: advantages are those of `recipes.rollouts`, of answers to the same question; the loss is that of `loss`
(https://tinker-docs.thinkingmachines.ai/losses), `-(p / p_sampled) * advantage` by default, summed over tokens.

`expert_iteration`: right answers are learned as if they had been given, and all others left out (Anthony et al., Thinking Fast and
Slow with Deep Learning and Tree Search, 2017, https://arxiv.org/abs/1705.08439; with samples of a language model: Dong et al., RAFT,
2023, https://arxiv.org/abs/2304.06767). All right answers to a question weigh together as one.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from graftline.core.errors import DataError
from graftline.core.paths import Paths
from graftline.rollouts.answer_grading import first_question, grade_answer
from graftline.rollouts.repository_task import RepositoryTask, grade_repository_answer, is_repository_task
from graftline.rollouts.reward import RewardWeights, rl_reward
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.sandbox.base import Sandbox
from graftline.training.answers import SampledAnswer
from graftline.training.examples import Example, TrainingData, read_objects
from graftline.training.recipes.base import OpenSandbox
from graftline.training.recipes.rollouts import (
    ContrastConfig,
    GroupConfig,
    GroupRecipe,
    Rollouts,
    Scored,
    group_advantages,
)


class TasksConfig(GroupConfig):
    """What both have: files of `data/tasks`."""

    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    prompt: str = "brief"
    """Of `configs/teacher_prompts.yaml`: how tasks are asked, and in which form they are answered."""
    weights: RewardWeights = RewardWeights()


class RlGrpoConfig(TasksConfig, ContrastConfig):
    """Reinforcement learning on tasks."""

    recipe: Literal["rl_grpo"] = "rl_grpo"


class ExpertIterationConfig(TasksConfig):
    """Learning from one's own right answers."""

    recipe: Literal["expert_iteration"] = "expert_iteration"
    least_reward: float = Field(default=0.7, gt=0, le=1)
    """Of an answer that is right."""


class TasksRecipe(GroupRecipe):
    """What both do; an example is a task."""

    def __init__(self, config: TasksConfig, open_sandbox: OpenSandbox) -> None:
        self._config: TasksConfig = config
        self._open_sandbox = open_sandbox
        self._prompt: Prompt

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config = self._config
        self._rollouts = Rollouts(config, tokenizer)
        self._prompt = load_prompt(Paths(root).configs, config.prompt)
        held_out = self._questions(root / config.held_out) if config.held_out else []
        return self._rollouts.load(root, self._questions(root / config.dataset), held_out)

    @cached_property
    def _sandbox(self) -> Sandbox:
        return self._open_sandbox()

    def score(self, example: Example, answer: SampledAnswer) -> Scored:
        answer_format = self._prompt.settings.answer
        if isinstance(example.item, RepositoryTask):
            is_read, reward = grade_repository_answer(example.item, answer.text, answer_format, self._sandbox)
            return Scored(rl_reward(is_read, reward), reward.cause)
        graded = grade_answer(example.item, answer.text, answer_format, self._sandbox, self._config.weights)
        return Scored(rl_reward(graded.is_read, graded.reward), graded.reward.cause)

    def _questions(self, path: Path) -> list[tuple[Any, Task | RepositoryTask]]:
        tasks = [_task(row, path, number) for number, row in enumerate(read_objects(path), 1)]
        shown = [task.block if isinstance(task, RepositoryTask) else task for task in tasks]
        return [(first_question(block, self._prompt), task) for block, task in zip(shown, tasks, strict=True)]


class RlGrpo(TasksRecipe):
    """The recipe."""

    def __init__(self, config: RlGrpoConfig, open_sandbox: OpenSandbox) -> None:
        super().__init__(config, open_sandbox)
        self._is_scaled = config.is_scaled

    def advantages(self, texts_G: Sequence[str], rewards_G: Sequence[float | None]) -> list[float | None] | None:
        return group_advantages(rewards_G, self._is_scaled)


class ExpertIteration(TasksRecipe):
    """The recipe."""

    def __init__(self, config: ExpertIterationConfig, open_sandbox: OpenSandbox) -> None:
        super().__init__(config, open_sandbox)
        self._least_reward = config.least_reward

    def advantages(self, texts_G: Sequence[str], rewards_G: Sequence[float | None]) -> list[float | None] | None:
        is_right_G = [reward is not None and reward >= self._least_reward for reward in rewards_G]
        if not any(is_right_G):
            return None
        # the same answer twice is no second lesson
        first = dict(zip(reversed(texts_G), reversed(range(len(texts_G))), strict=True))
        chosen_G = [
            is_right and first[text] == n for n, (text, is_right) in enumerate(zip(texts_G, is_right_G, strict=True))
        ]
        return [1 / sum(chosen_G) if is_chosen else None for is_chosen in chosen_G]


def _task(row: Any, path: Path, number: int) -> Task | RepositoryTask:
    try:
        return RepositoryTask.model_validate(row) if is_repository_task(row) else Task.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{path}, line {number}: is no task ({location}: {first['msg']}); tasks are below data/tasks, and what"
            " `sft_dataset` makes of a recipe of this kind"
        ) from None
