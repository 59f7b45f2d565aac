"""Imports follow what rules did to a file."""

import pytest

from graftline.codemod.migration.import_edits import follow_imports
from graftline.codemod.migration.imports import Source, Sources, compare_names

_TIMEZONE = {"timezone": Source("datetime", "timezone")}
_LOCALE = {"Locale": Source("java.util", "Locale")}
_CASES = {
    "dropped": (
        "python", {}, {},
        "import os\nimport sys\n\nlog(sys.exc_info(), os.name)\n",
        "import os\nimport sys\n\nlog(True, os.name)\n",
        "import os\n\nlog(True, os.name)\n",
    ),
    "dropped-item": (
        "python", {}, {},
        "from typing import (\n    Any,\n    Iterator,\n    List,\n)\n\nx: Iterator\ny: List[Any]\n",
        "from typing import (\n    Any,\n    Iterator,\n    List,\n)\n\nx: list\ny: List[Any]\n",
        "from typing import (\n    Any,\n    List,\n)\n\nx: list\ny: List[Any]\n",
    ),
    "renamed": (
        "python", {}, {"Iterator": "Generator"},
        "from typing import Any, Iterator, List\n\nx: Iterator[Any]\ny: List\n",
        "from typing import Any, Iterator, List\n\nx: Generator[Any]\ny: List\n",
        "from typing import Any, Generator, List\n\nx: Generator[Any]\ny: List\n",
    ),
    "joined": (
        "python", _TIMEZONE, {},
        "from datetime import datetime\n\nnow = datetime.utcnow()\n",
        "from datetime import datetime\n\nnow = datetime.now(timezone.utc)\n",
        "from datetime import datetime, timezone\n\nnow = datetime.now(timezone.utc)\n",
    ),
    "replaced": (
        "python", {"Case": Source("tests.utils", "Case")}, {},
        "import a\nfrom tests.utils import unittest\n\nclass T(unittest.TestCase): a\n",
        "import a\nfrom tests.utils import unittest\n\nclass T(Case): a\n",
        "import a\nfrom tests.utils import Case\n\nclass T(Case): a\n",
    ),
    "unused-before": (
        "python", {}, {},
        "from a import b\n\nx = 1\n", "from a import b\n\nx = 2\n", "from a import b\n\nx = 2\n",
    ),
    "bound": (
        "python", _TIMEZONE, {},
        "def timezone(): ...\n\nx = 1\n", "def timezone(): ...\n\nx = timezone\n", "def timezone(): ...\n\nx = timezone\n",
    ),
    "moved": (
        "python", {"c": Source("json", "c")}, {},
        "from a import b\n\nb(1)\n", "from a import b\n\nc(1)\n", "from json import c\n\nc(1)\n",
    ),
    "future": (
        "python", {"json": Source("json", "*")}, {},
        "from __future__ import annotations\n\nfrom a import b\n\nx(b)\n",
        "from __future__ import annotations\n\nfrom a import b\n\njson(b)\n",
        "from __future__ import annotations\n\nimport json\n\nfrom a import b\n\njson(b)\n",
    ),
    "java-moved": (
        "java", {"D": Source("q", "D")}, {},
        "package a;\n\nimport b.C;\n\nclass A { C x; }\n", "package a;\n\nimport b.C;\n\nclass A { D x; }\n",
        "package a;\n\nimport q.D;\n\nclass A { D x; }\n",
    ),
    "java-sorted": (
        "java", _LOCALE, {},
        "package a;\n\nimport java.util.List;\nimport java.util.Map;\n\nclass A { List x = f(a.toLowerCase()); Map y; }\n",
        "package a;\n\nimport java.util.List;\nimport java.util.Map;\n\n"
        "class A { List x = f(a.toLowerCase(Locale.ROOT)); Map y; }\n",
        "package a;\n\nimport java.util.List;\nimport java.util.Locale;\nimport java.util.Map;\n\n"
        "class A { List x = f(a.toLowerCase(Locale.ROOT)); Map y; }\n",
    ),
    "java-static": (
        "java", {}, {"verifyZero": "verifyNo"},
        "import static m.M.verifyZero;\n\nclass A { void f() { verifyZero(a); } }\n",
        "import static m.M.verifyZero;\n\nclass A { void f() { verifyNo(a); } }\n",
        "import static m.M.verifyNo;\n\nclass A { void f() { verifyNo(a); } }\n",
    ),
    "java-same-package": (
        "java", {"Case": Source("a", "Case")}, {},
        "package a;\n\nimport b.C;\n\nclass A { C x; }\n",
        "package a;\n\nimport b.C;\n\nclass A { C x = Case.of(); }\n",
        "package a;\n\nimport b.C;\n\nclass A { C x = Case.of(); }\n",
    ),
    "script": (
        "typescript", {"colors": Source("picocolors", "default")}, {},
        "import chalk from 'chalk'\nimport fs from 'fs'\n\nlog(chalk.red('x'), fs)\n",
        "import chalk from 'chalk'\nimport fs from 'fs'\n\nlog(colors.red('x'), fs)\n",
        "import colors from 'picocolors'\nimport fs from 'fs'\n\nlog(colors.red('x'), fs)\n",
    ),
    "script-item": (
        "typescript", {}, {},
        "import path, { dirname, join } from 'path'\n\nf(path, dirname(x), join(a))\n",
        "import path, { dirname, join } from 'path'\n\nf(path, here, join(a))\n",
        "import path, { join } from 'path'\n\nf(path, here, join(a))\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_imports_follow_the_names_of_a_file(name):
    language, known, renamed, before, after, expected = _CASES[name]
    names = compare_names(before, after, language)
    assert follow_imports(names, after, "x/file", language, known.get, renamed) == (expected, _lacking(name))
    names = compare_names(before, expected, language)
    assert follow_imports(names, expected, "x/file", language, known.get, renamed)[0] == expected


def _lacking(name):
    return frozenset({"here"} if name == "script-item" else ())


def test_most_files_say_where_a_name_comes_from():
    texts = ["from a import Case\n", "from a import Case\n", "from b import Case, x\n", "from c import x\n"]
    sources = Sources([(text, "python") for text in texts])
    assert [sources.find(name) for name in ("Case", "x", "y")] == [Source("a", "Case"), None, None]


def test_a_word_of_a_string_lacks_no_import():
    before, after = 'f(a, "b")\n', 'f("c", "d", e, a.c)\n'
    names = compare_names(before, after, "python")
    assert follow_imports(names, after, "x.py", "python", {}.get, {}) == (after, frozenset({"e"}))
