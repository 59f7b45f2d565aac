"""Questions that a model answers while it is trained or evaluated, and how many tasks it solves without an adapter and with it.

A question is a chat without its answer, as tokens; a task gets one answer, the most probable one.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graftline.core.errors import DataError, TrainingError
from graftline.rollouts.answer_grading import GradedAnswer, first_question, grade_answer
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.task import Task
from graftline.rollouts.task_selection import template_of
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox
from graftline.training.datums import Tokenizer, chat_fault, open_renderer
from graftline.training.tinker import ResultFuture, TinkerSDKClient

if TYPE_CHECKING:
    from tinker import SamplingClient, types

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class AnswerSampling:
    """How answers are sampled."""

    max_tokens: int
    """Of an answer."""
    temperature: float = 0.0
    count: int = 1
    """To each question."""


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One answer."""

    tokens: list[int]
    logprobs: list[float]
    """Of each of its tokens, at temperature 1."""
    text: str


class Questions:
    """Makes tokens of questions, and text of the tokens of answers, by one renderer."""

    def __init__(self, renderer: str, tokenizer: Tokenizer) -> None:
        self._renderer = open_renderer(renderer, tokenizer)

    def tokens(self, chat: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of `chat` up to where its answer begins; DataError where the renderer refuses it."""
        from tinker_cookbook.exceptions import RendererError

        if fault := chat_fault(chat):
            raise DataError(fault)
        try:
            prompt = self._renderer.build_generation_prompt([dict(message) for message in chat])
        except RendererError as error:
            raise DataError(f"the renderer refuses the chat ({error}); mend it, or use another renderer") from None
        tokens: list[int] = prompt.to_ints()
        return tokens

    def text(self, tokens: Sequence[int]) -> str:
        """Return what `tokens` say, without what ends an answer; thoughts stay between their tags."""
        content = self._renderer.parse_response([*tokens])[0]["content"]
        if isinstance(content, str):
            return content
        # where nothing tells them from the answer, an action that was only thought of would count as the answer
        return "".join(
            f"<think>{part['thinking']}</think>" if part["type"] == "thinking" else part.get("text", "")
            for part in content
        )

    def ask(
        self,
        sampler: "SamplingClient",
        prompts: Sequence[Sequence[int]],
        sampling: AnswerSampling,
        seeds: Sequence[int],
    ) -> "list[ResultFuture[types.SampleResponse]]":
        """Send all `prompts`, each with a seed of its own."""
        from tinker import types

        stop = self._renderer.get_stop_sequences()
        return [
            sampler.sample(
                types.ModelInput.from_ints([*prompt]),
                sampling.count,
                types.SamplingParams(
                    max_tokens=sampling.max_tokens, temperature=sampling.temperature, seed=seed, stop=stop
                ),
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]

    def wait(
        self, service: TinkerSDKClient, futures: "Sequence[ResultFuture[types.SampleResponse]]", subject: str
    ) -> list[list[SampledAnswer]]:
        """Return the answers to each question; TrainingError, which begins with `subject`, where they do not come."""
        return [
            [
                SampledAnswer([*sequence.tokens], [*(sequence.logprobs or ())], self.text(sequence.tokens))
                for sequence in service.result(future, subject).sequences
            ]
            for future in futures
        ]


def prompt_datum(tokens: Sequence[int]) -> Any:
    """Return a question as a datum, each of its tokens with weight 1."""
    return _datum(tokens, weights=[1.0] * (len(tokens) - 1))


def policy_datum(prompt: Sequence[int], answer: SampledAnswer, advantages: Sequence[float]) -> Any:
    """Return an answer as a datum of the losses of policy gradients, with an advantage for each of its tokens."""
    padding = [0.0] * (len(prompt) - 1)
    return _datum([*prompt, *answer.tokens], logprobs=[*padding, *answer.logprobs], advantages=[*padding, *advantages])


def _datum(tokens: Sequence[int], **inputs: list[float]) -> Any:
    from tinker import types

    length = len(tokens) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints([*tokens[:-1]]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=[*tokens[1:]], dtype="int64", shape=[length]),
            **{name: types.TensorData(data=values, dtype="float32", shape=[length]) for name, values in inputs.items()},
        },
    )


def solve(
    service: TinkerSDKClient,
    sampler: "SamplingClient",
    tasks: Sequence[Task],
    prompt: Prompt,
    questions: Questions,
    sandbox: Sandbox,
    answer_tokens: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[GradedAnswer]:
    """Return the graded answer of `sampler` to each task, in their order."""
    prompts = [questions.tokens(first_question(task, prompt)) for task in tasks]
    futures = questions.ask(sampler, prompts, AnswerSampling(answer_tokens), [0] * len(tasks))
    answers = []
    for number, (task, future) in enumerate(zip(tasks, futures, strict=True), 1):
        [[answer]] = questions.wait(service, [future], f"the answer to {task.id}")
        answers.append(grade_answer(task, answer.text, prompt.settings.answer, sandbox, RewardWeights()))
        advance(number, len(tasks))
    return answers


def rows(tasks: Sequence[Task], before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> list[Row]:
    """Return for every task the answers before and after training, and what each is worth, as JSON."""
    return [
        {
            "task_id": task.id,
            "language": task.language,
            "template": template_of(task),
            "instruction": task.instruction,
            **{
                f"{when}.{key}": value
                for when, answer in (("before", first), ("after", last))
                for key, value in {
                    "answer": answer.text,
                    "reward": answer.reward.value,
                    "cause": answer.reward.cause,
                    "is_verified": answer.is_verified,
                }.items()
            },
        }
        for task, first, last in zip(tasks, before, after, strict=True)
    ]


def overview(tasks: Sequence[Task], before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> list[Row]:
    """Return by template, and for all, how many tasks are solved before and after, and how many are not known."""
    groups: dict[str, list[tuple[GradedAnswer, GradedAnswer]]] = defaultdict(list)
    for task, first, last in zip(tasks, before, after, strict=True):
        groups[template_of(task)].append((first, last))
    groups = dict(sorted(groups.items()))
    groups["all"] = [pair for group in [*groups.values()] for pair in group]
    return [
        {
            "of": name,
            "tasks": len(pairs),
            "solved before": sum(first.is_verified for first, _ in pairs),
            "solved after": sum(last.is_verified for _, last in pairs),
            "unknown": sum(None in (first.reward.value, last.reward.value) for first, last in pairs),
        }
        for name, pairs in groups.items()
    ]


def check_known(answers: Sequence[GradedAnswer], which: str) -> None:
    """Raise TrainingError where no reward is known, for the machine did not say."""
    if answers and all(answer.reward.value is None for answer in answers):
        raise TrainingError(f"nothing is known of any answer of {which}; mend the machine, and run again")
