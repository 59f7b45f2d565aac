"""What pages show to be typed at a shell, one simple command after the other, and who says whether it can be.

Nothing is run: `graftline` and `dagster` are asked by the commands that they are built of, programs of `argparse` by their
parsers, `make` by the Makefile. A fault is one sentence; a command without one is None.
"""

import argparse
import importlib
import re
import shlex
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.exceptions import NoArgsIsHelpError

from graftline.cli.renamed import update_names
from tests.pages import CHECKOUT, fences

SHELLS = ("bash", "sh", "console")
_BETWEEN = frozenset({"&&", "||", "|", ";", "&"})
OTHER_PROGRAMS = frozenset({
    # the shell, and what a machine has
    "cat", "cd", "cp", "dot", "du", "echo", "export", "ls", "mkdir", "openssl", "printf", "rm", "scp", "sed", "sh", "sort",
    "source", "ssh", "tail", "tar",
    # what is not ours
    "docker", "dvc", "git", "helm", "kubectl", "pip",
    # tests/test_docs_cluster.py starts the worker
    "celery",
})  # fmt: skip
"""Programs whose options nothing here knows."""
MODULES = frozenset({"assets.partitions", "pytest", "resources.dbt", "venv", "zipfile"})
"""What `python -m` runs besides programs of `argparse` of this checkout."""


@dataclass(frozen=True)
class Command:
    """One simple command, of a line that may have several."""

    page: str
    line: int
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """Its name, wherever it is installed."""
        return Path(self.words[0]).name


def shown_commands() -> Iterator[Command]:
    """Yield every command of every block of a shell, in the order of pages and lines."""
    for fence in fences():
        if fence.language in SHELLS:
            for number, text in _lines(fence.body):
                for words in simple_commands(text):
                    yield Command(fence.page, fence.line + number, words)


def _lines(body: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: those that go on with a backslash as one, those of documents in them not at all."""
    end, begun, parts = "", 0, list[str]()
    for number, line in enumerate(body.splitlines(), 1):
        if end:
            end = "" if line == end else end
            continue
        begun = begun if parts else number
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        text = " ".join(parts).removeprefix("$ ")
        parts = []
        if found := re.search(r"<<'?(\w+)'?", text):
            end, text = found[1], text.replace(found[0], "")
        yield begun, text


def simple_commands(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every simple command of a line, of those in `$(...)` first, without what is redirected.

    >>> list(simple_commands("A=1 graftline check > said && cat $(ls logs)"))
    [('ls', 'logs'), ('graftline', 'check'), ('cat', '-')]
    """
    while (start := text.find("$(")) >= 0:
        length = _until_closed(text[start + 2 :])
        yield from simple_commands(text[start + 2 : start + 2 + length])
        text = f"{text[:start]}-{text[start + 3 + length :]}"
    # `<name>` stands for something
    reader = shlex.shlex(re.sub(r"<(\w+)>", r"\1", text), posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words, is_target = list[str](), False
    for word in [*reader, ";"]:
        if word in _BETWEEN:
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                yield tuple(words)
            words = []
        elif is_target or word in (">", ">>"):
            is_target = not is_target
        else:
            words.append(word)


def _until_closed(text: str) -> int:
    depth = 1
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return at
    raise ValueError(f"{text!r}: no parenthesis closes it")


def fault(words: Sequence[str], is_mention: bool = False) -> str | None:
    """Return what is wrong with a command, or None; one that a sentence mentions may lack its arguments."""
    program, arguments = Path(words[0]).name, words[1:]
    if program in CLICK_PROGRAMS:
        return click_fault(CLICK_PROGRAMS[program](), program, arguments, is_mention)
    judge = _JUDGES.get(program)
    if judge is not None:
        return judge(arguments)
    return None if program in OTHER_PROGRAMS else f"{program}: no program that the documentation may show"


def _graftline() -> click.Command:
    from graftline.cli.main import main

    return main


def _dagster() -> click.Command:
    from dagster._cli import create_dagster_cli

    return create_dagster_cli()


def _dg() -> click.Command:
    with warnings.catch_warnings():
        # it imports what its click of the next version will not have
        warnings.simplefilter("ignore", DeprecationWarning)
        import typer  # noqa: F401 - before its commands do so, one after the other
        from dagster_dg_cli.cli import create_dg_cli

    return create_dg_cli()


CLICK_PROGRAMS: Mapping[str, Callable[[], click.Command]] = {
    "graftline": _graftline,
    "dagster": _dagster,
    "dg": _dg,
}


def click_fault(command: click.Command, name: str, arguments: Sequence[str], is_mention: bool = False) -> str | None:
    """Parse what is typed by the commands that a program is built of; none of them is run."""
    with pytest.MonkeyPatch.context() as patch:
        # files that a page makes are not here
        patch.setattr(click.Path, "convert", lambda self, value, param, context: value)
        patch.setattr("graftline.cli.main.update_names", _refuse_old_names)
        try:
            _parse(command, name, list(arguments))
        except click.exceptions.Exit:
            return None  # `--help`, `--version`
        except (click.MissingParameter, NoArgsIsHelpError) as error:
            return None if is_mention else f"{name}: {error.format_message()}"
        except click.UsageError as error:
            return f"{name}: {error.format_message()}"
    return None


def _refuse_old_names(group: click.Group, context: click.Context, words: list[str]) -> tuple[list[str], Sequence[str]]:
    words, notices = update_names(group, context, words)
    if notices:
        raise click.UsageError(notices[0])
    return words, ()


def _parse(command: click.Command, name: str, arguments: list[str], parent: click.Context | None = None) -> None:
    context = command.make_context(name, arguments, parent=parent)
    # the rest is for the next command, whose name stands first
    rest = [*context._protected_args, *context.args]
    if isinstance(command, click.Group) and (rest or not command.invoke_without_command):
        found, inner, rest = command.resolve_command(context, rest)
        if inner is None:
            raise click.UsageError(f"no command {found!r}", context)
        _parse(inner, inner.name or "", rest, context)


def _of_make(arguments: Sequence[str]) -> str | None:
    named = [word for word in arguments if "=" not in word]
    unknown = [word for word in named if word not in make_targets()]
    return f"make: no target {', '.join(unknown)}" if unknown or not named else None


@cache
def make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z-]+):.*##", (CHECKOUT / "Makefile").read_text("utf-8"), re.M))


