"""The stage `optimized_prompt`: what it makes, when it makes it again, and how what it found is asked by."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.astgrep.action import PatternAction
from graftline.cli.main import main
from graftline.core.config import load_yaml, to_yaml
from graftline.core.errors import ConfigError, DataError
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.stages.optimized_prompt import (
    BEST,
    PAGE,
    PROMPT_FILE,
    front_rows,
    optimized_prompt,
    page,
    prompt_file,
    prompt_names,
    read_outcome,
    split_tasks,
)
from graftline.prompts.outcome import JudgedPrompt, Outcome
from graftline.prompts.proposers import MISTAKES
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.prompt import Prompts, load_prompt
from tests.conftest import CHECKOUT

FILE: dict[str, Any] = {
    "prompt": "small",
    "tasks": "tasks.jsonl",
    "train": 8,
    "validation": 4,
    "gepa": {
        "proposer_type": "offline",
        "rng_seed": 1,
        "rollout": {"budget": 120, "max_concurrent": 4, "minibatch_size": 4},
        "population": {"num_generations": 2, "children_per_generation": 2},
    },
}


def task(number: int) -> Task:
    return Task(
        id=f"t{number:02}",
        dataset="d",
        language="python",
        instruction="Rename `old` to `new`.",
        before=f"x = old({number})\ny = old(b)\n",
        target=f"x = new({number})\ny = new(b)\n",
        gold_action=PatternAction(pattern="old($A)", rewrite="new($A)"),
        license="MIT",
        group=f"g{number % 6}",
        origin="o",
    )


class Learning:
    """A model that answers rightly once its prompt says beforehand what goes wrong."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, request: ChatRequest) -> str:
        self.asked += 1
        is_told = MISTAKES in request.messages[0].content
        pattern = "old($A)" if is_told else "absent($A)"
        action = PatternAction(pattern=pattern, rewrite="new($A)")
        return format_answer(Answer("Calls change.", action, StateUpdate(history=["renamed"]), True), "json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    configs = tmp_path / "configs"
    (configs / "prompts").mkdir(parents=True)
    for name in ("manifests", "evals"):
        (configs / name).symlink_to(CHECKOUT / "configs" / name)
    for path in (CHECKOUT / "configs").glob("*.yaml"):
        (configs / path.name).symlink_to(path)
    (configs / "prompts" / "tiny.yaml").write_text(to_yaml(FILE))
    write_lines(tmp_path / "tasks.jsonl", [task(number) for number in range(18)])
    return tmp_path


@pytest.fixture
def model() -> Learning:
    return Learning()


@pytest.fixture
def lineage(root: Path, model: Learning) -> Iterator[Lineage]:
    paths = Paths(root)
    with (
        open_lineage(paths, load_manifest(paths, "test", {}), "run") as lineage,
        BlockingChatModel(MemoryChatModel(model)) as chat_model,
    ):
        lineage.ports.replace("chat_model", chat_model)
        yield lineage


def test_a_better_prompt_becomes_one_like_those_of_the_file(lineage: Lineage, model: Learning) -> None:
    built = optimized_prompt(lineage, "tiny")
    outcome = read_outcome(built.folder)

    best = outcome.best_prompt
    assert best is not None
    assert MISTAKES in best.texts["system"]
    assert outcome.gain is not None
    assert outcome.gain[0] > 0
    made = load_yaml(built.folder / PROMPT_FILE, Prompts)
    begun_with = load_yaml(lineage.paths.configs / "teacher_prompts.yaml", Prompts)
    assert made.prompts["tiny"] == begun_with.prompts["small"].model_copy(update=best.texts)
    assert made.shots == begun_with.shots
    # teachers ask for it by this name
    asked = load_prompt(lineage.paths.configs, "optimized/tiny")
    assert asked.settings == made.prompts["tiny"]
    assert best.texts["system"].strip() in (built.folder / BEST).read_text()
    assert "optimized/tiny" in (built.folder / PAGE).read_text()
    assert "on 4 tasks of both, which had no part in the choice." in (built.folder / PAGE).read_text()
    assert built.record.counts["rollouts"] == outcome.rollouts == model.asked


def test_what_is_there_is_left_and_another_file_makes_another_prompt(lineage: Lineage, model: Learning) -> None:
    first = optimized_prompt(lineage, "tiny")
    asked = model.asked
    again = optimized_prompt(lineage, "tiny")
    assert (again.reason, again.record.identity, model.asked) == ("", first.record.identity, asked)

    quicker = {**FILE, "gepa": {**FILE["gepa"], "rollout": {**FILE["gepa"]["rollout"], "max_concurrent": 2}}}
    path = lineage.paths.configs / "prompts" / "tiny.yaml"
    path.write_text(to_yaml(quicker))
    assert optimized_prompt(lineage, "tiny").reason == ""
    path.write_text(to_yaml({**FILE, "train": 7}))
    assert optimized_prompt(lineage, "tiny").reason == "config asked, config tasks changed"


def test_tasks_are_judged_on_other_repositories_than_prompts_are_changed_on() -> None:
    tasks = [task(number) for number in range(18)]
    train, validation = split_tasks(tasks, 8, 4)
    assert (len(train), len(validation)) == (8, 4)
    assert not {one.group for one in train} & {one.group for one in validation}
    assert split_tasks(tasks[::-1], 8, 4) == (train, validation)
    with pytest.raises(DataError, match="18 tasks of 6 packages and repositories"):
        split_tasks(tasks, 16, 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gepa": {"rollout": {"bugdet": 1}}}, "did you mean 'budget'"),
        ({"gepa": {"evaluation": {"train_seeds": [1]}}}, "evaluation names seeds"),
        ({"parts": ["systen"]}, "parts"),
    ],
)
def test_a_file_that_does_not_fit_says_so(root: Path, change: dict[str, Any], said: str) -> None:
    (root / "configs" / "prompts" / "tiny.yaml").write_text(to_yaml({**FILE, **change}))
    assert prompt_names(Paths(root)) == ["tiny"]
    with pytest.raises(ConfigError, match=said):
        prompt_file(Paths(root), "tiny")


