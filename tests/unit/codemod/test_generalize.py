"""Edits shown in one place, and what becomes of a repository."""

from difflib import SequenceMatcher

import pytest

from graftline.astgrep.action import rule_of
from graftline.codemod.migration.generalize import Question, generalize
from graftline.codemod.migration.units import Demonstration
from graftline.core.errors import DataError
from graftline.sandbox.actions import MemorySandbox

_TEST = "import warnings\nfrom lib import old_name\n\n\ndef f(a):\n    old_name(a)\n    return a.text()\n"
_CASES = {
    "rename": ("m.py", "def f():\n    a = b.broker_link()\n", "def f():\n    a = b.link()\n", {
        "n.py": ("with app.broker_link(1) as x:\n    pass\n", "with app.link(1) as x:\n    pass\n"),
        "o.py": ("broker = link\n", None),
        "vendor/p.py": ("a.broker_link()\n", None),
    }),
    "import-follows": ("m.py", "from typing import Iterator\n\n\ndef f() -> Iterator[str]:\n    pass\n",
        "from typing import Iterator\n\n\ndef f() -> Generator[str, None, None]:\n    pass\n", {
        "n.py": ("from typing import Any, Iterator\n\n\ndef g(a) -> Iterator[Any]:\n    pass\n",
                 "from typing import Any, Generator\n\n\ndef g(a) -> Generator[Any, None, None]:\n    pass\n"),
    }),
    "argument": ("A.java", "class A { String f(String a) {\n\treturn a.toLowerCase();\n} }\n",
        "class A { String f(String a) {\n\treturn a.toLowerCase(Locale.ROOT);\n} }\n", {
        "B.java": ("class B { Object g(Object b) {\n\treturn g(b.name().toLowerCase());\n} }\n",
                   "class B { Object g(Object b) {\n\treturn g(b.name().toLowerCase(Locale.ROOT));\n} }\n"),
        "C.java": ("class C { Object g(Object b) {\n\treturn b.toLowerCase(Locale.US);\n} }\n", None),
    }),
    "keyword-of-another": ("A.java", "class A {\n\tprivate Set<A> a;\n}\n", "class A {\n\tprivate final Set<A> a;\n}\n", {
        "B.java": ("class B {\n\tprivate Set<B> b = g();\n\tprivate static Set<B> c;\n}\n",
                   "class B {\n\tprivate final Set<B> b = g();\n\tprivate static Set<B> c;\n}\n"),
    }),
    "assigned-elsewhere": ("A.java", "class A {\n\tprivate Set<A> a;\n}\n", "class A {\n\tprivate final Set<A> a;\n}\n", {
        "B.java": ("class B {\n\tprivate B b;\n\tprivate B c;\n\tB(B b) {\n\t\tthis.b = b;\n\t\tthis.c = b;\n\t}\n"
                   "\tvoid set(B c) {\n\t\tthis.c = c;\n\t}\n}\n",
                   "class B {\n\tprivate final B b;\n\tprivate B c;\n\tB(B b) {\n\t\tthis.b = b;\n\t\tthis.c = b;\n\t}\n"
                   "\tvoid set(B c) {\n\t\tthis.c = c;\n\t}\n}\n"),
        "C.java": ("class C {\n\tprivate C c;\n}\n", None),
    }),
    "wrapped-once": ("m.py", "for n in tree.traverse(nodes.Text):\n    pass\n",
        "for n in list(tree.traverse(nodes.Text)):\n    pass\n", {
        "n.py": ("x = self.doc.traverse(a, b)\ny = list(doc.traverse(c))\n",
                 "x = list(self.doc.traverse(a, b))\ny = list(doc.traverse(c))\n"),
    }),
    "alias": ("m.py", "import numpy\n\n\ndef f():\n    numpy.sum(a)\n", "import numpy as np\n\n\ndef f():\n    np.sum(a)\n", {
        "n.py": ("import numpy\n\nx = a.numpy.b\nnumpy.zeros(f(numpy=numpy.one))\n",
                 "import numpy as np\n\nx = a.numpy.b\nnp.zeros(f(numpy=np.one))\n"),
    }),
    "alias-of-an-import": ("m.js", "import { a } from 'b'\nf(a)\n", "import { a as c } from 'b'\nf(a)\n", {
        "n.js": ("import { a, x } from 'b'\ng(x.a, { a })\n", "import { a as c, x } from 'b'\ng(x.a, { a: c })\n"),
    }),
    "string-in-a-type": ("m.py", "def f(a: Optional[D]): ...\n", "def f(a: D | None): ...\n", {
        "n.py": ("def f(a: Optional['B']): ...\n", "def f(a: 'B | None'): ...\n"),
        "o.py": ("def f(a: Optional[int]): ...\n", "def f(a: int | None): ...\n"),
    }),
    "string-in-no-type": ("m.py", "x = cast(Optional[int], y)\n", "x = cast(int | None, y)\n", {
        "n.py": ("x = cast(Optional['B'], y)\n", None),
        "o.py": ("z = cast(Optional[C], y)\n", "z = cast(C | None, y)\n"),
    }),
    "within-another": ("m.py", "def f(a: Optional[D]): ...\n", "def f(a: D | None): ...\n", {
        "n.py": ("def f(a: Optional[dict[str, Optional[B]]]): ...\n", "def f(a: dict[str, B | None] | None): ...\n"),
    }),
    "builtin": ("m.py", "from typing import (\n    Any,\n    List,\n)\n\n\ndef f(a: List[str], b: Any): ...\n",
        "from typing import (\n    Any,\n    List,\n)\n\n\ndef f(a: list[str], b: Any): ...\n", {
        "n.py": ("from typing import Any, List\n\nx: Any = cast(List[Any], 1)\n",
                 "from typing import Any\n\nx: Any = cast(list[Any], 1)\n"),
    }),
    "would-not-parse": ("m.py", "def g(old): return old\n", "def g(new): return new\n", {
        "n.py": ("def f(old, new): return old + new\n", None),
    }),
    "own-definition": ("m.py", "def f(text):\n    return cell_len(text.plain)\n", "def f(text):\n    return text.cell_len\n", {
        "n.py": ("class A:\n    def cell_len(self):\n        return cell_len(self.plain)\n\n\nx = cell_len(y.plain)\n",
                 "class A:\n    def cell_len(self):\n        return cell_len(self.plain)\n\n\nx = y.cell_len\n"),
    }),
    "operators": ("m.py", "x = both(a, c)\n", "x = a & c\n", {
        "n.py": ("y = both(k or m, n)\nz = ~both(a, b)\n", "y = (k or m) & n\nz = ~(a & b)\n"),
        "o.py": ("y = f(both(a, b), c)\nz = c & both(a, b)\n", "y = f(a & b, c)\nz = c & a & b\n"),
        "p.py": ("y = both(\n    a or b,\n    c).d\n", "y = ((\n    a or b) & c).d\n"),
    }),
    "operators-of-a-script": ("m.js", "x = both(a, c);\n", "x = a && c;\n", {
        "n.js": ("y = !both(k || m, n);\nz = both(a, b) || c;\n", "y = !((k || m) && n);\nz = a && b || c;\n"),
    }),
    "brackets-that-go": ("m.py", "x = text(c)\n", "x = c.text\n", {
        "n.py": ("y = text(a or b)\nz = text(a.b(c))\n", "y = (a or b).text\nz = a.b(c).text\n"),
    }),
    "swap": ("m.py", "def f():\n    t(foo(), 1)\n", "def f():\n    t(1, foo())\n", {
        "n.py": ("t(foo(0), bar(0))\n", "t(bar(0), foo(0))\n"),
    }),
}  # fmt: skip
_ANSWERED_WITH_YES = (
    "own-definition",
    "operators",
    "operators-of-a-script",
    "brackets-that-go",
    "builtin",
    "within-another",
    "import-follows",
    "alias",
    "alias-of-an-import",
    "string-in-a-type",
    "string-in-no-type",
)


