"""The port `artifacts`: finished artifacts, for every worker to read, beside the code or in a bucket.

An artifact goes by its path from the root, such as `data/processed/python/train`. It is there whole, as one writer put it,
or it is not there: of two that publish one name, the last one wins, and never is anything a mix of both. That there is no
artifact is a result; an error is raised where the store does not answer, or lost something. Not here: when an artifact is
made anew (`graftline.core.record`), and who asks (`graftline.pipeline.stages`).
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Protocol, assert_never

from pydantic import Field

from graftline.core.build import put_in_place
from graftline.core.config import Config
from graftline.core.errors import DataError, RecordError
from graftline.core.hashing import sha256_file
from graftline.core.record import RECORD_NAME, ArtifactRecord, load_record, parse_record
from graftline.core.secrets import Secrets
from graftline.core.store import ObjectStore, ObjectStoreConfig, memory_objects, open_objects

_RECORDS, _FILES = "records/", "files/"
_FILES_AT_ONCE = 4
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class ArtifactStore(Protocol):
    """Keeps artifacts. Safe to use from several threads and processes; every method raises BoundaryError where it fails."""

    @property
    def label(self) -> str:
        """What messages call it; without secrets."""

    def record(self, name: str) -> ArtifactRecord | None:
        """Return the record of the artifact called `name`; None if there is none.

        Raises:
            RecordError: what is there is no record.
        """

    def names(self, below: str) -> list[str]:
        """Return the names of the artifacts in the folder `below` and in folders of it, sorted."""

    def publish(self, name: str, folder: Path, record: ArtifactRecord) -> None:
        """Keep the artifact whose files are in `folder` under `name`: its files first, its record last.

        Raises:
            DataError: a file is not what the record says.
            BoundaryError: the store failed; what was there under `name` still is.
        """

    def fetch(self, name: str, record: ArtifactRecord, folder: Path) -> None:
        """Write the artifact of `record` to `folder`, in place of what is there, every file checked.

        Raises:
            RecordError: a file is not what the record says, or lost: the artifact has to be made anew.
            BoundaryError: the store failed. Whatever is raised, what was in `folder` is still there.
        """


class FolderArtifacts:
    """The root itself: what is in place is published, and nothing has to be fetched."""

    label = "folder"

    def __init__(self, root: Path) -> None:
        self._root = root

    def record(self, name: str) -> ArtifactRecord | None:
        try:
            return load_record(self._root / name)
        except RecordError:
            return None

    def names(self, below: str) -> list[str]:
        folders = (path.parent.relative_to(self._root) for path in (self._root / below).rglob(RECORD_NAME))
        return sorted(str(path) for path in folders if not any(part.startswith(".") for part in path.parts))

    def publish(self, name: str, folder: Path, record: ArtifactRecord) -> None:
        """Do nothing: whoever made it puts it in place."""

    def fetch(self, name: str, record: ArtifactRecord, folder: Path) -> None:
        """Do nothing: it is in place."""


class BucketArtifacts:
    """Artifacts as objects: `s3://…`, `gs://…`, a folder that several machines mount, and others.

    A file is the object `files/<first two digits>/<its SHA-256>`, the record of an artifact the object
    `records/<name>.json`, which is written after all of its files: whoever reads a record finds them. A file that is in
    several artifacts, or in the next version of one, is sent and kept once, and nothing is ever written over. Files that no
    record names any more stay until somebody removes what `unused` yields.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.label = objects.label
        self._objects = objects

    def record(self, name: str) -> ArtifactRecord | None:
        content = self._objects.read(_record_name(name))
        return None if content is None else parse_record(content, f"{self.label}/{_record_name(name)}")

    def names(self, below: str) -> list[str]:
        names = self._objects.sizes(f"{_RECORDS}{below}/")
        return [name.removeprefix(_RECORDS).removesuffix(".json") for name in names if name.endswith(".json")]

    def publish(self, name: str, folder: Path, record: ArtifactRecord) -> None:
        def send(sha256: str, file: str) -> None:
            path, size_bytes = folder / file, record.files[file].size_bytes
            if not path.is_file() or path.stat().st_size != size_bytes:
                raise DataError(f"{path}: is not what its record says; materialize its asset again")
            if self._objects.size_bytes(_file_name(sha256)) != size_bytes:
                self._objects.put_file(_file_name(sha256), path)

        files_by_sha256 = {checksum.sha256: file for file, checksum in record.files.items()}
        with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
            list(threads.map(send, files_by_sha256.keys(), files_by_sha256.values()))
        self._objects.write(_record_name(name), record.model_dump_json(indent=2).encode() + b"\n")

    def fetch(self, name: str, record: ArtifactRecord, folder: Path) -> None:
        """Write the artifact to `folder`; files that the artifact in place shares with it are linked."""
        present = _files_by_sha256(folder)

        def fill(partial: Path) -> None:
            """Complete what a killed call may have left in `partial`."""
            for path in sorted(partial.rglob("*"), reverse=True):
                if path.is_file() and path.relative_to(partial).as_posix() not in record.files:
                    path.unlink()

            def fetch_file(file: str) -> None:
                target, sha256 = partial / file, record.files[file].sha256
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists() and sha256 in present:
                    with suppress(OSError):  # where there are no links, it is fetched
                        os.link(present[sha256], target)
                if not target.exists() or sha256_file(target) != sha256:
                    target.unlink(missing_ok=True)  # written into, a link would change the artifact in place
                    self._get(sha256, target)

            with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
                list(threads.map(fetch_file, record.files))

        put_in_place(folder, record, fill)

    def find_unused(self) -> Iterator[str]:
        """Yield the names of objects that no record names; while nothing is published, they may be removed."""
        records = (
            self.record(name.removeprefix(_RECORDS).removesuffix(".json")) for name in self._objects.sizes(_RECORDS)
        )
        used = {file.sha256 for record in records if record is not None for file in record.files.values()}
        yield from (name for name in self._objects.sizes(_FILES) if name.rpartition("/")[2] not in used)

    def _get(self, sha256: str, target: Path) -> None:
        name = _file_name(sha256)
        for _ in range(2):  # a fault on the way is not one of the object
            if self._objects.size_bytes(name) is None:
                raise RecordError(f"{self.label}: has no {name}; materialize the asset again")
            self._objects.get_file(name, target)
            if sha256_file(target) == sha256:
                return
        # otherwise whoever makes the artifact anew would take it for sent
        self._objects.remove(name)
        raise RecordError(f"{self.label}/{name}: was not what its name says; materialize the asset again")


