"""Rows that cannot be edits: each is a drop that says why and where, and the rows round it are kept."""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.catalog import Cleaning
from graftline.datasets.edit import Rejection, RejectReason
from graftline.datasets.readers import source_of
from graftline.datasets.readers.base import RawRow
from tests.unit.datasets.fixtures import dataset

Row = Callable[..., bytes]
DropOf = Callable[[bytes], Rejection]


@pytest.fixture
def row(pair: Mapping[str, Any]) -> Row:
    """Return a good row as a line, with other values as given."""
    return lambda **changes: json.dumps({**pair, **changes}).encode()


@pytest.fixture
def drop_of(ingested: Callable[..., list[Any]], row: Row) -> DropOf:
    """Return the drop of a line that stands between two good ones, which have to be kept."""

    def read(bad: bytes) -> Rejection:
        content = b"\n".join([row(id="release:before"), bad, row(id="release:after")])
        before, (file, line, drop), after = ingested(content)
        assert (before, after) == (("rows.jsonl", 1, "release_pairs:before"), ("rows.jsonl", 3, "release_pairs:after"))
        assert (file, line) == ("rows.jsonl", 2)
        return drop

    return read


def test_a_line_that_is_not_json_says_where_it_breaks(drop_of: DropOf) -> None:
    # `nothing` starts at the eighth character, and only `null` starts like it
    assert drop_of(b'{"id": nothing}') == Rejection(
        RejectReason.MALFORMED_JSON, "invalid literal, expected 'null' (character 8)"
    )


@pytest.mark.parametrize(("line", "kind"), [(b"[1, 2]", "list"), (b'"a"', "str"), (b"7", "int"), (b"null", "NoneType")])
def test_json_that_is_not_an_object_says_what_it_is(drop_of: DropOf, line: bytes, kind: str) -> None:
    assert drop_of(line) == Rejection(RejectReason.MALFORMED_JSON, f"expected an object, found {kind}")


def test_json_nested_deeper_than_the_parser_follows_is_a_drop(drop_of: DropOf) -> None:
    # each level takes eight characters and is 1,024 deep after that many
    assert drop_of(b'{"pre": ' * 100_000) == Rejection(
        RejectReason.MALFORMED_JSON, "depth limit exceeded (character 8194)"
    )


def test_a_number_too_long_to_be_read_is_a_drop(drop_of: DropOf) -> None:
    assert drop_of(b'{"changed": ' + b"1" * 5000 + b"}") == Rejection(
        RejectReason.MALFORMED_JSON, "number is infinity when parsed as double (character 13)"
    )


def test_bytes_that_are_not_utf8_say_which_byte(drop_of: DropOf, row: Row) -> None:
    # the seventh byte is the first that is replaced
    assert drop_of(row()[:6] + b"\xff" + row()[7:]) == Rejection(
        RejectReason.INVALID_UTF8, "byte 7 of the line is not UTF-8"
    )


def test_a_row_of_five_megabytes_is_dropped(drop_of: DropOf, row: Row) -> None:
    # the default limit is 2 MiB
    assert drop_of(row(pre="x" * 5_000_000)) == Rejection(RejectReason.LINE_TOO_LONG, "more than 2097152 bytes")


