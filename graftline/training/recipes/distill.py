"""`distill`: a model learns from what a teacher thinks of the model's own answers, token by token.

Answers are drawn from the model that is trained. The advantage of a token is `coefficient * (log q - log p)`, `q` its
probability by the teacher, `p` that by the model when it was drawn: the reverse KL divergence is what becomes less. Agarwal et
al., On-Policy Distillation of Language Models, 2023 (https://arxiv.org/abs/2306.13649), and Thinking Machines, On-Policy
Distillation, 2025 (https://thinkingmachines.ai/blog/on-policy-distillation), of which the loss is: that of policy gradients,
without a discount. Teacher and model need the same tokenizer.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from graftline.core.errors import DataError, TrainingError
from graftline.core.paths import Paths
from graftline.core.secrets import open_secrets
from graftline.llm.client import Fault
from graftline.llm.fleet import load_fleet
from graftline.training.answers import Drawn
from graftline.training.datums import Tokenizer
from graftline.training.examples import read_lines_of
from graftline.training.recipes.base import Example, Gradients, Training, TrainingData
from graftline.training.recipes.rollouts import RolloutConfig, Rollouts, policy_loss, prompt_of
from graftline.training.service import Trainer, TrainingService

if TYPE_CHECKING:
    from graftline.llm.client import ActorClient

_TEACHERS = ("teacher_recipe", "teacher_path", "teacher_model", "teacher_fleet")

Compared = tuple[Example, Drawn, list[float]]
"""An answer, and by how much its tokens are more probable to the teacher: `log q - log p` of each."""


class TeacherLogprobs(Protocol):
    """A model with the tokenizer of the one that is trained."""

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the logprobs of the tokens of each sequence but the first.

        Raises:
            TrainingError: the teacher does not say.
        """


class BackendTeacher:
    """A model, or a checkpoint, of the backend that trains."""

    def __init__(self, service: TrainingService, path: str | None, model: str | None) -> None:
        self._service = service
        self._sampler = service.sampling_client(model_path=path, base_model=model)

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        from tinker import types

        asked = [self._sampler.compute_logprobs(types.ModelInput.from_ints([*sequence])) for sequence in sequences]
        found = [self._service.result(future, "what the teacher thinks") for future in asked]
        return [_known("the teacher", values[1:], sequence) for values, sequence in zip(found, sequences, strict=True)]


class ActorTeacher:
    """The vLLM servers of a fleet, sequences dealt out among them.

    They are asked for `prompt_logprobs` of tokens (https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
    the completions API): other servers do not say what they think of a prompt. Each token comes back with its text, by which
    a server with another tokenizer is known.
    """

    def __init__(self, fleet: str, root: Path, tokenizer: Tokenizer, deadline_s: float) -> None:
        """Read which servers there are.

        Raises:
            ConfigError: there is no such fleet, or its key is missing.
        """
        self._fleet = load_fleet(Paths(root).configs, fleet)
        secrets = open_secrets(os.environ, root)
        self._key = secrets.require(self._fleet.api_key, f"fleet {fleet}") if self._fleet.api_key else None
        self._tokenizer, self._deadline_s = tokenizer, deadline_s

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        return asyncio.run(self._of_all(sequences))

    async def _of_all(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        # loads what speaks to servers, for whoever only wants to know the recipes
        from graftline.llm.client import ActorClient

        actors = self._fleet.actors
        clients = [ActorClient(actor.url, self._fleet.api_path, self._key) for actor in actors]
        rooms = [asyncio.Semaphore(actor.slots) for actor in actors]

        async def ask(number: int, sequence: Sequence[int]) -> list[float]:
            which = number % len(actors)
            async with rooms[which]:
                return await self._ask(clients[which], actors[which].name, sequence)

        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(ask(number, sequence)) for number, sequence in enumerate(sequences)]
            return [task.result() for task in asked]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for client in clients:
                await client.close()

    async def _ask(self, client: "ActorClient", name: str, sequence: Sequence[int]) -> list[float]:
        asked = {
            "model": self._fleet.called,
            "prompt": [*sequence],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        try:
            answer = json.loads(await client.post("/completions", json.dumps(asked).encode(), self._deadline_s))
            found = answer["choices"][0]["prompt_logprobs"]
            said = [one[str(token)] for one, token in zip(found[1:], sequence[1:], strict=True)]
            values = [one["logprob"] for one in said]
            texts = [one.get("decoded_token") for one in said]
        except Fault as fault:
            raise TrainingError(f"teacher {name}: {fault.message}; see `graftline actors status`, and resume") from None
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            raise TrainingError(
                f"teacher {name}: does not say what it thinks of each token of a prompt; it has to be vLLM, with the tokenizer"
                " of the model"
            ) from None
        self._check_texts(name, sequence[1:], texts)
        return _known(f"teacher {name}", values, sequence)

    def _check_texts(self, name: str, tokens: Sequence[int], texts: Sequence[Any]) -> None:
        """Refuse a teacher that reads other texts in `tokens`: what it thinks of them is about something else."""
        own = [self._tokenizer.decode([token]).strip() for token in tokens]
        # parts of characters, and blanks, are shown in more than one way
        pairs = [
            (mine, theirs.strip())
            for mine, theirs in zip(own, texts, strict=True)
            if isinstance(theirs, str)
            and mine
            and theirs.strip()
            and not {"\N{REPLACEMENT CHARACTER}"} & {*mine, *theirs}
        ]
        apart = [pair for pair in pairs if pair[0] != pair[1]]
        if 2 * len(apart) > len(pairs):
            mine, theirs = apart[0]
            raise TrainingError(
                f"teacher {name}: reads {theirs!r} where the model has {mine!r}; it needs the tokenizer of the model"
            )


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


def _known(who: str, values: Sequence[Any], sequence: Sequence[int]) -> list[float]:
    if len(values) != len(sequence) - 1:
        raise TrainingError(
            f"{who}: gives {len(values)} logprobs of {len(sequence) - 1} tokens; it needs the tokenizer of the model"
        )
    wrong = [value for value in values if not isinstance(value, int | float) or not isfinite(value)]
    if wrong:
        raise TrainingError(f"{who}: gives {wrong[0]!r} where a logprob was expected; see its log")
    return [float(value) for value in values]
