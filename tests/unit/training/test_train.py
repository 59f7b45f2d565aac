"""Runs over the backend of this machine with a tiny model."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.download import Pins, download
from graftline.core.errors import ConfigError, DataError, TrainingError
from graftline.core.paths import Paths
from graftline.core.retry import RetryPolicy
from graftline.core.web import Web
from graftline.training.adapter import ExportedFile, check_adapter, download_adapter
from graftline.training.examples import read_rows
from graftline.training.loop import Interrupted
from graftline.training.recipes.dpo import DpoConfig
from graftline.training.recipes.open import CONFIGS, load_recipe
from graftline.training.recipes.sl_basic import SlBasicConfig
from graftline.training.runs import Runs
from graftline.training.settings import (
    LoraSettings,
    TinkerTrainingConfig,
    batch_of,
    config_digest,
    learning_rate,
    total_steps,
)
from graftline.training.tinker import TinkerSDKClient
from graftline.training.train import OUTPUT, TinkerTrainingResult, train_on_tinker
from tests.hub_server import Fault, HubServer
from tests.pages import codes, fences, section, table
from tests.training_root import chats, write_root

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

EXAMPLE = next(fence for fence in fences() if fence.page == "docs/training.md" and "import tinker\n" in fence.body)


class Training:
    """A root folder, and runs of its recipe."""

    def __init__(self, root: Path, model: Path, server: Any) -> None:
        self.root, self.model, self.server = root, model, server
        self.runs = Runs(root / OUTPUT)

    def write(self, **recipe: Any) -> TinkerTrainingConfig:
        write_root(self.root, self.model, **{"epochs": 1, **recipe})
        return self.config()

    def config(self, **changes: Any) -> TinkerTrainingConfig:
        return load_recipe(Paths(self.root), "tiny", changes)

    def train(self, config: TinkerTrainingConfig | None = None, **options: Any) -> TinkerTrainingResult:
        given = {"root": self.root, "base_url": self.server.url, **options}
        return train_on_tinker(config or self.config(), self.server.api_key, **given)

    def losses(self, run_id: str) -> list[float]:
        return [step.loss for step in self.runs.steps(run_id)]


@pytest.fixture
def training(tmp_path: Path, tiny_model: Path, tinker_server: Any) -> Training:
    return Training(tmp_path / "root", tiny_model, tinker_server)


def after(count: int) -> Callable[[], bool]:
    """Return what says at the question after so many that it is time to end."""
    asked: list[int] = []

    def is_time() -> bool:
        asked.append(0)
        return len(asked) > count

    return is_time


def test_a_run_learns_and_says_what_it_is_made_of(training: Training) -> None:
    training.write(epochs=2)
    seen: list[tuple[int, int]] = []
    result = training.train(on_step=lambda step, total: seen.append((step.step, total)))
    run, steps = result.run, training.runs.steps(result.run_id)
    assert (result.success, run.status, run.next_step, run.total_steps) == (True, "done", 12, 12)
    assert seen == [(number, 12) for number in range(12)] == [(step.step, 12) for step in steps]
    assert json.loads(result.metadata_path.read_text("utf-8"))["run_id"] == result.run_id
    assert result.metadata_path == training.root / "models/adapters/tinker/runs" / f"{result.run_id}.json"
    assert run.base_held_out_loss is not None
    assert run.held_out_loss is not None
    assert run.held_out_loss < 0.9 * run.base_held_out_loss
    assert (run.tokens, run.trained_tokens) == (
        sum(step.tokens for step in steps),
        sum(step.trained_tokens for step in steps),
    )
    assert [step.step for step in steps if step.held_out_loss is not None] == [3, 7, 11]
    assert run.versions["tinker"] == "0.38.0"
    assert len(run.dataset["dataset"]) == len(run.dataset["held_out"]) == 64
    assert [attempt.ended_by for attempt in run.attempts] == ["done"]


def test_only_the_newest_checkpoints_are_kept(training: Training) -> None:
    training.write(epochs=2)
    run = training.train().run
    assert [one.step for one in run.checkpoints] == [9, 12]
    path = run.checkpoints[-1].path
    found = training.server.root.rglob("_meta.json")
    names = {
        folder.parent.name
        for folder in found
        if folder.parent.parent.name == "weights" and folder.parent.parent.parent.name.replace("~", ":") in path
    }
    assert names == {"step-000009", "step-000012"}
    # the last one of a run that is done stays
    assert [one.expires_at is not None for one in run.checkpoints] == [True, False]


def test_a_run_that_is_done_is_not_trained_again(training: Training) -> None:
    training.write()
    first = training.train()
    # nobody is asked: there is no such server
    again = train_on_tinker(training.config(), "tml-x", root=training.root, base_url="http://127.0.0.1:9")
    assert again.run == first.run


def test_a_run_that_was_interrupted_goes_on_with_the_same_losses(training: Training) -> None:
    training.write(epochs=2)
    whole = training.train(run_id="whole")
    with pytest.raises(Interrupted, match="was interrupted at step 5 of 12; the same command goes on from there"):
        training.train(run_id="parts", is_stopped=after(5))
    assert (training.runs.get("parts").status, training.runs.get("parts").next_step) == ("interrupted", 5)
    parts = training.train(run_id="parts")
    assert training.losses("parts") == training.losses("whole")
    assert parts.run.held_out_loss == whole.run.held_out_loss
    assert [attempt.from_step for attempt in parts.run.attempts] == [0, 5]
    assert parts.run.tokens == whole.run.tokens


def test_a_checkpoint_that_is_gone_is_not_gone_on_from(training: Training) -> None:
    training.write(epochs=2)
    whole = training.train(run_id="whole")
    with pytest.raises(Interrupted):
        training.train(run_id="parts", is_stopped=after(7))
    run = training.runs.get("parts")
    assert [one.step for one in run.checkpoints] == [6, 7]
    run.checkpoints[-1].path = run.checkpoints[-1].path.replace("step-000007", "step-000777")
    training.runs.write(run)
    assert training.train(run_id="parts").run.attempts[-1].from_step == 6
    assert training.losses("parts") == training.losses(whole.run_id)


def test_a_checkpoint_that_is_another_one_ends_the_run(training: Training) -> None:
    training.write(epochs=2)
    with pytest.raises(Interrupted):
        training.train(is_stopped=after(4))
    [run] = training.runs.all()
    run.checkpoints[-1].probe_loss *= 1.5
    training.runs.write(run)
    with pytest.raises(TrainingError, match="but the loss of the probe is"):
        training.train()
    assert training.runs.get(run.run_id).status == "failed"


def test_another_configuration_is_another_run(training: Training) -> None:
    training.write(max_steps=1)
    first = training.train()
    assert config_digest(training.config(learning_rate=0.02)) != config_digest(training.config())
    assert config_digest(training.config(save_every=7, deadline_s=9.0)) == config_digest(training.config())
    with pytest.raises(ConfigError, match="was begun with another configuration"):
        training.train(training.config(learning_rate=0.02), run_id=first.run_id)
    (training.root / "data" / "train.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n', "utf-8"
    )
    with pytest.raises(ConfigError, match="was begun with other data"):
        training.train(run_id=first.run_id)


def test_a_run_ends_early_where_it_does_not_get_better(training: Training) -> None:
    training.write(epochs=6, learning_rate=0.5, lr_schedule="constant", eval_every=2, patience=2)
    run = training.train().run
    looks = [step.held_out_loss for step in training.runs.steps(run.run_id) if step.held_out_loss is not None]
    assert (run.status, run.next_step < run.total_steps) == ("stopped_early", True)
    assert looks.index(min(looks)) == len(looks) - 3
    # killed between the last look and its end: it does not take another step
    run.status = "running"
    training.runs.write(run)
    again = training.train().run
    assert (again.status, again.next_step, len(again.attempts)) == ("stopped_early", run.next_step, 2)


def test_an_interrupt_ends_the_command_with_a_checkpoint_and_130(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.write(epochs=6)
    monkeypatch.setenv("TINKER_BASE_URL", training.server.url)
    monkeypatch.setenv("TINKER_API_KEY", training.server.api_key)
    path = training.runs.steps_path("one")

    def interrupt() -> None:
        while not path.exists() or path.read_text("utf-8").count("\n") < 4:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = CliRunner().invoke(main, ["--root", str(training.root), "train", "run", "tiny", "--run-id", "one"])
    thread.join()
    assert (result.exit_code, "interrupted; what is finished stays" in result.stderr) == (130, True)
    run = training.runs.get("one")
    assert (run.status, run.next_step == run.checkpoints[-1].step >= 4) == ("interrupted", True)


def test_addresses_that_are_refused_are_signed_anew(tmp_path: Path) -> None:
    signed: list[int] = []

    def sign() -> dict[str, str]:
        signed.append(0)
        return {"one.bin": f"{server.url}/plain/one.bin"}

    with HubServer() as server:
        server.files["/plain/one.bin"] = b"content" * 1000
        # refused at once, torn in the middle, and refused when the rest is asked for
        server.faults["/plain/one.bin"] = [Fault(status=403), Fault(torn_at=100), Fault(status=403)]
        patience = RetryPolicy(deadline_s=20.0, longest_pause_s=0.01)
        source = ExportedFile("one.bin", sign, Web(patience), sign())
        download(source, Pins(), tmp_path / "one.bin", lambda done, total: None, patience)
        assert [asked[2] for asked in server.asked("Range")] == ["", "", "bytes=100-", "bytes=100-"]
    assert ((tmp_path / "one.bin").read_bytes(), len(signed)) == (b"content" * 1000, 3)


def kill_at(training: Training, run_id: str, step: int) -> None:
    """Train in a process of its own, and kill it once so many steps are written down."""
    command = [
        str(Path(sys.executable).with_name("graftline")),
        *("--root", str(training.root), "train", "run", "tiny", "--run-id", run_id, "--no-download"),
    ]
    server = {"TINKER_BASE_URL": training.server.url, "TINKER_API_KEY": training.server.api_key}
    path = training.runs.steps_path(run_id)
    with subprocess.Popen(
        command, env={**os.environ, **server}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and (not path.exists() or path.read_text("utf-8").count("\n") < step):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said


def test_a_killed_run_has_the_losses_and_the_adapter_of_one_that_nobody_disturbed(training: Training) -> None:
    training.write(epochs=6)
    training.train(run_id="whole")
    kill_at(training, "killed", 10)
    assert training.runs.get("killed").status == "running"
    for arguments in (["status", "killed"], ["list"]):
        said = CliRunner().invoke(main, ["--root", str(training.root), "train", *arguments, "--json"])
        [found] = [
            one for one in json.loads(said.stdout).get("runs", [json.loads(said.stdout)]) if one["run_id"] == "killed"
        ]
        assert (found["status"], found["host"]) == ("interrupted", socket.gethostname())
    run = training.train(run_id="killed").run
    assert training.losses("killed") == training.losses("whole")
    assert [attempt.ended_by for attempt in run.attempts] == ["killed", "done"]
    assert 9 <= run.attempts[1].from_step < 36
    with TinkerSDKClient(training.server.api_key, training.server.url) as client:
        folders = [
            download_adapter(training.runs, training.runs.get(name), client, None) for name in ("whole", "killed")
        ]
    contents = [(folder / "adapter_model.safetensors").read_bytes() for folder in folders]
    assert contents[0] == contents[1]
    assert {path.name for path in folders[0].iterdir()} >= {"README.md", "adapter_config.json", "_meta.json"}
    assert "| optimizer steps | 36 |" in (folders[0] / "README.md").read_text("utf-8")


def test_an_adapter_is_fetched_once_and_only_of_a_run_that_is_done(training: Training) -> None:
    training.write(max_steps=3)
    with pytest.raises(Interrupted):
        training.train(is_stopped=after(2))
    [run] = training.runs.all()
    with TinkerSDKClient(training.server.api_key, training.server.url) as client:
        with pytest.raises(ConfigError, match="is interrupted; `graftline train resume"):
            download_adapter(training.runs, run, client, None)
        run = training.train().run
        folder = download_adapter(training.runs, run, client, None)
    written = (folder / "_meta.json").stat().st_mtime_ns
    # nobody is asked: there is no such server
    with TinkerSDKClient(training.server.api_key, "http://127.0.0.1:9") as client:
        assert download_adapter(training.runs, run, client, None) == folder
    assert (folder / "_meta.json").stat().st_mtime_ns == written
    (folder / "adapter_config.json").write_text("{}", "utf-8")
    with pytest.raises(DataError, match="is no LoRA adapter of PEFT"):
        check_adapter(folder)


def test_what_is_preferred_becomes_more_probable_and_goes_on_after_an_interruption(training: Training) -> None:
    training.write()
    pairs = []
    for row in chats(12):
        question, answer = row["messages"]
        wrong = {"role": "assistant", "content": "nothing of that"}
        pairs.append({"prompt": [question], "chosen": [answer], "rejected": [wrong]})
    (training.root / "data" / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), "utf-8")
    recipe = {"recipe": "dpo", "model": "tiny-qwen3", "tokenizer": str(training.model), "dataset": "data/pairs.jsonl"}
    config = DpoConfig(**{**recipe, "batch_size": 4, "epochs": 3, "learning_rate": 5e-3, "save_every": 2})
    run = training.train(config, run_id="whole").run
    losses = training.losses("whole")
    # log 2 where the model is still what it is compared with
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4)
    assert losses[-1] < 0.6
    assert (run.examples, run.total_steps, run.recipe) == (12, 9, "dpo")
    with pytest.raises(Interrupted):
        training.train(config, run_id="parts", is_stopped=after(5))
    training.train(config, run_id="parts")
    assert training.losses("parts") == losses
    # of a run of one step, the model is asked for nothing but its four pairs before it
    training.train(config.model_copy(update={"max_steps": 1}), run_id="short")
    reference = training.runs.load_prepared("short")["reference"]
    assert (len(reference), sum(value is not None for value in reference)) == (24, 8)
    assert training.losses("short") == losses[:1]


def test_rows_that_are_no_pairs_are_refused(training: Training) -> None:
    config = training.write(max_steps=1)
    values = {**config.model_dump(include={"model", "tokenizer", "renderer"}), "dataset": "data/pairs.jsonl"}
    (training.root / "data" / "pairs.jsonl").write_text('{"chosen": []}\n', "utf-8")
    with pytest.raises(DataError, match="has no prompt or nothing rejected"):
        training.train(DpoConfig(**values))


@pytest.mark.parametrize("name", ["none", "tiny"])
def test_a_recipe_that_is_unknown_is_refused_with_the_known_ones(training: Training, name: str) -> None:
    write_root(training.root, training.model, recipe="grpo")
    with pytest.raises(ConfigError) as error:
        load_recipe(Paths(training.root), name)
    said = (
        "recipe 'none' is unknown; "
        if name == "none"
        else "recipe is 'grpo', but one of distill, dpo, expert_iteration, rl_grpo, sl_basic, srl was expected"
    )
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no example is left to train on: the file is empty"),
        ("{}\n", "line 1: has no messages"),
        ('{"messages": []}\nx\n', "line 2: is no JSON"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(training: Training, text: str, reason: str) -> None:
    training.write()
    (training.root / "data" / "train.jsonl").write_text(text, "utf-8")
    with pytest.raises(DataError) as error:
        training.train()
    assert reason in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read \(No such file or directory\)"):
        read_rows(tmp_path / "none.jsonl", "messages", "sft")


def test_batches_and_rates_depend_on_the_number_of_the_step_alone() -> None:
    config = SlBasicConfig(model="m", dataset="d", batch_size=4, epochs=3, learning_rate=0.4)
    assert total_steps(config, 10) == 9
    for epoch in range(3):
        taken = [number for step in range(3) for number in batch_of(config, 10, 3 * epoch + step)]
        assert sorted(taken) == list(range(10))
    assert batch_of(config, 10, 4) == batch_of(config, 10, 4)
    assert batch_of(config, 10, 0) != batch_of(config, 10, 3)
    assert [round(learning_rate(config, step, 4), 3) for step in range(4)] == [0.4, 0.3, 0.2, 0.1]
    assert total_steps(config.model_copy(update={"max_steps": 5}), 10) == 5


def test_the_example_trains(
    tinker_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {
        "TINKER_BASE_URL": tinker_server.url,
        "TINKER_API_KEY": tinker_server.api_key,
        "TINKER_TELEMETRY": "0",
        "MODEL": tinker_server.model,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    exec(compile(EXAMPLE.body, EXAMPLE.page, "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == EXAMPLE.output


def test_the_keys_of_a_recipe_are_the_documented_ones() -> None:
    text = section("docs/training.md", "## A recipe")
    assert [codes(row[0])[0] for row in table(text)] == [
        "sl_basic",
        "dpo",
        "srl",
        "rl_grpo",
        "expert_iteration",
        "distill",
    ]
    common = table(text[text.index("| key |") - 1 :])
    assert [key for row in common for key in codes(row[0])] == list(TinkerTrainingConfig.model_fields)
    [lora] = [row for row in common if codes(row[0]) == ["lora"]]
    assert codes(lora[2]) == list(LoraSettings.model_fields)
    for config in CONFIGS.values():
        own = config.model_fields.keys() - TinkerTrainingConfig.model_fields.keys()
        assert own <= {*codes(text)}
