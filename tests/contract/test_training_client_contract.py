"""What every training service does, whichever implementation it is: in this process, and as a backend of this machine."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from graftline.core.errors import ConfigError, DataError, TrainingError
from graftline.core.secrets import Secrets
from graftline.pipeline import Runtime
from graftline.training.local.process import LocalBackendConfig
from graftline.training.open import MemoryTrainingConfig, open_training_client
from graftline.training.tinker import TinkerSDKClient
from tests.training_root import CHECKOUT
from tests.training_root import chats as chats_of
from tests.unit.training.conftest import EXTRA

pytest.importorskip("tinker", reason=EXTRA)
pytest.importorskip("peft", reason=EXTRA)
pytest.importorskip("uvicorn", reason=EXTRA)

import numpy as np
from tinker import types

from graftline.training.adapter import check_adapter

MODEL, RANK = "tiny-qwen3", 4


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a backend of this machine has its model and its checkpoints in."""
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module", params=["memory", "local"])
def service(request: pytest.FixtureRequest, root: Path) -> Iterator[TinkerSDKClient]:
    config: Any = MemoryTrainingConfig()
    if request.param == "local":
        from tests.unit.training.tiny_model import make_tiny_model

        make_tiny_model(root / "model")
        config = LocalBackendConfig(folder="model", threads=1)
    with pytest.MonkeyPatch.context() as patch:
        # a key of the service is nothing that a backend of this machine is given
        patch.setenv("TINKER_API_KEY", "tml-of-the-service")
        patch.setenv("TINKER_TELEMETRY", "0")
        patch.setenv("HF_HUB_OFFLINE", "1")
        with open_training_client(config, root, Secrets([]), MODEL, deadline_s=60.0) as opened:
            yield opened


@pytest.fixture
def trainer(service: TinkerSDKClient):
    return new_trainer(service)


def new_trainer(service: TinkerSDKClient, seed: int = 1):
    return service.create_training_client(MODEL, RANK, seed, train_unembed=False)


def datum(*tokens: int, **inputs: Any) -> types.Datum:
    """A text each of whose tokens is to foretell the next one."""
    given = {"target_tokens": [*tokens[1:]], **(inputs or {"weights": [1.0] * (len(tokens) - 1)})}
    return types.Datum(model_input=types.ModelInput.from_ints([*tokens[:-1]]), loss_fn_inputs=given)


TEXT = datum(65, 66, 67, 68, 69, 66, 71)
OTHER = datum(80, 66, 90, 65)


def loss(service: TinkerSDKClient, trainer, *data: types.Datum) -> float:
    found = service.result(trainer.forward([*data], "cross_entropy"), "a loss")
    return float(found.metrics["loss:sum"])


def step(service: TinkerSDKClient, trainer, *batches: Sequence[types.Datum], rate: float = 1e-2) -> float:
    """Take a step with the gradients of all batches, which are under way at once; return the loss before it."""
    sent = [trainer.forward_backward([*batch], "cross_entropy") for batch in batches]
    taken = trainer.optim_step(types.AdamParams(learning_rate=rate))
    losses = [service.result(one, "gradients").metrics["loss:sum"] for one in sent]
    assert service.result(taken, "the step").metrics["grad_norm:mean"] > 0
    return float(sum(losses))


def test_losses_fall(service: TinkerSDKClient, trainer) -> None:
    losses = [step(service, trainer, [TEXT, OTHER]) for _ in range(8)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]


def test_the_loss_is_that_of_the_logprobs_of_the_targets(service: TinkerSDKClient, trainer) -> None:
    weights = [0.0, 0.5, 2.0]
    found = service.result(trainer.forward([datum(65, 66, 67, 68, weights=weights), TEXT], "cross_entropy"), "a loss")
    first, second = [output["logprobs"].to_numpy() for output in found.loss_fn_outputs]
    assert (first.shape, second.shape) == ((3,), (6,))
    assert found.metrics["loss:sum"] == pytest.approx(-(first @ np.array(weights)) - second.sum(), rel=1e-5)


def test_the_same_seed_is_the_same_adapter(service: TinkerSDKClient) -> None:
    one, same, other = new_trainer(service), new_trainer(service), new_trainer(service, seed=2)
    losses = [[step(service, trainer, [TEXT]) for _ in range(3)] for trainer in (one, same, other)]
    assert losses[0] == losses[1]
    # no adapter changes anything before its first step
    assert losses[0][0] == pytest.approx(losses[2][0])
    assert losses[0][2] != losses[2][2]