def test_a_line_at_the_limit_is_read_and_one_above_is_not(ingested: Callable[..., list[Any]], row: Row) -> None:
    line = row(path="")
    fitting, longer = (row(path="p" * (size - len(line))) for size in (2000, 2001))
    assert ingested(fitting + b"\n" + longer + b"\n", cleaning=Cleaning(max_line_bytes=2000)) == [
        ("rows.jsonl", 1, "release_pairs:1"),
        ("rows.jsonl", 2, Rejection(RejectReason.LINE_TOO_LONG, "more than 2000 bytes")),
    ]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_huge_line_takes_no_more_memory_than_the_limit_allows(tmp_path: Path, row: Row, name: str) -> None:
    content = row(pre="x" * 16_000_000) + b"\n" + row() + b"\n"
    (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    del content
    tracemalloc.start()
    try:
        found = list(source_of("release_pairs").rows(tmp_path, dataset("release_pairs"), 64 << 10))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    too_long = Rejection(RejectReason.LINE_TOO_LONG, "more than 65536 bytes")
    assert found == [RawRow(name, 1, too_long), RawRow(name, 2, row())]
    # some copies of a piece of 1 MiB, not the 16 MB of the line
    assert peak < 5_000_000


def test_an_empty_pre_is_a_drop(drop_of: DropOf, row: Row) -> None:
    assert drop_of(row(pre="")) == Rejection(RejectReason.EMPTY_PRE, "pre is empty: nothing can be rewritten")


def test_a_pre_of_blanks_is_a_drop(drop_of: DropOf, row: Row) -> None:
    assert drop_of(row(pre=" \n\t\n")) == Rejection(RejectReason.EMPTY_PRE, "pre is empty: nothing can be rewritten")


@pytest.mark.parametrize("post", ["", "\n  \n"])
def test_an_empty_post_is_a_drop(drop_of: DropOf, row: Row, post: str) -> None:
    assert drop_of(row(post=post)) == Rejection(
        RejectReason.EMPTY_POST, "post is empty: the function was removed, not rewritten"
    )


@pytest.mark.parametrize("language", ["cobol", "Python", ""])
def test_an_unknown_language_lists_the_known_ones(drop_of: DropOf, row: Row, language: str) -> None:
    assert drop_of(row(language=language)) == Rejection(
        RejectReason.UNKNOWN_LANGUAGE, f"language {language!r}; known: python, javascript, typescript, tsx, java"
    )


def test_a_missing_field_is_named(drop_of: DropOf, pair: Mapping[str, Any]) -> None:
    without = {key: value for key, value in pair.items() if key != "post"}
    assert drop_of(json.dumps(without).encode()) == Rejection(RejectReason.BAD_FIELD, "post: Field required")


@pytest.mark.parametrize("value", [3, None, ["def f(): pass"], {"text": "x"}, True])
def test_a_field_of_another_type_is_named_and_not_converted(drop_of: DropOf, row: Row, value: Any) -> None:
    assert drop_of(row(pre=value)) == Rejection(RejectReason.BAD_FIELD, "pre: Input should be a valid string")


def test_a_licence_that_is_not_allowed_lists_those_that_are(drop_of: DropOf, row: Row) -> None:
    assert drop_of(row(licence="GPL-3.0-only")) == Rejection(
        RejectReason.LICENSE,
        "'GPL-3.0-only' is not allowed; allowed: MIT, BSD-2-Clause, BSD-3-Clause, Apache-2.0, ISC",
    )


def test_a_row_without_a_licence_is_a_drop(drop_of: DropOf, row: Row) -> None:
    assert drop_of(row(licence="")) == Rejection(
        RejectReason.BAD_FIELD, "licence: String should have at least 1 character"
    )


@pytest.mark.parametrize(
    "post",
    [
        pytest.param("def first(x):\n    return old(x)\n", id="nothing"),
        pytest.param("def first(x):  \n    return old(x)\t\n", id="blanks at line ends"),
        pytest.param("\ndef first(x):\n\n\n    return old(x)", id="empty lines and the ends"),
    ],
)
def test_a_row_that_changes_nothing_but_blanks_is_a_drop(drop_of: DropOf, row: Row, post: str) -> None:
    assert drop_of(row(post=post)) == Rejection(
        RejectReason.UNCHANGED, "pre and post differ in nothing, or in blanks only"
    )


def test_a_change_of_indentation_is_kept(ingested: Callable[..., list[Any]], row: Row) -> None:
    line = row(pre="if a:\n    b()\n    c()\n", post="if a:\n    b()\nc()\n")
    assert ingested(line) == [("rows.jsonl", 1, "release_pairs:1")]


@pytest.mark.parametrize("field", ["pre", "post", "qual"])
def test_a_nul_character_is_a_drop(drop_of: DropOf, row: Row, field: str) -> None:
    assert drop_of(row(**{field: "x = '\0'\n"})) == Rejection(RejectReason.NOT_TEXT, "holds a NUL character")


@pytest.mark.parametrize("field", ["pre", "post", "qual", "licence", "changed"])
def test_half_a_surrogate_pair_is_a_drop_wherever_it_is(drop_of: DropOf, row: Row, field: str) -> None:
    assert drop_of(row(**{field: "x = '\ud800'\n"})) == Rejection(RejectReason.NOT_TEXT, "holds half a surrogate pair")


def test_a_pre_of_more_tokens_than_allowed_is_a_drop(drop_of: DropOf, row: Row) -> None:
    # 4 characters a token: 8,001 of them are 2,001 tokens
    assert drop_of(row(pre="x = " + "1" * 7997)) == Rejection(
        RejectReason.TOO_LONG, "pre has 2001 tokens by characters/4, more than 2000"
    )


def test_a_pre_of_as_many_tokens_as_allowed_is_kept_whatever_its_post(
    ingested: Callable[..., list[Any]], row: Row
) -> None:
    line = row(pre="x = " + "1" * 7996, post="x = " + "2" * 9000)
    assert ingested(line) == [("rows.jsonl", 1, "release_pairs:1")]


@pytest.mark.parametrize("field", ["pre", "post"])
@pytest.mark.parametrize(
    ("language", "text"),
    [("python", "def first(:\n"), ("javascript", "function ("), ("java", "int first(int x { }")],
)
def test_a_side_that_does_not_parse_is_a_drop(drop_of: DropOf, row: Row, field: str, language: str, text: str) -> None:
    clean = {
        "python": ("old(x)\n", "new(x)\n"),
        "javascript": ("f(old);", "f(fresh);"),
        "java": ("int f(int x) { return a; }", "int f(int x) { return b; }"),
    }[language]
    sides = {"pre": clean[0], "post": clean[1], field: text}
    assert drop_of(row(language=language, **sides)) == Rejection(
        RejectReason.UNPARSABLE, f"one side is not valid {language}, alone or as a member"
    )


def test_a_text_with_a_line_longer_than_is_safe_is_unparsable(drop_of: DropOf, row: Row) -> None:
    # as many tokens as are allowed, in one line of 10,001 characters
    text = "x = '" + "a" * 9995 + "'"
    assert (len(text), drop_of(row(post=text))) == (
        10_001,
        Rejection(RejectReason.UNPARSABLE, "one side is not valid python, alone or as a member"),
    )


def test_a_text_nested_deeper_than_ast_grep_may_go_is_an_edit_all_the_same(
    ingested: Callable[..., list[Any]], row: Row
) -> None:
    line = row(pre="x = " + "(" * 3000 + "1" + ")" * 3000)
    assert ingested(line) == [("rows.jsonl", 1, "release_pairs:1")]
