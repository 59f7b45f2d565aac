"""The commands below `graftline train`: what they print, and what they are told when something is wrong."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from tests.pages import CHECKOUT

EXTRA = "pip install 'graftline[training]'"
CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4, as ever."}]}
SHORT = ["--set", "dataset=chats.jsonl", "--set", "max_steps=2", "--set", "batch_size=2", "--set", "epochs=2"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the shipped manifests, one of the shipped recipes, and chats."""
    for name in ("models.yaml", "manifests/local.yaml", "manifests/test.yaml", "recipes/sl_basic.yaml"):
        path = tmp_path / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((CHECKOUT / "configs" / name).read_text("utf-8"), "utf-8")
    (tmp_path / "chats.jsonl").write_text((json.dumps(CHAT) + "\n") * 4, "utf-8")
    return tmp_path


def recipes(root: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--root", str(root), "train", *arguments])
    assert isinstance(result.exception, SystemExit | None)
    return result


def test_the_recipes_that_are_configured_are_listed(root: Path) -> None:
    result = recipes(root, "list", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {
            "recipes": [
                {
                    "name": "sl_basic",
                    "recipe": "sl_basic",
                    "model": "smollm2-135m",
                    "description": "verified steps of all teachers, as `data export sft` writes them",
                }
            ],
            "runs": [],
        },
    )
    assert "verified steps of all teachers" in recipes(root, "list").stdout


def test_a_recipe_is_shown_with_all_its_values_and_its_source(root: Path) -> None:
    shown = json.loads(recipes(root, "show", "sl_basic", "--json").stdout)
    assert shown["stages"][0]["options"]["learning_rate"] == 0.001
    lines = [line.split() for line in recipes(root, "show", "sl_basic").stdout.splitlines()]
    for key in shown["stages"][0]["options"]:
        assert any(line[:2] == ["train", key] for line in lines)
    assert lines[-1] == ["see", "https://tinker-docs.thinkingmachines.ai/losses"]


def test_a_dry_run_says_what_would_be_done(root: Path) -> None:
    result = recipes(root, "run", "sl_basic", *SHORT, "--set", "training_client.model=mine", "--dry-run", "--json")
    output = json.loads(result.stdout)
    assert output["spec"]["stages"][0]["options"]["max_steps"] == 2
    assert (output["wiring"]["training_client"]["kind"], output["wiring"]["training_client"]["model"]) == (
        "local",
        "mine",
    )
    text = recipes(root, "run", "sl_basic", "--manifest", "test", "--dry-run").stdout
    assert ["training_client", "memory", "seed=0"] in [line.split() for line in text.splitlines()]


def test_a_recipe_is_run_with_the_ports_of_a_manifest(root: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason=EXTRA)
    arguments = ["run", "sl_basic", "--manifest", "test", "--set", "dataset_store=files", *SHORT]
    result = recipes(root, *arguments, "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert output["run"]["status"] == "done"
    assert Path(output["adapter"]) == root / "models/adapters/memory" / output["run_id"]
    steps = [line for line in result.stderr.splitlines() if line.startswith("step ")]
    assert [line.partition(":")[0] for line in steps] == ["step 1 of 2", "step 2 of 2"]
    again = recipes(root, *arguments)
    assert (again.exit_code, ["status", "done"] in [line.split() for line in again.stdout.splitlines()]) == (0, True)
    assert output["adapter"] in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "sl"], "recipe 'sl' is unknown; "),
        (["run", "sl_basic", "--set", "batch_size=x"], "batch_size: input should be a valid integer (got 'x')"),
        (["run", "sl_basic", "--manifest", "staging"], "manifest 'staging' is unknown; known: default, local, dev"),
        (["run", "sl_basic", "--set", "nothing=memory"], "nothing: unknown key; known here: "),
        (["run", "sl_basic", "--manifest", "test", "--set", "dataset_store.files=3"], "dataset_store"),
    ],
)
def test_what_is_wrong_is_told_without_a_traceback(root: Path, arguments: list[str], message: str) -> None:
    result = recipes(root, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
