"""What every edit has to be, whatever dataset it is from: text, license, a change, length, syntax."""

from collections.abc import Callable
from typing import Any

import pytest

from graftline.astgrep.binding import Language
from graftline.datasets.catalog import Cleaning
from graftline.datasets.edit import Edit, Label, Rejection, RejectReason, RowResult
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.readers.base import Source
from tests.unit.datasets.fixtures import dataset, source_that_makes

MakeEdit = Callable[..., Edit]
ALLOWED = "MIT, BSD-2-Clause, BSD-3-Clause, Apache-2.0, ISC"
UNCHANGED = Rejection(RejectReason.UNCHANGED, "pre and post differ in nothing, or in blanks only")


def ingested(*outcomes: RowResult, **cleaning: Any) -> list[CleanEdit | Label | Rejection]:
    """Return what is made of a row that its dataset makes `outcomes` of."""
    source = source_that_makes(*outcomes)
    return Ingest("demo", dataset("release_pairs"), source, Cleaning(**cleaning)).outcomes([{}])[0]


def judge(outcome: RowResult, **cleaning: Any) -> CleanEdit | Label | Rejection:
    [result] = ingested(outcome, **cleaning)
    return result


def label(**changes: Any) -> Label:
    values = {
        "label": "Long Method",
        "holds": True,
        "instruction": "Shorten it.",
        "pre": "int f() {}",
        "language": "java",
        "id": "demo:1",
        "dataset": "demo",
        "license": "MIT",
        "group": "demo/demo",
        "origin": "A.java",
    }
    return Label(**{**values, **changes})


def test_a_clean_edit_comes_with_what_was_found_out(edit: MakeEdit) -> None:
    whole = edit("f", pre="def f(x):\n    return Old(x)\n", post="def f(x):\n\treturn new(x)\n")
    # 28 and 25 characters, of which four are a token
    assert judge(whole) == CleanEdit(whole, b"deff(x):returnOld(x)", b"deff(x):returnnew(x)", 7, 7)


def test_outcomes_of_a_row_are_judged_one_by_one_and_keep_their_order(edit: MakeEdit) -> None:
    drop = Rejection(RejectReason.BAD_PATCH, "as its dataset says")
    result = ingested(edit("a"), drop, label(), edit("b", license="GPL-2.0-only"), edit("c"))
    assert [type(outcome).__name__ for outcome in result] == [
        "CleanEdit",
        "Rejection",
        "Label",
        "Rejection",
        "CleanEdit",
    ]
    assert (result[1], result[2]) == (drop, label())


def test_a_row_that_was_never_read_stays_the_drop_it_is() -> None:
    drop = Rejection(RejectReason.LINE_TOO_LONG, "more than 100 bytes")
    assert Ingest("demo", dataset("release_pairs"), source_that_makes(label()), Cleaning()).outcomes([drop]) == [[drop]]


def test_every_fault_of_an_edit_is_the_reason_once_those_before_it_are_mended(edit: MakeEdit) -> None:
    faulty = {"pre": "def f(:\0" + "x" * 8000, "license": "GPL-3.0-only"}
    faulty["post"] = faulty["pre"] + " "
    mended = [
        {},
        {"pre": faulty["pre"].replace("\0", ""), "post": faulty["post"].replace("\0", "")},
        {"license": "MIT"},
        {"post": "def f(:"},
        {"pre": "def f(:\n"},
        {"pre": "def f(): pass\n"},
        {"post": "def f(): return\n"},
    ]
    reasons = []
    for change in mended:
        faulty |= change
        result = judge(edit("f", **faulty))
        reasons.append(result.reason if isinstance(result, Rejection) else "")
    assert reasons == ["not_text", "license", "unchanged", "too_long", "unchanged", "unparsable", ""]


@pytest.mark.parametrize("field", ["instruction", "pre", "post"])
def test_a_nul_character_anywhere_is_no_text(edit: MakeEdit, field: str) -> None:
    assert judge(edit("a", **{field: "x = '\0'\n"})) == Rejection(RejectReason.NOT_TEXT, "holds a NUL character")


@pytest.mark.parametrize(
    ("license", "is_allowed"),
    [
        ("MIT", True),
        ("ISC", True),
        ("mit", False),
        ("NOASSERTION", False),
        ("AGPL-3.0-only", False),
        ("MIT OR GPL-2.0-only", False),
    ],
)
def test_only_licenses_of_the_allow_list_are_let_in(edit: MakeEdit, license: str, is_allowed: bool) -> None:
    drop = Rejection(RejectReason.LICENSE, f"{license!r} is not allowed; allowed: {ALLOWED}")
    assert (judge(edit("a", license=license)) == drop, judge(label(license=license)) == drop) == (not is_allowed,) * 2


def test_the_allow_list_is_that_of_the_configuration(edit: MakeEdit) -> None:
    result = judge(edit("a", license="MIT"), licenses=("0BSD", "Zlib"))
    assert result == Rejection(RejectReason.LICENSE, "'MIT' is not allowed; allowed: 0BSD, Zlib")


