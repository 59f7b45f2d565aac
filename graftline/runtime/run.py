"""All stages in order, in this process, without Dagster."""

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from graftline.building import Built
from graftline.clock import Clock, utc_now
from graftline.paths import Paths
from graftline.progress import Progress
from graftline.runtime.lineage import Lineage, open_lineage
from graftline.runtime.manifests import load_manifest
from graftline.runtime.trained_adapter import trained_adapter
from graftline.runtime.training_data import recipes_of_run, sft_dataset


def run_all(
    paths: Paths,
    manifest: str,
    overrides: Mapping[str, Any],
    progress: Progress,
    clock: Clock = utc_now,
) -> list[Built]:
    """Bring every artefact up to date, and return them in the order they were made.

    Raises:
        GraftlineError: a stage cannot be made; what was made before stays, and the next run goes on from there.
    """
    run = f"{clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    with open_lineage(paths, load_manifest(paths, manifest, overrides), run, clock) as lineage:
        lineage.advance = progress.advance
        lineage.feed_workers()
        built = []
        for stage, name, make in _steps(lineage):
            progress.start(stage, name)
            built.append(make())
            progress.finish(built[-1].reason)
        return built


def _steps(lineage: Lineage) -> list[tuple[str, str, Callable[[], Built]]]:
    catalogue = lineage.catalogue
    # what edits are kept away from has to be there before edits are made
    names = sorted(catalogue.used, key=lambda name: not catalogue.used[name].is_evaluation)
    partitions = lineage.partitions()
    parts = (
        lineage.splits,
        lineage.synthetic_rules,
        lineage.tasks,
        lineage.teacher_trajectories,
        lineage.trajectories,
    )
    steps: list[tuple[str, str, Callable[[], Built]]] = []
    steps += [("raw", name, partial(lineage.raw, name)) for name in names]
    steps += [("normalized", name, partial(lineage.normalized, name)) for name in catalogue.sources]
    recipes = recipes_of_run(lineage.paths)
    steps += [("division", "all", lineage.division), ("label_tasks", "all", lineage.label_tasks)]
    for of_part in parts:
        steps += [
            (of_part.__name__, f"{language}/{split}", partial(of_part, language, split))
            for language, split in partitions
        ]
    steps += [("sft_dataset", name, partial(sft_dataset, lineage, name)) for name in recipes]
    steps += [("trained_adapter", name, partial(trained_adapter, lineage, name)) for name in recipes]
    return steps
