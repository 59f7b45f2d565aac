"""Help: every command and every option of it says what it does."""

import click
import pytest
from click.testing import CliRunner

from graftline.cli import main

COMMANDS = ["check", "doctor", "run", "summary", "wiring"]


@pytest.fixture(autouse=True)
def _environment_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VAULT_ADDR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_lists_every_command(option: str) -> None:
    result = CliRunner().invoke(main, [option], prog_name="graftline")

    listed = result.stdout.partition("Commands:\n")[2].splitlines()
    assert (result.exit_code, result.stderr, [line.split()[0] for line in listed]) == (0, "", COMMANDS)
    assert [line for line in listed if len(line.split()) < 2] == []


def test_no_command_at_all_is_wrong_usage_answered_with_the_help() -> None:
    result = CliRunner().invoke(main, [], prog_name="graftline")

    assert (result.exit_code, result.stdout, result.stderr.splitlines()[0]) == (
        2,
        "",
        "Usage: graftline [OPTIONS] COMMAND [ARGS]...",
    )


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, option: str) -> None:
    result = CliRunner().invoke(main, [name, option], prog_name="graftline")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: graftline {name} [OPTIONS]\n\n  ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    command = main.commands[name]
    silent = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]

    assert (silent, command.help is not None and command.help.endswith(".")) == ([], True)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_answer_in_json(name: str) -> None:
    assert [option.name for option in main.commands[name].params if "--json" in option.opts] == ["as_json"]
