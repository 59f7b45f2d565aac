"""Help: every command and every option of it says what it does, and is in the docs."""

import click
import pytest
from click.testing import CliRunner

from graftline.cli.actor import COMMANDS as OF_ACTOR
from graftline.cli.actors import COMMANDS as OF_ACTORS
from graftline.cli.datasets import COMMANDS as OF_DATASETS
from graftline.cli.eval import COMMANDS as OF_EVAL
from graftline.cli.harbor import COMMANDS as OF_HARBOR
from graftline.cli.harbor_instances import instances
from graftline.cli.main import main
from graftline.cli.models import COMMANDS as OF_MODELS
from graftline.cli.prompts import COMMANDS as OF_PROMPTS
from graftline.cli.recipes import COMMANDS as OF_RECIPES
from graftline.cli.rules import COMMANDS as OF_RULES
from graftline.cli.sandbox import COMMANDS as OF_SANDBOX
from graftline.cli.state import COMMANDS as OF_STATE
from graftline.cli.tinker import COMMANDS as OF_TINKER
from graftline.cli.train import COMMANDS as OF_TRAIN
from graftline.cli.trajectories import COMMANDS as OF_TRAJECTORIES
from tests.pages import PAGES, codes, section, table

GROUPS = {
    "actor": OF_ACTOR,
    "actors": OF_ACTORS,
    "datasets": OF_DATASETS,
    "eval": OF_EVAL,
    "harbor": OF_HARBOR,
    "models": OF_MODELS,
    "prompts": OF_PROMPTS,
    "recipes": OF_RECIPES,
    "rules": OF_RULES,
    "sandbox": OF_SANDBOX,
    "state": OF_STATE,
    "tinker": OF_TINKER,
    "train": OF_TRAIN,
    "trajectories": OF_TRAJECTORIES,
}
COMMANDS = sorted([*GROUPS, "check", "doctor", "licences", "lineage", "run", "summary", "wiring"])
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
LEAVES: dict[str, click.Command] = {name: command for name, command in main.commands.items() if name not in GROUPS} | {
    f"{group} {command.name}": command
    for group, commands in GROUPS.items()
    for command in commands
    if command is not instances
}
LEAVES |= {f"harbor instances {name}": command for name, command in instances.commands.items()}


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


@pytest.mark.parametrize("group", [[], *([group] for group in GROUPS)])
def test_no_command_at_all_is_wrong_usage_answered_with_the_help(group: list[str]) -> None:
    result = CliRunner().invoke(main, group, prog_name="graftline")

    assert (result.exit_code, result.stdout, result.stderr.splitlines()[0]) == (
        2,
        "",
        f"Usage: {' '.join(['graftline', *group])} [OPTIONS] COMMAND [ARGS]...",
    )


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("name", [*LEAVES, *GROUPS])
def test_every_command_has_help(name: str, option: str) -> None:
    result = CliRunner().invoke(main, [*name.split(), option], prog_name="graftline")

    assert (result.exit_code, result.stderr) == (0, "")
    usage, _, rest = result.stdout.partition("\n\n")
    assert (usage.startswith(f"Usage: graftline {name} [OPTIONS]"), rest[:2], rest[2:3].isupper()) == (True, "  ", True)


@pytest.mark.parametrize("name", [*LEAVES, *GROUPS])
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    command = LEAVES[name] if name in LEAVES else main.commands[name]
    silent = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]

    assert (silent, command.help is not None and command.help.endswith((".", "?"))) == ([], True)


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in PLAIN])
def test_every_command_can_answer_in_json(name: str) -> None:
    assert [option.name for option in LEAVES[name].params if "--json" in option.opts] == ["as_json"]


def test_every_command_of_datasets_and_its_options_are_in_the_docs_and_no_other() -> None:
    page = PAGES["docs/cli.md"].read_text("utf-8")
    headings = [line.split("`")[1] for line in page.splitlines() if line.startswith("### `graftline datasets ")]
    assert headings == [f"graftline datasets {name}" for name in DATASET_COMMANDS]
    for command in OF_DATASETS:
        rows = table(section("docs/cli.md", f"### `graftline datasets {command.name}`"))
        options = {one for option in command.params if isinstance(option, click.Option) for one in option.opts}
        assert {option for row in rows for option in codes(row[0])} == options, command.name


def test_the_splits_that_help_names_are_the_splits() -> None:
    from graftline.datasets.splits import SPLITS

    named = {
        command.name: tuple(option.type.choices)
        for command in OF_DATASETS
        for option in command.params
        if isinstance(option.type, click.Choice)
    }
    assert named == {"split": SPLITS, "sample": SPLITS}
