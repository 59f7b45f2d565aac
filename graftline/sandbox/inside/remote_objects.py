"""What tests see in the place of the code under test: modules, classes and objects that live in another process.

`install` has tests import them, and nothing executed where the tests are that the code could have written.

Tests are trusted, and no code of anybody else runs where they do: what a module is asked for, and every call, goes to the
process of the code (`code_process`), and plain values come back. What they are worth:

* a plain value is compared here, by Python itself. An object of a class of the code is never equal to a plain value, and
  an operator between the two is refused, for the operand would tell the code what is wanted, and what comes of it would
  be its own word. One of a class that is made of a plain type (a named tuple, an `IntEnum`) is its value here;
* whether two objects of the code are equal or in order, and whether one holds a value, only the code can say. A test that
  passed by such an answer is `not_judged`, unless `trusts` is `comparisons`. It is refused where the test has made none of
  the objects: otherwise code could answer with objects to have nothing known of it. Objects of a class without `__eq__`
  are told apart here;
* what a test does with the code that cannot be done from another process (a subclass, a text that it executes, a
  program that it starts, an object that cannot be sent) makes it `not_judged` too: `NotApart`, which no test catches.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from graftline.sandbox.inside.code_process import ARITHMETIC, COMPARING, DATA
from graftline.sandbox.inside.remote_values import LinkError, is_plain

if TYPE_CHECKING:
    from graftline.sandbox.inside.remote_session import Session

REF = "_graftline_ref"
_NOT_ASKED = frozenset(
    (
        *("__test__", "__wrapped__", "__bases__", "__code__", "__signature__", "__array__", "__array_ufunc__"),
        *("__isabstractmethod__", "pytestmark", "__set_name__", "__get__", "__objclass__", "__func__", "__self__"),
        "__tracebackhide__",
    )
)
"""What pytest and mock look for in whatever they meet."""
_COMPILERS = frozenset(
    (
        *("timeit", "runpy", "code", "codeop", "bdb", "pdb", "cProfile", "profile", "trace", "doctest", "pickle"),
        *("shelve", "zipimport"),
    )
)
"""Modules of the standard library that execute what they are given."""
_STARTING = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
)
"""Events of the interpreter that start a process."""
_OF_IMPORT = ("__name__", "__loader__", "__spec__", "__package__", "__path__", "__file__", "__all__", "__cached__")


class NotApart(BaseException):
    """A test needs the code under test in its own process; no error of the code, and not for `except Exception`."""


class Place(NamedTuple):
    """Where a class, a module or an object of the code is: the session, and the number that the code knows it by."""

    session: "Session"
    ref: int

    def get(self, name: str) -> Any:
        __tracebackhide__ = True
        return self.session.ask({"do": "get", "ref": self.ref, "name": name})

    def set(self, name: str, value: Any) -> None:
        self.session.ask({"do": "set", "ref": self.ref, "name": name, "value": self.session.encode(value)})

    def delete(self, name: str) -> None:
        self.session.ask({"do": "delete", "ref": self.ref, "name": name})

    def call(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = MappingProxyType({}), special: str = ""
    ) -> Any:
        """Call it, or a special method of its class."""
        __tracebackhide__ = True
        question = {"do": "call", "ref": self.ref, "arguments": self.session.encode([[*args], dict(kwargs)])}
        return self.session.ask({**question, "special": special} if special else question, [*args, *kwargs.values()])


class _Contents(Mapping[str, Any]):
    """The `__dict__` of a class or a module of the code, for whoever replaces something there."""

    def __init__(self, place: Place) -> None:
        self._session, self._ref = place

    def __getitem__(self, name: str) -> Any:
        if name in _NOT_ASKED:
            raise KeyError(name)
        return self._session.ask({"do": "entry", "ref": self._ref, "name": name})

    def __iter__(self) -> Iterator[str]:
        return iter(self._session.ask({"do": "names", "ref": self._ref}))

    def __len__(self) -> int:
        return len([*self])


class RemoteClass(type):
    """A class of the code. Tests may call it, look into it, and catch what it is the class of; not derive from it."""

    @property  # type: ignore[misc]
    def __dict__(cls) -> Any:  # type: ignore[override]
        place = own_of(cls).get(REF)
        return own_of(cls) if place is None else _Contents(place)

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **more: Any) -> "RemoteClass":
        for base in bases:
            if isinstance(base, RemoteClass) and REF in own_of(base):
                raise own_of(base)[REF].session.refuse(f"derives {name!r} from a class of the code under test")
        return super().__new__(cls, name, bases, body)

    @staticmethod
    def make(session: "Session", ref: int, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> "RemoteClass":
        """Return the class that stands for the one that the code knows as `ref`."""
        return type.__new__(RemoteClass, name, bases, {**body, REF: Place(session, ref)})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        place: Place = own_of(cls)[REF]
        value = place.call(args, kwargs)
        if type(value) is cls:
            place.session.note_created(value)
        return value

    def __getattr__(cls, name: str) -> Any:
        __tracebackhide__ = True
        return _attribute(own_of(cls).get(REF), name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name != "__abstractmethods__":
            own_of(cls)[REF].set(name, value)

    def __delattr__(cls, name: str) -> None:
        own_of(cls)[REF].delete(name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(own_of(cls)[REF].call(special="__iter__"))

    def __len__(cls) -> int:
        return int(own_of(cls)[REF].call(special="__len__"))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        place: Place = own_of(cls)[REF]
        try:
            return place.call((key,), special="__getitem__")
        except AttributeError:
            return place.get("__class_getitem__")(key)


class Docstring:
    """The docstring of a class of the code, and of an object of it."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __get__(self, instance: Any, owner: type) -> Any:
        return (self._place if instance is None else place_of(instance)).get("__doc__")


