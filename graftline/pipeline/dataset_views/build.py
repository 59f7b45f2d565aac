"""The stages of datasets, one by one: fetch, normalize, divide and split.

What is made here is what `graftline run` makes, and finds unchanged; only that no jail is opened for it.
"""

import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from graftline.core.build import Built
from graftline.core.clock import Clock, utc_now
from graftline.core.download import Advance, Download
from graftline.core.errors import GraftlineError, RecordError
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.core.record import RECORD_NAME, DatasetRecord, load_record
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.losses import main_losses
from graftline.datasets.sources.base import DatasetHub, Observation
from graftline.pipeline.dataset_views.listing import datasets_named, partitions_named, sources_named
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.ports import Ports, dataset_hub
from graftline.pipeline.run_log import RunLog
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.normalized import normalized
from graftline.pipeline.stages.raw import raw
from graftline.pipeline.stages.splits import division, splits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass
class BuildReport:
    """What a command made or found unchanged, and what it could not make."""

    built: list[Built] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def as_dict(self, paths: Paths) -> dict[str, Any]:
        """Return plain values, for one line of JSON."""
        return {
            "artifacts": [_artifact(built, paths) for built in self.built],
            "warnings": self.warnings(),
            "faults": self.faults,
        }

    def warnings(self) -> list[str]:
        """Return of which datasets most rows are lost to one reason."""
        return [str(loss) for loss in main_losses(built.record for built in self.built)]


def fetch(
    paths: Paths, manifest: Manifest, names: Sequence[str], progress: Progress, clock: Clock = utc_now
) -> BuildReport:
    """Fetch the raw files of the datasets called `names`, or of those in use; one that fails does not stop the others.

    Raises:
        ConfigError: one is unknown.
    """
    with open_dataset_stages(paths, manifest, progress, clock) as stages:
        chosen = datasets_named(stages.catalog, names)
        return _run_steps(progress, [("raw", name, partial(raw, stages, name)) for name in chosen])


def normalize(
    paths: Paths, manifest: Manifest, names: Sequence[str], progress: Progress, clock: Clock = utc_now
) -> BuildReport:
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

        return _run_steps(progress, [("normalized", name, partial(make, name)) for name in chosen])


def split(
    paths: Paths,
    manifest: Manifest,
    language: str | None,
    part: str | None,
    progress: Progress,
    clock: Clock = utc_now,
) -> BuildReport:
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
        steps = [
            ("splits", f"{code_language}/{split_name}", partial(splits, stages, code_language, split_name))
            for code_language, split_name in partitions
        ]
        making = _run_steps(progress, steps)
        return BuildReport([divided, *making.built], making.faults)


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
    hub = CountingHub(dataset_hub(manifest, paths), progress.advance)
    run = RunLog(paths, f"{clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}")
    with ExitStack() as stack:
        ports = Ports(manifest, paths, stack, opened={"dataset_hub": hub})
        yield Lineage(paths, settings, manifest, ports, run, stack, clock, progress.advance)


def _run_steps(progress: Progress, steps: Sequence[tuple[str, str, Callable[[], Built]]]) -> BuildReport:
    making = BuildReport()
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


_BUFFER_BYTES = 1 << 20


class CountingHub:
    """`hub`, which tells `advance` how many bytes of the dataset that `files` was asked for last have come."""

    def __init__(self, hub: DatasetHub, advance: Advance) -> None:
        self._hub, self._advance = hub, advance
        self._come_bytes, self._total_bytes, self._files = 0, 0, 0

    def revision(self, name: str, dataset: Dataset) -> str:
        return self._hub.revision(name, dataset)

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        return self._hub.observe(name, dataset, previous)

    def is_upstream(self, name: str, dataset: Dataset) -> bool:
        return self._hub.is_upstream(name, dataset)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        files = self._hub.files(name, dataset)
        sizes = [file.size_bytes for file in files if file.size_bytes is not None]
        self._come_bytes, self._files = 0, len(files)
        self._total_bytes = sum(sizes) if len(sizes) == len(files) else 0
        return files

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        def of_all(done: int, total: int) -> None:
            # where the home does not say how large its files are, one file still does when it comes
            advance(self._come_bytes + done, self._total_bytes or (total if self._files == 1 else 0))

        fetched = self._hub.fetch(name, dataset, file, target, of_all)
        self._come_bytes += fetched.size_bytes
        return fetched

    @contextmanager
    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[IO[bytes]]:
        with (
            self._hub.stream(name, dataset, file) as inner,
            io.BufferedReader(_CountingStream(inner, self._read), _BUFFER_BYTES) as stream,
        ):
            yield stream

    def _read(self, size_bytes: int) -> None:
        self._come_bytes += size_bytes
        self._advance(self._come_bytes, self._total_bytes)


class _CountingStream(io.RawIOBase):
    def __init__(self, inner: IO[bytes], count: Callable[[int], None]) -> None:
        self._inner, self._count = inner, count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        room = memoryview(buffer).cast("B")
        content = self._inner.read(len(room))
        room[: len(content)] = content
        self._count(len(content))
        return len(content)
