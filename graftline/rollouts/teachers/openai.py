"""The `openai` teacher: steps proposed by a served language model (`graftline.llm`).

It sees what an agent would see: the instruction, the text, the state, and what sandbox and critic said to its earlier
steps. A prompt that does not fit into the context of the model loses examples first, then the oldest turns; code is never
cut.
"""

from collections.abc import Sequence

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.llm.base import ChatAnswer, ChatRequest, Message
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.questions import count_chat_tokens, seed_of
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import BY_SCHEMA, ParseError, parse_answer
from graftline.rollouts.teachers.base import Generation, InvalidAnswer, NoProposal, Proposal, Turn
from graftline.rollouts.teachers.examples import Examples, VerifiedStep
from graftline.rollouts.teachers.prompt import Prompt, PromptSettings

_HOTTER, _HOTTEST = 0.3, 2.0
"""By how much the temperature rises with every draw, and how far."""


class OpenAITeacher:
    """Asks `model`, whose context holds `context_tokens`; safe to use from several threads."""

    uses_feedback = True

    def __init__(
        self,
        model: BlockingChatModel,
        prompt: Prompt,
        context_tokens: int,
        examples: Examples | None = None,
        adapter: str = "",
    ) -> None:
        self._model, self._prompt, self._examples, self._adapter = model, prompt, examples, adapter
        self._room = context_tokens - prompt.settings.sampling.max_tokens

    @property
    def name(self) -> str:
        return f"openai/{self._adapter or self._model.name}"

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | InvalidAnswer | NoProposal:
        """As `Teacher.propose`; gives up with `too_long` where the text does not fit, and `unreadable` where it is none.

        Raises:
            ActorError: nobody answered.
            RecordError: the store of examples cannot be read.
        """
        try:
            f"{task.instruction}{text}".encode()
        except UnicodeEncodeError:
            return NoProposal("unreadable")
        chat = self._build_chat(task, text, state, turns)
        if chat is None:
            return NoProposal("too_long")
        messages, ids = chat
        settings, sampling = self._prompt.settings, self._prompt.settings.sampling
        is_first = attempt == 1 and (not turns or turns[-1].is_kept)
        answers: list[ChatAnswer] = []
        failed = _failed_actions(turns)
        while True:
            temperature = sampling.temperature if is_first else sampling.later_temperature
            hotter = round(min(temperature + _HOTTER * len(answers), _HOTTEST), 3)
            seed = seed_of(sampling.seed, task.id, attempt, len(turns), len(answers))
            request = chat_request(settings, messages, hotter, seed, self._adapter)
            answers.append(self._model.generate(request))
            answer = parse_answer(answers[-1].text, settings.answer)
            if isinstance(answer, ParseError) or answer.action not in failed or len(answers) > sampling.redraws:
                break
        generation = _generation(request, answers, self._prompt.digest(ids))
        if isinstance(answer, ParseError):
            last = answers[-1]
            cut = f" It was cut off after {last.usage.completion} tokens." if last.finish_reason == "length" else ""
            return InvalidAnswer(answer.reason + cut, generation)
        return Proposal(
            # a server that tells apart what a model thinks has taken it out of the answer
            think=answer.think or answers[-1].reasoning,
            action=answer.action,
            state_update=answer.state_update,
            generation=generation,
            is_strict=answer.is_strict,
        )

    def _build_chat(
        self, task: Task, text: str, state: State, turns: Sequence[Turn]
    ) -> tuple[tuple[Message, ...], list[str]] | None:
        """Return the chat and the ids of the examples in it; None where there is no room even without them."""
        settings = self._prompt.settings
        shown = list(turns[-settings.max_turns :])
        examples: list[VerifiedStep] = []
        if self._examples is not None and settings.few_shots.count:
            examples = self._examples.like(task, text, settings.few_shots, settings.answer)
        while True:
            messages = self._prompt.chat(task, text, state, shown, [step.shot for step in examples], task.target)
            if count_chat_tokens(messages) <= self._room:
                return messages, [step.id for step in examples]
            if not examples and not shown:
                return None
            del (examples or shown)[0]


def chat_request(
    settings: PromptSettings, messages: tuple[Message, ...], temperature: float, seed: int, adapter: str = ""
) -> ChatRequest:
    """Return what a model is asked for by the settings of a prompt."""
    return ChatRequest(
        messages=messages,
        max_tokens=settings.sampling.max_tokens,
        temperature=temperature,
        stop=settings.stop,
        json_schema=settings.answer.json_schema if settings.answer.layout in BY_SCHEMA else None,
        seed=seed,
        adapter=adapter,
    )


def _failed_actions(turns: Sequence[Turn]) -> list[PatternAction | RuleAction]:
    """Return the actions that failed on the text as it is."""
    latest = max((number for number, turn in enumerate(turns, 1) if turn.is_kept), default=0)
    return [turn.answer.action for turn in turns[latest:] if isinstance(turn.answer, Proposal)]


def _generation(request: ChatRequest, answers: Sequence[ChatAnswer], prompt_digest: str) -> Generation:
    """Return the last of `drawn`, with what all of them cost."""
    last = answers[-1]
    costs = [answer.cost_usd for answer in answers if answer.cost_usd is not None]
    return Generation(
        messages=request.messages,
        prompt_digest=prompt_digest,
        text=last.text,
        reasoning=last.reasoning,
        outputs=last.outputs,
        finish_reason=last.finish_reason,
        model=last.model,
        actor=last.actor,
        temperature=request.temperature if last.temperature is None else last.temperature,
        seed=last.seed,
        prompt_tokens=sum(answer.usage.prompt for answer in answers),
        completion_tokens=sum(answer.usage.completion for answer in answers),
        cached_tokens=sum(answer.usage.cached for answer in answers),
        cost_usd=sum(costs) if costs else None,
        latency_s=sum(answer.latency_s for answer in answers),
        tries=sum(answer.tries for answer in answers),
    )
