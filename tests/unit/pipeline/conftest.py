"""Runs of the whole lineage over small root folders."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.clock import Clock
from graftline.core.paths import Paths
from graftline.pipeline.run import run_all
from tests.lineages import NOON, Opened, Quiet, Run, opened_at
from tests.recipes import write_recipes


@pytest.fixture(scope="session")
def run() -> Callable[..., dict[str, str]]:
    """Bring everything below a root up to date; return by `stage name` why it was made, empty if it was not."""

    def run(
        root: Path, overrides: Mapping[str, Any] | None = None, manifest: str = "local", clock: Clock = lambda: NOON
    ) -> dict[str, str]:
        ports = {"sandbox": "memory"} if overrides is None else overrides
        built = run_all(Paths(root), manifest, ports, Quiet(), clock)
        return {f"{one.record.kind} {one.record.name}": one.reason for one in built}

    return run


@pytest.fixture(scope="session")
def reconfigure() -> Callable[..., None]:
    """Set values of a configuration file by dotted key."""

    def reconfigure(root: Path, file: str, changes: Mapping[str, Any]) -> None:
        path = root / "configs" / file
        tree = json.loads(path.read_text("utf-8"))
        for dotted, value in changes.items():
            *above, last = dotted.split(".")
            inner = tree
            for key in above:
                inner = inner.setdefault(key, {})
            inner[last] = value
        path.write_text(json.dumps(tree), "utf-8")

    return reconfigure


@pytest.fixture(scope="session")
def _made(
    new_checkout: Any,
    run: Callable[..., Any],
    reconfigure: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    checkout = new_checkout(tmp_path_factory.mktemp("made") / "checkout")
    reconfigure(checkout.root, "datasets.yaml", {"languages": ["python"]})
    checkout.write(
        [
            {
                "id": f"release:{number}",
                "source": "pypi:demo 1.0->2.0",
                "license": "MIT",
                "language": "python",
                "pre": f"def f{number}(a, b):\n    return old(a, b{number})\n",
                "post": f"def f{number}(a, b):\n    return new(a, b{number})\n",
                "registry": "pypi",
                "pkg": f"demo{number}",
                "old": "1.0",
                "new": "2.0",
                "path": "demo.py",
                "qual": f"f{number}",
            }
            for number in range(3)
        ]
    )
    run(checkout.root)
    return checkout.root


@pytest.fixture
def made(_made: Path, tmp_path: Path) -> Path:
    """A root of its own with three rows of Python, of which everything is made: 17 artifacts."""
    return Path(shutil.copytree(_made, tmp_path / "made"))


@pytest.fixture
def opened(small_checkout: Any) -> Opened:
    """Open the lineage of the small checkout, without child processes."""
    return lambda: opened_at(small_checkout.root, {"sandbox": "memory"})


TRAINED_BY = {"sandbox": "memory", "training_client": "memory"}


@pytest.fixture(scope="session")
def trained_run(_made: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The small root with the recipes `seen` and `tiny` trained, and why each artifact was made."""
    pytest.importorskip("tinker", reason="pip install 'graftline[training]'")
    root = Path(shutil.copytree(_made, tmp_path_factory.mktemp("trained") / "root"))
    write_recipes(root)
    return root, run(root, TRAINED_BY)
