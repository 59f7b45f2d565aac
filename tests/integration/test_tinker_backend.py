"""The unmodified SDK and its command against a server of the tiny model.

The server is a process of its own, as `graftline tinker serve` starts it. It was killed and started again before the first
test, and is told to end by the last one.
"""

import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from tests.unit.training.conftest import EXTRA, SDK_ENVIRONMENT, StartedServer, started_server

pytest.importorskip("tinker", reason=EXTRA)
pytest.importorskip("peft", reason=EXTRA)

import numpy as np
import tinker
import zstandard
from tinker import types
from tinker.cli.__main__ import main_cli as tinker_command

from tests.unit.training.tiny_model import make_tiny_model

TIMEOUT_S = 240
LONG_S = 120
RANK = 4
MODEL, KEY = "tiny-qwen3", "tml-of-the-tests"
CHATS = [
    ("Who repairs the engine?", " One engineer repairs it."),
    ("Where is the archive?", " Under the lighthouse."),
    ("What does the captain weigh?", " A thousand stones."),
]


def numbers(length: int, seed: int = 0, weight: float = 1.0) -> types.Datum:
    """A text of random tokens, each of which is to foretell the next one."""
    tokens = np.random.default_rng([length, seed]).integers(20, 900, length + 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1].tolist()),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": np.full(length, weight, np.float32)},
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
    taken = client.optim_step(types.AdamParams(learning_rate=rate))
    loss = found.result(TIMEOUT_S).metrics["loss:sum"]
    taken.result(TIMEOUT_S)
    return loss


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


@dataclass
class Restarted:
    """A server on what one left that was killed, at the same address, and what is left of the first one's clients."""

    server: StartedServer
    service: tinker.ServiceClient
    """A client of the first one, which was not told."""
    run: tinker.TrainingClient
    """Its run."""
    under_way: Any
    """A call of it that the first one was working on."""
    state: str
    losses: list[float]
    """Of its steps, those after the kill taken on the second one."""
    urls: Mapping[str, str]
    expected: Mapping[str, bytes]
    unnamed: Path
    """The folder of a sampler of the first one's clients."""


