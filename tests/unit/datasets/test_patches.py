"""Unified diffs into files and hunks."""

from contextlib import suppress

import pytest

from graftline.datasets.readers.agentpack import FilePatch, Hunk, PatchFault, files_of, number_of_files

HEAD = "diff --git a/a.py b/a.py\nindex 1..2 100644\n--- a/a.py\n+++ b/a.py\n"


def test_a_hunk_has_its_text_before_and_after() -> None:
    patch = HEAD + "@@ -3,3 +3,4 @@ def f():\n a\n-b\n+c\n+d\n e\n@@ -20 +21 @@\n-x\n+y\n"
    assert files_of(patch) == [
        FilePatch("a.py", "a.py", hunks=[Hunk(3, "a\nb\ne\n", "a\nc\nd\ne\n"), Hunk(20, "x\n", "y\n")])
    ]


def test_several_files_are_told_apart_and_counted_without_reading_them() -> None:
    # the second file ends with a removed line "-- x" and an added "++ y", which look like a third one's names
    second = "diff --git a/b.sql b/b.sql\n--- a/b.sql\n+++ b/b.sql\n@@ -1 +1 @@\n--- x\n+++ y\n"
    patch = HEAD + "@@ -1 +1 @@\n-a\n+b\n" + second
    assert files_of(patch) == [
        FilePatch("a.py", "a.py", hunks=[Hunk(1, "a\n", "b\n")]),
        FilePatch("b.sql", "b.sql", hunks=[Hunk(1, "-- x\n", "++ y\n")]),
    ]
    assert number_of_files(patch) == 2


HUNK = "@@ -1 +1 @@\n-a\n+b\n"
READ = [Hunk(1, "a\n", "b\n")]
SHAPES = [
    (
        "without the line of git",
        f"--- a/a.py\t2024-01-01\n+++ b/a.py\t2024-01-02\n{HUNK}",
        FilePatch("a.py", "a.py", hunks=READ),
    ),
    ("in a letter", f"From: x\nSubject: y\n\n{HEAD}{HUNK}-- \n2.40\n", FilePatch("a.py", "a.py", hunks=READ)),
    (
        "a rename",
        "diff --git a/a b.py b/c.py\nsimilarity index 90%\nrename from a b.py\nrename to c.py\n"
        f"--- a/a b.py\t\n+++ b/c.py\n{HUNK}",
        FilePatch("a b.py", "c.py", hunks=READ),
    ),
    (
        "only a rename",
        "diff --git a/a.py b/c.py\nsimilarity index 100%\nrename from a.py\nrename to c.py\n",
        FilePatch("a.py", "c.py"),
    ),
    ("only a mode", "diff --git a/a b b/a b\nold mode 100644\nnew mode 100755\n", FilePatch("a b", "a b")),
    (
        "a new file",
        "diff --git a/a.py b/a.py\nnew file mode 100644\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+a\n",
        FilePatch(None, "a.py", hunks=[Hunk(0, "", "a\n")]),
    ),
    ("an empty new file", "diff --git a/a.py b/a.py\nnew file mode 100644\nindex 0..e\n", FilePatch(None, "a.py")),
    (
        "a deleted file",
        "diff --git a/a.py b/a.py\ndeleted file mode 100644\n--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        FilePatch("a.py", None, hunks=[Hunk(1, "a\n", "")]),
    ),
    (
        "a binary file",
        "diff --git a/a.png b/a.png\nindex 1..2\nBinary files a/a.png and b/a.png differ\n",
        FilePatch("a.png", "a.png", is_binary=True),
    ),
    (
        "a binary patch",
        "diff --git a/a.png b/a.png\nGIT binary patch\nliteral 3\nKcmZ\n\nliteral 0\nHcmV\n",
        FilePatch("a.png", "a.png", is_binary=True),
    ),
    (
        "a path in quotes",
        f'diff --git "a/na\\303\\257 \\"x\\".py" "b/na\\303\\257 \\"x\\".py"\n--- "a/na\\303\\257 \\"x\\".py"\n'
        f'+++ "b/na\\303\\257 \\"x\\".py"\n{HUNK}',
        FilePatch('naï "x".py', 'naï "x".py', hunks=READ),
    ),
    (
        "no newline at the end before",
        f"{HEAD}@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n",
        FilePatch("a.py", "a.py", hunks=[Hunk(1, "a", "b\n")]),
    ),
    (
        "no newline at the end on both sides",
        f"{HEAD}@@ -1,2 +1,2 @@\n-a\n+b\n c\n\\ No newline at end of file",
        FilePatch("a.py", "a.py", hunks=[Hunk(1, "a\nc", "b\nc")]),
    ),
    (
        "ends of lines of the file",
        f"{HEAD}@@ -1,2 +1,2 @@\n-a\r\n+b\r\n c\r\n",
        FilePatch("a.py", "a.py", hunks=[Hunk(1, "a\r\nc\r\n", "b\r\nc\r\n")]),
    ),
    ("ends of lines of the letter", (HEAD + HUNK).replace("\n", "\r\n"), FilePatch("a.py", "a.py", hunks=READ)),
    (
        "a blank line that lost its blank",
        f"{HEAD}@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n",
        FilePatch("a.py", "a.py", hunks=[Hunk(1, "a\n\nb\n", "a\n\nc\n")]),
    ),
]