class RemoteObject(metaclass=RemoteClass):
    """An object of the code."""

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        return _attribute(place_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(self, BaseException) and name in ("__traceback__", "__cause__", "__context__", "__notes__"):
            object.__setattr__(self, name, value)
        else:
            place_of(self).set(name, value)

    def __delattr__(self, name: str) -> None:
        place_of(self).delete(name)

    def __str__(self) -> str:
        if isinstance(self, BaseException):
            return str(object.__getattribute__(self, "_graftline_text"))
        return repr(self)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return place_of(self).get("__dict__")


class RemoteModule(ModuleType):
    """A module of the code."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        place = own_of(self).get(REF)
        return own_of(self) if place is None else _Contents(place)

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        return _attribute(own_of(self).get(REF), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OF_IMPORT or isinstance(value, RemoteModule):
            super().__setattr__(name, value)
        else:
            own_of(self)[REF].set(name, value)

    def __delattr__(self, name: str) -> None:
        if name in own_of(self):
            super().__delattr__(name)
        else:
            own_of(self)[REF].delete(name)


def own_of(value: Any) -> Any:
    """Return what a class or a module has here, and not in the process of the code."""
    kind = type if isinstance(value, type) else ModuleType
    return vars(kind)["__dict__"].__get__(value)


def place_of(value: Any) -> Place:
    """Return where a class, a module or an object of the code is."""
    is_object = not isinstance(value, (RemoteClass, RemoteModule))
    place: Place = object.__getattribute__(value, REF) if is_object else own_of(value)[REF]
    return place


def _attribute(place: Place | None, name: str) -> Any:
    __tracebackhide__ = True
    if place is None or name in _NOT_ASKED or name.startswith(("_pytest", "_graftline")):
        raise AttributeError(name)
    return place.get(name)


def word_of_the_code(value: Any, operation: str) -> str:
    """Return why nothing is known of what an operation with an object of the code comes to."""
    return (
        f"{operation} of an object of the class {type(value).__name__!r} of the code under test would be its own word;"
        " compare values, or say `trusts: comparisons`"
    )


def special_method(session: "Session", name: str) -> Callable[..., Any]:
    """Return the special method `name` of the objects of a class."""

    def ask(self: Any, *args: Any) -> Any:
        __tracebackhide__ = True
        return place_of(self).call(args, special=name)

    def compare(self: Any, other: Any) -> Any:
        __tracebackhide__ = True
        if other is self and name in ("__eq__", "__ne__"):
            return name == "__eq__"
        is_remote = isinstance(other, (RemoteObject, RemoteClass))
        if not is_remote and not is_plain(type(other)):
            return NotImplemented  # an object of the tests, which are trusted to say what they are equal to
        if is_remote or session.trusts == "comparisons":
            answer = place_of(self).call((other,), special=name)
            # an object that comes of two objects says nothing yet
            if is_plain(type(answer)) and answer is not NotImplemented:
                session.believe(name, self, other)
            return answer
        for base in DATA:
            if isinstance(self, base):
                return getattr(base, name)(self, other) if hasattr(base, name) else NotImplemented
        if name in ("__eq__", "__ne__"):
            return name == "__ne__"
        raise TypeError(word_of_the_code(self, f"{name} with a plain value"))

    def contains(self: Any, value: Any) -> Any:
        __tracebackhide__ = True
        session.believe(name, self)
        return place_of(self).call((value,), special=name)

    if name == "__contains__":
        return contains
    return compare if name in COMPARING | ARITHMETIC else ask


class Finder(Loader):
    """Finds the modules of the code; those of the tests themselves stay what they are."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._session.names:
            return None
        parts = name.split(".")
        above = Path(self._session.folder, *parts[:-1])
        if (above / f"{parts[-1]}.py").is_file() or (above / parts[-1] / "__init__.py").is_file():
            return PathFinder.find_spec(name, [str(above)])
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return RemoteModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        try:
            answer = self._session.ask({"do": "import", "name": module.__name__})
        except (SystemExit, KeyboardInterrupt) as error:
            raise ImportError(f"{module.__name__} ended by {type(error).__name__} when it was imported") from error
        match answer:
            case [int(ref), bool(is_package), list(names), doc] if all(isinstance(name, str) for name in names):
                own_of(module).update({REF: Place(self._session, ref), "__all__": names, "__doc__": doc})
                if not is_package:
                    own_of(module).pop("__path__", None)
            case _:
                self._session.note("violation", "the process of the code under test answered with no module")
                raise LinkError("no module")


def watch(session: "Session") -> None:
    """Have nothing executed in this process that the code under test could have written: texts, programs, pickles.

    Tests that do so are `not_judged`. Everything is noted by the interpreter itself, and for good
    (https://docs.python.org/3/library/audit_events.html).
    """
    paths = (
        str(Path(os.__file__).parent),
        # of a checkout, the folder of modules only links to it
        str(Path(__file__).resolve().parents[2]),
        *(path for path in sys.path if not f"{path}/".startswith(f"{session.folder}/")),
    )
    library = tuple({os.path.realpath(path) for path in paths if path})
    roots = (*library, session.folder)

    def is_of(path: Any, folders: Sequence[str]) -> bool:
        text = os.path.realpath(os.fsdecode(path)) if isinstance(path, (str, bytes)) else ""
        return any(text.startswith(f"{folder}/") for folder in folders)

    def may_compile(frame: FrameType | None, name: Any) -> bool:
        caller = frame.f_code.co_filename if frame else ""
        if caller.startswith("<frozen importlib"):
            return is_of(name, roots)
        return is_of(caller, library) and os.path.basename(caller)[:-3] not in _COMPILERS  # noqa: PTH119

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("compile", "exec"):  # `eval` of a text is only the latter
            name = arguments[1] if event == "compile" else arguments[0].co_filename
            if not may_compile(sys._getframe(1), name):
                raise session.refuse("executes a text, and what runs in this process has to be of the tests alone")
        elif event in ("marshal.loads", "code.__new__"):
            caller = sys._getframe(1).f_code.co_filename
            if not caller.startswith("<frozen importlib") and not is_of(caller, library):
                raise session.refuse("makes code of data")
        elif event == "pickle.find_class":
            raise session.refuse("reads a pickle, which may execute anything")
        elif event in _STARTING:
            raise session.refuse("starts a process")

    sys.addaudithook(hook)


def install(session: "Session") -> None:
    """Have imports of the modules of the code find them in its process."""
    sys.meta_path.insert(0, Finder(session))
    watch(session)
