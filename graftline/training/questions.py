"""Questions that a model answers while it is trained or looked at: chats without their answer, as tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graftline.core.errors import DataError
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