@pytest.fixture(scope="module")
def restarted(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, value in SDK_ENVIRONMENT.items():
            patch.setenv(name, value)
        root = tmp_path_factory.mktemp("tinker") / "root"
        first = stack.enter_context(started_server(root, model_folder, MODEL, KEY))
        service = tinker.ServiceClient(base_url=first.url, api_key=KEY)
        run = service.create_lora_training_client(base_model=MODEL, rank=RANK, seed=3).result(TIMEOUT_S)
        losses = [step(run, batch_of(number)) for number in range(4)]
        state = run.save_state("step-000004").result(TIMEOUT_S).path
        external = run.save_weights_external("final").result(TIMEOUT_S).path
        rest = tinker.RestClient(base_url=first.url, api_key=KEY)
        urls = rest.get_external_weights_urls(external).result(TIMEOUT_S).urls
        expected = {name: weights(first, external)[name] for name in urls}
        run.save_weights_and_get_sampling_client().result(TIMEOUT_S)
        samplers = root / "runs" / run.model_id.replace(":", "~") / "sampler_weights"
        [unnamed] = [path for path in samplers.iterdir() if path.is_dir()]
        step(run, batch_of(4))
        under_way = run.forward_backward([numbers(2000, seed) for seed in range(20)], "cross_entropy")
        time.sleep(0.2)
        first.process.kill()
        first.process.wait(TIMEOUT_S)
        port = urlsplit(first.url).port or 0
        server = stack.enter_context(started_server(root, model_folder, MODEL, KEY, port=port))
        with tinker.ServiceClient(base_url=server.url, api_key=KEY) as second:
            resumed = second.create_training_client_from_state_with_optimizer(state).result(TIMEOUT_S)
            losses += [step(resumed, batch_of(number)) for number in range(4, 8)]
        yield Restarted(server, service, run, under_way, state, losses, urls, expected, unnamed)
        with suppress(TimeoutError):
            # once more: without the tests of the end, a client still waits for the first server
            service.close("errored").result(1)


@pytest.fixture(scope="module")
def server(restarted: Restarted) -> StartedServer:
    return restarted.server


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
    return Trained(client, tokenizer, batch, losses, state.result(TIMEOUT_S).path, sampler.result(TIMEOUT_S).path)


def asked(tokenizer: Any, question: str = CHATS[0][0]) -> types.ModelInput:
    return types.ModelInput.from_ints(tokenizer.encode(question))


# what every client does


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


def test_samplers_in_flight_follow_the_weights_that_were_published_last(
    new_client: Callable[..., tinker.TrainingClient], rest: tinker.RestClient
) -> None:
    run, batch = new_client(), [numbers(12)]
    text = types.ModelInput.from_ints([*batch[0].model_input.to_ints(), 7])

    def score(sampler: tinker.SamplingClient) -> list[float]:
        return sampler.compute_logprobs(text).result(TIMEOUT_S)[1:-1]

    def publish(kind: Any) -> tinker.SamplingClient:
        sampler: tinker.SamplingClient = run.save_weights_and_get_sampling_client(kind=kind).result(TIMEOUT_S)
        return sampler

    first = publish("inflight")
    before = score(first)
    step(run, batch)
    unpublished = score(first)
    snapshot = publish("snapshot")
    step(run, batch)
    second = publish("inflight")
    expected = logprobs(
        run, [types.Datum(model_input=text, loss_fn_inputs={"target_tokens": [*text.to_ints()[1:], 7]})]
    )

    assert unpublished == before
    assert score(second) == pytest.approx(expected[0][:-2], abs=1e-4)
    # those there were before as well, but none that is to stay as it was
    assert score(first) == score(second)
    assert before != score(snapshot) != score(first)
    # what nobody samples from any more is gone
    run_id = run.get_info().model_id
    assert len(rest.list_checkpoints(run_id).result(TIMEOUT_S).checkpoints) == 2


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


# losses


def named(prompt: types.ModelInput, sequence: types.SampledSequence, sequence_id: str, advantage: float) -> types.Datum:
    """What was sampled after a prompt as a datum that says so."""
    before, count = prompt.length, len(sequence.tokens)
    tokens = [*prompt.to_ints(), *sequence.tokens]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "advantages": [0.0] * (before - 1) + [advantage] * count,
        },
    ).with_provenance(
        model_input=[
            types.PromptProvenanceSpan(sequence_id=sequence_id, length=before),
            types.SampledProvenanceSpan(sequence_id=sequence_id, length=count - 1),
        ],
        loss_fn_inputs=[
            types.PromptProvenanceSpan(sequence_id=sequence_id, offset=1, length=before - 1),
            types.SampledProvenanceSpan(sequence_id=sequence_id, length=count),
        ],
    )


