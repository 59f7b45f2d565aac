"""Artifacts in a bucket, seen from behind: what lies there, and what happens when something of it is lost or altered."""

import hashlib
import shutil
from pathlib import Path

import pytest

from graftline.core.artifacts import BucketArtifacts, BucketArtifactsConfig, open_artifacts
from graftline.core.build import Built, Contents, Publish, Request, build
from graftline.core.errors import ConfigError, DataError, RecordError
from graftline.core.record import load_verified
from graftline.core.secrets import EnvironmentSecrets, Secrets

NAME = "data/division"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def store(bucket: Path, tmp_path: Path) -> BucketArtifacts:
    opened = open_artifacts(BucketArtifactsConfig(url=f"file://{bucket}"), tmp_path, Secrets([]))
    assert isinstance(opened, BucketArtifacts)
    return opened


def made(root: Path, before_publish: Publish, **files: str) -> Built:
    def contents(folder: Path) -> Contents:
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
        return Contents({"rows": len(files)})

    return build(root / NAME, Request("division", "all", "1", {}, dict(files)), contents, before_publish=before_publish)


def published(store: BucketArtifacts, root: Path, **files: str) -> Built:
    return made(root, lambda partial, record: store.publish(NAME, partial, record), **files)


def object_of(text: str) -> str:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return f"files/{sha256[:2]}/{sha256}"


def test_equal_files_are_one_object_and_a_record_is_beside_them(
    store: BucketArtifacts, bucket: Path, tmp_path: Path
) -> None:
    built = published(store, tmp_path / "one", java="text", python="text")
    there = sorted(path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
    assert there == [object_of("text"), f"records/{NAME}.json"]
    assert (bucket / f"records/{NAME}.json").read_bytes() == (built.folder / "_meta.json").read_bytes()


def test_without_its_record_what_was_sent_is_not_there(store: BucketArtifacts, bucket: Path, tmp_path: Path) -> None:
    published(store, tmp_path / "one", java="text")
    (bucket / f"records/{NAME}.json").unlink()
    assert (store.record(NAME), store.names("data")) == (None, [])
    assert [*store.find_unused()] == [object_of("text")]


def test_what_a_writer_killed_while_sending_had_made_is_not_made_again(store: BucketArtifacts, tmp_path: Path) -> None:
    def killed(partial: Path, record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "one", killed, java="text")
    built = published(store, tmp_path / "one", java="text")
    assert (built.is_fresh, store.record(NAME)) == (False, None)  # who builds sends it: `Stages.build`


def test_files_that_are_here_already_are_not_fetched(store: BucketArtifacts, bucket: Path, tmp_path: Path) -> None:
    local, there = tmp_path / "local", tmp_path / "there"
    published(store, there, java="text", python="old")
    record = store.record(NAME)
    assert record is not None
    store.fetch(NAME, record, local / NAME)
    built = published(store, there, java="text", python="new")
    (bucket / object_of("text")).unlink()
    store.fetch(NAME, built.record, local / NAME)
    assert load_verified(local / NAME, "division") == built.record


def test_a_file_that_was_altered_in_the_bucket_is_refused_and_what_was_here_stays(
    store: BucketArtifacts, bucket: Path, tmp_path: Path
) -> None:
    local, there = tmp_path / "local", tmp_path / "there"
    first = published(store, there, java="text").record
    store.fetch(NAME, first, local / NAME)
    second = published(store, there, java="other").record
    (bucket / object_of("other")).write_text("wrong", "utf-8")
    with pytest.raises(RecordError) as error:
        store.fetch(NAME, second, local / NAME)
    assert str(error.value) == (
        f"file://{bucket}/{object_of('other')}: was not what its name says; materialize the asset again"
    )
    assert load_verified(local / NAME, "division") == first
    # made anew, it is sent anew
    shutil.rmtree(there)
    published(store, there, java="other")
    store.fetch(NAME, second, local / NAME)
    assert load_verified(local / NAME, "division") == second


def test_a_file_that_the_bucket_lost_is_named(store: BucketArtifacts, bucket: Path, tmp_path: Path) -> None:
    record = published(store, tmp_path / "there", java="text").record
    (bucket / object_of("text")).unlink()
    with pytest.raises(RecordError) as error:
        store.fetch(NAME, record, tmp_path / "local" / NAME)
    assert str(error.value) == f"file://{bucket}: has no {object_of('text')}; materialize the asset again"


def test_a_file_that_a_killed_fetch_left_half_is_fetched_again(store: BucketArtifacts, tmp_path: Path) -> None:
    record = published(store, tmp_path / "there", java="text").record
    partial = tmp_path / "local" / "data" / f".division.partial-{record.identity[:12]}-fetched"
    partial.mkdir(parents=True)
    (partial / "java").write_text("te", "utf-8")
    (partial / "of-another").write_text("x", "utf-8")
    store.fetch(NAME, record, tmp_path / "local" / NAME)
    assert load_verified(tmp_path / "local" / NAME, "division") == record


def test_a_folder_without_the_files_of_its_record_is_not_published(store: BucketArtifacts, tmp_path: Path) -> None:
    built = made(tmp_path / "one", lambda partial, record: None, java="text")
    (built.folder / "java").unlink()
    with pytest.raises(DataError) as error:
        store.publish(NAME, built.folder, built.record)
    assert str(error.value) == f"{built.folder}/java: is not what its record says; materialize its asset again"
    assert store.record(NAME) is None


def test_a_record_that_was_altered_is_refused(store: BucketArtifacts, bucket: Path, tmp_path: Path) -> None:
    published(store, tmp_path / "one", java="text")
    path = bucket / f"records/{NAME}.json"
    path.write_text(path.read_text("utf-8").replace('"rows": 1', '"rows": 2'), "utf-8")
    with pytest.raises(RecordError) as error:
        store.record(NAME)
    assert str(error.value) == (
        f"file://{bucket}/records/{NAME}.json: identity is not that of its content; materialize its asset again"
    )


def test_the_address_may_be_in_a_variable(bucket: Path, tmp_path: Path) -> None:
    config = BucketArtifactsConfig(url="GRAFTLINE_ARTIFACTS_URL")
    secrets = Secrets([EnvironmentSecrets({"GRAFTLINE_ARTIFACTS_URL": f"file://{bucket}"})])
    assert open_artifacts(config, tmp_path, secrets).label == f"file://{bucket}"
    with pytest.raises(ConfigError) as error:
        open_artifacts(config, tmp_path, Secrets([]))
    assert str(error.value) == (
        "GRAFTLINE_ARTIFACTS_URL: is not set, but artifacts.url needs it; put it into .env or Vault"
    )
