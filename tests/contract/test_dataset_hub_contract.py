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
class Home:
    """A home of some kind with the hub that knows it."""

    hub: DatasetHub
    url: str | None
    files: dict[str, bytes] = field(default_factory=dict)
    version: str = "1"

    def put(self, files: Mapping[str, bytes]) -> None:
        """Have exactly these files in the home."""
        self.files.clear()
        self.files.update({f"homes/demo/{name}": content for name, content in files.items()})

    def dataset(self, *paths: str, **pins: Any) -> Dataset:
        files = tuple(DatasetFile(path=path, **pins) for path in paths)
        return Dataset(
            reader="release_pairs", home=self.url, version=self.version, license="MIT", files=files, follow=False
        )


@dataclass
class FolderHome(Home):
    """A home in a folder of fsspec."""

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
class WebHome(Home):
    """A home on a server; a put is a new commit."""

    server: HubServer | None = None

    def put(self, files: Mapping[str, bytes]) -> None:
        assert self.server is not None
        self.version = self.server.put("owner/demo", files)
        self.server.files = {f"/demo/{name}": content for name, content in files.items()}


def homes(kind: str, root: Path, server: HubServer) -> Home:
    """Return an empty home of one kind."""
    if kind == "memory":
        held: dict[str, bytes] = {}
        return Home(memory_hub(held), "homes/demo", held)
    if kind == "http":
        return WebHome(HttpHub(QUICK), f"{server.url}/demo", server=server)
    if kind == "huggingface":
        hub = HuggingFaceHub(QUICK, Secrets([]), server.url)
        return WebHome(hub, "hf://datasets/owner/demo", server=server)
    if kind == "local":
        return FolderHome(local_hub(root), "homes/demo", folder=f"{root}/homes/demo")
    if kind == "mirror":
        mirror = MirrorHub(str(root / "mirror"), local_hub(root), QUICK, must_match_pins=True)
        return FolderHome(mirror, None, folder=f"{root}/mirror/demo")
    url = {"file": f"file://{root}/there", "memory filesystem": f"memory://{root.name}/there"}[kind]
    return FolderHome(filesystem_hub(QUICK), url, folder=url)