def test_what_was_recorded_when_it_was_sampled_is_trained_on_by_its_name(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    run = new_client()
    step(run, [numbers(20)])
    sampler = run.save_weights_and_get_sampling_client(record_stability_info=True).result(TIMEOUT_S)
    prompt, params = types.ModelInput.from_ints([30, 40, 50]), types.SamplingParams(max_tokens=6, seed=1, stop=[])
    sampled = sampler.sample(prompt, 2, params).result(TIMEOUT_S).sequences

    batch = [named(prompt, one, one.sequence_id, reward) for one, reward in zip(sampled, (1.0, -1.0), strict=True)]
    found = run.forward_backward(batch, "stable_reinforce")
    run.optim_step(types.AdamParams(learning_rate=1e-3)).result(TIMEOUT_S)

    # nothing was learned since, so all ratios are 1
    first, second = (sum(one.logprobs) for one in sampled)
    assert found.result(TIMEOUT_S).metrics["loss:sum"] == pytest.approx(second - first, abs=1e-3)
    after = [sum(one[2:]) for one in logprobs(run, batch)]
    assert after[0] > first
    assert after[1] < second


def test_a_big_batch_is_answered_in_the_order_it_was_sent(new_client: Callable[..., tinker.TrainingClient]) -> None:
    # the SDK sends 1,024 at most at a time, the pieces in parallel
    big = [numbers(2 + seed % 3, seed, weight=float(seed in (0, 1499))) for seed in range(1500)]
    run, expected = new_client(), new_client()

    found = run.forward_backward(big, "cross_entropy").result(LONG_S)

    rows = [output["logprobs"].tolist() for output in found.loss_fn_outputs]
    assert [len(row) for row in rows] == [2 + seed % 3 for seed in range(1500)]
    some = [0, 1, 511, 1023, 1024, 1499]
    for number, row in zip(some, logprobs(expected, [big[number] for number in some]), strict=True):
        assert rows[number] == pytest.approx(row, abs=1e-4)
    assert found.metrics["loss:sum"] == pytest.approx(-sum(rows[0]) - sum(rows[1499]), rel=1e-4)
    # and the gradients are those of the first piece and of the last one
    expected.forward_backward([big[0], big[1499]], "cross_entropy")
    for one in (run, expected):
        one.optim_step(types.AdamParams(learning_rate=1e-2)).result(TIMEOUT_S)
    ends = [big[0], big[1499]]
    for row, wanted in zip(logprobs(run, ends), logprobs(expected, ends), strict=True):
        assert row == pytest.approx(wanted, abs=1e-3)


def test_two_clients_at_once_train_as_each_would_alone(server: StartedServer) -> None:
    def losses(seed: int, begin: threading.Barrier) -> list[float]:
        with tinker.ServiceClient(base_url=server.url, api_key=server.api_key) as service:
            run = service.create_lora_training_client(base_model=server.model, rank=RANK + seed, seed=seed)
            client = run.result(TIMEOUT_S)
            begin.wait(TIMEOUT_S)
            return [step(client, batch_of(seed + number)) for number in range(4)]

    with ThreadPoolExecutor() as threads:
        together = threading.Barrier(2)
        at_once = [*threads.map(losses, (1, 2), (together, together))]

    assert at_once == [losses(seed, threading.Barrier(1)) for seed in (1, 2)]
    assert at_once[0] != at_once[1]


# checkpoints


def test_what_the_server_keeps_is_listed_and_described(
    trained: Trained, rest: tinker.RestClient, server: StartedServer
) -> None:
    id = trained.client.model_id

    checkpoints = rest.list_checkpoints(id).result(TIMEOUT_S).checkpoints
    run = rest.get_training_run(id).result(TIMEOUT_S)
    runs = rest.list_training_runs(limit=100).result(TIMEOUT_S).training_runs
    everyones = rest.list_user_checkpoints(limit=100).result(TIMEOUT_S).checkpoints
    info = rest.get_weights_info_by_tinker_path(trained.state).result(TIMEOUT_S)

    named = {one.tinker_path: one for one in checkpoints}
    assert {trained.state, trained.sampler} <= {*named}
    assert (named[trained.state].checkpoint_type, named[trained.sampler].checkpoint_type) == ("training", "sampler")
    assert named[trained.state].user_metadata == {"step": "25"}
    assert named[trained.state].expires_at is None
    assert named[trained.sampler].expires_at is not None
    assert named[trained.state].size_bytes == sum(
        len(content) for name, content in weights(server, trained.state).items() if name != "_meta.json"
    )
    assert (run.training_run_id, run.base_model, run.lora_rank) == (id, server.model, 8)
    assert run.last_checkpoint.tinker_path == trained.state
    assert id in [one.training_run_id for one in runs]
    assert {*named} <= {one.tinker_path for one in everyones}
    assert (info.base_model, info.is_lora, info.lora_rank) == (server.model, True, 8)


def test_when_a_checkpoint_expires_can_be_changed_and_nobody_else_may_read_it(
    new_client: Callable[..., tinker.TrainingClient], rest: tinker.RestClient
) -> None:
    run = new_client()
    path = run.save_state("first", ttl_seconds=3600).result(TIMEOUT_S).path

    def described() -> Any:
        return rest.list_checkpoints(run.model_id).result(TIMEOUT_S).checkpoints[0]

    before = described().expires_at
    rest.set_checkpoint_ttl_from_tinker_path(path, 7200).result(TIMEOUT_S)
    assert (described().expires_at - before).total_seconds() == pytest.approx(3600, abs=30)
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result(TIMEOUT_S)
    assert described().expires_at is None
    with pytest.raises(tinker.NotFoundError, match="publish is not offered by the local backend"):
        rest.publish_checkpoint_from_tinker_path(path).result(TIMEOUT_S)
    assert not described().public


# downloads


def fetched(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_an_address_that_was_changed_or_has_expired_is_refused(
    trained: Trained, rest: tinker.RestClient, server: StartedServer
) -> None:
    path = trained.client.save_weights_external("guarded").result(TIMEOUT_S).path
    url = rest.get_external_weights_urls(path).result(TIMEOUT_S).urls["facts.json"]
    secret = (server.root / "url_secret").read_text("utf-8").strip()
    past = int(time.time()) - 1
    file = urlsplit(url).path.removeprefix("/files/")
    signature = hmac.new(secret.encode(), f"{file}|{past}".encode(), hashlib.sha256).hexdigest()

    forged = {
        "another file": url.replace("facts.json", "adapter_config.json"),
        "another checkpoint": url.replace("/guarded/", "/fetched/"),
        "later": url.replace("expires=", "expires=9"),
        "no signature": url.partition("&signature")[0],
        "another signature": f"{url[:-1]}{'0' if url[-1] != '0' else '1'}",
        "nothing": url.partition("?")[0],
        "out of the folder": url.replace("facts.json", "..%2f..%2f..%2frun.json"),
    }

    assert fetched(url)[0] == 200
    for name, address in forged.items():
        assert fetched(address)[0] in ((403, 404) if name == "out of the folder" else (403,)), name
    status, answer = fetched(f"{url.partition('?')[0]}?expires={past}&signature={signature}")
    assert (status, json.loads(answer)) == (403, {"detail": "the address has expired; ask for new ones"})


# refusals


def test_who_has_another_key_is_told_nothing(server: StartedServer) -> None:
    stranger = {"base_url": server.url, "api_key": "tml-another"}

    with pytest.raises(tinker.AuthenticationError, match="the API key is not the one of this server"):
        tinker.RestClient(**stranger)
    with pytest.raises(tinker.AuthenticationError, match="the API key is not the one of this server"):
        tinker.ServiceClient(**stranger).create_lora_training_client(server.model)
    for path in ("training_runs", "no/such/thing", "sessions"):
        assert fetched(f"{server.url}/api/v1/{path}")[0] == 401
    status, said = fetched(f"{server.url}/api/v1/healthz")
    assert (status, json.loads(said).keys()) == (200, {"status", "precision", "device"})


def sent(server: StartedServer, path: str, body: bytes | Mapping[str, Any], **headers: str) -> tuple[int, Any]:
    """What a POST by hand is answered with."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"x-api-key": server.api_key, **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(f"{server.url}/api/v1/{path}", content, given, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "message"),
    [
        ("create_model", b"{", {}, 400, "the body is no JSON"),
        ("create_model", b"[" * 100_000, {}, 400, "the body is no JSON"),
        ("create_model", b"[]", {}, 400, "the body is no object of JSON"),
        ("create_model", {}, {}, 400, "the request is not understood (KeyError('base_model'))"),
        ("create_model", {"base_model": "llama"}, {}, 400, "base model 'llama' is not served here; 'tiny-qwen3' is"),
        ("forward_backward", b"\xff\xff\xff", {}, 400, "the body is no ForwardBackwardRequest"),
        ("forward_backward", b"abc", {"content_encoding": "zstd"}, 400, "the body is not zstd"),
        ("forward_backward", b"", {}, 404, "there is no session ''"),
        ("optim_step", {"model_id": "x", "seq_id": 1}, {}, 404, "there is no session 'x'"),
        ("asample", {"sampling_session_id": "gone:sample:1"}, {}, 404, "there is no sampler 'gone:sample:1'"),
        ("load_weights", {"path": "tinker://../weights/a"}, {}, 400, "the request is not understood"),
        ("weights_info", {"tinker_path": "tinker://a/weights/b"}, {}, 404, "there is no checkpoint tinker://a/weights/b"),
        ("retrieve_future", {"request_id": "x"}, {}, 410, "call 'x' is not known any more"),
        ("billing/usage", {}, {}, 404, "POST /api/v1/billing/usage is not offered by the local backend"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_a_reason(
    server: StartedServer, path: str, body: Any, headers: Mapping[str, str], status: int, message: str
) -> None:
    found, answer = sent(server, path, body, **headers)

    assert (found, message in answer["detail"]) == (status, True), answer


def test_what_is_packed_far_too_tightly_is_refused(server: StartedServer) -> None:
    packed = zstandard.compress(bytes(300 << 20))

    status, answer = sent(server, "forward_backward", packed, content_encoding="zstd")

    assert (status, answer["detail"]) == (
        400,
        f"the body is larger than {256 << 20} bytes; send fewer datums at a time",
    )


# sessions


def test_what_a_client_had_is_freed_when_it_is_done(server: StartedServer, rest: tinker.RestClient) -> None:
    with tinker.ServiceClient(base_url=server.url, api_key=server.api_key) as service:
        run = service.create_lora_training_client(base_model=server.model, rank=RANK).result(TIMEOUT_S)
        kept = run.save_weights_for_sampler("kept").result(TIMEOUT_S).path
        run.save_weights_and_get_sampling_client().result(TIMEOUT_S)
        id = run.model_id
        folder = server.root / "runs" / id.replace(":", "~") / "sampler_weights"
        assert len([path for path in folder.iterdir() if path.is_dir()]) == 2

    status, answer = sent(server, "optim_step", {"model_id": id, "seq_id": 9, "adam_params": {}})
    assert (status, answer["detail"].partition(",")[0]) == (404, f"session {id.partition(':')[0]!r} is finished")
    deadline = time.monotonic() + TIMEOUT_S
    while (left := [path.name for path in folder.iterdir() if path.is_dir()]) != ["kept"]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    assert [one.tinker_path for one in rest.list_checkpoints(id).result(TIMEOUT_S).checkpoints] == [kept]


# a server that was killed


def test_after_a_kill_training_goes_on_as_if_nothing_had_been(
    restarted: Restarted, new_client: Callable[..., tinker.TrainingClient]
) -> None:
    run = new_client(seed=3)
    undisturbed = [step(run, batch_of(number)) for number in range(8)]

    assert max(abs(one - other) for one, other in zip(restarted.losses, undisturbed, strict=True)) == 0.0


def test_signed_addresses_outlive_the_server_that_signed_them(restarted: Restarted) -> None:
    assert {name: fetched(url) for name, url in restarted.urls.items()} == {
        name: (200, content) for name, content in restarted.expected.items()
    }


def test_samplers_of_clients_that_are_gone_are_removed_at_the_start(restarted: Restarted) -> None:
    assert not restarted.unnamed.exists()


# the command of the SDK


def commanded(server: StartedServer, *arguments: str) -> Result:
    environment = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key, **SDK_ENVIRONMENT}
    return CliRunner().invoke(tinker_command, ["-f", "json", *arguments], env=environment, prog_name="tinker")


def test_its_command_lists_runs_and_checkpoints_of_a_server_that_was_killed(restarted: Restarted) -> None:
    run = restarted.run.model_id

    runs = json.loads(commanded(restarted.server, "run", "list", "--limit", "0").stdout)["runs"]
    listed = json.loads(commanded(restarted.server, "checkpoint", "list", "--run-id", run).stdout)["checkpoints"]
    info = json.loads(commanded(restarted.server, "checkpoint", "info", restarted.state).stdout)

    assert run in [one["training_run_id"] for one in runs]
    assert sorted(one["checkpoint_id"] for one in listed) == ["external_weights/final", "weights/step-000004"]
    assert info["tinker_path"] == restarted.state


def test_its_command_downloads_a_training_checkpoint(
    restarted: Restarted, rest: tinker.RestClient, tmp_path: Path
) -> None:
    name = "adapter_model.safetensors"

    result = commanded(restarted.server, "checkpoint", "download", restarted.state, "--output", str(tmp_path))

    assert (result.exit_code, result.exception) == (0, None), result.output
    [folder] = tmp_path.iterdir()
    assert (folder / name).read_bytes() == weights(restarted.server, restarted.state)[name]
    # an export that it makes for itself is deleted
    listed = rest.list_user_checkpoints(limit=100).result(TIMEOUT_S).checkpoints
    assert "external_weights/download" not in [one.checkpoint_id for one in listed]


# the command that starts it


def started(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(
        main, ["tinker", "serve", "--threads", "1", *map(str, arguments)], prog_name="graftline"
    )
    assert "Traceback" not in result.output
    return result.exit_code, " ".join(result.output.split())


def test_a_second_server_on_the_same_folder_is_refused(server: StartedServer, model_folder: Path) -> None:
    code, said = started("--folder", model_folder, "--store", server.root, "--port", "0")

    assert code == 1
    assert said.endswith(
        f"error: {server.root}: another server has its checkpoints there; stop it, or name another folder"
    )


def test_a_port_that_is_taken_is_refused(server: StartedServer, model_folder: Path, tmp_path: Path) -> None:
    port = str(urlsplit(server.url).port)

    code, said = started("--folder", model_folder, "--store", tmp_path, "--port", port)

    assert code == 1
    assert said.endswith(
        f"error: port {port} of 127.0.0.1 cannot be had (Address already in use); name another, or 0 for a free one"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org"])
def test_an_address_that_others_can_reach_is_refused(model_folder: Path, tmp_path: Path, host: str) -> None:
    code, said = started("--folder", model_folder, "--root", tmp_path, "--host", host)

    assert code == 1
    assert f"host {host!r} would offer the model to other machines, without encryption; use 127.0.0.1" in said
    assert [*tmp_path.iterdir()] == []


# the end


def test_who_waited_for_a_server_that_was_killed_is_told(restarted: Restarted) -> None:
    told = str(restarted.under_way.future().exception(TIMEOUT_S))

    # in words of the SDK, for a call that is not known any more; the other is of one that had not even arrived
    assert "Promise expired/broken" in told or "the server was started after it" in told


def test_runs_of_a_server_that_was_killed_are_refused_rather_than_waited_for(restarted: Restarted) -> None:
    with pytest.raises(tinker.NotFoundError, match="the server was started after it; make a new ServiceClient"):
        restarted.run.optim_step(types.AdamParams()).result(TIMEOUT_S)
    restarted.service.close("errored").result(TIMEOUT_S)


def test_nothing_went_wrong_in_the_server_meanwhile(server: StartedServer) -> None:
    assert "Traceback" not in server.log
    assert "ERROR" not in server.log


def test_a_server_that_is_told_to_end_does_so_at_once_and_in_peace(
    server: StartedServer, service: tinker.ServiceClient
) -> None:
    # which would try for minutes to say so later
    service.close("success").result(TIMEOUT_S)
    session = sent(server, "create_session", {})[1]["session_id"]
    body = {"base_model": server.model, "session_id": session, "model_seq_id": 0, "lora_config": {"rank": 1}}
    run = sent(server, "create_model", body)[1]["model_id"]
    # those before it never come
    call = sent(server, "optim_step", {"model_id": run, "seq_id": 5, "adam_params": {}})[1]["request_id"]

    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(sent, server, "retrieve_future", {"request_id": call})
        time.sleep(1)
        begin = time.monotonic()
        server.process.terminate()
        code = server.process.wait(TIMEOUT_S)

    assert code == 0
    # a poll would have lasted for 20 s
    assert time.monotonic() - begin < 18
    assert waiting.result()[0] == 408
    assert "Traceback" not in server.log
