"""From what a container is asked for to a case of a jail: which file of the context the words mean, and what runs it.

No shell reads the words, unless they name one: operators and variables have no meaning.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graftline.core.errors import DataError
from graftline.harbor.executors.base import OUTPUT_PATH
from graftline.harbor.executors.containers import VERIFIER_FOLDER, ContainerSpec
from graftline.harbor.in_box.needs import interpreter_of
from graftline.harbor.results import MAX_RESULT_BYTES, MAX_REWARD_BYTES
from graftline.sandbox import Case, CaseEnd, CaseLimits
from graftline.sandbox.file_names import folders_of, path_of
from graftline.sandbox.inside.files import TOO_LARGE, TOO_MANY
from graftline.sandbox.jail import Program, Returned

WORK = "work/"
MAX_ARTIFACT_BYTES, MAX_ARTIFACTS = 64 << 20, 5000
_TEMPORARY = "/tmp/"
_REWARDS = (f"{VERIFIER_FOLDER}/reward.json", f"{VERIFIER_FOLDER}/reward.txt")
_LIMIT_S = 86_400
_FILES, _PROCESSES, _DESCRIPTORS, _OUTPUT_KB = 200_000, 1024, 4096, 8192

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
_REDUNDANT_OPTIONS = frozenset({"-u", "-B", "-s", "-E", "-I"})
"""Options of Python that say what holds in a container anyway."""
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
    """The file of the context that is run; empty where there is none."""


def start_of(words: Sequence[str], first_bytes: FirstBytes, runs_own: bool = False) -> Start:
    """Return how an entrypoint, split into words, is started.

    With `runs_own` a file that is neither Python nor a script may be run too, as a program of its own.

    Raises:
        DataError: nothing that is there is meant.
    """
    if operator := next((word for word in words if word in _OPERATORS), None):
        raise DataError(
            f"entrypoint: {operator!r} is for a shell, and none reads it; write a script, and 'bash script.sh'"
        )
    first, arguments = words[0], tuple(words[1:])
    above, _, name = first.rpartition("/")
    if not above or above in _SYSTEM_FOLDERS:
        if _PYTHON.fullmatch(name):
            return _python(arguments, first_bytes)
        if name in _SHELLS:
            return _shell(arguments, first_bytes)
        if name == "node":
            path = _find_script(arguments[:1], "node", first_bytes)
            return Start("node", (path, *arguments[1:]), path)
        if name == "cargo":
            return Start("cargo", arguments)
    return _file(first, arguments, first_bytes, runs_own)


def first_bytes_of(folder: Path, parts: Sequence[str], files: dict[str, bytes]) -> FirstBytes:
    """Return what reads of a snapshot's parts, and of files that are laid over them."""
    tops = [(folder / part).resolve() for part in reversed(parts or ("",))]

    def first_bytes(path: str) -> bytes | None:
        if path in files:
            return files[path][:_FIRST_BYTES]
        for top in tops:
            file = (top / path).resolve()
            if file.is_relative_to(top) and file.is_file():
                with file.open("rb") as stream:
                    return stream.read(_FIRST_BYTES)
        return None

    return first_bytes


def case_of(spec: ContainerSpec, folder: Path, runs_own: bool) -> Case:
    """Return the case that carries out `spec` on the snapshot in `folder`.

    Raises:
        DataError: its entrypoint or its files are none that a container takes.
    """
    files = dict(spec.files)
    folders_of(map(path_of, files))
    for part in spec.parts:
        if not (place := folder / path_of(part)).is_dir() or place.is_symlink():
            raise DataError(f"folder {part!r} of the context: is not there; name one that is")
    is_verifier = spec.role == "verifier"
    start = start_of(spec.words, first_bytes_of(folder, spec.parts, {} if is_verifier else files), runs_own)
    if is_verifier:
        # what an agent left does not take the place of what grades it
        files.pop(start.file, None)
        returned = Returned(tuple(path.removeprefix("/") for path in _REWARDS), 2 * MAX_REWARD_BYTES)
    else:
        settings = spec.rollout.verifier
        artifacts = [f"{WORK}{path_of(path.rstrip('/'))}" for path in settings.artifacts] if settings else []
        result = [OUTPUT_PATH.removeprefix("/")] if spec.stdin is None else []
        # the result first, so that artifacts cannot take its room
        returned = Returned((*result, *artifacts), MAX_RESULT_BYTES + MAX_ARTIFACT_BYTES, 1 + MAX_ARTIFACTS)
    return Case(
        start.program,
        start.arguments,
        files,
        stdin=spec.stdin or b"",
        temporary={path.removeprefix(_TEMPORARY): data for path, data in spec.inputs.items()},
        environment=spec.env_vars,
        parts=spec.parts,
        returned=returned,
    )