def _of_python(arguments: Sequence[str]) -> str | None:
    if arguments[:1] == ("-c",):
        return None
    if arguments[:1] != ("-m",):
        return "python: the documentation shows no script"
    module, *options = arguments[1:]
    if module in MODULES:
        return None
    if not module.startswith(("benchmarks.", "orchestration.")):
        return f"python: no module {module!r} that the documentation may show"
    return argparse_fault(module, options)


class _Parsed(Exception):
    """Ends a program where its command line was understood."""


def argparse_fault(module: str, options: Sequence[str]) -> str | None:
    """Have the parser of a program read its command line, and stop there."""
    parse = argparse.ArgumentParser.parse_args

    def stopped(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> NoReturn:
        parse(parser, options)
        raise _Parsed

    def failed(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise click.UsageError(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stopped)
        patch.setattr(argparse.ArgumentParser, "error", failed)
        patch.setattr(sys, "argv", [module, *options])
        try:
            importlib.import_module(module).main()
        except _Parsed:
            return None
        except click.UsageError as error:
            return f"python -m {module}: {error.message}"
        except ModuleNotFoundError as error:
            return f"python -m {module}: {error}"
    return f"python -m {module}: reads no command line"


def _of_pip(arguments: Sequence[str]) -> str | None:
    return unknown_extras(" ".join(arguments))


def unknown_extras(text: str) -> str | None:
    """Return which extras of this package are named in `text`, and are none."""
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    found = re.findall(r"(?:-e '?\.|graftline)\[([\w, -]+)\]", text)
    unknown = [name for names in found for name in re.split(", *", names) if name not in extras]
    return f"pip: no extra {', '.join(unknown)}" if unknown else None


_JUDGES: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "make": _of_make,
    "pip": _of_pip,
    "python": _of_python,
    "python3": _of_python,
}
