"""The hosted models of `configs/vllm_actors.yaml`, each asked as its provider is to be asked, and answering in its way."""

import json
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Fleet, load_fleet, load_fleets
from graftline.llm.open import ActorsConfig, open_chat_model
from graftline.rollouts.state.state import State
from graftline.rollouts.teachers.base import Generation, Proposal
from graftline.rollouts.teachers.openai import OpenAITeacher
from graftline.rollouts.teachers.prompt import load_prompt
from tests.protocol_server import Fault, ProtocolServer
from tests.tasks import make_task

TASK = make_task("x = old(1)\n", "x = new(1)\n", instruction="Rename `old` to `new`.")
ANSWER = '<action>{"pattern": "old($A)", "rewrite": "new($A)"}</action>\n<state_update>{"history": ["renamed"]}'
THOUGHT = "Calls of old change."
HOSTED: dict[str, dict[str, Any]] = {
    "glm-4.6": {
        "path": "/api/paas/v4/chat/completions",
        "key": "ZAI_API_KEY",
        "sent": {"model": "glm-4.6", "max_tokens": 10_240, "temperature": 0.0},
        "message": {"content": ANSWER, "reasoning_content": THOUGHT},
        # 400 of 1,000 tokens at $0.11, 600 at $0.60, 200 written at $2.20, for a million
        "cost_usd": (400 * 0.11 + 600 * 0.60 + 200 * 2.20) / 1e6,
    },
    "minimax-m2": {
        "path": "/v1/chat/completions",
        "key": "MINIMAX_API_KEY",
        "sent": {"model": "MiniMax-M2", "max_tokens": 10_240, "temperature": 0.01, "reasoning_split": True},
        "message": {"content": ANSWER, "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]},
        "cost_usd": (400 * 0.03 + 600 * 0.30 + 200 * 1.20) / 1e6,
    },
    "kimi-k2-thinking": {
        "path": "/openai/chat/completions",
        "key": "NOVITA_API_KEY",
        "sent": {"model": "moonshotai/kimi-k2-thinking", "max_tokens": 10_240, "temperature": 1.0},
        "message": {"content": ANSWER, "reasoning_content": THOUGHT},
        "cost_usd": (400 * 0.15 + 600 * 0.60 + 200 * 2.50) / 1e6,
    },
    "qwen3-14b": {
        "path": "/compatible-mode/v1/chat/completions",
        "key": "DASHSCOPE_API_KEY",
        "sent": {"model": "qwen3-14b", "max_tokens": 2048, "temperature": 0.0, "enable_thinking": False},
        "message": {"content": f"<think>{THOUGHT}</think>\n{ANSWER}"},
        "cost_usd": None,
    },
}


def at(server: ProtocolServer, fleet: Fleet, folder: Path, name: str) -> Path:
    """Write `fleet` into `folder` with its only actor at `server`, and return the folder."""
    entry = fleet.model_dump(mode="json")
    entry["actors"][0]["url"] = server.url
    (folder / "vllm_actors.yaml").write_text(json.dumps({"fleets": {name: entry}}), "utf-8")
    return folder


@pytest.mark.parametrize("name", HOSTED)
def test_a_provider_is_asked_as_it_has_to_be_and_its_answer_is_read_and_paid(
    checkout: Path, tmp_path: Path, server: ProtocolServer, name: str
) -> None:
    fleet, hosted = load_fleet(checkout / "configs", name), HOSTED[name]
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 400}}
    choice = {"index": 0, "message": {"role": "assistant", **hosted["message"]}, "finish_reason": "stop"}
    reply = json.dumps({"model": fleet.model, "choices": [choice], "usage": usage})
    server.become(model=fleet.model, api_key="sk-hidden", api_path=fleet.api_path, faults=[Fault(body=reply)])
    secrets = Secrets([EnvironmentSecrets({hosted["key"]: "sk-hidden"})])
    prompt = load_prompt(checkout / "configs", fleet.prompt)

    with BlockingChatModel(
        open_chat_model(ActorsConfig(fleet=name), at(server, fleet, tmp_path, name), secrets)
    ) as model:
        proposal = OpenAITeacher(model, prompt, fleet.prompt_and_answer_tokens).propose(TASK, TASK.before, State())

    seen = server.seen()
    [body] = seen.bodies
    optional = {"seed": body["seed"]} if fleet.takes_seed else {}
    assert body.pop("messages")[-1]["content"].count("x = old(1)") == 1
    assert (body, seen.paths) == (
        {**hosted["sent"], "stop": ["</state_update>"], **optional},
        {f"POST {hosted['path']}": 1},
    )
    assert isinstance(proposal, Proposal)
    assert (proposal.think, proposal.action) == (THOUGHT, PatternAction(pattern="old($A)", rewrite="new($A)"))
    made = proposal.generation
    assert isinstance(made, Generation)
    assert (made.prompt_tokens, made.cached_tokens, made.completion_tokens) == (1000, 400, 200)
    assert made.cost_usd == (None if hosted["cost_usd"] is None else pytest.approx(hosted["cost_usd"]))
    assert (made.outputs, made.temperature) == (fleet.outputs, body["temperature"])


@pytest.mark.parametrize("name", HOSTED)
def test_each_has_vllm_beside_it_with_terms_that_somebody_verified(checkout: Path, name: str) -> None:
    fleets = load_fleets(checkout / "configs")
    hosted, own = fleets[name], fleets[f"{name}-vllm"]
    assert (own.engine, own.license, own.price) == ("vllm", hosted.license, None)
    assert hosted.outputs is not None
    assert own.outputs is not None
    assert (hosted.outputs.may_train, own.outputs.may_train) == (None, True)
    # trajectories tell the two apart
    assert own.called != hosted.called
    assert hosted.price is None or (hosted.price.source.startswith("https://") and hosted.price.date)
