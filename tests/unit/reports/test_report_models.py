"""What the dbt models count, and what the dbt tests object to."""

import hashlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.unit.reports.report_models import TESTS, Models, Planted


def edit(name: str, split: str, tokens: int = 10, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"one:{name}", "dataset": "one", "language": "python", "split": split, "instruction": f"Do {name}",
        "pre": f"pre {name}", "post": f"post {name}", "tags": "[]", "license": "MIT", "origin_group": f"owner/{name}",
        "cluster": f"cluster-{name}", "instruction_source": "rule", "origin": name, "pre_tokens": tokens, "post_tokens": 2 * tokens, **changes,
    }  # fmt: skip


def world() -> Planted:
    """Two datasets: of `one` three edits are kept and one is a duplicate; of `two` there is a label and a duplicate."""
    edits = [edit("a", "train", 10), edit("b", "train", 100), edit("c", "test", 31)]
    fallen = [
        {**edit("d", ""), "reason": "duplicate_row", "kept_id": "one:a"},
        {**edit("e", "", id="two:e", dataset="two"), "reason": "near_duplicate", "kept_id": "one:b"},
    ]
    keys = {"a": [1, 11], "b": [2, 12], "c": [3, 13], "d": [4], "e": [5]}
    counts = [
        ("one", "raw", "num_records", 9), ("one", "raw", "rows", 7), ("one", "raw", "not_kept.too_long", 2),
        ("one", "normalized", "rows_in", 7), ("one", "normalized", "rows", 4), ("one", "normalized", "labels", 0),
        ("one", "normalized", "dropped.license", 3), ("one", "normalized", "dropped.contaminated", 1),
        ("two", "raw", "num_records", 2), ("two", "normalized", "rows_in", 2), ("two", "normalized", "rows", 1),
        ("two", "normalized", "labels", 1),
    ]  # fmt: skip
    drops = [("license", 10), ("license", 9), ("license", 100), ("contaminated", 1)]
    label = {"label": "Long Method", "holds": True, "instruction": "Shorten it.", "origin": "o", "license": "MIT"}
    return {
        "datasets": [{"dataset": "one"}, {"dataset": "two"}],
        "counts": [dict(zip(("dataset", "stage", "name", "number"), row, strict=True)) for row in counts],
        "allowed_licenses": [{"license": "MIT"}, {"license": "ISC"}],
        "limits": [{"max_pre_tokens": 2000}],
        "normalized": [{**row, "link_keys": keys[row["id"][-1]]} for row in (*edits, *fallen)],
        "drops": [
            {"dataset": "one", "file": "f", "line": line, "reason": reason, "detail": "x"} for reason, line in drops
        ],
        "labels": [{**label, "id": "two:l", "dataset": "two", "language": "java"}],
        "division": [*edits, *({**row, "split": None} for row in fallen)],
        "edits": edits,
        "instructions": [
            {"dataset": "one", "source": "rule", "answer": "answerable", "tasks": 3},
            {"dataset": "one", "source": "none", "answer": "unanswerable", "tasks": 1},
            {"dataset": "two", "source": "commit", "answer": "untried", "tasks": 2},
            {"dataset": "two", "source": "commit", "answer": "answerable", "tasks": 1},
        ],
        "stored_splits": [{"language": "python", "split": split} for split in ("train", "dev", "test")],
    }


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(world())


def test_the_share_of_answerable_tasks_is_said_by_dataset_and_source(models: Models) -> None:
    assert models.rows("dataset_instructions") == [
        ("one", "none", 1, 0, 1, 0),
        ("one", "rule", 3, 3, 0, 0),
        ("two", "commit", 3, 1, 0, 2),
    ]


def test_the_funnel_leads_from_the_source_to_the_splits(models: Models) -> None:
    assert models.rows("dataset_funnel") == [
        ("one", 1, "at_source", "", 9, False),
        ("one", 2, "not_stored", "too_long", 2, True),
        ("one", 3, "read", "", 7, False),
        ("one", 4, "outcomes", "", 8, False),  # 4 edits and 4 drops: a row may hold several
        ("one", 5, "dropped", "license", 3, True),
        ("one", 6, "contaminated", "", 1, True),
        ("one", 8, "edits", "", 4, False),
        ("one", 10, "duplicates", "duplicate_row", 1, True),
        ("one", 11, "kept", "", 3, False),
        ("one", 12, "split", "train", 2, False),
        ("one", 14, "split", "test", 1, False),
        ("two", 1, "at_source", "", 2, False),
        ("two", 3, "read", "", 2, False),
        ("two", 4, "outcomes", "", 2, False),
        ("two", 6, "contaminated", "", 0, True),
        ("two", 7, "labels", "", 1, True),
        ("two", 8, "edits", "", 1, False),
        ("two", 10, "duplicates", "near_duplicate", 1, True),
        ("two", 11, "kept", "", 0, False),
    ]


