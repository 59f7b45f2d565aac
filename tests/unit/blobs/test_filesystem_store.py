"""Objects in folders and buckets, seen from behind: what lies there, and what a killed writer leaves."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.blobs import Blob, BlobStore, FilesystemBlobsConfig, MemoryBlobsConfig, open_blob_store
from graftline.core.config import validate
from graftline.core.errors import BoundaryError, ConfigError
from graftline.core.secrets import EnvironmentSecrets, Secrets
from tests.http_server import HttpAnswer, serve_answers
from tests.s3_server import BUCKET, SECRET_KEY, S3Server

CONTENT = b"one line\n"
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> BlobStore:
    return open_blob_store(FilesystemBlobsConfig(url="store"), tmp_path, Secrets([]))


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def refusing_url() -> Iterator[str]:
    """A server that answers everything with 403, and tells in it what nobody should see."""
    body = f"<Error><Code>AccessDenied</Code><Message>not with {SECRET_KEY}</Message></Error>".encode()
    with serve_answers(lambda request: HttpAnswer(body, 403, {"Content-Type": "application/xml"})) as url:
        yield url


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_object_in_a_folder_is_a_file_with_a_checksum_beside_it(
    store: BlobStore, folder: Path, source: Path
) -> None:
    store.put("raw/a.jsonl", source)
    assert files(folder) == {
        "raw/a.jsonl": CONTENT,
        "raw/a.jsonl.sha256": f"{CHECKSUM}  a.jsonl\n".encode(),
    }


def test_an_object_in_a_bucket_is_an_object_with_a_checksum_beside_it(
    s3: S3Server, source: Path, tmp_path: Path
) -> None:
    open_blob_store(s3.config("folder"), tmp_path, s3.secrets).put("raw/a.jsonl", source)
    assert s3.objects() == {
        "folder/raw/a.jsonl": CONTENT,
        "folder/raw/a.jsonl.sha256": f"{CHECKSUM}  a.jsonl\n".encode(),
    }


def test_what_a_killed_writer_leaves_is_not_there(store: BlobStore, folder: Path, source: Path) -> None:
    folder.mkdir()
    (folder / "without-checksum").write_bytes(CONTENT)
    (folder / "without-object.sha256").write_text(f"{CHECKSUM}  without-object\n")
    (folder / ".half.partial-1").write_bytes(CONTENT[:3])
    assert store.sizes() == {}
    assert store.find("without-checksum") is None
    assert store.find("without-object") is None
    assert store.put("without-checksum", source) == Blob("without-checksum", len(CONTENT), CHECKSUM)
    assert store.sizes() == {"without-checksum": len(CONTENT)}


def test_an_object_that_was_altered_is_not_handed_out(
    store: BlobStore, folder: Path, source: Path, tmp_path: Path
) -> None:
    store.put("a", source)
    (folder / "a").write_bytes(b"two lines")
    with pytest.raises(BoundaryError) as error:
        store.get("a", tmp_path / "got")
    assert str(error.value) == f"{folder}/a: is not what its checksum says; put it there again"
    assert not (tmp_path / "got").exists()


def test_a_checksum_that_is_none_is_an_error(store: BlobStore, folder: Path, source: Path) -> None:
    store.put("a", source)
    (folder / "a.sha256").write_text("a checksum\n")
    with pytest.raises(BoundaryError) as error:
        store.find("a")
    assert str(error.value) == f"{folder}/a.sha256: is no checksum; put 'a' there again"


def test_a_failed_put_takes_its_partial_file_away(store: BlobStore, folder: Path, source: Path) -> None:
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "b").write_bytes(b"in the way")
    with pytest.raises(BoundaryError):
        store.put("a/b/c", source)
    assert files(folder) == {"a/b": b"in the way"}


def test_a_bucket_that_is_not_there_is_an_error(s3: S3Server, source: Path, tmp_path: Path) -> None:
    config = s3.config("folder").model_copy(update={"url": "s3://no-such-bucket/folder"})
    store = open_blob_store(config, tmp_path, s3.secrets)
    for call in (store.sizes, lambda: store.put("a", source)):
        with pytest.raises(BoundaryError) as error:
            call()
        assert "FileNotFoundError: The specified bucket does not exist; check the store" in str(error.value)


def test_what_a_client_says_is_told_without_the_secrets(refusing_url: str, source: Path, tmp_path: Path) -> None:
    config = FilesystemBlobsConfig(
        url=f"s3://{BUCKET}/folder",
        options={"endpoint_url": refusing_url},
        secrets={"key": "STORE_KEY", "secret": "STORE_SECRET"},
    )
    secrets = Secrets([EnvironmentSecrets({"STORE_KEY": "AKIAGRAFTLINE", "STORE_SECRET": SECRET_KEY})])
    with pytest.raises(BoundaryError) as error:
        open_blob_store(config, tmp_path, secrets).put("a", source)
    assert str(error.value) == (
        f"s3://{BUCKET}/folder/a.sha256: PermissionError: not with [secret]; check the store, its credentials and the right to"
        " write there, then try again: what was put is kept"
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "s3://user:hidden@bucket",
            "blobs: url: holds a password; name the variable that has it under `secrets` instead",
        ),
        (
            "nonsense://bucket",
            "blobs: url: 'nonsense://bucket' cannot be opened (Protocol not known: nonsense); install its client or"
            " mend its entry",
        ),
    ],
)
def test_a_url_that_cannot_be_opened_is_a_fault_of_the_configuration(url: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        open_blob_store(FilesystemBlobsConfig(url=url), tmp_path, Secrets([]))
    assert str(error.value) == message


def test_a_store_is_configured_by_its_kind(tmp_path: Path) -> None:
    assert validate({"kind": "memory"}, MemoryBlobsConfig, "x") == MemoryBlobsConfig()
    store = open_blob_store(FilesystemBlobsConfig(url="~/blobs"), tmp_path, Secrets([]))
    assert store.label == str(Path.home() / "blobs")
