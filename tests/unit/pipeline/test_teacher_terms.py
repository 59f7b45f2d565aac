"""On what terms teachers answer, what a collection costs, and what is not trained on."""

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.llm.base import OutputTerms
from graftline.llm.fleet import Fleet, load_fleet, warn_of_terms
from graftline.pipeline.attempts import check_price
from graftline.pipeline.cost_estimate import estimate_cost
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.settings import Budget, TrajectorySettings
from graftline.pipeline.teacher_terms import describe_terms, select_trainable, teachers_without_training
from graftline.rollouts.task import describe_left_out
from graftline.rollouts.trajectory import Trajectory
from tests.tasks import make_task
from tests.unit.rollouts.test_feedback_attempts import ASKED, OLD, attempted

FORBIDDEN = {"may_train": False, "terms": "not for training", "source": "https://example.org/terms"}


def write_fleets(folder: Path, **outputs: Any) -> Path:
    """Write one fleet for each name, which is that of its model too, with these terms."""
    actors = [{"name": "one", "url": "http://127.0.0.1:9"}]
    fleets = {
        name: {"engine": "service", "model": name, "outputs": terms, "license": "MIT", "actors": actors}
        for name, terms in outputs.items()
    }
    (folder / "vllm_actors.yaml").write_text(json.dumps({"fleets": fleets}), "utf-8")
    return folder


def attempt_of(teacher: str, outputs: OutputTerms | None = None) -> Trajectory:
    made, _ = attempted(make_task(), OLD)
    [step] = made.steps
    output = step.model_output.model_copy(update={"generation": ASKED.model_copy(update={"outputs": outputs})})
    return made.model_copy(update={"teacher": teacher, "steps": (step.model_copy(update={"model_output": output}),)})


def test_what_terms_forbid_now_or_forbade_then_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    verified = {**FORBIDDEN, "may_train": True}
    configs = write_fleets(tmp_path, strict=FORBIDDEN, free=verified, silent=None)
    refused = teachers_without_training(configs)
    free, then = attempt_of("openai/free"), attempt_of("openai/free", OutputTerms(**FORBIDDEN))
    with caplog.at_level(logging.WARNING):
        left_out = Counter[str]()
        rows = select_trainable([free, then, attempt_of("openai/strict"), attempt_of("induction")], refused, left_out)
    assert (refused, [row.teacher for row in rows]) == (["openai/strict"], ["openai/free", "induction"])
    assert left_out == {"not_kept.forbidden_by_terms": 2}
    assert describe_left_out(left_out, "attempts") == (
        "attempts left out: 2 may not be trained on, by the terms of their teacher"
    )
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["openai/free", "openai/strict"]
    assert "left out of training rows, by the terms of its answers: 1 of its attempts" in caplog.text


TERMS: dict[str, tuple[bool | None, str, str]] = {
    "verified": (True, "MIT", "m: answers may be trained on: said so (https://example.org)"),
    "forbidden": (False, "", "m: answers may NOT be trained on: said so (https://example.org)"),
    "not verified": (None, "", "m: answers NOT VERIFIED whether they may be trained on: said so (https://example.org)"),
}


@pytest.mark.parametrize(("may_train", "license", "words"), TERMS.values(), ids=TERMS)
def test_terms_are_described_and_what_is_not_free_is_said_when_a_teacher_is_opened(
    caplog: pytest.LogCaptureFixture, may_train: bool | None, license: str, words: str
) -> None:
    outputs = {"may_train": may_train, "terms": "said so", "source": "https://example.org"}
    fleet = Fleet.model_validate(
        {
            "engine": "service",
            "model": "m",
            "license": "MIT",
            "outputs": outputs,
            "actors": ({"name": "a", "url": "http://a"},),
        }
    )
    with caplog.at_level(logging.WARNING):
        warn_of_terms("mine", fleet)
    assert describe_terms(fleet) == (license, words)
    assert len(caplog.records) == (may_train is not True)


def test_who_says_what_terms_allow_names_where_it_stands() -> None:
    with pytest.raises(ValueError, match="source: name the page"):
        OutputTerms(may_train=True, terms="said so")


def test_a_collection_is_estimated_in_money_before_it_is_made(checkout: Path, tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    (tmp_path / "configs").symlink_to(checkout / "configs")
    manifest = load_manifest(paths, "local", {"teacher": "glm-4.6"})
    empty = estimate_cost(paths, manifest, TrajectorySettings())
    assert empty is not None
    assert empty.sentences() == [
        "glm-4.6: there are no tasks yet to estimate the cost of; make them first, with `graftline run`."
    ]

    folder = paths.partition("tasks", "python", "train")
    folder.mkdir(parents=True)
    tasks = [make_task(id=f"d:{number}", instruction="Rename `old` to `x`.") for number in range(3)]
    (folder / "tasks.jsonl").write_text("".join(f"{task.model_dump_json()}\n" for task in tasks), "utf-8")
    estimate = estimate_cost(paths, manifest, TrajectorySettings())
    assert estimate is not None
    # of every answer 2,048 tokens by the prompt `large`, and 8,192 for what it thinks
    assert (estimate.tasks, estimate.completion_tokens) == (3, 3 * 10_240)
    assert estimate.usd == pytest.approx((estimate.prompt_tokens * 0.60 + 30_720 * 2.20) / 1e6)
    assert estimate.most_usd == pytest.approx(12 * estimate.usd)
    assert "$0.6 read, $2.2 written (by https://" in estimate.sentences()[0]
    unpriced = estimate_cost(paths, load_manifest(paths, "local", {"teacher": "qwen3-14b"}), TrajectorySettings())
    assert unpriced is not None
    assert unpriced.sentences()[0].endswith("the cost is not known. The fleet has no `price`: not verified.")
    assert estimate_cost(paths, load_manifest(paths, "local"), TrajectorySettings()) is None


def test_a_budget_in_money_needs_a_price(checkout: Path) -> None:
    paths = Paths(checkout)
    check_price(Budget(usd=1.0), load_manifest(paths, "local", {"teacher": "glm-4.6"}), paths)
    assert load_fleet(paths.configs, "qwen3-14b").price is None
    with pytest.raises(ConfigError, match=r"asking\.budget\.usd: fleet 'qwen3-14b' has no `price`"):
        check_price(Budget(usd=1.0), load_manifest(paths, "local", {"teacher": "qwen3-14b"}), paths)
