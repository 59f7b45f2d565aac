"""Evaluation texts in edits: found however they are dressed, and nothing else taken for them."""

import gzip
import json
import random
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.core.parquet import write_parquet
from graftline.datasets.decontaminate import (
    LEAST_SHINGLES,
    WIDTH,
    Evaluations,
    evaluation_files,
    evaluations,
    texts_in,
)
from graftline.datasets.fingerprints import strip_whitespace

EXAM = "\n".join(
    f"def answer_{name}(values):\n    total = sum({name} for {name} in values)\n    return total / len(values)"
    for name in ("weight", "height", "price", "distance")
)
BOILERPLATE = (
    '#!/usr/bin/env python\nimport os\nimport sys\n\n\nif __name__ == "__main__":\n    sys.exit(main(sys.argv))\n'
)


def code(seed: int, lines: int = 40) -> str:
    """Return text that has nothing in common with that of another seed but the way it looks."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(60)]
    return "\n".join(f"    {rng.choice(words)} = {rng.choice(words)}({rng.choice(words)})" for _ in range(lines))


@pytest.fixture
def exams() -> Evaluations:
    return evaluations([("exam.jsonl:1", EXAM), ("exam.jsonl:2", code(1)), ("exam.jsonl:3", code(2))])


def nearest(exams: Evaluations, *texts: str, least: float = 0.5) -> list[tuple[float, str] | None]:
    return exams.nearest([strip_whitespace(text).lower() for text in texts], least)


def cut(text: str, share: float) -> str:
    """Return as much of the start of `text` as holds the share of its whole shingles."""
    folded = strip_whitespace(text).decode()
    return folded[: int(len(folded) * share)]


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(EXAM, id="as it is"),
        pytest.param(EXAM.replace("    ", "\t\t"), id="in other blanks"),
        pytest.param("".join(EXAM.split()), id="in no blanks"),
        pytest.param(EXAM.upper(), id="in other case"),
        pytest.param("\n".join(f"        {line}" for line in EXAM.split("\n")), id="deeper in"),
        pytest.param(code(7) + "\n" + EXAM + "\n" + code(8), id="in the middle of other code"),
        pytest.param(code(7, 4000) + EXAM, id="at the end of much other code"),
        pytest.param(EXAM.replace("\n", "\r\n"), id="with carriage returns"),
        pytest.param(EXAM * 3, id="three times"),
    ],
)
def test_an_evaluation_text_is_found_however_it_is_dressed(exams: Evaluations, planted: str) -> None:
    [matches] = nearest(exams, planted)
    assert matches is not None
    # where it ends, its last shingles run into what follows instead of nothing
    whole = len(runs(EXAM))
    assert (matches[1], matches[0] >= (whole - WIDTH + 1) / whole) == ("exam.jsonl:1", True)


@pytest.mark.parametrize("least", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("change", [-0.15, 0.15])
def test_an_evaluation_text_is_found_from_the_share_of_the_configuration_on(least: float, change: float) -> None:
    exams = evaluations([("exam", code(1))])
    # a large edit that holds so much of the text
    edit = code(9, 200) + cut(code(1), least + change)
    [matches] = nearest(exams, edit, least=least)
    assert (matches is not None) == (change > 0)


def test_the_share_is_that_of_a_slow_reference(exams: Evaluations) -> None:
    texts = [EXAM, code(1), code(2)]
    for seed in range(20):
        rng = random.Random(seed)
        edit = "".join(
            strip_whitespace(text).decode()[: rng.randrange(50, 900)] for text in rng.sample(texts, 2)
        ) + code(seed + 50, 3)
        own = runs(edit)
        shares = [len(own & runs(text)) / min(len(own), len(runs(text))) for text in texts]
        best = max(shares)
        assert nearest(exams, edit, least=0.01) == [(best, f"exam.jsonl:{shares.index(best) + 1}")]


def runs(text: str) -> set[bytes]:
    folded = strip_whitespace(text).lower()
    return {folded[at : at + WIDTH].ljust(WIDTH, b"\0") for at in range(len(folded))}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(code(5), id="other code"),
        pytest.param(BOILERPLATE, id="boilerplate"),
        pytest.param(EXAM[: LEAST_SHINGLES // 2], id="a line of an evaluation"),
        pytest.param(code(6, 400) + EXAM.split("\n")[0], id="a line of an evaluation in other code"),
        pytest.param("", id="nothing"),
        pytest.param("x" * 5000, id="one letter"),
        pytest.param("".join(random.Random(3).sample(EXAM, len(EXAM))), id="the letters of an evaluation"),
    ],
)
def test_what_is_not_near_is_not_found(exams: Evaluations, text: str) -> None:
    assert nearest(exams, text) == [None]


def test_boilerplate_that_an_evaluation_has_too_is_no_leak() -> None:
    exams = evaluations([("exam", BOILERPLATE + EXAM)])
    assert nearest(exams, BOILERPLATE + code(5), BOILERPLATE + code(6)) == [None, None]


def test_texts_are_judged_alone_whatever_stands_beside_them(exams: Evaluations) -> None:
    texts = [code(5), EXAM, "", code(6), EXAM.upper(), "x", code(2)]
    assert nearest(exams, *texts) == [nearest(exams, text)[0] for text in texts]


def test_short_evaluation_texts_are_not_looked_for() -> None:
    long, short = "a" * 20 + "bcdefghijklmnopqrstuvwxyz" * 2, "answer = 42"
    assert evaluations(
        [("one", short), ("two", long[: LEAST_SHINGLES - 1]), ("three", long[:LEAST_SHINGLES])]
    ).names == ("three",)


@pytest.mark.parametrize("texts", [[], [("a", "")], [("a", "short")]])
def test_without_texts_there_is_nothing_to_look_for(texts: list[tuple[str, str]]) -> None:
    empty = evaluations(texts)
    assert (empty.is_empty, nearest(empty, EXAM, "")) == (True, [None, None])


def test_an_evaluation_text_may_hold_nul_characters() -> None:
    exams = evaluations([("exam", EXAM + "\0" + EXAM)])
    assert [matches is not None for matches in nearest(exams, EXAM)] == [True]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["exam.jsonl", "exam.jsonl.gz"])
def test_every_text_of_a_row_is_looked_for_whatever_its_name(tmp_path: Path, name: str) -> None:
    rows = [{"id": 7, "before": "a", "tests": ["b", {"deep": ["c", None, True]}]}, {"after": "d"}]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    path = write(tmp_path / name, gzip.compress(content, mtime=0) if name.endswith("gz") else content)
    assert sorted(texts_in(path)) == [(f"{name}:1", "a"), (f"{name}:1", "b"), (f"{name}:1", "c"), (f"{name}:2", "d")]


def test_rows_of_a_table_are_looked_for(tmp_path: Path) -> None:
    rows = [{"before": "a", "after": None, "number": 1}, {"before": "b", "after": "c", "number": 2}]
    write_parquet(tmp_path / "exam.parquet", rows, {"before": "text", "after": "text?", "number": "whole"})
    assert sorted(texts_in(tmp_path / "exam.parquet")) == [
        ("exam.parquet:1", "a"),
        ("exam.parquet:2", "b"),
        ("exam.parquet:2", "c"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "exam.jsonl",
            b'{"a": "b"}\n{"a": \n',
            "line 2: is not JSON (unexpected end of data: line 1 column 7 (char 6))",
        ),
        ("exam.jsonl", b'{"a": "\xff"}\n', "line 1: is not JSON (str is not valid UTF-8: surrogates not allowed"),
        (
            "exam.jsonl.gz",
            gzip.compress(b'{"a": "b"}\n', mtime=0)[:-4],
            "line 2: truncated_file: the file is damaged from here on (the compressed file ends before its",
        ),
        ("exam.jsonl.gz", b'{"a": "b"}\n', "line 1: truncated_file: the file is damaged from here on (Error -3"),
        ("exam.parquet", b"PAR1", "is not a whole Parquet file ("),
    ],
)
def test_an_evaluation_with_a_hole_is_an_error(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError) as error:
        list(texts_in(path))
    assert str(error.value).startswith(f"{path}: {reason}")
    assert str(error.value).endswith("; an evaluation must be readable as a whole")


def test_evaluation_files_are_found_below_a_folder_that_need_not_be_there(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/c.parquet", "a/b.jsonl.gz", "notes.md", "a.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    matches = [path.relative_to(tmp_path).as_posix() for path in evaluation_files(tmp_path)]
    assert (matches, evaluation_files(tmp_path / "nowhere")) == (["a/b.jsonl.gz", "a/c.parquet", "b.jsonl"], [])
