"""The stages of datasets, one by one: fetch, normalize, divide and split.

What is made here is what `graftline run` makes, and finds unchanged; only that no jail is opened for it.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from graftline.core.build import Built
from graftline.core.clock import Clock, utc_now
from graftline.core.errors import GraftlineError, RecordError
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.core.record import RECORD_NAME, DatasetRecord, load_record
from graftline.core.secrets import open_secrets
from graftline.datasets.losses import main_losses
from graftline.pipeline.dataset_views.counted_hub import CountedHub
from graftline.pipeline.dataset_views.names import datasets_named, partitions_named, sources_named
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.ports import Ports, dataset_hub
from graftline.pipeline.run_log import RunLog
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.division import division
from graftline.pipeline.stages.normalized import normalized
from graftline.pipeline.stages.raw import raw
from graftline.pipeline.stages.splits import splits


@dataclass
class Making:
    """What a command made or found unchanged, and what it could not make."""

    built: list[Built] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def as_dict(self, paths: Paths) -> dict[str, Any]:
        """Return plain values, for one line of JSON."""
        return {
            "artifacts": [_artifact(one, paths) for one in self.built],
            "warnings": self.warnings(),
            "faults": self.faults,
        }

    def warnings(self) -> list[str]:
        """Return of which datasets most rows are lost to one reason."""
        return [str(loss) for loss in main_losses(built.record for built in self.built)]


def fetch(paths: Paths, manifest: Manifest, names: Sequence[str], progress: Progress, clock: Clock = utc_now) -> Making:
    """Fetch the raw files of the datasets called `names`, or of those in use; one that fails does not stop the others.

    Raises:
        ConfigError: one is unknown.
    """
    with open_dataset_stages(paths, manifest, progress, clock) as stages:
        chosen = datasets_named(stages.catalog, names)
        return _made(progress, [("raw", name, partial(raw, stages, name)) for name in chosen])


def normalize(
    paths: Paths, manifest: Manifest, names: Sequence[str], progress: Progress, clock: Clock = utc_now
) -> Making:
    """Normalize the datasets called `names`, or those in use; one that fails does not stop the others.

    Raises:
        ConfigError: one is unknown, or an evaluation.
    """
    with open_dataset_stages(paths, manifest, progress, clock) as stages:
        chosen = sources_named(stages.catalog, names)

        def make(name: str) -> Built:
            evaluations = [used for used, dataset in stages.catalog.used.items() if dataset.is_evaluation]
            for needed in (name, *evaluations):
                _require(paths.raw(needed), f"dataset {needed!r}: is not fetched", f"fetch {needed}")
            rows = load_record(paths.raw(name)).counts.get("rows", 0)
            stages.advance = lambda done, _: progress.advance(done, rows)
            return normalized(stages, name)

        return _made(progress, [("normalized", name, partial(make, name)) for name in chosen])


def split(
    paths: Paths,
    manifest: Manifest,
    language: str | None,
    part: str | None,
    progress: Progress,
    clock: Clock = utc_now,
) -> Making:
    """Divide the edits of the datasets in use, and write the splits of `language` and `part`; None stands for each.

    Raises:
        ConfigError: the language or the split is unknown.
        GraftlineError: the division cannot be made.
    """
    with open_dataset_stages(paths, manifest, progress, clock) as stages:
        partitions = partitions_named(stages.catalog, language, part)
        for name in stages.catalog.sources:
            _require(paths.normalized(name), f"dataset {name!r}: is not normalized", f"normalize {name}")
        progress.start("division", "all")
        divided = division(stages)
        progress.finish(divided.reason)
        steps = [("splits", f"{of}/{one}", partial(splits, stages, of, one)) for of, one in partitions]
        making = _made(progress, steps)
        return Making([divided, *making.built], making.faults)


@contextmanager
def open_dataset_stages(
    paths: Paths, manifest: Manifest, progress: Progress, clock: Clock = utc_now
) -> Iterator[Lineage]:
    """Open of `manifest` what the stages of datasets need: the hub.

    Raises:
        ConfigError: a configuration file does not fit.
        DownloadError: the mirror cannot be read.
    """
    settings = load_settings(paths)
    hub = CountedHub(dataset_hub(manifest, paths), progress.advance)
    run = RunLog(paths, f"{clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}")
    with ExitStack() as stack:
        ports = Ports(manifest, paths, open_secrets(os.environ, paths.root), stack, {"dataset_hub": hub})
        yield Lineage(paths, settings, manifest, ports, run, stack, clock, progress.advance)


def _made(progress: Progress, steps: Sequence[tuple[str, str, Callable[[], Built]]]) -> Making:
    making = Making()
    for stage, name, make in steps:
        progress.start(stage, name)
        try:
            built = make()
        except GraftlineError as error:
            progress.fail()
            making.faults.append(str(error))
        else:
            making.built.append(built)
            progress.finish(built.reason)
    return making


def _require(folder: Path, fault: str, command: str) -> None:
    if not (folder / RECORD_NAME).exists():
        raise RecordError(f"{fault} yet; run 'graftline datasets {command}' first")


def _artifact(built: Built, paths: Paths) -> dict[str, Any]:
    record = built.record
    return {
        "stage": record.kind,
        "name": record.name,
        "reason": built.reason,
        "version": record.version if isinstance(record, DatasetRecord) else None,
        "counts": record.counts,
        "size_bytes": sum(file.size_bytes for file in record.files.values()),
        "folder": paths.relative(built.folder),
        "identity": record.identity,
    }
