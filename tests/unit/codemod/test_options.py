"""The rules that may be meant by one edit."""

from contextlib import closing

import pytest

from graftline.codemod.change import Change
from graftline.codemod.migration.options import generate_options
from graftline.codemod.migration.places import apply_rules
from graftline.sandbox.actions import MemorySandbox, ProcessSandboxConfig, open_sandbox

_EDITS = [
    ("python", "def f():\n    super(A, self).g(1)\n", "def f():\n    super().g(1)\n"),
    ("python", "@slow\n@mark('x')\ndef f(a):\n    return 1\n", "@slow\ndef f(a):\n    return 1\n"),
    ("python", "log(e, exc_info=sys.exc_info())\n", "log(e, exc_info=True)\n"),
    ("python", "warn(\n    'a',\n    B,\n)\n", "warn(\n    'a',\n    B,\n    level=2,\n)\n"),
    ("python", "for n in tree.walk(X):\n    pass\n", "for n in list(tree.walk(X)):\n    pass\n"),
    ("java", "class A {\n@Test\npublic void f() { g(); }\n}\n", "class A {\n@Test\nvoid f() { g(); }\n}\n"),
    ("java", "class A { X f() { return this.create(null, c); } }\n", "class A { X f() { return create(null, c); } }\n"),
    ("typescript", "import fs from 'fs'\n", "import fs from 'node:fs'\n"),
    ("python", "__all__ = ['a']\n", "__all__ = ('a',)\n"),
]


@pytest.mark.parametrize(("language", "before", "after"), _EDITS)
def test_options_make_the_edit_and_ast_grep_alone_makes_it_as_well(language, before, after):
    change = Change.between(before, after, language)
    options = list(generate_options(change, change.code_sites[0]))
    actions = [action for option in options for action in option.actions]
    with closing(open_sandbox(ProcessSandboxConfig())) as sandbox:
        replayed = sandbox.apply_many(before, language, actions)
    results = MemorySandbox().apply_many(before, language, actions)
    assert [result.after for result in results] == [result.after for result in replayed]
    texts = {apply_rules(before, language, option.actions, MemorySandbox()): option.kind for option in options}
    assert after in texts
    assert {option.kind for option in options} - {"example"}
