"""Which data a recipe of the lineage trains on: the values below `data` of `configs/recipes/<name>.yaml`.

`training.rows` makes rows of it.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from graftline.astgrep.binding import Language
from graftline.core.config import Config
from graftline.datasets.synthetic.families import OF_FAMILY

TRAIN, HELD_OUT, TASKS = "train.jsonl", "held_out.jsonl", "tasks.jsonl"
"""What a recipe trains on, what its held-out loss is taken on, and the tasks that are solved before and after."""


class _Source(Config):
    languages: tuple[Language, ...] = Field(default=("python",), min_length=1)
    prompt: str = "brief"
    """Of `configs/teacher_prompts.yaml`: how tasks are asked and answered."""
    examples: int = Field(default=400, ge=1)
    """Rows to train on, at most."""
    held_out: int = Field(default=40, ge=0)
    """Rows for the held-out loss, and tasks to solve before and after, at most."""


class SyntheticSource(_Source):
    """Synthetic edits on snippets of the splits, made for the recipe, their actions applied in the sandbox."""

    kind: Literal["synthetic"] = "synthetic"
    templates: tuple[str, ...] = ()
    """Ids of docs/synthetic.md, inverses too; all if there are none."""
    most_characters: int = Field(default=240, ge=40)
    """Of a text before; longer snippets are cut into runs of whole statements."""
    per_snippet: int = Field(default=2, ge=1)
    seed: int = 0

    @model_validator(mode="after")
    def _knows_its_templates(self) -> Self:
        if unknown := sorted({*self.templates} - {*OF_FAMILY}):
            raise ValueError(f"templates: {unknown[0]!r} is unknown; docs/synthetic.md lists them")
        return self


class TrajectorySource(_Source):
    """Verified steps of the trajectories that are stored."""

    kind: Literal["trajectories"] = "trajectories"
    teachers: tuple[str, ...] = ()
    """Those of these teachers alone; of all if there are none."""
    of: Literal["all", "real", "synthetic"] = "all"
    """Kind of the edits."""


class ComposedSource(_Source):
    """Composed edits on pieces of the splits (`datasets.synthetic.composed`): every kind of change."""

    kind: Literal["composed"] = "composed"
    most_characters: int = Field(default=140, ge=40)
    """Of a piece, and of a text before."""
    seed: int = 0


Part = Annotated[SyntheticSource | ComposedSource | TrajectorySource, Field(discriminator="kind")]


class MixtureSource(Config):
    """Several of the others together; their held-out rows and tasks too."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[Part, ...] = Field(min_length=2)

    @property
    def prompt(self) -> str:
        """That of all parts."""
        return self.parts[0].prompt

    @property
    def languages(self) -> tuple[Language, ...]:
        """Those of any part."""
        return tuple(dict.fromkeys(language for part in self.parts for language in part.languages))

    @model_validator(mode="after")
    def _is_asked_in_one_way(self) -> Self:
        if len(prompts := sorted({part.prompt for part in self.parts})) > 1:
            raise ValueError(f"parts: are asked by {', '.join(prompts)}; name one prompt in all of them")
        return self


Source = Annotated[SyntheticSource | ComposedSource | TrajectorySource | MixtureSource, Field(discriminator="kind")]


def parts_of(source: Source) -> tuple[SyntheticSource | ComposedSource | TrajectorySource, ...]:
    """Return the parts of a mixture; `source` itself where it is none."""
    return source.parts if isinstance(source, MixtureSource) else (source,)
