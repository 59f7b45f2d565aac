"""ATIF as models: what is a document, what is a fault, and that ours and the published models agree."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import DataError
from graftline.rollouts.collect import Collecting, collect
from graftline.rollouts.exports.atif import atif
from graftline.rollouts.exports.atif_schema import AtifDocument, check_atif
from graftline.rollouts.task import Task
from graftline.sandbox.actions.memory import MemorySandbox
from tests.unit.harbor.published import needs_harbor, published

WHOLE: dict[str, Any] = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s",
    "trajectory_id": "t",
    "agent": {
        "name": "codex",
        "version": "1.2",
        "model_name": "m",
        "tool_definitions": [{"type": "function", "function": {"name": "run"}}],
        "extra": {"any": ["thing", None]},
    },
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief.", "timestamp": "2026-01-02T03:04:05Z"},
        {
            "step_id": 2,
            "source": "user",
            "message": [
                {"type": "text", "text": "Look."},
                {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
                {"type": "audio", "source": {"media_type": "audio/mpeg", "path": "a.mp3", "duration_sec": 2}},
            ],
            "is_copied_context": True,
        },
        {
            "step_id": 3,
            "source": "agent",
            "model_name": "m",
            "reasoning_effort": 0.5,
            "message": "Running.",
            "reasoning_content": "I run it.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "run", "arguments": {"cmd": "ls"}, "extra": {}}],
            "observation": {
                "results": [
                    {"source_call_id": "c1", "content": "a b", "extra": {"status": 0}},
                    {"subagent_trajectory_ref": [{"trajectory_id": "inner", "session_id": "s"}]},
                ]
            },
            "metrics": {
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "cached_tokens": 4,
                "cost_usd": 0.25,
                "prompt_token_ids": [1, 2],
                "completion_token_ids": [3],
                "logprobs": [-0.5],
            },
            "llm_call_count": 1,
            "extra": {"reward": None},
        },
        {"step_id": 4, "source": "agent", "message": "", "llm_call_count": 0},
    ],
    "notes": "n",
    "final_metrics": {"total_prompt_tokens": 10, "total_cost_usd": 0.25, "total_steps": 4},
    "continued_trajectory_ref": "next.json",
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.7",
            "trajectory_id": "inner",
            "agent": {"name": "a", "version": "1"},
            "steps": [{"step_id": 1, "source": "user", "message": "x"}],
        }
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return `WHOLE` with one value replaced, or removed where it is `...`."""
    document = deepcopy(WHOLE)
    place: Any = document
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


FAULTS: list[tuple[str, Any, str]] = [
    ("schema_version", "ATIF-v1.9", "ATIF: schema_version: input should be 'ATIF-v1.0'"),
    ("schema_version", ..., "ATIF: schema_version: field required"),
    ("reward", 1.0, "ATIF: reward: is no key of the format; put what is yours below extra"),
    ("steps.2.reward", 1.0, "ATIF: steps.2.reward: is no key of the format"),
    ("agent.version", 1, "ATIF: agent.version: input should be a valid string"),
    ("steps", [], "ATIF: steps: "),
    ("steps.2.step_id", 7, r"steps\.2\.step_id: expected 3, for steps count from 1, got 7"),
    ("steps.2.step_id", True, r"steps\.2\.step_id: input should be a valid integer"),
    ("steps.0.timestamp", "yesterday", r"steps\.0\.timestamp: "),
    ("steps.0.model_name", "m", r"steps\.0: model_name is for source 'agent', not 'system'"),
    ("steps.1.reasoning_content", "m", r"steps\.1: reasoning_content is for source 'agent', not 'user'"),
    ("steps.3.metrics", {}, r"steps\.3: metrics must be absent where llm_call_count is 0"),
    ("steps.3.reasoning_content", "", r"steps\.3: reasoning_content must be absent where llm_call_count is 0"),
    ("steps.2.llm_call_count", -1, r"steps\.2\.llm_call_count: "),
    (
        "steps.2.observation.results.0.source_call_id",
        "c9",
        r"steps\.2: source_call_id 'c9' is no tool call of this step",
    ),
    ("steps.2.tool_calls.0.arguments", "ls", r"steps\.2\.tool_calls\.0\.arguments: "),
    ("steps.1.message.0.text", ..., "a part of type 'text' has a text and no source"),
    ("steps.1.message.1.source.media_type", "audio/wav", "source"),
    ("steps.1.message.1.type", "audio", "a part of type 'audio' has no text and a source of that type"),
    ("steps.1.message.2.source.duration_sec", -1, "duration_sec"),
    ("steps.2.observation.results.1.subagent_trajectory_ref.0.trajectory_id", ..., "names neither trajectory_id nor"),
    ("subagent_trajectories.0.trajectory_id", ..., "every one needs a trajectory_id of its own"),
    ("subagent_trajectories", [WHOLE["subagent_trajectories"][0]] * 2, "every one needs a trajectory_id of its own"),
    ("final_metrics.total_steps", -1, "total_steps"),
]


