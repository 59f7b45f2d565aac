"""A download that another source goes on with, and one that must not be too long."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.download import LocalFile, Pins, download, partial_bytes
from graftline.core.errors import DownloadError
from graftline.core.retry import RetryPolicy, UnreachableError, with_retries
from graftline.core.web import Web, WebFile
from tests.hub_server import Fault, HubServer

CONTENT = bytes(range(256)) * 1000
HALF = len(CONTENT) // 2
PINS = Pins(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
IMPATIENT = RetryPolicy(connect_s=20.0, read_s=20.0, deadline_s=0.0)


@pytest.fixture
def server() -> Iterator[HubServer]:
    """A host with one file, of which it gives half and then breaks off."""
    with HubServer() as server:
        server.files["/a"] = server.files["/b"] = CONTENT
        server.faults["/a"] = [Fault(torn_at=HALF)]
        yield server


def fetch(server: HubServer, path: str, target: Path, pins: Pins, max_bytes: int | None = None) -> None:
    source = WebFile(Web(IMPATIENT), server.url + path)
    download(source, pins, target, lambda done, total: None, IMPATIENT, max_bytes)


def half_of(server: HubServer, target: Path, pins: Pins) -> None:
    with pytest.raises(DownloadError):
        fetch(server, "/a", target, pins)
    assert partial_bytes(target) == HALF


def test_another_source_goes_on_where_the_checksum_is_pinned(server: HubServer, tmp_path: Path) -> None:
    target = tmp_path / "file"
    half_of(server, target, PINS)
    fetch(server, "/b", target, PINS)
    assert (target.read_bytes(), partial_bytes(target)) == (CONTENT, 0)
    # without the tag of the first source, which means nothing to the second
    assert server.asked("Range", "If-Range")[1:] == [("GET", "/b", f"bytes={HALF}-", "")]


def test_a_file_of_this_machine_goes_on_too(server: HubServer, tmp_path: Path) -> None:
    target, mirror = tmp_path / "file", tmp_path / "mirror"
    # whose beginning is not read
    mirror.write_bytes(bytes(HALF) + CONTENT[HALF:])
    half_of(server, target, PINS)
    download(LocalFile(mirror), PINS, target, lambda done, total: None, IMPATIENT)
    assert target.read_bytes() == CONTENT


def test_without_a_pinned_checksum_another_source_begins_anew(server: HubServer, tmp_path: Path) -> None:
    target = tmp_path / "file"
    half_of(server, target, Pins(size_bytes=len(CONTENT)))
    fetch(server, "/b", target, Pins(size_bytes=len(CONTENT)))
    assert (target.read_bytes(), server.asked("Range")[1:]) == (CONTENT, [("GET", "/b", "")])


@pytest.mark.parametrize("has_lengths", [True, False], ids=["by what is said", "by what comes"])
def test_a_file_that_is_longer_than_allowed_is_given_up(server: HubServer, tmp_path: Path, has_lengths: bool) -> None:
    server.has_lengths = has_lengths
    with pytest.raises(
        DownloadError, match=r"/b: has \d+ bytes or more, but at most 1000 are expected; mend its entry"
    ):
        fetch(server, "/b", tmp_path / "file", Pins(), max_bytes=1000)
    assert list(tmp_path.iterdir()) == []
    fetch(server, "/b", tmp_path / "file", Pins(), max_bytes=len(CONTENT))


def test_what_lay_there_before_is_no_sign_of_a_way_to_the_home() -> None:
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        raise UnreachableError("no way")

    patience = RetryPolicy(unreachable_s=0.0, deadline_s=600.0)
    with pytest.raises(DownloadError, match=r"no way \(given up after 1 attempt\)"):
        with_retries(patience, attempt, lambda: 1 << 20)
    assert attempts == [1]
