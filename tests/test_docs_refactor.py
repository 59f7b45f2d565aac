"""`docs/refactor.md`, typed as it stands: what each command prints, with a server that edits as the model of the page did."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http_server import HttpAnswer, HttpRequest, json_answer, serve_answers
from tests.pages import fences

SHOWN = [fence for fence in fences() if fence.page == "docs/refactor.md" and fence.language in ("console", "sh")]
_VARIES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|model: .*")
_OPTIONAL = re.compile(r"t\.Optional\[(str|t\.Any)\]")


@pytest.fixture
def model() -> Iterator[str]:
    """A model that knows how to write optional types, and says yes to each place."""

    def answer(request: HttpRequest) -> HttpAnswer:
        if request.path != "/v1/chat/completions":
            return json_answer({}, 404)
        question = json.loads(request.body)["messages"][-1]["content"]
        is_edit = "\n\nInstruction:\n" in question
        code = question.split("```")[1].partition("\n")[2] if is_edit else ""
        edited = _OPTIONAL.sub(r"\1 | None", code)
        text = f"```python\n{edited}```" if is_edit else "Yes"
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        return json_answer(
            {"model": "model", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}
        )

    with serve_answers(answer) as url:
        yield url


def test_the_walk_comes_to_what_the_page_shows(tmp_path: Path, model: str) -> None:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    fleet = f"{{engine: service, model: model, actors: [{{name: a, url: '{model}'}}]}}"
    (tmp_path / "configs" / "vllm_actors.yaml").write_text(f"fleets: {{embedded: {fleet}}}\n")
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": programs, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment.pop("GRAFTLINE_ROOT", None)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, shell=True, cwd=tmp_path, env=environment, text=True, check=False, **output)

    first, *others = SHOWN
    packages = run(first.body.splitlines()[0])
    if packages.returncode:
        pytest.skip(f"no package index that has Flask 2.2.5: {packages.stdout[-300:]}")
    for fence in (first, *others):
        done = run(fence.body.removeprefix("$ "))
        lines = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("WARNING: "))  # of pip
        assert (done.returncode, fence.body) == (0, fence.body), lines
        if fence.output is not None:
            assert _VARIES.sub("…", lines) == _VARIES.sub("…", fence.output.rstrip("\n"))
    assert run("git -C flask diff --stat").stdout == ""
    assert (tmp_path / "model.diff").read_text().count("\n+") > 77