def test_an_edit_in_a_language_that_is_not_split_is_counted() -> None:
    planted = world()
    planted["normalized"].append({**edit("j", ""), "language": "java", "link_keys": []})
    planted["counts"].append({"dataset": "one", "stage": "normalized", "name": "rows", "number": 1})
    models = Models(planted)
    assert ("one", 9, "not_split", "", 1, True) in models.rows("dataset_funnel")
    assert models.failures("funnel_adds_up") == []


def test_lengths_are_percentiles_that_occur(models: Models) -> None:
    # of 10, 31 and 100: sum 141, mean 47
    assert [row for row in models.rows("dataset_tokens") if row[1] == "pre"] == [
        ("one", "pre", "python", 3, 141, 47.0, 10, 10, 31, 100, 100, 100),
        ("one", "pre", None, 3, 141, 47.0, 10, 10, 31, 100, 100, 100),
    ]


@pytest.mark.parametrize(
    ("tokens", "tokens_from"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (1023, 512), (1024, 1024), (1 << 40, 1 << 40)]
)
def test_a_bin_goes_from_a_power_of_two_up_to_the_next(tokens: int, tokens_from: int) -> None:
    planted = world()
    planted["edits"] = [edit("a", "train", pre_tokens=tokens, post_tokens=1)]
    assert ("one", "pre", tokens_from, 1) in Models(planted).rows("dataset_token_bins")


def test_shares_are_of_the_kept_edits_and_of_the_rows_at_the_source(models: Models) -> None:
    # 3 of 3 kept, 3 of 9 rows
    assert models.rows("dataset_languages") == [
        ("one", "python", 4, 3, 100.0, 33.33),
        ("two", "python", 1, 0, None, 0.0),
    ]
    assert models.rows("dataset_licenses") == [
        ("one", "MIT", 4, 0, 3, 100.0, 33.33),
        ("two", "MIT", 1, 1, 0, None, 0.0),
    ]


def test_the_example_of_a_drop_is_the_first_line_by_number(models: Models) -> None:
    assert models.rows("dataset_drops") == [("one", "contaminated", 1, "f:1: x"), ("one", "license", 3, "f:9: x")]


def test_overlaps_name_the_dataset_whose_edit_is_kept(models: Models) -> None:
    assert models.rows("dataset_overlaps") == [
        ("one", "one", "duplicate_row", 1),
        ("two", "one", "near_duplicate", 1),
    ]


def test_labels_are_counted_by_what_people_agree_on() -> None:
    planted = world()
    [label] = planted["labels"]
    planted["labels"] += [
        {**label, "id": "two:a", "holds": None, "language": "python", "instruction": "First."},
        {**label, "id": "two:m", "holds": False},
    ]
    assert Models(planted).rows("dataset_labels") == [("two", "Long Method", 3, 1, 1, 1, "java, python", "First. (o)")]


EXAMPLES: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    # of 30, 90 and 300 tokens the median is 90
    "of middle size": ([edit("a", "train", 10), edit("b", "train", 100), edit("c", "train", 30)], "c"),
    "one to train on": ([edit("a", "test", 30), edit("b", "train", 100)], "b"),
    "of equals the first by id": ([edit("b", "train", 70), edit("a", "train", 70)], "a"),
    "no change of a comment alone": (
        [edit("a", "train", pre="f()  # a tpyo", post="f()  # a typo"), edit("b", "dev", pre="f()", post="g()")], "b",
    ),
    "one with an instruction that can be done": (
        [edit("a", "train"), edit("b", "test", id="one:answered", pre="f()", post="g()")], "answered",
    ),
    "nothing": ([], None),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "shown"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_example_is_typical_and_always_the_same(edits: list[dict[str, Any]], shown: str | None) -> None:
    planted = world()
    planted["edits"] = edits
    planted["trajectories"] = [attempt("one:answered", instruction="Call g.", answerable=True)]
    rows = Models(planted).rows("dataset_examples")
    assert [row[1] for row in rows] == ([f"one:{shown}"] if shown else [])
    if shown == "answered":
        # instruction, source, whether it is answerable
        assert rows[0][7:10] == ("Call g.", "rule", True)


