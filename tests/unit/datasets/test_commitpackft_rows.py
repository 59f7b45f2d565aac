"""The reader of `commitpackft`."""

import gzip
import json
from pathlib import Path

import pytest

from graftline.datasets.edit import Edit
from graftline.datasets.language import language_of_path
from tests.unit.datasets.fixtures import commit_row, drop, outcome, raw_rows


def edit_of(**changes: str) -> Edit:
    result = outcome("commitpackft", commit_row(**changes))
    assert isinstance(result, Edit), result
    return result


def test_a_row_becomes_an_edit_of_its_first_repository() -> None:
    assert edit_of() == Edit(
        instruction="Declare queues early",
        pre="def declare():\n    old()\n",
        post="def declare():\n    new()\n",
        language="python",
        tags=("commitpackft", "license:BSD-3-Clause", "lang:Python", "repo:demo/queue"),
        id=edit_of().id,
        dataset="commitpackft",
        license="BSD-3-Clause",
        group="demo/queue",
        aliases=("fork/queue", "other/queue"),
        commit="e" * 40,
        path="src/queue.py",
        origin="demo/queue@eeeeeeeeeeee src/queue.py",
    )


def test_equal_rows_have_equal_ids_and_others_other_ones() -> None:
    ids = [
        edit_of().id,
        edit_of(commit="f" * 40).id,
        edit_of(old_file="src/old.py").id,
        edit_of(new_file="src/new.py").id,
        edit_of(old_file="a", new_file="bc.py").id,
        edit_of(old_file="ab", new_file="c.py").id,
    ]
    assert len(set(ids)) == len(ids)
    assert edit_of(message="another").id == ids[0]
    assert all(id.startswith("commitpackft:") and len(id) == len("commitpackft:") + 16 for id in ids)


def test_the_subject_stands_in_for_a_message_that_says_nothing() -> None:
    assert edit_of(message="Signed-off-by: A\n").instruction == "Declare queues early"
    assert edit_of(message="Longer\n\nmessage\n").instruction == "Longer\n\nmessage"


@pytest.mark.parametrize(
    ("path", "lang", "language"),
    [
        ("a.py", "Python", "python"),
        ("a.pyi", "Python", "python"),
        ("a/b.c/d.JS", "JavaScript", "javascript"),
        ("a.mjs", "JavaScript", "javascript"),
        ("a.cjs", "JavaScript", "javascript"),
        ("a.jsx", "JSX", "javascript"),
        ("a.ts", "TypeScript", "typescript"),
        ("a.mts", "TypeScript", "typescript"),
        ("a.cts", "TypeScript", "typescript"),
        ("a.tsx", "TypeScript", "tsx"),
        ("A.java", "Java", "java"),
        ("SConstruct", "Python", "python"),
        ("build.wsgi", "Python", "python"),
        ("view.es6", "JSX", "javascript"),
    ],
)
def test_the_language_is_that_of_the_ending_and_else_that_of_the_row(path: str, lang: str, language: str) -> None:
    assert edit_of(new_file=path, lang=lang).language == language


@pytest.mark.parametrize("path", ["", "py", ".py", "a/.js", "a.py/b", "a.pyc", "a.", "a.c"])
def test_a_name_without_a_known_ending_is_of_no_language(path: str) -> None:
    assert language_of_path(path) is None


def test_the_license_is_that_of_the_row_and_none_where_it_states_none() -> None:
    licenses = ["mit", "agpl-3.0", "unknown", "", "apache-2.0+mit"]
    assert [edit_of(license=license).license for license in licenses] == [
        *("MIT", "AGPL-3.0-only", "NOASSERTION", "NOASSERTION", "apache-2.0+mit")
    ]


def test_a_row_that_cannot_become_an_edit_is_dropped_with_its_reason() -> None:
    languages = "known: python, javascript, typescript, tsx, java"
    cases = [
        ({"old_contents": ""}, "empty_pre: old_contents is empty: the file is new"),
        ({"old_contents": " \n\t"}, "empty_pre: old_contents is empty: the file is new"),
        ({"new_contents": "\n"}, "empty_post: new_contents is empty: the file was deleted"),
        ({"new_file": "a.rb", "lang": "Ruby"}, f"unknown_language: new_file 'a.rb', lang 'Ruby'; {languages}"),
        (
            {"message": "Cc: A\n", "subject": " "},
            "empty_instruction: message and subject say nothing but who made the commit",
        ),
        ({"repos": " ,,"}, "bad_field: repos: names no repository"),
        ({"commit": ""}, "bad_field: commit: String should have at least 1 character"),
        ({"new_file": "a/" * 3000 + "a.py"}, "bad_field: new_file: String should have at most 4096 characters"),
        ({"old_contents": None}, "bad_field: old_contents: Input should be a valid string"),
    ]
    assert [drop("commitpackft", commit_row(**change)) for change, _ in cases] == [reason for _, reason in cases]
    without = {key: value for key, value in commit_row().items() if key != "license"}
    assert drop("commitpackft", without) == "bad_field: license: Field required"


def test_the_files_of_all_languages_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    line = json.dumps(commit_row()).encode()
    for name, content in {
        "python/data.jsonl": line,
        "java/data.jsonl.gz": gzip.compress(line + b"\n" + line, mtime=0),
    }.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    rows = raw_rows("commitpackft", tmp_path)
    assert [(row.file, row.line, row.content) for row in rows] == [
        ("data/java/data.jsonl.gz", 1, line),
        ("data/java/data.jsonl.gz", 2, line),
        ("data/python/data.jsonl", 1, line),
    ]
