"""From the words of an entrypoint to a program of a jail: which file of the context is meant, and what runs it.

No shell reads the words, unless they name one: operators and variables have no meaning.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graftline.core.errors import DataError
from graftline.sandbox.jail import Program

ACCEPTED = (
    "'run_rollout' or another file of the context (in it or in its bin/, also without its .py or .sh) that is Python or"
    " begins with #! and names python, sh, bash or node; 'python file.py', 'python -m module', 'bash file.sh', 'bash -c"
    " command', 'node file.js', 'cargo ...'"
)
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>", "(", ")"})
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_SHELLS = frozenset({"sh", "bash", "dash"})
_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})
_WORKING_FOLDERS = ("/app/", "/workspace/", "./")
_WITHOUT_MEANING = frozenset({"-u", "-B", "-s", "-E", "-I"})
"""Options of Python that say what holds in a box anyway."""
_ENDINGS, _PLACES = ("", ".py", ".sh"), ("", "bin/")
_FIRST_BYTES = 256

FirstBytes = Callable[[str], bytes | None]
"""Returns how a file of the working folder begins, by its relative path; None where there is none."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is started."""

    program: Program
    arguments: tuple[str, ...]
    file: str = ""
    """The file of the context that is run; empty where none is named."""


def start_of(words: Sequence[str], first_bytes: FirstBytes, runs_own: bool = False) -> Start:
    """Return how an entrypoint is started.

    Args:
        words: As `shlex.split` has them.
        first_bytes: What there is.
        runs_own: Whether a file that is neither Python nor a script may be run, as a program of its own.

    Raises:
        DataError: nothing that is there is meant.
    """
    if met := next((word for word in words if word in _OPERATORS), None):
        raise DataError(f"entrypoint: {met!r} is for a shell, and none reads it; write a script, and 'bash script.sh'")
    first, rest = words[0], tuple(words[1:])
    above, _, name = first.rpartition("/")
    if not above or above in _SYSTEM_FOLDERS:
        if _PYTHON.fullmatch(name):
            return _python(rest, first_bytes)
        if name in _SHELLS:
            return _shell(rest, first_bytes)
        if name == "node":
            return Start("node", (_present(rest[:1], "node", first_bytes), *rest[1:]), _inside(rest[0]))
        if name == "cargo":
            return Start("cargo", rest)
    return _file(first, rest, first_bytes, runs_own)


def first_bytes_of(folder: Path, parts: Sequence[str], files: dict[str, bytes]) -> FirstBytes:
    """Return what reads of a snapshot's parts, and of files that are laid over them."""
    tops = [(folder / part).resolve() for part in reversed(parts or ("",))]

    def first_bytes(path: str) -> bytes | None:
        if path in files:
            return files[path][:_FIRST_BYTES]
        for top in tops:
            found = (top / path).resolve()
            if found.is_relative_to(top) and found.is_file():
                with found.open("rb") as stream:
                    return stream.read(_FIRST_BYTES)
        return None

    return first_bytes


def _python(rest: tuple[str, ...], first_bytes: FirstBytes) -> Start:
    while rest and rest[0] in _WITHOUT_MEANING:
        rest = rest[1:]
    if rest[:1] == ("-m",) and len(rest) > 1:
        return Start("python", rest)
    path = _present(rest[:1], "python", first_bytes)
    return Start("python", (path, *rest[1:]), path)


def _shell(rest: tuple[str, ...], first_bytes: FirstBytes) -> Start:
    options = 0
    while options < len(rest) and rest[options].startswith("-"):
        options += 1
    if any("c" in option and not option.startswith("--") for option in rest[:options]):
        return Start("shell", rest)
    path = _present(rest[options : options + 1], "bash", first_bytes)
    return Start("shell", (*rest[:options], path, *rest[options + 1 :]), path)


def _file(first: str, rest: tuple[str, ...], first_bytes: FirstBytes, runs_own: bool) -> Start:
    names = [f"{place}{_inside(first)}{ending}" for place in _PLACES for ending in _ENDINGS]
    path = next((name for name in names if first_bytes(name) is not None), None)
    if path is None:
        raise DataError(
            f"entrypoint: {first!r} is no file of the context, and no program that a box has; accepted are {ACCEPTED}"
        )
    runner = _runner(path, first_bytes(path) or b"")
    if runner is not None:
        return Start(runner, (path, *rest), path)
    if runs_own:
        return Start("shell", ("-c", 'exec "$@"', "shell", f"./{path}", *rest), path)
    raise DataError(
        f"entrypoint: {path!r} is no Python and no script, and boxes here run nothing else of a context (runs_own is off);"
        f" accepted are {ACCEPTED}"
    )


def _runner(path: str, start: bytes) -> Program | None:
    suffix = PurePosixPath(path).suffix
    if suffix in (".py", ".sh"):
        return "python" if suffix == ".py" else "shell"
    line = start.split(b"\n")[0].decode("utf-8", "replace")
    if not line.startswith("#!"):
        return None
    words = [word.rpartition("/")[2] for word in line[2:].split()]
    if words and words[0] == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if words and _PYTHON.fullmatch(words[0]):
        return "python"
    if words and words[0] in _SHELLS:
        return "shell"
    return "node" if words[:1] == ["node"] else None


def _present(named: Sequence[str], program: str, first_bytes: FirstBytes) -> str:
    """Return the path of the file that a program is to run."""
    if not named or (named[0].startswith("-")):
        raise DataError(f"entrypoint: {program!r} is given no file; accepted are {ACCEPTED}")
    path = _inside(named[0])
    if first_bytes(path) is None:
        raise DataError(f"entrypoint: {named[0]!r} is no file of the context; name one that is there")
    return path


def _inside(path: str) -> str:
    """Return a path in the working folder relative to it."""
    for folder in _WORKING_FOLDERS:
        path = path.removeprefix(folder)
    return path
