"""Tests whose code under test has a process of its own: what right code may do, and what gets wrong code nothing."""

from textwrap import dedent

import pytest

from graftline.sandbox import Verdict, judge_tests
from graftline.sandbox.jail.served import ServedJail
from tests.code_under_test import by_pytest, in_namespaces, outcomes
from tests.security.hostile.apart_cases import ANYTHING, APART_CASES

MODULE = '''
"""A module with a bit of everything."""
import collections, contextlib, dataclasses, enum, logging, os, sys
from pathlib import Path

LIMIT = 3
NAMES = ["b", "a"]
Pair = collections.namedtuple("Pair", "quotient rest")

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

class ShopError(ValueError):
    def __init__(self, item, count):
        super().__init__(f"no {count} of {item}")
        self.item, self.count = item, count

class SoldOutError(ShopError):
    pass

@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

    def moved(self, dx, dy=0):
        return Point(self.x + dx, self.y + dy)

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)

@dataclasses.dataclass(frozen=True)
class Fixed:
    x: int

class Stack:
    count = 0

    def __init__(self, items=()):
        self._items = list(items)
        Stack.count += 1

    @classmethod
    def of(cls, *items):
        return cls(items)

    @property
    def top(self):
        return self._items[-1]

    def push(self, item):
        self._items.append(item)
        return self

    def pop(self):
        if not self._items:
            raise IndexError("pop of an empty stack")
        return self._items.pop()

    def __len__(self):
        return len(self._items)

    def __iter__(self):
        return iter(self._items)

    def __getitem__(self, key):
        return self._items[key]

    def __repr__(self):
        return f"Stack({self._items})"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._items.clear()

def add(a, b):
    return a + b

def divided(a, b):
    return Pair(*divmod(a, b))

def counted(n):
    for number in range(n):
        yield number

def buy(item, count):
    if item == "gone":
        raise SoldOutError(item, count)
    raise ShopError(item, count)

def sort_in_place(items):
    items.sort()

def apply(function, *values):
    return [function(value) for value in values]

def retry(function):
    try:
        return function()
    except ValueError:
        return function()

def greet(name, out=None):
    print("hello", name, file=out or sys.stdout)

def shout(name):
    print("HELLO", name, file=sys.stderr)

def setting():
    return os.environ.get("SETTING", "none")

def save(path, text):
    Path(path).write_text(text)

def load(path):
    return Path(path).read_text()

def below_limit(value):
    return helper(value) < LIMIT

def helper(value):
    return value

def sent(client, text):
    return client.post("/x", data=text).status

async def later(value):
    import asyncio
    await asyncio.sleep(0)
    return value

def converted(text, kind):
    return kind(text)

def main():
    sys.exit(2)

def chained():
    try:
        {}["x"]
    except KeyError as error:
        raise RuntimeError("no x") from error
'''
HONEST = {
    "a function": "assert m.add(1, 2) == 3",
    "values of every plain type": """
        for value in (None, True, 1 << 80, -1.5, float("inf"), "é\\ud800", b"\\xff", (1, [2, {3: {4}}]), frozenset({1}), 1j,
                      decimal.Decimal("1.10"), fractions.Fraction(1, 3), datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.timezone.utc),
                      datetime.timedelta(1, 2), Path("a/b"), collections.Counter("aab"), collections.deque([1], 3), range(3)):
            [same] = m.apply(id_, value)
            assert same == value and type(same) is type(value)
    """,
    "a named tuple": "pair = m.divided(7, 2)\nassert pair == (3, 1) and pair.rest == 1 and isinstance(pair, m.Pair)",
    "attributes": "p = m.Point(1, y=2)\nassert (p.x, p.y) == (1, 2)\np.x = 5\nassert p.x == 5 and p.moved(1).x == 6\nassert isinstance(p, m.Point)",
    "operators between objects": "p = m.Point(1, 2) + m.Point(3, 4)\nassert (p.x, p.y) == (4, 6)",
    "a class": """
        stack = m.Stack.of(1, 2)
        assert len(stack) == 2 and stack.top == 2 and stack[0] == 1 and [*stack] == [1, 2] and stack[:1] == [1]
        assert stack.push(3).pop() == 3 and repr(stack) == "Stack([1, 2])" and stack
        with stack as same:
            assert same is stack
        assert not stack and m.Stack.count >= 1
        with pytest.raises(IndexError, match="empty"):
            stack.pop()
    """,
    "an enumeration": """
        assert m.Color.RED is m.Color(1) and m.Color["RED"] == m.Color.RED != m.Color.BLUE
        assert [color.name for color in m.Color] == ["RED", "BLUE"] and m.Color.RED.value == 1
        assert m.Level.HIGH == 2 and m.Level.HIGH > m.Level.LOW and len(m.Color) == 2
    """,
    "an exception of its own": """
        with pytest.raises(m.ShopError, match="no 3 of tea") as caught:
            m.buy("tea", 3)
        assert caught.value.item == "tea" and caught.value.count == 3 and type(caught.value) is m.ShopError
        with pytest.raises(m.ShopError) as caught:
            m.buy("gone", 1)
        assert isinstance(caught.value, m.SoldOutError) and isinstance(caught.value, ValueError)
        with pytest.raises(ValueError):
            m.buy("tea", 3)
    """,
    "exceptions of the library": """
        with pytest.raises(TypeError):
            m.add(1)
        with pytest.raises(FileNotFoundError) as caught:
            m.load("absent")
        assert caught.value.filename == "absent"
        with pytest.raises(dataclasses.FrozenInstanceError):
            m.Fixed(1).x = 2
        with pytest.raises(SystemExit) as ended:
            m.main()
        assert ended.value.code == 2
        with pytest.raises(RuntimeError) as caught:
            m.chained()
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(AttributeError):
            m.absent
        with pytest.raises(ImportError):
            from m import absent
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("m.absent")
    """,
    "a generator": "numbers = m.counted(3)\nassert next(numbers) == 0 and list(numbers) == [1, 2]",
    "an argument that is changed": "items = [3, 1, 2]\nm.sort_in_place(items)\nassert items == [1, 2, 3]",
    "a function of the test": "seen = []\nassert m.apply(lambda x: x * 2, 1, 2) == [2, 4]\nm.apply(seen.append, 1)\nassert seen == [1] and m.apply(len, 'ab') == [2]",
    "an error of the test": """
        class Boom(Exception):
            pass
        def boom(value):
            raise Boom(value)
        with pytest.raises(Boom) as caught:
            m.apply(boom, 1)
        assert caught.value.args == (1,)
        attempts = iter([ValueError("x"), 3])
        def flaky():
            value = next(attempts)
            if isinstance(value, Exception):
                raise value
            return value
        assert m.retry(flaky) == 3
    """,
    "what it prints": """
        m.greet("you")
        m.shout("you")
        assert capsys.readouterr() == ("hello you\\n", "HELLO you\\n")
        out = io.StringIO()
        m.greet("stream", out)
        assert out.getvalue() == "hello stream\\n"
    """,
    "variables and files": """
        assert m.setting() == "none"
        monkeypatch.setenv("SETTING", "x")
        assert m.setting() == "x"
        m.save(tmp_path / "a", "b")
        assert (tmp_path / "a").read_text() == "b"
        monkeypatch.chdir(tmp_path)
        assert m.load("a") == "b" and m.load(str(tmp_path / "a")) == "b"
    """,
    "replacements in the code": """
        monkeypatch.setattr(m, "LIMIT", 10)
        assert m.below_limit(5) and m.LIMIT == 10
        monkeypatch.setattr("m.helper", lambda value: 11)
        assert not m.below_limit(5)
        monkeypatch.undo()
        assert not m.below_limit(5) and m.below_limit(2) and m.LIMIT == 3
        with mock.patch("m.helper", return_value=1) as helper:
            assert m.below_limit(5)
        helper.assert_called_once_with(5)
        assert not m.below_limit(5)
    """,
    "a stand-in": """
        client = mock.Mock()
        client.post.return_value.status = 201
        assert m.sent(client, "a") == 201
        client.post.assert_called_once_with("/x", data="a")
        class Client:
            def __init__(self):
                self.sent = []
            def post(self, path, data):
                self.sent.append((path, data))
                return types.SimpleNamespace(status=200)
        own = Client()
        assert m.sent(own, "b") == 200 and own.sent == [("/x", "b")]
    """,
    "a coroutine": "assert asyncio.run(m.later(3)) == 3",
    "a type as an argument": "assert m.converted('3', int) == 3 and str(m.converted('1.5', decimal.Decimal)) == '1.5'",
    "names of a module": "assert m.NAMES == ['b', 'a'] and m.__doc__.startswith('A module') and m.add.__name__ == 'add' and m.__name__ == 'm'",
    "everything by a star": "scope = {}\nassert {'add', 'Point', 'LIMIT'} <= set(m.__all__)",
}  # fmt: skip
IMPORTS = (
    "import asyncio, collections, dataclasses, datetime, decimal, fractions, importlib, io, types\nfrom pathlib import Path\n"
    "from unittest import mock\nimport pytest\nimport m\n\ndef id_(value):\n    return value\n\n"
)


