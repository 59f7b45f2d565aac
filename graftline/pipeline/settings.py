"""What the stages are to do, and which code does it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from graftline.astgrep.binding import tool_version
from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.core.hashing import code_version
from graftline.core.paths import Paths
from graftline.datasets.catalog import Catalog
from graftline.datasets.readers import ReaderName
from graftline.datasets.sources.base import MIRROR_VARIABLE
from graftline.llm.fleet import dialect_settings, load_fleet
from graftline.llm.open import ActorsConfig
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.ports import Ports
from graftline.pipeline.stages.table import CODE_OF_EVALUATIONS, STAGES
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.round_trip_config import RoundTripConfig
from graftline.rollouts.task import Instructions
from graftline.rollouts.teachers.base import OpenAITeacherConfig

if TYPE_CHECKING:
    from graftline.rollouts.teachers.prompt import Prompt

DATASETS_VARIABLE = "GRAFTLINE_DATASETS"
"""Names the datasets in use, in the environment."""


class Budget(Config):
    """Where making attempts stops; what is in flight comes to its end."""

    tokens: int | None = None
    """Read and written ones together."""
    usd: float | None = None
    steps: int | None = None


class SamplingConfig(Config):
    """How a teacher that asks a language model is put to work."""

    attempts: int = Field(default=1, ge=1, le=64)
    """At a task, until one is verified."""
    at_once: int = Field(default=16, ge=1, le=4096)
    """Attempts at a time in this process; as many as the actors have slots, or somewhat more."""
    instructions: Instructions = "answerable"
    """Which tasks: those that can be done from their instruction, or all that have one."""
    most_tasks: int | None = Field(default=None, ge=1)
    """Of a partition, from the first; all where it is not given."""
    budget: Budget = Budget()
    """Of one run over one partition, in this process."""


class InstructionSettings(Config):
    """Whether a language model tries the instructions of tasks: the one that the manifest names as `chat_model`."""

    round_trip: RoundTripConfig | None = None
    """How it is asked; it is not where this is not given."""
    at_once: int = Field(default=16, ge=1, le=4096)
    """Instructions at a time."""
    most_tokens: int | None = Field(default=None, ge=1)
    """Of one run over one partition, read and written ones together; what is begun comes to its end. All where it is not given."""
    most_minutes: float | None = Field(default=None, gt=0)
    """The same of time."""


class TrajectorySettings(Config):
    """`configs/trajectories.yaml`."""

    instructions: InstructionSettings = InstructionSettings()
    collecting: RolloutConfig = RolloutConfig()
    asking: SamplingConfig = SamplingConfig()
    workers: int = Field(default=0, ge=0, le=256)
    """Processes that make attempts; 0 for one per core, 8 at most. What they make does not depend on it."""
    least_verified_steps: int = Field(default=200, ge=0)
    """Fewer of them fail the asset check of `trajectories`."""


class Settings(Config):
    """What the stages are to do."""

    catalog: Catalog
    trajectories: TrajectorySettings


def load_settings(paths: Paths, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a checkout, with the datasets in use that `environment` (of the process) asks for.

    Raises:
        ConfigError: a file does not fit, or a dataset is named that is unknown.
        DownloadError: the mirror cannot be read.
    """
    catalog = load_yaml(paths.configs / "datasets.yaml", Catalog)
    return Settings(
        catalog=in_use(catalog, os.environ if environment is None else environment),
        trajectories=load_yaml(paths.configs / "trajectories.yaml", TrajectorySettings),
    )


