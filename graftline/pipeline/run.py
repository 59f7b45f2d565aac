"""All stages in order, or one of them, in this process, without Dagster."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from graftline.core.build import Built
from graftline.core.clock import Clock, utc_now
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import Manifest, load_manifest
from graftline.pipeline.stages.sft_dataset import recipes_of_run
from graftline.pipeline.stages.table import STAGES, Over, make
from graftline.pipeline.stages.trajectories import feed_workers


def run_all(
    paths: Paths,
    manifest: str,
    overrides: Mapping[str, Any],
    progress: Progress,
    clock: Clock = utc_now,
) -> list[Built]:
    """Bring every artifact up to date, and return them in the order they were made."""
    wiring = load_manifest(paths, manifest, overrides)
    with open_lineage(paths, wiring, clock=clock, advance=progress.advance) as lineage:
        # opens the teacher, and with it the sandbox: where they cannot be had, that is told before anything is fetched
        feed_workers(lineage)
        built = []
        for stage, name, bring in _steps(lineage):
            progress.start(stage, name)
            built.append(bring())
            progress.finish(built[-1].reason)
        return built


def run_one(paths: Paths, manifest: Manifest, stage: str, name: str, progress: Progress) -> Built:
    """Bring the artifact of `stage` over `name` up to date, and return it."""
    with open_lineage(paths, manifest, advance=progress.advance) as lineage:
        progress.start(stage, name)
        try:
            built = make(stage, lineage, name)
        except BaseException:
            progress.fail()
            raise
        progress.finish(built.reason)
        return built


def _steps(lineage: Lineage) -> list[tuple[str, str, Callable[[], Built]]]:
    """Return stage, name and maker of every artifact of a run, in the order in which they need each other."""
    catalog = lineage.catalog
    over: Mapping[Over, Sequence[tuple[str, ...]]] = {
        # what edits are kept away from has to be there before edits are made
        "dataset": [
            (name,) for name in sorted(catalog.used, key=lambda stage_: not catalog.used[stage_].is_evaluation)
        ],
        "source": [(name,) for name in catalog.sources],
        "everything": [()],
        "partition": lineage.partitions(),
        "recipe": [(name,) for name in recipes_of_run(lineage.paths)],
    }
    return [
        (stage, "/".join(names) or "all", partial(make, stage, lineage, *names))
        for stage, stage_ in STAGES.items()
        for names in over.get(stage_.over, ())
    ]
