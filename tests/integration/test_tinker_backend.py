"""The unmodified SDK, its command and its cookbook against a server of the tiny model.

The server is a process of its own, as `graftline tinker serve` starts it. One is shared; another is killed and started again
on what the first one left.
"""

import io
import json
import math
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from graftline.cli import main
from tests.unit.training.conftest import EXTRA, SDK_ENVIRONMENT, StartedServer, started_server

pytest.importorskip("tinker", reason=EXTRA)
pytest.importorskip("peft", reason=EXTRA)

import numpy as np
import tinker
import torch
from tinker import types
from tinker.cli.__main__ import cli as tinker_command

from tests.unit.training.tiny_model import make_tiny_model

TIMEOUT_S = 60
LONG_S = 120
RANK = 4
CHATS = [
    ("Who repairs the engine?", " One engineer repairs it."),
    ("Where is the archive?", " Under the lighthouse."),
    ("What does the captain weigh?", " A thousand stones."),
]


def numbers(length: int, seed: int = 0) -> types.Datum:
    """A text of random tokens, each of which is to foretell the next one."""
    tokens = np.random.default_rng([length, seed]).integers(20, 900, length + 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1].tolist()),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": np.ones(length, np.float32)},
    )


def chat(tokenizer: Any, question: str, answer: str) -> types.Datum:
    """One whose answer only has weight."""
    asked, said = tokenizer.encode(question), [*tokenizer.encode(answer), tokenizer.eos_token_id]
    tokens, weights = [*asked, *said], [0.0] * len(asked) + [1.0] * len(said)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": np.array(tokens[1:]), "weights": np.array(weights[1:], np.float32)},
    )


def step(client: tinker.TrainingClient, batch: Sequence[types.Datum], rate: float = 5e-3) -> float:
    """Train on `batch`, both calls under way at once; return the loss before."""
    found = client.forward_backward([*batch], "cross_entropy")
    client.optim_step(types.AdamParams(learning_rate=rate)).result(TIMEOUT_S)
    return found.result(TIMEOUT_S).metrics["loss:sum"]


def logprobs(client: tinker.TrainingClient, batch: Sequence[types.Datum]) -> list[list[float]]:
    found = client.forward([*batch], "cross_entropy").result(LONG_S)
    return [output["logprobs"].tolist() for output in found.loss_fn_outputs]


def batch_of(number: int) -> list[types.Datum]:
    return [numbers(24, 1000 + 10 * number + row) for row in range(3)]


def weights(server: StartedServer, path: str) -> dict[str, bytes]:
    """The files of a checkpoint as they lie on the server's disk."""
    run, kind, name = path.removeprefix("tinker://").split("/")
    folder = server.root / "runs" / run.replace(":", "~") / kind / name
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3")


