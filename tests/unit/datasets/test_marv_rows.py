"""The reader of `marv`."""

import json
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.datasets.edit import Edit, Label
from graftline.datasets.readers import source_of
from graftline.datasets.readers.marv import instruction_of
from tests.unit.datasets.fixtures import drop, outcome, raw_rows

RENAMED = "Rename Method public a(x int) : void renamed to private b(x int) : void in class p.Outer.Inner"


def row(*votes: int, **changes: Any) -> dict[str, Any]:
    return {
        "type": "Rename Method",
        "refactoring_id": 7,
        "commit_sha": "a" * 40,
        "commit_link": "https://github.com/demo/tool/commit/" + "a" * 40,
        "file_path": "src/p/Outer.java",
        "description": RENAMED,
        "code_before": "void a(int x) {}",
        "code_after": "void b(int x) {}",
        "evaluations": [{"vote": vote, "evaluator": "someone"} for vote in votes],
        **changes,
    }


def test_a_pair_that_people_agree_on_becomes_an_edit() -> None:
    edit = outcome("marv", row(1, 1), licenses={"demo/*": "Apache-2.0"})
    assert isinstance(edit, Edit)
    assert edit == Edit(
        instruction="Rename the method `a` to `b` in `Inner`.",
        pre="void a(int x) {}",
        post="void b(int x) {}",
        language="java",
        tags=("marv", "type:rename-method", "votes:2/2", "partial-context"),
        id=edit.id,
        dataset="marv",
        license="Apache-2.0",
        group="demo/tool",
        commit="a" * 40,
        path="src/p/Outer.java#7",
        origin="demo/tool@aaaaaaaaaaaa src/p/Outer.java#7",
    )


@pytest.mark.parametrize(
    ("kind", "description", "before", "after", "is_more"),
    [
        ("Rename Method", RENAMED, "void a(int x) { a(x); }", "void b(int x) {\n  b(x);\n}", False),
        ("Rename Method", RENAMED, "void a(int x) {}", "void b(int x) { log(x); }", True),
        (
            "Rename Variable",
            "Rename Variable a : int to b : int in method f() : void from class C",
            "a = 1",
            "b = 1",
            False,
        ),
        (
            "Rename Variable",
            "Rename Variable a : int to b : int in method f() : void from class C",
            "a = 1",
            "b = 2",
            True,
        ),
    ],
)
def test_a_rename_that_does_more_has_no_instruction(
    kind: str, description: str, before: str, after: str, is_more: bool
) -> None:
    edit = outcome("marv", row(1, type=kind, description=description, code_before=before, code_after=after))
    assert isinstance(edit, Edit)
    assert ("more-than-rename" in edit.tags, edit.instruction_source, edit.instruction == "") == (
        is_more, "none" if is_more else "rule", is_more,
    )  # fmt: skip


def test_a_disputed_pair_becomes_a_label_with_its_text_after() -> None:
    label = outcome("marv", row(1, 0))
    assert isinstance(label, Label)
    assert label == Label(
        label="rename-method",
        holds=None,
        detail=RENAMED,
        instruction="Rename the method `a` to `b` in `Inner`.",
        pre="void a(int x) {}",
        post="void b(int x) {}",
        language="java",
        tags=("marv", "type:rename-method", "votes:1/2", "partial-context"),
        id=label.id,
        dataset="marv",
        license="MIT",
        group="demo/tool",
        origin="demo/tool@aaaaaaaaaaaa src/p/Outer.java#7",
    )


@pytest.mark.parametrize(
    ("votes", "holds", "tag"),
    [
        ((1,), True, "votes:1/1"),
        ((1, -1), None, "votes:1/1"),
        ((1, -2, 1), None, "votes:2/2"),
        ((1, 0, 1), None, "votes:2/3"),
        ((0, 1), None, "votes:1/2"),
        ((0, 0), False, "votes:0/2"),
        ((0, -1), False, "votes:0/1"),
    ],
)
def test_a_pair_counts_as_agreed_on_when_every_vote_is_for_it(
    votes: tuple[int, ...], holds: bool | None, tag: str
) -> None:
    results = outcome("marv", row(*votes))
    assert isinstance(results, Edit if holds else Label)
    assert (results.tags[2], results.holds if isinstance(results, Label) else True) == (tag, holds)


METHOD = "private f(a List<int>, b int) : Map<String,int>"
INSTRUCTIONS = [
    (
        "Extract Method",
        f"Extract Method {METHOD} extracted from public static g() : void in class p.C",
        "Extract a method `f` from `g`.",
    ),
    (
        "Extract Method",
        "Extract Method public C(a int) extracted from public C() in class p.C",
        "Extract an overload of `C`.",
    ),
    (
        "Rename Method",
        f"Rename Method {METHOD} renamed to package g() : void in class p.C",
        "Rename the method `f` to `g` in `C`.",
    ),
    (
        "Rename Method",
        f"Rename Method {METHOD} renamed to g() in class p.C.new Runnable() {{}}",
        "Rename the method `f` to `g`.",
    ),
    (
        "Rename Variable",
        f"Rename Variable a : int to b$ : Long in method {METHOD} from class p.C",
        "Rename the variable `a` to `b$` in `f`.",
    ),
    (
        "Rename Variable",
        "Rename Variable a : null to b : null in method public C() in class p.C",
        "Rename the variable `a` to `b` in `C`.",
    ),
    (
        "Remove Parameter",
        f"Remove Parameter a : List<int> in method {METHOD} from class p.C",
        "Remove the parameter `a` from `f`.",
    ),
    (
        "Rename Variable",
        "Rename Variable a : int to b : int in method f() from class C; "
        "Rename Variable c : int to d : int in method f() from class C; "
        "Rename Variable a : int to b : int in method f() from class C",
        "Rename the variable `a` to `b` in `f`. Rename the variable `c` to `d` in `f`.",
    ),
]


