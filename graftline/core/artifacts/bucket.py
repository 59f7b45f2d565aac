"""Artifacts in what fsspec knows: `s3://…`, `gs://…`, a folder that several machines mount, and others.

A file is the object `files/<first two digits>/<its SHA-256>`, the record of an artifact the object
`records/<name>.json`. An object is there whole or not at all, and a record is written after all of its files: whoever
reads one finds the others. Files that no record names any more stay until `unused` says so.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from graftline.core.artifacts.transfer import FILES_AT_ONCE, fetched, to_be_sent
from graftline.core.blobs.objects import Objects
from graftline.core.errors import RecordError
from graftline.core.hashing import sha256_file
from graftline.core.record import Record, parse_record

_RECORDS, _FILES = "records/", "files/"


class BucketArtifacts:
    """Artifacts below one folder of a file system of fsspec."""

    def __init__(self, objects: Objects) -> None:
        self.label = objects.label
        self._objects = objects

    def record(self, name: str) -> Record | None:
        content = self._objects.read(_record(name))
        return None if content is None else parse_record(content, f"{self.label}/{_record(name)}")

    def names(self, below: str) -> list[str]:
        found = self._objects.sizes(f"{_RECORDS}{below}/")
        return [name.removeprefix(_RECORDS).removesuffix(".json") for name in found if name.endswith(".json")]

    def publish(self, name: str, folder: Path, record: Record) -> None:
        def send(file: tuple[str, Path]) -> None:
            sha256, path = file
            if self._objects.size_bytes(_file(sha256)) != path.stat().st_size:
                self._objects.put_file(_file(sha256), path)

        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            list(threads.map(send, to_be_sent(folder, record)))
        self._objects.write(_record(name), record.model_dump_json(indent=2).encode() + b"\n")

    def fetch(self, name: str, record: Record, folder: Path) -> None:
        fetched(folder, record, self._get)

    def _get(self, sha256: str, target: Path) -> None:
        name = _file(sha256)
        for _ in range(2):  # a fault on the way is not one of the object
            if self._objects.size_bytes(name) is None:
                raise RecordError(f"{self.label}: has no {name}; materialize the asset again")
            self._objects.get_file(name, target)
            if sha256_file(target) == sha256:
                return
        # otherwise whoever makes the artifact anew would take it for sent
        self._objects.remove(name)
        raise RecordError(f"{self.label}/{name}: was not what its name says; materialize the asset again")

    def unused(self) -> Iterator[str]:
        """Yield the names of objects that no record names; while nothing is published, they may be removed."""
        named = {
            file.sha256
            for name in self._objects.sizes(_RECORDS)
            if (record := self.record(name.removeprefix(_RECORDS).removesuffix(".json"))) is not None
            for file in record.files.values()
        }
        yield from (name for name in self._objects.sizes(_FILES) if name.rpartition("/")[2] not in named)


def _record(name: str) -> str:
    return f"{_RECORDS}{name}.json"


def _file(sha256: str) -> str:
    return f"{_FILES}{sha256[:2]}/{sha256}"
