"""Units for systemd, and a file for supervisord, that run the actors of a fleet without Graftline's own keepers.

They hold whole commands: a machine with nothing but vLLM can run them. What is said here of ends and restarts is what
`graftline.llm.servers.keeper` does: the server alone is asked to end, gets its time-out and some more, and nothing of its
group outlives it. Only what a killed supervisord leaves goes on.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from graftline.core.record import write_atomically
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.servers.commands import KILL_AFTER_S, Launch, Machine, launch_of

_USER = "graftline"
_KEY_FILE = Path("/etc/graftline/actors.env")
_CACHE = Path("/var/cache/graftline")
_LOGS = Path("/var/log/graftline")
_RESTART_S = 5
_ALONE = 'trap "kill -TERM \\$s" TERM; "$@" & s=$!; while kill -0 $s 2>/dev/null; do wait $s; done; kill -KILL 0'
"""Runs a command, and kills the rest of its group when it has ended: the engine of a killed vLLM would go on, with all of
its memory, and supervisord would not see it."""
_START_TRIES = 1_000_000
_PLAIN = re.compile(r"[\w@%+=:,./$-]+")
_OPEN_FILES = 65536
_LEAST_OPEN_FILES = 8192  # supervisord does not start where it cannot have them


def units(name: str, fleet: Fleet, weights: str, home: Path) -> dict[str, str]:
    """Return the files by name, for machines that have Graftline in `home/venv` and vLLM in `home/vllm`.

    Raises:
        ConfigError: the fleet is a service, or cannot be started with these settings.
    """
    threads = sum(actor.threads or 0 for actor in fleet.actors)
    machine = Machine(home / "venv" / "bin" / "python", home / "vllm", range(max(threads, 1)), home)
    launches = {actor: launch_of(fleet, actor, weights, machine) for actor in fleet.actors}
    services = {
        f"systemd/{_program(name, actor)}.service": _service(name, fleet, actor, launch, home)
        for actor, launch in launches.items()
    }
    return {**services, "supervisord.conf": _supervisord(name, fleet, launches, home)}


def write_units(name: str, fleet: Fleet, weights: str, home: Path, into: Path) -> list[Path]:
    """Write the files below `into` and return their paths; those of other fleets stay."""
    files = units(name, fleet, weights, home)
    for file, text in files.items():
        write_atomically(into / file, text)
    return [into / file for file in files]


def _program(name: str, actor: Actor) -> str:
    return f"graftline-{name}-{actor.name}"


def _variables(launch: Launch) -> dict[str, str]:
    # what servers compile and download is kept between two starts
    return {"HOME": str(_CACHE), "XDG_CACHE_HOME": str(_CACHE), **launch.variables}


def _service(name: str, fleet: Fleet, actor: Actor, launch: Launch, home: Path) -> str:
    lines = [
        f"# Written by `graftline actors units --fleet {name}`; for the machine that {actor.url} leads to.",
        "[Unit]",
        f"Description=Graftline actor {actor.name} of fleet {name}: {_doubled(fleet.called)}",
        "Wants=network-online.target",
        "After=network-online.target",
        # it is tried again for ever
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"User={_USER}",
        f"WorkingDirectory={home}",
        f"CacheDirectory={_CACHE.name}",
        *(f"Environment={_quoted(f'{key}={value}')}" for key, value in _variables(launch).items()),
        *_key_lines(fleet, launch),
        f"ExecStart={' '.join(map(_word, launch.command))}",
        "Restart=always",
        f"RestartSec={_RESTART_S}",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        f"TimeoutStopSec={fleet.shutdown_s + KILL_AFTER_S}",
        f"LimitNOFILE={_OPEN_FILES}",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "ProtectClock=yes",
        "ProtectControlGroups=yes",
        "ProtectHostname=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "LockPersonality=yes",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "SystemCallArchitectures=native",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _key_lines(fleet: Fleet, launch: Launch) -> list[str]:
    if not launch.key_variable:
        return []
    return [
        f"# holds {launch.key_variable}=<the value of {fleet.api_key} where the actors are asked>; for root alone to read",
        f"EnvironmentFile={_KEY_FILE}",
    ]


def _quoted(text: str) -> str:
    """Return one value of systemd, in which nothing is replaced."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_doubled(escaped)}"'


def _word(text: str) -> str:
    """Return one word of a command of systemd."""
    word = text.replace("$", "$$")
    return _doubled(word) if _PLAIN.fullmatch(word) else _quoted(word)


def _supervisord(name: str, fleet: Fleet, launches: Mapping[Actor, Launch], home: Path) -> str:
    head = [
        f"; Written by `graftline actors units --fleet {name}`. Started as the user {_USER}, to whom {_CACHE} and {_LOGS}",
        "; belong. On a machine that has some of the actors only, the programs of the others are to be taken out.",
        "[unix_http_server]",
        "file=%(here)s/supervisor.sock",
        "chmod=0700",
        "",
        "[supervisord]",
        f"logfile={_LOGS}/supervisord.log",
        "pidfile=%(here)s/supervisord.pid",
        f"minfds={_LEAST_OPEN_FILES}",
        "",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
        "",
        "[supervisorctl]",
        "serverurl=unix://%(here)s/supervisor.sock",
        "",
        f"[group:{name}]",
        f"programs={','.join(_program(name, actor) for actor in launches)}",
    ]
    programs = [_program_lines(name, fleet, actor, launch, home) for actor, launch in launches.items()]
    return "\n".join([*head, *(line for lines in programs for line in lines)]) + "\n"


def _program_lines(name: str, fleet: Fleet, actor: Actor, launch: Launch, home: Path) -> list[str]:
    values = [f"{key}={_in_quotes(_doubled(value))}" for key, value in _variables(launch).items()]
    if launch.key_variable:
        # of the environment that supervisord is started in; it says so where that has none
        values.append(f'{launch.key_variable}="%(ENV_{fleet.api_key})s"')
    return [
        "",
        f"; {actor.url}",
        f"[program:{_program(name, actor)}]",
        f"command={_doubled(shlex.join(['/bin/sh', '-c', _ALONE, 'sh', *launch.command]))}",
        f"directory={home}",
        f"environment={','.join(values)}",
        "autostart=true",
        "autorestart=true",
        f"startretries={_START_TRIES}",
        "stopsignal=TERM",
        f"stopwaitsecs={fleet.shutdown_s + KILL_AFTER_S}",
        "stopasgroup=false",
        "killasgroup=true",
        "redirect_stderr=true",
        f"stdout_logfile={_LOGS}/{_program(name, actor)}.log",
        "stdout_logfile_maxbytes=10MB",
        "stdout_logfile_backups=3",
    ]


def _in_quotes(text: str) -> str:
    # supervisord knows no way to write a quote within quotes of its kind
    return f"'{text}'" if '"' in text else f'"{text}"'


def _doubled(text: str) -> str:
    return text.replace("%", "%%")
