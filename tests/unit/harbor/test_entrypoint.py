"""Which program of a box an entrypoint means, and what is refused with a list of what is accepted."""

import shlex
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.harbor.executors.entrypoint import Start, first_bytes_of, start_of

TASK = {
    "run_rollout.py": b"print(1)",
    "run.sh": b"echo 1",
    "bin/agent": b"#!/usr/bin/env -S python3 -u\nprint(1)",
    "bin/posix": b"#!/bin/sh -e\n",
    "bin/script.py": b"",
    "tool": b"\x7fELF",
    "perl": b"#!/usr/bin/perl\n",
    "text": b"no first line of a script",
    "page.js": b"",
    "page": b"#!/usr/bin/env node\n",
    "package/__main__.py": b"",
}


def start(entrypoint: str, runs_own: bool = False) -> Start:
    return start_of(shlex.split(entrypoint), TASK.get, runs_own)


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        (
            "run_rollout --input a --output b",
            Start("python", ("run_rollout.py", "--input", "a", "--output", "b"), "run_rollout.py"),
        ),
        ("run", Start("shell", ("run.sh",), "run.sh")),
        ("./run.sh 'a b'", Start("shell", ("run.sh", "a b"), "run.sh")),
        ("/app/run.sh", Start("shell", ("run.sh",), "run.sh")),
        ("/workspace/bin/agent", Start("python", ("bin/agent",), "bin/agent")),
        ("agent", Start("python", ("bin/agent",), "bin/agent")),
        ("script", Start("python", ("bin/script.py",), "bin/script.py")),
        ("posix -x", Start("shell", ("bin/posix", "-x"), "bin/posix")),
        ("page", Start("node", ("page",), "page")),
        ("python run_rollout.py -m x", Start("python", ("run_rollout.py", "-m", "x"), "run_rollout.py")),
        ("/usr/bin/python3.11 -u run_rollout.py", Start("python", ("run_rollout.py",), "run_rollout.py")),
        ("python3 -m package a", Start("python", ("-m", "package", "a"))),
        ("python3 -u -m package", Start("python", ("-m", "package"))),
        ("bash -e run.sh x", Start("shell", ("-e", "run.sh", "x"), "run.sh")),
        ("/bin/sh run.sh", Start("shell", ("run.sh",), "run.sh")),
        ("bash -lc 'a && b > $C'", Start("shell", ("-lc", "a && b > $C"))),
        ("node page.js 1", Start("node", ("page.js", "1"), "page.js")),
        ("cargo test --lib", Start("cargo", ("test", "--lib"))),
    ],
)
def test_words_become_a_program_of_a_jail(entrypoint: str, expected: Start) -> None:
    assert start(entrypoint) == expected


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("run_rollout && rm -r x", "'&&' is for a shell, and none reads it; write a script, and 'bash script.sh'"),
        ("run_rollout > out", "'>' is for a shell, and none reads it; write a script, and 'bash script.sh'"),
        ("python absent.py", "'absent.py' is no file of the context; name one that is there"),
        ("python /etc/passwd", "'/etc/passwd' is no file of the context; name one that is there"),
        ("bash ../run.sh", "'../run.sh' is no file of the context; name one that is there"),
    ],
)
def test_what_is_meant_must_be_there(entrypoint: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        start(entrypoint)
    assert str(caught.value) == f"entrypoint: {message}"


@pytest.mark.parametrize(
    "entrypoint",
    ["absent", "curl https://a.example", "tool", "perl", "text", "python", "python -c x", "bash", "node -e x"],
)
def test_anything_else_is_refused_with_what_is_accepted(entrypoint: str) -> None:
    with pytest.raises(DataError, match=r"accepted are 'run_rollout' or another file of the context .*'cargo \.\.\.'$"):
        start(entrypoint)


@pytest.mark.parametrize("name", ["tool", "perl", "text"])
def test_a_program_of_the_context_needs_the_right_to_run_it(name: str) -> None:
    assert start(f"{name} -v", runs_own=True) == Start("shell", ("-c", 'exec "$@"', "shell", f"./{name}", "-v"), name)


def test_files_are_those_of_the_parts_and_what_is_laid_over_them(tmp_path: Path) -> None:
    for name, text in (("first/a", "1"), ("first/b", "1"), ("second/a", "2"), ("other/c", "3"), ("top", "4")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "first" / "out").symlink_to("../other/c")
    read = first_bytes_of(tmp_path, ("first", "second"), {"over": b"5", "b": b"6"})
    found = [read(name) for name in ("a", "b", "c", "top", "over", "out", "../other/c", "/etc/passwd")]
    assert found == [b"2", b"6", None, None, b"5", None, None, None]
    assert first_bytes_of(tmp_path, (), {})("other/c") == b"3"
