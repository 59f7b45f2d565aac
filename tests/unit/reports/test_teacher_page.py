"""The page of the teachers: what it says, with which plots, and how long attempts took."""

from pathlib import Path
from typing import Any

import pytest

from assets.reports.pages import TEACHER_MARTS, write_teacher
from assets.reports.teacher_page import teacher_page, time_rows
from graftline.astgrep.binding import Language
from graftline.rollouts.trajectory import AttemptTime

ROWS: dict[str, list[dict[str, Any]]] = {
    "teacher_precision": [{"teacher": "t", "language": "java", "dataset": "one", "tried": 4, "precision": 0.5}],
    "teacher_comparison": [{"teacher": "t", "language": "java", "tasks": 4, "usd_per_verified_step": 0.125}],
    "teacher_levels": [
        {"teacher": "t", "level": "none", "actions": "none", "attempts": 1, "share": 0.25},
        {"teacher": "t", "level": "exact", "actions": "general", "attempts": 3, "share": 0.75},
    ],
    "teacher_failures": [{"teacher": "t", "language": "java", "failure": "too_large", "attempts": 1}],
    "teacher_steps": [{"teacher": "t", "action_form": "pattern", "verdict": "ok", "steps": 4}],
    "teacher_measures": [{"teacher": "t", "actions": "general", "steps": 4, "no_foreign_hit": 0.75}],
    "teacher_over_out": [
        {"teacher": "t", "actions": "general", "up_to": 0, "steps": 3},
        {"teacher": "t", "actions": "literal", "up_to": None, "steps": 1},
    ],
    "teacher_srl": [{"teacher": "t", "srl_from": 0.9, "verified": 4, "not_verified": 0}],
}
NOTHING: dict[str, list[dict[str, Any]]] = {mart: [] for mart in TEACHER_MARTS}
TIMES = [{"teacher": "t", "language": "java", "attempt_p50": 20.0, "attempt_p90": 90.5, "answer_p50": 5.0, "answer_p90": 9.0}]  # fmt: skip


def took(language: Language, attempt_ms: float, *answers_ms: float) -> AttemptTime:
    return AttemptTime(
        task_id="a", dataset="one", language=language, teacher="t", attempt_ms=attempt_ms, answers_ms=answers_ms
    )


def test_every_mart_is_on_the_page() -> None:
    page = teacher_page(ROWS, TIMES)
    rows = (
        "| t | java | one | 4 | 0.5 |",
        "| t | exact | general | 3 | 0.75 |",
        "| t | java | too_large | 1 |",
        "| t | pattern | ok | 4 |",
        "| t | general | 4 | 0.75 |",
        "| t | 0.9 | 4 | 0 |",
        "| t | java | 20.0 | 90.5 | 5.0 | 9.0 |",
    )
    assert [row for row in rows if row not in page] == []


def test_a_teacher_that_sees_the_text_after_is_told_apart_as_an_oracle() -> None:
    [told] = ROWS["teacher_precision"]
    page = teacher_page({**ROWS, "teacher_precision": [{**told, "teacher": "induction"}, told]}, [])
    of_told, _, of_oracle = page.partition("![precision")[0].partition("Induction is an oracle")
    assert ("| t |" in of_told, "| induction |" in of_told) == (True, False)
    assert ("| t |" in of_oracle, "| induction |" in of_oracle) == (False, True)
    assert "oracle" not in teacher_page(ROWS, [])


@pytest.mark.parametrize(("rows", "times"), [(ROWS, TIMES), (NOTHING, [])], ids=["all", "nothing"])
def test_the_pictures_of_the_page_lie_beside_it_and_no_others(
    rows: dict[str, list[dict[str, Any]]], times: list[dict[str, Any]], tmp_path: Path
) -> None:
    write_teacher(tmp_path, rows, times)
    page = (tmp_path / "metrics.md").read_text("utf-8")
    assert [path.name for path in tmp_path.glob("*.png") if f"({path.name})" not in page] == []
    assert page.count("![") == len(list(tmp_path.glob("*.png")))


def test_what_was_not_measured_is_said_so() -> None:
    assert "*not measured*" in teacher_page(ROWS, [])


def test_times_are_percentiles_that_occur_by_teacher_and_language() -> None:
    times = [took("python", 10.0 * number, number, 2.0 * number) for number in range(1, 11)]
    columns = ("language", "attempts", "attempt_p50", "attempt_p90", "answers", "answer_p50", "answer_p90")
    rows = time_rows([*times, took("java", 7.04)])
    assert {row["teacher"] for row in rows} == {"t"}
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("java", 1, 7.0, 7.0, 0, None, None),
        # 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 10, 12, 14, 16, 18, 20: the 10th and the 18th
        ("python", 10, 50.0, 90.0, 20, 7.0, 16.0),
    ]
