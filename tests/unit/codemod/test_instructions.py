"""Edits in words, and what a reader makes of the words."""

import re

import pytest

from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts
from graftline.codemod.instructions.describe import describe_edit, is_answerable
from graftline.codemod.instructions.operations import Insert, Rename, Replace, Rewrite, apply_operation
from graftline.codemod.instructions.wording import read_instruction, word_operations
from graftline.sandbox.actions.memory import MemorySandbox

SANDBOX = MemorySandbox()
LOOP = "def total(rows):\n    result = 0\n    for row in rows:\n        result += row.price\n    return result\n"


def word(operation: object, before: str, language: Language = "python", seed: str = "a") -> list[str]:
    wordings = word_operations([operation], [operation], before, language, seed)  # type: ignore[list-item]
    assert wordings is not None
    return [wording.text for wording in wordings]


EDITS: dict[str, tuple[Language, str, str]] = {
    "a name in several places": ("python", LOOP, LOOP.replace("result", "amount")),
    "a keyword": ("javascript", "var a = 1;\nvar b = 2;\n", "const a = 1;\nconst b = 2;\n"),
    "a call in several places": (
        "python",
        "def test(self):\n    self.assertEquals(f(1), 2)\n    self.assertEquals(g(3), 4)\n",
        "def test(self):\n    self.assertEqual(f(1), 2)\n    self.assertEqual(g(3), 4)\n",
    ),
    "arguments that trade places": (
        "java",
        "void t() {\n  assertSame(a, b);\n  assertSame(c.d(), e);\n}\n",
        "void t() {\n  assertThat(b).isSameAs(a);\n  assertThat(e).isSameAs(c.d());\n}\n",
    ),
    "a line in a block": ("python", LOOP, LOOP.replace("    for", "    log(rows)\n    for")),
    "a line at the start of a block": (
        "python",
        LOOP,
        LOOP.replace(":\n        result", ":\n        check(row)\n        result"),
    ),
    "a block around lines": (
        "python",
        "def f(a):\n    x = 1\n    return g(a)\n",
        "def f(a):\n    x = 1\n    with lock:\n        return g(a)\n",
    ),
    "a block that goes": ("python", "if a:\n    b()\nc()\n", "c()\n"),
    "one of two lines that are alike": ("python", "f(a)\ng()\nf(a)\nh()\n", "f(a)\ng()\nf(b)\nh()\n"),
    "a line after one of two that are alike": ("python", "f(a)\ng()\nf(a)\nh()\n", "f(a)\ng()\nf(a)\nk()\nh()\n"),
    "a template string": ("javascript", "const a = b + 1;\n", "const a = `${b}1`;\n"),
    "several changes": (
        "javascript",
        "function f(x) {\n  const y = g(x);\n  return y;\n}\n",
        "function f(x, z) {\n  const y = h(x);\n  log(y);\n  return y;\n}\n",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_asked_for_in_words_from_which_it_can_be_done(name: str) -> None:
    language, before, after = EDITS[name]
    wordings = describe_edit(before, after, language, "seed", SANDBOX)
    assert [wording.detail for wording in wordings] == ["full", "lazy"]
    for wording in wordings:
        result = read_instruction(wording.text, before, language, SANDBOX)
        assert result is not None
        assert compare_texts(result, after, language).is_verified


@pytest.mark.parametrize("name", EDITS)
def test_words_are_of_the_two_texts_and_of_what_is_asked_and_the_same_for_a_seed(name: str) -> None:
    language, before, after = EDITS[name]
    wordings = describe_edit(before, after, language, "seed", SANDBOX)
    assert wordings == describe_edit(before, after, language, "seed", SANDBOX)
    texts = {tuple(describe_edit(before, after, language, str(seed), SANDBOX)) for seed in range(8)}
    assert len(texts) > 1
    for wording in wordings:
        code = " ".join(re.findall(r"```\w*\n(.*?)\n```|`([^`]+)`", wording.text, re.S)[0])
        assert {*re.findall(r"\w+", code)} <= {*re.findall(r"\w+", before + after), *"xyzabc"}


@pytest.mark.parametrize(
    ("operation", "texts"),
    [
        (Rename("result", "amount"), ["Change the name `result` to `amount` wherever it is used.", "Rename `result` to `amount`."]),
        (
            Rewrite("f($A, $$$B)", "g($$$B)"),
            ["Rewrite `f(x, …)` as `g(…)` everywhere, whatever x is.", "Turn `f(x, …)` into `g(…)`, whatever x is."],
        ),
        (Replace("x", "y"), ["Replace `x` with `y`.", "Use `y` instead of `x`."]),
        (Replace("x", "y", 2), ["Replace the second `x` with `y`.", "Use `y` instead of the second `x`."]),
        (Replace("x", ""), ["Remove `x`.", "Get rid of `x`."]),
        (Insert("y()", "x()", "after"), ["Add `y()` below `x()`.", "Add `y()` after `x()`."]),
        (Insert("y()\nz()", "x()", "before"), ["Before `x()`, add\n```python\ny()\nz()\n```", "Add\n```python\ny()\nz()\n```\nbefore `x()`."]),
    ],
)  # fmt: skip
def test_each_operation_has_its_sentences(operation: object, texts: list[str]) -> None:
    of_seeds = [word(operation, "", seed=str(seed)) for seed in range(40)]
    for text, worded in zip(texts, zip(*of_seeds, strict=True), strict=True):
        assert text in worded
        # paraphrases, all of which are read alike
        assert len({*worded}) > 1 or len(texts) == 2
        assert {read_instruction(other, "x()\nx\nf(a, b)\nresult\n", "python", SANDBOX) for other in worded} == {
            apply_operation(operation, "x()\nx\nf(a, b)\nresult\n", "python", SANDBOX)  # type: ignore[arg-type]
        }


def test_blank_lines_of_the_code_stay_in_what_is_quoted() -> None:
    before = "import a\n\n\ndef f():\n    g()\n\n    h()\n"
    after = "import a\n\n\ndef f():\n    with lock:\n        g()\n\n        h()\n"
    [text, _] = (wording.text for wording in describe_edit(before, after, "python", "seed", SANDBOX))
    assert [block for block in re.findall(r"```python\n(.*?)\n```", text, re.S) if "h()" in block] == [
        "g()\n\nh()",
        "with lock:\n    g()\n\n    h()",
    ]
    assert read_instruction(text, before, "python", SANDBOX) == after


def test_a_place_is_told_by_a_line_that_says_something() -> None:
    before = "function f() {\n  if (a) {\n    b();\n  }\n  if (c) {\n    d();\n  }\n}\n"
    after = before.replace("d();\n  }\n", "d();\n  }\n  g();\n")
    [text, _] = (wording.text for wording in describe_edit(before, after, "javascript", "seed", SANDBOX))
    assert "d();" in text


def test_code_that_cannot_be_quoted_is_not_asked_for() -> None:
    assert word_operations([Replace("x", "```")], [Replace("x", "y")], "x", "python", "") is None


@pytest.mark.parametrize(
    "sentence",
    [
        "Write {new}, not {old}.",
        "Write {new} rather than {old}",
        "use {new} instead of {old} everywhere",
        "Use {new}, not {old}.",
        "Prefer {new} over {old}.",
        "prefer {new} to {old}",
        "Replace {old} by {new}.",
    ],
)
def test_what_is_to_be_written_for_what_is_read_in_the_words_of_many(sentence: str) -> None:
    text = sentence.format(new="`str | None`", old="`t.Optional[str]`")
    read = read_instruction(text, "x: t.Optional[str] = t.Optional[int]\n", "python", MemorySandbox())
    assert read == "x: str | None = t.Optional[int]\n"


@pytest.mark.parametrize(
    "text",
    [
        "Make it faster.",
        "Replace `nothing` with `something`.",
        "Replace `result` by magic.",
        "After the tenth `result = 0`, add `x`.",
        "1. Rename `result` to `amount`.\n2. Then see.",
        "Rewrite `f(` as `g(`, whatever x is.",
        "Remove \0007\0.",
        "",
    ],
)
def test_what_is_no_instruction_of_ours_or_about_other_code_is_not_followed(text: str) -> None:
    assert read_instruction(text, LOOP, "python", SANDBOX) is None
    assert not is_answerable(text, LOOP, LOOP.replace("result", "amount"), "python", SANDBOX)


def test_an_instruction_that_leads_elsewhere_does_not_answer() -> None:
    assert is_answerable("Rename `result` to `sum`.", LOOP, LOOP.replace("result", "sum"), "python", SANDBOX)
    assert not is_answerable("Rename `result` to `sum`.", LOOP, LOOP.replace("result", "amount"), "python", SANDBOX)


def test_an_edit_that_takes_more_words_than_a_request_has_gets_none() -> None:
    after = LOOP.replace("    return", "".join(f"    step_{number}(rows)\n" for number in range(200)) + "    return")
    assert describe_edit(LOOP, after, "python", "seed", SANDBOX) == []


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        (Insert("y()", "for row in rows:", "after"), "    for row in rows:\n        y()\n"),
        (Insert("y()\nif a:\n    z()", "for row in rows:", "before"), "    y()\n    if a:\n        z()\n    for row"),
        (Replace("for row in rows:\n    result += row.price", "y()"), "    result = 0\n    y()\n    return result\n"),
        (Replace("for row in rows:\n  result += row.price", "y()"), None),
        (Replace("result", "y", 3), "    return y\n"),
    ],
)  # fmt: skip
def test_lines_are_found_by_what_they_say_and_take_the_indentation_of_the_place(
    operation: Insert | Replace, changed: str | None
) -> None:
    result = apply_operation(operation, LOOP, "python", SANDBOX)
    assert result is None if changed is None else result is not None and changed in result
