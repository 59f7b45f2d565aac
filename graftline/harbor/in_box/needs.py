"""What a task needs of the box that runs it, and whether this one has it: without it no reward says anything.

`task.json` names under `needs` what reading the task found, by cause, each with the place where it stands; `find_unmet` says what
of that the box has not. What shows only once a script has run is told by `find_missing`: a line of the output names it, and
it counts only where the script names it too and the box has no such thing, so that an answer cannot talk itself out of a 0
by printing what a shell would print.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_ELSEWHERE = ("tests", "solution")
_NEVER = {
    "network": "needs network: the box that grades has none",
    "service": "service missing: the tests get a box of their own, in which no service of the agent's runs",
    "outside": "work folder: files outside it do not travel to the box that grades",
    "dropped": "file dropped: an archive takes no file that looks like a secret or a leftover",
    "image": "image not built: this deployment has none, so what the Dockerfile does is not done",
}
_BASH = re.compile(
    r"\[\[ |<\(|<<<|&>|\$'|=~|\$\{\w+\[|\$\{!|\$\{\w+(,,|\^\^|//|:[0-9])|^\s*(source|shopt|declare|mapfile|readarray|pushd"
    r"|popd|function \w+)\b|\bset -o pipefail|\bset -\w*o pipefail|\bPIPESTATUS\b|\w+=\(|^\s*for \(\(",
    re.MULTILINE,
)
"""What a shell other than bash reads as something else, or not at all."""
_PLAIN_SHELLS = ("sh", "dash", "ash")
_OWN_WORDS_OF_BASH = frozenset(
    {"[[", "source", "shopt", "declare", "mapfile", "readarray", "pushd", "popd", "function"}
)
_NOT_A_COMMAND = re.compile(r"(?:line )?\d+: (\S+?): (?:command )?not found$", re.MULTILINE)
_NO_MODULE = re.compile(r"(\S*python[\d.]*): No module named '?([\w.]+)'?", re.MULTILINE)
_FINDS_MODULE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
_NO_NETWORK = re.compile(
    r"could not resolve|temporary failure (in name resolution|resolving)|network is unreachable|name or service not known"
    r"|failed to establish a new connection|dns error|getaddrinfo|no address associated with hostname",
    re.IGNORECASE,
)
_INSTALLS = re.compile(r"\b(apt-get|apt|apk|pip3?|pipx|uvx?|npm|npx|conda)\b")
_NOT_INSTALLED = re.compile(
    r"^(E: (?:Unable|Failed|Could not)\b.*|ERROR: (?:Could not|No matching)\b.*|error: Failed to (?:fetch|build|download)\b.*"
    r"|error: externally-managed-environment"
    r"|\s*\xd7 (?:No solution found|Failed to)\b.*|npm (?:ERR!|error) .*)$",
    re.MULTILINE,
)
"""What installers say that failed."""
_TESTS_BEGIN = re.compile(r"^=+ test session starts =+$", re.MULTILINE)
_REMOTE = re.compile(r"\b(https?|ftp|git|ssh)://(?!localhost\b|127\.|0\.0\.0\.0|\[::1?\]|\$)[\w.-]+", re.IGNORECASE)
_LEAST_FREE_BYTES = 64 << 10
_SHOWN = 120
_FINDING_S = 30.0


def interpreter_of(script: str) -> list[str]:
    """Return the words of the first line that say what runs a script; none where it does not say."""
    first = script.partition("\n")[0]
    words = first[2:].split() if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return [Path(words[0]).name, *words[1:]] if words else []


def command_of(script: Path) -> list[str]:
    """Return the words that run `script` here: bash also where a script for sh is written in it, or does not say.

    Raises:
        ValueError: the box has nothing that can run it.
    """
    text, shown = script.read_text("utf-8", "replace"), f"{script.parent.name}/{script.name}"
    words = interpreter_of(text) or ["bash" if shutil.which("bash") else "sh"]
    if words[0] in _PLAIN_SHELLS and _BASH.search(_without_comments(text)) and shutil.which("bash"):
        words[0] = "bash"
    if shutil.which(words[0]) is None:
        raise ValueError(f"needs {words[0]}: {shown} is a script of it, and the box has none")
    if words[0] in _PLAIN_SHELLS and subprocess.run([words[0], "-n", script], capture_output=True).returncode:
        raise ValueError(f"needs bash: {words[0]} cannot read {shown}, and the box has no bash")
    return [*words, str(script)]


def find_unmet(task: Mapping[str, object], folder: Path, is_laid: bool, is_verifier: bool) -> str:
    """Return what of the needs of a task, of `task.json`, the box has not; empty where it has all of them.

    `is_laid` says whether the working folder of the task is that of its image.
    """
    needs = task.get("needs")
    if not isinstance(needs, dict):
        return ""
    reasons = [f"{_NEVER[cause]} ({needs[cause]})" for cause in _NEVER if cause in needs]
    if "bash" in needs and shutil.which("bash") is None:
        reasons.append(f"needs bash: the box has none ({needs['bash']})")
    folders = needs.get("folders", {})
    if away := [name for name in folders if not _lies_there(name, task, folder, is_laid, is_verifier)]:
        named = ", ".join(f"{name}, which {folders[name]} names" for name in away)
        reasons.append(f"work folder: the box has it elsewhere ({named})")
    return "; ".join(reasons)


def find_missing(
    output: str,
    scripts: Sequence[str],
    has_network: bool,
    which: Callable[[str], object] = shutil.which,
    has_module: Callable[[str, str], bool] | None = None,
) -> str:
    """Return what a box was without, by what scripts printed and by their texts; empty where it is not known.

    `which` and `has_module` look whether the box has a program, and a Python a module; without them, this one.
    """
    text = "\n".join(map(_without_comments, scripts))
    return "; ".join(_missing(output, text, has_network, which, has_module or _has_module))


def is_disk_full(folders: Sequence[Path]) -> bool:
    """Return whether one of the file systems of `folders` has no room left."""
    return any(shutil.disk_usage(folder).free < _LEAST_FREE_BYTES for folder in folders if folder.is_dir())


def has_network() -> bool:
    """Return whether this box has a way to others: a route by default, whatever lies at its end."""
    routes = [*_rows("route"), *_rows("ipv6_route")]
    return any(row[1] == "00000000" or (row[:2] == ["0" * 32, "00"] and row[-1] != "lo") for row in routes)


def _rows(name: str) -> list[list[str]]:
    try:
        lines = Path("/proc/net", name).read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [row for line in lines if len(row := line.split()) > 1]


def _missing(
    output: str, text: str, has_network: bool, which: Callable[[str], object], has_module: Callable[[str, str], bool]
) -> Iterator[str]:
    names = [name for name in dict.fromkeys(_NOT_A_COMMAND.findall(output)) if "/" not in name and _names(text, name)]
    if bash := [name for name in names if name in _OWN_WORDS_OF_BASH]:
        yield f"needs bash: another shell does not know {bash[0]!r}"
    if absent := [name for name in names if name not in _OWN_WORDS_OF_BASH and not which(name)]:
        yield f"needs {', '.join(absent)}: the box has no such program"
    for python, name in dict.fromkeys(_NO_MODULE.findall(output)):
        if re.search(rf"-m\s+{re.escape(name)}(?![\w.])", text) and not has_module(python, name):
            yield f"needs {name}: {python} has no such module"
    # once the tests have begun, what they need is there
    line = None if _TESTS_BEGIN.search(output) else _NOT_INSTALLED.search(output)
    if line is not None and _INSTALLS.search(text):
        yield f"needs what a script installs: {line[0].strip()[:_SHOWN]}"
    if not has_network and _NO_NETWORK.search(output) and (address := _REMOTE.search(text)):
        yield f"needs network: a script asks {address[0]}, which the box does not reach"


def _has_module(python: str, name: str) -> bool:
    try:
        # -I: not what an answer lays beside it
        command = [python, "-I", "-c", _FINDS_MODULE, name.partition(".")[0]]
        return subprocess.run(command, capture_output=True, timeout=_FINDING_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return True


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _lies_there(name: str, task: Mapping[str, object], folder: Path, is_laid: bool, is_verifier: bool) -> bool:
    part = name.strip("/")
    if part not in _ELSEWHERE:
        return is_laid
    if not is_verifier:
        return bool(os.environ.get("TASK_IN_CONTAINER"))  # there the verifier lays them
    return Path(name).resolve() == (folder / part).resolve()


def _without_comments(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