@pytest.mark.parametrize(("kind", "description", "instruction"), INSTRUCTIONS)
def test_a_sentence_of_a_kind_becomes_an_instruction(kind: str, description: str, instruction: str) -> None:
    assert instruction_of(kind, description) == instruction


@pytest.mark.parametrize(
    ("kind", "description"),
    [
        ("Rename Method", ""),
        ("Rename Method", "Rename Method a renamed to b"),
        ("Rename Method", "Rename Method () renamed to b() in class C"),
        ("Rename Method", "Rename Method a() renamed to b-c() in class C"),
        ("Rename Method", INSTRUCTIONS[0][1]),
        ("Rename Method", f"Please do this: {RENAMED}"),
        ("Rename Method", f"{RENAMED}; and more"),
        ("Rename Variable", "Rename Variable a to b in method f() from class C"),
        ("Rename Variable", "Rename Variable ` : int to b : int in method f() from class C"),
        ("Remove Parameter", "Remove Parameter a : int"),
        ("Inline Method", "Inline Method f() inlined to g() in class C"),
    ],
)
def test_what_is_no_sentence_of_its_kind_is_not_understood(kind: str, description: str) -> None:
    assert instruction_of(kind, description) is None


def test_only_what_touches_callers_is_partial() -> None:
    descriptions = {kind: description for kind, description, _ in INSTRUCTIONS}
    results = [outcome("marv", row(1, type=kind, description=text)) for kind, text in descriptions.items()]
    tags = [[tag for tag in edit.tags if tag != "more-than-rename"] for edit in results if isinstance(edit, Edit)]
    assert [(*of_edit[1:2], *of_edit[3:]) for of_edit in tags] == [
        ("type:extract-method", "partial-context"),
        ("type:rename-method", "partial-context"),
        ("type:rename-variable",),
        ("type:remove-parameter", "partial-context"),
    ]


def test_a_number_is_that_of_a_pair_within_its_type_only() -> None:
    description = "Extract Method a() extracted from b() in class C"
    rows = [row(1), row(1, refactoring_id=8), row(1, type="Extract Method", description=description)]
    results = [outcome("marv", item) for item in rows]
    assert len({edit.id for edit in results if isinstance(edit, Edit)}) == 3


def test_a_pair_that_says_nothing_is_dropped_with_its_reason() -> None:
    cases = [
        (row(1, code_before=" "), "empty_pre: code_before is empty: nothing can be rewritten"),
        (row(1, code_after=""), "empty_post: code_after is empty: the method was removed, not rewritten"),
        (
            row(1, commit_link="https://github.com/demo"),
            "bad_field: commit_link: expected https://github.com/<owner>/<name>/commit/<sha>",
        ),
        (
            row(1, commit_link="https://example.com/apache/tool/commit/" + "a" * 40),
            "bad_field: commit_link: expected https://github.com/<owner>/<name>/commit/<sha>",
        ),
        (row(1, description="Improved."), "bad_field: description: is no sentence about 'Rename Method'"),
        (row(-1, -2), "bad_field: evaluations: hold no vote for or against"),
        (row(), "bad_field: evaluations: hold no vote for or against"),
        (row(5), "bad_field: evaluations.0.vote: Input should be 1, 0, -1 or -2"),
        (row(1, commit_sha=5), "bad_field: commit_sha: Input should be a valid string"),
    ]
    assert [drop("marv", item) for item, _ in cases] == [reason for _, reason in cases]


def test_rows_are_numbered_over_the_whole_document(tmp_path: Path) -> None:
    pair = {key: value for key, value in row(1).items() if key != "type"}
    document = {"Extract Method": [pair, "x"], "Remove Parameter": [], "Rename Method": [pair]}
    (tmp_path / "MaRV.json").write_text(json.dumps(document), "utf-8")
    rows = raw_rows("marv", tmp_path)
    assert [(item.file, item.line) for item in rows] == [("MaRV.json", 1), ("MaRV.json", 2), ("MaRV.json", 3)]
    assert (rows[0].content, rows[2].content) == ({**pair, "type": "Extract Method"}, row(1))
    assert str(rows[1].content) == "malformed_json: expected an object, found str"
    assert source_of("marv").is_snippet


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("[]", "found list; fetch MaRV.json again"),
        ('{"Inline Method": []}', "found 'Inline Method' with list; fetch MaRV.json again"),
        ('{"Rename Method": {}}', "found 'Rename Method' with dict; fetch MaRV.json again"),
        ("{", "is not JSON"),
    ],
)
def test_another_document_is_refused(tmp_path: Path, content: str, fault: str) -> None:
    (tmp_path / "MaRV.json").write_text(content, "utf-8")
    with pytest.raises(DataError, match=fault):
        raw_rows("marv", tmp_path)
