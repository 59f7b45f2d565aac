"""What of a folder is sent to a store, and what is not sent again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.blobs import UPLOADS_NAME, BlobStore, UploadSummary, open_blob_store, upload_new
from graftline.core.errors import DataError
from graftline.core.store import memory_objects
from tests.s3_server import S3Server

UPLOADER = """
import sys
from pathlib import Path
from graftline.core.blobs import FilesystemBlobsConfig, open_blob_store
from graftline.core.blobs import upload_new
from graftline.core.secrets import Secrets
root = Path(sys.argv[1])
upload_new(root / "shards", open_blob_store(FilesystemBlobsConfig(url="store"), root, Secrets([])))
"""


def memory_store() -> BlobStore:
    return BlobStore(memory_objects())


class Counting:
    """A store that says what was asked of it."""

    def __init__(self, store: BlobStore) -> None:
        self.store, self.label = store, store.label
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.asked.append(name)
        return getattr(self.store, name)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    for name, content in (("python/1.jsonl", "a\n"), ("python/2.jsonl", "bb\n"), ("java/1.jsonl", "ccc\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def sizes_of(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_every_sealed_file_is_sent_once(shards: Path) -> None:
    store = memory_store()
    assert upload_new(shards, store) == UploadSummary(sent=3, sent_bytes=9, kept=0)
    assert upload_new(shards, store) == UploadSummary(sent=0, sent_bytes=0, kept=3)
    assert store.sizes() == {"java/1.jsonl": 4, "python/1.jsonl": 2, "python/2.jsonl": 3}


def test_what_comes_later_is_sent_alone(shards: Path) -> None:
    store = memory_store()
    upload_new(shards, store)
    (shards / "java" / "2.jsonl").write_text("dddd\n")
    assert upload_new(shards, store) == UploadSummary(sent=1, sent_bytes=5, kept=3)


def test_what_is_written_to_is_not_sent_before_it_is_sealed(shards: Path) -> None:
    store = memory_store()
    (shards / "java" / ".2.jsonl.partial").write_text("half")
    (shards / ".python.partial").mkdir()
    (shards / ".python.partial" / "3.jsonl").write_text("half")
    (shards / "java" / "open.jsonl").write_text("half")
    upload_new(shards, store, is_sealed=lambda path: path.stem != "open")
    assert store.sizes() == {"java/1.jsonl": 4, "python/1.jsonl": 2, "python/2.jsonl": 3}


@pytest.mark.parametrize("left", [0, 40], ids=["empty", "cut"])
def test_without_the_list_of_what_was_sent_the_checksum_decides(left: int, shards: Path) -> None:
    store = Counting(memory_store())
    upload_new(shards, store)
    (shards / UPLOADS_NAME).write_bytes((shards / UPLOADS_NAME).read_bytes()[:left])
    for asked in (["sizes", "find", "find", "find"], ["sizes"]):
        store.asked.clear()
        assert upload_new(shards, store) == UploadSummary(sent=0, sent_bytes=0, kept=3)
        assert store.asked == asked


def test_another_content_of_the_same_size_is_sent(shards: Path) -> None:
    store = memory_store()
    upload_new(shards, store)
    (shards / "java" / "1.jsonl").write_text("CCC\n")
    os.utime(shards / "java" / "1.jsonl", ns=(1, 1))
    assert upload_new(shards, store) == UploadSummary(sent=1, sent_bytes=4, kept=2)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        upload_new(tmp_path / "nothing", memory_store())
    assert str(error.value) == f"{tmp_path}/nothing: no such folder; name the one that holds the shards"


def test_an_upload_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    shards, there = tmp_path / "shards", tmp_path / "store"
    shards.mkdir()
    for number in range(80):
        (shards / f"{number:03}.jsonl").write_text(f"{number}\n" * 20_000)
    command = [sys.executable, "-c", UPLOADER, str(tmp_path)]
    for size in (10, 40):
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            while len(list(there.glob("*.sha256"))) < size:
                assert process.poll() is None, process.communicate()[1].decode()
                time.sleep(0.002)
        finally:
            process.kill()
            process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in there.glob("[0-9]*")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    sent = {path.stem.partition(".")[0] for path in there.glob("[0-9]*.sha256")}
    assert len(sent) == 80
    # each of two threads may have been between its object and the checksum of it
    rewritten = [name for name, mtime_ns in before.items() if (there / name).stat().st_mtime_ns != mtime_ns]
    assert len(rewritten) <= 4
    done = subprocess.run(["sha256sum", "--check", "--quiet", *there.glob("[0-9]*.sha256")], cwd=there, check=False)
    assert done.returncode == 0


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def test_shards_reach_a_bucket_once(s3: S3Server, shards: Path, tmp_path: Path) -> None:
    store = open_blob_store(s3.config("runs"), tmp_path, s3.secrets)
    assert upload_new(shards, store, "raw") == UploadSummary(sent=3, sent_bytes=9, kept=0)
    (shards / UPLOADS_NAME).unlink()
    assert upload_new(shards, store, "raw") == UploadSummary(sent=0, sent_bytes=0, kept=3)
    assert store.sizes("raw/") == {f"raw/{name}": size for name, size in sizes_of(shards).items()}


def test_what_was_sent_before_the_store_failed_is_kept(s3: S3Server, shards: Path, tmp_path: Path) -> None:
    (shards / "python" / "3\\4.jsonl").write_text("no name for an object\n")
    store = open_blob_store(s3.config("failing"), tmp_path, s3.secrets)
    with pytest.raises(DataError, match="must be relative and use forward slashes"):
        upload_new(shards, store)
    (shards / "python" / "3\\4.jsonl").unlink()
    uploaded = upload_new(shards, store)
    assert (uploaded.sent + uploaded.kept, uploaded.kept) == (3, 3)