@pytest.mark.parametrize("name", _CASES)
def test_the_rest_of_the_repository_follows_one_edit(name):
    path, before, after, files = _CASES[name]
    texts = {path: after, **{other: text for other, (text, _) in files.items()}}

    def answer(question: Question) -> bool:
        target = files.get(question.path, (None, None))[1]
        new = question.text[: question.start] + question.replacement + question.text[question.end :]
        return (target is not None and new.split("\n")[-2:] == target.split("\n")[-2:]) or name in _ANSWERED_WITH_YES

    proposal = generalize([Demonstration(path, before, after)], texts, MemorySandbox(), answer)
    changed = {other: text for other, text in proposal.texts.items() if other != path}
    assert changed == {other: text for other, (_, text) in files.items() if text is not None}
    assert proposal.questions <= 5
    assert all(rule.places and rule_of(action)["rule"] for rule in proposal.rules for action in rule.actions)


_BESIDE = [
    ("def f():\n    old(1)\n    old(2)\n", "old(1)", "new_one(1)", "def f():\n    new_one(1)\n    new_one(2)\n"),
    ("x = [get(u, 5), get(u, 5)]\n", "get(u, 5)", "list(get(u, 5))", "x = [list(get(u, 5)), list(get(u, 5))]\n"),
]


@pytest.mark.parametrize("answer", [None, lambda _: True])
@pytest.mark.parametrize(("before", "old", "new", "target"), _BESIDE)
def test_an_equal_place_beside_the_edit_follows(before, old, new, target, answer):
    shown = Demonstration("m.py", before, before.replace(old, new, 1))
    texts = {"m.py": shown.after, "n.py": "y = old(3)\n"}
    proposal = generalize([shown], texts, MemorySandbox(), answer)
    assert proposal.texts["m.py"] == target
    # that it was left beside the edit speaks against it elsewhere
    assert answer is not None or "n.py" not in proposal.texts


