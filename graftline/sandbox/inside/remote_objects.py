"""What tests see in the place of the code under test: modules, classes and objects that live in another process.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

from graftline.sandbox.inside.code_process import ARITHMETIC, COMPARING, DATA
from graftline.sandbox.inside.remote_values import is_plain

REF = "_graftline_ref"
_NOT_ASKED = frozenset(
    [
        "__test__",
        "__wrapped__",
        "__bases__",
        "__code__",
        "__signature__",
        "__array__",
        "__array_ufunc__",
        "__isabstractmethod__",
        "pytestmark",
        "__set_name__",
        "__get__",
        "__objclass__",
        "__func__",
        "__self__",
        "__tracebackhide__",
    ]
)
"""What pytest and mock look for in whatever they meet."""
_OF_IMPORT = ("__name__", "__loader__", "__spec__", "__package__", "__path__", "__file__", "__all__", "__cached__")


class NotApart(BaseException):
    """A test needs the code under test in its own process; no error of the code, and not for `except Exception`."""


class Session(Protocol):
    """What objects ask the process of the code by; see `remote_session`."""

    trusts: str

    def ask(self, question: Mapping[str, Any]) -> Any: ...

    def call(self, ref: int, args: Sequence[Any], kwargs: Mapping[str, Any], special: str = "") -> Any: ...

    def get(self, ref: int, name: str) -> Any: ...

    def set(self, ref: int, name: str, value: Any) -> None: ...

    def delete(self, ref: int, name: str) -> None: ...

    def note_made(self, value: Any) -> None: ...

    def believe(self, name: str, *operands: Any) -> None: ...

    def refuse(self, text: str) -> NotApart: ...


class _Contents(Mapping[str, Any]):
    """What a class or a module of the code has in its own `__dict__`, as whoever replaces something there looks it up."""

    def __init__(self, place: tuple[Session, int]) -> None:
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
                raise own_of(base)[REF][0].refuse(f"derives {name!r} from a class of the code under test")
        return super().__new__(cls, name, bases, body)

    @staticmethod
    def make(session: Session, ref: int, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> "RemoteClass":
        """Return the class that stands for the one that the code knows as `ref`."""
        made: RemoteClass = type.__new__(RemoteClass, name, bases, {**body, REF: (session, ref)})
        return made

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        session, ref = own_of(cls)[REF]
        made = session.call(ref, args, kwargs)
        if type(made) is cls:
            session.note_made(made)
        return made

    def __getattr__(cls, name: str) -> Any:
        __tracebackhide__ = True
        return _attribute(own_of(cls).get(REF), name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name == "__abstractmethods__":
            return
        session, ref = own_of(cls)[REF]
        session.set(ref, name, value)

    def __delattr__(cls, name: str) -> None:
        session, ref = own_of(cls)[REF]
        session.delete(ref, name)

    def __iter__(cls) -> Iterator[Any]:
        session, ref = own_of(cls)[REF]
        return iter(session.call(ref, (), {}, "__iter__"))

    def __len__(cls) -> int:
        session, ref = own_of(cls)[REF]
        return int(session.call(ref, (), {}, "__len__"))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        session, ref = own_of(cls)[REF]
        try:
            return session.call(ref, (key,), {}, "__getitem__")
        except AttributeError:
            return session.get(ref, "__class_getitem__")(key)


class Written:
    """What is written about a class of the code, and about an object of it."""

    def __init__(self, session: Session, ref: int) -> None:
        self._session, self._ref = session, ref

    def __get__(self, instance: Any, owner: type) -> Any:
        return self._session.get(self._ref if instance is None else place_of(instance)[1], "__doc__")


class RemoteObject(metaclass=RemoteClass):
    """An object of the code."""

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        return _attribute(place_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(self, BaseException) and name in ("__traceback__", "__cause__", "__context__", "__notes__"):
            object.__setattr__(self, name, value)
            return
        session, ref = place_of(self)
        session.set(ref, name, value)

    def __delattr__(self, name: str) -> None:
        session, ref = place_of(self)
        session.delete(ref, name)

    def __str__(self) -> str:
        if isinstance(self, BaseException):
            return str(object.__getattribute__(self, "_graftline_text"))
        return repr(self)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        session, ref = place_of(self)
        return session.get(ref, "__dict__")


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
            session, ref = own_of(self)[REF]
            session.set(ref, name, value)

    def __delattr__(self, name: str) -> None:
        if name in own_of(self):
            super().__delattr__(name)
        else:
            session, ref = own_of(self)[REF]
            session.delete(ref, name)


def own_of(value: Any) -> Any:
    """Return what a class or a module has here, and not in the process of the code."""
    kind = type if isinstance(value, type) else ModuleType
    return vars(kind)["__dict__"].__get__(value)


def ref_of(value: Any) -> int:
    """Return the number that the code knows a class, a module or an object by."""
    place = own_of(value)[REF] if isinstance(value, (RemoteClass, RemoteModule)) else place_of(value)
    ref: int = place[1]
    return ref


def place_of(value: Any) -> tuple[Session, int]:
    """Return the session of an object, and its number."""
    place: tuple[Session, int] = object.__getattribute__(value, REF)
    return place


def _attribute(place: tuple[Session, int] | None, name: str) -> Any:
    __tracebackhide__ = True
    if place is None or name in _NOT_ASKED or name.startswith(("_pytest", "_graftline")):
        raise AttributeError(name)
    return place[0].get(place[1], name)


def word_of_the_code(value: Any, operation: str) -> str:
    """Return why nothing is known of what an operation with an object of the code comes to."""
    return (
        f"{operation} of an object of the class {type(value).__name__!r} of the code under test would be its own word;"
        " compare values, or say `trusts: comparisons`"
    )


def special_method(session: Session, name: str) -> Callable[..., Any]:
    """Return the special method `name` of the objects of a class."""

    def ask(self: Any, *args: Any) -> Any:
        __tracebackhide__ = True
        return session.call(place_of(self)[1], args, {}, name)

    def compare(self: Any, other: Any) -> Any:
        __tracebackhide__ = True
        if other is self and name in ("__eq__", "__ne__"):
            return name == "__eq__"
        is_remote = isinstance(other, (RemoteObject, RemoteClass))
        if not is_remote and not is_plain(type(other)):
            return NotImplemented  # an object of the tests, which are trusted to say what they are equal to
        if is_remote or session.trusts == "comparisons":
            answer = session.call(place_of(self)[1], (other,), {}, name)
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
        return session.call(place_of(self)[1], (value,), {}, name)

    if name == "__contains__":
        return contains
    return compare if name in COMPARING | ARITHMETIC else ask
