"""Adapters of the training backend, served by the embedded server: what it answers is what the backend samples.

Models are tiny and random, in float32 on both sides, with adapters of random weights that are large enough to change most
answers. The test of the real small model needs its weights, `graftline model fetch smollm2-135m` and `convert`.
"""

import asyncio
import json
import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.training.conftest import EXTRA

# which needs torch, transformers and gguf
pytest.importorskip("peft", reason=EXTRA)
pytest.importorskip("xllamacpp", reason="pip install xllamacpp")


from graftline.core.errors import ActorError, ModelError
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets
from graftline.llm.base import ChatRequest, Message
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.pool import ActorPool
from graftline.llm.servers.processes import down, up
from graftline.llm.weights.catalog import model_file, safetensors_folder
from graftline.llm.weights.merge_gguf import export_gguf
from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.lora import LoraShape
from graftline.training.local.sampling import Sampling, sample
from tests.conftest import CHECKOUT
from tests.kept_fleet import free_port
from tests.tiny_gguf import make_model, random_adapter, write_gguf

NEAR = 0.03
"""By how much logprobs may differ: the server keeps keys and values in 16 bits."""
TOP = 5
Answer = tuple[int, float]
"""The most probable next token, and its logprob."""


@dataclass
class Side:
    """A model on both sides: behind a server, and in the backend."""

    engine: Engine
    folders: Mapping[str, Path]
    """Of the adapters, by name."""
    paths: Paths
    fleet: Fleet
    prompts: Sequence[list[int]]

    def sampled(self, adapter: str) -> list[Answer]:
        """Return what the backend's sampler answers to the prompts."""
        requests = [Sampling(prompt, max_tokens=1, temperature=0.0, stop=[]) for prompt in self.prompts]
        with self.engine.sampling_from(adapter, self.folders.get(adapter)) as model:
            found = sample(self.engine, model, requests)
        return [(one.sequences[0].tokens[0], one.sequences[0].logprobs[0]) for one in found]

    def served(self, adapter: str, prompt: Sequence[int], **more: Any) -> dict[int, float]:
        """Return the most probable next tokens of the server with their logprobs."""
        body = {"model": adapter or "m", "prompt": prompt, "max_tokens": 1, "temperature": 0.0, "logprobs": TOP}
        status, answer = self.post("/v1/completions", {**body, **more})
        assert (status, answer["model"]) == (200, adapter or "m")
        (token,) = answer["choices"][0]["logprobs"]["content"]
        return {entry["id"]: entry["logprob"] for entry in token["top_logprobs"]}

    def post(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        """Return the status and the answer; without a body it is a GET."""
        url = f"{self.fleet.actors[0].url}{path}"
        response = httpx.request("POST" if body else "GET", url, json=body, timeout=120, trust_env=False)
        return response.status_code, response.json()


def started(root: Path, weights: Path, folders: Sequence[Path], slots: int = 2) -> Fleet:
    actor = Actor(name="tiny", url=f"http://127.0.0.1:{free_port()}", slots=slots, threads=1)
    adapters = tuple(str(folder.relative_to(root)) for folder in folders)
    fleet = Fleet(engine="embedded", model="m", context_tokens=512, adapters=adapters, actors=(actor,))
    up(Paths(root), "tiny", fleet, str(weights), os.environ, Secrets([]), 120.0)
    return fleet


def side(root: Path, model: Path, weights: Path, size: float, shape: LoraShape, prompts: Sequence[list[int]]) -> Side:
    engine = Engine(model, "m", EngineSettings(threads=1))
    (root / "adapters").mkdir(parents=True)
    folders = {
        name: random_adapter(engine, root / "adapters" / name, seed, size, shape)
        for seed, name in enumerate(("first", "second.one"))
    }
    return Side(engine, folders, Paths(root), started(root, weights, [*folders.values()]), prompts)


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    root = tmp_path_factory.mktemp(request.param)
    model = make_model(root / "model", request.param)
    weights = write_gguf(model, request.param, root / "model.gguf")
    chance = random.Random(3)
    prompts = [[chance.randrange(3, 1000) for _ in range(length)] for length in (3, 9, 17, 40, 25, 60)]
    shape = LoraShape(rank=4, seed=0)  # the output layer included, for it is not the embedding
    found = side(root, model, weights, 0.12, shape, prompts)
    yield found
    down(found.paths, "tiny")


# what is of the server and not of the model's kind
of_one_kind = pytest.mark.parametrize("tiny", ["llama"], indirect=True, scope="module")


def distance(found: Sequence[Mapping[int, float]], expected: Sequence[Answer]) -> float:
    """Return by how much the logprobs of the expected tokens differ at most; `inf` where the server has none for one."""
    return max(abs(one.get(token, math.inf) - logprob) for one, (token, logprob) in zip(found, expected, strict=True))


@pytest.mark.parametrize("packing", ["f32", "f16"])
def test_an_exported_model_answers_as_its_base_with_the_adapter(tiny: Side, tmp_path: Path, packing: Any) -> None:
    export_gguf(tiny.folders["first"], tiny.paths.root / "model.gguf", tmp_path / "out", packing)
    exported = replace(
        tiny, paths=Paths(tmp_path), fleet=started(tmp_path, tmp_path / "out" / "first.gguf", [], slots=1)
    )
    try:
        found = [exported.served("", prompt) for prompt in tiny.prompts]
    finally:
        down(exported.paths, "tiny")
    assert distance(found, tiny.sampled("first")) < NEAR


def test_answers_with_and_without_an_adapter_are_those_of_the_backend(tiny: Side) -> None:
    expected = {adapter: tiny.sampled(adapter) for adapter in ("", *tiny.folders)}
    distances = {
        adapter: distance([tiny.served(adapter, prompt) for prompt in tiny.prompts], answers)
        for adapter, answers in expected.items()
    }
    assert max(distances.values()) < NEAR, distances
    # the adapters are no small matter
    assert all(one[0] != other[0] != third[0] for one, other, third in zip(*expected.values(), strict=True))


def test_what_a_slot_has_read_for_one_adapter_is_not_used_for_another(tiny: Side) -> None:
    chance = random.Random(1)
    asked = [(chance.choice(["", *tiny.folders]), chance.randrange(len(tiny.prompts))) for _ in range(60)]
    expected = {adapter: tiny.sampled(adapter) for adapter in ("", *tiny.folders)}
    with ThreadPoolExecutor(4) as pool:  # two more than there are slots
        found = list(pool.map(lambda one: tiny.served(one[0], tiny.prompts[one[1]]), asked))
    assert distance(found, [expected[adapter][prompt] for adapter, prompt in asked]) < NEAR


@of_one_kind
def test_a_request_that_names_no_model_is_for_the_bare_one(tiny: Side) -> None:
    prompt, expected = tiny.prompts[2], tiny.sampled("")[2]
    for adapter in tiny.folders:
        for _ in range(2):  # the other slot too
            tiny.served(adapter, prompt)
        assert distance([tiny.served("", prompt, model=None)], [expected]) < NEAR


@of_one_kind
def test_adapters_are_listed_under_their_names(tiny: Side) -> None:
    _, models = tiny.post("/v1/models", None)
    assert [(model["id"], model["root"], model["parent"]) for model in models["data"]] == [
        ("m", "m", None),
        *((name, str(folder), "m") for name, folder in tiny.folders.items()),
    ]


@of_one_kind
def test_a_model_that_is_not_served_is_refused_as_openai_does(tiny: Side) -> None:
    body = {"model": "third", "messages": [{"role": "user", "content": "hello"}]}
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages"):
        status, answer = tiny.post(path, body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (404, "model_not_found", "model")
        assert answer["error"]["message"] == "The model `third` does not exist; served: m, first, second.one"


@of_one_kind
def test_an_adapter_is_refused_where_llama_cpp_would_answer_as_the_bare_model(tiny: Side) -> None:
    messages = [{"role": "user", "content": "the pilot repairs an engine"}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0}
    tiny.post("/v1/chat/completions", {**body, "model": "first"})  # a slot has read it for an adapter
    status, answer = tiny.post("/v1/messages", {**body, "model": "first"})
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    _, bare = tiny.post("/v1/messages", {**body, "model": "m"})
    _, chat = tiny.post("/v1/chat/completions", {**body, "model": "m"})
    assert bare["content"][0]["text"] == chat["choices"][0]["message"]["content"]


@of_one_kind
def test_which_adapter_it_is_is_said_by_its_name_alone(tiny: Side) -> None:
    status, answer = tiny.post("/v1/completions", {"prompt": "a", "lora": [{"id": 0, "scale": 1.0}]})
    assert (status, answer["error"]["param"]) == (400, "lora")
    assert tiny.post("/lora-adapters", {"id": 0, "scale": 1.0})[0] == 404


@of_one_kind
def test_a_stream_says_the_name_of_the_adapter_and_the_same_text(tiny: Side) -> None:
    body = {"model": "second.one", "prompt": "the pilot", "max_tokens": 8, "temperature": 0}
    _, whole = tiny.post("/v1/completions", body)
    url = f"{tiny.fleet.actors[0].url}/v1/completions"
    lines = httpx.post(url, json={**body, "stream": True}, timeout=120, trust_env=False).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert {event["model"] for event in events} == {"second.one"}
    assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]


def question(text: str, adapter: str) -> ChatRequest:
    return ChatRequest((Message(role="user", content=text),), max_tokens=12, adapter=adapter, deadline_s=120.0)


async def answers(fleet: Fleet, asked: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    pool = ActorPool(fleet)
    try:
        found = await asyncio.gather(*(pool.generate(question(text, adapter)) for text, adapter in asked))
    finally:
        await pool.close()
    return [(answer.model, answer.text) for answer in found]


@of_one_kind
def test_the_pool_asks_for_an_adapter_by_its_name(tiny: Side) -> None:
    texts = ["the pilot repairs an engine", "our gardener answers the question"]
    asked = [(text, adapter) for text in texts for adapter in ("", *tiny.folders)]
    alone = [asyncio.run(answers(tiny.fleet, [one]))[0] for one in asked]
    assert [model for model, _ in alone] == ["m", "first", "second.one"] * 2
    assert len({text for _, text in alone}) == len(alone)
    assert asyncio.run(answers(tiny.fleet, asked * 3)) == alone * 3


@of_one_kind
def test_an_adapter_that_the_server_was_started_without_is_refused(tiny: Side) -> None:
    # another folder of that name holds other weights
    others = tiny.fleet.model_copy(update={"adapters": ("adapters/third", "others/first")})

    def refusal(adapter: str) -> str:
        with pytest.raises(ActorError) as error:
            asyncio.run(answers(others, [("a", adapter)]))
        return str(error.value)

    said = (
        "(it has: first, second.one); name the folder in its fleet, and start it again; mend the request or the fleet"
    )
    assert refusal("third") == f"actor 'tiny' was started without adapter 'third' from 'adapters/third' {said}"
    assert refusal("first") == f"actor 'tiny' was started without adapter 'first' from 'others/first' {said}"


def test_a_server_does_not_start_with_an_adapter_of_another_model(tmp_path: Path) -> None:
    llama = make_model(tmp_path / "llama", "llama")
    weights = write_gguf(make_model(tmp_path / "tied", "llama", is_tied=True), "llama", tmp_path / "tied.gguf")
    engine = Engine(llama, "m", EngineSettings(threads=1))
    folder = random_adapter(engine, tmp_path / "with-head", 0, 0.1, LoraShape(rank=2, seed=0))
    with pytest.raises(ActorError, match=r"with-head: changes 'output', .*; train with train_unembed: false"):
        started(tmp_path, weights, [folder])


def test_the_real_small_model_answers_with_an_adapter_as_the_backend_does(tmp_path: Path) -> None:
    try:
        weights = model_file("smollm2-135m", Paths(CHECKOUT), os.environ)
        model = safetensors_folder("smollm2-135m", Paths(CHECKOUT), os.environ)
    except ModelError as error:
        pytest.skip(str(error))
    engine = Engine(model, "m", EngineSettings(threads=1))
    texts = ["The capital of France is", "def add(a, b):\n    return", "Once upon a time there was a"]
    prompts = [[*engine.tokenizer(text)["input_ids"]] for text in texts]
    del engine
    real = side(tmp_path, model, weights, 0.02, LoraShape(rank=8, train_unembed=False, seed=0), prompts)
    try:
        distances = {
            adapter: distance([real.served(adapter, prompt) for prompt in prompts], real.sampled(adapter))
            for adapter in ("", *real.folders)
        }
        # matrices of 4 bits, with what is multiplied by them in 8, against those unpacked to 16
        assert max(distances.values()) < 0.25, distances
    finally:
        down(real.paths, "tiny")
