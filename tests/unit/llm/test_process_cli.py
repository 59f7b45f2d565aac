"""The commands below `graftline model`."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.cli.model import logs, serve, status, stop, units
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.llm.servers.processes import fleet_status
from graftline.llm.servers.supervisor import log_path
from tests.kept_fleet import NAME, KeptFleet


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptFleet]:
    fleet = KeptFleet(tmp_path_factory.mktemp("commands"))
    fleet.configure("--says", "the first line")
    fleet.up()
    yield fleet
    fleet.down()


def said(kept: KeptFleet, command: click.Command, *words: str) -> tuple[int, str]:
    environment = {**kept.environment, "GRAFTLINE_FLEET": NAME}
    # a command keeps the option for help that it was first asked with, which is that of the whole command line
    result = CliRunner(env=environment).invoke(command, words, obj=kept.paths.root, **main.context_settings)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def shown(kept: KeptFleet, command: click.Command, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said(kept, command, *words, "--json")[1])
    return found


def test_status_as_json_has_everything(kept: KeptFleet) -> None:
    (found,) = shown(kept, status)
    assert found.pop("uptime_s") >= 0
    assert found == {
        "name": "actor-0",
        "url": f"http://127.0.0.1:{kept.port()}",
        "phase": "up",
        "pid": kept.state().server,
        "restarts": 0,
        "failures": 0,
        "ended": "",
        "load": {
            "running": 3,
            "waiting": 2,
            "waiting_for_room": 2,
            "kv_use": 0.25,
            "preemptions": 0,
            "prompt_tokens": 1200,
            "completion_tokens": 345,
            "steps": 1545,
            "is_asleep": False,
        },
    }


def test_status_as_a_table_has_a_row_for_each(kept: KeptFleet) -> None:
    code, text = said(kept, status)
    row = next(line for line in text.splitlines() if "actor-0" in line)
    assert (code, re.sub(r"\d+:\d\d:\d\d", "TIME", " ".join(row.split()))) == (
        0,
        f"actor-0 up http://127.0.0.1:{kept.port()} {kept.state().server} TIME 0 3 2 25% 1200 345",
    )


def test_up_says_that_it_is_up(kept: KeptFleet) -> None:
    assert [(one["phase"], one["pid"]) for one in shown(kept, serve)] == [("up", kept.state().server)]


@pytest.mark.parametrize("options", [["-n", "1"], ["-f", "-n", "1"]])
def test_logs_shows_the_last_lines_and_follows(kept: KeptFleet, options: list[str]) -> None:
    program = "import pathlib, graftline.cli.model as cli; cli.logs(obj=pathlib.Path('.'))"
    command = [sys.executable, "-c", program, "--fleet", NAME, "actor-0", *options]
    with subprocess.Popen(command, cwd=kept.paths.root, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout
        lines = [shown.stdout.readline()]
        if "-f" in options:
            with log_path(kept.paths, NAME, "actor-0").open("a", encoding="utf-8") as log:
                log.write("the next line\n")
            lines.append(shown.stdout.readline())
            shown.terminate()
    assert lines == ["the first line\n", "the next line\n"][: len(lines)]


def test_an_actor_without_a_log_is_named_with_those_that_have_one(kept: KeptFleet) -> None:
    with pytest.raises(ConfigError, match="actor 'x' of fleet 'tested' has no log; those that have one: actor-0"):
        said(kept, logs, "x")


def test_status_of_a_service_asks_for_its_models(kept: KeptFleet) -> None:
    service = kept.fleet.model_copy(update={"engine": "service"})
    (found,) = fleet_status(Paths(kept.paths.root / "elsewhere"), NAME, service)
    assert (found.phase, found.pid) == ("up", None)


def test_status_fails_where_not_all_are_up(kept: KeptFleet, tmp_path: Path) -> None:
    other = KeptFleet(tmp_path)
    code, text = said(other, status, "--json")
    assert (code, [(one["phase"], one["pid"], one["load"]) for one in json.loads(text)]) == (1, [("down", None, None)])


def test_down_says_what_became_of_each(tmp_path: Path) -> None:
    other = KeptFleet(tmp_path)
    other.up()
    assert said(other, stop) == (0, "actor-0: stopped\ntested: down\n")
    assert said(other, stop, "--json") == (0, "{}\n")


def test_units_names_the_files_that_it_wrote(kept: KeptFleet, tmp_path: Path) -> None:
    written = [tmp_path / "systemd" / "graftline-tested-actor-0.service", tmp_path / "supervisord.conf"]
    assert said(kept, units, "--output", str(tmp_path)) == (0, "".join(f"{path}\n" for path in written))
    assert [path.is_file() for path in written] == [True, True]
