"""The process of the code under test: it imports modules, and does with their objects what tests ask for.

It is an interpreter of its own, started after the case has been given to it, so that nothing of the tests, of the report
and of its nonce is in its memory. Two descriptors lead to the tests; what it says there are values, as `calls` has it, and
never outcomes. Code that takes this process over can say what any function could have returned, and no more.

Questions (`remote_objects` asks them; `ref` is a number that this side has given to an object):

    {"do": "import", "name"}                        {"do": "get" | "set" | "delete", "ref", "name", "value"}
    {"do": "call", "ref", "arguments", "special"}   {"do": "await" | "names", "ref"}     {"do": "entry", "ref", "name"}

An answer has `value` or `raised`, and `printed`; `changed` has the lists, dictionaries and sets that a call has changed of
its arguments.
"""

import importlib
import io
import json
import os
import sys
from collections.abc import Mapping
from types import CoroutineType, ModuleType
from typing import Any

from graftline.sandbox.inside.remote_values import LINK, MUTABLE, Link, decode, encode

DATA = (int, float, complex, str, bytes, tuple, frozenset)
"""Types whose subclasses have a value that does not change."""
_UNARY = (
    "abs bool bytes call complex delitem enter exit float format getitem hash index int invert iter len neg next pos repr"
    " reversed round setitem str trunc ceil floor missing"
)
_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
UNARY = frozenset(f"__{name}__" for name in _UNARY.split())
COMPARING = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "contains"))
ARITHMETIC = frozenset(f"__{prefix}{name}__" for prefix in ("", "r", "i") for name in _BINARY.split())
SPECIAL = UNARY | COMPARING | ARITHMETIC


class TestObject:
    """What a test has passed that is no plain value: a function of its own, a stand-in, a stream."""

    __test__ = False
    __slots__ = ("__name__", "_number", "_process")

    def __init__(self, process: "_Process", number: int, name: str) -> None:
        object.__setattr__(self, "_process", process)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "__name__", name)

    def __getattr__(self, name: str) -> Any:
        return self._process.ask_test({"do": "get", "ref": self._number, "name": name})

    def __setattr__(self, name: str, value: Any) -> None:
        tree = self._process.encode(value)
        self._process.ask_test({"do": "set", "ref": self._number, "name": name, "value": tree})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = self._process.encode([args, kwargs])
        return self._process.ask_test({"do": "call", "ref": self._number, "arguments": arguments})


def _special_method(name: str) -> Any:
    def method(self: TestObject, *args: Any) -> Any:
        arguments = self._process.encode([args, {}])
        question = {"do": "special", "ref": self._number, "name": name, "arguments": arguments}
        return self._process.ask_test(question)

    return method


for _name in ("__bool__", "__iter__", "__next__", "__len__", "__getitem__", "__enter__", "__exit__", "__contains__"):
    setattr(TestObject, _name, _special_method(_name))


class _Output(io.TextIOBase):
    """Collects what is printed, for the tests to see it as theirs."""

    def __init__(self, parts: list[list[Any]], number: int) -> None:
        self._parts, self._number = parts, number

    def write(self, text: str) -> int:
        self._parts.append([self._number, str(text)])
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number


