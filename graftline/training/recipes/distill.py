"""`distill`: a model learns from what a teacher thinks of the model's own answers, token by token.

Answers are sampled from the model that is trained. The advantage of a token is `coefficient * (log q - log p)`, `q` its
probability by the teacher, `p` that by the model when it was sampled: the reverse KL divergence is what becomes less. Agarwal
et al., On-Policy Distillation of Language Models, 2023 (https://arxiv.org/abs/2306.13649), and Thinking Machines, On-Policy
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
from graftline.llm.fleet import load_fleet
from graftline.training.answers import SampledAnswer
from graftline.training.datums import Tokenizer
from graftline.training.examples import Example, TrainingData, read_objects
from graftline.training.recipes.base import Gradients, Recipe, Training
from graftline.training.recipes.rollouts import AskedTokens, RolloutConfig, Rollouts, prompt_of
from graftline.training.tinker import TinkerSDKClient

if TYPE_CHECKING:
    from tinker import TrainingClient

    from graftline.llm.client import ActorClient

_TEACHERS = ("teacher_recipe", "teacher_path", "teacher_model", "teacher_fleet")

Comparison = tuple[Example, SampledAnswer, list[float]]
"""An answer, and by how much its tokens are more probable to the teacher: `log q - log p` of each."""


class DistillConfig(RolloutConfig):
    """On-policy distillation on questions: files with a `prompt` or with `messages`, whose last answer is left out, or with
    `prompt_token_ids`."""

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


class Distill(Recipe):
    """The recipe; an example is a question."""

    def __init__(self, config: DistillConfig) -> None:
        self._config = config
        self._tokenizer: Tokenizer
        self._rollouts: Rollouts
        self._teacher: TeacherLogprobs | None = None
        self._root = Path()

    def load(self, root: Path, tokenizer: Any) -> TrainingData:
        config, self._root = self._config, root
        self._rollouts, self._tokenizer = Rollouts(config, tokenizer), tokenizer
        held_out = _read_questions(root / config.held_out) if config.held_out else []
        return self._rollouts.load(root, _read_questions(root / config.dataset), held_out)

    def prepare(self, service: TinkerSDKClient, trainer: "TrainingClient", data: TrainingData) -> dict[str, Any]:
        # a teacher that is not there is noticed before anything is sampled
        self._open_teacher(service)
        return {}

    def gradients(self, training: Training, step: int, batch: Sequence[int]) -> Gradients:
        examples = training.examples(batch)
        answers = self._rollouts.sample_step(training, step, batch)
        comparisons = self._compare(training, examples, answers)
        coefficient = self._config.coefficient
        lessons = [(example, answer, [coefficient * gap for gap in gaps]) for example, answer, gaps in comparisons]
        metrics = {"reverse_kl": _reverse_kl(comparisons)}
        return self._rollouts.send(training, lessons, metrics, [*zip(examples, answers, strict=True)])

    def evaluate(self, training: Training, examples: Sequence[Example]) -> float:
        """Return the reverse KL divergence per token, of answers that are sampled with the same seeds every time."""
        subject = "the answers of the look at held-out questions"
        answers = self._rollouts.sample(training, examples, range(len(examples)), subject)
        return _reverse_kl(self._compare(training, examples, answers))

    def _compare(
        self, training: Training, examples: Sequence[Example], answers: Sequence[Sequence[SampledAnswer]]
    ) -> list[Comparison]:
        pairs = [
            (example, answer)
            for example, group in zip(examples, answers, strict=True)
            for answer in group
            if answer.tokens
        ]
        teacher = self._open_teacher(training.service)
        opinions = teacher.logprobs([[*prompt_of(example), *answer.tokens] for example, answer in pairs])
        return [
            (
                example,
                answer,
                [theirs - own for theirs, own in zip(logprobs[-len(answer.tokens) :], answer.logprobs, strict=True)],
            )
            for (example, answer), logprobs in zip(pairs, opinions, strict=True)
        ]

    def _open_teacher(self, service: TinkerSDKClient) -> "TeacherLogprobs":
        if self._teacher is None:
            config = self._config
            if config.teacher_fleet:
                self._teacher = ActorTeacher(config.teacher_fleet, self._root, self._tokenizer, config.deadline_s)
            else:
                self._teacher = BackendTeacher(service, config.teacher_path or None, config.teacher_model or None)
        return self._teacher


def _reverse_kl(comparisons: Sequence[Comparison]) -> float:
    gaps = [gap for _, _, answer_gaps in comparisons for gap in answer_gaps]
    return -sum(gaps) / len(gaps) if gaps else 0.0


def _read_questions(path: Path) -> list[tuple[Any, None]]:
    questions: list[tuple[Any, None]] = []
    for number, row in enumerate(read_objects(path), 1):
        if (ids := row.get("prompt_token_ids")) and isinstance(ids, list) and all(type(id) is int for id in ids):
            # what an agent asked, as the server read it: with its tools, which renderers write otherwise
            questions.append((AskedTokens(ids), None))
            continue
        chat = row.get("prompt") or row.get("messages")
        if not isinstance(chat, list) or not chat:
            raise DataError(
                f"{path}, line {number}: has neither prompt nor messages; `graftline data export sft` writes such files"
            )
        is_answered = isinstance(chat[-1], dict) and chat[-1].get("role") == "assistant"
        questions.append((chat[:-1] if is_answered else chat, None))
    return questions


class TeacherLogprobs(Protocol):
    """A model with the tokenizer of the one that is trained."""

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the logprobs of the tokens of each sequence but the first; TrainingError where the teacher does not say."""


