"""A file of `configs/prompts`: which prompt is made better, on which tasks, and how hard that is tried."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError, DataError
from graftline.core.hashing import sha256_text
from graftline.core.paths import Paths
from graftline.harbor.environments.policy import Part
from graftline.prompts.settings import PromptLearningConfig
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import Prompt


class PromptFile(Config):
    """The whole file."""

    prompt: str = Field(default="small", pattern=r"^[a-z0-9_-]+$")
    """The prompt that is begun with, of `configs/teacher_prompts.yaml`."""
    parts: tuple[Part, ...] = Field(default=("system",), min_length=1)
    """What of it may be changed."""
    tasks: str = Field(min_length=1)
    """The `tasks.jsonl` of an artifact, or of a sample, relative to the root."""
    train: int = Field(default=40, ge=2, le=10_000)
    """Tasks that prompts are changed and compared on."""
    validation: int = Field(default=20, ge=0, le=10_000)
    """Tasks of other repositories, that the best prompts are judged on."""
    max_steps: int = Field(default=1, ge=1, le=64)
    """Of one attempt."""
    most_tokens: int | None = Field(default=None, ge=32)
    """Of one answer; what the prompt says where it is not given."""
    gepa: dict[str, Any] = Field(default={})
    """The table `[prompt_learning.gepa]` of an optimization, but for its seeds."""

    @field_validator("gepa")
    @classmethod
    def _is_a_table(cls, gepa: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "evaluation" in gepa and set(gepa["evaluation"]) - {"validation_top_k"}:
            raise ValueError(
                "evaluation names seeds; `train` and `validation` of the file say how many tasks there are"
            )
        try:
            PromptLearningConfig.from_mapping({"gepa": gepa})
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("prompt optimization: prompt_learning.")) from None
        return gepa

    def learning(self, prompt: Prompt, train: Sequence[int], validation: Sequence[int]) -> PromptLearningConfig:
        """Return the optimization of `prompt` on these seeds.

        Raises:
            ConfigError: a part that may be changed is empty.
        """
        texts = {part: getattr(prompt.settings, part) for part in self.parts}
        if empty := [part for part, text in texts.items() if not text.strip()]:
            raise ConfigError(f"prompt {self.prompt!r}: {empty[0]} is empty, so there is nothing to make better")
        messages = [{"role": part, "pattern": text, "order": order} for order, (part, text) in enumerate(texts.items())]
        evaluation = {**self.gepa.get("evaluation", {}), "train_seeds": [*train], "validation_seeds": [*validation]}
        sampling = {} if self.most_tokens is None else {"max_tokens": self.most_tokens}
        return PromptLearningConfig.from_mapping(
            {
                "initial_prompt": {"id": self.prompt, "messages": messages},
                "policy": {"config": {"teacher": "openai", "max_steps": self.max_steps, **sampling}},
                "gepa": {**self.gepa, "evaluation": evaluation},
            }
        )


def prompt_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/prompts`, without their ending."""
    return sorted(path.stem for path in (paths.configs / "prompts").glob("*.yaml"))


def prompt_file(paths: Paths, name: str) -> PromptFile:
    """Return what one file of `configs/prompts` holds.

    Raises:
        ConfigError: there is none, or it does not fit.
    """
    known = prompt_names(paths)
    if name not in known:
        raise ConfigError(f"prompt {name!r} is unknown; known in configs/prompts: {', '.join(known) or 'none'}")
    return load_yaml(paths.configs / "prompts" / f"{name}.yaml", PromptFile)


def divided(tasks: Sequence[Task], n_train: int, n_validation: int) -> tuple[list[Task], list[Task]]:
    """Return tasks to change prompts on, and tasks of other repositories to judge them on; the same for the same tasks.

    Raises:
        DataError: there are not enough.
    """
    by_group: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: sha256_text(task.id)):
        by_group.setdefault(task.group, []).append(task)
    groups = sorted(by_group, key=sha256_text)
    validation: list[Task] = []
    while groups and len(validation) < n_validation:
        validation += by_group[groups.pop()]
    train = sorted((task for group in groups for task in by_group[group]), key=lambda task: sha256_text(task.id))
    if len(train) < n_train or len(validation) < n_validation:
        raise DataError(
            f"{len(tasks)} tasks of {len(by_group)} repositories are {len(train)} to change prompts on and"
            f" {len(validation)} of other repositories to judge them on; {n_train} and {n_validation} are asked for, so ask"
            " for fewer"
        )
    return train[:n_train], validation[:n_validation]


def asked_for(file: PromptFile) -> dict[str, Any]:
    """Return what of a file decides what is found, as JSON has it."""
    tree: dict[str, Any] = json.loads(file.model_dump_json())
    # how many are asked for at the same time changes nothing but the time it takes
    tree["gepa"].get("rollout", {}).pop("max_concurrent", None)
    tree["gepa"].pop("max_concurrent_rollouts", None)
    return tree
