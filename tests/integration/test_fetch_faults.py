"""Fetching through faults of the network, of servers, of disks, and through the death of the process."""

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DownloadError
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.http import HttpHub
from tests.hub_server import Fault, HubServer

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
QUICK = RetryPolicy(connect_s=20.0, read_s=3.0, deadline_s=20.0, longest_pause_s=0.01)
IMPATIENT = QUICK.model_copy(update={"deadline_s": 0.0})


@pytest.fixture
def server() -> Iterator[HubServer]:
    """A file host with one file."""
    with HubServer() as server:
        server.files["/plain/rows.jsonl"] = CONTENT
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where to fetch to."""
    return tmp_path / "target" / "rows.jsonl"


def dataset(server: HubServer, **pins: Any) -> Dataset:
    files = (DatasetFile(path="rows.jsonl", **pins),)
    return Dataset(
        reader="release_pairs", url=f"{server.url}/plain?key=secret", version="1", license="MIT", files=files
    )


def fetch(server: HubServer, target: Path, patience: RetryPolicy = QUICK, **pins: Any) -> None:
    wanted = dataset(server, **pins)
    HttpHub(patience).fetch("demo", wanted, wanted.files[0], target, lambda done, total: None)


def left(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


RECOVERED = [
    ("too many requests", Fault(status=429, retry_after="0")),
    ("out of service", Fault(status=503)),
    ("a fault of the server", Fault(status=500)),
    ("a proxy without its server", Fault(status=502)),
    ("silence before the answer", Fault(silent_s=5.0)),
    ("silence in the middle of it", Fault(pause_at=1000)),
    ("a body that ends too early", Fault(torn_at=1000)),
    ("a body without a beginning", Fault(torn_at=0)),
]


@pytest.mark.parametrize("fault", [fault for _, fault in RECOVERED], ids=[name for name, _ in RECOVERED])
def test_a_fault_that_passes_is_waited_for(server: HubServer, target: Path, fault: Fault) -> None:
    server.faults["/plain/rows.jsonl"] = [fault, fault]
    fetch(server, target)
    assert (left(target), target.read_bytes(), len(server.seen)) == (["rows.jsonl"], CONTENT, 3)


REFUSED = [
    (Fault(status=404), "no such file"),
    (Fault(status=410), "no such file"),
    (Fault(status=401), "answers 401 Unauthorized"),
    (Fault(status=403), "answers 403 Forbidden"),
    (Fault(headers={"Content-Encoding": "br"}), "comes with Content-Encoding 'br'"),
]


@pytest.mark.parametrize(("fault", "reason"), REFUSED)
def test_a_refusal_is_no_reason_to_ask_again(server: HubServer, target: Path, fault: Fault, reason: str) -> None:
    server.faults["/plain/rows.jsonl"] = [fault]
    with pytest.raises(DownloadError) as error:
        fetch(server, target)
    # the key in the query of the source is not said
    assert str(error.value).startswith(f"{server.url}/plain/rows.jsonl: {reason}")
    assert len(server.seen) == 1


def test_a_source_says_how_long_it_wants_to_be_left_alone(server: HubServer, target: Path) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(status=429, retry_after="1")]
    began = time.monotonic()
    fetch(server, target)
    assert time.monotonic() - began >= 1.0


def test_a_source_that_wants_to_be_left_alone_beyond_the_deadline_is_not_waited_for(
    server: HubServer, target: Path
) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(status=503, retry_after="3600")]
    with pytest.raises(SourceBusyError) as error:
        fetch(server, target)
    assert (error.value.retry_after_s, len(server.seen)) == (3600.0, 1)
    assert str(error.value) == (
        f"{server.url}/plain/rows.jsonl: answers 503 Service Unavailable; try again later"
        " (given up after 1 attempt); run again later, what was fetched is kept"
    )


def test_a_source_that_gives_next_to_nothing_is_given_up(server: HubServer, target: Path) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(drip_s=0.02)]
    slow = IMPATIENT.model_copy(update={"slow_s": 0.2})
    with pytest.raises(SourceBusyError, match=r"gave \d+ bytes in \d+ s; check the network"):
        fetch(server, target, slow)


def test_only_what_is_missing_is_asked_for_again(server: HubServer, target: Path) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(torn_at=HALF), Fault(torn_at=1000)]
    fetch(server, target)
    etag = f'"{hashlib.md5(CONTENT).hexdigest()}"'
    path = "/plain/rows.jsonl?key=secret"
    assert server.asked("Range", "If-Range") == [
        ("GET", path, "", ""),
        ("GET", path, f"bytes={HALF}-", etag),
        ("GET", path, f"bytes={HALF + 1000}-", etag),
    ]
    assert target.read_bytes() == CONTENT


def test_a_download_goes_on_where_another_one_gave_up(server: HubServer, target: Path) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(torn_at=HALF)]
    with pytest.raises(SourceBusyError):
        fetch(server, target, IMPATIENT)
    assert left(target) == [".rows.jsonl.partial", ".rows.jsonl.partial-state"]
    fetch(server, target, IMPATIENT)
    assert [asked[2] for asked in server.asked("Range")] == ["", f"bytes={HALF}-"]
    assert (left(target), target.read_bytes()) == (["rows.jsonl"], CONTENT)


BROKEN_OFF: list[tuple[str, Callable[[HubServer, Path], object]]] = [
    ("the file has changed", lambda server, _: server.files.update({"/plain/rows.jsonl": b"new" * 100_000})),
    ("it has become shorter", lambda server, _: server.files.update({"/plain/rows.jsonl": b"new"})),
    ("ranges are ignored now", lambda server, _: setattr(server, "has_ranges", False)),
    ("versions are not told now", lambda server, _: setattr(server, "has_etags", False)),
    ("the state is not JSON", lambda _, target: target.with_name(".rows.jsonl.partial-state").write_bytes(b"{")),
    (
        "the state is of something else",
        lambda _, target: target.with_name(".rows.jsonl.partial-state").write_text("[]"),
    ),
    ("the state is gone", lambda _, target: target.with_name(".rows.jsonl.partial-state").unlink()),
    ("the part is gone", lambda _, target: target.with_name(".rows.jsonl.partial").unlink()),
    ("the range does not exist", lambda server, _: server.faults.update({"/plain/rows.jsonl": [Fault(status=416)]})),
]


@pytest.mark.parametrize("change", [change for _, change in BROKEN_OFF], ids=[name for name, _ in BROKEN_OFF])
def test_what_cannot_go_on_starts_over(
    server: HubServer, target: Path, change: Callable[[HubServer, Path], object]
) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(torn_at=HALF)]
    with pytest.raises(SourceBusyError):
        fetch(server, target, IMPATIENT)
    change(server, target)
    fetch(server, target, IMPATIENT)
    assert (left(target), target.read_bytes()) == (["rows.jsonl"], server.files["/plain/rows.jsonl"])


def test_an_altered_part_is_noticed_by_the_pin_and_fetched_anew(server: HubServer, target: Path) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(torn_at=HALF)]
    with pytest.raises(SourceBusyError):
        fetch(server, target, IMPATIENT, sha256=SHA256)
    target.with_name(".rows.jsonl.partial").write_bytes(b"x" * HALF)
    fetch(server, target, IMPATIENT, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_a_source_that_sends_more_than_is_pinned_is_stopped(server: HubServer, target: Path) -> None:
    server.has_lengths = False
    with pytest.raises(DownloadError, match=r"is longer than the 1000 bytes"):
        fetch(server, target, size_bytes=1000)
    assert left(target) == []


def test_a_compressed_file_that_its_server_calls_a_coding_comes_as_it_is(server: HubServer, tmp_path: Path) -> None:
    server.files["/plain/rows.jsonl.gz"] = b"\x1f\x8b rest"
    server.faults["/plain/rows.jsonl.gz"] = [Fault(headers={"Content-Encoding": "gzip"})]
    wanted = dataset(server).model_copy(update={"files": (DatasetFile(path="rows.jsonl.gz"),)})
    target = tmp_path / "rows.jsonl.gz"
    HttpHub(QUICK).fetch("demo", wanted, wanted.files[0], target, lambda done, total: None)
    assert target.read_bytes() == b"\x1f\x8b rest"
    assert server.seen[0].headers["accept-encoding"] == "identity"


def test_a_server_that_leads_in_circles_is_left(server: HubServer, target: Path) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(redirect="/plain/rows.jsonl")] * 20
    with pytest.raises(DownloadError, match="leads on more than 10 times"):
        fetch(server, target)


_CHILD = """
import sys
from pathlib import Path
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.http import HttpHub
from graftline.core.retry import RetryPolicy
wanted = Dataset.model_validate_json(sys.argv[1])
HttpHub(RetryPolicy(read_s=60.0)).fetch("demo", wanted, wanted.files[0], Path(sys.argv[2]), lambda done, total: None)
"""


@pytest.mark.parametrize("pins", [{}, {"sha256": SHA256}], ids=["by its version", "by its checksum"])
def test_a_killed_fetch_goes_on_where_it_was_killed(server: HubServer, target: Path, pins: dict[str, str]) -> None:
    server.faults["/plain/rows.jsonl"] = [Fault(pause_at=HALF)]
    wanted = dataset(server, **pins)
    child = subprocess.Popen([sys.executable, "-c", _CHILD, wanted.model_dump_json(), str(target)])
    partial = target.with_name(".rows.jsonl.partial")
    deadline = time.monotonic() + 240
    while not (partial.exists() and partial.stat().st_size == HALF):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not target.exists()
    fetch(server, target, **pins)
    assert [asked[2] for asked in server.asked("Range")] == ["", f"bytes={HALF}-"]
    assert (left(target), target.read_bytes()) == (["rows.jsonl"], CONTENT)


def test_a_fetch_killed_before_the_last_renaming_asks_nobody(server: HubServer, target: Path) -> None:
    target.parent.mkdir()
    target.with_name(".rows.jsonl.partial").write_bytes(CONTENT)
    state = {"source": f"{server.url}/plain/rows.jsonl", "etag": '"1"', "size_bytes": len(CONTENT), "sha256": None}
    target.with_name(".rows.jsonl.partial-state").write_text(json.dumps(state))
    fetch(server, target)
    assert (left(target), target.read_bytes(), server.seen) == (["rows.jsonl"], CONTENT, [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"size=256k"):
        pytest.skip(
            f"no tmpfs can be mounted here ({os.strerror(ctypes.get_errno())}); run as root to test a full disk"
        )
    yield folder
    libc.umount(os.fsencode(folder))


@pytest.mark.parametrize("has_lengths", [True, False], ids=["noticed before", "noticed in the middle"])
def test_a_full_disk_is_said_and_what_was_fetched_is_kept(
    server: HubServer, small_disk: Path, tmp_path: Path, has_lengths: bool
) -> None:
    server.has_lengths = has_lengths
    target = small_disk / "rows.jsonl"
    with pytest.raises(DownloadError, match=r"the disk of .*rows.jsonl is full, \d+ bytes are free .* make room"):
        fetch(server, target)
    kept = (small_disk / ".rows.jsonl.partial").stat().st_size
    assert (kept > 0) == (not has_lengths)
    assert not target.exists()
    # with room made, by moving to a larger disk, it goes on
    for path in small_disk.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    fetch(server, tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").read_bytes() == CONTENT
    assert server.asked("Range")[-1][2] == (f"bytes={kept}-" if kept else "")
