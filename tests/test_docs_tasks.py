"""The pages by task, as people follow them: every block of a page, in its order, by a shell in a root of its own.

Not here: the page on clusters, whose blocks need servers; it has tests of its own in `tests.test_docs_cluster`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.paths import Paths
from graftline.core.progress import progress_bars
from graftline.pipeline.run import run_all
from tests.pages import CHECKOUT, PAGES, Fence, codes, fences, pair_of, section, table
from tests.recipes import SYNTHETIC, train_in_memory, write_recipe

EXECUTED = (
    "docs/first-run.md", "docs/provenance.md", "docs/operate.md", "docs/security.md", "docs/add-a-dataset.md",
    "docs/add-a-teacher.md", "docs/add-a-recipe.md",
)  # fmt: skip
PAGES_BY_TASK = (*EXECUTED, "docs/cluster.md")
OF_A_CHECKOUT = ("docs/add-a-dataset.md", "docs/add-a-teacher.md", "docs/add-a-recipe.md")
"""Pages that change the code or the configuration as it is shipped."""


LONG = ("docs/add-a-dataset.md", "docs/add-a-recipe.md", "docs/provenance.md")
"""Pages that take most of half a minute; their commands are run one by one in tests/test_docs.py as well."""


def blocks(page: str) -> list[Fence]:
    return [fence for fence in fences() if fence.page == page and fence.language == "sh"]


@pytest.fixture(scope="module")
def made(new_checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small root in which everything is made, `first_adapter` included."""
    pytest.importorskip("tinker", reason="pip install 'graftline[training]'")
    small = new_checkout(tmp_path_factory.mktemp("tasks") / "root")
    small.configure(languages=("python",), per_partition=1)
    text = "def f{n}(a, b):\n    return {name}(a, b{n})\n"
    pairs = [(n, text.format(n=n, name="old"), text.format(n=n, name="fresh")) for n in range(3)]
    small.write([pair_of(f"python{n}", "python", before, after) for n, before, after in pairs])
    train_in_memory(small.root)
    write_recipe(small.root, "first_adapter", SYNTHETIC)
    with progress_bars() as bars:
        run_all(Paths(small.root), "local", {}, bars)
    root: Path = small.root
    return root


def copied(root: Path) -> Path:
    """Copy what a page changes of a checkout to `root`."""
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("graftline", "configs", "data/samples"):
        shutil.copytree(CHECKOUT / name, root / name, ignore=leave)
    return root


def environment(root: Path, is_checkout: bool) -> Mapping[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith(("GRAFTLINE_", "PYTEST_"))}
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    # the code of the page, in place of that of the checkout
    return {**found, "PYTHONPATH": str(root)} if is_checkout else found


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.long] * (page in LONG)) for page in EXECUTED])
def test_every_block_of_a_page_by_task_does_what_it_says(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_checkout = page in OF_A_CHECKOUT
    root = tmp_path / "root"
    if is_checkout:
        copied(root)
    else:
        shutil.copytree(request.getfixturevalue("made"), root)
    # as `make` leaves it
    (root / ".venv").symlink_to(Path(sys.executable).parents[1])
    found = blocks(page)
    assert found
    # each in the shell that the ones before it left: what is exported stays
    script = "set -e\n" + "".join(f"echo '--- {fence.page}:{fence.line}'\n{fence.body}" for fence in found)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=root,
        env=environment(root, is_checkout),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    if page == "docs/add-a-dataset.md":
        # the rows that the page says are left out, with their reasons, and the edits that are kept
        assert "data/raw/mine/source/commits.jsonl:3" in done.stdout
        assert "'GPL-3.0-only' is not allowed" in done.stdout
        assert "the file was deleted" in done.stdout
        assert "2 passed" in done.stdout
    if page == "docs/provenance.md":
        assert "all as they were." in done.stdout
        assert {"lineage.mmd", "lineage.dot", "NOTICE.adapter", "adapter.cdx.json"} <= {
            path.name for path in root.iterdir()
        }


def test_every_block_of_a_page_by_task_is_one_that_is_executed() -> None:
    # python: tests/test_docs.py; bash: its targets are looked at in tests/test_docs_commands.py; text: what is printed
    other = [
        f"{fence.page}:{fence.line}"
        for fence in fences()
        if fence.page in EXECUTED and fence.language not in ("sh", "python", "bash", "text")
    ]
    assert other == []
    bash = [fence.body for fence in fences() if fence.page in EXECUTED and fence.language == "bash"]
    assert [line for body in bash for line in body.splitlines() if not line.startswith("make ")] == []


def test_every_page_by_task_is_named_in_the_readme() -> None:
    text = PAGES["README.md"].read_text("utf-8")
    assert [page for page in PAGES_BY_TASK if f"({page})" not in text] == []


@pytest.mark.parametrize("page", PAGES_BY_TASK)
def test_files_and_folders_that_a_page_names_exist(page: str) -> None:
    spans = codes(PAGES[page].read_text("utf-8"))
    ours = re.compile(r"(src|tests|deploy|configs)/[\w./-]+")
    named = [span for span in spans if ours.fullmatch(span) and "<" not in span]
    assert [span for span in named if not (CHECKOUT / span).exists()] == []


def test_every_line_of_the_security_model_names_tests_that_exist() -> None:
    rows = table(PAGES["docs/security.md"].read_text("utf-8"))
    assert len(rows) >= 10
    for row in rows:
        tests = codes(row[3])
        assert tests, row[0]
        assert [test for test in tests if not (CHECKOUT / test).is_file()] == []


def test_every_fault_of_the_soak_names_tests_that_exist() -> None:
    text = section("docs/benchmarks.md", "## Soak")
    rows = table(text[text.index("| fault | tests |") - 1 :])
    named = [test for row in rows for test in codes(row[1])]
    assert len(rows) >= 7
    assert [test for test in named if not (CHECKOUT / test).is_file()] == []
