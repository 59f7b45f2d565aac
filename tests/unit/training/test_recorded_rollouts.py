"""`rl_grpo` of recorded rollouts, and `distill` of what agents asked: rows of `graftline env export`."""

import json
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError, GraftlineError
from graftline.training.memory import memory_tokenizer
from graftline.training.recipes.distill import DistillConfig
from graftline.training.recipes.open import open_recipe
from graftline.training.recipes.recorded import RecordedGrpo
from graftline.training.recipes.tasks import ExpertIterationConfig, RlGrpoConfig
from graftline.training.runs import Runs
from graftline.training.tinker import TinkerSDKClient
from graftline.training.train import train_on_tinker

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

GOOD, BAD = "yes", "no!"


def row(rollout: str, reward: float | None, text: str = GOOD, task: str = "t", **more: Any) -> dict[str, Any]:
    ids = memory_tokenizer().encode(text, add_special_tokens=False)
    return {
        "task_id": task,
        "dataset": "d",
        "rollout_id": rollout,
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}],
        "prompt_token_ids": memory_tokenizer().encode("Is it?", add_special_tokens=False),
        "token_ids": ids,
        "logprobs": [-1.0] * len(ids),
        "reward": reward,
        **more,
    }


def config(**changes: Any) -> RlGrpoConfig:
    values = {"model": "memory", "dataset": "rows.jsonl", "reward": "recorded", "batch_size": 1, "save_every": 100}
    return RlGrpoConfig(**{**values, **changes})


def load(root: Path, rows: list[Any], **changes: Any) -> Any:
    (root / "rows.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in rows), "utf-8")
    recipe = open_recipe(config(**changes))
    assert isinstance(recipe, RecordedGrpo)
    return recipe.load(root, memory_tokenizer())


def test_a_rollout_is_worth_what_it_is_better_than_the_others_of_its_task(tmp_path: Path) -> None:
    rows = [row("a", 1.0), row("a", 1.0, BAD), row("b", 0.0), row("c", None), row("x", 0.5, task="other")]
    data = load(tmp_path, rows, is_scaled=False)
    [example] = data.train
    answers = [datum.loss_fn_inputs["advantages"].data for datum in example.item.datums]
    # the mean of 1 and 0 is a half; of the third nobody knows
    assert [[*{*values}] for values in ([a for a in answer if a] for answer in answers)] == [[0.5], [0.5], [-0.5]]
    assert example.trained_tokens == sum(len(entry["token_ids"]) for entry in rows[:3])
    assert example.item.rewards == [1.0, 0.0]
    # of its task there is no other rollout
    assert data.dropped == {"no_contrast": 1}


def test_the_right_answer_becomes_more_probable(tmp_path: Path, memory_service: TinkerSDKClient) -> None:
    rows = [row("a", 1.0), row("b", 0.0, BAD)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in rows), "utf-8")
    changes = {"epochs": 6, "learning_rate": 0.02, "lr_schedule": "constant", "loss": "ppo"}
    result = train_on_tinker(
        config(**changes, lora={"train_unembed": True}), root=tmp_path, output_dir=tmp_path / "out",
        service=memory_service, tokenizer=memory_tokenizer(),
    )  # fmt: skip
    steps = Runs(tmp_path / "out").steps(result.run.run_id)
    assert [step.metrics["reward"] for step in steps] == [0.5] * 6
    assert steps[-1].loss < steps[0].loss


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"prompt": []}, "line 1: is no call of a rollout; reward, prompt_token_ids"),
        (row("a", 1.0, token_ids=[1.5, 2], logprobs=[0.0, 0.0]), "line 1: has something else than token ids"),
        (row("a", True), "line 1: is no call of a rollout"),  # type: ignore[arg-type]
        (row("a", 1.0, token_ids=[5], logprobs=[0.0]), "the token ids of 1 of 1 answers say something else"),
    ],
)
def test_rows_of_another_kind_or_of_another_model_are_refused(tmp_path: Path, entry: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        load(tmp_path, [entry])


def test_rows_without_tokens_and_rows_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [row("a", 1.0), row("b", 0.0), row("c", 1.0, token_ids=[], logprobs=[]), row("d", 0.0, "y" * 400)]
    data = load(tmp_path, rows, max_tokens=64)
    assert len(data.train) == 1
    assert dict(data.dropped) == {"no_tokens": 1, "too_long": 1}


def test_held_out_rows_are_refused_and_other_recipes_know_no_recorded_answers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="held_out: recorded answers"):
        load(tmp_path, [row("a", 1.0)], held_out="rows.jsonl")
    with pytest.raises((ValueError, GraftlineError), match="reward"):
        ExpertIterationConfig(**{"model": "memory", "dataset": "rows.jsonl", "reward": "recorded"})


def test_distill_asks_what_an_agent_has_asked_as_its_server_read_it(tmp_path: Path) -> None:
    asked = row("a", None, messages=[{"role": "tool", "content": "what no renderer takes"}])
    (tmp_path / "rows.jsonl").write_text(json.dumps(asked) + "\n", "utf-8")
    recipe = open_recipe(DistillConfig(model="memory", dataset="rows.jsonl", teacher_model="memory"))
    data = recipe.load(tmp_path, memory_tokenizer())
    [example] = data.train
    assert [*example.datums[0].model_input.to_ints()] == asked["prompt_token_ids"][:-1]
