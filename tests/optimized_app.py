"""A task app whose rewards are worked out from prompt and seed, and a configuration over it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graftline.harbor.contract import (
    FailureCause,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    TaskDescription,
    TaskInfo,
)
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.prompts.settings import PromptLearningConfig

FIRST = "Do the task."
Judge = Callable[[str, int], float | None]


def helped(prompt: str, seed: int) -> float | None:
    """Reward what the offline proposer adds: mistakes said beforehand by 0.4, an example by 0.2; every fifth seed is easy."""
    if seed % 5 == 0:
        return 1.0
    return 0.3 + 0.4 * ("Common mistakes" in prompt) + 0.2 * ("Solved examples" in prompt)


class PaidApp:
    """Counts the rollouts that it was asked for; what `judge` knows nothing of is a failure of the machine."""

    def __init__(self, judge: Judge = helped, usd: float | None = 0.001, tokens: int | None = 10) -> None:
        self.judge, self.usd, self.tokens = judge, usd, tokens
        self.asked: list[tuple[str, int]] = []
        self.ids: list[str] = []
        self.on_asked: Callable[[int], None] = lambda number: None
        self._lock = threading.Lock()

    @property
    def config(self) -> LocalAPIConfig:
        return LocalAPIConfig(app_id="paid", rollout=self.rollout, provide_task_instances=tasks)

    def rollout(self, request: RolloutRequest) -> RolloutResponse:
        given = request.policy.config["prompt"]
        prompt = given if isinstance(given, str) else given["system"]
        with self._lock:
            self.asked.append((prompt, request.seed))
            self.ids.append(request.trace_correlation_id)
            number = len(self.asked)
        self.on_asked(number)
        reward = self.judge(prompt, request.seed)
        said = {"tokens": self.tokens, "cost_usd": self.usd}
        return RolloutResponse(
            trace_correlation_id=request.trace_correlation_id,
            reward_info=RewardInfo(
                outcome_reward=reward, details={"feedback": f"The pattern `x{request.seed}` matches nothing."}
            ),
            success_status=SuccessStatus.SUCCESS if reward is not None else SuccessStatus.RUNTIME_ERROR,
            failure_cause=None if reward is not None else FailureCause.SANDBOX_FAILED,
            trace={"steps": [{"source": "agent", "message": f"answer {request.seed}"}]},
            metadata={key: value for key, value in said.items() if value is not None},
        )


def tasks(seeds: Sequence[int]) -> list[TaskInfo]:
    """Return a task for every seed."""
    return [
        TaskInfo(
            task=TaskDescription(id=f"t{seed}", name=f"t{seed}", description=f"Rename x{seed}."),
            task_metadata={"text": f"x{seed} = 1"},
        )
        for seed in seeds
    ]


def wanted(gepa: Mapping[str, Any] | None = None, **more: Any) -> PromptLearningConfig:
    """Return an optimization of one system message over twenty train seeds and six others."""
    table: dict[str, Any] = {
        "rng_seed": 1,
        "proposer_type": "offline",
        "rollout": {"budget": 200, "max_concurrent": 8, "minibatch_size": 4},
        "evaluation": {"train_seeds": {"end": 20}, "validation_seeds": {"start": 20, "end": 26}},
        "population": {"num_generations": 3, "children_per_generation": 2},
    }
    for part, values in (gepa or {}).items():
        table[part] = {**table[part], **values} if isinstance(values, Mapping) and part in table else values
    prompt = {"messages": [{"role": "system", "pattern": FIRST}]}
    return PromptLearningConfig.from_mapping({"initial_prompt": prompt, "gepa": table, **more})