class _Process:
    def __init__(self, link: tuple[int, int]) -> None:
        self.link = Link(*link, self._serve)
        self._objects: list[Any] = []
        self._refs: dict[int, int] = {}
        self._known_classes: set[int] = set()
        self._tests: dict[int, Any] = {}
        self._printed: list[list[Any]] = []
        sys.stdout, sys.stderr = _Output(self._printed, 1), _Output(self._printed, 2)

    def encode(self, value: Any) -> Any:
        return encode(value, self._export)

    def ask_test(self, question: Mapping[str, Any]) -> Any:
        answer = self.link.ask({**question, "printed": self._take_printed()})
        if "raised" in answer:
            raise decode(answer["raised"], self._resolve)
        return decode(answer["value"], self._resolve)

    def _serve(self, question: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        try:
            for name, value in question.get("environment", {}).items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            if "folder" in question:
                os.chdir(question["folder"])
            answer["value"] = self.encode(self._do(question, answer))
        except BaseException as error:
            answer.pop("value", None)
            answer["raised"] = self._error(error)
        return {**answer, "printed": self._take_printed()}

    def _do(self, question: Mapping[str, Any], answer: dict[str, Any]) -> Any:
        match question["do"]:
            case "import":
                module = importlib.import_module(question["name"])
                names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
                return [self._ref(module), hasattr(module, "__path__"), [*map(str, names)], module.__doc__]
            case "get":
                return getattr(self._objects[question["ref"]], question["name"])
            case "set":
                value = decode(question["value"], self._resolve)
                return setattr(self._objects[question["ref"]], question["name"], value)
            case "delete":
                return delattr(self._objects[question["ref"]], question["name"])
            case "names":
                return [name for name in vars(self._objects[question["ref"]]) if isinstance(name, str)]
            case "entry":
                return vars(self._objects[question["ref"]])[question["name"]]
            case "await":
                import asyncio  # takes longer to load than all else here

                return asyncio.run(self._objects[question["ref"]])
            case _:
                return self._call(question, answer)

    def _call(self, question: Mapping[str, Any], answer: dict[str, Any]) -> Any:
        args, kwargs = decode(question["arguments"], self._resolve)
        function = self._objects[question["ref"]]
        if name := question.get("special"):
            kind = type(function)
            method = getattr(kind, name)
            function = method.__get__(function, kind) if hasattr(method, "__get__") else method
        mutable = [value for value in (*args, *kwargs.values()) if type(value) in MUTABLE]
        before = json.dumps([self.encode(value) for value in mutable]) if mutable else ""
        try:
            return function(*args, **kwargs)
        finally:
            if mutable and json.dumps(after := [self.encode(value) for value in mutable]) != before:
                answer["changed"] = after

    def _ref(self, value: Any) -> int:
        # held for good, so that no other object can come to have this address
        if id(value) not in self._refs:
            self._refs[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._refs[id(value)]

    def _export(self, value: Any) -> dict[str, Any]:
        if type(value) is TestObject:
            return {"yours": object.__getattribute__(value, "_number")}
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BaseException):
            return self._error(value)
        kind = type(value)
        tree = {"ref": self._ref(value), "class": self._class(kind)}
        for base in DATA:
            if isinstance(value, base) and base is not kind:
                return {**tree, "content": self.encode(_content(base, value))}
        if isinstance(value, CoroutineType):
            return {**tree, "awaited": True}
        return tree

    def _class(self, kind: type) -> dict[str, Any]:
        if is_known(kind):
            return {"known": [kind.__module__, kind.__qualname__]}
        ref = self._ref(kind)
        if ref in self._known_classes:
            return {"type": ref}
        self._known_classes.add(ref)
        own = [base for base in kind.__mro__ if base is not object and not is_known(base)]
        special = sorted({name for base in own for name in SPECIAL & vars(base).keys() if vars(base)[name] is not None})
        bases = [self._class(base) for base in kind.__bases__ if base is not object]
        return {"type": ref, "name": kind.__name__, "module": kind.__module__, "bases": bases, "special": special}

    def _error(self, error: BaseException) -> dict[str, Any]:
        tests_own = getattr(error, "_of_the_test", None)
        if isinstance(tests_own, int):
            return {"yours": tests_own}
        args: Any = error.args
        if isinstance(error, OSError) and error.filename is not None:
            args = (*args[:2], error.filename)
        try:
            text = str(error)
        except BaseException:
            text = ""
        kind = type(error)
        tree = {"class": self._class(kind), "ref": self._ref(error), "text": self.encode(text)}
        for name, value in (("args", [*args]), ("state", {**vars(error)})):
            try:
                tree[name] = self.encode(value)
            except Exception:
                tree[name] = [] if name == "args" else {"dict": []}
        cause = error.__cause__
        return tree if cause is None or cause is error else {**tree, "cause": self._class(type(cause))}

    def _resolve(self, tree: Mapping[str, Any]) -> Any:
        match tree:
            case {"own": int(ref)}:
                return self._objects[ref]
            case {"known": [str(module), str(name)]}:
                value = importlib.import_module(module)
                for part in name.split(".") if name else ():
                    value = getattr(value, part)
                return value
            case {"error": kind, "args": args}:
                return decode(kind, self._resolve)(*decode(args, self._resolve))
            case {"theirs": int(number), "name": str(name), **more}:
                if "error" in more:
                    error = RuntimeError(name)
                    error._of_the_test = number  # type: ignore[attr-defined]
                    return error
                return self._tests.setdefault(number, TestObject(self, number, name))
        raise ValueError("no value has this form")

    def _take_printed(self) -> list[list[Any]]:
        printed = [[number, self.encode(text)] for number, text in self._printed]
        self._printed.clear()
        return printed


def is_known(kind: type) -> bool:
    """Return whether `kind` is one that both sides have: a plain type, or an exception of the standard library."""
    if kind.__module__ == "builtins":
        return kind in (object, type, bool, *DATA, list, dict, set, bytearray) or issubclass(kind, BaseException)
    value: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        value = getattr(value, part, None)
    top = kind.__module__.partition(".")[0]
    # unittest has some that are no failures
    return value is kind and issubclass(kind, BaseException) and top in sys.stdlib_module_names and top != "unittest"


def _content(base: Any, value: Any) -> Any:
    """Return the part of `value` that `base`, one of `DATA`, holds."""
    if base in (tuple, frozenset):
        return base(base.__iter__(value))
    return getattr(base, f"__{base.__name__}__")(value)


def main() -> None:
    """Serve until the tests have ended."""
    sys.argv = [""]
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    sys.dont_write_bytecode = True
    main_module = ModuleType("__main__")
    sys.modules["__main__"] = main_module
    _Process(LINK).link.serve()
    os._exit(0)
