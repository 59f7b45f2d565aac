"""Recipes whose examples are tasks: answers are drawn, and what they are worth says what is learned of them.

What an answer is worth is said by the `reward` of the recipe (`recipes.rewards`). One of which nothing is known is left out.

`rl_grpo`: advantages are those of `recipes.rollouts`, of answers to the same question; the loss is that of `loss`
(https://tinker-docs.thinkingmachines.ai/losses), `-(p / p_sampled) * advantage` by default, summed over tokens.

`expert_iteration`: right answers are learned as if they had been given, and all others left out (Anthony et al., Thinking Fast and
Slow with Deep Learning and Tree Search, 2017, https://arxiv.org/abs/1705.08439; with samples of a language model: Dong et al., RAFT,
2023, https://arxiv.org/abs/2304.06767). All right answers to a question weigh together as one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from graftline.core.paths import Paths
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.training.answers import SampledAnswer
from graftline.training.examples import Example, TrainingData, read_objects
from graftline.training.recipes.base import OpenSandbox
from graftline.training.recipes.rewards import AnswerReward, Question, RewardName, open_reward
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
    reward: RewardName | Literal["recorded"] = "sandbox"
    """What answers are worth (`recipes.rewards`); with `recorded`, of `rl_grpo` alone, answers are not drawn but read
    (`recipes.recorded`)."""
    weights: RewardWeights = RewardWeights()
    """Of reward `sandbox`."""


class RlGrpoConfig(TasksConfig, ContrastConfig):
    """Reinforcement learning on tasks."""

    recipe: Literal["rl_grpo"] = "rl_grpo"


class ExpertIterationConfig(TasksConfig):
    """Learning from one's own right answers."""

    recipe: Literal["expert_iteration"] = "expert_iteration"
    reward: RewardName = "sandbox"
    least_reward: float = Field(default=0.7, gt=0, le=1)
    """Of an answer that is right."""


class TasksRecipe(GroupRecipe):
    """What both do; an example is a task."""

    _reward: AnswerReward

    def __init__(self, config: TasksConfig, open_sandbox: OpenSandbox) -> None:
        self._config: TasksConfig = config
        self._open_sandbox = open_sandbox

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config = self._config
        self._rollouts = Rollouts(config, tokenizer)
        prompt = load_prompt(Paths(root).configs, config.prompt)
        assert config.reward != "recorded"  # that has a recipe of its own
        self._reward = open_reward(config.reward, prompt, self._open_sandbox, config.weights)
        held_out = self._questions(root / config.held_out) if config.held_out else []
        return self._rollouts.load(root, self._questions(root / config.dataset), held_out)

    def score(self, example: Example, answer: SampledAnswer) -> Scored:
        return self._reward.score(example.item, answer.text)

    def _questions(self, path: Path) -> list[Question]:
        return [self._reward.ask(row, f"{path}, line {number}") for number, row in enumerate(read_objects(path), 1)]


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
