"""The reader of `agentpack`."""

from typing import Any

from graftline.datasets.edit import Edit, Rejection
from graftline.datasets.readers import source_of
from graftline.datasets.readers.agentpack import MAX_PATCH_CHARACTERS
from tests.unit.datasets.fixtures import drop, outcomes

HEAD = "diff --git a/src/a.py b/src/a.py\nindex 1..2 100644\n--- a/src/a.py\n+++ b/src/a.py\n"
HUNK = "@@ -3,2 +3,2 @@\n x = 1\n-old(x)\n+new(x)\n"


def row(patch: str = HEAD + HUNK, **changes: Any) -> dict[str, Any]:
    return {
        "event_id": None,
        "agent": "claude",
        "repo": "demo/tool",
        "sha": "a" * 40,
        "description": "Call new\n\nCo-Authored-By: Claude <claude@example.com>\n",
        "patch": patch,
        **changes,
    }


def edits_of(patch: str, **changes: Any) -> list[Edit]:
    results = outcomes("agentpack", row(patch), **changes)
    assert all(isinstance(result, Edit) for result in results), results
    return [result for result in results if isinstance(result, Edit)]


def test_a_patch_of_one_hunk_becomes_an_edit_of_what_the_hunk_shows() -> None:
    [edit] = edits_of(HEAD + HUNK)
    assert edit == Edit(
        instruction="Call new",
        pre="x = 1\nold(x)\n",
        post="x = 1\nnew(x)\n",
        language="python",
        tags=("agentpack", "hunk", "agent:claude"),
        instruction_source="commit",
        id=edit.id,
        dataset="agentpack",
        license="MIT",
        group="demo/tool",
        commit="a" * 40,
        path="src/a.py#1",
        origin="demo/tool@aaaaaaaaaaaa src/a.py line 3",
    )


def test_every_hunk_becomes_an_edit_of_its_own() -> None:
    edits = edits_of(HEAD + HUNK + HUNK.replace("3,2", "9,2"))
    assert [edit.path for edit in edits] == ["src/a.py#1", "src/a.py#2"]
    assert [edit.origin[-6:] for edit in edits] == ["line 3", "line 9"]
    assert len({edit.id for edit in edits}) == 2
    # the description is of all of them
    assert {(edit.instruction, edit.instruction_source, edit.answerable) for edit in edits} == {("", "none", False)}


def test_the_license_is_that_of_the_repository() -> None:
    licenses = {"Demo/*": "Apache-2.0"}
    assert edits_of(HEAD + HUNK, licenses=licenses)[0].license == "Apache-2.0"
    assert edits_of(HEAD + HUNK, licenses={"other/*": "ISC"}, license="NOASSERTION")[0].license == "NOASSERTION"


def test_the_indentation_that_all_lines_share_is_taken_off() -> None:
    nested = "@@ -1,4 +1,5 @@\n     if x:\n-        old()\n+        new()\n+          # why\n   \t\n     end()\n"
    [edit] = edits_of(HEAD + nested)
    assert edit.pre == "if x:\n    old()\n\nend()\n"
    assert edit.post == "if x:\n    new()\n      # why\n\nend()\n"
    assert edit.tags == ("agentpack", "hunk", "agent:claude", "dedented")


def test_tabs_and_blanks_are_not_the_same_indentation() -> None:
    [edit] = edits_of(HEAD + "@@ -1,2 +1,2 @@\n \t  a()\n-    b()\n+    c()\n")
    assert (edit.pre, edit.tags) == ("\t  a()\n    b()\n", ("agentpack", "hunk", "agent:claude"))


def test_a_hunk_that_shows_one_side_only_is_dropped_and_the_others_are_kept() -> None:
    shown = outcomes("agentpack", row(HEAD + "@@ -0,0 +1 @@\n+new()\n" + HUNK + "@@ -9 +8,0 @@\n-old()\n"))
    assert [str(result) if isinstance(result, Rejection) else result.origin[-6:] for result in shown] == [
        "empty_pre: hunk 1 of 'src/a.py' shows nothing before: nothing can be rewritten",
        "line 3",
        "empty_post: hunk 3 of 'src/a.py' shows nothing after: all of it was removed",
    ]


UNWANTED = [
    (HEAD + HUNK + HEAD + HUNK, "several_files: 2 files"),
    (f"--- a/a.py\n+++ b/a.py\n{HUNK}--- a/b.py\n+++ b/b.py\n{HUNK}", "several_files: 2 files"),
    (HEAD + "x" * MAX_PATCH_CHARACTERS, f"too_long: patch has {8000 + len(HEAD)} characters, more than 8000"),
    (
        HEAD.replace(".py", ".lock") + HUNK,
        "unknown_language: 'src/a.lock'; known: python, javascript, typescript, tsx, java",
    ),
    (
        "diff --git a/a.py b/a.py\nnew file mode 100644\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+a\n",
        "empty_pre: 'a.py' is new: nothing can be rewritten",
    ),
    (
        "diff --git a/a.py b/a.py\ndeleted file mode 100644\n--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        "empty_post: 'a.py' was deleted, not rewritten",
    ),
    ("diff --git a/a.py b/a.py\nBinary files a/a.py and b/a.py differ\n", "not_text: 'a.py' is binary"),
    (
        "diff --git a/a.py b/a.py\nold mode 100644\nnew mode 100755\n",
        "unchanged: only name or mode of 'a.py' changes",
    ),
    (HEAD + "@@ -1,9 +1,9 @@\n-a\n", "bad_patch: patch ends 17 lines before the end of a hunk"),
    ("", "bad_patch: patch holds no file; expected lines that start with 'diff --git', or with '---' and '+++'"),
]


def test_a_row_that_can_never_become_an_edit_is_unwanted_for_the_reason_it_is_dropped_for() -> None:
    unwanted = source_of("agentpack").reject_unusable
    assert [drop("agentpack", row(patch)) for patch, _ in UNWANTED] == [reason for _, reason in UNWANTED]
    assert [str(unwanted(row(patch))) for patch, _ in UNWANTED] == [reason for _, reason in UNWANTED]
    assert unwanted(row()) is None


def test_a_row_with_a_bad_field_is_dropped() -> None:
    cases = [
        ({"repo": "demo"}, "bad_field: repo: String should match pattern '^[\\w.-]{1,100}/[\\w.-]{1,100}$'"),
        ({"patch": None}, "bad_field: patch: Input should be a valid string"),
        (
            {"description": "🤖 Generated with Claude Code"},
            "empty_instruction: description says nothing but who made the commit",
        ),
    ]
    assert [drop("agentpack", row(**change)) for change, _ in cases] == [reason for _, reason in cases]
