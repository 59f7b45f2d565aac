"""`srl`: the action after a verified prefix is rewarded by how alike it is to that of an expert.

The reward is 2M/T of the two actions as texts (`rules.similarity`), -1 for an answer that cannot be read: Deng et al.,
Supervised Reinforcement Learning, 2025 (https://arxiv.org/abs/2510.25992), section 3. What the model thinks is not
rewarded. Advantages are those of `recipes.groups`, groups without contrast left out, as there.
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
from graftline.training.answers import Drawn
from graftline.training.examples import read_rows
from graftline.training.recipes.base import Example, Gradients, Training, TrainingData
from graftline.training.recipes.rollouts import GroupConfig, Rollouts, Scored, learn, look, policy_loss
from graftline.training.service import Trainer, TrainingService


class SrlConfig(GroupConfig):
    """Reinforcement learning on the steps of experts: files of `graftline trajectories export srl`."""

    recipe: Literal["srl"] = "srl"
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    answer: AnswerFormat = AnswerFormat(layout="action")
    """The form in which an action is to be given: that of the prompt that the file was exported with."""


class Srl:
    """The recipe; an example is a step of an expert."""

    def __init__(self, config: SrlConfig) -> None:
        self._config = config
        self._rollouts: Rollouts

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config = self._config
        self._rollouts = Rollouts(config, tokenizer)
        held_out = _steps(root / config.held_out) if config.held_out else []
        steps = _steps(root / config.dataset)
        comparable = [*filter(_is_comparable, steps)]
        data = self._rollouts.load(root, comparable, [*filter(_is_comparable, held_out)])
        if left_out := len(steps) - len(comparable):
            data.dropped["not_comparable"] = left_out
        return data

    def prepare(self, service: TrainingService, trainer: Trainer, data: TrainingData) -> dict[str, Any]:
        return {}

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        return learn(self._config, self._rollouts, training, step, batch, self._score)

    def loss(self, answer: Any, sent: Gradients, batch: Sequence[int]) -> float:
        return policy_loss(answer, sent)

    def look(self, training: Training, examples: Sequence[Example]) -> float:
        return look(self._rollouts, training, examples, self._score)

    def _score(self, example: Example, answer: Drawn) -> Scored:
        found = parse_answer(answer.text, self._config.answer)
        if isinstance(found, ParseError):
            return Scored(-1.0, BAD_FORMAT)
        likeness = similarity(found.action, [example.item])
        return Scored(likeness, "not_compared" if likeness is None else "compared")


def _is_comparable(step: tuple[Any, Any]) -> bool:
    # of whose answers nothing would ever be known
    return len(canonical_text(step[1])) <= MAX_COMPARED_CHARACTERS


def _steps(path: Path) -> list[tuple[Any, Any]]:
    found = []
    for number, row in enumerate(read_rows(path, "prompt", "srl"), 1):
        try:
            found.append((row["prompt"], ACTION.validate_python(row.get("expert_action"))))
        except ValidationError as error:
            why = error.errors()[0]["msg"] if "expert_action" in row else "there is none"
            raise DataError(
                f"{path}, line {number}: expert_action is no action ({why}); `graftline trajectories export srl` writes such"
                " files"
            ) from None
    return found