def case_limits(spec: ContainerSpec, snapshot_mb: int) -> CaseLimits:
    """Return the limits of a container as those of a case; the copy of the snapshot, which is in memory, comes on top."""
    limits = spec.rollout.limits
    return CaseLimits(
        cores=limits.cpu_cores,
        cpu_s=min(_LIMIT_S, int(spec.timeout_s) * limits.cpu_cores + 1),
        wall_s=float(spec.timeout_s),
        memory_mb=limits.memory_mb + snapshot_mb,
        disk_mb=limits.disk_mb,
        file_mb=limits.disk_mb,
        files=_FILES,
        processes=_PROCESSES,
        descriptors=_DESCRIPTORS,
        output_kb=_OUTPUT_KB,
    )


def check_artifacts(end: CaseEnd) -> None:
    """Refuse a case that left more than may travel. Raises DataError where it did."""
    for path, reason in end.left_out.items():
        if path.startswith(WORK) and reason in (TOO_LARGE, TOO_MANY):
            raise DataError(
                f"artifact {path.removeprefix(WORK)!r}: {reason}; {MAX_ARTIFACTS} files and"
                f" {MAX_ARTIFACT_BYTES >> 20} MB travel at most"
            )


def can_travel(path: str) -> bool:
    """Return whether a container takes a file of that name, and an interpreter would not believe it in place of a source."""
    try:
        return "__pycache__" not in path_of(path).parts and not path.endswith(".pyc")
    except DataError:
        return False


def _python(arguments: tuple[str, ...], first_bytes: FirstBytes) -> Start:
    while arguments and arguments[0] in _REDUNDANT_OPTIONS:
        arguments = arguments[1:]
    if arguments[:1] == ("-m",) and len(arguments) > 1:
        return Start("python", arguments)
    path = _find_script(arguments[:1], "python", first_bytes)
    return Start("python", (path, *arguments[1:]), path)


def _shell(arguments: tuple[str, ...], first_bytes: FirstBytes) -> Start:
    options = 0
    while options < len(arguments) and arguments[options].startswith("-"):
        options += 1
    if any("c" in option and not option.startswith("--") for option in arguments[:options]):
        return Start("shell", arguments)
    path = _find_script(arguments[options : options + 1], "bash", first_bytes)
    return Start("shell", (*arguments[:options], path, *arguments[options + 1 :]), path)


def _file(first: str, arguments: tuple[str, ...], first_bytes: FirstBytes, runs_own: bool) -> Start:
    names = [f"{place}{_inside(first)}{ending}" for place in _PLACES for ending in _ENDINGS]
    path = next((name for name in names if first_bytes(name) is not None), None)
    if path is None:
        raise DataError(
            f"entrypoint: {first!r} is no file of the context, and no program that a box has; accepted are {ACCEPTED}"
        )
    runner = _runner(path, first_bytes(path) or b"")
    if runner is not None:
        return Start(runner, (path, *arguments), path)
    if runs_own:
        return Start("shell", ("-c", 'exec "$@"', "shell", f"./{path}", *arguments), path)
    raise DataError(
        f"entrypoint: {path!r} is no Python and no script, and boxes here run nothing else of a context (runs_own is off);"
        f" accepted are {ACCEPTED}"
    )


def _runner(path: str, start: bytes) -> Program | None:
    suffix = PurePosixPath(path).suffix
    if suffix in (".py", ".sh"):
        return "python" if suffix == ".py" else "shell"
    interpreter = next(iter(interpreter_of(start.decode("utf-8", "replace"))), "")
    if _PYTHON.fullmatch(interpreter):
        return "python"
    if interpreter in _SHELLS:
        return "shell"
    return "node" if interpreter == "node" else None


def _find_script(names: Sequence[str], program: str, first_bytes: FirstBytes) -> str:
    """Return the path of the file that a program is to run."""
    if not names or names[0].startswith("-"):
        raise DataError(f"entrypoint: {program!r} is given no file; accepted are {ACCEPTED}")
    path = _inside(names[0])
    if first_bytes(path) is None:
        raise DataError(f"entrypoint: {names[0]!r} is no file of the context; name one that is there")
    return path


def _inside(path: str) -> str:
    """Return a path in the working folder relative to it."""
    for folder in _WORKING_FOLDERS:
        path = path.removeprefix(folder)
    return path