def in_a_test(body: str) -> str:
    lines = dedent(body).strip().splitlines()
    return IMPORTS + "def test_it(capsys, monkeypatch, tmp_path):\n" + "".join(f"    {line}\n" for line in lines)


@in_namespaces
@pytest.mark.parametrize("use", HONEST)
def test_right_code_passes_from_a_process_of_its_own(jail: ServedJail, use: str) -> None:
    result = by_pytest(jail, MODULE, in_a_test(HONEST[use]), "test_m.py::test_it")
    assert ([test.error for test in result.tests], result.passed) == ([""], True)


@in_namespaces
def test_helpers_and_data_of_the_tests_are_theirs_and_packages_are_of_the_code(jail: ServedJail) -> None:
    code = {
        "shop/__init__.py": b"from .core import total\n",
        "shop/core.py": b"from . import rates\ndef total(rows):\n    return sum(rows) * rates.RATE\n",
        "shop/rates.py": b"RATE = 2\n",
        "shop/rates.json": b"[1, 2]",
        "json.py": b"raise RuntimeError('of the code')\n",
    }
    tests = {
        "tests/test_shop.py": "import json\nfrom pathlib import Path\nimport shop.rates\nfrom shop import core, total\n"
        "from helpers import WANTED\ndef test_total():\n    rows = json.loads(Path('shop/rates.json').read_text())\n"
        "    assert total(rows) == core.total(rows) == WANTED == int((Path(__file__).parent / 'six.txt').read_text())\n"
        "    assert shop.rates.RATE == 2 and core.__name__ == 'shop.core'\n",
        "tests/helpers.py": "WANTED = 6\n",
        "tests/six.txt": "6",
    }
    result = by_pytest(jail, "", tests, "tests/test_shop.py::test_total", more=code)
    assert ([test.error for test in result.tests], result.passed) == ([""], True)