def test_nobody_is_asked_about_what_would_not_parse():
    shown = Demonstration("m.py", "def g(old): return old\n", "def g(older): return older\n")
    texts = {"m.py": shown.after, "n.py": "def f(old, older):\n    return old\n", "o.py": "def h(old): return old\n"}
    asked: list[str] = []
    proposal = generalize([shown], texts, MemorySandbox(), lambda question: asked.append(question.path) or True)
    assert (sorted(proposal.texts), set(asked)) == (["o.py"], {"o.py"})
    assert proposal.rules[0].places == 2
    assert "n.py:1 and 1 place more: would not parse any more; change them by hand" in proposal.undone


def test_a_place_that_is_refused_stays_as_it_is():
    texts = {"m.py": "x = new_one(1)\n", **{f"n{n}.py": f"y = z.old_one({n})\n" for n in range(6)}}
    texts |= {f"o{n}.py": f"y = old_one({n})\n" for n in range(6)}
    asked: list[Question] = []

    def refuse_the_first(question: Question) -> bool:
        asked.append(question)
        return len(asked) > 1

    shown = Demonstration("m.py", "x = old_one(1)\n", "x = new_one(1)\n")
    proposal = generalize([shown], texts, MemorySandbox(), refuse_the_first)
    assert asked[0].path not in proposal.texts


@pytest.mark.parametrize(
    ("path", "before", "after", "message"),
    [
        ("m.rs", "a", "b", "m.rs: its name says no language"),
        ("m.py", "x = 1\n", "x = 1\n", "m.py: shows no edit"),
        ("m.py", "x = (\n", "x = ((\n", "m.py: shows no edit"),
    ],
)
def test_what_shows_nothing_is_refused(path, before, after, message):
    with pytest.raises(DataError, match=message):
        generalize([Demonstration(path, before, after)], {path: after}, MemorySandbox())


