"""What is refused does not keep what comes after it: the SDK numbers a call before the backend has looked at it."""

from collections.abc import Iterator
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

WRONG_PASSES = [
    (IMAGE, "cross_entropy", "datum 1: holds something else than text"),
    (FOREIGN, "cross_entropy", "datum 1: token 99999 is not one of the"),
    (BARE, "importance_sampling", "datum 0: importance_sampling needs logprobs"),
    (BARE, "gspo", "datum 0: gspo needs logprobs"),
    (BARE, "stable_reinforce", "datum 0: stable_reinforce needs the sequences that"),
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


def test_every_call_is_answered_in_order_whatever_is_refused_between_them(
    service: tinker.ServiceClient, tinker_server: StartedServer
) -> None:
    client = new_client(service, tinker_server)
    run_id, adam = client.get_info().model_id, types.AdamParams(learning_rate=1e-3)

    def path(kind: str, name: str) -> dict[str, str]:
        return {"path": f"tinker://{run_id}/{kind}/{name}"}

    def taken(number: int) -> tuple[Any, Outcome]:
        return client.optim_step(adam), {"optimizer_step:mean": float(number)}

    # none waits for the one before it
    calls: list[tuple[Any, Outcome]] = [
        (client.forward_backward([GOOD] * 3, "cross_entropy"), {}),
        taken(1),
        (client.save_state("a"), path("weights", "a")),
        (client.forward_backward([GOOD], "ppo", {"beta": 1.0}), "ppo has no option 'beta'"),
        (client.forward([IMAGE], "cross_entropy"), "datum 0: holds something else than text"),
        (client.optim_step(types.DimuonParams(learning_rate=1e-3)), "optimizer 'dimuon' is not offered"),
        taken(2),
        (client.save_state("a"), "exists already"),
        (client.save_state("epoch 1"), "checkpoint name 'epoch 1' is not made of"),
        (client.save_state("short", ttl_seconds=5), "ttl_seconds is 5, but an hour"),
        (client.load_state("tinker://nonsense"), "is no path of a checkpoint"),
        (client.load_state(path("weights", "missing")["path"]), "there is no checkpoint"),
    ]
    for datum, loss, message in WRONG_PASSES:
        calls += [(client.forward_backward([GOOD, datum], loss), message), (client.optim_step(adam), NO_STEP)]
    calls += [
        taken(3),
        (client.forward_backward([GOOD, IMAGE], "cross_entropy"), WRONG_PASSES[0][2]),
        # with other weights, that they were wrong is forgotten
        (client.load_state_with_optimizer(path("weights", "a")["path"]), path("weights", "a")),
        taken(2),
        (client.load_state(path("weights", "a")["path"]), path("weights", "a")),
        taken(1),
        (client.save_weights_for_sampler("not/one"), "checkpoint name 'not/one' is not made of"),
        (client.save_weights_for_sampler("s"), path("sampler_weights", "s")),
        (client.save_weights_external("e", age_encryption_recipients=["nobody"]), "is not offered by this backend"),
        (client.save_weights_external("e"), path("external_weights", "e")),
        (client.save_weights_and_get_sampling_client(kind="inflight"), {}),
        (client.forward([GOOD], "cross_entropy"), {}),
    ]

    assert [outcome(future, expected) for future, expected in calls] == [expected for _, expected in calls]
