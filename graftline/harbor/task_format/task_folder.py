"""The folder of a Harbor task, read whole into memory within bounds, and written; and what the task needs of a machine.

    task.toml  instruction.md  environment/  tests/test.sh  solution/solve.sh  README.md

Links, devices and folders that are too large are refused. What is read is what counts for the digest: a `.gitignore` of
the task, and without one a short list of leftovers, say what does not.

Needs come from reading its scripts, its Dockerfile and its `task.toml`; whether a container has it shows where it runs
(`in_box.needs`). Reading finds less than running would: a script that another one fetches, a program that only a test starts.
It finds more where a script names what it never comes to. Either way the rollout has no reward; it never has a 0 that the
machine earned.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from graftline.core.errors import DataError
from graftline.harbor.context_tree import read_plain_file
from graftline.harbor.in_box.needs import interpreter_of
from graftline.harbor.task_format.task_toml import (
    MAX_TOML_BYTES,
    EnvironmentSection,
    TaskToml,
    VerifierSection,
    task_toml,
)

T = TypeVar("T")

MAX_FILES = 2000
MAX_TASK_BYTES = 64 << 20
MAX_DEPTH = 32
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_BELOW = ("environment/", "tests/", "solution/")
_ALONE = ("task.toml", "instruction.md", "README.md")
_LEFTOVERS = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
_SCRIPTS = frozenset({".sh", ".bash", ".py", ".js", ".mjs", ".ts", ".rb", ".pl"})
_FETCHES = re.compile(
    r"\b(apt-get|apt|apk|yum|dnf|microdnf|zypper|pacman|brew)\b[^\n|;&]*\b(install|update|add|upgrade|-Sy?u?)\b"
    r"|\b(pip3?|pipx|conda|mamba|micromamba|poetry|pdm|npm|pnpm|yarn|gem|bundle|cargo|go|composer|opam|cpanm?)\s(?:[^\n|;&]*\s)?"
    r"(install|add|sync|ci|get|fetch)\b"
    r"|\buvx\b|\buv\s+(pip|tool|run|sync|venv|add|python)\b|\bnpx\b"
    r"|\b(curl|wget)\b[^\n|;&]*\b(https?|ftp)://(?!localhost\b|127\.|0\.0\.0\.0)"
    r"|\bgit\s+(clone|fetch|pull)\b"
)
_OFFLINE = re.compile(r"--no-index\b|--offline\b|--frozen-offline\b")
_HOST = re.compile(r"\b(localhost|127\.0\.0\.1|0\.0\.0\.0)\b|\[::1\]")
_OUTSIDE = re.compile(r"(?<![\w.:/$}~<-])/(root|home|srv|var|etc|data|git|workspace|services)/[\w./-]*\w")
_DOES = re.compile(r"\s*(RUN|ADD\s+\S*://|COPY\s+--from)\b", re.IGNORECASE)
_SHOWN = 80
_SHOWN_FAULTS = 20
_WORKDIR = re.compile(r"\s*WORKDIR\s+[\"']?(/[\w./-]*)[\"']?\s*", re.IGNORECASE)
_COMPOSE = re.compile(r"(environment|tests)/(docker-)?compose\.ya?ml")


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

    @property
    def bundles_tests(self) -> bool:
        """Whether the image of what grades is its own, and has the tests."""
        own = self.toml.verifier.environment
        return "tests/Dockerfile" in self.files or (own is not None and own.docker_image is not None)

    def image_part(self, role: str) -> str:
        """Return which part the image of a role is made of."""
        return "tests" if role == "verifier" and self.toml.is_separate and self.bundles_tests else "environment"

    def image_name(self, role: str) -> str | None:
        """Return the image that is there already, of a role; None where it is only to be made."""
        is_own = self.image_part(role) == "tests"
        section = self.toml.verifier.environment if is_own else self.toml.environment
        return section.docker_image if section else None

    def image_of(self, role: str) -> tuple[str, dict[str, TaskFile]]:
        """Return the Dockerfile of the image of a role, and the files beside it: of an image that is there, only its name."""
        if name := self.image_name(role):
            return f"FROM {name}\n", {}
        files = self.part(self.image_part(role))
        return files.pop("Dockerfile").content.decode("utf-8", "replace"), files

    def find_fetch(self, part: str) -> str:
        """Return where the scripts of a part fetch something, as `path: command`; empty where they do not."""
        return next(_places(scripts_of(self, part), _FETCHES, unless=_OFFLINE), "")


def read_task(folder: Path) -> HarborTask:
    """Return the task in `folder`.

    Raises:
        DataError: it is no task, is out of bounds, or uses what is not supported here.
    """
    everything = dict(plain_files(folder, skip=(".git/", ".venv/")))
    files = {path: file for path, file in everything.items() if path in _ALONE or path.startswith(_BELOW)}
    files = _without_ignored(files, everything.get(".gitignore"), folder)
    return task_of(folder.name, files, str(folder), tuple(_find_unsupported(everything)))


def task_of(
    name: str, files: Mapping[str, TaskFile], source: str = "", unsupported: tuple[str, ...] = ()
) -> HarborTask:
    """Return the task of a name that `files` make. DataError as `read_task`."""
    source = source or name
    if not TASK_ID.fullmatch(name):
        raise DataError(f"{source}: a task's folder is named by letters, digits, '.', '_' and '-', up to 200 of them")
    texts = {}
    for path in ("task.toml", "instruction.md"):
        if path not in files:
            raise DataError(f"{source}: has no {path}; expected the folder of one Harbor task")
        if len(files[path].content) > MAX_TOML_BYTES:
            raise DataError(f"{source}: {path} is larger than {MAX_TOML_BYTES} bytes")
        texts[path] = _text(files[path].content, Path(source, path))
    toml = task_toml(texts["task.toml"], f"{source}/task.toml", unsupported)
    if "tests/test.sh" not in files and not ("tests/Dockerfile" in files or toml.is_separate):
        raise DataError(f"{source}: has no tests/test.sh; nothing says what counts as done")
    if "environment/Dockerfile" not in files and toml.environment.docker_image is None:
        raise DataError(f"{source}: has neither environment/Dockerfile nor environment.docker_image in task.toml")
    return HarborTask(name, toml, files)


def task_folders(folder: Path) -> list[Path]:
    """Return the folders of the tasks in `folder`, sorted by name; `folder` itself where it is one.

    Raises:
        DataError: there is none.
    """
    if (folder / "task.toml").is_file():
        return [folder]
    try:
        folders = sorted(entry for entry in folder.iterdir() if (entry / "task.toml").is_file())
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); expected a folder of Harbor tasks") from None
    if not folders:
        raise DataError(f"{folder}: holds no folder with a task.toml; expected Harbor tasks")
    return folders


def read_tasks(folders: Iterable[Path], read: Callable[[Path], T]) -> list[T]:
    """Return what `read` makes of each folder. Raises one DataError with what is wrong with any of them."""
    tasks, faults = [], []
    for folder in folders:
        try:
            tasks.append(read(folder))
        except DataError as error:
            faults.append(str(error))
    if faults:
        more = f"\nand {len(faults) - _SHOWN_FAULTS} more tasks" if len(faults) > _SHOWN_FAULTS else ""
        raise DataError("\n".join(faults[:_SHOWN_FAULTS]) + more)
    return tasks


def read_dockerfile(path: Path) -> str:
    """Return the text of a Dockerfile. Raises DataError where it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); expected a Dockerfile") from None


