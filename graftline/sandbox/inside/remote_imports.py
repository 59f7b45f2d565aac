"""How tests import the code under test, and what their process refuses to execute."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from graftline.sandbox.inside.remote_objects import REF, RemoteModule, own_of
from graftline.sandbox.inside.remote_session import Session
from graftline.sandbox.inside.remote_values import LinkError

_COMPILERS = frozenset(
    [
        "timeit",
        "runpy",
        "code",
        "codeop",
        "bdb",
        "pdb",
        "cProfile",
        "profile",
        "trace",
        "doctest",
        "pickle",
        "shelve",
        "zipimport",
    ]
)
"""Modules of the standard library that execute what they are given."""


class Finder(Loader):
    """Finds the modules of the code; those of the tests themselves stay what they are."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._session.names:
            return None
        parts = name.split(".")
        for own in (
            Path(self._session.folder, *parts[:-1], f"{parts[-1]}.py"),
            Path(self._session.folder, *parts, "__init__.py"),
        ):
            if own.is_file():
                return PathFinder.find_spec(name, [str(own.parent if own.name != "__init__.py" else own.parents[1])])
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return RemoteModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        try:
            found = self._session.ask({"do": "import", "name": module.__name__})
        except (SystemExit, KeyboardInterrupt) as error:
            raise ImportError(f"{module.__name__} ended by {type(error).__name__} when it was imported") from error
        match found:
            case [int(ref), bool(is_package), list(names), doc] if all(isinstance(name, str) for name in names):
                own_of(module).update({REF: (self._session, ref), "__all__": names, "__doc__": doc})
                if not is_package:
                    own_of(module).pop("__path__", None)
            case _:
                self._session.note("violation", "the process of the code under test answered with no module")
                raise LinkError("no module")


def watch(session: Session) -> None:
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
        elif event in (
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "os.spawn",
            "os.fork",
            "os.forkpty",
        ):
            raise session.refuse("starts a process")

    sys.addaudithook(hook)


def install(session: Session) -> None:
    """Have imports of the modules of the code find them in its process."""
    sys.meta_path.insert(0, Finder(session))
    watch(session)