def attempt(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "task_id": name, "dataset": "one", "language": "python", "split": "train", "teacher": "t", "attempt": 1,
        "instruction_source": "rule",
        "steps": 1, "verified_steps": int(changes.get("is_verified", True)) * changes.get("steps", 1), "ending": "done", "failure": "", "format_ok": True, "level": "exact", "all_general": True, "is_verified": True,
        "reward": 1.0, **changes,
    }  # fmt: skip


def step(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "task_id": name, "language": "python", "split": "train", "teacher": "t", "step": 1, "action_form": "pattern",
        "verdict": "ok", "matches": 1, "parse_ok": True, "format_ok": True, "level": "exact", "progress": 1.0,
        "over_in": 0, "over_out": 0.0, "idempotent": True, "mdl": 0.5, "support": 1, "general": True,
        "is_verified": True, "reward": 1.0, **changes,
    }  # fmt: skip


WRONG: dict[str, Any] = {"level": "none", "is_verified": False, "reward": 0.0}


@pytest.fixture(scope="module")
def taught() -> Models:
    """Four valid attempts, of which two are verified, and one of which nothing is known."""
    return Models(
        {
            "trajectories": [
                attempt("a"),
                attempt("b", level="tests", all_general=False, reward=0.8, steps=2),
                attempt("c", **WRONG, steps=0, all_general=False, ending="gave_up", failure="too_large"),
                attempt("d", **WRONG, ending="no_match", failure="no_match"),
                attempt("e", **{**WRONG, "reward": None}, ending="wall_timeout", failure="wall_timeout"),
            ],
            "steps": [
                step("a", srl=1.0),
                step("b", general=False, over_out=3.5, idempotent=None, srl=0.75),
                step("b", over_in=2, over_out=0.5, idempotent=False, neg_fail=1, srl=0.75, is_verified=False),
                step("d", verdict="no_match", over_in=None, over_out=None, idempotent=None, mdl=None, support=None),
            ],
        }
    )


def test_precision_is_of_valid_attempts(taught: Models) -> None:
    # 2 of 4 verified, 1 by general actions; 1 + 2 verified steps; the mean of 1, 0.8, 0 and 0
    assert taught.rows("teacher_precision") == [("t", "python", "rule", "one", 4, 2, 0.5, 1, 3, 0.45, 1, None)]


def test_teachers_are_compared_on_the_tasks_that_all_of_them_attempted() -> None:
    asked = {"teacher": "openai/m", "prompt_tokens": 100, "completion_tokens": 20, "cost_usd": 0.01, "latency_s": 2.0}
    compared = Models(
        {
            "trajectories": [
                attempt("a"),
                attempt("b", **WRONG),
                attempt("c"),
                attempt("a", **asked),
                # a second attempt at a task solves it, too
                attempt("b", **asked | WRONG),
                attempt("b", **asked, attempt=2, steps=2),
                # nothing is known of one attempt, so that the task is not common to both
                attempt("c", **asked | WRONG | {"reward": None}),
            ]
        }
    )
    assert compared.rows("teacher_comparison") == [
        ("openai/m", "python", 2, 3, 2, 1.0, 0.6667, 3, 300, 60, 20.0, 0.03, 0.01, 2.0, 2.0),
        ("t", "python", 2, 2, 1, 0.5, 0.5, 1, None, None, None, None, None, None, None),
    ]


def test_one_teacher_is_compared_with_nobody(taught: Models) -> None:
    assert taught.rows("teacher_comparison") == []


def test_levels_are_those_of_the_valid_attempts_by_what_their_actions_leave_free(taught: Models) -> None:
    assert taught.rows("teacher_levels") == [
        ("t", "python", "rule", "exact", "general", True, 1),
        ("t", "python", "rule", "none", "general", False, 1),
        ("t", "python", "rule", "none", "none", False, 1),
        ("t", "python", "rule", "tests", "literal", True, 1),
    ]


def test_failures_have_their_class_and_their_share_of_all_attempts(taught: Models) -> None:
    assert taught.rows("teacher_failures") == [
        ("t", "python", "no_match", "no_match", "none", 1, 0.2),
        ("t", "python", "too_large", "gave_up", "none", 1, 0.2),
        ("t", "python", "wall_timeout", "wall_timeout", "none", 1, 0.2),
    ]


def test_what_is_not_known_of_an_action_counts_for_nothing(taught: Models) -> None:
    assert taught.rows("teacher_measures") == [
        # two general steps: one of two with nothing unwanted, without a foreign hit, and idempotent; one negative changed
        ("t", "python", "general", 2, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.0, 0.5, 1.0),
        ("t", "python", "literal", 1, 1.0, 0.0, 3.5, 3.5, 3.5, None, None, 0.5, 1.0),
    ]


