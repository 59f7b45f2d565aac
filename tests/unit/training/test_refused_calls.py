"""What is refused does not keep what comes after it: the SDK numbers a call before the backend has looked at it."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.training.conftest import EXTRA, StartedServer

pytest.importorskip("tinker", reason=EXTRA)
pytest.importorskip("torch", reason=EXTRA)

import tinker
from tinker import types

pytestmark = pytest.mark.filterwarnings("ignore:DEPRECATED. TrainingClient.load_state:FutureWarning")

TIMEOUT_S = 120
NO_STEP = "no step is taken, for forward_backward failed"
GOOD = types.Datum(
    model_input=types.ModelInput.from_ints([65, 66, 67]),
    loss_fn_inputs={"target_tokens": [66, 67, 68], "weights": [1.0, 1.0, 1.0]},
)
IMAGE = types.Datum(
    model_input=types.ModelInput(chunks=[types.ImageChunk(data=b"\x89PNG", format="png", expected_tokens=3)]),
    loss_fn_inputs=GOOD.loss_fn_inputs,
)
FOREIGN = types.Datum(model_input=types.ModelInput.from_ints([65, 66, 99999]), loss_fn_inputs=GOOD.loss_fn_inputs)
BARE = types.Datum(model_input=GOOD.model_input, loss_fn_inputs={"target_tokens": [66, 67, 68]})

Outcome = str | dict[str, Any]
"""What a refusal says, or attributes of the result: a path, or metrics by name."""


@dataclass
class Expected:
    """What is to come of calls, as a user would foretell it who reads the docs."""

    run_id: str
    steps: int = 0
    is_spoilt: bool = False
    saved: dict[str, int] = field(default_factory=dict)

    def path(self, kind: str, name: str) -> str:
        return f"tinker://{self.run_id}/{kind}/{name}"

    def step(self) -> Outcome:
        if self.is_spoilt:
            self.is_spoilt = False
            return NO_STEP
        self.steps += 1
        return {"optimizer_step:mean": float(self.steps)}

    def spoil(self, message: str) -> Outcome:
        self.is_spoilt = True
        return message

    def save(self, name: str) -> Outcome:
        if name in self.saved:
            return "exists already"
        self.saved[name] = self.steps
        return {"path": self.path("weights", name)}

    def load(self, name: str, with_optimizer: bool) -> Outcome:
        if name not in self.saved:
            return "there is no checkpoint"
        self.steps, self.is_spoilt = self.saved[name] if with_optimizer else 0, False
        return {"path": self.path("weights", name)}


Call = tuple[Any, Outcome]
Request = Callable[[tinker.TrainingClient, Expected, random.Random], Call]


def pass_batch(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    return client.forward_backward([GOOD] * chance.randint(1, 3), "cross_entropy"), {}


def pass_wrong(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    datum, loss, message = chance.choice(
        [
            (IMAGE, "cross_entropy", "datum 1: holds something else than text"),
            (FOREIGN, "cross_entropy", "datum 1: token 99999 is not one of the"),
            (BARE, "importance_sampling", "datum 0: importance_sampling needs logprobs"),
            (BARE, "gspo", "datum 0: gspo needs logprobs"),
            (BARE, "stable_reinforce", "datum 0: stable_reinforce needs the sequences that"),
        ]
    )
    return client.forward_backward([GOOD, datum], loss), expected.spoil(message)


def pass_with_wrong_option(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    return client.forward_backward([GOOD], "ppo", {"beta": 1.0}), "ppo has no option 'beta'"


def look(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    if chance.random() < 0.5:
        return client.forward([GOOD], "cross_entropy"), {}
    return client.forward([IMAGE], "cross_entropy"), "datum 0: holds something else than text"


def take_step(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    return client.optim_step(types.AdamParams(learning_rate=1e-3)), expected.step()


def take_wrong_step(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    return client.optim_step(types.DimuonParams(learning_rate=1e-3)), "optimizer 'dimuon' is not offered"


def save_state(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    name = chance.choice(["a", "b", "c"])
    return client.save_state(name), expected.save(name)


def save_state_wrongly(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    if chance.random() < 0.5:
        return client.save_state("epoch 1"), "checkpoint name 'epoch 1' is not made of"
    return client.save_state("short", ttl_seconds=5), "ttl_seconds is 5, but an hour"


def load_state(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    name, with_optimizer = chance.choice(["a", "b", "c", "missing"]), chance.random() < 0.5
    load = client.load_state_with_optimizer if with_optimizer else client.load_state
    return load(expected.path("weights", name)), expected.load(name, with_optimizer)


def load_nonsense(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    return client.load_state("tinker://nonsense"), "is no path of a checkpoint"


def save_for_sampler(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    if chance.random() < 0.5:
        return client.save_weights_for_sampler("not/one"), "checkpoint name 'not/one' is not made of"
    name = f"s{chance.randrange(10**9)}"
    return client.save_weights_for_sampler(name), {"path": expected.path("sampler_weights", name)}


def save_external(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    if chance.random() < 0.5:
        return client.save_weights_external("e", age_encryption_recipients=["nobody"]), "is not offered by this backend"
    name = f"e{chance.randrange(10**9)}"
    return client.save_weights_external(name), {"path": expected.path("external_weights", name)}


def follow_weights(client: tinker.TrainingClient, expected: Expected, chance: random.Random) -> Call:
    return client.save_weights_and_get_sampling_client(kind=chance.choice(["snapshot", "inflight"])), {}


REQUESTS: list[Request] = [
    pass_batch,
    pass_wrong,
    pass_with_wrong_option,
    look,
    take_step,
    take_step,
    take_wrong_step,
    save_state,
    save_state_wrongly,
    load_state,
    load_nonsense,
    save_for_sampler,
    save_external,
    follow_weights,
]


@pytest.fixture(scope="module")
def service(tinker_server: StartedServer) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=tinker_server.url, api_key=tinker_server.api_key) as client:
        yield client


def new_client(service: tinker.ServiceClient, server: StartedServer) -> tinker.TrainingClient:
    made = service.create_lora_training_client(server.model, rank=2, seed=0, train_unembed=False)
    client: tinker.TrainingClient = made.result(TIMEOUT_S)
    return client


def outcome(future: Any, expected: Outcome) -> Outcome:
    """Return what came of a call, of an answer only what was expected of it."""
    try:
        result = future.result(TIMEOUT_S)
    except (tinker.RequestFailedError, tinker.APIStatusError) as refused:
        # of a refusal the part that was expected, if it is there
        return expected if isinstance(expected, str) and expected in str(refused) else str(refused)
    metrics = getattr(result, "metrics", None) or {}
    names = expected if isinstance(expected, dict) else {}
    return {name: metrics.get(name, getattr(result, name, None)) for name in names}


@pytest.mark.parametrize("seed", range(4))
def test_every_call_is_answered_in_order_whatever_is_refused_between_them(
    service: tinker.ServiceClient, tinker_server: StartedServer, seed: int
) -> None:
    chance = random.Random(seed)
    client = new_client(service, tinker_server)
    expected = Expected(client.get_info().model_id)
    # every kind of request once, and some of them again, in an order of its own; none waits for the one before it
    requests = chance.sample([*REQUESTS, *chance.choices(REQUESTS, k=10)], k=len(REQUESTS) + 10)

    calls = [request(client, expected, chance) for request in requests]

    names = [request.__name__ for request in requests]
    came = [(name, outcome(future, what)) for name, (future, what) in zip(names, calls, strict=True)]
    assert came == [(name, what) for name, (_, what) in zip(names, calls, strict=True)]
