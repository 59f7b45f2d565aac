"""The reader of `oce_dataft`."""

from typing import Any

import pytest

from graftline.datasets.edit import Edit
from tests.unit.datasets.fixtures import drop, outcome

PRE = "def f(x):\n    return x\n"
POST = "def f(x):\n    return x + 1\n"


def flat(**changes: Any) -> dict[str, Any]:
    return {
        "commit": "a" * 40,
        "instr_type": "qwen3_lazy",
        "code_before_purify": PRE,
        "code_after_purify": POST,
        "instruct_purify": "Add one.\n",
        **changes,
    }


def chat(prompt: str = "", **changes: Any) -> dict[str, Any]:
    prompt = prompt or f"## Code Before:\n```python\n{PRE}```\n## Instruction:\nAdd one.\n## Code After:\n"
    return {
        "commit": "a" * 40,
        "instr_type": "ds_descriptive",
        "old_code": PRE,
        "new_code": POST,
        "messages": [
            {"role": "system", "content": "You edit code."},
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": f"```python\n{POST}```"},
        ],
        **changes,
    }


def edit_of(row: dict[str, Any]) -> Edit:
    result = outcome("oce_dataft", row, license="NOASSERTION")
    assert isinstance(result, Edit), result
    return result


def test_a_flat_row_becomes_an_edit_that_is_grown_from_its_commit() -> None:
    edit = edit_of(flat())
    assert edit == Edit(
        instruction="Add one.",
        pre=PRE,
        post=POST,
        language="python",
        tags=("oce_dataft", "style:lazy", "model:qwen3", "seed-commit"),
        id=edit.id,
        dataset="oce_dataft",
        license="NOASSERTION",
        group="commit:" + "a" * 40,
        commit="a" * 40,
        path="",
        origin="grown from aaaaaaaaaaaa (qwen3_lazy)",
    )


def test_a_chat_has_its_instruction_between_two_headings() -> None:
    edit = edit_of(chat())
    assert (edit.instruction, edit.pre, edit.post) == ("Add one.", PRE, POST)
    assert edit.tags == ("oce_dataft", "style:descriptive", "model:ds", "seed-commit")


def test_headings_in_the_code_before_are_not_taken_for_those_of_the_chat() -> None:
    code = "s = '''\n## Instruction:\nno\n## Code After:\n'''\n"
    prompt = f"## Code Before:\n{code}## Instruction:\nAdd one.\n## Code After:\n"
    assert edit_of(chat(prompt)).instruction == "Add one."


@pytest.mark.parametrize(
    ("code", "bare", "reason"),
    [
        (f"```python\n{PRE}```", PRE, "a fence with a language"),
        (f"\n```\n{PRE}```\n", PRE, "a fence and blank lines round it"),
        (PRE, PRE, "no fence"),
        (f"{PRE}```\n", f"{PRE}```\n", "half a fence is a fault of the row, for the parser to find"),
        (f"```\n{PRE}```\ntext\n```\nx\n```", f"```\n{PRE}```\ntext\n```\nx\n```", "two fenced pieces"),
        ("```", "```", "nothing but a fence"),
    ],
)
def test_a_fence_round_a_whole_side_is_taken_off(code: str, bare: str, reason: str) -> None:
    assert edit_of(flat(code_before_purify=code)).pre == bare, reason
    assert edit_of(chat(new_code=code)).post == bare, reason


def test_the_first_of_several_commits_counts() -> None:
    edit = edit_of(flat(commit=["b" * 40, "c" * 40]))
    assert (edit.commit, edit.group, edit.aliases) == ("b" * 40, "commit:" + "b" * 40, ())


def test_an_unknown_kind_of_instruction_is_kept_as_a_tag() -> None:
    assert edit_of(flat(instr_type="terse")).tags == ("oce_dataft", "instr_type:terse", "seed-commit")


def test_two_instructions_for_the_same_texts_are_two_edits() -> None:
    rows = [flat(), flat(instruct_purify="Plus one."), flat(instr_type="ds_lazy"), flat(commit="b"), chat()]
    assert len({edit_of(row).id for row in rows}) == len(rows)
    assert edit_of(flat()).id == edit_of(flat(code_after_purify="pass\n")).id


def test_a_row_that_cannot_become_an_edit_is_dropped_with_its_reason() -> None:
    headings = "expected '## Instruction:' and '## Code After:' in the user's turn"
    cases = [
        (flat(code_before_purify="```\n```"), "empty_pre: the code before is empty: nothing can be rewritten"),
        (flat(code_after_purify=" "), "empty_post: the code after is empty: everything was removed, not rewritten"),
        (flat(instruct_purify="\n"), "empty_instruction: the instruction is empty"),
        (flat(commit=""), "bad_field: commit.constrained-str: String should have at least 1 character"),
        (flat(instr_type=None), "bad_field: instr_type: Input should be a valid string"),
        (chat("Add one."), f"bad_field: messages: {headings}"),
        (chat("## Code After:\n## Instruction:\nx"), f"bad_field: messages: {headings}"),
        (chat(messages=[]), "bad_field: messages: no turn has the role 'user'"),
        (chat(messages=[{"from": "human"}]), "bad_field: messages.0.role: Field required"),
    ]
    assert [drop("oce_dataft", row) for row, _ in cases] == [reason for _, reason in cases]
