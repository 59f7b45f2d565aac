"""One line of JSON: an object with every key once, or the reason why it is none."""

import json
import random
from typing import Any

import pytest

from graftline.datasets.edit import Rejection, RejectReason
from graftline.datasets.ingest import parse_row

PIECES = ['"', "\\", '\\"', "a", "é", "\u2028", "\U0001f600", "\n", "\t", "{", "}", ":", ",", "\x7f", "\\\\", "/"]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        pytest.param(b"{}", {}, id="empty"),
        pytest.param(b' {"a" : 1 }\r', {"a": 1}, id="blanks"),
        pytest.param(b'{"a":"\\"","b":"\\\\","c":"\\\\\\""}', {"a": '"', "b": "\\", "c": '\\"'}, id="escapes"),
        pytest.param(b'{"a\\"":"\\\\"}', {'a"': "\\"}, id="escapes in a key"),
        pytest.param(b'{"a":1,"b":{"a":1,"c":[{"a":2},{"a":2}]}}', None, id="a key of several objects"),
        pytest.param(b'{"a":"\\ud83d\\ude00\\/"}', {"a": "\U0001f600/"}, id="a whole surrogate pair, an escaped slash"),
        pytest.param(b'{"a":"\\u0000"}', {"a": "\0"}, id="a NUL is a character"),
        pytest.param(b'{"a":18446744073709551615,"b":-0.0,"c":1e300}', None, id="large numbers"),
        pytest.param(b'{"a":{"":1},"":2}', {"a": {"": 1}, "": 2}, id="an empty key"),
        pytest.param(b'{"a":1,"A":2}', {"a": 1, "A": 2}, id="keys that differ in case"),
        pytest.param('{"e\u0301":1,"é":2}'.encode(), {"e\u0301": 1, "é": 2}, id="keys that only look alike"),
    ],
)
def test_an_object_is_the_row(line: bytes, row: dict[str, Any] | None) -> None:
    assert parse_row(line) == (json.loads(line) if row is None else row)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        pytest.param(b'{"a":1,"a":1}', "a", id="equal values"),
        pytest.param(b'{"a":"x","b":2,"a":"y"}', "a", id="not side by side"),
        pytest.param(b'{"ab":1,"a\\u0062":2}', "ab", id="written in two ways"),
        pytest.param(b'{"a\\"":1,"a\\"":2}', 'a"', id="with an escaped quote"),
        pytest.param(b'{"\\\\":1,"a":2,"a":3,"b\\\\":4}', "a", id="among keys that end in a backslash"),
        pytest.param(b'{"a":1,"a":"x\\\\","b":"y\\\\"}', "a", id="among texts that end in a backslash"),
        pytest.param(b'{"a":"\\"\\"","a":"\\\\\\""}', "a", id="with quotes in the texts"),
        pytest.param(b'{"o":{"a":1,"a":2}}', "a", id="in an object within"),
        pytest.param(b'{"o":[[{"b":1},{"a":1,"a":2}]]}', "a", id="in an object in a list"),
        pytest.param(b'{"a":1,"a":{"b":{}}}', "a", id="an object in place of a number"),
        pytest.param(b'{"":1,"":2}', "", id="an empty key"),
        pytest.param(b'{"b":1,"a":1,"a":2,"b":2}', "b", id="of two the first"),
    ],
)
def test_a_key_that_is_there_twice_is_named(line: bytes, key: str) -> None:
    assert parse_row(line) == Rejection(RejectReason.DUPLICATE_KEY, f"{key!r} is there twice")


@pytest.mark.parametrize("seed", range(10))
def test_a_repeated_key_is_found_among_any_texts_and_no_other_is(seed: int) -> None:
    rng = random.Random(seed)

    def text() -> str:
        return "".join(rng.choices(PIECES, k=rng.randrange(6)))

    for _ in range(100):
        row = {
            text(): rng.choice([text(), text(), 7, None, [text()], {text(): text()}])
            for _ in range(rng.randrange(1, 9))
        }
        pairs = [(json.dumps(key, ensure_ascii=rng.random() < 0.5), json.dumps(value)) for key, value in row.items()]
        assert parse_row(("{" + ",".join(map(":".join, pairs)) + "}").encode()) == row
        repeated = rng.choice(list(row))
        pairs.insert(rng.randrange(len(pairs) + 1), (json.dumps(repeated), json.dumps(rng.choice([text(), 1]))))
        line = ("{" + ",".join(map(":".join, pairs)) + "}").encode()
        assert parse_row(line) == Rejection(RejectReason.DUPLICATE_KEY, f"{repeated!r} is there twice")


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b'{"a": NaN}', "malformed_json", "unexpected character, expected a JSON value (character 7)"),
        (b'{"a": Infinity}', "malformed_json", "unexpected character, expected a JSON value (character 7)"),
        (b'{"a": -Infinity}', "malformed_json", "no digit after sign (character 8)"),
        (b'{"a": 1e999}', "malformed_json", "number is infinity when parsed as double (character 7)"),
        (b'{"a": 01}', "malformed_json", "number with leading zero is not allowed (character 7)"),
        (b'{"a": 1,}', "malformed_json", "trailing comma is not allowed (character 8)"),
        (b"{'a': 1}", "malformed_json", "unexpected character, expected a string key (character 2)"),
        (b'{"a": 1} {}', "malformed_json", "unexpected content after document (character 10)"),
        (b'{"a": "x', "malformed_json", "unexpected end of data (character 9)"),
        (b'{"a": "\\x"}', "malformed_json", "invalid escaped sequence in string (character 8)"),
        (b'{"a": "\x01"}', "malformed_json", "unexpected control character in string (character 8)"),
        (b"\0", "malformed_json", "unexpected character, expected a JSON value (character 1)"),
        (b"[]", "malformed_json", "expected an object, found list"),
        (b'{"a": "\xff"}', "invalid_utf8", "byte 8 of the line is not UTF-8"),
        (b'{"a": "\xc0\x80"}', "invalid_utf8", "byte 8 of the line is not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "invalid_utf8", "byte 8 of the line is not UTF-8"),
        (b'{"a": "\xe2\x82', "invalid_utf8", "byte 8 of the line is not UTF-8"),
        (b'{"a": "\\ud800"}', "not_text", "holds half a surrogate pair"),
        (b'{"a": "\\udc00\\ud800"}', "not_text", "holds half a surrogate pair"),
        (b'{"\\ud800": 1}', "not_text", "holds half a surrogate pair"),
    ],
)
def test_what_is_no_row_says_why_and_where(line: bytes, reason: str, detail: str) -> None:
    assert parse_row(line) == Rejection(RejectReason(reason), detail)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"b":', b"}")])
def test_a_row_nested_deeper_than_a_thousand_levels_is_no_row(opening: bytes, closing: bytes) -> None:
    # the row itself is a level too
    deep = [
        parse_row(b'{"a":' + opening * levels + b"1" + closing * levels + b"}") for levels in (900, 1023, 1024, 100_000)
    ]
    assert [isinstance(row, Rejection) for row in deep] == [False, False, True, True]
    assert str(deep[2]).startswith("malformed_json: depth limit exceeded (character ")
