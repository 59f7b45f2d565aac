"""Changed statements are laid out as the repository's are."""

import pytest

from graftline.codemod.migration.layout import Style, format_statement, infer_style, lay_out, realign
from graftline.codemod.migration.line_breaks import keep_line_breaks

_BLACK = Style("python", 40, "    ", True, True)
_PRETTIER = Style("typescript", 40, "  ", False, True)
_JAVA = Style("java", 40, "    ", False, False)
_ECLIPSE = Style("java", 38, "    ", False, True)
_CASES = {
    "joined": (_BLACK, "super(Foo, self).__init__(\n    alpha, beta, gamma\n)\n",
               "super().__init__(\n    alpha, beta, gamma\n)\n", "super().__init__(alpha, beta, gamma)\n"),
    "broken": (_BLACK, "function(alpha, beta.name)\n", "function(alpha, beta.a_longer_name_of_it, a)\n",
               "function(\n    alpha, beta.a_longer_name_of_it, a\n)\n"),
    "one-a-line": (_BLACK, "function(\n    alpha, beta=beta.name, gamma=gamma\n)\n",
                   "function(\n    alpha, beta=beta.long.name, gamma=gamma\n)\n",
                   "function(\n    alpha,\n    beta=beta.long.name,\n    gamma=gamma,\n)\n"),
    "magic-comma": (_BLACK, "f(\n    alpha,\n)\n", "f(\n    a,\n)\n", "f(\n    a,\n)\n"),
    "comment": (_BLACK, "f(\n    alpha_beta_gamma_delta_epsilon_zeta,  # why\n)\n", "f(\n    a,  # why\n)\n",
                "f(\n    a,  # why\n)\n"),
    "another-style": (_BLACK, "f(alpha_beta_gamma_delta_epsilon_zeta,\n  b)\n", "f(a,\n  b)\n", "f(a,\n  b)\n"),
    "last-object": (_PRETTIER, "s.overwrite(start, end, 'text')\n", "s.overwrite(start, end, 'text', { only: true })\n",
                    "s.overwrite(start, end, 'text', {\n  only: true\n})\n"),
    "java": (_JAVA, "class A { void f() {\n    this.getBean().register(\n        alpha, beta);\n} }\n",
             "class A { void f() {\n    getBean().register(\n        alpha, beta);\n} }\n",
             "class A { void f() {\n    getBean().register(alpha, beta);\n} }\n"),
    "import": (_PRETTIER, "import { alpha, beta, gamma } from 'a'\n", "import { alpha, beta, gamma } from 'node:a'\n",
               "import {\n  alpha,\n  beta,\n  gamma\n} from 'node:a'\n"),
    "import-joined": (_PRETTIER, "import {\n  alpha,\n  beta,\n  gamma\n} from 'node:a'\n",
                      "import {\n  alpha,\n  beta,\n  gamma\n} from 'a'\n", "import { alpha, beta, gamma } from 'a'\n"),
    "condition": (_PRETTIER, "const file = a.startsWith('.')\n  ? join(root, alpha)\n  : join(dirname, beta)\n",
                  "const file = a[0] === '.'\n  ? join(root, alpha)\n  : join(dirname, beta)\n",
                  "const file =\n  a[0] === '.'\n    ? join(root, alpha)\n    : join(dirname, beta)\n"),
    "condition-joined": (_PRETTIER, "f(() => {\n  return relative.startsWith('.')\n    ? alpha\n    : b\n})\n",
                         "f(() => {\n  return relative[0] === '.'\n    ? alpha\n    : b\n})\n",
                         "f(() => {\n  return relative[0] === '.' ? alpha : b\n})\n"),
    "java-calls": (_ECLIPSE, "class A { void f() {\n    String a = b.from(c.d(), OLD)\n            .get(e);\n} }\n",
                   "class A { void f() {\n    String a = b.from(c.d(), A_LONGER_NEW)\n            .get(e);\n} }\n",
                   "class A { void f() {\n    String a = b\n            .from(c.d(), A_LONGER_NEW)\n            .get(e);\n} }\n"),
    "java-arguments": (_ECLIPSE, "class A { void f() {\n    String a = b.from(cd, OLD);\n} }\n",
                       "class A { void f() {\n    String a = b.from(cd, A_LONGER_NEW);\n} }\n",
                       "class A { void f() {\n    String a = b.from(cd,\n            A_LONGER_NEW);\n} }\n"),
    "java-operators": (_ECLIPSE, "class A { void f() {\n    String a = b(c, OLD) + d;\n} }\n",
                       "class A { void f() {\n    String a = b(c, A_LONGER_NEW) + d;\n} }\n",
                       "class A { void f() {\n    String a = b(c, A_LONGER_NEW) + d;\n} }\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_a_changed_statement_is_laid_out(name):
    style, before, after, expected = _CASES[name]
    assert lay_out(before, after, style) == expected
    assert lay_out(expected, expected, style) == expected


def test_a_statement_of_many_characters_stays():
    calls = "String a = b" + ".c(d)" * 50
    assert format_statement(calls + ";", "", _ECLIPSE) is not None
    assert format_statement(calls * 100 + ";", "", _ECLIPSE) is None


def test_a_repository_shows_its_style():
    calls = [f"function_of_number_{n}(\n    {'argument, ' * 7}number_{n}\n)\n" for n in range(6)]
    style = infer_style(["".join(calls)], "python")
    assert style is not None
    assert (style.indent, style.breaks, style.trailing) == ("    ", True, True)
    hanging = [f"function({'argument, ' * 5}\n         number_{n})\n" for n in range(6)]
    style = infer_style(["".join(hanging)], "python")
    assert style is not None
    assert not style.breaks


_BREAKS = {
    "an item more": ("f(\n    a,\n    b,\n)", "f(a, b, c=2)", "f(\n    a,\n    b,\n    c=2,\n)"),
    "several a line": ("f(\n    a, b\n)", "f(a, b, c=2)", "f(\n    a, b, c=2\n)"),
    "below the bracket": ("fetch(a,\n      b)", "g(a, x=b)", "g(a,\n  x=b)"),
    "in the last line": ("f(a,\n  b)", "f(a, b, c=2)", "f(a,\n  b, c=2)"),
    "the first goes": ("f(\n    a,\n    b,\n)", "a.f(b)", "a.f(\n    b,\n)"),
    "another order": ("f(\n    a,\n    # why\n    b,\n)", "f(b, a)", "f(\n    # why\n    b,\n    a,\n)"),
    "a comment that goes": ("f(\n    a,  # why\n    b)", "f(a)", None),
    "a comment in a string": ("f(\n    '# a',\n    b)", "f('# a')", "f(\n    '# a')"),
    "no brackets any more": ("(a\n or b)", "a or b", "a or b"),
    "line ends": ("x.as_(y)\\\n    .verify()", "x.as_(y).expect().verify(1)", "x.as_(y)\\\n    .expect().verify(1)"),
    "blanks": ("f(a, 'r',  # why\n  b)", "f(a, # why\n  b)", "f(a,  # why\n  b)"),
    "all of it": ("f(  # why\n    a)", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", _BREAKS)
def test_what_is_written_over_several_lines_has_their_breaks(name):
    old, new, expected = _BREAKS[name]
    assert keep_line_breaks(old, new, 0, "python") == expected


_MOVED = {
    "hanging": ("def old(a,\n        b,\n        c):\n    pass\n", "def older(a,\n        b,\n        c):\n    pass\n",
                "def older(a,\n          b,\n          c):\n    pass\n"),
    "not-hanging": ("old(\n    a)\n", "older(\n    a)\n", "older(\n    a)\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", _MOVED)
def test_lines_stay_where_they_were(name):
    before, after, target = _MOVED[name]
    assert realign(before, after) == target