@pytest.mark.parametrize(("patch", "file"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES])
def test_every_shape_of_a_file_is_read(patch: str, file: FilePatch) -> None:
    assert files_of(patch) == [file]


FAULTS = [
    ("", "holds no file; expected lines that start with 'diff --git', or with '---' and '+++'"),
    ("no patch", "holds no file; expected lines that start with 'diff --git', or with '---' and '+++'"),
    (HUNK, "line 1 starts no hunk of one file; expected e.g. '@@ -1,4 +1,5 @@'"),
    (HEAD + "@@ nonsense @@\n", "line 5 starts no hunk of one file; expected e.g. '@@ -1,4 +1,5 @@'"),
    (HEAD + "@@@ -1 -1 +1 @@@\n", "line 5 starts no hunk of one file; expected e.g. '@@ -1,4 +1,5 @@'"),
    ("diff --cc a.py\n", "line 1 starts no hunk of one file; expected e.g. '@@ -1,4 +1,5 @@'"),
    (HEAD + "@@ -1,3 +1,3 @@\n-a\n+b\n", "ends 4 lines before the end of a hunk"),
    (HEAD + "@@ -1,999999999 +1,999999999 @@\n a\n", "ends 1999999996 lines before the end of a hunk"),
    (HEAD + "@@ -1,2 +1,2 @@\n-a\n+b\nc\n", "line 8 does not fit the hunk it is in"),
    (HEAD + "@@ -1 +1 @@\n-a\n-b\n", "line 7 does not fit the hunk it is in"),
    (HEAD + "@@ -1 +1 @@\n-a\n+b\n+c\n", "line 8 is one more than its hunk announced"),
    ("diff --git a/a.py b/c.py\nindex 1..2\n", "does not say of every file what it is called"),
    ('--- "a/\\377.py"\n+++ "b/\\377.py"\n' + HUNK, "has a path that is not UTF-8: '\"a/\\\\377.py\"'"),
]


@pytest.mark.parametrize(("patch", "fault"), FAULTS)
def test_what_is_no_whole_patch_is_refused(patch: str, fault: str) -> None:
    with pytest.raises(PatchFault) as raised:
        files_of(patch)
    assert str(raised.value) == fault


@pytest.mark.parametrize(
    "patch",
    [HEAD + HUNK * 80_000, HEAD * 20_000, "@" * 1_000_000, '--- "' + "\\" * 1_000_000 + "\n+++ x\n" + HUNK],
    ids=["many hunks", "many files", "one sign", "one quote"],
)
def test_a_hostile_patch_of_a_megabyte_is_read_in_the_time_of_a_test(patch: str) -> None:
    with suppress(PatchFault):
        assert len(files_of(patch)) <= patch.count("+++")
