"""The template families: each says and does what it should, in code made for it."""

import random
from collections import Counter
from pathlib import Path

import pytest

from graftline.astgrep.binding import Language, parse
from graftline.core import hashing
from graftline.core.hashing import sha256_text
from graftline.datasets.synthetic import instructions
from graftline.datasets.synthetic.apply import ActionSequence, apply_sequences
from graftline.datasets.synthetic.candidates import CandidateFinder, Names, inverse_of
from graftline.datasets.synthetic.families import FAMILIES, HELD_OUT, OF_FAMILY
from graftline.datasets.synthetic.instructions import load_instructions
from graftline.datasets.synthetic.sites import sites_in, words_of
from graftline.sandbox.actions.memory import MemorySandbox
from tests.pages import CHECKOUT, codes, table

NAMES = {family.id: family for family in FAMILIES}


def made(family: str, language: Language, text: str) -> tuple[str | None, bool | None]:
    """Return what `family` makes of `text`, without other code to take names from, and whether its inverse undoes it."""
    tree = parse(text, language)
    sites = sites_in(tree)
    filling = CandidateFinder([NAMES[family]], language, Names([]))
    candidate = next(
        iter(filling.candidates(text, [word for _, word in words_of(tree)], sites, random.Random(0))), None
    )
    if candidate is None:
        return None, None
    sandbox = MemorySandbox()
    [there] = apply_sequences([ActionSequence(text, candidate.actions)], language, sandbox)
    inverse = inverse_of(candidate, random.Random(0))
    if there is None or inverse is None:
        return there and there.post, None
    [back] = apply_sequences([ActionSequence(there.post, inverse.actions)], language, sandbox)
    return there.post, back is not None and back.post == text


def test_there_are_many_families_with_names_of_their_own_and_most_have_an_inverse() -> None:
    names = [family.id for family in FAMILIES] + [family.inverse for family in FAMILIES if family.inverse]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert len(FAMILIES) >= 100
    assert sum(bool(family.inverse) for family in FAMILIES) >= 80


@pytest.mark.parametrize("language", ["python", "javascript", "typescript", "tsx", "java"])
def test_every_language_has_families_of_every_kind(language: Language) -> None:
    kinds = {family.kind for family in FAMILIES if family.form(language)}
    everywhere = {"rename", "wrap", "argument", "call", "place", "statement", "operator", "literal", "idiom", "import"}
    assert everywhere - kinds == set()
    assert len([family for family in FAMILIES if family.form(language)]) >= 50


def test_a_fifth_is_held_out_and_at_least_one_of_each_kind() -> None:
    held_out = [family for family in FAMILIES if family.id in HELD_OUT]
    assert len(held_out) == len(HELD_OUT)
    assert {family.kind for family in held_out} == {family.kind for family in FAMILIES}
    assert 0.15 <= len(held_out) / len(FAMILIES) <= 0.25


def test_every_template_can_be_asked_for_in_three_ways_or_more() -> None:
    assert {*load_instructions()} == {*OF_FAMILY}
    assert [name for name, sentences in load_instructions().items() if len({*sentences}) < 3] == []


def test_every_sentence_is_one_and_quotes_no_variable() -> None:
    sentences = [sentence for sentences in load_instructions().values() for sentence in sentences]
    assert [text for text in sentences if "$" in text or not text.endswith(".") or text.count("`") % 2] == []


def test_the_sentences_decide_the_code_version() -> None:
    module = Path(instructions.__file__)
    content = module.read_text("utf-8") + module.with_suffix(".yaml").read_text("utf-8")
    assert hashing._source(instructions.__name__)[0] == sha256_text(content)


def test_the_documented_families_are_the_real_ones() -> None:
    text = (CHECKOUT / "docs" / "synthetic.md").read_text("utf-8")
    rows = table(text[text.index("## Families") :])
    documented = [(codes(row[0])[0], row[1], codes(row[2]), codes(row[3]), row[4]) for row in rows]
    real = [
        (
            family.id,
            family.kind,
            [language for form in family.forms for language in form.languages if language != "tsx"],
            [family.inverse] if family.inverse else [],
            "yes" if family.id in HELD_OUT else "no",
        )
        for family in FAMILIES
    ]
    assert documented == real


