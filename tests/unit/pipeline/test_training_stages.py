"""The stages of recipes over a small root: what is trained on, the adapter, and when it is trained again."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError, DataError, GraftlineError
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.datasets.edit import Edit
from graftline.pipeline.stages.sft_dataset import lineage_recipes, recipes_of_run, sft_dataset
from graftline.pipeline.stages.trained_adapter import trained_adapter
from graftline.pipeline.summary import summarize, tables, verdict
from graftline.rollouts.answer_grading import grade_answer
from graftline.rollouts.fenced_code import fence_code
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.task import Task
from graftline.rollouts.task_selection import balance
from graftline.rollouts.teachers.prompt import load_prompt, unpack_prompt
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.training.adapter import check_adapter
from graftline.training.rows import Material, is_sayable, rows_of, rows_of_tasks
from graftline.training.runs import Runs
from graftline.training.settings import (
    ChangesSource,
    ComposedSource,
    SyntheticSource,
    TasksSource,
    TrajectorySource,
)
from graftline.training.train import MEMORY_OUTPUT
from tests.lineages import Opened, Run, opened_at
from tests.pages import codes, keys_of, section, table
from tests.recipes import SYNTHETIC, TRAJECTORIES, write_recipe
from tests.tasks import make_task

PORTS = {"sandbox": "memory", "training_client": "memory"}


@pytest.fixture
def adapted(trained_run: tuple[Path, dict[str, str]], tmp_path: Path) -> Paths:
    """The root with both recipes trained once more, for a test of its own."""
    return Paths(Path(shutil.copytree(trained_run[0], tmp_path / "adapted")))


@pytest.fixture
def stages(adapted: Paths) -> Opened:
    """Open the lineage of that root."""
    return lambda: opened_at(adapted.root, PORTS)


def rows(paths: Paths, recipe: str, name: str) -> list[dict[str, Any]]:
    lines = (paths.training_set(recipe) / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_recipes_with_data_come_last_in_a_run_and_the_others_are_none_of_it(
    trained_run: tuple[Path, dict[str, str]], adapted: Paths
) -> None:
    write_recipe(adapted.root, "by_hand", None, dataset="data/exports/sft.jsonl")
    made = [name for name, reason in trained_run[1].items() if reason]
    assert made == ["sft_dataset seen", "sft_dataset tiny", "trained_adapter seen", "trained_adapter tiny"]
    assert lineage_recipes(adapted) == ["seen", "tiny"]


@pytest.mark.parametrize("recipe", ["seen", "tiny"])
def test_an_adapter_says_what_it_is_and_loads_as_one_of_peft(adapted: Paths, recipe: str) -> None:
    folder, dataset = adapted.adapter(recipe), load_record(adapted.training_set(recipe))
    record = load_record(folder)
    run = Runs(adapted.root / MEMORY_OUTPUT).get(record.config["run_id"])
    check_adapter(folder)
    assert (run.status, run.backend, record.inputs) == ("done", "memory", {"sft_dataset": dataset.identity})
    assert (record.config["model"], record.config["backend"]) == ("memory", "memory")
    assert sorted(record.files) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors", "evaluation.json", "facts.json",
        "prompt.yaml", "solved.jsonl", "steps.jsonl",
    ]  # fmt: skip
    assert unpack_prompt(folder / "prompt.yaml").digest() == load_prompt(adapted.configs, "brief").digest()
    held_out, tasks = rows(adapted, recipe, "held_out"), rows(adapted, recipe, "tasks")
    assert dataset.counts["rows"] == record.counts["examples"] == len(rows(adapted, recipe, "train"))
    assert dataset.counts["held_out"] == len(held_out) > 0
    # a run may end by what is looked at, so that is not what it is judged by
    assert not {row["task_id"] for row in held_out} & {task["id"] for task in tasks}
    assert record.counts["tasks"] == len(tasks)
    assert run.held_out_loss is not None
    assert run.base_held_out_loss is not None
    assert run.held_out_loss < run.base_held_out_loss


def test_what_is_looked_at_and_solved_is_of_other_repositories(adapted: Paths, stages: Opened) -> None:
    # whole tasks, which say what repository they are of
    for name, data in (("of_synthetic", SYNTHETIC), ("of_trajectories", TRAJECTORIES)):
        write_recipe(adapted.root, name, data, recipe="rl_grpo")
        with stages() as lineage:
            sft_dataset(lineage, name)
        groups = [{task["group"] for task in rows(adapted, name, which)} for which in ("train", "held_out", "tasks")]
        assert [len(found) for found in groups] == [1, 1, 1]
        assert len(set.union(*groups)) == 3


def test_licenses_are_counted_and_stand_on_the_card(adapted: Paths) -> None:
    counts = load_record(adapted.training_set("tiny")).counts
    card = (adapted.adapter("tiny") / "README.md").read_text("utf-8")
    trained = load_record(adapted.adapter("tiny")).counts["trained_tokens"]
    assert {key: count for key, count in counts.items() if key.startswith("license.")} == {
        "license.MIT": counts["rows"]
    }
    for line in (
        f"| MIT | {counts['rows']} |",
        "| base model | memory |",
        "| recipe | sl_basic |",
        f"| trained tokens | {trained:,} |",
        "| of | tasks | solved before | solved after | unknown |",
        "It is to be asked by the prompt `brief`, with the renderer `role_colon`.",
        "## Limits",
    ):
        assert line in card


def test_only_a_value_that_decides_about_weights_trains_again(adapted: Paths, run: Run) -> None:
    path = adapted.configs / "recipes" / "tiny.yaml"
    path.write_text("# of no consequence\n" + path.read_text("utf-8"), "utf-8")
    # where checkpoints go decides about nothing
    write_recipe(adapted.root, "seen", TRAJECTORIES, save_every=3)
    assert {*run(adapted.root, PORTS).values()} == {""}
    write_recipe(adapted.root, "tiny", SYNTHETIC, learning_rate=0.04)
    again = {name: reason for name, reason in run(adapted.root, PORTS).items() if reason}
    assert again == {"trained_adapter tiny": "config recipe, config run_id changed"}
    assert len(Runs(adapted.root / MEMORY_OUTPUT).all()) == 3
    write_recipe(adapted.root, "tiny", {**SYNTHETIC, "examples": 4}, learning_rate=0.04)
    again = {name: reason for name, reason in run(adapted.root, PORTS).items() if reason}
    assert list(again) == ["sft_dataset tiny", "trained_adapter tiny"]


def test_an_adapter_that_is_lost_is_made_again_though_its_run_is_done(adapted: Paths, stages: Opened) -> None:
    before = (adapted.adapter("tiny") / "adapter_model.safetensors").read_bytes()
    shutil.rmtree(adapted.adapter("tiny"))
    with stages() as lineage:
        built = trained_adapter(lineage, "tiny")
    run = Runs(adapted.root / MEMORY_OUTPUT).get(built.record.config["run_id"])
    assert (built.reason, run.status, len(run.attempts)) == ("not there yet", "done", 2)
    assert (built.folder / "adapter_model.safetensors").read_bytes() == before


FAULTS: dict[str, tuple[dict[str, Any], type[GraftlineError], str]] = {
    "a template that there is not": (
        {"data": {**SYNTHETIC, "templates": ["rename_all"]}},
        ConfigError,
        r"data\.synthetic: .*templates: 'rename_all' is unknown; docs/synthetic\.md lists them",
    ),
    "a prompt that there is not": (
        {"data": {**SYNTHETIC, "prompt": "huge"}},
        ConfigError,
        r"teacher_prompts\.yaml: prompt 'huge' is unknown; known: brief, edit, edit_shots, example, example_shots",
    ),
    "no rows": (
        {"data": {**TRAJECTORIES, "teachers": ["nobody"]}},
        DataError,
        "recipe 'bad': nothing fits what `data` asks for, so there is nothing to train on",
    ),
    "pairs of synthetic edits": (
        {"data": SYNTHETIC, "recipe": "dpo"},
        ConfigError,
        "recipe 'dpo' learns from answers that are wrong, and synthetic edits have none; use data.kind: trajectories,"
        " or one of distill, expert_iteration, rl_grpo, sl_basic, srl",
    ),
    "attempts, for a prompt that is answered with code": (
        {"data": {**TRAJECTORIES, "prompt": "edit"}},
        ConfigError,
        "prompt 'edit' is answered with code, and trajectories have actions; use data.kind: tasks",
    ),
    "tasks, for a prompt that is answered with actions": (
        {"data": {"kind": "tasks", "prompt": "brief"}},
        ConfigError,
        "data.kind: tasks has no known actions, which prompt 'brief' is answered with",
    ),
    "code, for a recipe of actions": (
        {"data": {"kind": "tasks", "prompt": "edit"}, "recipe": "srl"},
        ConfigError,
        "recipe 'srl' learns from actions, and prompt 'edit' is answered with code",
    ),
    "a language without splits": (
        {"data": {**SYNTHETIC, "languages": ["java"]}},
        ConfigError,
        r"recipe 'bad': data\.languages: 'java' has no splits; configs/datasets\.yaml has python",
    ),
    "the name of a folder of runs": (
        {"name": "memory", "data": SYNTHETIC},
        ConfigError,
        "models/adapters/memory holds runs; give its file",
    ),
    "no data": (
        {"data": None, "dataset": "data/exports/sft.jsonl"},
        ConfigError,
        "recipe 'bad' has no `data`, so the lineage makes nothing for it; known: seen, tiny",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_recipe_that_cannot_be_trained_says_why(adapted: Paths, stages: Opened, fault: str) -> None:
    values, kind, message = FAULTS[fault]
    name = values.get("name", "bad")
    write_recipe(adapted.root, name, **{key: value for key, value in values.items() if key != "name"})
    with stages() as lineage, pytest.raises(kind, match=message):
        sft_dataset(lineage, name)


def test_rows_of_synthetic_edits_have_the_form_of_their_recipe(adapted: Paths) -> None:
    [task, *_] = [Task.model_validate(row) for row in rows(adapted, "tiny", "tasks")]
    prompt = load_prompt(adapted.configs, "brief")
    assert is_sayable(task, prompt)
    [chat] = rows_of_tasks("sl_basic", [task], prompt)
    [asked, said] = chat["messages"]
    assert asked == {"role": "user", "content": f"{task.instruction}\n\n{task.before}\n"}
    # the brief prompt wants the action alone
    [expert] = rows_of_tasks("srl", [task], prompt)
    assert {"pattern", "rewrite"} <= json.loads(said["content"]).keys()
    assert (expert["prompt"], expert["task_id"]) == ([asked], task.id)
    assert [*rows_of_tasks("rl_grpo", [task], prompt)] == [task.model_dump(mode="json")]


def test_rows_are_taken_of_all_groups_in_turns_and_of_groups_within_them() -> None:
    assert balance(["a1", "a2", "a3", "b1", "c1", "c2"], 5, lambda item: item[0]) == ["a1", "b1", "c1", "a2", "c2"]
    items = ["ax1", "ax2", "ay1", "az1", "bx1", "by1", "bx2"]
    found = balance(items, 5, lambda item: item[0], lambda item: item[1])
    # none of the first kind is left out because the others have many groups of the second
    assert found == ["ax1", "bx1", "ay1", "by1", "az1"]


def test_the_summary_shows_what_adapters_solve(adapted: Paths) -> None:
    summary = summarize(adapted)
    counts = load_record(adapted.adapter("tiny")).counts
    [_, _, (title, columns, found)] = tables(summary)
    assert (title, columns) == (
        "Adapters, on tasks of packages and repositories held out",
        ["recipe", "examples", "trained tokens", "solved before", "solved after"],
    )
    assert [row[0] for row in found] == ["seen", "tiny"]
    solved = [f"{counts[which]} of {counts['tasks']}" for which in ("solved_before", "solved_after")]
    assert found[1] == ("tiny", str(counts["examples"]), f"{counts['trained_tokens']:,}", *solved)
    assert summary.as_dict()["adapters"]["tiny"] == counts
    assert verdict(summary) == "Artifacts: 4 made, 20 unchanged."


def test_the_keys_of_data_are_the_documented_ones() -> None:
    sources = {
        "synthetic": keys_of(SyntheticSource), "trajectories": keys_of(TrajectorySource),
        "composed": keys_of(ComposedSource), "tasks": keys_of(TasksSource), "changes": keys_of(ChangesSource),
        "mixture": {"kind": "needed", "parts": "needed", "without": "`[]`"},
    }  # fmt: skip
    rows = table(section("docs/training.md", "## In the lineage"))
    for kind, keys in sources.items():
        assert {codes(row[0])[0]: row[1] for row in rows if f"`{kind}`" in row[2] or row[2] == "all"} == keys


def test_a_mixture_is_made_of_the_rows_of_its_parts(adapted: Paths, stages: Opened) -> None:
    composed = {"kind": "composed", "examples": 6, "held_out": 2}
    solved = {"kind": "trajectories", "of": "real", "examples": 5, "held_out": 1}
    parts = [{**part, "prompt": "example"} for part in ({**SYNTHETIC, "per_snippet": 4}, composed, solved)]
    write_recipe(adapted.root, "mixed", {"kind": "mixture", "parts": parts})
    with stages() as lineage:
        built = sft_dataset(lineage, "mixed")
    train = rows(adapted, "mixed", "train")
    kinds = [row["task_id"].partition(":")[0] for row in train]
    synthetic = len(rows(adapted, "tiny", "train"))
    assert (kinds.count("synthetic"), kinds.count("composed")) == (synthetic, 6)
    assert 0 < len(kinds) - synthetic - 6 <= 5
    assert built.record.counts["tasks"] == len(rows(adapted, "mixed", "tasks"))
    # asked by the change, answered by what becomes of a place or two, and the action
    asked, answered = train[-1]["messages"]
    assert asked["content"].startswith("python\n")
    thought, _, action = answered["content"].partition("\n")
    assert " => " in thought
    assert {*json.loads(action)} == {"pattern", "rewrite"}


def test_code_is_learned_from_tasks_and_edits_that_can_be_done_from_their_words(adapted: Paths, stages: Opened) -> None:
    composed = {"kind": "composed", "examples": 20, "held_out": 2}
    stored = {"kind": "tasks", "of": "all", "examples": 5, "held_out": 2}
    parts = [{**part, "prompt": "edit"} for part in (SYNTHETIC, composed, stored)]
    write_recipe(adapted.root, "coded", {"kind": "mixture", "parts": parts})
    with stages() as lineage:
        sft_dataset(lineage, "coded")
    train, tasks = rows(adapted, "coded", "train"), rows(adapted, "coded", "tasks")
    kinds = [row["task_id"].partition(":")[0] for row in train]
    assert kinds.count("composed") > 0
    assert 0 < len([kind for kind in kinds[-5:] if kind not in ("synthetic", "composed")]) <= 5
    for row in train:
        asked, answered = (message["content"] for message in row["messages"])
        assert asked.startswith(f"{row['language']}: ")
        assert answered.startswith(f"```{row['language']}\n")
        # nobody is told to do as an example does that is not shown
        assert "example" not in asked.partition("\n")[0]
    sandbox, edit = MemorySandbox(), load_prompt(adapted.configs, "edit").settings.answer
    for task in [Task.model_validate(row) for row in tasks]:
        graded = grade_answer(task, fence_code(task.target, task.language), edit, sandbox, RewardWeights())
        assert (graded.is_read, graded.is_verified) == (True, True)


def test_nothing_is_trained_on_of_repositories_that_something_is_judged_by(adapted: Paths, stages: Opened) -> None:
    stored = {"kind": "tasks", "of": "all", "examples": 50, "held_out": 0, "prompt": "edit"}
    tasks = read_lines(adapted.partition("tasks", "python", "train") / "tasks.jsonl", Task)
    groups = {task.group for task in tasks}
    write_recipe(adapted.root, "some", {**stored, "without": ["of/another"]})
    write_recipe(adapted.root, "none", {**stored, "without": [group.upper() for group in groups]})
    with stages() as lineage:
        assert sft_dataset(lineage, "some").record.counts["rows"] > 0
        with pytest.raises(DataError, match="nothing fits what `data` asks for, so there is nothing to train on"):
            sft_dataset(lineage, "none")


LONG = (
    "def first(client):\n    client.fetch(1)\n\n\n"
    + "value = 1\n" * 80
    + "\n\ndef second(client):\n    client.fetch(2)\n"
)


@pytest.mark.parametrize(
    ("instruction", "answerable", "told"),
    [
        ("Call get in place of fetch", None, True),
        ("Call get in place of fetch", False, False),
        # nobody can know what it becomes, or what is meant
        ("Do not fetch", None, False),
        ("Make it faster", None, False),
        ("Make it faster", True, True),
    ],
)
def test_places_of_a_long_text_are_rows_where_its_instruction_says_enough(
    adapted: Paths, instruction: str, answerable: bool | None, told: bool
) -> None:
    task = make_task(LONG, LONG.replace("fetch", "get"), instruction=instruction).model_copy(
        update={"instruction_source": "commit", "answerable": answerable, "answerable_by": None}
    )
    material = Material("train", no_edits, no_attempts, lambda language: [task], list, MemorySandbox())
    source = TasksSource(prompt="edit", instructions="told", most_characters=200, places=4)
    prompt, left_out = load_prompt(adapted.configs, "edit"), Counter[str]()
    made = rows_of(material, "sl_basic", source, prompt, 10, left_out)[0]
    answers = [row["messages"][-1]["content"] for row in made]
    expected = [
        f"```python\ndef {name}(client):\n    client.get({number})\n```"
        for name, number in (("first", 1), ("second", 2))
    ]
    assert answers == (expected if told else [])
    assert left_out["not_kept.unanswerable"] == (answerable is False)
    assert rows_of(material, "sl_basic", source.model_copy(update={"places": 0}), prompt, 10, Counter())[0] == []


def no_edits(language: Language) -> list[Edit]:
    return []


def no_attempts(language: Language) -> tuple[dict[str, Task], list[Trajectory]]:
    return {}, []


@pytest.mark.parametrize(
    ("data", "values", "message"),
    [
        (
            {"kind": "mixture", "parts": [SYNTHETIC, {"kind": "composed", "prompt": "example"}]},
            {},
            "parts: are asked by brief, example; name one prompt in all of them",
        ),
        (SYNTHETIC, {"follows": "tiny", "start_from": "tinker://x"}, "both say what is trained on"),
    ],
)
def test_a_recipe_says_one_thing_in_one_way(
    adapted: Paths, data: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    write_recipe(adapted.root, "after", data, **values)
    with pytest.raises(ConfigError, match=message):
        lineage_recipes(adapted)


def test_what_is_trained_on_demand_is_no_part_of_a_run(adapted: Paths) -> None:
    write_recipe(adapted.root, "a_later_one", SYNTHETIC, is_on_demand=True)
    assert lineage_recipes(adapted) == ["seen", "tiny", "a_later_one"]
    assert recipes_of_run(adapted) == ["seen", "tiny"]
