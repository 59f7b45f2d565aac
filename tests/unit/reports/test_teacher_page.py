"""The page of the teachers: what it says, with which plots, and how long attempts took."""

from pathlib import Path
from typing import Any

import pytest

from assets.reports.pages import TEACHER_MARTS, write_teacher
from assets.reports.teacher_page import teacher_page, time_rows
from graftline.astgrep.binding import Language
from graftline.rollouts.trajectory import AttemptTime

OF_PYTHON = {"teacher": "t", "language": "java", "instruction_source": "rule"}
ROWS: dict[str, list[dict[str, Any]]] = {
    "teacher_precision": [
        {
            "teacher": "t",
            "language": "java",
            "instruction_source": "rule",
            "dataset": "one",
            "valid": 4,
            "verified": 2,
            "precision": 0.5,
            "general": 1,
            "verified_steps": 3,
            "mean_reward": 0.45,
            "no_reward": 1,
            "cost_usd": 0.5,
        }
    ],
    "teacher_comparison": [{"teacher": "t", "language": "java", "tasks": 4, "usd_per_verified_step": 0.125}],
    "teacher_levels": [
        {**OF_PYTHON, "level": "none", "actions": "none", "is_verified": False, "attempts": 1},
        {**OF_PYTHON, "level": "tests", "actions": "general", "is_verified": True, "attempts": 3},
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
        # of 2 in 4 and 3 in 4, Wilson's interval
        "| t | java | rule | one | 2/4 = 50.0 % (15.0 to 85.0) | 1 | 3 | 0.45 | 1 | 0.5 |",
        "| t | java | rule | 3/4 = 75.0 % (30.1 to 95.4) | 1/4 = 25.0 % (4.6 to 69.9) |",
        "| t | general | 3 | 3/3 = 100.0 % (43.9 to 100.0) |",
        "| t | java | text too long to parse | 1 |",
        "| t | pattern | applied | 4 |",
        "| t | general | 4 | 0.75 |",
        "| t | 0.9 | 4 | 0 |",
        "| t | java | 20.0 | 90.5 | 5.0 | 9.0 |",
    )
    assert [row for row in rows if row not in page] == []


def test_a_teacher_that_sees_the_text_after_is_told_apart_as_an_oracle() -> None:
    [row] = ROWS["teacher_precision"]
    page = teacher_page({**ROWS, "teacher_precision": [{**row, "teacher": "induction"}, row]}, [])
    of_instructions, _, of_oracle = page.partition("![precision")[0].partition("## Induction: an oracle")
    assert ("| t | java" in of_instructions, "| induction | java" in of_instructions) == (True, False)
    assert ("| t | java" in of_oracle, "| induction | java" in of_oracle) == (False, True)
    assert "oracle" not in teacher_page(ROWS, [])
    alone = teacher_page({**ROWS, "teacher_precision": [{**row, "teacher": "induction"}]}, [])
    assert "No teacher has attempted tasks by their instructions" in alone


def test_several_rows_of_a_teacher_have_a_sum() -> None:
    [row] = ROWS["teacher_precision"]
    other = {**row, "language": "python", "valid": 12, "verified": 12, "mean_reward": 0.85, "cost_usd": None}
    page = teacher_page({**ROWS, "teacher_precision": [row, other]}, [])
    # 14 of 16; (4 * 0.45 + 12 * 0.85) / 16
    assert "| t | all | all | all | 14/16 = 87.5 % (64.0 to 96.5) | 2 | 6 | 0.75 | 2 | 0.5 |" in page


def test_the_terms_of_models_are_on_the_page_of_those_that_attempted(tmp_path: Path) -> None:
    write_teacher(tmp_path, ROWS, TIMES, {"t": "not verified", "openai/other": "free"})
    page = (tmp_path / "metrics.md").read_text("utf-8")
    assert ("| t | not verified |" in page, "openai/other" in page) == (True, False)


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
