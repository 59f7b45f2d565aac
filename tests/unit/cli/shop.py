"""A small root with several datasets, and the command line over it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from graftline.cli.main import main

NAMES = ["exam", "far", "gated", "pairs", "twins"]

PAIR: Mapping[str, Any] = {
    "id": "release:0", "source": "pypi:demo 1.0->2.0", "license": "MIT", "language": "python", "pre": "", "post": "",
    "registry": "pypi", "pkg": "demo", "old": "1.0", "new": "2.0", "path": "demo.py", "qual": "first",
}  # fmt: skip


def row(name: str, pre: str, post: str, **other: Any) -> dict[str, Any]:
    """Return a row of `release_pairs` from a package of its own."""
    return {**PAIR, "id": f"release:{name}", "pkg": name, "qual": name, "pre": pre, "post": post, **other}


PAIRS = [
    row("a", "old(1)\n", "new(1)\n"),
    row("b", "x = [1, 2, 3]\nold(x, 1)\n", "x = [1, 2, 3]\nnew(x, 1)\n", license="Apache-2.0"),
    row("c", "int f(int a) {\n  return a + b;\n}\n", "int f(int a) {\n  return a - b;\n}\n", language="java"),
    row("d", "f(1)\n", "f(2)\n", license="GPL-3.0-only"),
    row("e", "f(3)\n", "f(4\n"),
]
TWINS = [row("f", "send(1)\n", "post(1)\n"), row("g", "old(1)\n", "new(1)\n")]
"""The second says what the first of `PAIRS` says."""


class Shop:
    """A root whose catalog holds five datasets; `pairs` and `twins` are in use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("pairs", PAIRS)
        self.twins = self.write("twins", TWINS)
        self.write("exam", [{"text": "nothing"}])
        self.configure()

    @property
    def raw(self) -> Path:
        return self.root / "data" / "raw"

    def write(self, name: str, rows: Sequence[Mapping[str, Any]], top: str = "data/samples") -> dict[str, Any]:
        """Write the rows of a dataset, and return its entry in `files`."""
        path = self.root / top / name / "rows.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        path.write_bytes(content)
        return {"path": path.name, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def configure(self, **far: Any) -> None:
        """Write datasets.yaml; `far` changes the entry of that name."""
        local = {"reader": "release_pairs", "version": "1", "license": "MIT", "files": [{"path": "rows.jsonl"}]}
        hub = "hf://datasets/owner"
        datasets = {
            "pairs": {**local, "url": "data/samples/pairs"},
            "twins": {**local, "url": "data/samples/twins", "files": [self.twins]},
            "far": {**local, "url": f"{hub}/far", "version": "a" * 40, **far},
            "gated": {
                **local, "url": f"{hub}/gated", "reader": "agentpack", "version": "main", "follow": True,
                "terms": "https://example.invalid/terms", "license": "NOASSERTION",
            },
            "exam": {**local, "url": "data/samples/exam", "reader": "evaluation", "license": "Apache-2.0"},
        }  # fmt: skip
        tree = {"languages": ["java", "python"], "use": ["pairs", "twins"], "datasets": datasets}
        (self.root / "configs" / "datasets.yaml").write_text(json.dumps(tree), "utf-8")

    def run(self, *arguments: str) -> Result:
        """Run `graftline data` in this process."""
        result = CliRunner().invoke(main, ["--root", str(self.root), "data", *arguments], prog_name="graftline")
        # whatever else is raised would be shown to the user as a traceback
        assert isinstance(result.exception, SystemExit | None), result.exc_info
        return result

    def shown(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error."""
        result = self.run(*arguments)
        return result.exit_code, result.stdout, result.stderr

    def json(self, *arguments: str) -> Any:
        """Return what the one line on standard output says."""
        result = self.run(*arguments, "--json")
        assert (result.stdout.count("\n"), result.stdout[-1:]) == (1, "\n"), result.output
        return json.loads(result.stdout)

    def make(self) -> None:
        """Fetch, normalize and split what is in use."""
        for command in ("fetch", "build"):
            assert self.run(command).exit_code == 0
