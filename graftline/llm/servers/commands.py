"""From the configuration of an actor to the command that serves it, and the environment of that command.

Nothing is started here: `graftline.llm.servers.processes` does that, and `graftline.llm.servers.commands` writes it down for
systemd and supervisord.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.core.record import write_atomically
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.servers import embedded
from graftline.llm.weights.catalog import load_models, model_file, models_folder, safetensors_folder, safetensors_path

KILL_AFTER_S = 10
"""How much longer than the time-out that it is given a server may take to end."""
VLLM_KEY_VARIABLE = "VLLM_API_KEY"


@dataclass(frozen=True, slots=True)
class Launch:
    """How one server is started."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    """Environment variables, over those of whoever starts it."""
    key_variable: str
    """Environment variable that the server reads its API key from; empty where it has none."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the command depends on of the machine it runs on."""

    python: Path
    """The interpreter that has Graftline."""
    vllm_environment: Path | None
    """Folder of the Python environment that holds `bin/vllm`, where the fleet does not name one."""
    cores: Sequence[int]
    """That the servers may be bound to; never empty."""
    root: Path = Path("/")
    """Folder that the adapters of embedded servers are named from."""


def weights_of(fleet: Fleet, paths: Paths, environment: Mapping[str, str]) -> str:
    """Return what the actors serve on this machine: a file, a folder, or a repository; ModelError where it is not here."""
    local = paths.root / fleet.model
    if local.exists():
        return str(local)
    match fleet.engine:
        case "embedded":
            return str(model_file(fleet.model, paths, environment))
        case "vllm-cpu":
            return str(safetensors_folder(fleet.model, paths, environment))
        case _:
            return fleet.model


def weights_below(home: Path, fleet: Fleet, paths: Paths) -> str:
    """Return what the actors serve on a machine whose root folder is `home`; nothing has to be there yet."""
    match fleet.engine:
        case "embedded":
            file = load_models(paths).weights(fleet.model).file
            return str(models_folder(Paths(home), {}) / file)
        case "vllm-cpu":
            return str(home / safetensors_path(fleet.model, paths, {}).relative_to(paths.root))
        case _:
            return fleet.model


def launch_of(fleet: Fleet, actor: Actor, weights: str, machine: Machine) -> Launch:
    """Return how `actor` is started to serve `weights`; ConfigError where it cannot be by us, or with these settings."""
    if fleet.engine == "service":
        raise ConfigError(f"actor {actor.name!r}: its fleet is a service, which somebody else runs; nothing to start")
    if actor.url.startswith("https:"):
        raise ConfigError(f"actor {actor.name!r}: url {actor.url!r}: servers of ours speak http; put https before them")
    match fleet.engine:
        case "embedded":
            return Launch(
                _llama_command(fleet, actor, weights, machine), fleet.variables, _key(fleet, embedded.KEY_VARIABLE)
            )
        case "vllm":
            variables = _vllm_variables(fleet, weights)
            if actor.gpu_ids:
                variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, actor.gpu_ids))
        case "vllm-cpu":
            variables = _vllm_variables(fleet, weights) | _core_variables(fleet, actor, machine.cores)
        case _:
            assert_never(fleet.engine)
    return Launch(
        _vllm_command(fleet, actor, weights, machine), variables | fleet.variables, _key(fleet, VLLM_KEY_VARIABLE)
    )


def _key(fleet: Fleet, variable: str) -> str:
    return variable if fleet.api_key else ""


def _llama_command(fleet: Fleet, actor: Actor, weights: str, machine: Machine) -> tuple[str, ...]:
    settings = {
        "--model": weights,
        "--name": fleet.called,
        "--host": actor.host,
        "--port": actor.port,
        "--slots": actor.slots,
        "--context-tokens": fleet.context_tokens,
        "--shutdown-timeout": fleet.shutdown_s,
    }
    if actor.threads:
        settings["--threads"] = actor.threads
    adapters = (word for folder in fleet.adapters for word in ("--adapter", str(machine.root / folder)))
    return (str(machine.python), "-m", embedded.__name__, *_words(settings), *adapters)


def _vllm_command(fleet: Fleet, actor: Actor, weights: str, machine: Machine) -> tuple[str, ...]:
    environment = Path(fleet.python_environment) if fleet.python_environment else machine.vllm_environment
    if environment is None:
        raise ConfigError(
            f"actor {actor.name!r}: vLLM has an environment of its own, and none is named; set python_environment of the"
            " fleet, or GRAFTLINE_VLLM_ENV, to the folder that holds bin/vllm"
        )
    settings: dict[str, object] = {
        "--host": actor.host,
        "--port": actor.port,
        "--served-model-name": fleet.called,
        "--max-model-len": fleet.context_tokens,
        "--max-num-seqs": actor.slots,
        "--tensor-parallel-size": actor.tensor_parallel_size,
        "--shutdown-timeout": fleet.shutdown_s,
    }
    if fleet.quantization:
        settings["--quantization"] = fleet.quantization
    lora = ("--enable-lora",) if fleet.adapters else ()
    return (str(environment / "bin" / "vllm"), "serve", weights, *_words(settings), *lora, *fleet.arguments)


def _words(settings: Mapping[str, object]) -> list[str]:
    return [str(word) for setting in settings.items() for word in setting]


def _vllm_variables(fleet: Fleet, weights: str) -> dict[str, str]:
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if fleet.adapters:
        variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
    if Path(weights).is_absolute():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


def _core_variables(fleet: Fleet, actor: Actor, cores: Sequence[int]) -> dict[str, str]:
    # idle threads sleep instead of turning round; and no core is set aside, which would be half of two
    variables = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
    if actor.threads:
        before = fleet.actors[: fleet.actors.index(actor)]
        first = sum(other.threads or 0 for other in before if other.host == actor.host)
        # actors that want more cores than there are share some
        own = {cores[(first + number) % len(cores)] for number in range(actor.threads)}
        variables["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, sorted(own)))
    return variables


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
    """Return the files by name, for machines that have Graftline in `home/venv` and vLLM in `home/vllm`."""
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
        f"# Written by `graftline model units --fleet {name}`; for the machine that {actor.url} leads to.",
        "[Unit]",
        f"Description=Graftline actor {actor.name} of fleet {name}: {_escape_percent(fleet.called)}",
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
        *(f"Environment={_quote(f'{key}={value}')}" for key, value in _variables(launch).items()),
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


def _quote(text: str) -> str:
    """Return one value of systemd, in which nothing is replaced."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_escape_percent(escaped)}"'


def _word(text: str) -> str:
    """Return one word of a command of systemd."""
    word = text.replace("$", "$$")
    return _escape_percent(word) if _PLAIN.fullmatch(word) else _quote(word)


def _supervisord(name: str, fleet: Fleet, launches: Mapping[Actor, Launch], home: Path) -> str:
    head = [
        f"; Written by `graftline model units --fleet {name}`. Started as the user {_USER}, to whom {_CACHE} and {_LOGS}",
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
    values = [f"{key}={_in_quotes(_escape_percent(value))}" for key, value in _variables(launch).items()]
    if launch.key_variable:
        # of the environment that supervisord is started in; it says so where that has none
        values.append(f'{launch.key_variable}="%(ENV_{fleet.api_key})s"')
    return [
        "",
        f"; {actor.url}",
        f"[program:{_program(name, actor)}]",
        f"command={_escape_percent(shlex.join(['/bin/sh', '-c', _ALONE, 'sh', *launch.command]))}",
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


def _escape_percent(text: str) -> str:
    return text.replace("%", "%%")
