"""How long a repository takes to follow one edit, from the demonstration to the page that a person reviews.

The repository is made of source files of the packages that are installed here, so anybody can run it: those whose paths
have the smallest digests, committed, and one place of one file edited. For every edit of `EDITS`, `graftline follow` is
timed as a user runs it, with a review page; memory is that of all its processes. `interrupt_s` is the longest that it
went on after Ctrl-C at four moments of a run.

Peers in the same repository: `ast-grep scan` with the rules that came out, and `git grep` for the name that was edited,
which is the least that a look at all files can take.

    python -m benchmarks.follow_speed [--files 2000,20000] [--edits getLogger,super]
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.arguments import numbers, some_of
from benchmarks.commands import watched
from benchmarks.machine import machine
from graftline.astgrep.binding import executable
from graftline.core.hashing import sha256_text


class Edit(NamedTuple):
    """One place that is edited by hand."""

    pattern: str
    replacement: str
    word: str


EDITS = {
    "getLogger": Edit(r"\blogging\.getLogger\(", "logging.get_logger(", "getLogger"),
    "super": Edit(r"\bsuper\(\w+, self\)\.__init__\(", "super().__init__(", "super"),
    "isinstance": Edit(r"\bisinstance\((\w+), str\)", r"is_text(\1)", "isinstance"),
}
_SUFFIXES = (".py", ".pyi", ".js", ".ts")
_MAX_BYTES = 512 << 10
_MOMENTS = (0.1, 0.3, 0.6, 0.9)


def list_installed(count: int) -> list[Path]:
    """Return paths, below the folder of packages, of `count` source files; SystemExit if there are not so many."""
    folder = Path(sysconfig.get_path("purelib"))
    paths = [
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file() and path.stat().st_size <= _MAX_BYTES
    ]
    if len(paths) < count:
        raise SystemExit(f"{folder}: has {len(paths)} source files, expected {count}; say a smaller number of --files")
    return sorted(paths, key=lambda path: sha256_text(path.as_posix()))[:count]


def make_repository(paths: Sequence[Path], folder: Path) -> None:
    """Copy installed files into a new git repository, and commit them."""
    packages = Path(sysconfig.get_path("purelib"))
    for path in paths:
        # the packages that others are vendored in are the repository's own here
        target = folder / "/".join(part.replace("vendor", "bundle").lstrip("_") for part in path.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((packages / path).read_bytes())
    git(folder, "init", "--quiet")
    git(folder, "add", "--all", "--force")
    git(folder, "-c", "user.name=bench", "-c", "user.email=bench@invalid", "commit", "--quiet", "--message", "all")


def git(folder: Path, *arguments: str) -> None:
    """Run git in `folder`."""
    subprocess.run(["git", "-C", folder, *arguments], check=True)


def show(folder: Path, edit: Edit) -> None:
    """Make an edit in one place: the first of the file that has fewest others and the smallest name."""
    listed = subprocess.run(["git", "-C", folder, "grep", "-lw", edit.word], check=True, capture_output=True, text=True)
    files = [(folder / name, (folder / name).read_text()) for name in listed.stdout.splitlines()]
    counts = [(len(re.findall(edit.pattern, text)), str(path), text) for path, text in files if path.suffix == ".py"]
    _, name, text = min(row for row in counts if row[0])
    Path(name).write_text(re.sub(edit.pattern, edit.replacement, text, count=1))


def measure(folder: Path, name: str, parts: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what following an edit took, and what the peers took."""
    edit = EDITS[name]
    show(folder, edit)
    rules = parts / "rules.yml"
    command = [sysconfig.get_path("scripts") + "/graftline", "follow", str(folder), "--questions", "0", "--json"]
    command += ["--review", str(parts / "page.html"), "--output", str(rules)]
    before, start = read_cpu_s(), time.monotonic()
    proposal, memory_mb = watched(command)
    wall = time.monotonic() - start
    figures = {"wall_s": round(wall, 2), "cpu_s": round(read_cpu_s() - before, 2), "memory_mb": memory_mb}
    figures |= {"load": round(os.getloadavg()[0], 1), "places": sum(group["places"] for group in proposal["groups"])}
    figures["interrupt_s"] = round(max(interrupt(command, wall * moment) for moment in _MOMENTS), 2)
    scan = [executable(), "scan", "--rule", str(rules), "--json=stream", str(folder)]
    peers = {"ast-grep scan": time_program(scan) if rules.exists() else None}
    peers["git grep"] = time_program(["git", "-C", str(folder), "grep", "-lw", edit.word])
    return figures, peers


def read_cpu_s() -> float:
    """Return the processor seconds of all programs that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_program(command: Sequence[str]) -> dict[str, float]:
    """Return the seconds that a program took."""
    before, start = read_cpu_s(), time.monotonic()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return {"wall_s": round(time.monotonic() - start, 2), "cpu_s": round(read_cpu_s() - before, 2)}


def interrupt(command: Sequence[str], after_s: float) -> float:
    """Return the seconds that a program goes on after Ctrl-C, as the terminal sends it to all its processes."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=Path(__file__).parents[1]
    )  # fmt: skip
    time.sleep(after_s)
    start = time.monotonic()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    process.wait()
    return time.monotonic() - start


def report(
    name: str,
    about: str | None,
    sizes: str,
    edits: Iterable[str],
    measure: Callable[[Path, str, Path], tuple[dict[str, Any], dict[str, Any]]],
    arguments: Sequence[str] | None,
) -> None:
    """Print one line of JSON: what `measure` returns for each edit in a repository of each size, and for its peers."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--files", type=numbers, default=sizes, help="sizes of the repository")
    parser.add_argument("--edits", type=some_of(edits), default=",".join(edits))
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    peers: dict[str, Any] = {}
    for count in options.files:
        with TemporaryDirectory() as temporary:
            folder = Path(temporary) / "repository"
            folder.mkdir()
            make_repository(list_installed(count), folder)
            for edit in options.edits:
                parts, key = Path(temporary) / edit, f"{count} files, {edit}"
                parts.mkdir()
                figures[key], peers[key] = measure(folder, edit, parts)
                git(folder, "checkout", "--quiet", ".")
    print(json.dumps({"name": name, "figures": figures, "peers": peers, "machine": machine()}))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON."""
    report("follow_speed", __doc__, "2000,20000", EDITS, measure, arguments)


if __name__ == "__main__":
    main()
