"""What every `DatasetHub` does: whole and pinned files, or an error that says what to mend."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest

from graftline.core.download import Download
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.retry import RetryPolicy
from graftline.core.secrets import Secrets
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import DatasetHub
from graftline.datasets.sources.folders import filesystem_hub, local_hub
from graftline.datasets.sources.http import HttpHub
from graftline.datasets.sources.huggingface import HuggingFaceHub
from graftline.datasets.sources.mirror import MirrorHub
from graftline.testing.datasets import memory_hub
from tests.hub_server import HubServer

CONTENT = b'{"id": 1}\r\n\x00\xff\n' * 3
QUICK = RetryPolicy(connect_s=20.0, read_s=20.0, deadline_s=20.0, longest_pause_s=0.01)


@dataclass
class SourceCase:
    """A source of some kind with the hub that knows it."""

    hub: DatasetHub
    url: str | None
    files: dict[str, bytes] = field(default_factory=dict)
    version: str = "1"

    def put(self, files: Mapping[str, bytes]) -> None:
        """Have exactly these files in the source."""
        self.files.clear()
        self.files.update({f"sources/demo/{name}": content for name, content in files.items()})

    def dataset(self, *paths: str, **pins: Any) -> Dataset:
        files = tuple(DatasetFile(path=path, **pins) for path in paths)
        return Dataset(
            reader="release_pairs", url=self.url, version=self.version, license="MIT", files=files, follow=False
        )


@dataclass
class FolderSource(SourceCase):
    """A source in a folder of fsspec."""

    folder: str = ""

    def put(self, files: Mapping[str, bytes]) -> None:
        filesystem, path = fsspec.url_to_fs(self.folder)
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)
        filesystem.makedirs(path)
        for name, content in files.items():
            filesystem.makedirs(f"{path}/{name}".rpartition("/")[0], exist_ok=True)
            filesystem.pipe_file(f"{path}/{name}", content)


@dataclass
class WebSource(SourceCase):
    """A source on a server; a put is a new commit."""

    server: HubServer | None = None

    def put(self, files: Mapping[str, bytes]) -> None:
        assert self.server is not None
        self.version = self.server.put("owner/demo", files)
        self.server.files = {f"/demo/{name}": content for name, content in files.items()}


def sources(kind: str, root: Path, server: HubServer) -> SourceCase:
    """Return an empty source of one kind."""
    if kind == "memory":
        held: dict[str, bytes] = {}
        return SourceCase(memory_hub(held), "sources/demo", held)
    if kind == "http":
        return WebSource(HttpHub(QUICK), f"{server.url}/demo", server=server)
    if kind == "huggingface":
        hub = HuggingFaceHub(QUICK, Secrets([]), server.url)
        return WebSource(hub, "hf://datasets/owner/demo", server=server)
    if kind == "local":
        return FolderSource(local_hub(root), "sources/demo", folder=f"{root}/sources/demo")
    if kind == "mirror":
        mirror = MirrorHub(str(root / "mirror"), local_hub(root), QUICK, must_match_pins=True)
        return FolderSource(mirror, None, folder=f"{root}/mirror/demo")
    url = {"file": f"file://{root}/there", "memory filesystem": f"memory://{root.name}/there"}[kind]
    return FolderSource(filesystem_hub(QUICK), url, folder=url)


KINDS = ["local", "memory", "http", "huggingface", "file", "memory filesystem", "mirror"]


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourceCase]:
    """An empty source of every kind."""
    with HubServer() as server:
        yield sources(request.param, tmp_path, server)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where to fetch to, in a folder that holds nothing else."""
    return tmp_path / "target" / "rows.jsonl"


def fetch(source: SourceCase, entry: Dataset, target: Path, steps: list[tuple[int, int]] | None = None) -> Download:
    seen = [] if steps is None else steps
    (file,) = source.hub.files("demo", entry)
    return source.hub.fetch("demo", entry, file, target, lambda done, total: seen.append((done, total)))


def beside(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir()) if target.parent.exists() else []


