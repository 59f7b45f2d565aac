"""What every store of artifacts keeps to, whatever is behind it: two workers, each with the root it would have."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from graftline.core.artifacts import (
    ArtifactStore,
    BucketArtifactsConfig,
    FolderArtifactsConfig,
    MemoryArtifactsConfig,
    open_artifacts,
)
from graftline.core.build import Built, Contents, Request, build
from graftline.core.record import ArtifactRecord, load_verified
from graftline.core.secrets import Secrets
from tests.s3_server import S3Server

KINDS = ["folder", "memory", "folder of all", "s3"]
NAME = "data/processed/python/train"


@dataclass(frozen=True)
class Worker:
    """A process with its root, and the store as it has opened it."""

    root: Path
    store: ArtifactStore

    def make(self, text: str, name: str = NAME) -> Built:
        """Make an artifact whose files say `text`, and one that always says the same."""

        def contents(folder: Path) -> Contents:
            (folder / "parts").mkdir(exist_ok=True)
            (folder / "edits.jsonl").write_text(text, "utf-8")
            (folder / "parts" / "always").write_text("the same", "utf-8")
            return Contents({"rows": len(text)})

        request = Request("splits", name, "1", {}, {"text": text})
        return build(
            self.root / name,
            request,
            contents,
            before_publish=lambda partial, made: self.store.publish(name, partial, made),
        )

    def have(self, name: str = NAME) -> ArtifactRecord:
        """Fetch an artifact, and check every file of it."""
        record = self.store.record(name)
        assert record is not None
        self.store.fetch(name, record, self.root / name)
        return load_verified(self.root / name, "splits")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(params=KINDS)
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Worker, Worker]:
    """Two workers of an empty store of every kind."""
    kind, roots = request.param, [tmp_path / "one", tmp_path / "two"]
    if kind == "folder":
        opened = [open_artifacts(FolderArtifactsConfig(), tmp_path, Secrets([]))] * 2
        roots = [tmp_path, tmp_path]
    elif kind == "memory":
        opened = [open_artifacts(MemoryArtifactsConfig(), tmp_path, Secrets([]))] * 2
    elif kind == "folder of all":
        config = BucketArtifactsConfig(url=f"file://{tmp_path}/of-all")
        opened = [open_artifacts(config, root, Secrets([])) for root in roots]
    else:
        server: S3Server = request.getfixturevalue("s3")
        server.empty()
        config = BucketArtifactsConfig(**server.config("artifacts").model_dump(exclude={"kind"}))
        opened = [open_artifacts(config, tmp_path, server.secrets)] * 2
    one, two = (Worker(root, store) for root, store in zip(roots, opened, strict=True))
    return one, two


def test_what_one_worker_makes_another_one_has_whole(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    made = one.make("text")
    assert two.have() == made.record
    assert (two.root / NAME / "edits.jsonl").read_text("utf-8") == "text"
    assert (two.root / NAME / "parts" / "always").read_text("utf-8") == "the same"


def test_fetching_twice_is_fetching_once(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    one.make("text")
    assert two.have() == two.have()
    assert sorted(path.name for path in (two.root / NAME).parent.iterdir()) == ["train"]


def test_an_artifact_that_nobody_made_is_none(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    one.make("text")
    assert one.store.record("data/processed/python") is None
    assert one.store.record("data/processed/python/dev") is None


def test_artifacts_are_listed_by_the_folder_they_are_in(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    assert two.store.names("data") == []
    for name in ("data/raw/b/source", "data/raw/a/source", "data/rawer"):
        one.make("text", name)
    assert two.store.names("data/raw") == ["data/raw/a/source", "data/raw/b/source"]
    assert two.store.names("data") == ["data/raw/a/source", "data/raw/b/source", "data/rawer"]


def test_what_is_made_anew_takes_the_place_of_what_was_there(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    one.make("text")
    two.have()
    made = one.make("another text")
    assert two.have() == made.record
    assert (two.root / NAME / "edits.jsonl").read_text("utf-8") == "another text"


def test_of_workers_that_make_one_artifact_at_once_one_is_there_whole(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    with ThreadPoolExecutor(2) as threads:
        identities = {
            built.record.identity for built in threads.map(lambda each: each[0].make(each[1]), [(one, "a"), (two, "b")])
        }
    assert two.have().identity in identities
    assert one.have() == two.have()