def test_a_name_that_the_instruction_renames_is_renamed_in_strings_comments_and_compound_names():
    before = (
        "# the old_doc\nuse(config.old_doc)\n\n\ndef check_old_doc(a,\n                  b):\n    return 'old_docs'\n"
    )
    before += '\n\ndef g():\n    """The old_doc.\n\n    """\n'
    after = "# the new_d\nuse(config.new_d)\n\n\ndef check_new_d(a,\n                b):\n    return 'old_docs'\n"
    after += '\n\ndef g():\n    """The new_d.\n\n    """\n'
    shown = Demonstration("m.py", "f(1)\n", "f(2)\n")
    texts = {"m.py": "f(2)\n", "n.py": before, "o.py": before}
    proposal = generalize([shown], texts, MemorySandbox(), lambda _: True, "Rename old_doc to new_d")
    assert proposal.texts == {"n.py": after, "o.py": after}


def _rename_with_questions(count):
    code = "from lib import get_all\n\n\ndef f{0}(a):\n    return get_all(a, {0})\n"
    texts = {f"m{n}.py": code.format(n) for n in range(1, 5)}
    texts |= {"s1.py": 'NAME = "get_all"\n', "s2.py": 'call("get_all", 1)\nget_all_rows = 1\n'}
    texts["lib.py"] = 'def get_all(a, b):\n    """Run get_all."""\n    return a\n'
    edited, asked = texts["m1.py"].replace("get_all", "fetch_all"), list[Question]()
    proposal = generalize(
        [Demonstration("m1.py", texts["m1.py"], edited)], texts | {"m1.py": edited}, MemorySandbox(),
        lambda question: asked.append(question) or True, "Rename get_all to fetch_all", count,
    )  # fmt: skip
    lines = [question.text.split("\n")[question.text.count("\n", 0, question.start)] for question in asked]
    return proposal, [(question.path, line) for question, line in zip(asked, lines, strict=True)]


@pytest.mark.parametrize("count", [3, 4, 5])
def test_what_is_answered_with_yes_is_changed_though_another_reading_is_taken(count):
    proposal, asked = _rename_with_questions(count)
    assert len(asked) == count
    assert not [line for path, line in asked if line in proposal.texts[path].split("\n")]


def test_what_a_string_says_is_not_imported():
    proposal, _ = _rename_with_questions(5)
    assert proposal.texts["s1.py"] == 'NAME = "fetch_all"\n'


def test_a_question_is_about_a_place_that_tells_readings_apart_and_not_about_a_line_like_the_edit():
    _, asked = _rename_with_questions(5)
    assert not [line for _, line in asked if line.startswith("    return get_all(")]


def test_places_that_share_what_sets_a_refused_one_apart_stay_as_they_are():
    used = "with f(script, tmp):\n    script(tmp).go({n})\n"
    texts = {"tests/m.py": "with f(script):\n    script()\n"}
    texts |= {f"tests/u{n}.py": used.format(n=n) for n in range(9)}
    texts |= {f"tests/v{n}.py": used.format(n=n).replace("script(tmp)", "script()") for n in range(9)}
    shown = Demonstration("tests/m.py", "with f(script, tmp):\n    script()\n", texts["tests/m.py"])
    proposal = generalize([shown], texts, MemorySandbox(), lambda question: "(tmp)" not in question.text)
    assert sorted(proposal.texts) == [f"tests/v{n}.py" for n in range(9)]
    assert any("9 places like the edit not changed" in sentence for sentence in proposal.undone)


def _follow(shown: dict[str, tuple[str, str]], files: dict[str, str], answer=None, instruction: str = ""):
    demonstrations = [Demonstration(path, before, after) for path, (before, after) in shown.items()]
    texts = {**{path: after for path, (_, after) in shown.items()}, **files}
    return generalize(demonstrations, texts, MemorySandbox(), answer, instruction)


def test_a_call_and_its_arguments_are_one_edit():
    shown = {"m.py": ("def f():\n    x = d.utc() - self.y\n", "def f():\n    x = d.now(tz) - self.y\n")}
    files = {f"n{n}.py": f"y = d.utc() + {n}\n" for n in range(6)}
    asked: list[str] = []
    proposal = _follow(shown, files, lambda question: asked.append(question.replacement) or True)
    assert {text for path, text in proposal.texts.items()} == {f"y = d.now(tz) + {n}\n" for n in range(6)}
    assert all("tz" in replacement for replacement in asked)


