"""What is made of recorded calls: a trajectory in ATIF, and rows that recipes train on.

ATIF-v1.8 is that of `rollouts.exports.atif`. An agent may have several conversations, with itself or after it has shortened one; a
call goes on with the one that it begins with. Steps of all of them are in the order of time, and those of the first say nothing
of it. A row has the columns that rows of trajectories have, and those of a call beside them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from graftline import __version__
from graftline.harbor.model_proxy.calls import ModelCall
from graftline.harbor.model_proxy.interfaces import text_of
from graftline.rollouts.exports.atif import SCHEMA_VERSION

Json = dict[str, Any]
_MAX_TRACE_BYTES = 4 << 20
"""Of what an answer of the service holds; with token ids it may be much."""


@dataclass(slots=True)
class _Conversation:
    number: int
    messages: Sequence[Json] = ()
    answer: Json = field(default_factory=dict)
    """The step of the model that came last."""


def atif_of_calls(
    calls: Sequence[ModelCall], agent: str, extra: Mapping[str, Any] | None = None, has_tokens: bool = True
) -> Json:
    """Return what was asked and answered as an ATIF document; `has_tokens` adds token ids and logprobs, as far as they are known."""
    steps: list[Json] = []
    conversations: list[_Conversation] = []
    for call in calls:
        conversation = _find_conversation(conversations, call)
        new = call.messages[len(conversation.messages) :]
        for message in new:
            if not conversation.answer or not _is_of(message, conversation.answer, message is new[0]):
                _add_message(steps, message, conversation)
        conversation.messages = call.messages
        conversation.answer = _answer_step(call, has_tokens)
        _add(steps, conversation.answer, conversation)
    totals: Json = {f"total_{name}": sum(getattr(call, name) for call in calls) for name in _COUNTS}
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    if len(costs) == len(calls):
        totals["total_cost_usd"] = sum(costs)
    model = {"model_name": calls[0].model} if calls else {}
    return {
        "schema_version": SCHEMA_VERSION,
        **({"session_id": f"{calls[0].rollout_id}/{calls[0].attempt}"} if calls else {}),
        "agent": {"name": agent or "unknown", "version": __version__, **model},
        "steps": steps,
        "final_metrics": {**totals, "total_steps": len(steps)},
        "extra": {"recorded_by": "graftline model proxy", **(extra or {})},
    }


def trace_of_calls(calls: Sequence[ModelCall], agent: str) -> Json | None:
    """Return an ATIF document for an answer of the service, without token ids where it is too large with them; None without calls."""
    for has_tokens in (True, False):
        trace = atif_of_calls(calls, agent, has_tokens=has_tokens) if calls else None
        if trace is None or len(json.dumps(trace)) <= _MAX_TRACE_BYTES:
            return trace
    return None


def training_rows(calls: Iterable[ModelCall], rollout: Mapping[str, Any]) -> Iterator[Json]:
    """Yield a row for each call that got a whole answer and may be trained on; `rollout` is a view of the service.

    `messages` ends with the answer. A reward that does not count is none, with its cause.
    """
    reward = rollout.get("reward") if rollout.get("reward_valid") else None
    agent = ((rollout.get("lock") or {}).get("agent") or {}).get("agent")
    for call in calls:
        if call.fault or (call.outputs is not None and call.outputs.may_train is False):
            continue
        yield {
            "task_id": rollout.get("task_id"),
            "dataset": rollout.get("deployment_id"),
            "teacher": agent or "unknown",
            "rollout_id": call.rollout_id,
            "attempt": call.attempt,
            "step": call.number,
            "model": call.model,
            "messages": [*call.messages, call.answer],
            "parameters": call.parameters,
            **{name: getattr(call, name) for name in ("prompt_token_ids", "token_ids", "logprobs")},
            **{name: getattr(call, name) for name in (*_COUNTS, "cost_usd", "latency_s")},
            "reward": reward,
            "reward_cause": rollout.get("failure_cause") or ("verified" if reward is not None else "unknown"),
        }


_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")


def _find_conversation(conversations: list[_Conversation], call: ModelCall) -> _Conversation:
    """Return the conversation that a call goes on with: the longest that it begins with, else a new one."""
    begun = [
        conversation
        for conversation in conversations
        if [*call.messages[: len(conversation.messages)]] == [*conversation.messages]
    ]
    if not begun:
        begun = [_Conversation(len(conversations) + 1)]
        conversations += begun
    return max(begun, key=lambda conversation: len(conversation.messages))


def _is_of(message: Json, step: Json, is_first: bool) -> bool:
    """Return whether a message that is sent again is the answer of `step`, or a part of it."""
    if message.get("role") != "assistant":
        return False
    ids = {call["tool_call_id"] for call in step.get("tool_calls", ())}
    return is_first or any(call.get("id") in ids for call in message.get("tool_calls") or ())


def _add_message(steps: list[Json], message: Json, conversation: _Conversation) -> None:
    role, text = message.get("role"), text_of(message.get("content"))
    if role == "tool" and conversation.answer:
        ids = {call["tool_call_id"] for call in conversation.answer.get("tool_calls", ())}
        id = message.get("tool_call_id")
        source = {"source_call_id": id} if id in ids else {}
        observation = conversation.answer.setdefault("observation", {"results": []})
        observation["results"].append({**source, "content": text})
        return
    source_of_step = {"system": "system", "developer": "system", "assistant": "agent"}.get(str(role), "user")
    step: Json = {"source": source_of_step, "message": text}
    if role == "assistant":
        # said before, by whoever: no call of this attempt has made it
        step |= {"is_copied_context": True, "llm_call_count": 0}
    _add(steps, step, conversation)


def _add(steps: list[Json], step: Json, conversation: _Conversation) -> None:
    step["step_id"] = len(steps) + 1
    if conversation.number > 1:
        step["extra"] = {**step.get("extra", {}), "conversation": conversation.number}
    steps.append(step)


def _answer_step(call: ModelCall, has_tokens: bool) -> Json:
    answer, extra = call.answer, {"latency_s": call.latency_s, "finish_reason": call.finish_reason}
    metrics: Json = {name: getattr(call, name) for name in _COUNTS}
    if call.cost_usd is not None:
        metrics["cost_usd"] = call.cost_usd
    if has_tokens and call.token_ids:
        metrics |= {"prompt_token_ids": [*call.prompt_token_ids], "completion_token_ids": [*call.token_ids]}
        metrics["logprobs"] = [*call.logprobs]
    step: Json = {
        "source": "agent",
        "timestamp": datetime.fromtimestamp(call.started_at, UTC).isoformat(),
        "model_name": call.model,
        "message": text_of(answer.get("content")),
        "llm_call_count": 1,
        "metrics": metrics,
        "extra": {**extra, **({"fault": call.fault} if call.fault else {})},
    }
    thoughts = answer.get("reasoning") or answer.get("reasoning_content")
    if isinstance(thoughts, str) and thoughts:
        step["reasoning_content"] = thoughts
    if tool_calls := [_tool_call(tool_call, number) for number, tool_call in enumerate(answer.get("tool_calls") or ())]:
        step["tool_calls"] = tool_calls
    return step


def _tool_call(tool_call: Json, number: int) -> Json:
    function = tool_call.get("function") or {}
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        arguments = None
    return {
        "tool_call_id": str(tool_call.get("id") or f"call-{number}"),
        "function_name": str(function.get("name") or "unknown"),
        "arguments": arguments if isinstance(arguments, dict) else {"text": str(text)},
    }
