"""What every `BlobStore` does: objects that are there whole, with their checksum, or not at all."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graftline.core.blobs import Blob, BlobsConfig, BlobStore, FilesystemBlobsConfig, MemoryBlobsConfig, open_blob_store
from graftline.core.errors import BoundaryError, DataError
from graftline.core.secrets import Secrets
from tests.s3_server import S3Server

CONTENT = b'{"id": 1}\r\n\x00\xff\n' * 3
KINDS = ["memory", "folder", "file URL", "s3"]


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[S3Server, BlobStore]]:
    with S3Server() as server:
        yield server, open_blob_store(server.config("folder"), Path(), server.secrets)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """An empty store of every kind."""
    kind = request.param
    if kind == "s3":
        # a client of its own for each test would take a second
        server, opened = request.getfixturevalue("s3")
        server.empty()
        return opened
    configs: dict[str, BlobsConfig] = {
        "memory": MemoryBlobsConfig(),
        "folder": FilesystemBlobsConfig(url="there"),
        "file URL": FilesystemBlobsConfig(url=f"file://{tmp_path}/there"),
    }
    return open_blob_store(configs[kind], tmp_path, Secrets([]))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where to write to, in a folder that is not there."""
    return tmp_path / "got" / "file"


def blob(name: str, content: bytes = CONTENT) -> Blob:
    return Blob(name, len(content), hashlib.sha256(content).hexdigest())


def test_what_was_put_comes_back_byte_for_byte(store: BlobStore, source: Path, target: Path) -> None:
    assert store.put("raw/a.jsonl", source) == blob("raw/a.jsonl")
    assert store.get("raw/a.jsonl", target) == blob("raw/a.jsonl")
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_an_empty_file_is_an_object(store: BlobStore, source: Path, target: Path) -> None:
    source.write_bytes(b"")
    store.put("empty", source)
    assert store.get("empty", target) == blob("empty", b"")
    assert target.read_bytes() == b""


def test_an_object_is_found_by_its_name_alone(store: BlobStore, source: Path) -> None:
    store.put("raw/a.jsonl", source)
    assert store.find("raw/a.jsonl") == blob("raw/a.jsonl")
    assert store.find("raw/a.json") is None
    assert store.find("raw") is None


def test_nothing_is_in_an_empty_store(store: BlobStore) -> None:
    assert store.sizes() == {}
    assert store.sizes("raw/") == {}


def test_objects_are_listed_by_what_their_names_begin_with(store: BlobStore, source: Path) -> None:
    for name in ("b", "raw/x/2", "raw/x/1", "raw/y", "rawer"):
        store.put(name, source)
    size = len(CONTENT)
    assert list(store.sizes().items()) == [
        ("b", size),
        ("raw/x/1", size),
        ("raw/x/2", size),
        ("raw/y", size),
        ("rawer", size),
    ]
    assert store.sizes("raw/") == {"raw/x/1": size, "raw/x/2": size, "raw/y": size}
    assert store.sizes("raw") == {"raw/x/1": size, "raw/x/2": size, "raw/y": size, "rawer": size}
    assert store.sizes("raw/x/2") == {"raw/x/2": size}


def test_the_last_put_of_a_name_is_what_is_there(store: BlobStore, source: Path, target: Path) -> None:
    store.put("a", source)
    source.write_bytes(b"other")
    store.put("a", source)
    assert store.sizes() == {"a": 5}
    assert store.get("a", target) == blob("a", b"other")
    assert target.read_bytes() == b"other"


def test_getting_replaces_what_was_in_the_place(store: BlobStore, source: Path, target: Path) -> None:
    store.put("a", source)
    target.parent.mkdir()
    target.write_bytes(b"of before")
    store.get("a", target)
    assert target.read_bytes() == CONTENT


def test_getting_what_is_not_there_is_an_error_and_leaves_nothing(store: BlobStore, target: Path) -> None:
    with pytest.raises(BoundaryError) as error:
        store.get("nothing", target)
    assert str(error.value) == f"{store.label}: has no object 'nothing'; put it there first"
    assert not target.exists()


def test_a_name_that_no_object_can_have_is_refused(store: BlobStore, source: Path, target: Path) -> None:
    for name in ("", "/a", "../a", "a//b", "a/", "./a", ".hidden", "a/.b", "a\\b", "a\nb", "a.sha256", "a/b.sha256"):
        with pytest.raises(DataError, match="name"):
            store.put(name, source)
        with pytest.raises(DataError, match="name"):
            store.get(name, target)
        with pytest.raises(DataError, match="name"):
            store.find(name)
    assert store.sizes() == {}


def test_a_source_that_is_no_file_is_refused(store: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        store.put("a", tmp_path / "missing")
    assert str(error.value) == (
        f"{tmp_path}/missing: cannot be read (No such file or directory); expected a file to be uploaded"
    )
    assert store.find("a") is None


def test_threads_put_and_get_side_by_side(store: BlobStore, tmp_path: Path) -> None:
    def trip(number: int) -> bytes:
        source, target = tmp_path / f"source-{number}", tmp_path / f"target-{number}"
        source.write_bytes(b"%d" % number * 1000)
        store.put(f"x/{number}", source)
        store.get(f"x/{number}", target)
        return target.read_bytes()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(trip, range(8))) == [b"%d" % number * 1000 for number in range(8)]
    assert len(store.sizes("x/")) == 8
