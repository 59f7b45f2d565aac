"""Datasets on the Hugging Face hub: commits, listings, checksums, terms and tokens."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, DownloadError
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation
from graftline.datasets.sources.huggingface import HuggingFaceHub
from tests.hub_server import Fault, HubServer

SMALL, LARGE = b"small", b"large enough for the CDN"
QUICK = RetryPolicy(connect_s=20.0, read_s=1.0, deadline_s=20.0, longest_pause_s=0.01)
TOKEN = "hf_abcdefgh"


@pytest.fixture
def server() -> Iterator[HubServer]:
    """A hub with one repository."""
    with HubServer() as server:
        server.put("owner/name", {"data/a/rows.jsonl": LARGE, "data/b/rows.jsonl": SMALL, "loader.py": b"raise"})
        yield server


def hub(server: HubServer, **environment: str) -> HuggingFaceHub:
    return HuggingFaceHub(QUICK, Secrets([EnvironmentSecrets(environment)]), server.url)


def dataset(server: HubServer, *files: DatasetFile, **changes: Any) -> Dataset:
    held = server.repositories["owner/name"]
    entry = {"url": "hf://datasets/owner/name", "version": held.newest, **changes}
    return Dataset(
        reader="commitpackft", license="MIT", files=files or (DatasetFile(path="data/*/rows.jsonl"),), **entry
    )


def fetch(of: HuggingFaceHub, entry: Dataset, folder: Path) -> dict[str, bytes]:
    for file in of.files("demo", entry):
        of.fetch("demo", entry, file, folder / file.path, lambda done, total: None)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", ["main", "v1.0", "fc56fe3", "F" * 40])
def test_what_could_change_under_us_is_refused_as_a_version(server: HubServer, version: str) -> None:
    for reads in (hub(server).revision, hub(server).files):
        with pytest.raises(ConfigError) as error:
            reads("demo", dataset(server, version=version))
        assert str(error.value) == (
            f"dataset 'demo': version {version!r} is not a commit, and what it names could change under us;"
            " state the 40 digits of a commit, the sha256 of every file, or `follow: true` for whatever is newest"
        )


@pytest.mark.parametrize("url", ["hf://datasets/name", "hf://models/a/b", "hf://datasets/a/b/c", "hf://datasets/a/b@1"])
def test_a_source_that_is_no_repository_of_datasets_is_refused(server: HubServer, url: str) -> None:
    with pytest.raises(ConfigError, match="names no repository; expected hf://datasets/<owner>/<name>"):
        hub(server).files("demo", dataset(server, url=url))


def test_the_listing_fills_in_size_and_checksum(server: HubServer) -> None:
    server.page_size = 1
    assert hub(server).files("demo", dataset(server)) == [
        DatasetFile(path="data/a/rows.jsonl", size_bytes=len(LARGE), sha256=hashlib.sha256(LARGE).hexdigest()),
        DatasetFile(path="data/b/rows.jsonl", size_bytes=len(SMALL)),
    ]


def test_a_pin_that_the_listing_contradicts_is_said_before_anything_is_fetched(server: HubServer) -> None:
    entry = dataset(server, DatasetFile(path="data/a/rows.jsonl", sha256="0" * 64))
    with pytest.raises(DownloadError) as error:
        hub(server).files("demo", entry)
    assert str(error.value) == (
        f"hf://datasets/owner/name/data/a/rows.jsonl: sha256 is {hashlib.sha256(LARGE).hexdigest()}, but {'0' * 64} is"
        " expected; restore the file at its source, or pin the new version below configs/ if you mean to change it"
    )


def test_files_come_from_the_pinned_commit_and_no_code_is_run(server: HubServer, tmp_path: Path) -> None:
    entry = dataset(server)
    server.put("owner/name", {"data/a/rows.jsonl": b"newer and large enough"})
    assert fetch(hub(server), entry, tmp_path) == {"data/a/rows.jsonl": LARGE, "data/b/rows.jsonl": SMALL}


def test_one_commit_is_followed_until_the_revision_is_asked_for_again(server: HubServer, tmp_path: Path) -> None:
    followed, entry = hub(server), dataset(server, follow=True, version="main")
    first = followed.revision("demo", entry)
    server.put("owner/name", {"data/a/rows.jsonl": b"newer and large enough"})
    assert fetch(followed, entry, tmp_path) == {"data/a/rows.jsonl": LARGE, "data/b/rows.jsonl": SMALL}
    assert followed.revision("demo", entry) == server.repositories["owner/name"].newest != first
    assert [file.path for file in followed.files("demo", entry)] == ["data/a/rows.jsonl"]


def test_the_token_is_for_the_hub_and_not_for_those_it_refers_to(server: HubServer, tmp_path: Path) -> None:
    server.repositories["owner/name"].token = TOKEN
    fetch(hub(server, HF_TOKEN=TOKEN), dataset(server, terms="https://hub.example.com/terms"), tmp_path)
    sent = {(seen.path.startswith("/cdn/"), seen.headers.get("authorization")) for seen in server.seen}
    assert sent == {(False, f"Bearer {TOKEN}"), (True, None)}


HOW = "accept the terms at https://hub.example.com/terms, make a token that may read, and put it into .env or Vault as HF_TOKEN"


def test_without_a_token_nobody_is_asked_and_the_page_is_named(server: HubServer, tmp_path: Path) -> None:
    entry = dataset(server, terms="https://hub.example.com/terms")
    for reads in (
        lambda: hub(server).files("demo", entry),
        lambda: hub(server).fetch("demo", entry, DatasetFile(path="a"), tmp_path / "a", lambda done, total: None),
        lambda: hub(server).stream("demo", entry, DatasetFile(path="a")).__enter__(),
    ):
        with pytest.raises(ConfigError) as error:
            reads()
        assert (str(error.value), server.seen) == (f"dataset 'demo': HF_TOKEN is not set; {HOW}", [])


def test_a_refusal_says_what_to_do(server: HubServer, tmp_path: Path) -> None:
    entry = dataset(server, terms="https://hub.example.com/terms")
    held, page = server.repositories["owner/name"], f"dataset 'demo': {server.url}/datasets/owner/name: "
    held.token = TOKEN
    with pytest.raises(ConfigError) as error:
        fetch(hub(server, HF_TOKEN="hf_another_one"), entry, tmp_path)
    assert str(error.value) == f"{page}HF_TOKEN is refused; {HOW}"
    held.is_closed = True
    with pytest.raises(ConfigError) as error:
        fetch(hub(server, HF_TOKEN=TOKEN), entry, tmp_path)
    assert str(error.value) == (
        f"{page}the account of HF_TOKEN has not been let in; accept the terms at https://hub.example.com/terms with it"
    )
    with pytest.raises(ConfigError) as error:
        hub(server).files("demo", dataset(server, url="hf://datasets/owner/missing"))
    assert str(error.value) == (
        f"dataset 'demo': {server.url}/datasets/owner/missing: is not open to everybody, or does not exist; accept the"
        f" terms at {server.url}/datasets/owner/missing, make a token that may read, and put it into .env or Vault as"
        " HF_TOKEN"
    )


def test_a_look_asks_whether_there_is_a_new_commit(server: HubServer) -> None:
    entry, looking = dataset(server), hub(server)
    first = looking.observe("demo", entry, None)
    assert first == Observation(entry.version, f'W/"{entry.version}"')
    assert looking.observe("demo", entry, first) is first
    newest = server.put("owner/name", {})
    assert looking.observe("demo", entry, first).revision == newest
    assert server.asked("If-None-Match")[1:] == [("GET", "/api/datasets/owner/name/revision/main", first.etag)] * 2


@pytest.mark.parametrize(
    ("fault", "retry_after_s", "reason"),
    [
        (Fault(status=429, retry_after="7"), 7.0, "answers 429 Too Many Requests; try again later"),
        (Fault(status=500), 0.0, "answers 500 Internal Server Error; try again later"),
        (Fault(silent_s=5.0), 0.0, "silent for 1 s; check the network or its source"),
        (Fault(torn_at=5), 0.0, "the connection broke (RemoteProtocolError); check the network or its source"),
    ],
)
def test_a_look_is_one_look(server: HubServer, fault: Fault, retry_after_s: float, reason: str) -> None:
    server.faults["/api/datasets/owner/name/revision/main"] = [fault]
    with pytest.raises(SourceBusyError) as error:
        hub(server).observe("demo", dataset(server), None)
    assert str(error.value) == f"{server.url}/api/datasets/owner/name/revision/main: {reason}"
    assert (error.value.retry_after_s, len(server.seen)) == (retry_after_s, 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "answers with something else than JSON"),
        (b"[" * 100_000, "answers with something else than JSON"),
        (b"[]", "names no commit as its newest"),
        (b'{"sha": "main"}', "names no commit as its newest"),
        (b" " * (17 << 20), "answers with more than 16777216 bytes"),
    ],
    ids=["a page", "a bomb", "a list", "a branch", "too much"],
)
def test_an_answer_of_something_else_is_an_error(server: HubServer, body: bytes, reason: str) -> None:
    server.faults["/api/datasets/owner/name/revision/main"] = [Fault(body=body)]
    with pytest.raises(DownloadError, match=reason):
        hub(server).observe("demo", dataset(server), None)


@pytest.mark.parametrize("body", [b"{}", b'[{"type": "file"}]', b"[1]", b'[{"type": "file", "path": 1, "size": "x"}]'])
def test_a_listing_of_something_else_is_an_error(server: HubServer, body: bytes) -> None:
    entry = dataset(server)
    server.faults[f"/api/datasets/owner/name/tree/{entry.version}"] = [Fault(body=body)]
    with pytest.raises(DownloadError, match=r"does not list its files as expected|no such file"):
        hub(server).files("demo", entry)


def test_a_listing_that_goes_on_elsewhere_is_refused(server: HubServer) -> None:
    entry = dataset(server)
    link = {"Link": f'<{server.cdn}/api/datasets/owner/name/tree?page=2>; rel="next"'}
    server.faults[f"/api/datasets/owner/name/tree/{entry.version}"] = [Fault(headers=link)]
    with pytest.raises(DownloadError, match="another place"):
        hub(server, HF_TOKEN=TOKEN).files("demo", entry)


def test_a_branch_is_read_when_the_sum_of_every_file_is_pinned_and_other_bytes_are_refused(
    server: HubServer, tmp_path: Path
) -> None:
    path = next(iter(server.repositories["owner/name"].commits[server.repositories["owner/name"].newest]))
    content = server.repositories["owner/name"].commits[server.repositories["owner/name"].newest][path]
    pinned = dataset(server, DatasetFile(path=path, sha256=hashlib.sha256(content).hexdigest()), version="main")
    assert hub(server).revision("demo", pinned) == hub(server).revision("demo", pinned) != "main"
    assert server.seen == []
    assert fetch(hub(server), pinned, tmp_path) == {path: content}
    other = dataset(server, DatasetFile(path=path, sha256="0" * 64), version="main")
    with pytest.raises(DownloadError, match="sha256"):
        fetch(hub(server), other, tmp_path / "other")
