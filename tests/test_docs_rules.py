"""`docs/rules.md`: its commands print what is shown, in the order in which they stand, and its tables are complete."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.codemod.history import MAX_BLOB_BYTES, MAX_FILES_OF_COMMIT
from graftline.codemod.hunks import MAX_CHANGED_LINES, MAX_LINES
from graftline.codemod.learn import REASONS
from graftline.codemod.rule_file import read_rules
from tests.pages import PAGES, codes, fences, section, table
from tests.rules_examples import EXAMPLES, write_rules_examples

SHOWN = [fence for fence in fences() if fence.page == "docs/rules.md" and fence.language in ("console", "sh")]


def test_the_files_that_are_shown_are_those_that_are_shipped() -> None:
    shown = re.findall(r"`([\w./]+)`:\n\n```py\n(.*?)```$", PAGES["docs/rules.md"].read_text("utf-8"), re.M | re.S)
    assert {name: (EXAMPLES / name).read_text("utf-8") for name, _ in shown} == dict(shown)
    assert len(shown) == 5


def test_every_command_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    write_rules_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAFTLINE_ROOT", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for fence in SHOWN[1:]:  # the first makes the repository
        if fence.language == "sh":
            subprocess.run(fence.body, shell=True, check=True)
            continue
        result = CliRunner().invoke(main, shlex.split(fence.body.removeprefix("$ "))[1:])
        said = "".join(
            line
            for line in result.output.splitlines(keepends=True)
            if not line.startswith(("commits of ", "groups of ", "rules of "))
        )  # progress
        assert (result.exit_code, said if fence.output is not None else None) == (0, fence.output), fence.body
    assert len(SHOWN) >= 8
    kinds = set[str]()
    for name in ("rules.yml", "mined.yml"):
        [rule] = read_rules((tmp_path / name).read_text("utf-8"), name)
        kinds |= {*rule.facts, "examples"}
    keys = {codes(row[0])[0] for row in table(section("docs/rules.md", "## The rule file"))}
    assert keys == kinds | {"stays", "removes"}


def test_the_reasons_are_the_documented_ones() -> None:
    rows = table(section("docs/rules.md", "## From one example"))
    assert {codes(row[0])[0]: row[1] for row in rows} == {key: said for key, said in REASONS.items() if key}


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    words = " ".join(PAGES["docs/rules.md"].read_text("utf-8").split())
    said = [
        f"statements of at most {MAX_LINES} lines",
        f"changes of more than {MAX_CHANGED_LINES} lines",
        f"more than {MAX_FILES_OF_COMMIT} files",
        f"more than {MAX_BLOB_BYTES:,} bytes",
    ]
    assert [one for one in said if one not in words] == []
