"""`docs/refactor.md`, typed as it stands: what each command prints, with a server that edits as the model of the page did."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http_server import HttpAnswer, HttpRequest, json_answer, serve_answers
from tests.page_walk import Walk

_OPTIONAL = re.compile(r"t\.Optional\[(str|t\.Any)\]")


@pytest.fixture
def model() -> Iterator[str]:
    """A model that knows how to write optional types, and says yes to each place."""

    def answer(request: HttpRequest) -> HttpAnswer:
        if request.path != "/v1/chat/completions":
            return json_answer({}, 404)
        question = json.loads(request.body)["messages"][-1]["content"]
        is_edit = "\nTask: " in question
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
    walk = Walk("docs/refactor.md", tmp_path)
    assert [fence.body for fence in walk.type_all()]
    assert walk.run("git -C flask diff --stat").stdout == ""
    assert (tmp_path / "model.diff").read_text().count("\n+") > 77
