"""Proposes changes of a prompt by a language model, which reads what failed and writes another text (GEPA's reflection)."""

from typing import Any

from graftline.core.errors import ConfigError
from graftline.core.hashing import sha256_text
from graftline.llm.base import ChatRequest, Message
from graftline.llm.blocking import BlockingChatModel
from graftline.prompts.gepa_search import extracted, reflection_prompt
from graftline.prompts.proposals import Proposal, Reflection, Wish
from graftline.prompts.settings import GepaTable

_SHOWN = {"LOW_CONTEXT": 2, "LOW": 4, "MEDIUM": 8, "HIGH": 16}
"""Rollouts that one reflection reads, by `proposer_effort`; those that came to least first."""
_TOKENS = {"RAPID": 1024, "FAST": 2048, "SLOW": 8192}
"""Of one answer, by `proposer_output_tokens`."""
_DEADLINE_S = 300.0


class ModelProposer:
    """Asks `model`, which the caller opened and closes.

    Args:
        model: Any served model: a fleet, or a service.
        gepa: How much it reads and writes, and by which metaprompt.
        temperature: Of its answers.
    """

    def __init__(self, model: BlockingChatModel, gepa: GepaTable, temperature: float = 1.0) -> None:
        self.name = f"gepa/{model.name}"
        self._model, self._gepa, self._temperature = model, gepa, temperature
        if gepa.metaprompt is not None and (lacking := _lacking(gepa.metaprompt)):
            raise ConfigError(
                f"prompt_learning.gepa.metaprompt: lacks {lacking}; <curr_param> stands for the prompt that is changed,"
                " and <side_info> for what came of it"
            )

    def check(self) -> None:
        self._model.generate(
            ChatRequest((Message(role="user", content="Answer with the word ready."),), max_tokens=8, deadline_s=60.0)
        )

    def propose(self, wish: Wish) -> Proposal:
        question = reflection_prompt(self._gepa.metaprompt, wish.text, [_record(one) for one in self._shown(wish)])
        if wish.names:
            question += f"\n\nThe new instruction has to hold each of these, as they are: {', '.join(wish.names)}."
        answer = self._model.generate(
            ChatRequest(
                (Message(role="user", content=question),),
                max_tokens=_TOKENS[self._gepa.proposer_output_tokens],
                temperature=self._temperature,
                # the same wish asked again is another draw, and the same one after an interruption is not
                seed=int(sha256_text(f"{wish.text}\0{wish.number}")[:7], 16),
                deadline_s=_DEADLINE_S,
            )
        )
        usage = answer.usage
        text = extracted(answer.text)
        # a text that ends with a line break, as those of files do, goes on doing so
        ending = "\n" if wish.text.endswith("\n") else ""
        return Proposal(
            text + ending if text else wish.text, "reflection", answer.cost_usd, usage.prompt + usage.completion
        )

    def _shown(self, wish: Wish) -> list[Reflection]:
        most = _SHOWN[self._gepa.proposer_effort]
        return sorted(wish.reflections, key=lambda one: (one.reward, one.seed))[:most]


def _lacking(metaprompt: str) -> str:
    return next((name for name in ("<curr_param>", "<side_info>") if name not in metaprompt), "")


def _record(one: Reflection) -> dict[str, Any]:
    details = one.said.get("details", {})
    feedback = [f"Score: {one.reward:g}.", str(one.said.get("feedback", ""))]
    feedback += [f"{key}: {value}" for key, value in details.items() if key not in ("steps", "ending")]
    return {
        "Inputs": dict(one.said.get("inputs", {})),
        "Generated Outputs": str(one.said.get("output", "")) or "(nothing)",
        "Feedback": "\n".join(filter(None, feedback)),
    }