KINDS = ["local", "memory", "http", "huggingface", "file", "memory filesystem", "mirror"]


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """An empty home of every kind."""
    with HubServer() as server:
        yield homes(request.param, tmp_path, server)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where to fetch to, in a folder that holds nothing else."""
    return tmp_path / "target" / "rows.jsonl"


def fetch(home: Home, entry: Dataset, target: Path, steps: list[tuple[int, int]] | None = None) -> Download:
    seen = [] if steps is None else steps
    (file,) = home.hub.files("demo", entry)
    return home.hub.fetch("demo", entry, file, target, lambda done, total: seen.append((done, total)))


def beside(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir()) if target.parent.exists() else []


def test_fetch_writes_exactly_the_bytes_of_the_home(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": CONTENT})
    fetched = fetch(home, home.dataset("rows.jsonl"), target)
    assert (beside(target), target.read_bytes()) == (["rows.jsonl"], CONTENT)
    assert (fetched.sha256, fetched.size_bytes) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def test_fetch_writes_an_empty_file_too(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": b""})
    fetch(home, home.dataset("rows.jsonl"), target)
    assert (beside(target), target.read_bytes()) == (["rows.jsonl"], b"")


@pytest.mark.parametrize("path", ["a/b/rows.jsonl", "C++/a b/rows #1 100%.jsonl", "ä/rows.jsonl"])
def test_fetch_takes_files_by_any_plain_name(home: Home, target: Path, path: str) -> None:
    home.put({path: CONTENT})
    fetch(home, home.dataset(path), target)
    assert target.read_bytes() == CONTENT


def test_fetch_replaces_an_older_file(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": CONTENT})
    target.parent.mkdir()
    target.write_bytes(b"older and longer than the new one" * 10)
    fetch(home, home.dataset("rows.jsonl"), target)
    assert target.read_bytes() == CONTENT


def test_fetch_says_how_far_it_is(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": CONTENT})
    steps: list[tuple[int, int]] = []
    fetch(home, home.dataset("rows.jsonl"), target, steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT))


def test_what_is_pinned_is_accepted_and_upstream(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": CONTENT})
    pins = {"size_bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    fetched = fetch(home, home.dataset("rows.jsonl", **pins), target)
    assert fetched == Download(pins["sha256"], len(CONTENT), is_upstream=True)
    assert target.read_bytes() == CONTENT


PINS = [
    ({"size_bytes": 4}, "size_bytes is 11, but 4 is expected"),
    ({"size_bytes": 12}, "size_bytes is 11, but 12 is expected"),
    ({"sha256": "0" * 64}, f"sha256 is {hashlib.sha256(b'12345678901').hexdigest()}, but {'0' * 64} is expected"),
]


@pytest.mark.parametrize(("pins", "reason"), PINS)
def test_something_else_than_pinned_is_an_error_and_leaves_what_there_was(
    home: Home, target: Path, pins: Mapping[str, Any], reason: str
) -> None:
    home.put({"rows.jsonl": b"12345678901"})
    target.parent.mkdir()
    target.write_bytes(b"older")
    with pytest.raises(DownloadError, match=f"rows.jsonl: {reason}; restore the file in its home"):
        fetch(home, home.dataset("rows.jsonl", **pins), target)
    assert (beside(target), target.read_bytes()) == (["rows.jsonl"], b"older")


def test_a_pinned_file_that_is_there_already_is_left_as_it_is(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": CONTENT})
    entry = home.dataset("rows.jsonl", sha256=hashlib.sha256(CONTENT).hexdigest())
    fetch(home, entry, target)
    before = target.stat()
    assert fetch(home, entry, target).size_bytes == len(CONTENT)
    after = target.stat()
    # it was looked at, which is a time too
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_a_missing_file_is_an_error_that_names_it(home: Home, target: Path) -> None:
    home.put({"other.jsonl": CONTENT})
    with pytest.raises(DownloadError, match=r"rows\.jsonl: no such file"):
        fetch(home, home.dataset("rows.jsonl"), target)
    assert beside(target) == []


def test_a_folder_is_no_file(home: Home, target: Path) -> None:
    home.put({"rows.jsonl/inner": CONTENT})
    with pytest.raises(DownloadError, match=r"rows\.jsonl: no such file"):
        fetch(home, home.dataset("rows.jsonl"), target)


def test_a_stream_gives_exactly_the_bytes_of_the_home(home: Home) -> None:
    home.put({"rows.jsonl": CONTENT})
    entry = home.dataset("rows.jsonl", sha256=hashlib.sha256(CONTENT).hexdigest(), size_bytes=len(CONTENT))
    (file,) = home.hub.files("demo", entry)
    with home.hub.stream("demo", entry, file) as stream:
        assert (stream.read(7), stream.read()) == (CONTENT[:7], CONTENT[7:])


def test_a_stream_may_be_left_early(home: Home) -> None:
    home.put({"rows.jsonl": CONTENT})
    entry = home.dataset("rows.jsonl")
    with home.hub.stream("demo", entry, home.hub.files("demo", entry)[0]) as stream:
        assert stream.read(3) == CONTENT[:3]


@pytest.mark.parametrize(("pins", "reason"), PINS)
def test_a_stream_of_something_else_than_pinned_is_an_error_at_its_end(
    home: Home, pins: Mapping[str, Any], reason: str
) -> None:
    home.put({"rows.jsonl": b"12345678901"})

    def read() -> None:
        entry = home.dataset("rows.jsonl", **pins)
        with home.hub.stream("demo", entry, home.hub.files("demo", entry)[0]) as stream:
            stream.read()

    with pytest.raises(DownloadError, match=f"rows.jsonl: {reason}; restore the file in its home"):
        read()


def test_a_pattern_is_every_file_that_fits_it_in_the_order_of_names(home: Home, request: Any) -> None:
    if "http" in request.node.callspec.id:
        pytest.skip("a plain web server cannot list")
    home.put({"b/y.jsonl": b"", "b/x.jsonl": b"", "a/x.jsonl": b"", "x.jsonl": b"", "a/b/x.jsonl": b"", "a/x.csv": b""})
    found = home.hub.files("demo", home.dataset("*/*.jsonl", "x.jsonl"))
    assert [file.path for file in found] == ["a/x.jsonl", "b/x.jsonl", "b/y.jsonl", "x.jsonl"]
    with pytest.raises(DownloadError, match=r"\*\.parquet: no such file"):
        home.hub.files("demo", home.dataset("*.parquet"))


def test_the_revision_needs_every_file_that_is_not_pinned(home: Home, request: Any) -> None:
    home.put({"a.jsonl": CONTENT})
    if "huggingface" in request.node.callspec.id:
        pytest.skip("a commit is its own revision, and nobody is asked")
    with pytest.raises(DownloadError, match=r"b\.jsonl: no such file"):
        home.hub.revision("demo", home.dataset("a.jsonl", "b.jsonl"))


def test_the_revision_changes_with_the_content_of_the_files_alone(home: Home, request: Any) -> None:
    home.put({"a.jsonl": b"1", "b.jsonl": b"22"})
    first = home.hub.revision("demo", home.dataset("a.jsonl", "b.jsonl"))
    assert home.hub.revision("demo", home.dataset("a.jsonl", "b.jsonl")) == first
    home.put({"a.jsonl": b"22", "b.jsonl": b"1"})
    second = home.hub.revision("demo", home.dataset("a.jsonl", "b.jsonl"))
    assert second != first
    if "huggingface" not in request.node.callspec.id:  # where every put is a commit
        home.put({"a.jsonl": b"22", "b.jsonl": b"1", "c.jsonl": b"3"})
        assert home.hub.revision("demo", home.dataset("a.jsonl", "b.jsonl")) == second


def test_a_look_at_an_unchanged_home_is_the_last_one_and_another_after_a_change(home: Home) -> None:
    home.put({"a.jsonl": b"1"})
    first = home.hub.observe("demo", home.dataset("a.jsonl"), None)
    assert home.hub.observe("demo", home.dataset("a.jsonl"), first) == first
    home.put({"a.jsonl": b"2"})
    second = home.hub.observe("demo", home.dataset("a.jsonl"), first)
    assert second.revision != first.revision
    assert home.hub.observe("demo", home.dataset("a.jsonl"), second) == second


def test_a_dataset_that_follows_its_home_has_no_pins(home: Home, target: Path) -> None:
    home.put({"rows.jsonl": CONTENT})
    entry = home.dataset("rows.jsonl", sha256="0" * 64, size_bytes=1).model_copy(update={"follow": True})
    fetch(home, entry, target)
    assert target.read_bytes() == CONTENT


def test_a_home_nobody_knows_is_an_error_that_says_what_to_state(tmp_path: Path) -> None:
    entry = Home(local_hub(tmp_path), None).dataset("rows.jsonl")
    with pytest.raises(ConfigError) as error:
        local_hub(tmp_path).revision("demo", entry)
    assert str(error.value) == (
        "dataset 'demo': nobody knows its home; state `home` in configs/datasets.yaml, or set GRAFTLINE_DATASET_MIRROR"
    )
