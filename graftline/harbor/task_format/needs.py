"""What a Harbor task needs of the machine, found by reading its scripts, its Dockerfile and its `task.toml`.

Only that it is needed is found here; whether a box has it is seen where it runs (`in_box.needs`). Reading finds less than
running would: a script that another one fetches, a program that only a test starts. It finds more where a script names
what it never comes to. Either way the rollout has no reward; it never has a 0 that the machine earned.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from graftline.harbor.in_box.needs import interpreter_of
from graftline.harbor.task_format.task_folder import HarborTask
from graftline.harbor.task_format.task_toml import EnvironmentSection, VerifierSection

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
_WORKDIR = re.compile(r"\s*WORKDIR\s+[\"']?(/[\w./-]*)[\"']?\s*", re.IGNORECASE)


def needs_of(task: HarborTask, workdir: str, has_image: bool) -> dict[str, Any]:
    """Return what grading `task` needs, by cause.

    Args:
        task: The task.
        workdir: Its working folder.
        has_image: Whether a box has what its Dockerfile makes.
    """
    scripts = _scripts(task, "tests")
    needs: dict[str, Any] = {}
    if place := _fetched(scripts) or _public_network(task):
        needs["network"] = place
    if task.toml.verifier.environment_mode != "separate":
        inside = f"{workdir.rstrip('/')}/"
        if place := next(_places(scripts, _HOST), ""):
            needs["service"] = place
        if place := next((place for place in _places(scripts, _OUTSIDE) if f": {inside}" not in place), ""):
            needs["outside"] = place
    if not has_image and (line := _undone(task)):
        needs["image"] = line
    return needs | _of_scripts(scripts, "tests/test.sh", workdir)


def needs_of_solution(task: HarborTask, workdir: str) -> dict[str, Any]:
    """Return what running the reference solution needs, by cause."""
    scripts = _scripts(task, "solution")
    place = _fetched(scripts)
    return ({"network": place} if place else {}) | _of_scripts(scripts, "solution/solve.sh", workdir)


def workdir_of(task: HarborTask, default: str) -> str:
    """Return the working folder: that of `task.toml`, else the last that the Dockerfile of its image names."""
    if task.toml.environment.workdir is not None:
        return task.toml.environment.workdir
    file = task.files.get("environment/Dockerfile")
    lines = file.content.decode("utf-8", "replace").splitlines() if file else []
    named = [match[1] for line in lines if (match := _WORKDIR.fullmatch(line))]
    return named[-1] if named else default


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


def _fetched(scripts: Mapping[str, str]) -> str:
    return next(_places(scripts, _FETCHES, unless=_OFFLINE), "")


def _public_network(task: HarborTask) -> str:
    """Return where a task says that what grades may use a network; what is so by default is not asked for."""
    sections: tuple[tuple[str, VerifierSection | EnvironmentSection], ...]
    sections = (("verifier", task.toml.verifier), ("environment", task.toml.environment))
    for name, section in sections:
        if "network_mode" in section.model_fields_set and section.network_mode is not None:
            return f"task.toml: {name}.network_mode is public" if section.network_mode == "public" else ""
    return ""


def _undone(task: HarborTask) -> str:
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


def _scripts(task: HarborTask, part: str) -> dict[str, str]:
    """Return the texts of the scripts of a part, the one that is run first."""
    paths = sorted(
        (f"{part}/{path}" for path in task.part(part) if PurePosixPath(path).suffix in _SCRIPTS),
        key=lambda path: (path not in ("tests/test.sh", "solution/solve.sh"), path),
    )
    return {path: task.files[path].content.decode("utf-8", "replace") for path in paths}
