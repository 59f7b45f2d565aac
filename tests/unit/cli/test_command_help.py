"""Help: every command and every option of it says what it does, and is in the docs."""

import re
import time

import click
import pytest
from click.testing import CliRunner

from graftline.cli import renamed
from graftline.cli.main import main

PLAIN = {"worker retry", "model logs", "model units", "eval report", "mcp"}
"""What says a line, a log, a page, names of files or a protocol, and nothing that a program would want in another form."""


def walk(group: click.Group, name: str = "") -> dict[str, click.Command]:
    """Return the commands and groups below `group`, by what is typed."""
    context = click.Context(group)
    commands: dict[str, click.Command] = {}
    for part in group.list_commands(context):
        command = group.get_command(context, part)
        assert command is not None
        commands[f"{name} {part}".strip()] = command
        if isinstance(command, click.Group):
            commands |= walk(command, f"{name} {part}".strip())
    return commands


EVERYTHING = walk(main)
GROUPS = [name for name, command in EVERYTHING.items() if isinstance(command, click.Group)]
LEAVES = {name: command for name, command in EVERYTHING.items() if name not in GROUPS}


def ask(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words, prog_name="graftline")
    return result.exit_code, result.stdout, result.stderr


def test_the_commands_are_those_that_a_newcomer_is_told_of() -> None:
    commands = {name for name in EVERYTHING if " " not in name}
    assert commands == {
        *(
            "refactor",
            "follow",
            "learn",
            "apply",
            "undo",
            "test",
            "explain",
            "mine",
            "mcp",
            "run",
            "status",
            "check",
            "doctor",
            "config",
            "lineage",
            "licenses",
        ),
        *("data", "train", "model", "eval", "env", "worker", "prompt", "sandbox", "state", "tinker"),
    }


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("group", ["", *GROUPS])
def test_the_help_lists_every_command_with_a_whole_sentence(group: str, option: str) -> None:
    code, out, err = ask(*group.split(), option)
    summaries = dict[str, str]()
    for line in out.partition("Options:\n")[2].splitlines():
        entry = re.match(r" {2}([a-z][a-z-]*)  +(\S.*)", line)
        if entry:
            summaries[entry[1]] = entry[2]
        elif line.startswith("   ") and summaries:
            summaries[[*summaries][-1]] += f" {line.strip()}"
    expected = [name.removeprefix(group).strip() for name in EVERYTHING if name.rpartition(" ")[0] == group]
    assert (code, err, sorted(summaries)) == (0, "", sorted(expected))
    assert [text for text in summaries.values() if not re.fullmatch(r"[A-Z].*[.?]", text) or "..." in text] == []


def test_the_help_is_there_at_once() -> None:
    start = time.process_time()
    ask("--help")
    assert time.process_time() - start < 0.3


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_no_command_at_all_is_wrong_usage_answered_with_the_help(group: str) -> None:
    code, out, err = ask(*group.split())
    usage = f"Usage: {' '.join(['graftline', *group.split()])} [OPTIONS] COMMAND [ARGS]..."
    assert (code, out, err.splitlines()[0]) == (2, "", usage)


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    code, out, err = ask(*name.split(), "-h")
    usage, _, text = out.partition("\n\n")
    assert (code, err, usage.startswith(f"Usage: graftline {name} [OPTIONS]"), text[2:3].isupper()) == (
        0,
        "",
        True,
        True,
    )
    command = EVERYTHING[name]
    silent = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]
    assert (silent, command.help is not None and command.help.endswith((".", "?"))) == ([], True)


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in PLAIN])
def test_every_command_can_answer_in_json(name: str) -> None:
    assert [option.name for option in LEAVES[name].params if "--json" in option.opts] == ["as_json"]


def test_the_splits_that_help_names_are_the_splits() -> None:
    from graftline.datasets.splits import SPLITS

    choices = {
        name: tuple(option.type.choices)
        for name, command in LEAVES.items()
        for option in command.params
        if "--split" in option.opts and isinstance(option.type, click.Choice)
    }
    assert choices == dict.fromkeys(("data build", "data show", "data export"), SPLITS)


def test_what_an_option_stands_for_is_the_same_everywhere() -> None:
    kinds: dict[str, set[str]] = {}
    for command in LEAVES.values():
        for param in command.params:
            for spelling in param.opts if isinstance(param, click.Option) else ():
                kind = "flag" if param.is_flag else type(param.type).__name__
                # what one command chooses from may be known to another only once its configuration is read
                kinds.setdefault(spelling, set()).add(kind.replace("Choice", "StringParamType"))
    assert {name: sorted(types) for name, types in kinds.items() if len(types) > 1} == {}
    assert {name for name, command in LEAVES.items() if any("--port" in param.opts for param in command.params)} == {
        *("env serve", "tinker serve")
    }


@pytest.mark.parametrize("typed", renamed.COMMANDS)
def test_an_old_name_is_understood_and_the_new_one_said(typed: str) -> None:
    rest = [] if typed == "train --status" else ["--help"]
    words = typed.split()
    code, out, err = ask(*words, *rest)
    current = renamed.COMMANDS[typed]
    assert (
        err.splitlines()[0]
        == f"`graftline {typed}` is now `graftline {current}`; the old name goes with the next version"
    )
    assert (code, out.startswith(f"Usage: graftline {current} ")) == ((0, True) if rest else (2, False))
    assert current in EVERYTHING


@pytest.mark.parametrize(
    ("words", "notice"),
    [
        (["config", "--port", "sandbox=memory"], "`--port` of `graftline config` is now `--set`"),
        (["learn", "a.py", "b.py", "--out=c.yml"], "`--out` of `graftline learn` is now `--output`"),
        (["env", "list", "--backend-url", "x"], "`--backend-url` of `graftline env list` is now `--url`"),
        (["data", "show", "--drops", "all"], "`--drops` of `graftline data show` is now `--rejected`"),
        (["tinker", "serve", "--root", "x"], "`--root` of `graftline tinker serve` is now `--store`"),
        (["model", "serve", "--wait", "1"], "`--wait` of `graftline model serve` is now `--timeout`"),
    ],
)
def test_an_old_option_is_understood_and_the_new_one_said(words: list[str], notice: str) -> None:
    code, _, err = ask(*words, "--help")
    assert (code, err) == (0, f"{notice}; the old name goes with the next version\n")


@pytest.mark.parametrize(
    "words",
    [["env", "serve", "--port", "0"], ["harbor", "list"], ["state", "list", "--root", "x"], ["data", "--", "--port"]],
)
def test_what_is_called_so_still_is_left_alone(words: list[str]) -> None:
    assert "is now" not in ask(*words, "--help")[2]
