"""Help: every command and every option of it says what it does, and is in the docs."""

import click
import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from tests.pages import PAGES, codes, section, table

DATASET_COMMANDS = ["list", "fetch", "normalize", "split", "stats", "verify", "sample", "export-dvc", "publish"]
NAMES = {
    "actor": ["queue", "revive", "run"],
    "actors": ["up", "down", "status", "logs", "units"],
    "datasets": DATASET_COMMANDS,
    "eval": ["run", "list", "report", "compare", "deploy"],
    "harbor": [
        *("serve", "migrate", "upload", "list", "status", "build", "instances"),
        *("run", "eval", "calibrate", "import", "export"),
    ],
    "models": ["fetch", "list", "verify", "convert", "adapter"],
    "prompts": ["list", "optimize", "show", "resume", "cancel"],
    "recipes": ["list", "show", "run"],
    "rules": ["induce", "apply", "explain", "test", "mine"],
    "sandbox": ["probe", "apply", "test"],
    "state": ["dump", "list", "history"],
    "tinker": ["serve"],
    "train": ["estimate", "upload", "run", "status", "resume", "list", "download"],
    "trajectories": ["export", "upload"],
}
PLAIN = {"actor revive", "actors logs", "actors units", "eval report"}
"""What says a line, a log, a page or names of files, and nothing that a program would want in another form."""


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
LEAVES = {name: command for name, command in EVERYTHING.items() if not isinstance(command, click.Group)}
COMMANDS = sorted([*NAMES, "check", "doctor", "licenses", "lineage", "run", "summary", "wiring"])


@pytest.fixture(autouse=True)
def _environment_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VAULT_ADDR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize(
    ("group", "commands"),
    [([], COMMANDS), *(([group], names) for group, names in NAMES.items())],
)
def test_the_help_lists_every_command(group: list[str], commands: list[str], option: str) -> None:
    result = CliRunner().invoke(main, [*group, option], prog_name="graftline")

    listed = result.stdout.partition("Commands:\n")[2].splitlines()
    assert (result.exit_code, result.stderr, [line.split()[0] for line in listed]) == (0, "", commands)
    assert [line for line in listed if len(line.split()) < 2] == []


@pytest.mark.parametrize("group", [[], *([group] for group in NAMES)])
def test_no_command_at_all_is_wrong_usage_answered_with_the_help(group: list[str]) -> None:
    result = CliRunner().invoke(main, group, prog_name="graftline")

    assert (result.exit_code, result.stdout, result.stderr.splitlines()[0]) == (
        2,
        "",
        f"Usage: {' '.join(['graftline', *group])} [OPTIONS] COMMAND [ARGS]...",
    )


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("name", EVERYTHING)
def test_every_command_has_help(name: str, option: str) -> None:
    result = CliRunner().invoke(main, [*name.split(), option], prog_name="graftline")

    assert (result.exit_code, result.stderr) == (0, "")
    usage, _, text = result.stdout.partition("\n\n")
    assert (usage.startswith(f"Usage: graftline {name} [OPTIONS]"), text[:2], text[2:3].isupper()) == (True, "  ", True)


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    command = EVERYTHING[name]
    silent = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]

    assert (silent, command.help is not None and command.help.endswith((".", "?"))) == ([], True)


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in PLAIN])
def test_every_command_can_answer_in_json(name: str) -> None:
    assert [option.name for option in LEAVES[name].params if "--json" in option.opts] == ["as_json"]


def test_every_command_of_datasets_and_its_options_are_in_the_docs_and_no_other() -> None:
    page = PAGES["docs/cli.md"].read_text("utf-8")
    headings = [line.split("`")[1] for line in page.splitlines() if line.startswith("### `graftline datasets ")]
    assert headings == [f"graftline datasets {name}" for name in DATASET_COMMANDS]
    for name in DATASET_COMMANDS:
        rows = table(section("docs/cli.md", f"### `graftline datasets {name}`"))
        params = LEAVES[f"datasets {name}"].params
        spellings = {spelling for param in params if isinstance(param, click.Option) for spelling in param.opts}
        assert {option for row in rows for option in codes(row[0])} == spellings, name


def test_the_splits_that_help_names_are_the_splits() -> None:
    from graftline.datasets.splits import SPLITS

    named = {
        name: tuple(option.type.choices)
        for name in DATASET_COMMANDS
        for option in LEAVES[f"datasets {name}"].params
        if isinstance(option.type, click.Choice)
    }
    assert named == {"split": SPLITS, "sample": SPLITS}
