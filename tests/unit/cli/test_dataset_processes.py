"""`graftline data` as a process of its own: interrupted, and cut off by who reads it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import Fault, HubServer
from tests.unit.cli.shop import Shop, row

COMMAND = Path(sys.executable).with_name("graftline")
ROWS = b"".join(json.dumps(row(f"p{n}", f"old({n})\n", f"new({n})\n")).encode() + b"\n" for n in range(500))
HALF = len(ROWS) // 2


def started(shop: Shop, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [COMMAND, "--root", shop.root, "data", *arguments],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def wait_for_the_end_of_all(group: int) -> None:
    """Return when no process of a session is left; fail if one stays."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"a process of group {group} is left")


@pytest.fixture
def server() -> Iterator[HubServer]:
    """A file host with the rows of `far`."""
    with HubServer() as server:
        server.files["/far/rows.jsonl"] = ROWS
        yield server


def test_an_interrupted_fetch_is_one_line_and_goes_on_where_it_was(shop: Shop, server: HubServer) -> None:
    pin = {"path": "rows.jsonl", "size_bytes": len(ROWS), "sha256": hashlib.sha256(ROWS).hexdigest()}
    shop.configure(url=f"{server.url}/far", files=[pin])
    server.faults["/far/rows.jsonl"] = [Fault(pause_at=HALF)]
    process = started(shop, "fetch", "far")
    while not (parts := list(shop.raw.rglob(".rows.jsonl.partial"))) or parts[0].stat().st_size < HALF:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)

    message = "interrupted; what is finished stays, and the same command goes on from there\n"
    assert ended(process) == (130, "", message)
    code, out, err = ended(started(shop, "fetch", "far", "--json"))
    assert (code, err, json.loads(out)["faults"]) == (0, "raw far: made (not there yet)\n", [])
    assert [asked[2] for asked in server.asked("Range") if asked[0] == "GET"] == ["", f"bytes={HALF}-"]
    assert (shop.raw / "far" / "source" / "rows.jsonl").read_bytes() == ROWS


def test_an_interrupted_normalization_leaves_no_process_and_is_made_whole_by_the_next(
    shop: Shop,
) -> None:
    # more bytes than are worked on without workers; every row is too long, which is found out soon
    texts = [row(f"p{n}", f"old({n})\n" * 1200, f"new({n})\n" * 1200) for n in range(250)]
    shop.write("pairs", texts)
    assert shop.run("fetch", "pairs").exit_code == 0
    process = started(shop, "build", "pairs")
    while not list(shop.raw.glob("pairs/.normalized.partial-*/dropped.parquet")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)

    message = "interrupted; what is finished stays, and the same command goes on from there\n"
    code, out, err = ended(process)
    assert (code, out, err.splitlines(keepends=True)[-1]) == (130, "", message)
    wait_for_the_end_of_all(process.pid)
    assert not (shop.raw / "pairs" / "normalized").exists()
    artifact = shop.json("build", "pairs")["artifacts"][0]
    assert artifact["counts"] == {"labels": 0, "rows": 0, "rows_in": 250, "dropped.too_long": 250}
    assert [path.name for path in (shop.raw / "pairs").iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_who_stops_reading_gets_no_message(built_shop: Shop, form: list[str]) -> None:
    process = started(built_shop, "show", "-n", "5", *form)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    assert (process.wait(timeout=240), process.stderr.read()) == (1, "")
    process.stderr.close()
