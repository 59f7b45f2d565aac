"""The page on evaluation, executed: its files, and its commands one after the other."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.build import Contents, Request, build
from graftline.core.paths import Paths
from tests.pages import fences

PAGE = "docs/evaluation.md"
ADAPTER = "first_adapter"


@pytest.fixture
def root(small_checkout: object) -> Path:
    """A root with the file and the pairs of the page, and an adapter."""
    root: Path = small_checkout.root  # type: ignore[attr-defined]
    [file] = [fence.body for fence in fences() if fence.page == PAGE and fence.language == "yaml"]
    [pair] = [fence.body for fence in fences() if fence.page == PAGE and fence.language == "json"]
    (root / "configs" / "evaluations").mkdir()
    (root / "configs" / "evaluations" / "mine.yaml").write_text(file, "utf-8")
    (root / "data" / "mine.jsonl").write_text(pair + pair.replace('"rename"', '"again"', 1), "utf-8")
    build(Paths(root).adapter(ADAPTER), Request("trained_adapter", ADAPTER, "1", {}, {}), lambda folder: Contents({}))
    return root


def test_the_commands_of_the_page_succeed_one_after_the_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    shown = [
        line for fence in fences() if fence.page == PAGE and fence.language == "sh" for line in fence.body.splitlines()
    ]
    ports = ["--set", "sandbox=memory"]
    outputs = {}
    for line in shown:
        typed = [*shlex.split(line)[1:], *(ports if " run " in line else [])]
        result = CliRunner().invoke(main, typed, env={"GRAFTLINE_ROOT": str(root)})
        assert result.exit_code == 0, (line, result.output)
        outputs[line] = result.output

    assert len(outputs) == 6
    assert "solved.one_action" in outputs["graftline eval run mine"]
    assert "4 of 4 attempts count" in outputs["graftline eval list"]
    assert "## Who is better" in outputs["graftline eval report mine"]
    assert "too few tasks" in outputs["graftline eval compare mine several one_action"]
    assert (root / "mine-report" / "attempts.html").exists()
