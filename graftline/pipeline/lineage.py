"""What every stage is given: settings, open ports, and artifacts that are made only when something changed.

A stage reads its inputs through their records, so that what it makes is tied to exactly those files. Where artifacts are
kept in a bucket, that is what counts: an input comes from there unless the root holds the very same one, and what is made
is put there before it takes its place in the root.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents, Request, build
from graftline.core.clock import Clock, utc_now
from graftline.core.errors import BoundaryError, ConfigError, RecordError
from graftline.core.hashing import digest
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, load_record, load_verified
from graftline.datasets.catalog import Catalog, Dataset
from graftline.datasets.splits import SPLITS, Split
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.ports import Ports
from graftline.pipeline.run_log import RunLog
from graftline.pipeline.settings import Settings, load_settings, stage_code

if TYPE_CHECKING:
    from graftline.pipeline.attempts import JobFeed

logger = logging.getLogger(__name__)

Advance = Callable[[int, int], None]
"""Called with the number done and the number there are."""

ItemT = TypeVar("ItemT")


@dataclass
class Lineage:
    """One root folder, and what is needed to make artifacts in it; made by `open_lineage`."""

    paths: Paths
    settings: Settings
    manifest: Manifest
    ports: Ports
    run_log: RunLog
    open_until_end: ExitStack
    clock: Clock = utc_now
    advance: Advance = lambda done, total: None
    feed: "JobFeed | None" = None
    """The attempts that a run comes to later, where workers make them."""
    _once: dict[str, Any] = field(default_factory=dict, repr=False)
    _unchanged: dict[Path, tuple[str, tuple[tuple[str, int, int, int], ...]]] = field(default_factory=dict, repr=False)
    _read: dict[str, tuple[Path, tuple[str, ...]]] = field(default_factory=dict, repr=False)

    @cached_property
    def catalog(self) -> Catalog:
        return self.settings.catalog

    def partitions(self) -> list[tuple[Language, Split]]:
        """Return every language and split, in order."""
        return [(language, split) for language in self.catalog.languages for split in SPLITS]

    def build(self, folder: Path, request: Request, make: Callable[[Path], Contents], with_files: bool = True) -> Built:
        """Return the artifact of `request` in `folder` (see `core.build`), and log what became of it.

        Without `with_files`, one that the store of artifacts has and the root lacks stays where it is.
        """
        started, worked_s = monotonic(), 0.0

        def measure(partial: Path) -> Contents:
            nonlocal worked_s
            began = monotonic()
            try:
                return make(partial)
            finally:
                worked_s += monotonic() - began

        if (
            not with_files
            and not folder.exists()
            and (stored := self.find_record(folder))
            and not request.difference(stored)
        ):
            self.run_log.append(request.kind, request.name, "", monotonic() - started)
            return Built(folder, stored, "")
        try:
            built = self._build(folder, request, measure)
        except OSError as error:
            # a full disk, a folder that may not be written to; a library may name neither number nor file
            cause = error.strerror or str(error).partition("\n")[0]
            file_name = f" ({error.filename})" if error.filename else ""
            raise BoundaryError(
                f"{self.paths.relative(folder)}: {request.kind} {request.name} cannot be made: {cause}{file_name}; mend it"
                " and run again, what was made before is untouched"
            ) from error
        # made or found right, its files have just been read
        self._unchanged[folder] = built.record.identity, _stamps(folder, built.record)
        self.run_log.append(request.kind, request.name, built.reason, monotonic() - started, worked_s)
        return built

    def _build(self, folder: Path, request: Request, make: Callable[[Path], Contents]) -> Built:
        stored = self.find_record(folder)
        if stored is not None:
            # one that lost a file is made anew
            with suppress(RecordError):
                self.pull(folder)
        store, name = self.ports.artifacts, self.paths.relative(folder)
        built = build(
            folder,
            request,
            lambda partial: self._check_inputs_unchanged(request, make(partial)),
            self.clock,
            lambda partial, record: store.publish(name, partial, record),
        )
        if not built.is_fresh and built.record != stored:
            # made before there was a store, or by a run that was killed while it was sent there
            store.publish(name, folder, built.record)
        return built

    def find_record(self, folder: Path) -> ArtifactRecord | None:
        """Return the record of an artifact that the store has; None where there is none that can be read."""
        try:
            return self.ports.artifacts.record(self.paths.relative(folder))
        except RecordError:
            return None  # it is made anew

    def pull(self, folder: Path) -> None:
        """Have in `folder` what the store of artifacts has of it; nothing happens where it has nothing.

        Raises:
            RecordError: what it has is damaged.
            BoundaryError: the store failed.
        """
        store, name = self.ports.artifacts, self.paths.relative(folder)
        record = store.record(name)
        if record is None or record == _here(folder):
            return
        started = monotonic()
        store.fetch(name, record, folder)
        logger.info("%s: fetched from %s in %.1f s", name, store.label, monotonic() - started)

    def record(self, folder: Path) -> ArtifactRecord:
        """Return the record of an artifact, without looking at its files or fetching them."""
        return self.ports.artifacts.record(self.paths.relative(folder)) or load_record(folder)

    def read_input(self, folder: Path, kind: str) -> ArtifactRecord:
        """Return the record of an input (see `core.record`), and remember where it was read from.

        Files that were checked before in this run are not read again while size, time and inode are what they were.
        """
        self.pull(folder)
        record = load_record(folder)
        stamped = record.identity, _stamps(folder, record)
        if self._unchanged.get(folder) != stamped or record.kind != kind:
            record = load_verified(folder, kind)
            self._unchanged[folder] = record.identity, _stamps(folder, record)
        self._read[record.identity] = folder, ()
        return record

    def find(self, folder: Path, kind: str) -> ArtifactRecord | None:
        """Return the record of an input as `read_input`; None where there is none."""
        self.pull(folder)
        return self.read_input(folder, kind) if folder.exists() else None

    def read_part(self, folder: Path, record: ArtifactRecord, *names: str) -> str:
        """Return what stands for some files of an artifact among the inputs of another; those that are not there count.

        A stage that reads a part of an artifact is not made again when the rest of it changes.
        """
        identity = part_identity(record, names)
        self._read[identity] = folder, names
        return identity

    def _check_inputs_unchanged(self, request: Request, contents: Contents) -> Contents:
        """Return `contents` if what they were made from is still what the request names."""
        for name, identity in request.inputs.items():
            if identity not in self._read:
                continue
            folder, names = self._read[identity]
            record = load_record(folder)
            if identity != (part_identity(record, names) if names else record.identity):
                raise RecordError(f"{request.kind} {request.name}: {name} was replaced while it was read; run again")
        return contents

    def teacher_folders(self, language: Language, split: str) -> list[Path]:
        """Return the folder of every teacher that attempted the tasks of a language and split."""
        of_all = self.paths.partition("trajectories/raw", language, split)
        names = self.ports.artifacts.names(self.paths.relative(of_all))
        return [self.paths.root / name for name in names]

    def dataset(self, name: str) -> Dataset:
        """Return the entry of a dataset in the catalog."""
        if name not in self.catalog.datasets:
            raise ConfigError(f"dataset {name!r} is unknown; known: {', '.join(sorted(self.catalog.datasets))}")
        return self.catalog.datasets[name]

    def once(self, name: str, make: Callable[[], ItemT]) -> ItemT:
        """Return what `make` returned when it was asked for by this name for the first time."""
        if name not in self._once:
            self._once[name] = make()
        value: ItemT = self._once[name]
        return value

    def track(self, items: Sequence[ItemT]) -> Iterator[ItemT]:
        """Yield `items`, and report how many are done."""
        for number, item in enumerate(items, 1):
            yield item
            self.advance(number, len(items))


@contextmanager
def open_lineage(
    paths: Paths,
    manifest: Manifest,
    run: str = "",
    clock: Clock = utc_now,
    advance: Advance = lambda done, total: None,
) -> Iterator[Lineage]:
    """Give the lineage with the ports of `manifest`, and close what was opened, worker processes included, at the end.

    Args:
        run: The name of the run; of the time and some chance where it is not given.

    Raises:
        ConfigError: a configuration file does not fit.
        DownloadError: the mirror cannot be read.
    """
    settings = load_settings(paths)
    run_log = RunLog(paths, run or f"{clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}")
    with ExitStack() as stack:
        yield Lineage(paths, settings, manifest, Ports(manifest, paths, stack), run_log, stack, clock, advance)


def request_of(
    stage: str, name: str, inputs: Mapping[str, ArtifactRecord | str], config: Mapping[str, Any], code: str = ""
) -> Request:
    """Return what an artifact of `stage` is made of; `code` is that of the stage where it is not given."""
    identities = {key: value if isinstance(value, str) else value.identity for key, value in inputs.items()}
    return Request(stage, name, code or stage_code(stage), identities, config)


def part_identity(record: ArtifactRecord, names: Sequence[str]) -> str:
    """Return what stands for some files of an artifact among the inputs of another."""
    return digest({name: record.files[name].sha256 for name in names if name in record.files})


def _here(folder: Path) -> ArtifactRecord | None:
    try:
        return load_record(folder)
    except RecordError:
        return None


def _stamps(folder: Path, record: ArtifactRecord) -> tuple[tuple[str, int, int, int], ...]:
    stamps = []
    for name in sorted(record.files):
        try:
            status = (folder / name).stat()
        except OSError:
            return ()
        stamps.append((name, status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(stamps)