def test_gradients_add_up_until_the_step(service: TinkerSDKClient) -> None:
    together, apart = new_trainer(service), new_trainer(service)
    step(service, together, [TEXT, OTHER])
    step(service, apart, [TEXT], [OTHER])
    assert loss(service, together, TEXT, OTHER) == pytest.approx(loss(service, apart, TEXT, OTHER), rel=1e-5)


def test_a_forward_pass_alone_has_no_gradients(service: TinkerSDKClient, trainer) -> None:
    before = loss(service, trainer, TEXT)
    taken = service.result(trainer.optim_step(types.AdamParams(learning_rate=1.0)), "a step")
    assert taken.metrics["grad_norm:mean"] == 0
    assert loss(service, trainer, TEXT) == before


def test_a_loss_that_is_worked_out_here_is_as_good_as_one_of_the_service(service: TinkerSDKClient) -> None:
    here, there = new_trainer(service), new_trainer(service)

    def cross_entropy(data: list[types.Datum], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
        total = -sum(one.sum() for one in logprobs)
        return total, {"mine:sum": float(total.detach())}

    found = here.forward_backward_custom([TEXT, OTHER], cross_entropy)
    service.result(here.optim_step(types.AdamParams(learning_rate=1e-2)), "the step")
    before = step(service, there, [TEXT, OTHER])
    assert service.result(found, "my loss").metrics["mine:sum"] == pytest.approx(before, rel=1e-5)
    assert loss(service, here, TEXT, OTHER) == pytest.approx(loss(service, there, TEXT, OTHER), rel=1e-4)


@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cispo", "dro", "gspo"])
def test_what_was_rewarded_becomes_more_likely(service: TinkerSDKClient, trainer, name: Any) -> None:
    found = service.result(trainer.forward([TEXT], "cross_entropy"), "logprobs").loss_fn_outputs[0]
    sampled = found["logprobs"].to_numpy()
    advantages = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], np.float32)
    inputs = {"logprobs": sampled, "advantages": advantages, "sequence_ratio_mask": np.ones(6, np.float32)}
    rewarded = datum(65, 66, 67, 68, 69, 66, 71, **inputs)
    sent = trainer.forward_backward([rewarded], name)
    service.result(trainer.optim_step(types.AdamParams(learning_rate=1e-2)), "the step")
    # with ratios of 1: three rewards, or what they are worth
    expected = float(-(sampled * advantages).sum()) if name in ("cispo", "dro") else -3.0
    assert service.result(sent, "the loss").metrics["loss:sum"] == pytest.approx(expected, rel=1e-4)
    after = service.result(trainer.forward([TEXT], "cross_entropy"), "logprobs").loss_fn_outputs[0]["logprobs"]
    assert (after.to_numpy()[:3].sum()) > sampled[:3].sum()


def test_what_goes_on_from_a_checkpoint_goes_on_as_if_nothing_had_been(service: TinkerSDKClient) -> None:
    whole = new_trainer(service)
    begun = [step(service, whole, [TEXT, OTHER]) for _ in range(3)]
    path = service.result(whole.save_state("step-3", overwrite=True), "a checkpoint").path
    went_on = [step(service, whole, [TEXT, OTHER]) for _ in range(3)]
    resumed = service.from_state(path)
    assert [step(service, resumed, [TEXT, OTHER]) for _ in range(3)] == went_on
    # without the state of the optimizer, the weights alone are the same
    assert loss(service, service.from_state(path, with_optimizer=False), TEXT, OTHER) == went_on[0] < begun[0]


def test_a_checkpoint_says_what_it_is_of(service: TinkerSDKClient, trainer) -> None:
    path = service.result(trainer.save_state("facts"), "a checkpoint").path
    found = service.weights_info(path)
    assert found.base_model == ("memory" if service.base_url == "memory" else MODEL)
    assert (found.is_lora, found.lora_rank, found.train_unembed) == (True, RANK, False)
    run = service.training_run(trainer.model_id)
    assert (run.training_run_id, run.base_model, run.lora_rank, run.corrupted) == (
        trainer.model_id,
        found.base_model,
        RANK,
        False,
    )
    service.set_ttl(path, None)
    service.set_ttl(path, 3600)


