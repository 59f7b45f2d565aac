"""What version 0.1.0 makes of files by one or more edits: its own commands, from its own wheel."""

import subprocess
import sysconfig
import tempfile
import venv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from zipfile import ZipFile

from benchmarks.commands import CHECKOUT
from graftline.core.errors import DataError

WHEEL = CHECKOUT / "data" / "benchmarks" / "graftline-0.1.0-py3-none-any.whl"
_COMMAND = "import sys; from graftline.cli import main; sys.argv[0] = 'graftline'; main()"
_SECONDS = 300


def follow(shown: Sequence[tuple[str, str, str]], texts: Mapping[str, str]) -> dict[str, str]:
    """Return those of `texts`, by path, that the rules of edits change; an edit is the end of a name, and two texts."""
    with tempfile.TemporaryDirectory() as name:
        folder, rules = Path(name), Path(name, "rules.yml")
        command = ["rules", "induce"]
        for number, (ending, *sides) in enumerate(shown):
            pair = [folder / f"{side}{number}{ending}" for side in ("before", "after")]
            for path, text in zip(pair, sides, strict=True):
                path.write_text(text, "utf-8")
            command += [*(["--pair"] if number else []), *map(str, pair)]
        if _run([*command, "--out", str(rules)]) or not rules.exists():
            return {}
        files = {path: folder / "files" / path for path in texts}
        for path, file in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(texts[path].encode())
        _run(["rules", "apply", str(rules), str(folder / "files"), "--write"])
        after = {path: file.read_bytes().decode() for path, file in files.items()}
    return {path: text for path, text in after.items() if text != texts[path]}


def _run(arguments: Sequence[str]) -> int:
    command = [str(make_environment()), "-c", _COMMAND, *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, timeout=_SECONDS).returncode


@cache
def make_environment() -> Path:
    """Return the Python of an environment with the wheel and the packages of this one; DataError if there is no wheel."""
    if not WHEEL.is_file():
        raise DataError(f"{WHEEL}: no such file; the arm `release-0.1.0` needs the wheel of version 0.1.0 there")
    folder = WHEEL.with_suffix("")
    if not folder.exists():
        partial = Path(tempfile.mkdtemp(dir=WHEEL.parent))
        venv.create(partial)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(partial)}))
        with ZipFile(WHEEL) as archive:
            archive.extractall(packages)
        # a plain line: the packages of this environment, but not its own graftline, which another file there names
        (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
        try:
            partial.rename(folder)
        except OSError:  # another process was earlier
            if not folder.exists():
                raise
    return folder / "bin" / "python"