@pytest.mark.parametrize(
    ("language", "pre", "post"),
    [
        pytest.param("python", "a = 1\n", "a = 1\n", id="nothing"),
        pytest.param("python", "a = 1\n", "\n\na = 1   \n\n\n", id="python: ends of lines, empty lines"),
        pytest.param("python", "if a:\n    f(a,b)\n", "if a:\r\n    f( a, b )\r\n", id="python: between words, CRLF"),
        pytest.param("javascript", "f(a);\n", "  f( a ) ;", id="javascript: between words"),
        pytest.param("javascript", "f(a);", "f(\n\ta\n);", id="javascript: lines"),
        pytest.param("java", "int f() { return a; }", "int f()\n{\n    return a;\n}", id="java: braces"),
        pytest.param("typescript", "let a: A;", "let a : A;", id="typescript"),
        pytest.param("tsx", "let a = <p/>;", "let a = <p />;", id="tsx"),
        pytest.param("java", "int a;", "int a;\x0b\x0c", id="rare blanks"),
    ],
)
def test_a_change_of_blanks_alone_is_none(edit: MakeEdit, language: Language, pre: str, post: str) -> None:
    assert [judge(edit("a", language=language, pre=a, post=b)) for a, b in ((pre, post), (post, pre))] == [
        UNCHANGED
    ] * 2


@pytest.mark.parametrize(
    ("language", "pre", "post"),
    [
        pytest.param("python", "if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n", id="what belongs to a block"),
        pytest.param("python", "if a:\n    b()\n", "if a:\n\tb()\n", id="tabs for blanks"),
        pytest.param("javascript", "a();", "A();", id="case"),
        pytest.param("javascript", "a();", "a()", id="a semicolon"),
        pytest.param("java", "int a;", "int a; // why", id="a comment"),
    ],
)
def test_a_change_of_more_than_blanks_is_one(edit: MakeEdit, language: Language, pre: str, post: str) -> None:
    for before, after in ((pre, post), (post, pre)):
        assert isinstance(judge(edit("a", language=language, pre=before, post=after)), CleanEdit)


# 26 characters: total, ` +=`, ` price`, ` *`, ` quantity` and the line feed
LINE = "total += price * quantity\n"


@pytest.mark.filterwarnings("ignore:open_binary is deprecated")  # by bpe-openai, when it loads its vocabularies
@pytest.mark.parametrize(
    ("tokenizer", "tokens"),
    # 40 lines of 26 characters, 4 a token, or of 6 tokens
    [("characters/4", 260), ("o200k_base", 240), ("cl100k_base", 240)],
)
def test_the_length_of_an_edit_is_counted_by_the_tokenizer_of_the_configuration(
    edit: MakeEdit, tokenizer: str, tokens: int
) -> None:
    long = edit("a", pre=LINE * 40, post=LINE * 80)
    result = judge(long, tokenizer=tokenizer, max_pre_tokens=tokens)
    assert isinstance(result, CleanEdit)
    assert (result.pre_tokens, result.post_tokens) == (tokens, 2 * tokens)
    assert judge(long, tokenizer=tokenizer, max_pre_tokens=tokens - 1) == Rejection(
        RejectReason.TOO_LONG, f"pre has {tokens} tokens by {tokenizer}, more than {tokens - 1}"
    )


@pytest.mark.parametrize("field", ["pre", "post"])
def test_both_sides_must_parse_where_that_is_checked(edit: MakeEdit, field: str) -> None:
    broken = edit("a", **{field: "def f(:\n"})
    assert judge(broken) == Rejection(RejectReason.UNPARSABLE, "one side is not valid python")
    assert isinstance(judge(broken, check_syntax=False), CleanEdit)


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"instruction": ""}, "bad_field", "instruction_source: is human, but the instruction is empty"),
        ({"group": ""}, "bad_field", "group: String should have at least 1 character"),
        # a table or a document may hold what no line of JSON can
        ({"pre": "\ud800"}, "not_text", "pre: holds half a surrogate pair"),
        ({"origin": "\udfff"}, "not_text", "origin: holds half a surrogate pair"),
    ],
)
def test_a_row_that_its_dataset_takes_and_an_edit_does_not_is_a_drop(
    edit: MakeEdit, changes: dict[str, Any], reason: str, detail: str
) -> None:
    source = Source(rows=lambda *_: iter(()), parse=dict, convert=lambda row, *_: [edit("a", **row)])
    ingest = Ingest("demo", dataset("release_pairs"), source, Cleaning())
    assert ingest.outcomes([changes]) == [[Rejection(RejectReason(reason), detail)]]


@pytest.mark.parametrize("field", ["instruction", "pre", "post"])
def test_a_nul_character_in_a_label_is_no_text(field: str) -> None:
    assert judge(label(**{field: "a\0"})) == Rejection(RejectReason.NOT_TEXT, "holds a NUL character")


def test_a_label_may_be_long_and_need_not_parse() -> None:
    long = label(pre="class {" + "x" * 100_000)
    assert judge(long) == long