@pytest.mark.parametrize(
    ("family", "language", "before", "after"),
    [
        ("rename_method_of_receiver", "python", "a.f(1)\nx().f(2)\n", "a.f_v2(1)\nx().f(2)\n"),
        ("rename_attribute", "python", "a.size\na.size()\n", "a.size_v2\na.size()\n"),
        ("rename_keyword", "python", "f(key=1)\nkey = 2\n", "f(key_v2=1)\nkey = 2\n"),
        ("rename_called_with_two", "python", "f(1, 2)\nf(1)\n", "f_v2(1, 2)\nf(1)\n"),
        ("rename_with_keyword", "python", "f(a, key=1)\nf(a)\n", "key_v2(a, key=1)\nf(a)\n"),
        ("rename_function_in_return", "python", "def g():\n    f()\n    return f()\n", None),
        ("replace_number", "python", "a = 10\nb = 10.5\n", "a = 20\nb = 10.5\n"),
        ("replace_string", "java", 'f("ab", "ab!");', 'f("ab2", "ab!");'),
        ("positional_to_keyword", "python", "f(1, 2)\n", "f(1, f_v2=2)\n"),
        ("return_early", "python", "def f(a):\n    g(a)\n", "def f(a):\n    if a is None:\n        return None\n    g(a)\n"),
        ("refuse_null", "java", "void f(A a) { g(a); }", None),
        ("invert_if", "javascript", "if (a) { b(); } else { c(); }\n", "if (!(a)) { c(); } else { b(); }\n"),
        ("invert_if", "java", "void f() { if (a) { b(); } else { c(); } }", "void f() { if (!(a)) { c(); } else { b(); } }"),
        ("less_to_greater", "java", "void f() { g(a < b); }", "void f() { g(b > a); }"),
        ("guard_call", "javascript", "a.f(1);\n", "if (a) {\n  a.f(1);\n}\n"),
        ("optional_to_union", "python", "x: Optional[int] = 1\n", "x: int | None = 1\n"),
        ("array_shorthand", "typescript", "let x: Array<string>;\n", "let x: string[];\n"),
        ("type_assertion", "typescript", "let x: A = <A>y;\n", "let x: A = y as A;\n"),
        ("unknown_for_any", "typescript", "let x: any;\n", "let x: unknown;\n"),
        ("diamond", "java", "void f() { g(new List<A>()); }", "void f() { g(new List<>()); }"),
        ("add_decorator", "python", "def f(a):\n    g()\n", "@f_v2\ndef f(a):\n    g()\n"),
        ("rename_decorator", "typescript", "class A { @In(1) f() {} }\n", "class A { @InV2(1) f() {} }\n"),
        ("export_function", "javascript", "function f() {}\n", "export function f() {}\n"),
        ("flip_flag", "python", "f(a, deep=True)\n", "f(a, deep=False)\n"),
        ("flip_flag", "javascript", "f({ deep: true });\n", "f({ deep: false });\n"),
        ("rename_class", "javascript", "new Ab(ab, Ab.c);\n", "new AbV2(ab, AbV2.c);\n"),
        ("rename_variable", "javascript", "let ab = 1; f({ ab });\n", None),
        ("replace_module", "python", "import os\n\nos.remove(a)\n", "import os2\n\nos2.remove(a)\n"),
        ("replace_imported", "javascript", "import { ab } from \"m\"\nab(1)\n", "import { ab_v2 } from \"m2\"\nab_v2(1)\n"),
        ("replace_required", "javascript", "const ab = require('m')\nab(1)\n", "const ab_v2 = require('m2')\nab_v2(1)\n"),
        ("replace_imported_class", "java", "import a.B;\nclass C { B b; }\n", "import a2.BV2;\nclass C { BV2 b; }\n"),
        ("null_check_with_import", "java", "import a.B;\nclass C { boolean b = c == null; }\n",
         "import a.B;\nimport java.util.Objects;\nclass C { boolean b = Objects.isNull(c); }\n"),
        ("call_through_path", "python", "import os\n\nopen(a)\n", "import os\nfrom pathlib import Path\n\nPath(a).open()\n"),
    ],
)  # fmt: skip
def test_a_family_changes_what_it_says_and_its_inverse_undoes_it(
    family: str, language: Language, before: str, after: str | None
) -> None:
    post, is_undone = made(family, language, before)
    if after is not None:
        assert post == after
    # a family without an inverse has None for it
    assert is_undone == (True if NAMES[family].inverse else None)
