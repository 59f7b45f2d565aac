"""What the text of tests tells of whether they can run apart from the code, and values on the way between the two."""

import os
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import pytest

from graftline.sandbox.inside import frames
from graftline.sandbox.inside.remote_values import CodeEndedError, Link, LinkError, decode, encode
from graftline.sandbox.jail.judge import cause_against_apart, modules_of


def test_modules_of_the_code_are_those_at_its_top_that_nobody_else_has() -> None:
    files = ["m.py", "shop/core.py", "json.py", "pluggy/__init__.py", "data/a.txt", "helpers.py", "not a name.py"]
    assert modules_of(files, ["helpers.py", "tests/test_m.py"]) == ("m", "shop")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import m\ndef test_a(tmp_path, monkeypatch):\n    monkeypatch.setattr(m, 'x', 1)", ""),
        ("from unittest import mock\ndef test_a():\n    with mock.patch('m.x'), mock.patch.object(o, 'x'):\n        pass", ""),
        ("class A:\n    pass\ndef test_a(monkeypatch):\n    monkeypatch.setattr(A, 'x', 1)", ""),
        ("def test_a(caplog):\n    pass", "log records of the code"),
        ("import pytest\ndef test_a():\n    with pytest.warns(UserWarning):\n        pass", "warnings of the code"),
        ("import time\ndef test_a(monkeypatch):\n    monkeypatch.setattr(time, 'time', int)", "a replacement in 'time' that"),
        ("import os.path\ndef test_a(monkeypatch):\n    monkeypatch.setattr(os.path, 'x', 1)", "a replacement in 'os' that"),
        ("@mock.patch('requests.get')\ndef test_a(get):\n    pass", "a replacement in 'requests' that"),
        ("from m import *\ndef test_a():\n    pass", "`import *`, by which the code could replace names"),
        ("not python", ""),
    ],
)  # fmt: skip
def test_what_tests_do_to_their_own_process_is_found_in_their_text(text: str, cause: str) -> None:
    reason = cause_against_apart({"test_a.py": text, "data.txt": "def test_a(caplog): pass"}, ["m"])
    assert reason.removeprefix("test_a.py: needs ").startswith(cause)
    assert bool(reason) == bool(cause)


def refuse(tree: Any) -> Any:
    raise ValueError(tree)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(1 << 70), 1.5, float("-inf"), 2j, "a", "é\ud800", b"\xff", bytearray(b"a"), [], (), ((1,),)),
        *({1: {"a": [None]}}, {(1, 2): {3}}, frozenset({1}), range(1, 9, 2), slice(1, None), ..., NotImplemented),
        *(
            Decimal("-0.10"),
            Fraction(1, 3),
            date(2024, 2, 29),
            datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
            timedelta(1, 2, 3),
        ),
        *(PurePosixPath("a/b"), OrderedDict(b=1, a=2), Counter("aab"), deque([1, 2], 5)),
    ],
    ids=repr,
)
def test_plain_values_arrive_as_they_are(value: Any) -> None:
    arrived = decode(encode(value, refuse), refuse)
    assert (arrived, type(arrived)) == (value, type(value))


def test_a_dictionary_with_defaults_arrives_as_one_without() -> None:
    assert decode(encode(defaultdict(list, {1: [2]}), refuse), refuse) == {1: [2]}


@pytest.mark.parametrize(
    "tree",
    [
        *(1.5, {}, {"is": "exec", "of": []}, {"is": "Decimal", "of": ["x"]}, {"is": "set", "of": [[[]]]}, {"int": "g"}),
        *({"dict": [[1]]}, {"dict": [[[], 1]]}, {"single": "exit"}, {"view": "copy", "of": []}, {"float": 1}, {"bytes": "0"}),
        *({"is": "range", "of": [1, 2, 0]}, {"is": "deque", "of": [1]}, {"known": ["os", "system"]}),
    ],
    ids=repr,
)  # fmt: skip
def test_what_says_no_value_is_refused(tree: Any) -> None:
    with pytest.raises(LinkError):
        decode(tree, refuse)


def ask(sent: bytes) -> Any:
    """Return what a link makes of `sent`, when it asks its first question."""
    (reader, answers), (questions, writer) = os.pipe(), os.pipe()
    try:
        feeder = threading.Thread(target=lambda: (frames.write(answers, sent), os.close(answers)))
        feeder.start()
        answer = Link(reader, writer, lambda question: {"value": question["x"]}).ask({"do": "x"})
        feeder.join()
        return answer
    finally:
        for descriptor in (reader, questions, writer):
            os.close(descriptor)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (frames.add_length(b'{"answer": 2, "value": 3}'), "an answer to another question"),
        (frames.add_length(b'{"answer": "1"}'), "an answer to another question"),
        (frames.add_length(b"{}"), "an answer to another question"),
        (frames.add_length(b"[]"), "a message of no valid form"),
        (frames.add_length(b"[" * 100_000), "a message that is no JSON"),
        (frames.add_length(b'{"answer": 1, "value": ' + b"9" * 5000 + b"}"), "a message that is no JSON"),
        (b"\xff\xff\xff\xff{", "a message of 4294967295 bytes"),
    ],
)
def test_an_answer_that_is_none_ends_the_link(sent: bytes, error: str) -> None:
    with pytest.raises(LinkError, match=error):
        ask(sent)


@pytest.mark.parametrize("sent", [b"", b"\0", b'\0\0\0\x10{"answer"'])
def test_half_an_answer_says_that_the_code_has_ended(sent: bytes) -> None:
    with pytest.raises(CodeEndedError):
        ask(sent)


def test_who_waits_for_an_answer_serves_meanwhile() -> None:
    sent = frames.add_length(b'{"ask": 1, "x": 5}') + frames.add_length(b'{"answer": 1, "value": 3}')
    assert ask(sent)["value"] == 3
