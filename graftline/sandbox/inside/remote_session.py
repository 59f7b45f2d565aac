"""What tests have to do with the process of the code under test: questions, and what an outcome rests on.

What comes back stands for classes and objects in `remote_objects`. What tests pass that is no plain value stays here, and
the code knows it by a number: it may call it, and look into stand-ins that were made for it; names that begin with an
underscore are refused, for they lead everywhere.
"""

import argparse
import enum
import io
import os
import sys
import unittest.mock
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from graftline.sandbox.inside.code_process import ARITHMETIC, COMPARING, DATA, UNARY, is_known
from graftline.sandbox.inside.remote_objects import (
    REF,
    Docstring,
    NotApart,
    Place,
    RemoteClass,
    RemoteModule,
    RemoteObject,
    place_of,
    special_method,
    word_of_the_code,
)
from graftline.sandbox.inside.remote_values import MUTABLE, Link, LinkError, decode, encode, is_plain

_OF_MOCKS = frozenset(dir(unittest.mock.MagicMock()))
_STAND_INS = (
    *(io.StringIO, io.BytesIO, io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom),
    *(unittest.mock.NonCallableMock, SimpleNamespace, argparse.Namespace),
)
"""Of the standard library: code may look into those that it is passed."""
_SPECIAL_OF_TESTS = ("__iter__", "__next__", "__len__", "__getitem__", "__enter__", "__exit__", "__contains__")
_MOST_PRINTED = 1 << 20


