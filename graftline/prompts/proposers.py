"""What proposes changes of a prompt: a language model (GEPA's reflection), or rules that need none.

A proposal, however poor, is a result: it is judged by rollouts. An error is raised only where nobody answered.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from graftline.core.errors import ConfigError
from graftline.core.hashing import sha256_text
from graftline.core.secrets import Secrets
from graftline.harbor.address import check_url
from graftline.llm.base import ChatRequest, Message
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Actor, Fleet, PoolSettings, Price
from graftline.llm.pool import ActorPool
from graftline.prompts.candidates import names_in
from graftline.prompts.settings import GepaTable, ProposerTable

_SHOWN = {"LOW_CONTEXT": 2, "LOW": 4, "MEDIUM": 8, "HIGH": 16}
"""Rollouts that one reflection reads, by `proposer_effort`; those of the lowest reward first."""
_TOKENS = {"RAPID": 1024, "FAST": 2048, "SLOW": 8192}
"""Of one answer, by `proposer_output_tokens`."""
_DEADLINE_S = 300.0
_CONTEXT_TOKENS = 131_072

EXAMPLES, MISTAKES = "Solved examples:", "Common mistakes, and how to avoid them:"
"""The headings under which the offline proposer adds something, at the end of the text."""
_MOST_OF_EACH = 4
_MOST_CHARACTERS = 600
"""Of one example: a prompt that grows with every change is soon longer than the context."""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'")
_NUMBERS = re.compile(r"\b\d+\b")
_RIGHT = 1.0


@dataclass(frozen=True, slots=True)
class Reflection:
    """What one rollout of the prompt came to."""

    seed: int
    reward: float
    transcript: Mapping[str, Any]
    """Its `transcript`."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What a change is needed of."""

    part: str
    text: str
    """Of the part, as it is."""
    reflections: Sequence[Reflection]
    names: Sequence[str] = ()
    """What has to stand in the text again."""
    number: int = 0
    """How many changes of this very text were asked for before, so that each is another one."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changed text, and what it cost."""

    text: str
    how: str
    """In a few words, for the lineage of prompts."""
    usd: float | None = 0.0
    """None where nobody said."""
    tokens: int | None = 0


class Proposer(Protocol):
    """Proposes texts."""

    @property
    def name(self) -> str:
        """As results call it."""

    def check(self) -> None:
        """See that it can be asked, before anything is paid for rollouts.

        Raises:
            ActorError: it cannot.
        """

    def propose(self, request: ChangeRequest) -> Proposal:
        """Return another text for a part; the same one where it has no other to propose.

        Raises:
            ActorError: nobody answered.
        """


@contextmanager
def open_proposer(
    gepa: GepaTable, secrets: Secrets, model: BlockingChatModel | None = None, allow_http: bool = False
) -> Iterator[Proposer]:
    """Give the proposer of a configuration, and let go of it at the end of the block.

    Args:
        gepa: Which one, and the model it names, if it names one.
        secrets: Where the key of that model is looked up.
        model: Is asked where the configuration names none; the caller closes it.
        allow_http: Whether the key may go to another machine unencrypted.

    Raises:
        ConfigError: there is no model, or its key is not set.
    """
    if gepa.proposer_type == "offline":
        yield OfflineProposer()
    elif gepa.proposer is not None:
        with BlockingChatModel(_open_pool(gepa.proposer, secrets, allow_http)) as pool:
            yield ModelProposer(pool, gepa, gepa.proposer.temperature)
    elif model is not None:
        yield ModelProposer(model, gepa)
    elif gepa.proposer_type == "gepa":
        raise ConfigError(
            "prompt_learning.gepa.proposer_type: 'gepa' asks a language model, and there is none; name one under"
            " gepa.proposer, or take 'offline'"
        )
    else:
        yield OfflineProposer()


