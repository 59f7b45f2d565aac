"""`srl`: the action after a verified prefix is rewarded by how alike it is to that of an expert.

The reward is 2M/T of the two actions as texts (`codemod.canonical`), -1 for an answer that cannot be read: Deng et al.,
Supervised Reinforcement Learning, 2025 (https://arxiv.org/abs/2510.25992), section 3. What the model thinks is not
rewarded. Advantages are those of `recipes.rollouts`, groups without contrast left out, as there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from graftline.astgrep.action import ACTION
from graftline.codemod.canonical import MAX_COMPARED_CHARACTERS, canonical_text, similarity
from graftline.core.errors import DataError
from graftline.rollouts.reward import BAD_FORMAT
from graftline.rollouts.teachers.answer import AnswerFormat, ParseError, parse_answer
from graftline.training.answers import SampledAnswer
from graftline.training.examples import Example, TrainingData, read_rows
from graftline.training.recipes.rollouts import ContrastConfig, GroupRecipe, Rollouts, Scored, group_advantages


class SrlConfig(ContrastConfig):
    """Reinforcement learning on the steps of experts: files of `graftline data export srl`."""

    recipe: Literal["srl"] = "srl"
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    answer: AnswerFormat = AnswerFormat(layout="action")
    """The form in which an action is to be given: that of the prompt that the file was exported with."""


class Srl(GroupRecipe):
    """The recipe; an example is a step of an expert."""

    def __init__(self, config: SrlConfig) -> None:
        self._config: SrlConfig = config

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config = self._config
        self._rollouts = Rollouts(config, tokenizer)
        held_out = _read_steps(root / config.held_out) if config.held_out else []
        steps = _read_steps(root / config.dataset)
        comparable = [*filter(_is_comparable, steps)]
        data = self._rollouts.load(root, comparable, [*filter(_is_comparable, held_out)])
        if excluded := len(steps) - len(comparable):
            data.dropped["not_comparable"] = excluded
        return data

    def score(self, example: Example, answer: SampledAnswer) -> Scored:
        parsed = parse_answer(answer.text, self._config.answer)
        if isinstance(parsed, ParseError):
            return Scored(-1.0, BAD_FORMAT)
        likeness = similarity(parsed.action, [example.item])
        return Scored(likeness, "not_compared" if likeness is None else "compared")

    def advantages(self, texts_G: Sequence[str], rewards_G: Sequence[float | None]) -> list[float | None] | None:
        return group_advantages(rewards_G, self._config.is_scaled)


def _is_comparable(step: tuple[Any, Any]) -> bool:
    # of whose answers nothing would ever be known
    return len(canonical_text(step[1])) <= MAX_COMPARED_CHARACTERS


def _read_steps(path: Path) -> list[tuple[Any, Any]]:
    steps = []
    for number, row in enumerate(read_rows(path, "prompt", "srl"), 1):
        try:
            steps.append((row["prompt"], ACTION.validate_python(row.get("expert_action"))))
        except ValidationError as error:
            why = error.errors()[0]["msg"] if "expert_action" in row else "there is none"
            raise DataError(
                f"{path}, line {number}: expert_action is no action ({why}); `graftline data export srl` writes such"
                " files"
            ) from None
    return steps
