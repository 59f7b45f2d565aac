"""The files for systemd and supervisord: those of the checkout are those of the configuration, and both programs read them."""

import os
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from graftline.llm.fleet import Actor, Fleet, load_fleet
from graftline.llm.servers.commands import units, write_units
from graftline.llm.servers.supervisor import answer
from tests import vllm_stand_in
from tests.kept_fleet import comes, free_port
from tests.processes import running

AWKWARD = "a \"b\" \\ $HOME %h 'c'"
FLEET = Fleet(
    engine="vllm",
    model="m",
    served_name="m 100%",
    arguments=("--chat-template", AWKWARD, ""),
    variables={"ODD": 'say "100%", $HOME'},
    shutdown_s=45,
    api_key="OUR_KEY",
    actors=(
        Actor(name="one", url="http://127.0.0.1:8001", gpu_ids=(0,)),
        Actor(name="two", url="http://127.0.0.1:8002", gpu_ids=(1,)),
    ),
)


def test_the_files_of_the_checkout_are_those_of_its_configuration(checkout: Path) -> None:
    fleet = load_fleet(checkout / "configs", "gpu")
    folder = checkout / "deploy"
    there = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in (*folder.glob("systemd/*"), folder / "supervisord.conf")
    }
    assert there == units("gpu", fleet, fleet.model, Path("/opt/graftline"))


def test_a_unit_stops_as_a_keeper_does() -> None:
    lines = units("gpu", FLEET, "m", Path("/opt/graftline"))["systemd/graftline-gpu-one.service"].splitlines()
    wanted = {
        "Restart=always",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=55",
        'Environment="CUDA_VISIBLE_DEVICES=0"',
        "EnvironmentFile=/etc/graftline/actors.env",
        'Environment="ODD=say \\"100%%\\", $HOME"',
    }
    assert wanted - set(lines) == set()
    (started,) = [line for line in lines if line.startswith("ExecStart=")]
    # a word in quotes, in which \, ", % and $ are escaped, each in systemd's own way; and an empty one
    assert started.endswith(""" --chat-template "a \\"b\\" \\\\ $$HOME %%h 'c'" \"\"""")


def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("systemd-analyze is not here; it comes with systemd")
    vllm_stand_in.install(tmp_path / "vllm")
    written = write_units("gpu", FLEET, "m", tmp_path, tmp_path / "deploy")
    found = subprocess.run([systemd, "verify", *written[:2]], capture_output=True, text=True, timeout=240, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def supervised(folder: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the one group of programs that supervisord reads in the file for `fleet`."""
    options = pytest.importorskip("supervisor.options", reason="pip install supervisor")
    vllm_stand_in.install(folder / "vllm")
    *_, path = write_units("gpu", fleet, "m", folder, folder)
    path.write_text(path.read_text("utf-8").replace("/var/log/graftline", str(folder)), "utf-8")
    monkeypatch.setenv("OUR_KEY", "the-key")
    server = options.ServerOptions()
    server.realize(["-c", str(path)], doc="")
    (group,) = server.process_group_configs
    return group


def test_supervisord_reads_what_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = supervised(tmp_path, FLEET, monkeypatch)
    first, second = group.process_configs
    assert (group.name, first.name, second.name) == ("gpu", "graftline-gpu-one", "graftline-gpu-two")
    assert shlex.split(first.command)[-3:] == ["--chat-template", AWKWARD, ""]
    assert {key: first.environment[key] for key in ("CUDA_VISIBLE_DEVICES", "ODD", "VLLM_API_KEY")} == {
        "CUDA_VISIBLE_DEVICES": "0",
        "ODD": 'say "100%", $HOME',
        "VLLM_API_KEY": "the-key",
    }
    assert (first.autorestart.__name__, first.stopwaitsecs, first.stopasgroup, first.killasgroup) == (
        "RestartUnconditionally",
        55,
        False,
        True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_server_below_supervisord(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    port = free_port()
    actor = Actor(name="one", url=f"http://127.0.0.1:{port}")
    fleet = Fleet(engine="vllm", model="m", arguments=("--with-child",), actors=(actor,))
    command = shlex.split(supervised(tmp_path, fleet, monkeypatch).process_configs[0].command)
    with subprocess.Popen(command, process_group=0) as program:
        try:
            assert comes(lambda: answer(actor.url, "/health") is not None)
            server, *rest = psutil.Process(program.pid).children(recursive=True)
            assert rest != []
            # supervisord speaks to the program that it has started
            (psutil.Process(program.pid) if number == signal.SIGTERM else server).send_signal(number)
            assert comes(lambda: not running([server, *rest]))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
