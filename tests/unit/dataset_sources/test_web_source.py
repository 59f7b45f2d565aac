"""Datasets on plain web servers: versions without commits, addresses, and what is said of them."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from graftline.core.errors import ConfigError
from graftline.core.retry import RetryPolicy, SourceBusyError, with_retries
from graftline.core.web import public_url, retry_after_s
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.http import HttpHub, file_url
from tests.hub_server import Fault, HubServer

HUB = HttpHub(RetryPolicy(connect_s=20.0, read_s=20.0, deadline_s=20.0, longest_pause_s=0.01))


@pytest.fixture
def server() -> Iterator[HubServer]:
    """A file host with two files."""
    with HubServer() as server:
        server.files = {"/plain/a.csv": b"1", "/plain/b.csv": b"22"}
        yield server


def dataset(url: str, *files: DatasetFile) -> Dataset:
    files = files or (DatasetFile(path="b.csv"), DatasetFile(path="a.csv"))
    return Dataset(reader="smellycode", url=url, version="1", license="MIT", files=files)


def test_a_look_asks_for_no_content(server: HubServer) -> None:
    first = HUB.observe("demo", dataset(f"{server.url}/plain"), None)
    assert HUB.observe("demo", dataset(f"{server.url}/plain"), first) is first
    tags = [f'"{hashlib.md5(content).hexdigest()}"' for content in (b"1", b"22")]
    assert server.asked("If-None-Match") == [
        ("HEAD", "/plain/a.csv", ""),
        ("HEAD", "/plain/b.csv", ""),
        ("HEAD", "/plain/a.csv", tags[0]),
        ("HEAD", "/plain/b.csv", tags[1]),
    ]


def test_a_server_without_head_is_asked_for_the_beginning(server: HubServer) -> None:
    entry = dataset(f"{server.url}/plain")
    first = HUB.observe("demo", entry, None)
    server.answers_head = False
    assert HUB.observe("demo", entry, None) == first
    assert [asked[0] for asked in server.asked()][2:] == ["HEAD", "GET"] * 2


def test_a_server_without_etags_is_known_by_sizes(server: HubServer) -> None:
    server.has_etags = False
    entry = dataset(f"{server.url}/plain")
    first = HUB.observe("demo", entry, None)
    assert HUB.observe("demo", entry, first) is first
    server.files["/plain/b.csv"] = b"333"
    assert HUB.observe("demo", entry, first) != first


def test_a_server_by_which_no_change_would_show_is_refused(server: HubServer) -> None:
    server.has_etags = server.has_lengths = False
    with pytest.raises(
        ConfigError, match=r"/plain/a\.csv: its server says neither ETag nor .*; pin the file by sha256"
    ):
        HUB.revision("demo", dataset(f"{server.url}/plain"))


def test_the_revision_of_pinned_files_asks_nobody(server: HubServer) -> None:
    pinned = [DatasetFile(path=name, sha256=digit * 64) for name, digit in (("a.csv", "1"), ("b.csv", "2"))]
    first = HUB.revision("demo", dataset(f"{server.url}/plain", *pinned))
    assert HUB.revision("demo", dataset(f"{server.url}/plain", *reversed(pinned))) == first
    assert HUB.revision("demo", dataset(f"{server.url}/plain", pinned[0])) != first
    assert server.seen == []


def test_the_revision_is_waited_for_and_a_look_is_not(server: HubServer) -> None:
    entry = dataset(f"{server.url}/plain")
    first = HUB.revision("demo", entry)
    server.faults["/plain/a.csv"] = [Fault(status=503), Fault(status=429, retry_after="0")]
    assert HUB.revision("demo", entry) == first
    server.faults["/plain/a.csv"] = [Fault(status=429, retry_after="5")]
    with pytest.raises(SourceBusyError) as error:
        HUB.observe("demo", entry, None)
    assert error.value.retry_after_s == 5.0


def test_a_pattern_is_refused_where_nothing_can_be_listed() -> None:
    with pytest.raises(ConfigError) as error:
        HUB.files("demo", dataset("https://files.example.com/x?key=secret", DatasetFile(path="*.csv")))
    assert str(error.value) == (
        "dataset 'demo': '*.csv' is a pattern, but https://files.example.com/x cannot be listed; name the files one by one"
    )


@pytest.mark.parametrize(
    ("url", "path", "address"),
    [
        ("https://example.com/a", "b/c d.csv", "https://example.com/a/b/c%20d.csv"),
        ("https://example.com/a/", "50%.csv", "https://example.com/a/50%25.csv"),
        ("https://example.com", "C++/#1.csv", "https://example.com/C%2B%2B/%231.csv"),
        ("https://example.com/a?key=x", "b", "https://example.com/a/b?key=x"),
    ],
)
def test_the_address_of_a_file_lies_below_its_source(url: str, path: str, address: str) -> None:
    assert file_url(url, path) == address


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://user:password@example.com:8/a?token=x#y", "https://example.com:8/a"),
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("https://example.com/a", "https://example.com/a"),
        ("https://user:password@[broken/a?token=x", "[broken/a"),
        ("../shared/mirror", "../shared/mirror"),
    ],
)
def test_what_may_be_secret_in_an_address_is_not_said(url: str, said: str) -> None:
    assert (public_url(url), public_url(public_url(url))) == (said, said)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("", 0.0), ("0", 0.0), ("120", 120.0), ("-1", 0.0), ("soon", 0.0), ("1e9", 0.0), ("9" * 400, 86400.0), ("٣", 3.0)],
)
def test_retry_after_in_seconds_is_understood_within_bounds(value: str, seconds: float) -> None:
    assert retry_after_s(value) == seconds


def test_retry_after_as_a_date_is_understood() -> None:
    now = datetime.now(UTC)
    assert 50 < retry_after_s(format_datetime(now + timedelta(seconds=60), usegmt=True)) <= 60
    assert retry_after_s(format_datetime(now - timedelta(seconds=60), usegmt=True)) == 0.0


def test_a_server_that_is_not_there_is_not_waited_for_as_long_as_a_busy_one(server: HubServer) -> None:
    url = server.url
    server.__exit__()
    impatient = RetryPolicy(deadline_s=300.0, unreachable_s=0.0)
    with pytest.raises(SourceBusyError, match=r"given up after 1 attempt\)"):
        with_retries(impatient, lambda: HUB.observe("demo", dataset(f"{url}/plain"), None))