class Session:
    """What tests have to do with the process of the code: asks it, and notes what the outcome of a test rests on."""

    def __init__(self, link: tuple[int, int], names: Collection[str], folder: str, trusts: str) -> None:
        self._link = Link(*link, self._serve)
        self.names, self.folder, self.trusts = frozenset(names), folder, trusts
        self._classes: dict[int, type] = {}
        self._objects: dict[int, Any] = {}
        self._tests: list[Any] = []
        self._environment = _variables()
        self._directory = os.getcwd()  # noqa: PTH109
        self._notes: list[tuple[str, str]] = []
        self._general: tuple[str, str] | None = None
        self._is_in_test = False
        self._created_here: set[int] = set()

    def begin_test(self) -> None:
        """Forget what was noted of the test before."""
        self._notes.clear()
        self._is_in_test = True

    def judge(self, outcome: str, error: str) -> tuple[str, str]:
        """Return what `outcome`, as pytest sees it, is worth."""
        self._is_in_test = False
        notes = dict(reversed([*([self._general] if self._general else []), *self._notes]))
        if "violation" in notes:
            return "tampered", notes["violation"]
        if "not apart" in notes:
            return "not_judged", notes["not apart"]
        if outcome == "passed" and "own word" in notes:
            return "not_judged", notes["own word"]
        return outcome, error

    def note(self, kind: str, text: str) -> None:
        """Note `text` of the test that runs, or of all where none does."""
        if self._is_in_test:
            self._notes.append((kind, text))
        else:
            self._general = self._general or (kind, text)

    def note_created(self, value: Any) -> None:
        """Note that a test has made an object of the code, by calling its class."""
        self._created_here.add(place_of(value).ref)

    def believe(self, name: str, *operands: Any) -> None:
        """Note that a test goes by what objects of the code say of themselves.

        TypeError if the test has made none of them, so that code chose to answer with such objects.
        """
        if self.trusts == "comparisons":
            return
        if not any(isinstance(value, RemoteObject) and place_of(value).ref in self._created_here for value in operands):
            raise TypeError(word_of_the_code(operands[0], name))
        self.note("own word", f"rests on {word_of_the_code(operands[0], name)}")

    def refuse(self, text: str) -> NotApart:
        """Note why a test cannot run apart, and return what ends it."""
        self.note("not apart", text)
        return NotApart(text)

    def ask(self, question: Mapping[str, Any], arguments: Sequence[Any] = ()) -> Any:
        """Return what comes of `question`, or raise it."""
        __tracebackhide__ = True
        try:
            answer = self._link.ask({**question, **self._surroundings()})
            self._print(answer.get("printed"))
            if "changed" in answer:
                self._change([value for value in arguments if type(value) in MUTABLE], answer["changed"])
            if "raised" not in answer:
                return decode(answer.get("value"), self._resolve)
            error = decode(answer["raised"], self._resolve)
            if not isinstance(error, BaseException):
                raise LinkError("what was raised is no exception")
        except LinkError as fault:
            if type(fault) is LinkError:
                self.note("violation", f"the process of the code under test answered with {fault}")
            raise
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise RuntimeError(f"the code under test raised {type(error).__name__}")
        raise error

    def encode(self, value: Any) -> Any:
        try:
            return encode(value, self._export)
        except (ValueError, RecursionError) as error:
            raise self.refuse(f"passes what cannot be sent: {error}") from None

    def _surroundings(self) -> dict[str, Any]:
        """Return what a test has changed around it: variables, and the working folder."""
        changes: dict[str, Any] = {}
        environment = _variables()
        if environment != self._environment:
            gone = dict.fromkeys(self._environment.keys() - environment.keys())
            changed = {name: text for name, text in environment.items() if self._environment.get(name) != text}
            changes["environment"], self._environment = {**gone, **changed}, environment
        directory = os.getcwd()  # noqa: PTH109
        if directory != self._directory:
            changes["folder"] = self._directory = directory
        return changes

    def _print(self, parts: Any) -> None:
        for part in parts if isinstance(parts, list) else ():
            if not (isinstance(part, list) and len(part) == 2 and part[0] in (1, 2)):
                raise LinkError("output of no valid form")
            text = decode(part[1], self._resolve)
            if isinstance(text, str):
                (sys.stdout if part[0] == 1 else sys.stderr).write(text[:_MOST_PRINTED])

    def _change(self, arguments: Sequence[Any], trees: Any) -> None:
        """Do to the arguments of a call what the code did to its copies of them."""
        if not isinstance(trees, list) or len(trees) != len(arguments):
            raise LinkError("changes of other arguments than there were")
        for value, tree in zip(arguments, trees, strict=True):
            after = decode(tree, self._resolve)
            if type(after) is not type(value):
                raise LinkError("an argument that became one of another type")
            if type(value) in (list, bytearray):
                value[:] = after
            else:
                value.clear()
                value.update(after)

    def _export(self, value: Any) -> Any:
        """Return what stands for a value that is not plain; NotApart if nothing can."""
        kind = type(value)
        if isinstance(value, (RemoteObject, RemoteClass, RemoteModule)):
            return {"own": place_of(value).ref}
        if kind is ModuleType and value.__name__.partition(".")[0] in sys.stdlib_module_names:
            return {"known": [value.__name__, ""]}
        if is_of_the_library(value):
            return {"known": [value.__module__, value.__qualname__]}
        if isinstance(value, enum.Enum) and is_of_the_library(kind):
            return {"known": [kind.__module__, f"{kind.__qualname__}.{value.name}"]}
        name = str(getattr(value, "__name__", kind.__name__))
        if isinstance(value, BaseException):
            if is_known(kind):
                return {"error": {"known": [kind.__module__, kind.__qualname__]}, "args": self.encode([*value.args])}
            return {"theirs": self._number(value), "name": name, "error": True}
        for base in (*DATA, list, dict, set, bytearray):
            if isinstance(value, base):
                return self.encode(base(value))
        if callable(value) or self._has_attributes(value) or hasattr(kind, "__next__"):
            return {"theirs": self._number(value), "name": name}
        raise self.refuse(f"passes an object of class {kind.__qualname__!r} to the code under test")

    def _number(self, value: Any) -> int:
        for number, own in enumerate(self._tests):
            if own is value:
                return number
        self._tests.append(value)
        return len(self._tests) - 1

    def _has_attributes(self, value: Any) -> bool:
        """Return whether the code may look into `value`: stand-ins that tests have made for it, and streams."""
        kind = type(value)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
        is_of_a_test = file.startswith(f"{self.folder}/") and not isinstance(value, type)
        return is_of_a_test or isinstance(value, _STAND_INS)

    def _serve(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer what the code asks of objects of the tests: calls, and attributes of stand-ins."""
        try:
            self._print(question.get("printed"))
            number = question.get("ref")
            if not isinstance(number, int) or not 0 <= number < len(self._tests):
                raise LinkError("a question about no object of the tests")
            return {"value": self.encode(self._do(question, self._tests[number]))}
        except (LinkError, NotApart):
            raise
        except BaseException as error:
            return {"raised": self._export(error)}

    def _do(self, question: Mapping[str, Any], value: Any) -> Any:
        name = str(question.get("name"))
        if question.get("do") in ("get", "set"):
            is_open = self._has_attributes(value) and not name.startswith("_")
            if not is_open or (isinstance(value, unittest.mock.NonCallableMock) and name in _OF_MOCKS):
                raise AttributeError(f"{type(value).__name__!r} object has no attribute {name[:100]!r}")
            if question["do"] == "get":
                return getattr(value, name)
            return setattr(value, name, decode(question.get("value"), self._resolve))
        arguments = decode(question.get("arguments"), self._resolve)
        if not (isinstance(arguments, list) and len(arguments) == 2 and isinstance(arguments[1], dict)):
            raise LinkError("a call of no valid form")
        if question.get("do") == "call":
            return value(*arguments[0], **arguments[1])
        if name == "__bool__":
            return bool(value)
        if question.get("do") != "special" or name not in _SPECIAL_OF_TESTS or not hasattr(type(value), name):
            raise TypeError(f"{type(value).__name__!r} object does not have {name[:100]}")
        return getattr(value, name)(*arguments[0])

    def _resolve(self, tree: Mapping[str, Any]) -> Any:
        match tree:
            case {"yours": int(number)} if 0 <= number < len(self._tests):
                return self._tests[number]
            case {"known": [str(module), str(name)]}:
                return _known_class(module, name)
            case {"type": int(ref)}:
                return self._class(ref, tree)
            case {"ref": int(ref), "class": kind, "args": args, "state": state, "text": text}:
                return self._error(ref, kind, args, state, text, tree.get("cause"))
            case {"ref": int(ref), "class": kind}:
                if ref not in self._objects:
                    self._objects[ref] = self._object(ref, self._class_of(kind), tree)
                return self._objects[ref]
        raise ValueError("no value has this form")

    def _class_of(self, tree: Any) -> type:
        kind = self._resolve(tree)
        if not isinstance(kind, type):
            raise ValueError("no class")
        return kind

    def _class(self, ref: int, tree: Mapping[str, Any]) -> type:
        if ref in self._classes:
            return self._classes[ref]
        bases = [self._class_of(base) for base in tree["bases"]]
        # in front, so that the plain part of an object is compared as what it is
        plain = [base for base in bases if base in DATA]
        data = bool(plain) or any(isinstance(base, RemoteClass) and issubclass(base, DATA) for base in bases)
        special = {str(name) for name in tree["special"]} & (UNARY | COMPARING | ARITHMETIC)
        if data:
            special &= ARITHMETIC | {"__call__", "__enter__", "__exit__", "__format__", "__repr__", "__str__"}
        more = [base for base in bases if base not in (*plain, *MUTABLE, type)]
        more = [base for base in more if isinstance(base, RemoteClass) or is_known(base)]
        body: dict[str, Any] = {name: special_method(self, name) for name in special}
        body |= {"__module__": str(tree["module"]), "__doc__": Docstring(Place(self, ref))}
        if "__eq__" in body and "__hash__" not in body:
            body["__hash__"] = None
        chosen = (*plain, *more)
        if not any(isinstance(base, RemoteClass) for base in chosen):
            chosen = (*chosen, RemoteObject) if plain else (RemoteObject, *chosen)
        name = str(tree["name"])
        try:
            self._classes[ref] = RemoteClass.make(self, ref, name, chosen, body)
        except TypeError:  # bases that do not go together here
            self._classes[ref] = RemoteClass.make(self, ref, name, (RemoteObject,), body)
        return self._classes[ref]

    def _object(self, ref: int, kind: type, tree: Mapping[str, Any]) -> Any:
        if not isinstance(kind, RemoteClass):
            raise ValueError("no class of the code")
        if "content" in tree and issubclass(kind, DATA):
            content = decode(tree["content"], self._resolve)
            [base] = [base for base in DATA if issubclass(kind, base)]
            if type(content) is not base:
                raise ValueError("content of another type")
            value: Any = base.__new__(kind, content)  # type: ignore[type-var]
        elif issubclass(kind, (*DATA, BaseException)):
            raise ValueError("an object without content")
        elif tree.get("awaited") is True:
            return self._wait(ref)
        else:
            value = object.__new__(kind)
        object.__setattr__(value, REF, Place(self, ref))
        return value

    async def _wait(self, ref: int) -> Any:
        return self.ask({"do": "await", "ref": ref})

    def _error(self, ref: int, kind: Any, args: Any, state: Any, text: Any, cause: Any) -> BaseException:
        error_class = self._class_of(kind)
        if not issubclass(error_class, BaseException):
            raise ValueError("no class of exceptions")
        values, attributes, message = (decode(tree, self._resolve) for tree in (args, state, text))
        error = self._objects.get(ref)
        if error is None:
            is_builtin = error_class.__module__ == "builtins"
            try:
                error = error_class(*values) if is_builtin else BaseException.__new__(error_class, *values)
            except TypeError:
                error = error_class.__new__(error_class, *values)
            if isinstance(error_class, RemoteClass):
                object.__setattr__(error, REF, Place(self, ref))
                object.__setattr__(error, "_graftline_text", str(message))
            elif not is_builtin:
                vars(error).update({name: value for name, value in attributes.items() if is_plain(type(value))})
            if cause is not None and issubclass(cause_of := self._class_of(cause), BaseException):
                error.__cause__ = BaseException.__new__(cause_of)
            self._objects[ref] = error
        error.__traceback__ = None
        return error


def is_of_the_library(value: Any) -> bool:
    """Return whether `value` is a class or a function of the standard library, found there by its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)):
        return False
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    in_place: Any = sys.modules.get(module)
    for part in name.split("."):
        in_place = getattr(in_place, part, None)
    return in_place is value


def _known_class(module: str, name: str) -> type:
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = vars(kind).get(part) if kind is not None else None
    if not isinstance(kind, type) or isinstance(kind, RemoteClass) or not is_known(kind):
        raise ValueError("no class that both sides have")
    return kind


def _variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