def test_fetch_writes_exactly_the_bytes_of_the_source(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": CONTENT})
    fetched = fetch(source, source.dataset("rows.jsonl"), target)
    assert (beside(target), target.read_bytes()) == (["rows.jsonl"], CONTENT)
    assert (fetched.sha256, fetched.size_bytes) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def test_fetch_writes_an_empty_file_too(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": b""})
    fetch(source, source.dataset("rows.jsonl"), target)
    assert (beside(target), target.read_bytes()) == (["rows.jsonl"], b"")


@pytest.mark.parametrize("path", ["a/b/rows.jsonl", "C++/a b/rows #1 100%.jsonl", "ä/rows.jsonl"])
def test_fetch_takes_files_by_any_plain_name(source: SourceCase, target: Path, path: str) -> None:
    source.put({path: CONTENT})
    fetch(source, source.dataset(path), target)
    assert target.read_bytes() == CONTENT


def test_fetch_replaces_an_older_file(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": CONTENT})
    target.parent.mkdir()
    target.write_bytes(b"older and longer than the new one" * 10)
    fetch(source, source.dataset("rows.jsonl"), target)
    assert target.read_bytes() == CONTENT


def test_fetch_says_how_far_it_is(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": CONTENT})
    steps: list[tuple[int, int]] = []
    fetch(source, source.dataset("rows.jsonl"), target, steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT))


def test_what_is_pinned_is_accepted_and_upstream(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": CONTENT})
    pins = {"size_bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    fetched = fetch(source, source.dataset("rows.jsonl", **pins), target)
    assert fetched == Download(pins["sha256"], len(CONTENT), is_upstream=True)
    assert target.read_bytes() == CONTENT


PINS = [
    ({"size_bytes": 4}, "size_bytes is 11, but 4 is expected"),
    ({"size_bytes": 12}, "size_bytes is 11, but 12 is expected"),
    ({"sha256": "0" * 64}, f"sha256 is {hashlib.sha256(b'12345678901').hexdigest()}, but {'0' * 64} is expected"),
]


@pytest.mark.parametrize(("pins", "reason"), PINS)
def test_something_else_than_pinned_is_an_error_and_leaves_what_there_was(
    source: SourceCase, target: Path, pins: Mapping[str, Any], reason: str
) -> None:
    source.put({"rows.jsonl": b"12345678901"})
    target.parent.mkdir()
    target.write_bytes(b"older")
    with pytest.raises(DownloadError, match=f"rows.jsonl: {reason}; restore the file at its source"):
        fetch(source, source.dataset("rows.jsonl", **pins), target)
    assert (beside(target), target.read_bytes()) == (["rows.jsonl"], b"older")


def test_a_pinned_file_that_is_there_already_is_left_as_it_is(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": CONTENT})
    entry = source.dataset("rows.jsonl", sha256=hashlib.sha256(CONTENT).hexdigest())
    fetch(source, entry, target)
    before = target.stat()
    assert fetch(source, entry, target).size_bytes == len(CONTENT)
    after = target.stat()
    # it was looked at, which is a time too
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_a_missing_file_is_an_error_that_names_it(source: SourceCase, target: Path) -> None:
    source.put({"other.jsonl": CONTENT})
    with pytest.raises(DownloadError, match=r"rows\.jsonl: no such file"):
        fetch(source, source.dataset("rows.jsonl"), target)
    assert beside(target) == []


def test_a_folder_is_no_file(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl/inner": CONTENT})
    with pytest.raises(DownloadError, match=r"rows\.jsonl: no such file"):
        fetch(source, source.dataset("rows.jsonl"), target)


def test_a_stream_gives_exactly_the_bytes_of_the_source(source: SourceCase) -> None:
    source.put({"rows.jsonl": CONTENT})
    entry = source.dataset("rows.jsonl", sha256=hashlib.sha256(CONTENT).hexdigest(), size_bytes=len(CONTENT))
    (file,) = source.hub.files("demo", entry)
    with source.hub.stream("demo", entry, file) as stream:
        assert (stream.read(7), stream.read()) == (CONTENT[:7], CONTENT[7:])


def test_a_stream_may_be_left_early(source: SourceCase) -> None:
    source.put({"rows.jsonl": CONTENT})
    entry = source.dataset("rows.jsonl")
    with source.hub.stream("demo", entry, source.hub.files("demo", entry)[0]) as stream:
        assert stream.read(3) == CONTENT[:3]


@pytest.mark.parametrize(("pins", "reason"), PINS)
def test_a_stream_of_something_else_than_pinned_is_an_error_at_its_end(
    source: SourceCase, pins: Mapping[str, Any], reason: str
) -> None:
    source.put({"rows.jsonl": b"12345678901"})

    def read() -> None:
        entry = source.dataset("rows.jsonl", **pins)
        with source.hub.stream("demo", entry, source.hub.files("demo", entry)[0]) as stream:
            stream.read()

    with pytest.raises(DownloadError, match=f"rows.jsonl: {reason}; restore the file at its source"):
        read()


def test_a_pattern_is_every_file_that_fits_it_in_the_order_of_names(source: SourceCase, request: Any) -> None:
    if "http" in request.node.callspec.id:
        pytest.skip("a plain web server cannot list")
    source.put(
        {"b/y.jsonl": b"", "b/x.jsonl": b"", "a/x.jsonl": b"", "x.jsonl": b"", "a/b/x.jsonl": b"", "a/x.csv": b""}
    )
    found = source.hub.files("demo", source.dataset("*/*.jsonl", "x.jsonl"))
    assert [file.path for file in found] == ["a/x.jsonl", "b/x.jsonl", "b/y.jsonl", "x.jsonl"]
    with pytest.raises(DownloadError, match=r"\*\.parquet: no such file"):
        source.hub.files("demo", source.dataset("*.parquet"))


def test_the_revision_needs_every_file_that_is_not_pinned(source: SourceCase, request: Any) -> None:
    source.put({"a.jsonl": CONTENT})
    if "huggingface" in request.node.callspec.id:
        pytest.skip("a commit is its own revision, and nobody is asked")
    with pytest.raises(DownloadError, match=r"b\.jsonl: no such file"):
        source.hub.revision("demo", source.dataset("a.jsonl", "b.jsonl"))


def test_the_revision_changes_with_the_content_of_the_files_alone(source: SourceCase, request: Any) -> None:
    source.put({"a.jsonl": b"1", "b.jsonl": b"22"})
    first = source.hub.revision("demo", source.dataset("a.jsonl", "b.jsonl"))
    assert source.hub.revision("demo", source.dataset("a.jsonl", "b.jsonl")) == first
    source.put({"a.jsonl": b"22", "b.jsonl": b"1"})
    second = source.hub.revision("demo", source.dataset("a.jsonl", "b.jsonl"))
    assert second != first
    if "huggingface" not in request.node.callspec.id:  # where every put is a commit
        source.put({"a.jsonl": b"22", "b.jsonl": b"1", "c.jsonl": b"3"})
        assert source.hub.revision("demo", source.dataset("a.jsonl", "b.jsonl")) == second


def test_a_look_at_an_unchanged_source_is_the_last_one_and_another_after_a_change(source: SourceCase) -> None:
    source.put({"a.jsonl": b"1"})
    first = source.hub.observe("demo", source.dataset("a.jsonl"), None)
    assert source.hub.observe("demo", source.dataset("a.jsonl"), first) == first
    source.put({"a.jsonl": b"2"})
    second = source.hub.observe("demo", source.dataset("a.jsonl"), first)
    assert second.revision != first.revision
    assert source.hub.observe("demo", source.dataset("a.jsonl"), second) == second


def test_a_dataset_that_follows_its_source_has_no_pins(source: SourceCase, target: Path) -> None:
    source.put({"rows.jsonl": CONTENT})
    entry = source.dataset("rows.jsonl", sha256="0" * 64, size_bytes=1).model_copy(update={"follow": True})
    fetch(source, entry, target)
    assert target.read_bytes() == CONTENT


def test_a_source_nobody_knows_is_an_error_that_says_what_to_state(tmp_path: Path) -> None:
    entry = SourceCase(local_hub(tmp_path), None).dataset("rows.jsonl")
    with pytest.raises(ConfigError) as error:
        local_hub(tmp_path).revision("demo", entry)
    assert str(error.value) == (
        "dataset 'demo': nobody knows its source; state `url` in configs/datasets.yaml, or set GRAFTLINE_DATASET_MIRROR"
    )
