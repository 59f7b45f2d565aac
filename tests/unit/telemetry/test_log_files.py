"""Logs as files of JSON lines: what a line says, and which file it is in."""

import json
import logging
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graftline.core.logs import JsonLogFiles
from graftline.core.secrets import Secrets

NOON = datetime(2026, 11, 22, 12, 0, 0, 250_000, tzinfo=UTC).timestamp()
DAY_S = 86_400

OPENED = """
import logging, os, sys
from pathlib import Path
from graftline.core.secrets import Secrets
from graftline.core.logs import JsonLogFiles
logger = logging.getLogger("graftline.writer")
logger.setLevel("INFO")
logger.addHandler(JsonLogFiles(Path(sys.argv[1]), "writer", 3, Secrets([]), print))
"""

FORKING = (
    OPENED
    + """
logger.info("parent")
child = os.fork()
if child == 0:
    logger.info("child")
    os._exit(0)
os.waitpid(child, 0)
logger.info("parent again")
"""
)

WRITER = (
    OPENED
    + """
number = 0
while True:
    logger.info("line %d", number, extra={"text": "x" * 500})
    number += 1
"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "actor"


@pytest.fixture
def files(folder: Path, secrets: Secrets, logger: logging.Logger, lost: list[int]) -> JsonLogFiles:
    handler = JsonLogFiles(folder, "actor-1", 3, secrets, lost.append)
    logger.addHandler(handler)
    return handler


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text("utf-8").splitlines()]


def at(time_s: float) -> logging.LogRecord:
    record = logging.LogRecord("graftline.test", logging.INFO, "x.py", 1, "at %s", (time_s,), None)
    record.created = time_s
    return record


def test_a_line_says_when_how_bad_who_and_what(files: JsonLogFiles, folder: Path) -> None:
    record = logging.LogRecord(
        "graftline.rollouts.queue", logging.WARNING, "x.py", 1, "job %r: %d tries", ("a", 3), None
    )
    record.created = NOON
    files.handle(record)
    assert (folder / f"2026-11-22.actor-1-{os.getpid()}.jsonl").read_text("utf-8") == (
        '{"time": "2026-11-22T12:00:00.250Z", "level": "WARNING", "logger": "graftline.rollouts.queue", "message": "job \'a\': 3'
        ' tries"}\n'
    )


def test_what_is_given_as_extra_is_in_the_line(files: JsonLogFiles, folder: Path, logger: logging.Logger) -> None:
    extra = {
        "actor": "a-1",
        "tokens": {"prompt": 3, 4: (1, 2.5, None, True)},
        "path": Path("/x"),
        "ratio": float("nan"),
        "huge": 1 << 70,
        "time": "of the caller",
    }
    logger.info("done", extra=extra)
    (line,) = lines(folder)
    del line["time"]
    assert line == {
        "level": "INFO",
        "logger": "graftline.test",
        "message": "done",
        "actor": "a-1",
        "tokens": {"prompt": 3, "4": [1, 2.5, None, True]},
        "path": "/x",
        "ratio": "nan",
        "huge": str(1 << 70),
        "extra_time": "of the caller",
    }


def test_no_secret_is_in_a_line(files: JsonLogFiles, folder: Path, logger: logging.Logger, secret: str) -> None:
    try:
        raise ValueError(f"with {secret}")
    except ValueError:
        logger.exception("by %s", secret, extra={"a": [{secret: secret}], "b": Path(secret)}, stack_info=True)
    (line,) = lines(folder)
    assert secret not in json.dumps(line)
    assert (line["message"], line["a"], line["b"]) == ("by [secret]", [{"[secret]": "[secret]"}], "[secret]")
    assert "ValueError: with [secret]" in line["exception"]


def test_any_text_is_one_line_of_json(files: JsonLogFiles, folder: Path, logger: logging.Logger) -> None:
    logger.info("two\nlines \u2028 \x00 🦀 \udc80", extra={"x": "\ud800"})
    (path,) = folder.iterdir()
    assert path.read_bytes().count(b"\n") == 1
    (line,) = [json.loads(path.read_bytes())]
    assert (line["message"], line["x"]) == ("two\nlines \u2028 \x00 🦀 \\udc80", "\\ud800")


def test_every_day_has_a_file_and_old_ones_go(files: JsonLogFiles, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("2026-11-21.actor-2-1.jsonl", "2026-11-20.gone-7.jsonl", "notes.jsonl", "2026-01-01.txt"):
        (folder / name).write_text("")
    files.handle(at(NOON))
    own = f"actor-1-{os.getpid()}.jsonl"
    other_files = {"2026-01-01.txt", "notes.jsonl"}
    assert {path.name for path in folder.iterdir()} - other_files == {
        "2026-11-20.gone-7.jsonl",
        "2026-11-21.actor-2-1.jsonl",
        f"2026-11-22.{own}",
    }
    files.handle(at(NOON + DAY_S))
    files.handle(at(NOON + DAY_S + 1))
    assert {path.name for path in folder.iterdir()} - other_files == {
        "2026-11-21.actor-2-1.jsonl",
        f"2026-11-22.{own}",
        f"2026-11-23.{own}",
    }
    assert [line["message"] for line in lines(folder)[-2:]] == [f"at {NOON + DAY_S}", f"at {NOON + DAY_S + 1}"]


def test_a_line_that_a_killed_process_cut_ends_before_the_next_one(files: JsonLogFiles, folder: Path) -> None:
    folder.mkdir(parents=True)
    path = folder / f"2026-11-22.actor-1-{os.getpid()}.jsonl"
    path.write_text('{"time": "2026')
    files.handle(at(NOON))
    half, whole = path.read_text("utf-8").splitlines()
    assert (half, json.loads(whole)["message"]) == ('{"time": "2026', f"at {NOON}")


def test_a_forked_child_writes_to_a_file_of_its_own(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING, str(folder)], check=True, timeout=240)
    messages = [[json.loads(line)["message"] for line in path.read_text().splitlines()] for path in folder.iterdir()]
    assert sorted(messages) == [["child"], ["parent", "parent again"]]


def test_what_cannot_be_logged_is_counted_and_stops_no_work(
    files: JsonLogFiles, folder: Path, logger: logging.Logger, lost: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    folder.parent.mkdir()
    folder.write_text("a file is in the way")
    logger.info("first")
    logger.info("second")
    assert lost == [1, 1]
    assert capfd.readouterr().err == (
        f"graftline: {folder}: a record is not logged (FileExistsError: [Errno 17] File exists: '{folder}');"
        " the work goes on\n"
    )
    folder.unlink()
    logger.info("third")
    assert [line["message"] for line in lines(folder)] == ["third"]


def test_a_process_that_is_killed_cuts_its_last_line_at_most(folder: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        while sum(path.stat().st_size > 100_000 for path in folder.glob("*.jsonl")) < 2:
            assert all(writer.poll() is None for writer in writers)
            time.sleep(0.01)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    for path in folder.iterdir():
        *whole, cut = path.read_text("utf-8").split("\n")
        assert [json.loads(line)["message"] for line in whole] == [f"line {number}" for number in range(len(whole))]
        # the system itself stops a killed process between two pages of one write
        assert cut[:9] in '{"time": '
