"""From `graftline refactor --record` to a row that a recipe is trained on: what was accepted, and nothing else."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.core.jsonl import read_lines
from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.pipeline.stages.table import make
from graftline.rollouts.shards import read_shards, sealed_shards
from graftline.rollouts.task import Task
from tests.lineages import Run, opened_at
from tests.pages import fences
from tests.training_root import CHECKOUT

FILES = {
    "a.py": "def load(client, url):\n    rows = client.get_all(url, 1)\n    return size_of(rows)\n",
    "b.py": "def save(client, row):\n    client.get_all(row, 2)\n",
}
RECIPE = {
    "recipe": "sl_basic",
    "model": "smollm2-135m",
    "renderer": "qwen3_instruct",
    "data": {"kind": "trajectories", "languages": ["python"], "prompt": "brief", "teachers": ["agent"]},
}


@pytest.fixture
def repository(made: Path) -> Path:
    """A repository whose address is one of those that are trained on."""
    folder = made.parent / "repo"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (["init", "-q"], ["remote", "add", "origin", "https://example.org/acme/shop.git"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True, env=environment)
    return folder


@pytest.fixture
def refactor(made: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    (made / "configs" / "sandbox.yaml").write_text("actions: {kind: memory}\n", "utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(made.parent / "state"))

    def refactor(*words: str) -> Result:
        result = CliRunner().invoke(main, ["--root", str(made), "refactor", *words, "--force"])
        assert result.exit_code in (0, 1), result.output
        return result

    return refactor


def test_what_a_user_accepted_becomes_a_row_that_is_trained_on(
    made: Path, repository: Path, refactor: Callable[..., Result], run: Run, reconfigure: Callable[..., Any]
) -> None:
    paths = Paths(made)
    rename, reject = "Rename `get_all` to `all_of`.", "Rename `size_of` to `length_of`."
    refactor(rename, str(repository))
    assert not (made / "data" / "trajectories" / "attempts").exists()  # nobody agreed
    refactor(rename, str(repository), "--record")  # undecided
    groups = json.loads(refactor(reject, str(repository), "--json").stdout)["groups"]
    refactor(reject, str(repository), "--record", *(word for group in groups for word in ("--reject", group["id"])))
    refactor(rename, str(repository), "--record", "--write")
    for name, text in FILES.items():
        (repository / name).write_text(text, "utf-8")
    refactor(rename, str(repository), "--record")  # looked at again, which takes nothing back
    undone = "Rename `rows` to `lines`."
    refactor(undone, str(repository), "--record", "--write")
    assert CliRunner().invoke(main, ["undo", str(repository)]).exit_code == 0

    before = run(made)
    assert {reason for name, reason in before.items() if not name.startswith("summary")} == {""}  # nothing reads it yet
    [shown] = [fence.body for fence in fences() if fence.page == "docs/refactor.md" and fence.language == "yaml"]
    entry = yaml.safe_load(shown)["datasets"]["recorded"]
    reconfigure(made, "datasets.yaml", {"datasets.recorded": entry, "use": ["release_pairs", "recorded"]})
    run(made)
    rejected = read_parquet(paths.normalized("recorded") / "dropped.parquet")
    assert sorted((row["reason"], row["detail"].partition(":")[0]) for row in rejected) == [
        ("not_accepted", "rejected"), ("not_accepted", "undecided"), ("not_accepted", "undecided"),
        ("not_accepted", "undone"), ("not_accepted", "was decided again later"),
    ]  # fmt: skip
    tasks = list(read_lines(paths.partition("tasks", "python", "train") / "tasks.jsonl", Task))
    [task] = [task for task in tasks if task.dataset == "recorded"]
    assert (task.instruction, "get_all" in task.before, "all_of" in task.target) == (rename, True, True)
    [folder] = [path for path in paths.partition("trajectories/raw", "python", "train").iterdir() if path.is_dir()]
    attempts = [row for row in read_shards(sealed_shards(folder)) if row.task_id == task.id]
    assert {row.teacher: (row.task_digest, row.reward.value, row.is_verified) for row in attempts} == {
        "agent": (task.digest, 1.0, True), "induction": (task.digest, 1.0, True),
    }  # fmt: skip

    assert set(run(made).values()) == {""}
    (made / "configs" / "recipes").mkdir()
    (made / "configs" / "recipes" / "tiny.yaml").write_text(json.dumps(RECIPE), "utf-8")
    shutil.copy(CHECKOUT / "configs" / "models.yaml", made / "configs")
    with opened_at(made, {"sandbox": "memory"}) as lineage:
        built = make("sft_dataset", lineage, "tiny")
    [row] = [json.loads(line) for line in (built.folder / "train.jsonl").read_text("utf-8").splitlines()]
    assert (row["task_id"], row["teacher"], row["license"]) == (task.id, "agent", "MIT")
    assert "all_of" in row["messages"][-1]["content"]
