"""Trajectories that are made of recorded calls: conversations, what is sent again, what no agent said."""

import resource
from pathlib import Path
from typing import Any

import orjson
import pytest

from graftline.harbor.model_proxy.calls import CallFile, ModelCall, call_lines, read_calls
from graftline.harbor.model_proxy.trajectories import atif_of_calls, trace_of_calls, training_rows
from graftline.llm.base import OutputTerms
from tests.unit.harbor.published import needs_harbor, published

USER = {"role": "user", "content": "Fix it"}


def call(number: int, messages: list[dict[str, Any]], answer: dict[str, Any] | str, **more: Any) -> ModelCall:
    message = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
    values: dict[str, Any] = {"started_at": float(number), "latency_s": 1.0, "interface": "/chat/completions"}
    values |= {"requested_model": "m", "model": "m", "prompt_tokens": 3, "completion_tokens": 1, **more}
    return ModelCall(rollout_id="r", attempt=1, number=number, messages=tuple(messages), answer=message, **values)


def said(text: str, *ids: str) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "run", "arguments": "{"}} for id in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def shapes(document: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (step["source"], step["message"], step.get("extra", {}).get("conversation", 1)) for step in document["steps"]
    ]


def test_an_aside_is_a_conversation_of_its_own_and_the_first_one_goes_on() -> None:
    answer = said("Looking", "a", "b")
    results = [{"role": "tool", "tool_call_id": id, "content": f"result {id}"} for id in ("a", "b")]
    document = atif_of_calls(
        [
            call(1, [USER], answer),
            call(2, [{"role": "user", "content": "A title, please"}], "Fixing"),
            call(3, [USER, answer, *results], "Done"),
        ],
        "codex",
    )
    assert shapes(document) == [
        ("user", "Fix it", 1),
        ("agent", "Looking", 1),
        ("user", "A title, please", 2),
        ("agent", "Fixing", 2),
        ("agent", "Done", 1),
    ]
    assert [step["step_id"] for step in document["steps"]] == [1, 2, 3, 4, 5]
    looking = document["steps"][1]
    # arguments that are no JSON are kept as they came
    assert looking["tool_calls"][0] == {"tool_call_id": "a", "function_name": "run", "arguments": {"text": "{"}}
    assert [result["source_call_id"] for result in looking["observation"]["results"]] == ["a", "b"]


def test_parts_of_an_answer_that_are_sent_again_one_by_one_are_no_further_steps() -> None:
    answer = said("Looking", "a", "b")
    parts = [said("Looking"), said("", "a"), said("", "b")]
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    document = atif_of_calls([call(1, [USER], answer), call(2, [USER, *parts[:2], result, parts[2]], "Done")], "codex")
    assert [step["message"] for step in document["steps"]] == ["Fix it", "Looking", "Done"]


def test_what_was_said_before_is_marked_as_copied() -> None:
    document = atif_of_calls([call(1, [USER, said("Earlier"), USER], "Done")], "")
    earlier = document["steps"][1]
    assert (earlier["source"], earlier["is_copied_context"], earlier["llm_call_count"]) == ("agent", True, 0)
    assert document["agent"]["name"] == "unknown"


def test_a_call_that_broke_off_and_the_one_after_it_are_both_steps() -> None:
    document = atif_of_calls(
        [call(1, [USER], "Hal", fault="broke off"), call(2, [USER], "Whole", cost_usd=1.0)], "codex"
    )
    assert shapes(document) == [("user", "Fix it", 1), ("agent", "Hal", 1), ("agent", "Whole", 1)]
    assert document["steps"][1]["extra"]["fault"] == "broke off"
    # of one of them nobody knows
    assert "total_cost_usd" not in document["final_metrics"]


def test_a_trace_that_would_be_too_large_has_no_token_ids() -> None:
    ids = tuple(range(1_000_000))
    trace = trace_of_calls([call(1, [USER], "x", prompt_token_ids=ids, token_ids=(1,), logprobs=(-1.0,))], "codex")
    assert trace is not None
    assert "completion_token_ids" not in trace["steps"][1]["metrics"]
    assert trace_of_calls([call(1, [{"role": "user", "content": "x" * (5 << 20)}], "x")], "codex") is None
    assert trace_of_calls([], "codex") is None


@needs_harbor
def test_the_published_models_take_what_is_made_of_calls() -> None:
    answer = said("Looking", "a", "b")
    results = [{"role": "tool", "tool_call_id": id, "content": "x"} for id in ("a", "unknown")]
    tokens: dict[str, Any] = {"prompt_token_ids": (1, 2), "token_ids": (3,), "logprobs": (-1.0,)}
    calls = [
        call(1, [USER], answer, **tokens),
        call(2, [{"role": "system", "content": "x"}, said("Earlier"), USER], {"content": None, "reasoning": "hm"}),
        call(3, [USER, answer, *results], "Done", fault="broke off", cost_usd=1.0),
    ]
    program = """
from harbor.models.trajectories import Trajectory
print(json.dumps(len(Trajectory.model_validate(given).steps)))
"""
    assert published(program, atif_of_calls(calls, "codex")) == 7


def test_no_row_is_made_of_what_may_not_be_trained_on_or_broke_off() -> None:
    forbidden = OutputTerms(may_train=False, terms="no", source="https://example.org")
    calls = [call(1, [USER], "a", outputs=forbidden), call(2, [USER], "b", fault="broke off"), call(3, [USER], "c")]
    [row] = training_rows(calls, {"reward": 1.0, "reward_valid": True, "task_id": "t"})
    assert (row["step"], row["messages"], row["reward"], row["reward_cause"]) == (3, [USER, said("c")], 1.0, "verified")


def test_a_call_that_the_disk_takes_a_part_of_is_lost_and_those_after_it_are_not(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    file = CallFile(path)
    file.add(call(1, [USER], "one"))
    bound, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, most))
    try:
        with pytest.raises(OSError, match="No space left"):
            file.add(call(2, [USER], "two"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound, most))
    file.add(call(3, [USER], "three"))
    file.close()
    assert [call.number for call in read_calls(map(orjson.loads, call_lines(path)), "r")] == [1, 3]