def test_the_same_edit_in_another_layout_does_not_contradict():
    shown = {
        "m.py": ("warn(A % b)\n", "warn(A % b, level=2)\n"),
        "n.py": ("warn(\n    'b')\n", "warn('b', level=2)\n"),
        "o.py": ("warn(f(\n    c,\n))\n", "warn(f(\n    c,\n),\n    level=2,\n)\n"),
    }
    proposal = _follow(shown, {f"p{n}.py": f"warn(W{n})\n" for n in range(5)}, lambda _: True)
    assert proposal.texts == {f"p{n}.py": f"warn(W{n}, level=2)\n" for n in range(5)}


def test_a_rule_that_leaves_out_a_demonstration_is_not_taken_for_refusals_of_one_that_makes_all():
    used, unused = (
        "def f{n}(script, tmp{a}):\n    return script(tmp)\n",
        "def f{n}(script, tmp{a}):\n    return script()\n",
    )
    shown = {
        f"tests/m{n}.py": (f"def f({old}):\n    return script()\n", f"def f({new}):\n    return script()\n")
        for n, (old, new) in enumerate(
            [("script, tmp, a", "script, a"), ("script, tmp", "script"), ("script, tmp, b", "script, b")]
        )
    }
    files = {f"tests/{n}.py": used.format(n=n, a="") for n in range(9)}
    targets = {f"tests/v{n}{a}.py": unused.format(n=n, a=a) for n in range(4) for a in ("", ", a")}
    proposal = _follow(shown, files | targets, lambda question: "script(tmp)" not in question.text)
    assert proposal.texts == {path: text.replace(", tmp", "") for path, text in targets.items()}


def test_of_one_edit_in_several_layouts_that_of_the_fewest_lines_is_written():
    shown = {
        "m.js": ("s.over(a, b.c)\n", "s.over(a, b.c, {\n  only: true\n})\n"),
        "n.js": ("s.over(d, e)\n", "s.over(d, e, { only: true })\n"),
    }
    files = {f"o{n}.js": f"s.over(x{n}, y)\n" for n in range(5)}
    assert _follow(shown, files).texts == {f"o{n}.js": f"s.over(x{n}, y, {{ only: true }})\n" for n in range(5)}


def test_demonstrations_that_are_alike_share_all_questions():
    shown = {f"m{n}.js": ("import path from 'path'\n", "import path from 'node:path'\n") for n in range(3)}
    files = {f"n{n}.js": f"import {name} from '{name}'\n" for n, name in enumerate(["path", "fs", "fs"] * 9)}
    proposal = _follow(shown, files, lambda _: True, "use node prefix")
    assert proposal.texts == {path: text.replace("from '", "from 'node:") for path, text in files.items()}
    assert proposal.questions > 3


def test_questions_are_kept_for_the_other_edit_of_a_demonstration():
    shown = {
        f"m{n}.py": (f"t = d.join('{n}')\nt.write(x)\n", f"t = d.joinpath('{n}')\nt.write_text(x)\n") for n in range(2)
    }
    files = {f"n{n}.py": f"t = e{n}.join('a')\nt.write(y)\n" for n in range(20)}
    asked: list[str] = []
    _follow(shown, files, lambda question: asked.append(question.replacement) or True)
    assert any("text" in replacement for replacement in asked)


def test_comments_and_modules_follow_the_code_that_is_shown_as_well():
    head = "/* 2019-2022 */\n"
    shown = {
        "A.java": (
            f"{head}class A {{ void f() {{ old_one(); }} }}\n",
            f"{head}class A {{ void f() {{ new_one(); }} }}\n",
        ),
        "B.java": (f"{head}class B {{}}\n", "/* 2019-2023 */\nclass B {}\n"),
        "m.js": ("import c from 'c'\n\nc.red(1)\n", "import d from 'pd'\n\nd.red(1)\n"),
    }
    files = {
        "C.java": f"{head}class C {{ void g() {{ old_one(); }} }}\n",
        "D.java": f"{head}class D {{}}\n",
        "o.js": "import c from 'c'\nc.red(2)\nc.blue(3)\n",
        "p.js": "use('c')\n",
    }
    proposal = _follow(shown, files, lambda _: True)
    assert proposal.texts == {
        "C.java": "/* 2019-2023 */\nclass C { void g() { new_one(); } }\n",
        "o.js": "import d from 'pd'\nd.red(2)\nd.blue(3)\n",
    }


