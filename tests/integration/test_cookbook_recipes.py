"""The recipes of `tinker-cookbook`, unchanged, against a backend of this machine.

They are started as their pages say, but for the model, sizes, and how many steps they take; what they load from the hub are
folders of the same names. GRAFTLINE_COOKBOOK names a folder with another `tinker_cookbook` than the one that is installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.training.conftest import EXTRA, SDK_ENVIRONMENT, started_server

pytest.importorskip("tinker_cookbook", reason=EXTRA)
pytest.importorskip("peft", reason=EXTRA)
pytest.importorskip("uvicorn", reason=EXTRA)

from tests.cookbook_mirror import MODEL, write_mirror

pytestmark = pytest.mark.timeout(1200)
PROGRAM = Path(__file__).resolve().parents[1] / "cookbook_recipes.py"
STEPS = 2
_SHARED = f"model_name={MODEL}", f"max_steps={STEPS}"
_RANK = "lora_rank=2"
_SHORT = "max_tokens=6"
_TWO_GROUPS = "groups_per_batch=2", "group_size=2"
_MATH = "groups_per_batch=4", "group_size=4"
RECIPES: dict[str, tuple[str, Sequence[str], str]] = {
    # name: module, arguments, what every step is to have measured
    "sl_basic": ("sl_basic", ["eval_every=0", _RANK], "train_mean_nll"),
    "sl_loop": ("sl_loop", ["batch_size=4", _RANK], "train_mean_nll"),
    "rl_loop": ("rl_loop", ["batch_size=2", "group_size=4", _SHORT, _RANK], "reward/total"),
    "chat_sl": ("chat_sl.train", ["batch_size=4", _RANK], "train_mean_nll"),
    "chat_sl_tulu3": ("chat_sl.train", ["dataset=tulu3", "batch_size=4", "eval_every=0", _RANK], "train_mean_nll"),
    "math_rl": ("math_rl.train", [*_MATH, _RANK], "env/all/reward/total"),
    "math_rl_gsm8k": ("math_rl.train", ["env=gsm8k", *_TWO_GROUPS, _SHORT, _RANK], "env/all/reward/total"),
    "math_rl_stream_minibatch": (
        "math_rl.train",
        [
            *_MATH,
            "stream_minibatch_config.groups_per_batch=4",
            "stream_minibatch_config.num_minibatches=2",
            _RANK,
        ],
        "env/all/reward/total",
    ),
    "math_rl_async": ("math_rl.train", [*_MATH, "max_steps_off_policy=1", _RANK], "env/all/reward/total"),
    "dpo": ("preference.dpo.train", ["batch_size=4"], "dpo_loss"),
    "distillation_on_policy": (
        "distillation.on_policy_distillation",
        [f"teacher_model={MODEL}", *_TWO_GROUPS, _SHORT, _RANK],
        "teacher_kl",
    ),
    "distillation_off_policy": (
        "distillation.off_policy_reasoning",
        ["batch_size=4", "buffer_size=8", "max_prompts=8", _RANK],
        "train_mean_nll",
    ),
    "multi_teacher": (
        "distillation.on_policy_multi_teacher",
        [
            f"deepmath_teacher_model={MODEL}",
            f"tulu3_teacher_model={MODEL}",
            "deepmath_groups_per_batch=2",
            "tulu3_groups_per_batch=2",
            "group_size=2",
            _SHORT,
            _RANK,
        ],
        "teacher_kl",
    ),
    "prompt_distillation": (
        "prompt_distillation.train",
        ["file_path=languages.jsonl", "batch_size=4", _RANK],
        "train_mean_nll",
    ),
    # without looking at its test set: 0.5.8 ends that with an AttributeError of its own, `'list' object has no attribute 'cleanup'`
    "sdft": (
        "sdft.train",
        ["eval_every=0", "groups_per_batch=2", "topk=3", "max_context_length=4096", _SHORT, _RANK],
        "grad_norm:mean",
    ),
    "rubric": (
        "rubric.train",
        [
            "groups_per_batch=2",
            "train_group_size=2",
            "train_jsonl_path=rubric/train.jsonl",
            "test_jsonl_path=rubric/test.jsonl",
            _SHORT,
            _RANK,
        ],
        "env/all/reward/total",
    ),
}

SHORT = ("sl_basic", "dpo", "rl_loop")
"""One for each way to train, which `make test` has as well."""

RunRecipe = Callable[[str, Sequence[str]], str]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def run_recipe(hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunRecipe]:
    """What runs a recipe by its module and arguments, and returns what it said."""
    work = tmp_path_factory.mktemp("recipes")
    with started_server(work / "root", write_mirror(hub), model=MODEL) as server:
        environment = {
            **os.environ,
            **SDK_ENVIRONMENT,
            "TINKER_BASE_URL": server.url,
            "TINKER_API_KEY": server.api_key,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_HOME": str(work / "hf"),
            "PYTHONPATH": os.environ.get("GRAFTLINE_COOKBOOK", ""),
        }
        with subprocess.Popen(
            [sys.executable, PROGRAM],
            cwd=hub,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"

            def run(module: str, arguments: Sequence[str]) -> str:
                log = work / "recipe.log"
                request = f"tinker_cookbook.recipes.{module}", arguments, str(log)
                print(json.dumps(request), file=program.stdin, flush=True)
                status = program.stdout.readline().strip()
                text = log.read_text("utf-8", "replace")
                assert status == "0", text[-4000:]
                return text

            yield run
            program.stdin.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in RECIPES]
)
def test_a_recipe_of_the_cookbook_runs_to_its_end(run_recipe: RunRecipe, tmp_path: Path, name: str) -> None:
    module, arguments, metric = RECIPES[name]

    run_recipe(module, [*_SHARED, *arguments, f"log_path={tmp_path / 'log'}"])

    measured = [row[metric] for row in lines(tmp_path / "log" / "metrics.jsonl") if metric in row]
    assert len(measured) == STEPS
    assert lines(tmp_path / "log" / "checkpoints.jsonl")[-1]["name"] == "final"


@pytest.mark.long
def test_data_for_prompt_distillation_are_asked_of_the_model(run_recipe: RunRecipe, tmp_path: Path) -> None:
    run_recipe("prompt_distillation.create_data", [f"output_file={tmp_path / 'made.jsonl'}"])

    # a model that knows nothing answers no question in the form that is asked for, and such rows are left out
    assert (tmp_path / "made.jsonl").read_text("utf-8") == ""
