"""What a collection by a served language model will cost, before anybody is asked: `graftline run --dry-run`.

An estimate from tasks, prompt and prices; what was really spent stands in the attempts (`Generation.cost_usd`) and in
`reports/teacher/metrics.md`. Not covered: examples of earlier steps, which make prompts longer, and attempts that exist
already, which are not made again.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths
from graftline.llm.base import TokenUsage
from graftline.llm.fleet import Fleet, load_fleet
from graftline.llm.member import cost_usd
from graftline.llm.open import ActorsConfig
from graftline.llm.questions import count_chat_tokens
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.settings import TrajectorySettings
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task, select_for_agents
from graftline.rollouts.teachers.base import OpenAITeacherConfig
from graftline.rollouts.teachers.prompt import load_prompt


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Of one attempt at every task, of a single step, which every answer fills to its last token."""

    fleet: str
    tasks: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    """None where the fleet has no price."""
    most_usd: float | None
    """If all attempts that are allowed went on to their last step."""
    price: str
    """The prices, with the page that they are from; or that there is none."""
    budget_usd: float | None
    """Of each language and split, at which a collection stops."""

    def as_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """Return what it comes to, in words."""
        if not self.tasks:
            return [
                f"{self.fleet}: there are no tasks yet to estimate the cost of; make them first, with `graftline run`."
            ]
        work = (
            f"{self.fleet}: {self.tasks:,} tasks, one step each: {self.prompt_tokens:,} tokens read and at most"
            f" {self.completion_tokens:,} written"
        )
        if self.usd is None:
            return [f"{work}; the cost is not known. {self.price}"]
        stop = (
            f"`asking.budget.usd` stops each language and split at ${self.budget_usd:,.2f}."
            if self.budget_usd is not None
            else "Nothing stops it earlier: `asking.budget.usd` of configs/trajectories.yaml is not set."
        )
        return [
            f"{work}: at most ${self.usd:,.2f}; at most ${self.most_usd:,.2f} if every attempt goes on to its last step."
            f" {stop} {self.price}"
        ]


def estimate_cost(paths: Paths, manifest: Manifest, settings: TrajectorySettings) -> CostEstimate | None:
    """Return what it costs to have the teacher of `manifest` attempt the stored tasks; None where it asks no fleet.

    Raises:
        ConfigError: the fleet or its prompt is unknown.
    """
    teacher, chat_model = manifest.teacher, manifest.chat_model
    if not isinstance(teacher, OpenAITeacherConfig) or not isinstance(chat_model, ActorsConfig):
        return None
    fleet, prompt = load_fleet(paths.configs, chat_model.fleet), load_prompt(paths.configs, teacher.prompt)
    tasks = prompt_tokens = 0
    for file in sorted((paths.data / "tasks").glob("*/*/tasks.jsonl")):
        stored = read_lines(file, Task)
        of_place = select_for_agents(stored, settings.asking.instructions, Counter())[: settings.asking.most_tasks]
        tasks += len(of_place)
        for task in of_place:
            messages = prompt.chat(task, task.before, State(), [], [], task.target)
            prompt_tokens += count_chat_tokens(messages)
    answer_tokens = prompt.settings.sampling.max_tokens + fleet.dialect.thinking_tokens
    usage = TokenUsage(prompt_tokens, tasks * answer_tokens)
    usd = cost_usd(usage, fleet.price)
    most_steps = settings.asking.attempts * settings.collecting.max_steps
    return CostEstimate(
        fleet=chat_model.fleet,
        tasks=tasks,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        usd=usd,
        most_usd=None if usd is None else usd * most_steps,
        price=describe_price(fleet),
        budget_usd=settings.asking.budget.usd,
    )


def describe_price(fleet: Fleet) -> str:
    """Return the prices of `fleet` in a sentence."""
    price = fleet.price
    if price is None:
        return "The fleet has no `price`: not verified."
    source = f" (by {price.source}{f', read {price.date}' if price.date else ''})" if price.source else ""
    return (
        f"Prices for a million tokens: ${price.prompt_usd:g} read, ${price.completion_usd:g} written{source}; they may have"
        " changed."
    )
