"""The pages of an evaluation: what they say, and that nothing of what they show is more than a text."""

import json
import re
from html.parser import HTMLParser

from graftline.evals.report import browser_page, compare_in_detail, markdown_page, outcome_of, verdict
from tests.eval_cases import LITERAL, RIGHT, attempt, case

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \u2028 \u202e <!--"


class Seen(HTMLParser):
    """Notes elements, with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def hostile_page() -> str:
    one = case(2, HOSTILE)
    hostile = one.model_copy(update={"task": one.task.model_copy(update={"instruction": HOSTILE, "before": HOSTILE})})
    made = attempt("m", one.id, text=HOSTILE, cause=HOSTILE, after=HOSTILE, edit_class=HOSTILE)
    return browser_page(f"x{HOSTILE[:60]}", [hostile], [made])


def test_texts_of_datasets_and_models_bring_no_element_into_the_page() -> None:
    plain, hostile = Seen(), Seen()
    plain.feed(browser_page("x", [case(2)], [attempt("m", "demo:2")]))
    hostile.feed(hostile_page())

    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert hostile_page().encode("utf-8")


def test_the_page_loads_nothing_and_runs_its_own_script_alone() -> None:
    seen = Seen()
    page = hostile_page()
    seen.feed(page)

    policies = [a["content"] for tag, a in seen.elements if tag == "meta" and "http-equiv" in a]
    assert [re.sub(r"sha256-[\w+/=]+", "sha256-…", str(policy)) for policy in policies] == [
        "default-src 'none'; script-src 'sha256-…'; style-src 'sha256-…'"
    ]
    assert [a for _, a in seen.elements if {"src", "href"} & a.keys()] == []
    assert "http://" not in page
    assert "https://" not in page


def test_what_is_shown_of_an_attempt_is_in_the_page_as_data() -> None:
    made = attempt("m", "demo:2", text=LITERAL, after=case(2).task.before.replace("old(1)", "new(1)"))
    page = browser_page("x", [case(2)], [made])
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    data = json.loads(block)

    assert data["attempts"][0]["diff"] == "@@ -1,3 +1,3 @@\n-x = old(1)\n+x = new(1)\n y = old(2)\n z = keep(3)\n"
    assert data["tasks"]["demo:2"]["instruction"] == "Rename `old` to `new`, in file 2."


def test_outcomes_are_told_apart() -> None:
    action = json.loads(RIGHT)
    found = [
        outcome_of(attempt("m", "a", is_infra=True)),
        outcome_of(attempt("m", "a", is_right=True)),
        outcome_of(attempt("m", "a")),
        outcome_of(attempt("m", "a", actions=[action], over_application=True)),
        outcome_of(attempt("m", "a", actions=[action])),
    ]

    assert found == ["nothing known", "solved", "not readable", "over-applied", "not solved"]


def test_the_report_says_who_is_better_and_what_is_not_known() -> None:
    rows = [attempt(name, str(task), is_right=name == "m") for name in ("n", "m") for task in range(5)]
    page = markdown_page("x", "What it is.", [*rows, attempt("m", "9", is_infra=True)])

    assert "# Evaluation x\n\nWhat it is.\n" in page
    assert "| m | n | all | verified | 5 | 1.000 | 0.000 | +1.000 | +1.000 to +1.000 | better |" in page
    assert "not known" in page


def test_of_few_tasks_nothing_is_said() -> None:
    rows = [attempt(name, str(task), is_right=name == "m") for name in ("n", "m") for task in range(4)]

    assert "| +1.000 to +1.000 | too few tasks |" in markdown_page("x", "", rows)


def test_names_of_others_are_shown_in_the_report_and_do_nothing() -> None:
    hostile = "\x1b[31m<img src=x onerror=alert(1)>[a](javascript:b)`c`\r\n| d"
    page = markdown_page("x", "", [attempt("m", "1", edit_class=hostile, cause=hostile)], {"2": hostile})

    assert not {*"\x1b\r<"} & {*page}
    assert "](javascript" not in page
    assert "`" not in page
    assert page.count("&#60;img src=x onerror=alert(1)&#62;&#91;a&#93;(javascript:b)&#96;c&#96; \\| d") == 4


def test_a_solver_may_be_called_as_a_column_is() -> None:
    page = markdown_page("x", "", [attempt("cause", "1", cause="no_match")])

    assert "| ended by | cause |\n|---|---:|\n| no_match | 1 |" in page


def test_what_the_report_leaves_out_it_names() -> None:
    rows = [attempt(f"m{number}", "1", edit_class=f"c{number}") for number in range(61)]
    page = markdown_page("x", "", rows)

    assert "*summary.json compares m8, m9, m10" in page
    assert "*and 1 more rows, which summary.json has*" in page


def test_less_over_application_is_better() -> None:
    rows = [attempt(name, str(task), over_application=name == "n") for name in "mn" for task in range(5)]

    [found] = [one for one in compare_in_detail(rows, "m", "n") if one.measure == "over_application"]

    assert (found.difference, verdict(found)) == (-1.0, "better")
