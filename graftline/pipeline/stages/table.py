"""All stages, in order: over what each is made, by which function, and which code decides what it makes.

The code version of an artifact, the order of a run, the summary and the assets follow from it. Functions are loaded when they are
called, for whoever only wants to know what there is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from graftline.core.build import Built

if TYPE_CHECKING:
    from graftline.pipeline.lineage import Lineage

Over = Literal[
    "dataset", "source", "everything", "partition", "recipe", "deployment", "evaluation", "evaluations", "prompt", "reports"
]  # fmt: skip
"""What there is one artifact for: a dataset in use, one that is no evaluation, all data, a language and split, a file, all
evaluations, the marts."""

_SANDBOX = ("graftline.sandbox.actions",)
_FILES = ("graftline.core.jsonl", "graftline.core.parquet")


@dataclass(frozen=True, slots=True)
class Stage:
    """What makes one kind of artifact."""

    over: Over
    function: str = ""
    """Module below `graftline.pipeline.stages`, and name; empty where the shells make it. It takes the lineage, and names."""
    code: tuple[str, ...] = ()
    """Modules that decide, with all that they import, what is made."""
    is_apart: bool = False
    """Whether it is made in runs of its own."""


STAGES: Mapping[str, Stage] = {
    "raw": Stage("dataset", "raw:raw", ("graftline.datasets.sources.open", "graftline.datasets.raw_rows")),
    "normalized": Stage("source", "normalized:normalized", ("graftline.datasets.normalize",)),
    "division": Stage("everything", "splits:division", ("graftline.datasets.splits",)),
    "splits": Stage("partition", "splits:splits", ("graftline.datasets.splits",)),
    "repository_changes": Stage(
        "everything", "repository_changes:repository_changes",
        ("graftline.datasets.repository_changes.write", "graftline.datasets.repository_changes.histories",
         "graftline.datasets.repository_changes.records", "graftline.datasets.repository_changes.releases"),
    ),
    "label_tasks": Stage("everything", "tasks:label_tasks", ("graftline.rollouts.task", "graftline.core.jsonl")),
    "synthetic_rules": Stage(
        "partition", "tasks:synthetic_rules", ("graftline.datasets.synthetic", *_SANDBOX, *_FILES)
    ),
    "tasks": Stage(
        "partition", "tasks:tasks",
        ("graftline.rollouts.task", "graftline.rollouts.task_instructions", *_SANDBOX, *_FILES),
    ),
    "teacher_trajectories": Stage(
        "partition", "trajectories:teacher_trajectories",
        (
            "graftline.rollouts.collect", "graftline.rollouts.recorded", "graftline.rollouts.teachers.open", *_SANDBOX,
            *_FILES,
        ),
    ),
    "trajectories": Stage("partition", "trajectories:trajectories", ("graftline.rollouts.exports.parquet", *_FILES)),
    "sft_dataset": Stage("recipe", "sft_dataset:sft_dataset", ("graftline.training.rows", *_SANDBOX), True),
    "trained_adapter": Stage(
        "recipe", "trained_adapter:trained_adapter",
        ("graftline.training.train", "graftline.training.answers", "graftline.training.card", *_SANDBOX), True,
    ),
    "adapter_report": Stage("reports", is_apart=True),
    "report_models": Stage("reports"),
    "reports": Stage("reports"),
    "harbor_deployment": Stage(
        "deployment", "harbor_deployment:harbor_deployment", ("graftline.harbor.deployment_file",), True
    ),
    "instance_batch": Stage("deployment", "harbor_deployment:instance_batch", ("graftline.harbor.instances",), True),
    # what acts is in the deployment, whose digest is an input; how it is asked for is nothing that an evaluation depends on
    "evaluation": Stage(
        "evaluation", "evaluation:evaluation", ("graftline.harbor.coverage", "graftline.harbor.calibration"), True
    ),
    "optimized_prompt": Stage(
        "prompt", "optimized_prompt:optimized_prompt",
        (
            "graftline.prompts.optimize", "graftline.prompts.proposers", "graftline.harbor.environments.refactoring",
            *_SANDBOX,
        ), True,
    ),
    "closed_loop": Stage("evaluations", "closed_loop:closed_loop_results", ("graftline.evals.metrics",), True),
}  # fmt: skip
CODE_OF_EVALUATIONS: Mapping[str, tuple[str, ...]] = {
    # pages can be written again without asking anybody
    "contest": (
        "graftline.evals.evaluation",
        "graftline.evals.grading",
        "graftline.evals.sources",
        "graftline.evals.change_solvers",
        *_SANDBOX,
        *_FILES,
    ),
    # the code of our own environment is that of this package
    "evaluation of our tasks": (*STAGES["evaluation"].code, "graftline.harbor.environments.run_rollout"),
}
"""What decides in evaluations of another kind than those of deployments."""


def make(stage: str, lineage: "Lineage", *names: str) -> Built:
    """Bring the artifact of `stage` over `names` (a dataset; a language and a split; a recipe) up to date, and return it."""
    module, _, name = STAGES[stage].function.partition(":")
    function: Callable[..., Built] = getattr(import_module(f"graftline.pipeline.stages.{module}"), name)
    return function(lineage, *names)
