"""What a prompt optimization is asked for: the table `[prompt_learning]` of a TOML file.

Keys that are not known are refused, with the one that was meant, for a typing error would otherwise be kept without a
word. Flat names of the table `gepa` are read as those of its parts.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from graftline.core.config import MAX_BYTES, known_keys
from graftline.core.errors import ConfigError
from graftline.harbor.contract import MAX_SEED, MAX_TIMEOUT_S, Seed
from graftline.harbor.localapi.config import LocalAPIConfig

_MOST_SEEDS = 100_000
_TABLE = "prompt_learning"


def _expand_range(value: Any) -> Any:
    """Return the seeds that `{start, end, step}` stands for; `end` is not among them."""
    if not isinstance(value, Mapping):
        return value
    if unknown := set(value) - {"start", "end", "step"}:
        raise ValueError(f"unknown key {min(unknown)!r}; a range of seeds has start, end and step")
    bounds = {"start": 0, "step": 1, **value}
    if not all(isinstance(bound, int) and not isinstance(bound, bool) for bound in bounds.values()):
        raise ValueError("a range of seeds has whole numbers as start, end and step")
    if "end" not in bounds or bounds["step"] < 1:
        raise ValueError("a range of seeds has an end, and a step of 1 or more")
    if not all(0 <= bound <= MAX_SEED + 1 for bound in bounds.values()):
        raise ValueError(f"a range of seeds has its start, end and step from 0 to {MAX_SEED + 1}")
    seeds = range(bounds["start"], bounds["end"], bounds["step"])
    if len(seeds) > _MOST_SEEDS:
        raise ValueError(f"a range of {len(seeds)} seeds; at most {_MOST_SEEDS} are read")
    return [*seeds]


def _check_unique(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("names a seed twice")
    return seeds


Seeds = Annotated[list[Seed], BeforeValidator(_expand_range), Field(max_length=_MOST_SEEDS)]


class Part(BaseModel):
    """The base of the tables."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class PromptMessage(Part):
    """One message of a prompt; `pattern` may hold wildcards in braces."""

    role: str
    pattern: str
    order: int = 0


class InitialPrompt(Part):
    """The prompt that is made better."""

    id: str = "initial"
    name: str = ""
    messages: list[PromptMessage] = []
    wildcards: dict[str, Any] = {}


class PolicyTable(Part):
    """The model that acts: what is set here is sent with every rollout, and so is `config`, in the task app's own names."""

    provider: str | None = None
    model: str | None = None
    inference_mode: str = "synth_hosted"
    inference_url: str | None = None
    temperature: float = Field(default=0.0, ge=0)
    max_completion_tokens: int = Field(default=512, ge=1)
    policy_name: str | None = None
    config: dict[str, Any] = {}
    context_override: dict[str, Any] = {}

    @model_validator(mode="after")
    def _says_check_unique(self) -> Self:
        if both := sorted(key for key in self.model_fields_set & set(self.config) if key != "config"):
            raise ValueError(f"{both[0]} is config.{both[0]} as well; name it once")
        return self