@pytest.fixture(scope="module")
def servers(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StartedServer]]:
    """Two servers, started at the same time: one to be shared, and one to be killed."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack, ThreadPoolExecutor() as threads:
        for name, value in SDK_ENVIRONMENT.items():
            patch.setenv(name, value)
        roots = [tmp_path_factory.mktemp(name) / "root" for name in ("shared", "killed")]
        contexts = [started_server(root, model_folder) for root in roots]
        yield [*threads.map(stack.enter_context, contexts)]


@pytest.fixture(scope="module")
def server(servers: list[StartedServer]) -> StartedServer:
    return servers[0]


@pytest.fixture(scope="module")
def service(server: StartedServer) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=server.url, api_key=server.api_key) as service:
        yield service


@pytest.fixture(scope="module")
def rest(server: StartedServer) -> Iterator[tinker.RestClient]:
    client = tinker.RestClient(base_url=server.url, api_key=server.api_key)
    yield client
    client.holder.close()


@pytest.fixture
def new_client(service: tinker.ServiceClient, server: StartedServer) -> Callable[..., tinker.TrainingClient]:
    def make(seed: int = 5, **options: Any) -> tinker.TrainingClient:
        given = {"base_model": server.model, "rank": RANK, "seed": seed, **options}
        return service.create_lora_training_client(**given).result(TIMEOUT_S)

    return make


@dataclass
class Trained:
    """A run that has learnt its answers by heart, with its checkpoints."""

    client: tinker.TrainingClient
    tokenizer: Any
    batch: list[types.Datum]
    losses: list[float]
    state: str
    sampler: str


@pytest.fixture(scope="module")
def trained(service: tinker.ServiceClient, server: StartedServer) -> Trained:
    client = service.create_lora_training_client(base_model=server.model, rank=8, seed=7).result(TIMEOUT_S)
    tokenizer = client.get_tokenizer()
    batch = [chat(tokenizer, *one) for one in CHATS]
    losses = [step(client, batch) for _ in range(25)]
    state = client.save_state("step-000025", user_metadata={"step": "25"})
    sampler = client.save_weights_for_sampler("final", ttl_seconds=7200)
    return Trained(
        client, tokenizer, batch, losses, state.result(TIMEOUT_S).path, sampler.result(TIMEOUT_S).path
    )


def asked(tokenizer: Any, question: str = CHATS[0][0]) -> types.ModelInput:
    return types.ModelInput.from_ints(tokenizer.encode(question))


# what every client does


def test_the_server_says_what_it_has(rest: tinker.RestClient, server: StartedServer) -> None:
    [model] = rest.get_server_capabilities().result(TIMEOUT_S).supported_models

    assert (model.model_name, model.max_context_length) == (server.model, 2048)


def test_a_run_says_what_it_is(trained: Trained, server: StartedServer) -> None:
    info = trained.client.get_info()

    assert (info.model_data.model_name, info.model_data.arch) == (server.model, "Qwen3ForCausalLM")
    assert (info.is_lora, info.lora_rank, info.model_id) == (True, 8, trained.client.model_id)
    assert trained.tokenizer.decode(trained.tokenizer.encode("A blue flag.<|im_end|>")) == "A blue flag.<|im_end|>"


def test_answers_are_learnt_by_heart(trained: Trained, service: tinker.ServiceClient) -> None:
    assert trained.losses[-1] < 0.05 * trained.losses[0]

    client = service.create_sampling_client(model_path=trained.sampler).result(TIMEOUT_S)
    greedy = types.SamplingParams(max_tokens=40, temperature=0.0)
    drawn = [client.sample(asked(trained.tokenizer, question), 1, greedy) for question, _ in CHATS]
    sequences = [future.result(TIMEOUT_S).sequences[0] for future in drawn]
    assert [trained.tokenizer.decode(one.tokens) for one in sequences] == [f"{answer}<|im_end|>" for _, answer in CHATS]
    assert [one.stop_reason for one in sequences] == ["stop"] * 3


def test_the_model_without_an_adapter_has_learnt_nothing(
    trained: Trained, service: tinker.ServiceClient, server: StartedServer
) -> None:
    client = service.create_sampling_client(base_model=server.model).result(TIMEOUT_S)

    greedy = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[])
    [found] = client.sample(asked(trained.tokenizer), 1, greedy).result(TIMEOUT_S).sequences

    assert (len(found.tokens), found.stop_reason) == (8, "length")
    assert not CHATS[0][1].startswith(trained.tokenizer.decode(found.tokens[:3]))


def test_a_client_samples_from_the_weights_of_this_moment(trained: Trained) -> None:
    client = trained.client.save_weights_and_get_sampling_client().result(TIMEOUT_S)
    text = types.ModelInput.from_ints([*trained.batch[0].model_input.to_ints(), trained.tokenizer.eos_token_id])
    params = types.SamplingParams(max_tokens=8, seed=1)

    several = client.sample(asked(trained.tokenizer), 3, params).result(TIMEOUT_S).sequences
    again = client.sample(asked(trained.tokenizer), 3, params).result(TIMEOUT_S).sequences
    found = client.compute_logprobs(text).result(TIMEOUT_S)

    assert [one.tokens for one in several] == [one.tokens for one in again]
    assert found[0] is None
    assert found[1:] == pytest.approx(logprobs(trained.client, trained.batch[:1])[0], abs=1e-4)


def test_logprobs_of_what_was_sampled_are_those_that_training_sees(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    run = new_client()
    step(run, [numbers(20)])
    client = run.save_weights_and_get_sampling_client().result(TIMEOUT_S)

    params = types.SamplingParams(max_tokens=9, temperature=1.0, seed=2, stop=[])
    [found] = client.sample(types.ModelInput.from_ints([30, 40, 50]), 1, params).result(TIMEOUT_S).sequences

    tokens = [30, 40, 50, *found.tokens]
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={"target_tokens": np.array(tokens[1:])}
    )
    assert logprobs(run, [datum])[0][2:] == pytest.approx(found.logprobs, abs=1e-4)


def test_the_most_probable_tokens_are_told_with_their_logprobs(trained: Trained) -> None:
    client = trained.client.save_weights_and_get_sampling_client().result(TIMEOUT_S)
    prompt = asked(trained.tokenizer)

    found = client.sample(
        prompt,
        1,
        types.SamplingParams(max_tokens=2, temperature=0.0),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
        topk_sample_logprobs=2,
    ).result(TIMEOUT_S)

    assert len(found.prompt_logprobs) == len(found.topk_prompt_logprobs) == prompt.length
    assert [len(one) for one in found.topk_prompt_logprobs[1:]] == [3] * (prompt.length - 1)
    [sequence] = found.sequences
    # what was drawn greedily is the first of the table
    assert [(one[0][0], pytest.approx(one[0][1])) for one in sequence.topk_logprobs] == [
        *zip(sequence.tokens, sequence.logprobs, strict=True)
    ]
