"""The machine that hostile cases are tried on: what is seen of them from outside."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.security.hostile.facts import CANARY_VARIABLE, Host, watch_host


def test_nothing_is_found_where_nothing_was_done(host: Host) -> None:
    assert host.findings() == []


def test_listeners_tell_who_reached_them(host: Host) -> None:
    with socket.create_connection(("127.0.0.1", host.facts["tcp_port"])), socket.socket(socket.AF_UNIX) as link:
        link.connect("\0" + host.facts["abstract_name"])
        assert host.findings() == [
            "the TCP listener of the machine was reached",
            "the abstract unix listener of the machine was reached",
        ]
    assert host.findings() == []


def test_the_victim_tells_of_signals(host: Host) -> None:
    os.kill(host.facts["victim"], signal.SIGUSR2)
    assert await_findings(host) == [f"the victim got signal {int(signal.SIGUSR2)}"]


def test_a_victim_that_was_killed_is_replaced(host: Host) -> None:
    before = host.facts["victim"]
    os.kill(before, signal.SIGKILL)
    assert await_findings(host) == ["the victim was ended (-9)"]
    os.kill(host.facts["victim"], 0)
    assert host.facts["victim"] != before


def test_files_that_come_into_being_are_found_and_removed(host: Host) -> None:
    place = Path(host.facts["open_folder"], host.marker)
    place.touch()
    assert host.findings() == [f"{place} has come into being"]
    assert (place.exists(), host.findings()) == (False, [])


@pytest.mark.parametrize("harm", ["write", "touch", "mode", "link", "remove"])
def test_a_file_of_the_machine_that_was_altered_is_found_and_laid_anew(host: Host, harm: str) -> None:
    bait = Path(host.facts["bait"])
    match harm:
        case "write":
            bait.write_text("other", "utf-8")
        case "touch":
            os.utime(bait)
        case "mode":
            bait.chmod(0o600)
        case "link":
            os.link(bait, bait.with_name("other"))
        case "remove":
            bait.unlink()
    assert host.findings() == ["bait, a file of the machine, was altered"]
    assert host.findings() == []


def test_a_process_that_stays_is_found_and_ended(host: Host) -> None:
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(20)", host.marker]
    child = subprocess.Popen(command)
    assert host.findings() == ["1 of its processes still run"]
    assert child.wait() == -signal.SIGKILL


def test_nothing_is_left_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    # the path of a socket may not be long, as those of the tests' own folders are
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with watch_host() as watched:
            victim = watched.facts["victim"]
            assert os.environ[CANARY_VARIABLE] in watched.facts["canaries"]
        remaining = list(Path(folder).iterdir())
    assert (remaining, CANARY_VARIABLE in os.environ, Path(f"/proc/{victim}").exists()) == ([], False, False)


def await_findings(host: Host) -> list[str]:
    deadline = time.monotonic() + 240
    while not (findings := host.findings()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return findings