def test_all_of_the_format_is_read_and_comes_back() -> None:
    assert check_atif(WHOLE).document() == WHOLE


@pytest.mark.parametrize("minor", range(9))
def test_every_version_is_read(minor: int) -> None:
    assert check_atif(changed("schema_version", f"ATIF-v1.{minor}")).schema_version == f"ATIF-v1.{minor}"


@pytest.mark.parametrize(
    ("path", "value", "message"), FAULTS, ids=[f"{path}={value!r:.20}" for path, value, _ in FAULTS]
)
def test_a_fault_is_named_by_its_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_atif(changed(path, value))


def test_names_of_sounds_that_are_not_registered_are_read_as_those_that_are() -> None:
    read = check_atif(changed("steps.1.message.2.source.media_type", "audio/mp3"))
    assert read.document() == WHOLE


@pytest.mark.parametrize("document", ["", "[]", "{", b"\xff", None, 3, {"a": float("nan")}, {"a": {1, 2}}])
def test_what_is_no_document_is_refused(document: Any) -> None:
    with pytest.raises(DataError, match=r"^ATIF: "):
        check_atif(document)


def test_many_faults_are_told_in_part() -> None:
    with pytest.raises(DataError) as caught:
        check_atif({**WHOLE, **{f"key{number}": 1 for number in range(30)}}, "trial.json")
    assert str(caught.value).splitlines()[-1] == "trial.json: and 10 more faults"


Made = Callable[[Sequence[PatternAction | RuleAction]], Any]


@pytest.fixture
def ours(task_of: Callable[..., Task], reading: Callable[..., Any]) -> dict[str, Any]:
    """A document exported from an attempt of two steps, the first of them wrong."""
    actions = [PatternAction(pattern="none($A)", rewrite="x($A)"), PatternAction(pattern="old($A)", rewrite="x($A)")]
    return atif(collect(task_of("old('é')\n", "x('é')\n"), reading(actions), MemorySandbox(), Collecting()))


def test_what_we_export_is_a_document(ours: dict[str, Any]) -> None:
    assert check_atif(ours).document() == ours


def test_the_schema_can_be_published() -> None:
    schema = AtifDocument.model_json_schema()["$defs"]["AtifDocument"]
    assert schema["required"] == ["schema_version", "agent", "steps"]
    assert schema["additionalProperties"] is False


@needs_harbor
def test_the_published_models_agree(ours: dict[str, Any]) -> None:
    documents = [WHOLE, ours, *(changed(path, value) for path, value, _ in FAULTS)]
    program = """
from pydantic import ValidationError
from harbor.models.trajectories import Trajectory
def is_one(document):
    try:
        Trajectory.model_validate(document)
    except ValidationError:
        return False
    return True
print(json.dumps([is_one(document) for document in given]))
"""
    found = published(program, documents)
    # a document that does not say its version is read as one of the last there
    read = {path for (path, value, _), fits in zip(FAULTS, found[2:], strict=True) if fits and value is ...}
    assert (found[:2], sum(found[2:]), read) == ([True, True], 1, {"schema_version"})