class VerifierTable(BaseModel):
    """What judges beside the task app, which nothing does here: one that is asked for is refused. Its weights are read."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True)

    enabled: bool = False
    reward_source: Literal["task_app", "verifier", "fused"] = "task_app"

    @model_validator(mode="after")
    def _is_off(self) -> Self:
        keys = [*VerifierTable.model_fields, "weight_…"]
        for key in self.model_extra or {}:
            if not key.startswith("weight"):
                raise ValueError(f"unknown key {key!r}{_suggest(key, keys)}; known here: {', '.join(keys)}")
        if self.enabled or self.reward_source != "task_app":
            raise ValueError(
                "asks for a verifier, and none is carried out: rewards are those of the task app; set enabled = false and"
                " reward_source = 'task_app', or leave the table out"
            )
        return self


class HarborTable(Part):
    """The deployment that rollouts run on."""

    deployment_id: str = Field(min_length=1)


class RolloutTable(Part):
    """How many rollouts, and how many at a time."""

    budget: int | None = Field(default=None, ge=1)
    max_concurrent: int = Field(default=20, ge=1, le=1000)
    minibatch_size: int = Field(default=8, ge=1)
    attempts: int = Field(default=3, ge=1, le=20)
    """At one rollout that a machine failed; one that fails as often counts for nothing, and never for 0."""
    timeout_s: float = Field(default=600.0, gt=0, le=MAX_TIMEOUT_S)
    """Of one rollout."""


class EvaluationTable(Part):
    """Which seeds a prompt is made better on, and which it is judged on."""

    seeds: Seeds = []
    """Another name of `train_seeds`."""
    train_seeds: Seeds = []
    validation_seeds: Seeds = []
    val_seeds: Seeds = []
    """Another name of `validation_seeds`."""
    test_pool: Seeds | None = None
    """Seeds that judge the result alone: with them, the validation seeds choose it."""
    validation_pool: str | Seeds | None = None
    validation_top_k: int | None = Field(default=None, ge=1)
    """Prompts that the validation seeds are asked about, beside the first one."""

    @model_validator(mode="after")
    def _keeps_them_apart(self) -> Self:
        for name, other in (("train_seeds", "seeds"), ("validation_seeds", "val_seeds")):
            if getattr(self, name) and getattr(self, other):
                raise ValueError(f"names both {name} and {other}, which are the same")
        self.train_seeds, self.seeds = _check_unique(self.train_seeds or self.seeds), []
        self.validation_seeds, self.val_seeds = _check_unique(self.validation_seeds or self.val_seeds), []
        _check_unique(self.test_pool or [])
        for name, other in (
            ("validation_seeds", "train_seeds"),
            ("test_pool", "train_seeds"),
            ("test_pool", "validation_seeds"),
        ):
            if both := sorted(set(getattr(self, name) or ()) & set(getattr(self, other))):
                shown = ", ".join(map(str, both[:5]))
                raise ValueError(f"{name} hold {len(both)} of the {other} ({shown}); a prompt is judged on others")
        return self


class MutationTable(Part):
    """How often a prompt is changed."""

    rate: float = Field(default=0.3, ge=0, le=1)


class PopulationTable(Part):
    """How many prompts there are, and for how long."""

    initial_size: int = Field(default=20, ge=1)
    num_generations: int = Field(default=10, ge=1)
    children_per_generation: int = Field(default=5, ge=1)
    crossover_rate: float = Field(default=0.5, ge=0, le=1)
    selection_pressure: float = Field(default=1.0, ge=0)
    patience_generations: int = Field(default=3, ge=1)


class ArchiveTable(Part):
    """Which prompts are kept."""

    size: int = Field(default=64, ge=1)
    pareto_set_size: int | None = Field(default=None, ge=1)
    """Train seeds that all prompts of the archive are compared on; changes are found on the others, so that there have to
    be some. Half of the train seeds, 64 at most, where it is not given."""
    pareto_eps: float = Field(default=1e-6, ge=0)
    feedback_fraction: float = Field(default=0.5, ge=0, le=1)


class TokenTable(Part):
    """How long a prompt may be, and what all of it may cost."""

    max_limit: int | None = Field(default=None, ge=1)
    counting_model: str | None = None
    enforce_pattern_limit: bool = True
    max_spend_usd: float | None = Field(default=None, gt=0)
    max_spend_tokens: int | None = Field(default=None, ge=1)


class ProposerTable(Part):
    """The language model that proposes changes, behind an OpenAI-compatible address."""

    base_url: str = Field(pattern=r"^https?://")
    """With the path before `/chat/completions`, which is often `/v1`."""
    model: str = Field(min_length=1)
    api_key: str = Field(default="", pattern=r"^[A-Za-z0-9_]*$")
    """Name of the secret that holds the key; empty where none is needed."""
    temperature: float = Field(default=1.0, ge=0, le=2)
    prompt_usd: float | None = Field(default=None, ge=0)
    """Of a million tokens, so that what it costs counts against `max_spend_usd`; so is `completion_usd`."""
    completion_usd: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _has_both_prices(self) -> Self:
        if (self.prompt_usd is None) != (self.completion_usd is None):
            raise ValueError("names one of prompt_usd and completion_usd; a price has both")
        return self


class GepaTable(Part):
    """GEPA (https://arxiv.org/abs/2507.19457)."""

    env_name: str | None = None
    env_config: dict[str, Any] = {}
    rng_seed: int | None = None
    proposer_type: Literal["dspy", "gepa", "offline"] = "dspy"
    """`gepa`: a language model reads what failed, and writes another prompt. `offline`: what failed most often is put into
    words, and what was right is shown, without a model. `dspy`: as `gepa` where there is one, else `offline`."""
    proposer: ProposerTable | None = None
    """The model, for whoever has none of its own."""
    proposer_effort: Literal["LOW_CONTEXT", "LOW", "MEDIUM", "HIGH"] = "LOW"
    proposer_output_tokens: Literal["RAPID", "FAST", "SLOW"] = "FAST"
    metaprompt: str | None = None
    modules: list[dict[str, Any]] = []
    unified_optimization: bool | dict[str, Any] = False
    adaptive_pool: bool | str | dict[str, Any] | None = None
    adaptive_batch: bool | str | dict[str, Any] | None = None
    rollout: RolloutTable = RolloutTable()
    evaluation: EvaluationTable = EvaluationTable()
    mutation: MutationTable = MutationTable()
    population: PopulationTable = PopulationTable()
    archive: ArchiveTable = ArchiveTable()
    token: TokenTable = TokenTable()

    @model_validator(mode="after")
    def _can_choose_a_front(self) -> Self:
        size, n_seeds = self.archive.pareto_set_size, len(self.evaluation.train_seeds)
        if self.proposer_type == "offline" and self.proposer is not None:
            raise ValueError("proposer names a model, and proposer_type is 'offline', which asks none; leave one out")
        if size is not None and n_seeds and size >= n_seeds:
            raise ValueError(
                f"archive.pareto_set_size is {size} of {n_seeds} train_seeds; expected fewer than there are seeds"
            )
        return self


class PromptLearningConfig(Part):
    """A prompt optimization. `task_app_url` or `task_app_config` may be set afterwards."""

    algorithm: Literal["gepa"] = "gepa"
    task_app_url: str | None = None
    task_app_id: str | None = None
    task_app_type: str | None = None
    env_name: str | None = None
    env_config: dict[str, Any] = {}
    initial_prompt: InitialPrompt | None = None
    policy: PolicyTable = PolicyTable()
    verifier: VerifierTable = VerifierTable()
    proxy_models: dict[str, Any] | list[Any] | str | None = None
    use_byok: bool | None = None
    harbor: HarborTable | None = None
    gepa: GepaTable = GepaTable()

    _task_app_config: LocalAPIConfig | None = PrivateAttr(default=None)

    @property
    def task_app_config(self) -> LocalAPIConfig | None:
        """The task app itself, in place of its URL; never in a file."""
        return self._task_app_config

    @task_app_config.setter
    def task_app_config(self, config: LocalAPIConfig | None) -> None:
        self._task_app_config = config

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read a TOML file.

        Raises:
            ConfigError: it cannot be read, is not TOML, or does not fit; one line per fault.
        """
        return cls._of(_read_toml(Path(path)), str(path))

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """As `from_toml`."""
        return cls.from_toml(path)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return what a mapping says, with the table `prompt_learning` or without; it fails as `from_toml` does."""
        return cls._of(mapping if _TABLE in mapping else {_TABLE: mapping}, "prompt optimization")

    def body(self, task_app_url: str) -> dict[str, Any]:
        """Return the table as a service is sent it."""
        table = self.model_dump(mode="json", exclude_none=True, exclude={"task_app_url", "policy"})
        # what is not set there is the task app's to decide, at the service as well
        policy = self.policy.model_dump(mode="json", exclude_none=True, exclude_unset=True)
        return {**table, "policy": policy, "task_app_url": task_app_url}

    @property
    def seeds(self) -> Sequence[int]:
        """All seeds that rollouts are asked for."""
        evaluation = self.gepa.evaluation
        return [*evaluation.train_seeds, *evaluation.validation_seeds, *(evaluation.test_pool or ())]

    @classmethod
    def _of(cls, tree: Mapping[str, Any], source: str) -> Self:
        if unknown := sorted(set(tree) - {_TABLE}):
            raise ConfigError(
                f"{source}: {unknown[0]}: unknown table{_suggest(unknown[0], [_TABLE])}; expected [{_TABLE}] alone"
            )
        table = tree.get(_TABLE)
        if not isinstance(table, Mapping):
            raise ConfigError(f"{source}: has no table [{_TABLE}] of settings; expected one, with algorithm = 'gepa'")
        try:
            return cls.model_validate_json(json.dumps(_with_parts(table, source), allow_nan=False))
        except ValidationError as error:
            faults = (
                f"{source}: {'.'.join(map(str, (_TABLE, *fault['loc'])))}: {_explain(fault)}"
                for fault in error.errors(include_url=False)
            )
            raise ConfigError("\n".join(faults)) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{source}: a value is neither text, number, list nor table ({error}); quote it"
            ) from None