def _open_pool(table: ProposerTable, secrets: Secrets, allow_http: bool) -> ActorPool:
    address = urlsplit(check_url(table.base_url, allow_http or not table.api_key))
    key = secrets.require(table.api_key, "prompt_learning.gepa.proposer") if table.api_key else None
    price = None
    if table.prompt_usd is not None and table.completion_usd is not None:
        price = Price(prompt_usd=table.prompt_usd, completion_usd=table.completion_usd)
    fleet = Fleet(
        engine="service",
        model=table.model,
        context_tokens=_CONTEXT_TOKENS,
        api_path=address.path.rstrip("/"),
        price=price,
        actors=(Actor(name="proposer", url=f"{address.scheme}://{address.netloc}", slots=4),),
    )
    return ActorPool(fleet, key, PoolSettings())


class ModelProposer:
    """Asks a model to read what failed and to write another text.

    Args:
        model: Any served model, which the caller opened and closes.
        gepa: How much it reads and writes, and by which metaprompt.
        temperature: Of its answers.
    """

    def __init__(self, model: BlockingChatModel, gepa: GepaTable, temperature: float = 1.0) -> None:
        self.name = f"gepa/{model.name}"
        self._model, self._gepa, self._temperature = model, gepa, temperature
        for name in ("<curr_param>", "<side_info>"):
            if gepa.metaprompt is not None and name not in gepa.metaprompt:
                raise ConfigError(
                    f"prompt_learning.gepa.metaprompt: lacks {name}; <curr_param> stands for the prompt that is changed,"
                    " and <side_info> for what came of it"
                )

    def check(self) -> None:
        self._model.generate(
            ChatRequest((Message(role="user", content="Answer with the word ready."),), max_tokens=8, deadline_s=60.0)
        )

    def propose(self, request: ChangeRequest) -> Proposal:
        from gepa.strategies.instruction_proposal import InstructionProposalSignature

        worst = sorted(request.reflections, key=lambda reflection: (reflection.reward, reflection.seed))
        records = [_record(reflection) for reflection in worst[: _SHOWN[self._gepa.proposer_effort]]]
        question = InstructionProposalSignature.prompt_renderer(
            {
                "current_instruction_doc": request.text,
                "dataset_with_feedback": records,
                "prompt_template": self._gepa.metaprompt,
            }
        )
        if request.names:
            question = (
                f"{question}\n\nThe new instruction has to hold each of these, as they are: {', '.join(request.names)}."
            )
        answer = self._model.generate(
            ChatRequest(
                (Message(role="user", content=str(question)),),
                max_tokens=_TOKENS[self._gepa.proposer_output_tokens],
                temperature=self._temperature,
                # the same request sent again is another draw, and the same one after an interruption is not
                seed=int(sha256_text(f"{request.text}\0{request.number}")[:7], 16),
                deadline_s=_DEADLINE_S,
            )
        )
        text = InstructionProposalSignature.output_extractor(answer.text)["new_instruction"].strip()
        # a text that ends with a line break, as those of files do, goes on doing so
        ending = "\n" if request.text.endswith("\n") else ""
        tokens = answer.usage.prompt + answer.usage.completion
        return Proposal(text + ending if text else request.text, "reflection", answer.cost_usd, tokens)


def _record(reflection: Reflection) -> dict[str, Any]:
    transcript = reflection.transcript
    feedback = [f"Score: {reflection.reward:g}.", str(transcript.get("feedback", ""))]
    details = transcript.get("details", {}).items()
    feedback += [f"{key}: {value}" for key, value in details if key not in ("steps", "ending")]
    return {
        "Inputs": dict(transcript.get("inputs", {})),
        "Generated Outputs": str(transcript.get("output", "")) or "(nothing)",
        "Feedback": "\n".join(filter(None, feedback)),
    }


class OfflineProposer:
    """Proposes changes from what rollouts came to, without a language model.

    Two things help small models most, and both can be read off rollouts: an answer that was right, shown with its question, and
    what went wrong most often, said beforehand. Each proposal adds one of them, or takes one away again; which one depends on
    the text, the rollouts and the number of the request alone, so that the same request has the same answer.
    """

    name = "offline"

    def check(self) -> None:
        return

    def propose(self, request: ChangeRequest) -> Proposal:
        changes = _changes(request)
        if not changes:
            return Proposal(request.text, "nothing to add")
        # of equal standing: a further request gets the next one, and another text another order
        start = int(sha256_text(request.text)[:8], 16) if request.number else 0
        return changes[(start + request.number) % len(changes)]


