"""`distill`: a model learns from what a teacher thinks of the model's own answers, token by token.

Answers are drawn from the model that is trained. The advantage of a token is `coefficient * (log q - log p)`, `q` its
probability by the teacher, `p` that by the model when it was drawn: the reverse KL divergence is what becomes less. Agarwal et
al., On-Policy Distillation of Language Models, 2023 (https://arxiv.org/abs/2306.13649), and Thinking Machines, On-Policy
Distillation, 2025 (https://thinkingmachines.ai/blog/on-policy-distillation), of which the loss is: that of policy gradients,
without a discount. Teacher and model need the same tokenizer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from graftline.core.errors import DataError
from graftline.training.chats import read_lines_of
from graftline.training.datums import Tokenizer
from graftline.training.questions import Drawn
from graftline.training.recipes.base import Example, Gradients, Training, TrainingData
from graftline.training.recipes.rollouts import RolloutConfig, Rollouts, policy_loss, prompt_of
from graftline.training.service import Trainer, TrainingService
from graftline.training.teacher_logprobs import ActorTeacher, BackendTeacher, TeacherLogprobs

_TEACHERS = ("teacher_recipe", "teacher_path", "teacher_model", "teacher_fleet")

Compared = tuple[Example, Drawn, list[float]]
"""An answer, and by how much its tokens are more probable to the teacher: `log q - log p` of each."""


class DistillConfig(RolloutConfig):
    """On-policy distillation on questions: files with a `prompt` or with `messages`, whose last answer is left out."""

    recipe: Literal["distill"] = "distill"
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    group_size: int = Field(default=4, ge=1, le=1024)
    coefficient: float = Field(default=1.0, gt=0)
    teacher_recipe: str = ""
    """A recipe of the lineage, whose adapter teaches; one of these four is needed."""
    teacher_path: str = ""
    """A checkpoint of the backend to sample from."""
    teacher_model: str = ""
    """A model of the backend, without an adapter."""
    teacher_fleet: str = ""
    """A fleet of `configs/vllm_actors.yaml`, of vLLM servers with the tokenizer of the model."""

    @model_validator(mode="after")
    def _has_a_teacher(self) -> Self:
        if sum(bool(getattr(self, name)) for name in _TEACHERS) != 1:
            raise ValueError(f"one of {', '.join(_TEACHERS)} says who teaches; give exactly one")
        return self


class Distill:
    """The recipe; an example is a question."""

    def __init__(self, config: DistillConfig) -> None:
        self._config = config
        self._rollouts: Rollouts
        self._tokenizer: Tokenizer
        self._teacher: TeacherLogprobs | None = None
        self._root = Path()

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config, self._root = self._config, root
        self._rollouts, self._tokenizer = Rollouts(config, tokenizer), tokenizer
        held_out = _questions(root / config.held_out) if config.held_out else []
        return self._rollouts.load(root, _questions(root / config.dataset), held_out)

    def prepare(self, service: TrainingService, trainer: Trainer, data: TrainingData) -> dict[str, Any]:
        # a teacher that is not there is told before anything is drawn
        self._of_teacher(service)
        return {}

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        examples = training.examples(batch)
        drawn = self._rollouts.draw(training, step, batch)
        compared = self._compared(training, examples, drawn)
        coefficient = self._config.coefficient
        learned = [(example, answer, [coefficient * gap for gap in gaps]) for example, answer, gaps in compared]
        metrics = {"reverse_kl": _reverse_kl(compared)}
        return self._rollouts.send(training, learned, metrics, [*zip(examples, drawn, strict=True)])

    def loss(self, answer: Any, sent: Gradients, batch: Sequence[int]) -> float:
        return policy_loss(answer, sent)

    def look(self, training: Training, examples: Sequence[Example]) -> float:
        """Return the reverse KL divergence per token, of answers that are drawn with the same seeds every time."""
        drawn = self._rollouts.answers(training, examples, range(len(examples)), "the look at held-out questions")
        return _reverse_kl(self._compared(training, examples, drawn))

    def _compared(
        self, training: Training, examples: Sequence[Example], drawn: Sequence[Sequence[Drawn]]
    ) -> list[Compared]:
        answers = [(example, one) for example, some in zip(examples, drawn, strict=True) for one in some if one.tokens]
        teacher = self._of_teacher(training.service)
        found = teacher.logprobs([[*prompt_of(example), *one.tokens] for example, one in answers])
        return [
            (
                example,
                one,
                [theirs - own for theirs, own in zip(logprobs[-len(one.tokens) :], one.logprobs, strict=True)],
            )
            for (example, one), logprobs in zip(answers, found, strict=True)
        ]

    def _of_teacher(self, service: TrainingService) -> TeacherLogprobs:
        if self._teacher is None:
            config = self._config
            if config.teacher_fleet:
                self._teacher = ActorTeacher(config.teacher_fleet, self._root, self._tokenizer, config.deadline_s)
            else:
                self._teacher = BackendTeacher(service, config.teacher_path or None, config.teacher_model or None)
        return self._teacher


def _reverse_kl(compared: Sequence[Compared]) -> float:
    gaps = [gap for _, _, of_answer in compared for gap in of_answer]
    return -sum(gaps) / len(gaps) if gaps else 0.0


def _questions(path: Path) -> list[tuple[Any, None]]:
    found = []
    for number, row in enumerate(read_lines_of(path), 1):
        chat = row.get("prompt") or row.get("messages")
        if not isinstance(chat, list) or not chat:
            raise DataError(
                f"{path}, line {number}: has neither prompt nor messages; `graftline trajectories export sft` writes such"
                " files"
            )
        is_answered = isinstance(chat[-1], dict) and chat[-1].get("role") == "assistant"
        found.append((chat[:-1] if is_answered else chat, None))
    return found