def _record_name(name: str) -> str:
    return f"{_RECORDS}{name}.json"


def _file_name(sha256: str) -> str:
    return f"{_FILES}{sha256[:2]}/{sha256}"


def _files_by_sha256(folder: Path) -> dict[str, Path]:
    try:
        files = load_record(folder).files
    except RecordError:
        return {}
    return {file.sha256: folder / name for name, file in files.items()}


class FolderArtifactsConfig(Config):
    """The root itself: one machine, or a file system that every worker has as its root."""

    kind: Literal["folder"] = "folder"


class BucketArtifactsConfig(ObjectStoreConfig):
    """A bucket, or a folder that several machines mount; `url` is its address, or the name of the variable that has it.

    Every worker has a root of its own, in which it keeps what it made and what it read.
    """

    kind: Literal["bucket"] = "bucket"


class MemoryArtifactsConfig(Config):
    """In this process: for tests."""

    kind: Literal["memory"] = "memory"


ArtifactsConfig = Annotated[
    FolderArtifactsConfig | BucketArtifactsConfig | MemoryArtifactsConfig, Field(discriminator="kind")
]


def open_artifacts(config: ArtifactsConfig, root: Path, secrets: Secrets) -> ArtifactStore:
    """Return the store of `config`, as `open_objects`; ConfigError if the variable of its address is not set."""
    match config:
        case FolderArtifactsConfig():
            return FolderArtifacts(root)
        case BucketArtifactsConfig():
            if _VARIABLE.fullmatch(config.url):
                address = secrets.require(config.url, "artifacts.url").get_secret_value()
                config = config.model_copy(update={"url": address})
            return BucketArtifacts(open_objects(config, root, secrets, "artifacts"))
        case MemoryArtifactsConfig():
            return BucketArtifacts(memory_objects())
        case _:
            assert_never(config)