def test_foreign_hits_are_binned_upwards(taught: Models) -> None:
    assert taught.rows("teacher_over_out") == [
        ("t", "general", 0, 1),
        ("t", "general", 1, 1),
        ("t", "literal", 10, 1),
    ]


def test_more_foreign_hits_than_the_last_bin_holds_are_in_one_of_their_own() -> None:
    assert Models({"steps": [step("a", over_out=100.1)]}).rows("teacher_over_out") == [("t", "general", None, 1)]


def test_similarities_are_in_tenths_and_the_greatest_in_the_last(taught: Models) -> None:
    assert taught.rows("teacher_srl") == [("t", 0.7, 1, 1), ("t", 0.9, 1, 0)]


def test_no_test_objects_to_what_is_right(models: Models) -> None:
    assert {test: models.failures(test) for test in TESTS} == {test: [] for test in TESTS}


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def into(split: str, table: str, index: int, **changes: Any) -> Callable[[Planted], None]:
    """Return what puts one row of a table, and the edit of it in the division, into another split, or changes it."""

    def change(planted: Planted) -> None:
        planted[table][index] = {**planted[table][index], **({"split": split} if split else {}), **changes}

    return change


TWICE = [attempt("a"), attempt("a"), attempt("a", attempt=2), attempt("b")]
FAULTS: list[tuple[str, Callable[[Planted], None], list[tuple[Any, ...]]]] = [
    ("cluster_in_one_split", into("", "edits", 2, cluster="cluster-a"), [("cluster-a",)]),
    ("group_in_one_split", into("", "edits", 2, origin_group="OWNER/A"), [("owner/a",)]),  # letters are one
    ("commit_in_one_split", into("", "normalized", 2, link_keys=[3, 12]), [(12,)]),
    ("instruction_and_pre_once", into("", "edits", 1, instruction="Do a", pre="pre a"), [(md5("Do a"), md5("pre a"))]),
    ("text_before_in_one_split", into("", "edits", 2, pre="pre a"), [(md5("pre a"),)]),
    ("token_bounds", into("", "edits", 0, pre_tokens=2001), [("one:a",)]),
    ("token_bounds", into("", "edits", 0, pre_tokens=0), [("one:a",)]),
    ("token_bounds", into("", "edits", 0, post_tokens=0), [("one:a",)]),
    ("division_and_edits_agree", into("dev", "edits", 0), [("one:a",), ("one:a",)]),  # one is missing, one too many
    ("division_and_edits_agree", lambda planted: planted["edits"].pop(), [("one:c",)]),
    ("division_and_edits_agree", lambda planted: planted["edits"].append(edit("z", "dev")), [("one:z",)]),
    ("division_and_edits_agree", into("", "edits", 0, cluster="other"), [("one:a",), ("one:a",)]),
    ("split_or_reason", into("", "division", 3, reason=None), [("one:d",)]),
    ("split_or_reason", into("train", "division", 3), [("one:d",)]),
    ("split_or_reason", into("", "division", 3, kept_id=None), [("one:d",)]),
    ("kept_edit_is_kept", into("", "division", 3, kept_id="two:e"), [("one:d",)]),  # it fell out itself
    ("funnel_adds_up", lambda planted: planted["drops"].pop(), [("one",)]),
    ("funnel_adds_up", lambda planted: planted["normalized"].pop(), [("two",)]),
    ("funnel_adds_up", lambda planted: planted["counts"].pop(0), [("one",)]),
    ("attempt_once", lambda planted: planted.update(trajectories=TWICE), [("a", "train", "t", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("test", "spoil", "objected"), FAULTS)
def test_a_fault_is_objected_to(test: str, spoil: Callable[[Planted], None], objected: list[tuple[Any, ...]]) -> None:
    planted = deepcopy(world())
    spoil(planted)
    assert sorted(Models(planted).failures(test)) == objected


def test_every_test_of_the_project_has_a_fault_that_it_finds() -> None:
    assert {test for test, _, _ in FAULTS} == set(TESTS)


def test_a_split_that_is_not_stored_is_no_fault() -> None:
    planted = world()
    planted["edits"] = [row for row in planted["edits"] if row["split"] == "train"]
    planted["stored_splits"] = [{"language": "python", "split": "train"}]
    assert Models(planted).failures("division_and_edits_agree") == []


def test_models_over_nothing_are_empty() -> None:
    models = Models({})
    assert [models.rows(name) for name in ("dataset_funnel", "dataset_examples", "teacher_precision")] == [[], [], []]