_PARTS = {
    "rollout_budget": "rollout.budget",
    "max_concurrent_rollouts": "rollout.max_concurrent",
    "minibatch_size": "rollout.minibatch_size",
    "evaluation_seeds": "evaluation.train_seeds",
    "train_seeds": "evaluation.train_seeds",
    "validation_seeds": "evaluation.validation_seeds",
    "test_pool": "evaluation.test_pool",
    "validation_pool": "evaluation.validation_pool",
    "validation_top_k": "evaluation.validation_top_k",
    "mutation_rate": "mutation.rate",
    "initial_population_size": "population.initial_size",
    "num_generations": "population.num_generations",
    "children_per_generation": "population.children_per_generation",
    "crossover_rate": "population.crossover_rate",
    "selection_pressure": "population.selection_pressure",
    "patience_generations": "population.patience_generations",
    "archive_size": "archive.size",
    "pareto_set_size": "archive.pareto_set_size",
    "pareto_eps": "archive.pareto_eps",
    "feedback_fraction": "archive.feedback_fraction",
    "max_token_limit": "token.max_limit",
    "token_counting_model": "token.counting_model",
    "enforce_pattern_token_limit": "token.enforce_pattern_limit",
    "max_spend_usd": "token.max_spend_usd",
}
"""Flat names that a file may have, and where they belong."""


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a TOML file") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_BYTES} bytes; expected a hand-written file")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _explain(fault: Any) -> str:
    """Return what is wrong, with the key that was meant."""
    if fault["type"] == "extra_forbidden":
        *table, key = fault["loc"]
        keys = sorted([*known_keys(PromptLearningConfig, tuple(table)), *(_PARTS if table == ["gepa"] else ())])
        return f"unknown key{_suggest(str(key), keys)}; known here: {', '.join(keys)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _suggest(name: str, candidates: Sequence[str]) -> str:
    """Return a question about the known name that is near to `name`; empty where none is."""
    close = get_close_matches(name, candidates, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _with_parts(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the table with the flat names of `gepa` where they belong.

    {"gepa": {"mutation_rate": 0.2}}
    {"gepa": {"mutation": {"rate": 0.2}}}
    """
    gepa = table.get("gepa")
    if not isinstance(gepa, Mapping):
        return dict(table)
    nested = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in gepa.items() if key not in _PARTS
    }
    for flat in (key for key in gepa if key in _PARTS):
        part, _, key = _PARTS[flat].partition(".")
        within = nested.setdefault(part, {})
        if not isinstance(within, dict) or key in within:
            raise ConfigError(f"{source}: gepa.{flat}: is gepa.{part}.{key} as well; name it once")
        within[key] = gepa[flat]
    return {**table, "gepa": nested}
