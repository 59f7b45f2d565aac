"""Reading once across torn connections."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from graftline.core.errors import DownloadError
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.http import HttpHub
from tests.hub_server import Fault, HubServer

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
QUICK = RetryPolicy(connect_s=20.0, read_s=20.0, deadline_s=20.0, longest_pause_s=0.01)


@pytest.fixture
def server() -> Iterator[HubServer]:
    """A file host with one shard."""
    with HubServer() as server:
        server.files["/train/part.jsonl.gz"] = CONTENT
        yield server


def read(server: HubServer, patience: RetryPolicy = QUICK, **pins: Any) -> bytes:
    file = DatasetFile(path="part.jsonl.gz", **pins)
    entry = Dataset(reader="agentpack", url=f"{server.url}/train", version="1", license="MIT", files=(file,))
    content = bytearray()
    with HttpHub(patience).stream("agentpack", entry, file) as stream:
        while piece := stream.read(1000):
            content += piece
    return bytes(content)


TORN = [Fault(torn_at=100_000), Fault(torn_at=70_000), Fault(status=503), Fault(pause_at=1000), Fault(silent_s=5.0)]


@pytest.mark.parametrize("pins", [{}, {"sha256": SHA256, "size_bytes": len(CONTENT)}])
def test_a_torn_stream_goes_on_where_it_was_torn(server: HubServer, pins: dict[str, Any]) -> None:
    server.faults["/train/part.jsonl.gz"] = TORN
    assert read(server, QUICK.model_copy(update={"read_s": 1.0}), **pins) == CONTENT
    assert [asked[2] for asked in server.asked("Range")] == [
        "", "bytes=100000-", "bytes=170000-", "bytes=170000-", "bytes=171000-", "bytes=171000-",
    ]  # fmt: skip


def test_a_stream_without_ranges_is_read_again_up_to_where_it_was_torn(server: HubServer) -> None:
    server.has_ranges = False
    server.faults["/train/part.jsonl.gz"] = [Fault(torn_at=100_000)]
    assert read(server) == CONTENT


def test_a_stream_that_changes_in_the_middle_is_an_error(server: HubServer) -> None:
    server.faults["/train/part.jsonl.gz"] = [Fault(torn_at=100_000), Fault(body=CONTENT[::-1])]
    with pytest.raises(DownloadError, match=r"part\.jsonl\.gz: changed while it was read; run again"):
        read(server)


def test_a_stream_that_never_comes_is_given_up_before_anything_is_read(server: HubServer) -> None:
    server.faults["/train/part.jsonl.gz"] = [Fault(status=503)] * 9
    with pytest.raises(SourceBusyError, match="given up after"):
        read(server, QUICK.model_copy(update={"deadline_s": 0.0}))
