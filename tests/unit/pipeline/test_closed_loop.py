"""The closed loop over a small root, with a tiny model that is really trained: two adapters, one after the other, judged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, RecordError
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.closed_loop import (
    REPORT,
    RESULTS,
    Step,
    closed_loop_results,
    load_closed_loop,
    plan_closed_loop,
)
from graftline.pipeline.stages.evaluation import evaluation
from graftline.pipeline.stages.sft_dataset import sft_dataset
from graftline.pipeline.stages.trained_adapter import trained_adapter
from graftline.training.runs import Runs
from graftline.training.train import OUTPUT
from tests.lineages import Opened, opened_at
from tests.recipes import write_recipe

PAIR = {"language": "python", "pre": "old(1)\n", "post": "new(1)\n", "unseen": {"pre": "old(a)\n", "post": "new(a)\n"}}
TINY = {"model": "tiny-qwen3", "epochs": 1, "max_steps": 2, "renderer": "role_colon", "lora": {"rank": 2}}
CONTESTANTS = {
    "base": {"kind": "trained", "recipe": "first", "is_bare": True},
    "adapter": {"kind": "trained", "recipe": "first"},
    "improved": {"kind": "trained", "recipe": "second"},
    "rival": {"kind": "teacher"},
}
FILE = {
    "recipes": ["first", "second"],
    "evaluations": {"pairs": "a pair"},
    "base": "base",
    "candidate": "adapter",
    "improved": "improved",
    "rival": "rival",
}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for library in ("tinker", "torch", "peft", "tokenizers", "transformers", "uvicorn"):
        pytest.importorskip(library, reason="pip install 'graftline[training]'")
    from tests.unit.training.tiny_model import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3")


@pytest.fixture
def looped(made: Path, tiny_model: Path) -> Paths:
    """A root with a closed loop, and the tiny model as what is trained."""
    paths = Paths(made)
    shutil.copytree(tiny_model, made / "model")
    data = {"kind": "composed", "examples": 4, "held_out": 1}
    write_recipe(made, "first", data, **TINY)
    write_recipe(made, "second", data, **TINY, follows="first", order_seed=1, is_on_demand=True)
    (paths.configs / "evaluations").mkdir()
    contest = {"tasks": [{"kind": "pairs", "path": "pairs.jsonl"}], "solvers": CONTESTANTS}
    (paths.configs / "evaluations" / "pairs.yaml").write_text(json.dumps(contest), "utf-8")
    (made / "pairs.jsonl").write_text(
        json.dumps(PAIR) + "\n" + json.dumps({**PAIR, "pre": "old(2)\n", "post": "new(2)\n"})
    )
    (paths.configs / "closed_loop.yaml").write_text(json.dumps(FILE), "utf-8")
    return paths


@pytest.fixture
def opened(looped: Paths) -> Opened:
    training: dict[str, Any] = {"kind": "local", "folder": "model", "threads": 1}
    ports = {"sandbox": "memory", **{f"training_client.{key}": value for key, value in training.items()}}
    return lambda: opened_at(looped.root, ports)


def made_of(lineage: Lineage, step: Step) -> list[bool]:
    """Make a step, and return of each of its artifacts whether it was made anew."""
    if step.stage == "evaluation":
        return [evaluation(lineage, step.name).is_fresh]
    return [make(lineage, step.name).is_fresh for make in (sft_dataset, trained_adapter)]


@pytest.mark.long  # its stages have tests of their own in make test, beside this
def test_the_closed_loop_trains_one_adapter_after_the_other_and_judges_all(looped: Paths, opened: Opened) -> None:
    with opened() as lineage:
        steps = plan_closed_loop(lineage)
        assert steps == [("trained_adapter", "first"), ("trained_adapter", "second"), ("evaluation", "pairs")]
        assert [is_fresh for step in steps for is_fresh in made_of(lineage, step)] == [True] * 5
        built = closed_loop_results(lineage)
        assert [is_fresh for step in steps for is_fresh in made_of(lineage, step)] == [False] * 5
        again = closed_loop_results(lineage)
    assert (built.is_fresh, again.is_fresh) == (True, False)
    first, second = (load_record(looped.adapter(name)) for name in ("first", "second"))
    runs = Runs(looped.root / OUTPUT)
    assert second.inputs["trained_adapter"] == first.identity
    assert second.facts.keys() == {"precision", "device"}
    assert runs.get(second.config["run_id"]).attempts[0].computed_with == second.facts
    judged = load_record(looped.evaluation("pairs")).facts
    assert judged["adapter.precision"] == second.facts["precision"]
    start = runs.get(second.config["run_id"]).config["start_from"]
    assert start == runs.get(first.config["run_id"]).checkpoints[-1].path
    lines = json.loads((built.folder / RESULTS).read_text("utf-8"))
    said = {(line["first"], line["second"], line["measure"]): line for line in lines}
    # what is trained for two steps says nothing that can be read, and induction is right on both
    lost = said["adapter", "rival", "verified"]
    assert (lost["tasks"], lost["of_first"], lost["of_second"], lost["interval"]) == (2, 0.0, 1.0, [-1.0, -1.0])
    assert said["adapter", "rival", "right_on_unseen"]["of_second"] == 1.0
    assert len(said) == 8
    page = (built.folder / REPORT).read_text("utf-8")
    assert "| a pair (2) | solved | adapter | 0 % | rival | 100 % | -100 % | -100 to -100 |" in page


def test_a_file_of_version_0_1_0_is_read(looped: Paths) -> None:
    older = {"reinforced" if name == "improved" else name: value for name, value in FILE.items()}
    (looped.configs / "closed_loop.yaml").write_text(json.dumps(older), "utf-8")
    file = load_closed_loop(looped)
    assert file is not None
    assert file.improved == "improved"


def test_a_root_without_the_file_has_no_closed_loop(made: Path) -> None:
    assert load_closed_loop(Paths(made)) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipes": ["first", "nobody"]}, "recipe 'nobody' is unknown"),
        ({"evaluations": {"pair": "x"}}, "evaluations: 'pair' is none of configs/evaluations; known: pairs"),
        # an evaluation of a deployment has no solvers
        (
            {"evaluations": {"pairs": "x", "shop": "y"}},
            "evaluations: 'shop' is none of configs/evaluations; known: pairs",
        ),
        ({"rival": "rivals"}, "rival: 'rivals' is a solver of none of the evaluations; known: base, adapter, impr"),
    ],
)
def test_a_name_that_means_nothing_is_said_before_anything_is_trained(
    looped: Paths, opened: Opened, changes: dict[str, Any], said: str
) -> None:
    (looped.configs / "closed_loop.yaml").write_text(json.dumps({**FILE, **changes}), "utf-8")
    with opened() as lineage, pytest.raises(ConfigError, match=said):
        plan_closed_loop(lineage)


def test_a_solver_that_cannot_be_asked_is_said_before_anything_is_trained(looped: Paths, opened: Opened) -> None:
    asked = {**CONTESTANTS, "rival": {"kind": "actors", "fleet": "nobody"}}
    contest = {"tasks": [{"kind": "pairs", "path": "pairs.jsonl"}], "solvers": asked}
    (looped.configs / "evaluations" / "pairs.yaml").write_text(json.dumps(contest), "utf-8")
    with opened() as lineage, pytest.raises(ConfigError, match="fleet 'nobody' is unknown"):
        plan_closed_loop(lineage)


def test_results_without_an_adapter_say_what_was_not_made_yet(looped: Paths, opened: Opened) -> None:
    with opened() as lineage, pytest.raises(RecordError, match="so it was not made yet"):
        closed_loop_results(lineage)


def test_a_file_that_does_not_fit_says_where(looped: Paths) -> None:
    (looped.configs / "closed_loop.yaml").write_text(json.dumps({**FILE, "recipes": []}), "utf-8")
    with pytest.raises(ConfigError, match="recipes"):
        load_closed_loop(looped)
