"""What an evaluation is asked for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graftline.core.errors import ConfigError
from graftline.harbor.contract import MAX_TIMEOUT_S
from graftline.harbor.instances import checked_seeds
from graftline.harbor.localapi.config import LocalAPIConfig

_MOST_AT_ONCE = 1000
_OF_BUDGETS = frozenset({"max_rollouts", "max_usd", "max_tokens"})


@dataclass(frozen=True, slots=True)
class EvalBudget:
    """What an evaluation may use; what is None is not bounded."""

    max_rollouts: int | None = None
    max_usd: float | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in sorted(_OF_BUDGETS):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and value > 0 and math.isfinite(value)):
                raise ConfigError(f"budget: {name} is {value!r}; expected more than 0, or None")


@dataclass(kw_only=True)
class EvalJobConfig:
    """An evaluation: every seed once, of one task app."""

    task_app_url: str | LocalAPIConfig | None = None
    """A URL, of a deployment or of any task app; or the task app itself."""
    local_api_url: str | LocalAPIConfig | None = None
    """Another name of `task_app_url`."""
    task_app_config: LocalAPIConfig | None = None
    """The task app, in place of a URL."""
    api_key: str | None = field(default=None, repr=False)
    """Of the Harbor service."""
    backend_url: str | None = None
    """The Harbor service; that of the deployment where it is not given."""
    task_app_api_key: str | None = field(default=None, repr=False)
    """Of a task app that is no deployment of the service."""
    local_api_key: str | None = field(default=None, repr=False)
    """Another name of `task_app_api_key`."""
    app_id: str | None = None
    env_name: str | None = None
    seeds: Sequence[int] = ()
    policy_config: Mapping[str, Any] = field(default_factory=dict)
    env_config: Mapping[str, Any] = field(default_factory=dict)
    verifier_config: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 20
    timeout: float = 600.0
    """Seconds of each rollout."""
    budget: EvalBudget | Mapping[str, Any] = EvalBudget()
    min_coverage: float = 0.95
    """Share of seeds with a reward that counts below which the evaluation is `completed_with_errors`."""
    allow_http: bool = False
    """Whether keys may go to another machine unencrypted."""

    def __post_init__(self) -> None:
        given = [one for one in (self.task_app_url, self.local_api_url, self.task_app_config) if one]
        if len(given) != 1:
            raise ConfigError(
                f"evaluation: names {len(given) or 'no'} task apps; expected one of task_app_url and task_app_config"
            )
        self.task_app_url, self.local_api_url, self.task_app_config = given[0], None, None
        if isinstance(given[0], LocalAPIConfig):
            self.task_app_url, self.task_app_config = None, given[0]
        self.task_app_api_key = self.task_app_api_key or self.local_api_key
        self.seeds = checked_seeds(list(self.seeds), "evaluation: seeds")
        if not 1 <= self.concurrency <= _MOST_AT_ONCE:
            raise ConfigError(f"evaluation: concurrency is {self.concurrency!r}; expected 1 to {_MOST_AT_ONCE}")
        if not 0 < self.timeout <= MAX_TIMEOUT_S:
            raise ConfigError(f"evaluation: timeout is {self.timeout!r} s; expected up to {MAX_TIMEOUT_S}")
        if not 0 <= self.min_coverage <= 1:
            raise ConfigError(f"evaluation: min_coverage is {self.min_coverage!r}; expected a share from 0 to 1")
        if isinstance(self.budget, Mapping):
            if unknown := set(self.budget) - _OF_BUDGETS:
                known = ", ".join(sorted(_OF_BUDGETS))
                raise ConfigError(f"evaluation: budget names {min(map(str, unknown))!r}; known: {known}")
            self.budget = EvalBudget(**self.budget)