def test_a_checkpoint_that_is_gone_is_an_error_of_status_404(service: TinkerSDKClient, trainer) -> None:
    path = service.result(trainer.save_state("gone"), "a checkpoint").path
    service.delete_checkpoint(path)
    for ask in (service.weights_info, service.from_state, service.delete_checkpoint):
        with pytest.raises(TrainingError, match="there is no such thing") as error:
            ask(path)
        assert error.value.status == 404


def test_a_name_is_taken_unless_it_is_to_be_overwritten(service: TinkerSDKClient, trainer) -> None:
    service.result(trainer.save_state("twice"), "a checkpoint")
    with pytest.raises(DataError, match="exists already; choose another name"):
        service.result(trainer.save_state("twice"), "the second one")
    service.result(trainer.save_state("twice", overwrite=True), "the third one")


def test_what_cannot_be_trained_is_refused(service: TinkerSDKClient) -> None:
    with pytest.raises(ConfigError, match="are all false; one of them has to be trained"):
        service.create_training_client(MODEL, train_mlp=False, train_attn=False, train_unembed=False)
    with pytest.raises(DataError, match="rank"):
        service.create_training_client(MODEL, rank=100_000)
    with pytest.raises(ConfigError, match="give one of them"):
        service.sampling_client()


BAD: dict[str, tuple[types.Datum, Any, str]] = {
    "a missing input": (TEXT, "ppo", "ppo needs logprobs in loss_fn_inputs"),
    "another shape": (datum(1, 2, 3, weights=[1.0]), "cross_entropy", "weights is of shape"),
    "an unknown token": (datum(1, 999_999), "cross_entropy", "token 999999 is not one of the"),
}


@pytest.mark.parametrize("case", BAD)
def test_data_at_fault_are_refused_and_no_step_is_taken_with_a_part_of_them(
    service: TinkerSDKClient, trainer, case: str
) -> None:
    wrong, name, message = BAD[case]
    before = loss(service, trainer, TEXT)
    with pytest.raises(DataError, match=message):
        service.result(trainer.forward_backward([TEXT, wrong], name), "gradients")
    with pytest.raises(DataError, match="no step is taken"):
        service.result(trainer.optim_step(types.AdamParams()), "the step")
    # the one after it begins anew
    assert step(service, trainer, [TEXT]) == before


def test_a_loss_of_recorded_sequences_is_refused_where_none_are_named(service: TinkerSDKClient, trainer) -> None:
    rewarded = datum(65, 66, 67, advantages=[1.0, 1.0])
    with pytest.raises(DataError, match=r"stable_reinforce needs .*sequences that"):
        service.result(trainer.forward_backward([rewarded], "stable_reinforce"), "gradients")


@pytest.fixture(scope="module")
def taught(service: TinkerSDKClient) -> tuple[Any, float]:
    """What samples from a model that had learned something, with its loss; it has been trained on since."""
    trainer = new_trainer(service)
    for _ in range(6):
        step(service, trainer, [TEXT], rate=5e-2)
    path = service.result(trainer.save_weights_for_sampler("taught"), "weights").path
    sampler, then = service.sampling_client(model_path=path), loss(service, trainer, TEXT)
    step(service, trainer, [OTHER], rate=5e-2)
    assert loss(service, trainer, TEXT) != then
    return sampler, then


PROMPT = types.ModelInput.from_ints([65, 66])


def test_logprobs_are_those_of_the_model_as_it_was(service: TinkerSDKClient, taught: tuple[Any, float]) -> None:
    sampler, then = taught
    text = types.ModelInput.from_ints([*TEXT.model_input.to_ints(), 71])
    first, *rest = service.result(sampler.compute_logprobs(text), "logprobs")
    assert first is None
    assert -sum(rest) == pytest.approx(then, rel=1e-4)
    bare = service.sampling_client(base_model=MODEL)
    assert -sum(service.result(bare.compute_logprobs(text), "logprobs")[1:]) > then


