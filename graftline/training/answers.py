"""Questions that a model answers while it is trained or looked at: chats without their answer, as tokens."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graftline.core.errors import DataError, TrainingError
from graftline.core.markdown import plain_table
from graftline.rollouts.answer_grading import GradedAnswer, first_question, grade_answer
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.task import Task
from graftline.rollouts.task_selection import template_of
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox
from graftline.training.datums import Tokenizer, fault_of, open_renderer
from graftline.training.service import Awaited, Sampler, TrainingService

if TYPE_CHECKING:
    from tinker import types


@dataclass(frozen=True, slots=True)
class Drawing:
    """How answers are drawn."""

    max_tokens: int
    """Of an answer."""
    temperature: float = 0.0
    count: int = 1
    """To each question."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One answer."""

    tokens: list[int]
    logprobs: list[float]
    """Of each of its tokens, at temperature 1."""
    text: str


class Questions:
    """Makes tokens of questions, and text of the tokens of answers, by one renderer."""

    def __init__(self, renderer: str, tokenizer: Tokenizer) -> None:
        """Open the renderer.

        Raises:
            ConfigError: it is unknown, or does not suit the tokenizer.
        """
        self._renderer = open_renderer(renderer, tokenizer)

    def tokens(self, chat: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of `chat` up to where its answer begins.

        Raises:
            DataError: it is no chat, or the renderer refuses it.
        """
        from tinker_cookbook.exceptions import RendererError

        if fault := fault_of(chat):
            raise DataError(fault)
        try:
            found: list[int] = self._renderer.build_generation_prompt([dict(message) for message in chat]).to_ints()
        except RendererError as error:
            raise DataError(f"the renderer refuses the chat ({error}); mend it, or use another renderer") from None
        return found

    def text(self, tokens: Sequence[int]) -> str:
        """Return what `tokens` say, without what ends an answer; thoughts stay between their tags."""
        content = self._renderer.parse_response([*tokens])[0]["content"]
        if isinstance(content, str):
            return content
        # where nothing tells them from the answer, an action that was only thought of is one that is given
        return "".join(
            f"<think>{part['thinking']}</think>" if part["type"] == "thinking" else part.get("text", "")
            for part in content
        )

    def ask(
        self, sampler: Sampler, prompts: Sequence[Sequence[int]], drawing: Drawing, seeds: Sequence[int]
    ) -> "list[Awaited[types.SampleResponse]]":
        """Send all `prompts`, each with a seed of its own."""
        from tinker import types

        stop = self._renderer.get_stop_sequences()
        return [
            sampler.sample(
                types.ModelInput.from_ints([*prompt]),
                drawing.count,
                types.SamplingParams(
                    max_tokens=drawing.max_tokens, temperature=drawing.temperature, seed=seed, stop=stop
                ),
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]

    def drawn(
        self, service: TrainingService, asked: "Sequence[Awaited[types.SampleResponse]]", what: str
    ) -> list[list[Drawn]]:
        """Wait for the answers that were asked for, by question; `what` they are is said where they do not come.

        Raises:
            TrainingError: they do not come.
        """
        return [
            [
                Drawn([*sequence.tokens], [*(sequence.logprobs or ())], self.text(sequence.tokens))
                for sequence in service.result(future, what).sequences
            ]
            for future in asked
        ]


def prompt_datum(tokens: Sequence[int]) -> Any:
    """Return a question as a datum, each of its tokens with weight 1: what a model says of it tells the model."""
    from tinker import types

    return types.Datum(
        model_input=types.ModelInput.from_ints([*tokens[:-1]]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=[*tokens[1:]], dtype="int64", shape=[len(tokens) - 1]),
            "weights": types.TensorData(data=[1.0] * (len(tokens) - 1), dtype="float32", shape=[len(tokens) - 1]),
        },
    )


def policy_datum(prompt: Sequence[int], answer: Drawn, advantages: Sequence[float]) -> Any:
    """Return an answer as a datum of the losses of policy gradients, with an advantage for each of its tokens."""
    from tinker import types

    tokens, before = [*prompt, *answer.tokens], [0.0] * (len(prompt) - 1)
    length = len(tokens) - 1

    def floats(values: Sequence[float]) -> types.TensorData:
        return types.TensorData(data=[*before, *values], dtype="float32", shape=[length])

    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=tokens[1:], dtype="int64", shape=[length]),
            "logprobs": floats(answer.logprobs),
            "advantages": floats(advantages),
        },
    )


Row = dict[str, object]


def solve(
    service: TrainingService,
    sampler: Sampler,
    tasks: Sequence[Task],
    prompt: Prompt,
    questions: Questions,
    sandbox: Sandbox,
    answer_tokens: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[GradedAnswer]:
    """Return what `sampler` makes of each task, in their order.

    Raises:
        TrainingError: it does not answer.
        SandboxError: the sandbox failed.
    """
    asked = questions.ask(
        sampler,
        [questions.tokens(first_question(task, prompt)) for task in tasks],
        Drawing(answer_tokens),
        [0] * len(tasks),
    )
    found = []
    for number, (task, future) in enumerate(zip(tasks, asked, strict=True), 1):
        [[answer]] = questions.drawn(service, [future], f"the answer to {task.id}")
        found.append(grade_answer(task, answer.text, prompt.settings.answer, sandbox, RewardWeights()))
        advance(number, len(tasks))
    return found


def rows(tasks: Sequence[Task], before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> list[Row]:
    """Return for every task what was answered and what came of it, before and after, as JSON."""
    return [
        {
            "task_id": task.id,
            "language": task.language,
            "template": template_of(task),
            "instruction": task.instruction,
            **{
                f"{when}.{key}": value
                for when, one in (("before", first), ("after", last))
                for key, value in _facts(one).items()
            },
        }
        for task, first, last in zip(tasks, before, after, strict=True)
    ]


def overview(tasks: Sequence[Task], before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> list[Row]:
    """Return by template, and for all, how many tasks are solved before and after; those that nothing is known of apart."""
    groups: dict[str, list[tuple[GradedAnswer, GradedAnswer]]] = defaultdict(list)
    for task, first, last in zip(tasks, before, after, strict=True):
        groups[template_of(task)].append((first, last))
    groups = dict(sorted(groups.items()))
    groups["all"] = [pair for some in [*groups.values()] for pair in some]
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


def page(found: Sequence[Row]) -> str:
    """Return an overview as a table in Markdown."""
    return plain_table([*found])


def check_known(graded_ones: Sequence[GradedAnswer], which: str) -> None:
    """Refuse a look that says nothing, for the machine did not.

    Raises:
        TrainingError: no reward is known.
    """
    if graded_ones and all(one.reward.value is None for one in graded_ones):
        raise TrainingError(f"nothing is known of any answer of {which}; mend the machine, and run again")


def _facts(one: GradedAnswer) -> Row:
    return {"answer": one.text, "reward": one.reward.value, "cause": one.reward.cause, "is_verified": one.is_verified}
