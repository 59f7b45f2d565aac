"""The folder of a Harbor task, read whole into memory within bounds, and written.

    task.toml  instruction.md  environment/  tests/test.sh  solution/solve.sh  README.md

Links, devices and folders that are too large are refused. What is read is what counts for the digest: a `.gitignore` of
the task, and without one a short list of leftovers, say what does not.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graftline.core.errors import DataError
from graftline.harbor.task_format.task_toml import MAX_TOML_BYTES, TaskToml, task_toml

MAX_FILES = 2000
MAX_TASK_BYTES = 64 << 20
MAX_DEPTH = 32
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
PARTS = ("environment", "tests", "solution")
_ALONE = ("task.toml", "instruction.md", "README.md")
_LEFTOVERS = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
_COMPOSE = re.compile(r"environment/(docker-)?compose\.ya?ml")


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file."""

    content: bytes = field(repr=False)
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task, with all of its files."""

    id: str
    """The name of its folder."""
    toml: TaskToml
    files: Mapping[str, TaskFile]
    """All that counts, by path relative to the folder; `task.toml` and `instruction.md` included."""

    @property
    def instruction(self) -> str:
        """What the agent is told."""
        return self.files["instruction.md"].content.decode()

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of its files, as Harbor works it out."""
        outer = hashlib.sha256()
        for path, file in sorted(self.files.items()):
            outer.update(f"{path}\0{hashlib.sha256(file.content).hexdigest()}\n".encode())
        return outer.hexdigest()

    def part(self, name: str) -> dict[str, TaskFile]:
        """Return the files of `environment`, `tests` or `solution`, by path relative to that folder."""
        start = f"{name}/"
        return {path.removeprefix(start): file for path, file in self.files.items() if path.startswith(start)}


def read_task(folder: Path) -> HarborTask:
    """Return the task in `folder`.

    Raises:
        DataError: it is no task, is out of bounds, or uses what is not supported here.
    """
    if not TASK_ID.fullmatch(folder.name):
        raise DataError(f"{folder}: a task's folder is named by letters, digits, '.', '_' and '-', up to 200 of them")
    found = dict(plain_files(folder, skip=(".git/", ".venv/")))
    wanted = {path: file for path, file in found.items() if _counts(path)}
    wanted = _without_ignored(wanted, found.get(".gitignore"), folder)
    for path in ("task.toml", "instruction.md"):
        if path not in wanted:
            raise DataError(f"{folder}: has no {path}; expected the folder of one Harbor task")
        if len(wanted[path].content) > MAX_TOML_BYTES:
            raise DataError(f"{folder}: {path} is larger than {MAX_TOML_BYTES} bytes")
    text = {path: _text(wanted[path].content, folder / path) for path in ("task.toml", "instruction.md")}
    toml = task_toml(text["task.toml"], str(folder / "task.toml"), tuple(_beyond(found)))
    if "tests/test.sh" not in wanted:
        raise DataError(f"{folder}: has no tests/test.sh; nothing says what counts as done")
    if "environment/Dockerfile" not in wanted and toml.environment.docker_image is None:
        raise DataError(f"{folder}: has neither environment/Dockerfile nor environment.docker_image in task.toml")
    return HarborTask(folder.name, toml, wanted)


def task_folders(folder: Path) -> list[Path]:
    """Return the folders of the tasks in `folder`, sorted by name; `folder` itself where it is one.

    Raises:
        DataError: there is none.
    """
    if (folder / "task.toml").is_file():
        return [folder]
    try:
        found = sorted(entry for entry in folder.iterdir() if (entry / "task.toml").is_file())
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); expected a folder of Harbor tasks") from None
    if not found:
        raise DataError(f"{folder}: holds no folder with a task.toml; expected Harbor tasks")
    return found


def write_files(files: Mapping[str, TaskFile], folder: Path) -> None:
    """Write `files` below `folder`, which may be there already."""
    for path, file in sorted(files.items()):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)
        place.chmod(0o755 if file.is_executable else 0o644)


def _counts(path: str) -> bool:
    return path in _ALONE or path.startswith(tuple(f"{part}/" for part in PARTS))


def _beyond(files: Mapping[str, TaskFile]) -> Iterator[str]:
    """Yield what the files use that is not supported."""
    if any(_COMPOSE.fullmatch(path) for path in files):
        yield "environment/docker-compose.yaml"
    if "tests/Dockerfile" in files:
        yield "tests/Dockerfile"
    if "trajectory.json" in files:
        yield "trajectory.json (prior context)"
    if any(path.startswith("steps/") for path in files):
        yield "steps/"
    if any(path.endswith((".bat", ".ps1")) and "/" in path for path in files):
        yield "scripts of Windows"
    if any(path.rpartition("/")[2] == ".harborignore" for path in files):
        yield ".harborignore"


def _without_ignored(files: dict[str, TaskFile], ignore: TaskFile | None, folder: Path) -> dict[str, TaskFile]:
    import pathspec

    lines = _LEFTOVERS if ignore is None else tuple(_text(ignore.content, folder / ".gitignore").splitlines())
    try:
        ignored = pathspec.GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise DataError(f"{folder / '.gitignore'}: {error}") from None
    return {path: file for path, file in files.items() if not ignored.match_file(path)}


def plain_files(folder: Path, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, TaskFile]]:
    """Yield every file below `folder`, by its relative path, but those in the folders `skip` at its top.

    Raises:
        DataError: it cannot be read, holds links or devices, or is out of bounds.
    """
    left, count = MAX_TASK_BYTES, 0
    pending = [("", folder)]
    while pending:
        start, place = pending.pop()
        if start.count("/") > MAX_DEPTH:
            raise DataError(f"{folder}: {start} is nested deeper than {MAX_DEPTH} folders")
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"{place}: cannot be read ({error.strerror}); expected a folder") from None
        for entry in entries:
            path = f"{start}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if f"{path}/" not in skip:
                    pending.append((f"{path}/", Path(entry.path)))
                continue
            state = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(state.st_mode):
                raise DataError(f"{folder}: {path} is a link or a device; expected plain files")
            count, left = count + 1, left - state.st_size
            if count > MAX_FILES or left < 0:
                raise DataError(f"{folder}: has more than {MAX_FILES} files or {MAX_TASK_BYTES} bytes")
            yield path, _read(Path(entry.path), state.st_size, bool(state.st_mode & stat.S_IXUSR))


def _read(path: Path, size: int, is_executable: bool) -> TaskFile:
    # what has become a link since it was looked at is not followed
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
        content = stream.read(size + 1)
    if len(content) > size:
        raise DataError(f"{path}: grew while it was read")
    return TaskFile(content, is_executable)


def _text(content: bytes, source: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
