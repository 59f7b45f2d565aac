"""The page on evaluation, executed: its files, and its commands one after the other."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.build import Contents, Request, build
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from tests.http_server import HttpAnswer, HttpRequest, json_answer, serve_answers
from tests.pages import fences
from tests.repository_tasks import repository_task
from tests.training_root import CHECKOUT

PAGE = "docs/evaluation.md"
ADAPTER = "first_adapter"


@pytest.fixture
def root(small_checkout: object) -> Path:
    """A root with the file and the pairs of the page, and an adapter."""
    root: Path = small_checkout.root  # type: ignore[attr-defined]
    files = [fence.body for fence in fences() if fence.page == PAGE and fence.language == "yaml"]
    [pair] = [fence.body for fence in fences() if fence.page == PAGE and fence.language == "json"]
    (root / "configs" / "evaluations").mkdir()
    for file in files:
        (root / file.split("\n")[0].removeprefix("# ")).write_text(file, "utf-8")
    (root / "data" / "mine.jsonl").write_text(pair + pair.replace('"rename"', '"again"', 1), "utf-8")
    build(Paths(root).adapter(ADAPTER), Request("trained_adapter", ADAPTER, "1", {}, {}), lambda folder: Contents({}))
    shutil.copy(CHECKOUT / "configs" / "models.yaml", root / "configs")
    instruction = "Let clients answer by `client.get()` instead of `client.fetch()`"
    write_lines(root / "data" / "changes.jsonl", [repository_task(instruction=instruction)])
    return root


@pytest.fixture(autouse=True)
def model(root: Path) -> Iterator[None]:
    """The fleet of the page: it writes the rule, or edits a place, and says no to a place with a dog."""
    action = {"pattern": "client.fetch($A, timeout=$B)", "rewrite": "client.get($A, timeout=$B)"}
    rule = json.dumps({"think": "a", "action": action, "state_update": {"history": ["b"], "next_focus": "c"}})

    def answer(request: HttpRequest) -> HttpAnswer:
        if request.path != "/v1/chat/completions":
            return json_answer({}, 404)
        messages = json.loads(request.body)["messages"]
        question = messages[-1]["content"]
        text = "no" if "dog" in question else "yes"
        if "whole code after the change" in messages[0]["content"]:
            text = "```" + question.split("```")[1].replace("client.fetch", "client.get") + "```"
        elif not question.endswith("Answer yes or no."):
            text = rule
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 9}
        return json_answer({"model": "model", "choices": [choice], "usage": usage})

    with serve_answers(answer) as url:
        fleet = {"engine": "service", "model": "model", "actors": [{"name": "a", "url": url}]}
        # JSON is YAML
        (root / "configs" / "vllm_actors.yaml").write_text(json.dumps({"fleets": {"embedded": fleet}}), "utf-8")
        yield


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

    assert len(outputs) == 8
    assert "solved.one_action" in outputs["graftline eval run mine"]
    assert "4 of 4 attempts count" in outputs["graftline eval list"]
    assert "## Who is better" in outputs["graftline eval report mine"]
    assert "too few tasks" in outputs["graftline eval compare mine several one_action"]
    report = outputs["graftline eval report changes"]
    rows = {row[1]: row[2:] for row in re.findall(r"^(\| )(\S+) +\| 1 +\| (\S+) +\| (\S+)", report, re.MULTILINE)}
    assert rows == {
        "edit-then-induce": ("1.000", "1.000"),
        "write-the-rule": ("1.000", "1.000"),
        "one-demonstration": ("0.000", "0.000"),
        "sed": ("0.000", "0.000"),
    }
    assert "## The best of several attempts" in report
    assert (root / "mine-report" / "attempts.html").exists()