def test_what_one_of_several_demonstrations_shows_beside_the_others_is_not_done_elsewhere_unasked():
    shown = {f"{n}.py": (f"x{n} = a.old_one({n})\n", f"x{n} = a.new_one({n})\n") for n in range(2)}
    shown["m.js"] = ("await f(1)\n", "f(1)\n")
    shown["2.py"] = ("if list(a.old_one(3)):\n    pass\n", "if any(a.new_one(3)):\n    pass\n")
    files = {f"n{n}.py": f"y = list(b.old_one({n}))\n" for n in range(9)} | {"o.js": "await g(2)\n"}
    proposal = _follow(shown, files)
    assert proposal.texts == {f"n{n}.py": f"y = list(b.new_one({n}))\n" for n in range(9)}


_FURTHER = {
    "decorator-of-a-definition": (
        ("class A:\n    @p\n    def f(self):\n        return 1\n", "class A:\n    def f(self):\n        return 1\n"),
        {f"n{n}.py": (f"class B{n}:\n    @p\n    def f(self):\n        return 2\n\n    @p\n    def g(self):\n        return 3\n",
                      f"class B{n}:\n    def f(self):\n        return 2\n\n    @p\n    def g(self):\n        return 3\n")
         for n in range(4)},
    ),
    "all-arguments": (
        ("def f(self):\n    super(A, self).f(1)\n", "def f(self):\n    super().f(1)\n"),
        {f"n{n}.py": (f"def g({a}):\n    super(B{n}, {a}).g(2)\n", f"def g({a}):\n    super().g(2)\n")
         for n, a in enumerate(("cls", "self") * 3)},
    ),
    "module-of-a-package": (
        ("from mock import patch\n", "from unittest.mock import patch\n"),
        {"n.py": ("import mock\n\nmock.f()\n", "from unittest import mock\n\nmock.f()\n"),
         "o.py": ("from mock import Mock\n", "from unittest.mock import Mock\n")},
    ),
    "receiver-by-its-last-name": (
        ("f(self.env.doc, 1)\n", "f(self.env.current.doc, 1)\n"),
        {f"n{n}.py": (f"x = {a}env.doc\ny = node.doc\n", f"x = {a}env.current.doc\ny = node.doc\n")
         for n, a in enumerate(("self.", "", "app.", "a.b."))},
    ),
    "one-line": (
        ("warn('a', 'b',\n     Old1Warning)\n", "warn('a', 'b',\n     Old1Warning, level=2)\n"),
        {"n.py": ("warn(a, b, Old2Warning)\n", "warn(a, b, Old2Warning, level=2)\n"),
         "o.py": ("warn(a, b,\n     Old2Warning)\n", "warn(a, b,\n     Old2Warning, level=2)\n")},
    ),
    "operators-of-python": (
        ("x = f(a < b and (c + 1) or c)\n", "x = f((c + 1) if a < b else c)\n"),
        {f"n{n}.py": (f"y{n} = f({a} and {b} or {c})\n", f"y{n} = f({b} if {a} else {c})\n")
         for n, (a, b, c) in enumerate([("d", "e", "g"), ("d.e", "f(1)", "''"), ("not d", "e", "2")])},
    ),
    "opposite-of-a-condition": (
        ("class A { boolean a = b.length() > 0; }\n", "class A { boolean a = !b.isEmpty(); }\n"),
        {f"N{n}.java": (f"class N{{ boolean n = {old}; }}\n", f"class N{{ boolean n = {new}; }}\n")
         for n, (old, new) in enumerate([("a.length() == 0", "a.isEmpty()"), ("b.length() != 0", "!b.isEmpty()"),
                                         ("c.d.length() < 1", "c.d.isEmpty()"), ("c.length() > 1", "c.length() > 1")])},
    ),
    "calls-with-arguments": (
        ("class A { int a = this.b(); }\n", "class A { int a = b(); }\n"),
        {f"N{n}.java": (f"class N {{ int n = this.f{n}({a}); }}\n", f"class N {{ int n = f{n}({a}); }}\n")
         for n, a in enumerate(("", "1", "a, b", "", "c"))},
    ),
    "static-import": (
        ("import static a.M.b;\n\nclass A {}\n", "import static a.M.b;\nimport static a.M.c;\n\nclass A {}\n"),
        {"N.java": ("import a.M;\n\nimport static a.M.d;\n\nclass N { Object n = M.c(d); Object m = M.e; }\n",
                    "import a.M;\n\nimport static a.M.c;\nimport static a.M.d;\n\n"
                    "class N { Object n = c(d); Object m = M.e; }\n")},
    ),
    "type-with-arguments-in-another-layout": (
        ("class A:\n    def f(self) -> It[str]:\n        pass\n",
         "class A:\n    def f(\n        self,\n    ) -> Gen[str, None]:\n        pass\n"),
        {f"n{n}.py": (f"def f(x: It[{a}]): ...\n", f"def f(x: Gen[{a}, None]): ...\n")
         for n, a in enumerate(("int", "None", "a.B", "list[int]"))},
    ),
    "operation-that-moves": (
        ("x = d and 'a' % (d.b, c) or c\n", "x = 'a' % (d.b, c) if d else c\n"),
        {f"n{n}.py": (f"{n} + f({a} and {b} or 1)\n", f"{n} + f({b} if {a} else 1)\n")
         for n, (a, b) in enumerate((("c", "d + 1"), ("c.d", "2"), ("c == d", "e"), ("c()", "d[0]")))},
    ),
    "code-in-a-comment": (
        ("# set env.doc first\nf()\n", "# set env.current.doc first\nf()\n"),
        {f"n{n}.py": (f"x = {a}env.doc\n", f"x = {a}env.current.doc\n") for n, a in enumerate(("self.", "", "app."))},
    ),
    "object-in-one-line": (
        ("class A { a = s.put(1, b) }\n", "class A { a = s.put(1, b, {\n  only: true\n}) }\n"),
        {f"n{n}.js": (f"s.put({a}, {n})\n", f"s.put({a}, {n}, {{ only: true }})\n") for n, a in enumerate("abcd")},
    ),
    "annotation-of-the-same-family": (
        ("class A {\n@AfterEach\npublic void f() { g(); }\n}\n", "class A {\n@AfterEach\nvoid f() { g(); }\n}\n"),
        {f"N{n}.java": (f"class N {{\n{a}\npublic void f{n}() {{ g(); }}\n}}\n", f"class N {{\n{a}\n{b}void f{n}() {{ g(); }}\n}}\n")
         for n, (a, b) in enumerate((("@AfterEach", ""), ("@BeforeEach", ""), ("@Override", "public "), ("@AfterAll", "")))},
    ),
    "parameter-that-is-not-used": (
        ("def f(a, tmp, b):\n    return a\n", "def f(a, b):\n    return a\n"),
        {f"n{n}.py": (f"def g({a}tmp):\n    return {b}\n", f"def g({new}):\n    return {b}\n")
         for n, (a, b, new) in enumerate((("", "1", ""), ("a, ", "a", "a"), ("", "tmp", "tmp"), ("b, ", "tmp.a", "b, tmp")))},
    ),
    "further-modifier": (
        ("class A {\n\tprivate B b = c();\n}\n", "class A {\n\tprivate final B b = c();\n}\n"),
        {f"N{n}.java": (f"class N {{\n\t@X\n\tprivate{a} int n = {n};\n}}\n",
                        f"class N {{\n\t@X\n\tprivate{a} final int n = {n};\n}}\n")
         for n, a in enumerate((" static", "", " static", ""))},
    ),
    "string-of-several-lines": (
        ("put(a, 1)\n", "log(put(a, 1))\n"),
        {f"n{n}.py": (f"def f():\n    if {n}:\n        put(g(\"\"\"{n}\n            a\n        b\"\"\"), 1)\n",
                      f"def f():\n    if {n}:\n        log(put(g(\"\"\"{n}\n            a\n        b\"\"\"), 1))\n")
         for n in range(4)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _FURTHER)
def test_one_edit_is_made_in_other_forms(name):
    edit, files = _FURTHER[name]

    def answer(question: Question) -> bool:
        new = question.text[: question.start] + question.replacement + question.text[question.end :]
        ratios = [SequenceMatcher(None, text, files[question.path][1]).ratio() for text in (question.text, new)]
        return ratios[0] < ratios[1]

    shown = f"m.{next(iter(files)).partition('.')[2]}"
    proposal = _follow({shown: edit}, {path: text for path, (text, _) in files.items()}, answer)
    assert {path: text for path, (text, _) in files.items()} | dict(proposal.texts) == {
        path: text for path, (_, text) in files.items()
    }


def test_what_quotes_no_word_of_what_it_takes_away_is_not_done():
    shown = {"m.py": ("a = f(1)\n\nb = g(2)\n", "b = g(2)\n")}
    assert not _follow(shown, {f"n{n}.py": f"c = h({n})\nprint(c)\n" for n in range(4)}).texts


def test_the_rule_of_an_edit_stays_though_its_opposite_alone_is_elsewhere():
    shown = {"M.java": ("class A { boolean a = b.length() > 0; }\n", "class A { boolean a = !b.isEmpty(); }\n")}
    files = {f"N{n}.java": f"class N {{ boolean n = a{n}.length() == 0; }}\n" for n in range(4)}
    [rule] = _follow(shown, files).rules
    assert [rule_of(action)["rule"]["pattern"] for action in rule.actions] == ["$A.length() > 0", "$A.length() == 0"]


def test_a_name_of_another_module_is_another_name():
    shown = {"m.py": ("from a.b import Conf\n\n\nx = Conf(1)\n", "from a.b import NewConf\n\n\nx = NewConf(1)\n")}
    files = {f"n{n}.py": f"from a.b import Conf\n\ny = Conf({n})\n" for n in range(6)}
    other = {f"o{n}.py": f"from c import Conf\n\nz = Conf({n})\n" for n in range(6)}
    proposal = _follow(shown, files | other, lambda question: "from a.b" in question.text)
    assert proposal.texts == {path: text.replace("Conf", "NewConf") for path, text in files.items()}


def test_more_yeses_for_one_reading_give_no_less_confidence():
    shown = {"m.py": ("x = o.get(a, 1)\n", "x = o.fetch(a, 1)\n")}
    files = {f"n{n}.py": f"def f{n}(k):\n    {a}c{n}.get(k, {n})\n" for n, a in enumerate(["y = ", "return ", ""] * 9)}
    texts = {path: after for path, (_, after) in shown.items()} | files
    edits = [Demonstration("m.py", *shown["m.py"])]
    runs = [generalize(edits, texts, MemorySandbox(), lambda _: True, max_questions=n) for n in range(1, 6)]
    confidences = [run.rules[0].confidence for run in runs if run.rules]
    assert confidences == sorted(confidences)


@pytest.mark.parametrize(
    ("negative", "stays"),
    [("cache", True), ("client", False)],  # where what stays is like the edit itself, it tells nothing
)
def test_rules_that_leave_what_stays_as_it_is_go_before_others(negative: str, stays: bool) -> None:
    texts = {
        f"{name}.py": f"def load(url):\n    return {name}.get_all(url, {n})\n"
        for n, name in enumerate(("client", "cache", "client2"))
    }
    texts["b.py"] = "def load(row):\n    return client.get_all(row, 4)\n"
    before = texts["client.py"]
    texts["client.py"] = before.replace("get_all", "fetch_all")
    shown = [Demonstration("client.py", before, texts["client.py"])]
    negatives = {"old.py": f"def load(url):\n    return {negative}.get_all(url, 5)\n"}
    proposal = generalize(shown, texts, MemorySandbox(), negatives=negatives)
    assert ("b.py" in proposal.texts, "cache.py" not in proposal.texts) == (True, stays)
