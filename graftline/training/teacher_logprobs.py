"""What a teacher thinks of sequences that another model drew: the logprob of every token after the first."""

import asyncio
import json
import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graftline.core.errors import TrainingError
from graftline.core.paths import Paths
from graftline.core.secrets import open_secrets
from graftline.llm.fault import Fault
from graftline.llm.fleet import load_fleet
from graftline.training.datums import Tokenizer
from graftline.training.service import TrainingService

if TYPE_CHECKING:
    from graftline.llm.client import ActorClient


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
            raise TrainingError(f"teacher {name}: {fault.said}; see `graftline actors status`, and resume") from None
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


def _known(who: str, values: Sequence[Any], sequence: Sequence[int]) -> list[float]:
    if len(values) != len(sequence) - 1:
        raise TrainingError(
            f"{who}: gives {len(values)} logprobs of {len(sequence) - 1} tokens; it needs the tokenizer of the model"
        )
    wrong = [value for value in values if not isinstance(value, int | float) or not isfinite(value)]
    if wrong:
        raise TrainingError(f"{who}: gives {wrong[0]!r} where a logprob was expected; see its log")
    return [float(value) for value in values]
