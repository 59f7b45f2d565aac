"""The page on teachers names what there is, and no more."""

from dataclasses import fields
from pathlib import Path
from typing import get_args

from graftline.codemod.induce import Unsolved
from graftline.rollouts.state.state import State
from graftline.rollouts.teachers.base import Proposal
from graftline.rollouts.teachers.critic import Finding


def first_cells(page: str, head: str) -> list[str]:
    """Return the first cells of the table whose head starts with `head`."""
    rows = page[page.index(f"| {head} |") :].split("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip().strip("`") for row in rows]


def test_the_tables_of_the_page_are_the_fields_causes_and_findings(checkout: Path) -> None:
    page = (checkout / "docs" / "teachers.md").read_text("utf-8")
    assert first_cells(page, "field of `Proposal`") == [field.name for field in fields(Proposal)]
    assert first_cells(page, "field of the state") == list(State.model_fields)
    assert sorted(first_cells(page, "finding")) == sorted(Finding)
    # the other classes are those of a whole induction: a teacher takes one step
    causes = {"done", "no_gold", "too_long", *get_args(Unsolved)} - {"", "repeated", "max_steps"}
    assert set(first_cells(page, "cause")) == causes