def test_an_optimized_prompt_that_is_not_made_is_one_clear_error(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"data/prompts/tiny/prompt\.yaml"):
        load_prompt(root / "configs", "optimized/tiny")


def judged(number: int, **more: Any) -> JudgedPrompt:
    values = {
        "digest": str(number),
        "parents": [],
        "changed": [],
        "how": "told",
        "asked": 0,
        "texts": {"system": "Do."},
    }
    return JudgedPrompt.model_validate({"number": number, "scores": {}, **values, **more})


def outcome_of(*prompts: JudgedPrompt, **more: Any) -> Outcome:
    values = {"proposer": "told", "ending": "3 generations", "best": 0, "best_by_seed": {}, "proposals": {}}
    return Outcome.model_validate({"rollouts": 1, "usd": 0.0, "tokens": 0, **values, **more, "prompts": prompts})


def test_the_page_says_which_seeds_the_gain_is_of_and_what_was_not_judged() -> None:
    prompts = judged(0, scores={1: 0.2, 2: 0.2}), judged(1, scores={1: 0.6, 2: 0.6})
    text = page("x", outcome_of(*prompts, best=1, not_judged="budget: max_usd of 1 is used up"))

    assert "+0.4000 (95 %: +0.4000 to +0.4000), on 2 tasks of both, chosen on these, so expect less of others." in text
    assert "It was not judged on the tasks that are kept for that: budget: max_usd of 1 is used up." in text


def test_what_is_not_known_is_no_zero_in_the_order_of_prompts() -> None:
    rows = front_rows(outcome_of(judged(0, scores={1: 0.5}), judged(1), judged(2, scores={1: 0.0})))

    assert [row["prompt"] for row in rows] == [0, 2, 1]


def test_no_fence_in_a_prompt_ends_its_block() -> None:
    hostile = "~~~~\n```\n````\n# Not a title"
    lines = page("x", outcome_of(judged(0, texts={"system": hostile}, scores={1: 0.5}))).splitlines()

    assert lines[lines.index("`````text") + 1 :] == [*hostile.splitlines(), "`````", ""]


def test_commands_list_make_show_and_cancel(root: Path) -> None:
    def said(*arguments: str) -> Any:
        found = CliRunner().invoke(main, ["--root", str(root), "prompt", *arguments, "--json"])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    assert said("list") == {"prompts": [{"name": "tiny", "prompt": "small", "made": False}]}
    # a model of the manifest `test` answers nothing, so that no prompt is better
    made = said("optimize", "tiny", "--manifest", "test")
    assert (made["best"], made["proposer"]) == (0, "offline")
    assert said("show", "tiny")["prompts"] == made["prompts"]
    assert said("resume", "tiny", "--manifest", "test")["rollouts"] == made["rollouts"]
    assert said("cancel", "tiny") == {"asked_to_end": 0}
    assert said("list")["prompts"][0]["made"] is True
    unknown = CliRunner().invoke(main, ["--root", str(root), "prompt", "show", "other"])
    assert (unknown.exit_code, "known in configs/prompts: tiny" in unknown.output) == (1, True)