def _changes(request: ChangeRequest) -> list[Proposal]:
    """Return all changes there are, the most promising first, without any that leaves the text as it is."""
    text, examples, mistakes = _split(request.text)
    new = [
        example
        for example in _list_solved_examples(request.reflections)
        if example not in examples and not names_in(example)
    ]
    faults = [fault for fault in _common_faults(request.reflections) if fault not in mistakes and not names_in(fault)]
    changes = []
    if faults:
        more = [*mistakes, *faults[:2]][-_MOST_OF_EACH:]
        changes.append(Proposal(_join(text, examples, more), "common mistakes said beforehand"))
    for example in new[:2]:
        more = [*examples, example][-_MOST_OF_EACH:]
        changes.append(Proposal(_join(text, more, mistakes), "a solved example shown"))
    if faults and new:
        both = _join(text, [*examples, new[0]][-_MOST_OF_EACH:], [*mistakes, faults[0]][-_MOST_OF_EACH:])
        changes.append(Proposal(both, "a solved example and a common mistake"))
    if examples:
        changes.append(Proposal(_join(text, examples[1:], mistakes), "an example taken away"))
    if mistakes:
        changes.append(Proposal(_join(text, examples, mistakes[1:]), "a mistake taken away"))
    return [change for change in changes if change.text != request.text]


def _list_solved_examples(reflections: Sequence[Reflection]) -> list[str]:
    """Return the answers that were right, each with its question, the shortest first."""
    examples = set()
    for reflection in reflections:
        inputs, output = reflection.transcript.get("inputs", {}), str(reflection.transcript.get("output", "")).strip()
        if reflection.reward < _RIGHT or not output or not inputs:
            continue
        question = "\n".join(str(inputs[key]) for key in ("instruction", "text") if key in inputs)
        text = f"Asked: {question.strip()}\nAnswer: {output}"
        if len(text) <= _MOST_CHARACTERS:
            examples.add(text)
    return sorted(examples, key=lambda text: (len(text), text))


def _common_faults(reflections: Sequence[Reflection]) -> list[str]:
    """Return the feedback on those that failed, the most common first; what differs in quotations alone counts once."""
    counts: Counter[str] = Counter()
    shortest: dict[str, str] = {}
    for reflection in reflections:
        feedback = " ".join(str(reflection.transcript.get("feedback", "")).split())
        if reflection.reward >= _RIGHT or not feedback:
            continue
        kind = _NUMBERS.sub("0", _QUOTED.sub("", feedback))
        counts[kind] += 1
        shortest[kind] = min(shortest.get(kind, feedback), feedback, key=lambda text: (len(text), text))
    return [shortest[kind][: _MOST_CHARACTERS // 2] for kind in sorted(counts, key=lambda kind: (-counts[kind], kind))]


def _split(text: str) -> tuple[str, list[str], list[str]]:
    """Return the text without what was added, the examples, and the mistakes."""
    text, _, mistakes = text.partition(f"\n\n{MISTAKES}\n")
    text, _, examples = text.partition(f"\n\n{EXAMPLES}\n\n")
    lines = [line.removeprefix("- ") for line in mistakes.strip().split("\n") if line.startswith("- ")]
    return text, [example for example in examples.strip().split("\n\n") if example], lines


def _join(text: str, examples: Sequence[str], mistakes: Sequence[str]) -> str:
    """Return a text that `_split` takes apart again."""
    if examples:
        # an empty line would end the example
        text += f"\n\n{EXAMPLES}\n\n" + "\n\n".join(re.sub(r"\n\s*\n", "\n", example) for example in examples)
    if mistakes:
        text += f"\n\n{MISTAKES}\n" + "\n".join(f"- {mistake}" for mistake in mistakes)
    return text