@in_namespaces
def test_the_code_sees_no_test_and_no_other_process(jail: ServedJail) -> None:
    module = """
        import gc, os, sys
        def seen():
            names = [name for top, _, found in os.walk(".") for name in found]
            code = [type(thing).__name__ for thing in gc.get_objects() if type(thing).__name__ in ("Session", "Config")]
            memory = b""
            for line in open("/proc/self/maps"):
                first, last = (int(part, 16) for part in line.split()[0].split("-"))
                if "rw-p" in line:
                    with open("/proc/self/mem", "rb") as stream:
                        stream.seek(first)
                        memory += stream.read(last - first)
            first_and_own = ("1", str(os.getpid()))
            processes = [name for name in os.listdir("/proc") if name.isdigit() and name not in first_and_own]
            variables = [name for name in os.environ if "PYTEST" in name]
            return [names, code, processes, variables, "".join(reversed("tset_eht_fo_terces")).encode() in memory]
    """
    tests = "import m\ndef test_it():\n    wanted = 'secret_of_the_test'\n    assert m.seen() == [['m.py'], [], [], [], False]\n"
    result = by_pytest(jail, dedent(module), tests, "test_m.py::test_it")
    assert ([test.error for test in result.tests], result.passed) == ([""], True)


NOT_JUDGED = {
    "a subclass": ("class Own(m.Stack):\n    pass", "derives 'Own' from a class of the code"),
    "a text that is executed": ("assert eval(m.add('1', '+2')) == 3", "executes a text"),
    "a module that is read": (
        "m.save(tmp_path / 'own.py', 'x = 3')\nmonkeypatch.syspath_prepend(tmp_path)\nimport own\nassert own.x == 3",
        "executes a text",
    ),
    "a pickle": ("import pickle\nassert pickle.loads(pickle.dumps(decimal.Decimal(3))) == 3", "reads a pickle"),
    "a program": ("import subprocess, sys\nsubprocess.run([sys.executable, 'm.py'])", "starts a process"),
    "an object that cannot be sent": ("m.apply(id_, re.compile('a'))", "passes an object of class 'Pattern'"),
    "equality of its own objects": ("assert m.Point(1, 2).moved(1) == m.Point(2, 2)", "rests on __eq__"),
    "order of its own objects": ("assert m.Ordered(1) < m.Ordered(2)", "rests on __lt__"),
    "what its own object holds": ("assert 3 in m.Bag(3)", "rests on __contains__"),
    "a clock that is replaced": ("import time\nmonkeypatch.setattr(time, 'time', lambda: 0)", "a replacement in 'time'"),
    "a seed": ("import random\nrandom.seed(3)", "random numbers of the code"),
    "warnings": ("with pytest.warns(UserWarning):\n    m.add(1, 2)", "warnings of the code"),
}  # fmt: skip
COMPARED = """
class Ordered:
    def __init__(self, x):
        self.x = x
    def __lt__(self, other):
        return self.x < other.x
class Bag:
    def __init__(self, *items):
        self.items = items
    def __contains__(self, item):
        return item in self.items
"""