def write_files(files: Mapping[str, TaskFile], folder: Path) -> None:
    """Write `files` below `folder`, which may be there already."""
    for path, file in sorted(files.items()):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)
        place.chmod(0o755 if file.is_executable else 0o644)


def _find_unsupported(files: Mapping[str, TaskFile]) -> Iterator[str]:
    """Yield what the files use that is not supported."""
    if any(_COMPOSE.fullmatch(path) for path in files):
        yield "environment/docker-compose.yaml"
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
    remaining, count = MAX_TASK_BYTES, 0
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
            count, remaining = count + 1, remaining - state.st_size
            if count > MAX_FILES or remaining < 0:
                raise DataError(f"{folder}: has more than {MAX_FILES} files or {MAX_TASK_BYTES} bytes")
            # what has become a link since it was looked at is not followed
            content = read_plain_file(entry.path, state.st_size)
            if len(content) > state.st_size:
                raise DataError(f"{entry.path}: grew while it was read")
            yield path, TaskFile(content, bool(state.st_mode & stat.S_IXUSR))


def _text(content: bytes, source: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def needs_of(task: HarborTask, workdir: str, has_image: bool) -> dict[str, Any]:
    """Return what grading `task` needs, by cause; without an image, also what its Dockerfile makes."""
    scripts = scripts_of(task, "tests")
    needs: dict[str, Any] = {}
    if place := task.find_fetch("tests") or _public_network(task):
        needs["network"] = place
    if task.toml.verifier.environment_mode != "separate":
        inside = f"{workdir.rstrip('/')}/"
        if place := next(_places(scripts, _HOST), ""):
            needs["service"] = place
        if place := next((place for place in _places(scripts, _OUTSIDE) if f": {inside}" not in place), ""):
            needs["outside"] = place
    if not has_image and (line := _missing_instruction(task)):
        needs["image"] = line
    return needs | _of_scripts(scripts, "tests/test.sh", workdir)


def needs_of_solution(task: HarborTask, workdir: str) -> dict[str, Any]:
    """Return what running the reference solution needs, by cause."""
    scripts, place = scripts_of(task, "solution"), task.find_fetch("solution")
    return ({"network": place} if place else {}) | _of_scripts(scripts, "solution/solve.sh", workdir)


def workdir_of(task: HarborTask, default: str) -> str:
    """Return the working folder: that of `task.toml`, else the last that the Dockerfile of its image names."""
    if task.toml.environment.workdir is not None:
        return task.toml.environment.workdir
    file = task.files.get("environment/Dockerfile")
    lines = file.content.decode("utf-8", "replace").splitlines() if file else []
    folders = [match[1] for line in lines if (match := _WORKDIR.fullmatch(line))]
    return folders[-1] if folders else default


def _of_scripts(scripts: Mapping[str, str], main: str, workdir: str) -> dict[str, Any]:
    needs: dict[str, Any] = {}
    if interpreter_of(scripts.get(main, ""))[:1] == ["bash"]:
        needs["bash"] = f"{main} is a script of it"
    own = f"|{re.escape(workdir.strip('/'))}" if workdir.strip("/") else ""
    folders: dict[str, str] = {}
    for place in _places(scripts, re.compile(rf"(?<![\w.:/$}}~-])/(tests|solution{own})(?![\w.-])")):
        path, _, name = place.partition(": ")
        folders.setdefault(name, path)
    return needs | ({"folders": folders} if folders else {})


def _public_network(task: HarborTask) -> str:
    """Return where a task says that what grades may use a network; what is so by default is not asked for."""
    sections: tuple[tuple[str, VerifierSection | EnvironmentSection], ...]
    sections = (("verifier", task.toml.verifier), ("environment", task.toml.environment))
    for name, section in sections:
        if "network_mode" in section.model_fields_set and section.network_mode is not None:
            return f"task.toml: {name}.network_mode is public" if section.network_mode == "public" else ""
    return ""


def _missing_instruction(task: HarborTask) -> str:
    """Return which instruction of the Dockerfile nothing stands in for."""
    file = task.files.get("environment/Dockerfile")
    if file is None:
        return f"task.toml: environment.docker_image is {task.toml.environment.docker_image}"
    lines = file.content.decode("utf-8", "replace").splitlines()
    line = next((line.strip() for line in lines if _DOES.match(line)), "")
    return f"environment/Dockerfile: {line[:_SHOWN]}" if line else ""


def _places(
    scripts: Mapping[str, str], pattern: re.Pattern[str], unless: re.Pattern[str] | None = None
) -> Iterator[str]:
    """Yield where `pattern` fits, as `path: text`, but in comments and in lines of `unless`."""
    for path, text in scripts.items():
        # one command over several lines is one line
        for line in text.replace("\\\n", " ").splitlines():
            if line.lstrip().startswith("#") or (unless is not None and unless.search(line)):
                continue
            for match in pattern.finditer(line):
                yield f"{path}: {match[0].strip()[:_SHOWN]}"


def scripts_of(task: HarborTask, part: str) -> dict[str, str]:
    """Return the texts of the scripts of a part, the one that is run first."""
    paths = sorted(
        (f"{part}/{path}" for path in task.part(part) if PurePosixPath(path).suffix in _SCRIPTS),
        key=lambda path: (path not in ("tests/test.sh", "solution/solve.sh"), path),
    )
    return {path: task.files[path].content.decode("utf-8", "replace") for path in paths}