class BackendTeacher:
    """A model, or a checkpoint, of the backend that trains."""

    def __init__(self, service: TinkerSDKClient, path: str | None, model: str | None) -> None:
        self._service = service
        self._sampler = service.sampling_client(model_path=path, base_model=model)

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        from tinker import types

        futures = [self._sampler.compute_logprobs(types.ModelInput.from_ints([*sequence])) for sequence in sequences]
        rows = [self._service.result(future, "what the teacher thinks") for future in futures]
        return [
            _check_logprobs("the teacher", row[1:], sequence) for row, sequence in zip(rows, sequences, strict=True)
        ]


class ActorTeacher:
    """The vLLM servers of a fleet, sequences dealt out among them.

    They are asked for `prompt_logprobs` of tokens (https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
    the completions API): other servers do not say what they think of a prompt. Each token comes back with its text, by which
    a server with another tokenizer is recognized.
    """

    def __init__(self, fleet: str, root: Path, tokenizer: Tokenizer, deadline_s: float) -> None:
        """Read which servers there are; ConfigError where there is no such fleet, or its key is missing."""
        self._fleet = load_fleet(Paths(root).configs, fleet)
        secrets = open_secrets(os.environ, root)
        self._key = secrets.require(self._fleet.api_key, f"fleet {fleet}") if self._fleet.api_key else None
        self._tokenizer, self._deadline_s = tokenizer, deadline_s

    def logprobs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        return asyncio.run(self._ask_all(sequences))

    async def _ask_all(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        # loads what speaks to servers, for whoever only wants to know the recipes
        from graftline.llm.client import ActorClient

        actors = self._fleet.actors
        clients = [ActorClient(actor.url, self._fleet.api_path, self._key) for actor in actors]
        slots = [asyncio.Semaphore(actor.slots) for actor in actors]

        async def ask(number: int, sequence: Sequence[int]) -> list[float]:
            actor = number % len(actors)
            async with slots[actor]:
                return await self._ask(clients[actor], actors[actor].name, sequence)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(number, sequence)) for number, sequence in enumerate(sequences)]
            return [task.result() for task in tasks]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for client in clients:
                await client.close()

    async def _ask(self, client: "ActorClient", name: str, sequence: Sequence[int]) -> list[float]:
        from graftline.llm.client import Fault  # as in `_ask_all`

        body = {
            "model": self._fleet.called,
            "prompt": [*sequence],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        try:
            response = json.loads(await client.post("/completions", json.dumps(body).encode(), self._deadline_s))
            rows = response["choices"][0]["prompt_logprobs"]
            entries = [row[str(token)] for row, token in zip(rows[1:], sequence[1:], strict=True)]
            values = [entry["logprob"] for entry in entries]
            texts = [entry.get("decoded_token") for entry in entries]
        except Fault as fault:
            raise TrainingError(f"teacher {name}: {fault.message}; see `graftline model status`, and resume") from None
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            raise TrainingError(
                f"teacher {name}: does not say what it thinks of each token of a prompt; it has to be vLLM, with the tokenizer"
                " of the model"
            ) from None
        self._check_texts(name, sequence[1:], texts)
        return _check_logprobs(f"teacher {name}", values, sequence)

    def _check_texts(self, name: str, tokens: Sequence[int], texts: Sequence[Any]) -> None:
        """Refuse a teacher that reads other texts in `tokens`: its logprobs are about something else."""
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


def _check_logprobs(teacher: str, values: Sequence[Any], sequence: Sequence[int]) -> list[float]:
    if len(values) != len(sequence) - 1:
        raise TrainingError(
            f"{teacher}: gives {len(values)} logprobs of {len(sequence) - 1} tokens; it needs the tokenizer of the model"
        )
    wrong = [value for value in values if not isinstance(value, int | float) or not isfinite(value)]
    if wrong:
        raise TrainingError(f"{teacher}: gives {wrong[0]!r} where a logprob was expected; see its log")
    return [float(value) for value in values]