def test_sampled_logprobs_are_those_of_the_text(service: TinkerSDKClient, taught: tuple[Any, float]) -> None:
    sampler, _ = taught
    params = types.SamplingParams(max_tokens=6, temperature=0.7, seed=3, stop=[0])
    [one, two] = service.result(sampler.sample(PROMPT, 2, params), "samples").sequences
    for sequence in (one, two):
        whole = types.ModelInput.from_ints([*PROMPT.to_ints(), *sequence.tokens])
        again = service.result(sampler.compute_logprobs(whole), "logprobs")[2:]
        # at temperature 1, whatever it was sampled with
        assert sequence.logprobs == pytest.approx(again, abs=1e-4)
        assert (sequence.stop_reason, len(sequence.tokens)) == ("length", 6) or sequence.tokens[-1] == 0
    assert one.tokens != two.tokens
    again = service.result(sampler.sample(PROMPT, 2, params), "samples").sequences
    assert [sequence.tokens for sequence in again] == [one.tokens, two.tokens]


def test_the_most_likely_sequence_has_no_chance_in_it(service: TinkerSDKClient, taught: tuple[Any, float]) -> None:
    sampler, _ = taught
    greedy = types.SamplingParams(max_tokens=4, temperature=0.0, stop=[1])
    likely = types.SamplingParams(max_tokens=4, temperature=1.0, top_k=1, stop=[1])
    found = [
        service.result(sampler.sample(PROMPT, 2, params), "samples").sequences for params in (greedy, likely, greedy)
    ]
    assert len({tuple(sequence.tokens) for sequences in found for sequence in sequences}) == 1


def test_a_stop_ends_a_sequence_and_is_part_of_it(service: TinkerSDKClient, taught: tuple[Any, float]) -> None:
    sampler, _ = taught
    greedy = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[1])
    [free] = service.result(sampler.sample(PROMPT, 1, greedy), "a sample").sequences
    stopped = types.SamplingParams(max_tokens=8, temperature=0.0, stop=[free.tokens[1]])
    [found] = service.result(sampler.sample(PROMPT, 1, stopped), "a sample").sequences
    first = free.tokens.index(free.tokens[1])
    assert (found.tokens, found.stop_reason) == (free.tokens[: first + 1], "stop")


def test_samples_that_cannot_be_drawn_are_refused(service: TinkerSDKClient, taught: tuple[Any, float]) -> None:
    sampler, _ = taught
    for prompt, params, message in (
        (PROMPT, types.SamplingParams(max_tokens=1_000_000), "max_tokens is 1000000"),
        (PROMPT, types.SamplingParams(max_tokens=1, top_p=0.0), "top_p 0.0"),
        (types.ModelInput.from_ints([999_999]), types.SamplingParams(max_tokens=1), "token 999999"),
    ):
        with pytest.raises(DataError, match=message):
            service.result(sampler.sample(prompt, 1, params), "a sample")


def test_an_export_is_an_adapter_of_peft_at_addresses_that_answer(
    service: TinkerSDKClient, trainer, tmp_path: Path
) -> None:
    step(service, trainer, [TEXT])
    path = service.result(trainer.save_weights_external("final"), "files").path
    found = service.external_urls(path)
    assert found.expires.tzinfo is not None
    for name, url in found.urls.items():
        with urlopen(url) as answer:
            (tmp_path / name).write_bytes(answer.read())
    check_adapter(tmp_path)


def test_a_recipe_is_trained_by_it(service: TinkerSDKClient, root: Path, tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "configs" / "manifests", tmp_path / "configs" / "manifests")
    shutil.copy(CHECKOUT / "configs" / "models.yaml", tmp_path / "configs")
    chats = "".join(json.dumps(chat) + "\n" for chat in chats_of(8))
    values = {"model": MODEL, "tokenizer": str(root / "model"), "dataset": "chats.jsonl", "batch_size": 4, "epochs": 3}
    done = Runtime.run(
        "sl_basic",
        {**values, "learning_rate": 0.02, "save_every": 2},
        manifest="test",
        ports={"training_client": service, "dataset_store.files": {"chats.jsonl": chats}},
        root=tmp_path,
    )
    assert done.result is not None
    assert done.adapter is not None
    run = done.result.run
    assert (run.status, run.next_step, run.backend) == ("done", 6, service.base_url)
    assert run.last_loss < run.first_loss
    check_adapter(done.adapter)


def test_a_service_says_what_it_has(service: TinkerSDKClient) -> None:
    [found] = service.capabilities().supported_models
    assert found.model_name in (MODEL, "memory")
    assert found.max_context_length > 1000
    assert service.base_url


def test_a_backend_of_this_machine_says_what_it_computes_with(service: TinkerSDKClient) -> None:
    told = service.computed_with()
    assert told.keys() == {"precision", "device"}
    assert told.get("precision", "float32") == "float32"
