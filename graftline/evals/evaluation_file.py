"""A file of `configs/evaluations`: which tasks, which solvers, and how many attempts of each at each.

The `kind` of a solver is `teacher` (asks no model), `actors` (a served model), `trained` (a model of the training service, bare or
with the adapter of a recipe), `agent` (a served model that edits places, of which rules are made), and, at changes of repositories,
`demonstrations` (rules of places that are shown) and `sed`. The same model with another `prompt` is another solver.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from graftline.agent.single_places import Shows
from graftline.core.config import Config, load_yaml
from graftline.evals.sources import RepositoriesSource, TaskSource
from graftline.rollouts.teachers.base import InductionTeacherConfig, MemoryTeacherConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_TEMPERATURE_OF_SEVERAL = 0.8


class TeacherEntry(Config):
    """A teacher that asks no model. Rule induction sees the target text: it says what one action can do, not who may learn it."""

    kind: Literal["teacher"] = "teacher"
    teacher: Annotated[InductionTeacherConfig | MemoryTeacherConfig, Field(discriminator="kind")] = (
        InductionTeacherConfig()
    )
    most_steps: int = Field(default=1, ge=1, le=64)
    """Of an attempt; models take one."""


class _ModelEntry(Config):
    prompt: str = ""
    """Of `configs/teacher_prompts.yaml`; empty: `small` for served models, that of the recipe for trained ones."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Unset: 0 for one attempt, 0.8 for several. At 0 one attempt is made, for another would be the same."""
    max_tokens: int | None = Field(default=None, ge=1, le=32_768)
    """Of an answer; unset: that of the prompt, or of the recipe."""
    seed: int = Field(default=1, ge=0)
    at_once: int = Field(default=0, ge=0, le=4096)
    """Questions on their way at a time; 0: as many as the actors have slots, or 64 of a trained model."""

    def temperature_of(self, attempts: int) -> float:
        """Return the temperature of answers where so many attempts are made."""
        if self.temperature is not None:
            return self.temperature
        return _TEMPERATURE_OF_SEVERAL if attempts > 1 else 0.0


class ActorsEntry(_ModelEntry):
    """A served model. Actors of this machine that do not run are started, and stopped afterwards."""

    kind: Literal["actors"] = "actors"
    fleet: str
    """Of `configs/vllm_actors.yaml`."""
    adapter: str = ""
    """Name of an adapter of the fleet, or of a recipe whose adapter the actors load; empty: the model itself."""
    deadline_s: float = Field(default=300.0, gt=0)
    """From a question to its answer."""


class TrainedEntry(_ModelEntry):
    """A model of the training service."""

    kind: Literal["trained"] = "trained"
    recipe: str
    """Of `configs/recipes`: its model, its renderer, and its adapter."""
    is_bare: bool = False
    """Whether the model is asked without the adapter."""
    run: str = ""
    """Id of a run of the recipe; empty: that of the adapter in `models/adapters`."""

    @model_validator(mode="after")
    def _asks_one_model(self) -> Self:
        if self.is_bare and self.run:
            raise ValueError("run: the bare model is the same after any run; leave one of run and is_bare out")
        return self


class AgentEntry(Config):
    """A served model that edits places, of whose edits rules are made, as `graftline refactor` does; values unset are those of it."""

    kind: Literal["agent"] = "agent"
    fleet: str
    """Of `configs/vllm_actors.yaml`; started as that of `actors`."""
    adapter: str = ""
    """As that of `actors`."""
    demonstrations: int = Field(default=0, ge=0, le=20)
    """Places of a change that are shown as examples."""
    shows: Shows = "imports"
    """Of a single place: its lines alone (`block`), the imports of its file as well, or an edit of the change elsewhere."""
    answers: int | None = Field(default=None, ge=1, le=64)
    """At each place that the model edits, of which most have to do the same; of a single place it is always one."""
    places: int | None = Field(default=None, ge=1, le=20)
    """That the model edits."""
    questions: int | None = Field(default=None, ge=0, le=100)
    """Yes or no, for each edit."""
    tokens: int = Field(default=200_000, ge=1)
    """Of an attempt, at most."""
    seconds: float = Field(default=3_600.0, ge=1)
    """That an attempt may wait for the model."""


class DemonstrationsEntry(Config):
    """Rules of so many places of the change, as people edited them, without a model; other places for a further attempt."""

    kind: Literal["demonstrations"] = "demonstrations"
    count: int = Field(default=1, ge=1, le=20)
    seed: int = Field(default=0, ge=0)
    """Which places."""


class SedEntry(Config):
    """Code that an instruction says is to go becomes the code that it says is to come, at word boundaries."""

    kind: Literal["sed"] = "sed"


Entry = Annotated[
    TeacherEntry | ActorsEntry | TrainedEntry | AgentEntry | DemonstrationsEntry | SedEntry, Field(discriminator="kind")
]


class EvaluationFile(Config):
    """The file."""

    description: str = ""
    tasks: tuple[TaskSource, ...] = Field(min_length=1)
    """Of a task that two of them hold, the first counts."""
    solvers: dict[Name, Entry] = Field(
        min_length=1, max_length=32, validation_alias=AliasChoices("solvers", "contestants")
    )
    """By their names; files of version 0.1.0 call them `contestants`."""
    attempts: int = Field(default=1, ge=1, le=64)
    """Of each solver at each task."""
    candidate: str = ""
    """The solver that is to take the place of the deployed one; empty: nothing is to be deployed."""
    deployed: str = ""
    """The solver that is deployed; empty: the one that `graftline eval promote` recorded."""
    min_coverage: float = Field(default=0.95, ge=0, le=1)
    """Share of attempts that count, below which a check warns."""

    @model_validator(mode="after")
    def _names_its_solvers(self) -> Self:
        for key in ("candidate", "deployed"):
            name = getattr(self, key)
            if name and name not in self.solvers:
                raise ValueError(f"{key}: {name!r} is no solver; known: {', '.join(self.solvers)}")
        kinds = {source.unit if isinstance(source, RepositoriesSource) else source.kind for source in self.tasks}
        for name, entry in self.solvers.items():
            other = next((kind for kind in sorted(kinds) if kind not in ("repositories", "places")), "")
            if isinstance(entry, DemonstrationsEntry | SedEntry) and other:
                raise ValueError(
                    f"solvers.{name}: attempts changes of repositories alone, and not tasks of kind {other!r}"
                )
            if isinstance(entry, TeacherEntry) and "repositories" in kinds:
                raise ValueError(
                    f"solvers.{name}: a teacher attempts one text, and no whole repository; take kind 'demonstrations'"
                )
        if self.candidate and self.candidate == self.deployed:
            raise ValueError(f"candidate: {self.candidate!r} is deployed; name the one that is to take its place")
        return self


def load_evaluation(path: Path) -> EvaluationFile:
    """Return the evaluation of a file.

    Raises:
        ConfigError: it cannot be read, or does not fit.
    """
    return load_yaml(path, EvaluationFile)