@in_namespaces
@pytest.mark.parametrize("use", NOT_JUDGED)
def test_what_cannot_be_told_from_another_process_is_not_known_and_why(jail: ServedJail, use: str) -> None:
    body, cause = NOT_JUDGED[use]
    result = by_pytest(jail, MODULE + COMPARED, in_a_test(f"import re\n{body}"), "test_m.py::test_it")
    assert (result.verdict, result.passed, outcomes(result)) == (Verdict.OK, None, ["not_judged"])
    assert cause in result.error


@in_namespaces
@pytest.mark.parametrize("use", [name for name, (_, cause) in NOT_JUDGED.items() if cause.startswith("rests on")])
def test_comparisons_of_its_own_objects_count_where_they_are_believed(jail: ServedJail, use: str) -> None:
    tests = in_a_test(NOT_JUDGED[use][0])
    result = by_pytest(jail, MODULE + COMPARED, tests, "test_m.py::test_it", trusts="comparisons")
    assert ([test.error for test in result.tests], result.passed, result.trusts) == ([""], True, "comparisons")


NEAR = """
import unittest
import pytest
from m import add
def test_near(): assert abs(add(1, 2) - 3) < 1e-9
def test_approximately(): assert add(1, 2) == pytest.approx(3)
def test_approximately_either_way(): assert pytest.approx([3]) == [add(1, 2)] and pytest.approx(3) == add(1, 2)
def test_between(): assert 2 < add(1, 2) < 4
def test_one_of(): assert add(1, 2) in (3, 4)
def test_what_it_holds(): assert 3 in add(1, 2)
def test_two_of_it(): assert add(1, 2) == add(2, 1)
def test_nothing_else(): assert not add(1, 2) - 3
class TestAdd(unittest.TestCase):
    def test_equal(self): self.assertEqual(add(1, 2), 3)
    def test_near(self): self.assertAlmostEqual(add(1, 2), 3)
    def test_more(self): self.assertGreater(add(1, 2), 2)
"""
SPECS = [case.spec for case in APART_CASES]
NEAR_TESTS = (
    *("near", "approximately", "approximately_either_way", "between", "one_of", "what_it_holds", "two_of_it"),
    "nothing_else",
)


@in_namespaces
@pytest.mark.parametrize("base", ["numbers.Complex", "int", "float", "list"])
def test_an_object_that_answers_any_comparison_as_it_is_wanted_fails(jail: ServedJail, base: str) -> None:
    expected = [f"test_m.py::test_{name}" for name in NEAR_TESTS]
    expected += [f"test_m.py::TestAdd::test_{name}" for name in ("equal", "near", "more")]
    result = by_pytest(jail, ANYTHING.replace("BASE", base), NEAR, *expected)
    # two numbers are compared as what they are here, and are both nothing
    passed = ["test_m.py::test_two_of_it"] if base in ("int", "float") else []
    assert [test.name for test in result.tests if test.outcome != "failed"] == passed
    assert result.passed is False


@in_namespaces
def test_right_code_passes_all_tests_that_hostile_code_is_tried_on(jail: ServedJail) -> None:
    right = b"def add(a, b):\n    return b.send(a(3)) if callable(a) else a + b\n"
    specs = [spec for place, spec in enumerate(SPECS) if spec not in SPECS[:place]]
    assert [(spec, judge_tests(jail, {"m.py": right}, spec).passed) for spec in specs] == [
        (spec, True) for spec in specs
    ]
    assert len(specs) == 4


@in_namespaces
@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        ("os.kill(os.getpid(), 9)", Verdict.CRASH),
        ("os.abort()", Verdict.CRASH),
        ("os._exit(0)", Verdict.OK),
        ("os.closerange(3, 5); signal.pause()", Verdict.OK),  # gone by the look of it, and ended from outside
        ("signal.raise_signal(signal.SIGXCPU)", Verdict.CPU_TIMEOUT),
    ],
)
def test_tests_fail_where_the_code_ends_and_the_verdict_says_how(jail: ServedJail, end: str, verdict: Verdict) -> None:
    result = by_pytest(jail, f"import os, signal\ndef add(a, b):\n    {end}\n")
    assert (result.verdict, result.passed, outcomes(result)) == (verdict, False, ["failed", "failed"])


def test_a_test_that_fails_is_not_unknown(jail: ServedJail) -> None:
    tests = in_a_test("assert m.Point(1, 2) == m.Point(1, 2)\nassert m.add(1, 2) == 4")
    assert by_pytest(jail, MODULE, tests, "test_m.py::test_it").passed is False