def in_use(catalog: Catalog, environment: Mapping[str, str]) -> Catalog:
    """Return `catalog` with the datasets in use that `environment` asks for.

    `GRAFTLINE_DATASETS` names them, or says `all`. Without it, a mirror brings what it holds to the local ones in `use`,
    and to the evaluations in `use`: without those, edits would be kept that are too near to them.
    """
    named = environment.get(DATASETS_VARIABLE, "").strip()
    if named == "all":
        return catalog.using(tuple(catalog.datasets), DATASETS_VARIABLE)
    if named:
        return catalog.using(tuple(name.strip() for name in named.split(",")), DATASETS_VARIABLE)
    mirror = environment.get(MIRROR_VARIABLE)
    if not mirror:
        return catalog
    from graftline.datasets.sources.mirror import datasets_in_mirror, is_mirrored

    elsewhere = {name for name, dataset in catalog.datasets.items() if is_mirrored(dataset)}
    needed = {name for name in catalog.use if name not in elsewhere or catalog.datasets[name].is_evaluation}
    held = datasets_in_mirror(mirror, elsewhere) | needed
    return catalog.using(tuple(name for name in catalog.datasets if name in held), MIRROR_VARIABLE)


def config_names(paths: Paths, folder: str) -> list[str]:
    """Return the names of the files in a folder below `configs`, without their ending, in order."""
    return sorted(path.stem for path in (paths.configs / folder).glob("*.yaml"))


def find_config(paths: Paths, folder: str, name: str, title: str) -> Path:
    """Return the file of a folder below `configs` that is called `name`; `title` is what messages call it."""
    names = config_names(paths, folder)
    if name not in names:
        raise ConfigError(f"{title} {name!r} is unknown; known in configs/{folder}: {', '.join(names) or 'none'}")
    return paths.configs / folder / f"{name}.yaml"


def stage_code(stage: str, reader: ReaderName | None = None) -> str:
    """Return the digest of the code of `stage`: of the modules that do its work and all they import.

    That of a stage that reads raw rows holds the code of the dataset's own reader, and of no other.
    """
    own = (f"graftline.datasets.readers.{reader}",) if reader is not None and reader != "evaluation" else ()
    modules = CODE_OF_EVALUATIONS.get(stage) or STAGES[stage].code
    return code_version(*modules, *own)


def attempt_settings(paths: Paths, manifest: Manifest, settings: Settings, ports: Ports) -> dict[str, Any]:
    """Return the settings of attempts, whose digest is `made_by` of the trajectories."""
    teacher, chat_model, isolation = manifest.teacher, manifest.chat_model, ports.sandbox.isolation
    by_model: dict[str, Any] = {}
    if isinstance(teacher, OpenAITeacherConfig):
        by_model["prompt"] = _prompt(paths, teacher).digest()
        if isinstance(chat_model, ActorsConfig):
            by_model |= dialect_settings(load_fleet(paths.configs, chat_model.fleet))
    return {
        "collecting": settings.trajectories.collecting.model_dump(mode="json"),
        "teacher": ports.teacher.name,
        **by_model,
        "isolation": f"{isolation.level}/{isolation.implementation}",
        **_jail_of_tests(ports),
        **rewriter(manifest),
    }


def _jail_of_tests(ports: Ports) -> dict[str, Any]:
    """Return how the jail of tests differs from the usual one; nothing where it does not."""
    tests = ports.jail.model_dump(mode="json", exclude_defaults=True)
    return {"tests": tests} if tests else {}


def has_examples(paths: Paths, manifest: Manifest) -> bool:
    """Return whether prompts show verified steps of earlier attempts."""
    teacher = manifest.teacher
    return isinstance(teacher, OpenAITeacherConfig) and _prompt(paths, teacher).settings.few_shots.count > 0


def rewriter(manifest: Manifest) -> dict[str, Any]:
    """Return what the outcome of an action depends on beside the action."""
    return {"ast_grep": tool_version(), "sandbox": manifest.sandbox.model_dump(mode="json")}


def _prompt(paths: Paths, teacher: OpenAITeacherConfig) -> "Prompt":
    from graftline.rollouts.teachers.prompt import load_prompt  # loads what checks answers

    return load_prompt(paths.configs, teacher.prompt)
