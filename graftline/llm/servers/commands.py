"""From the configuration of an actor to the command that serves it, and the environment of that command.

Nothing is started here: `graftline.llm.servers.processes` does that, and `graftline.llm.servers.units` writes it down for
systemd and supervisord.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.servers import embedded
from graftline.llm.weights.catalog import load_models
from graftline.llm.weights.stored import converted_folder, converted_path, model_file, models_folder

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
    """Return what the actors serve on this machine: a file, a folder, or a repository.

    Raises:
        ConfigError: the model is unknown.
        ModelError: its weights are not here.
    """
    local = paths.root / fleet.model
    if local.exists():
        return str(local)
    match fleet.engine:
        case "embedded":
            return str(model_file(fleet.model, paths, environment))
        case "vllm-cpu":
            return str(converted_folder(fleet.model, paths, environment))
        case _:
            return fleet.model


def weights_below(home: Path, fleet: Fleet, paths: Paths) -> str:
    """Return what the actors serve on a machine whose root folder is `home`; nothing has to be there yet.

    Raises:
        ConfigError: the model is unknown.
    """
    match fleet.engine:
        case "embedded":
            file = load_models(paths).weights(fleet.model).file
            return str(models_folder(Paths(home), {}) / file)
        case "vllm-cpu":
            return str(home / converted_path(fleet.model, paths, {}).relative_to(paths.root))
        case _:
            return fleet.model


def launch_of(fleet: Fleet, actor: Actor, weights: str, machine: Machine) -> Launch:
    """Return how `actor` is started; `weights` is what it serves: a file, a folder or a repository.

    Raises:
        ConfigError: it cannot be started by us, or with these settings.
    """
    if fleet.engine == "service":
        raise ConfigError(f"actor {actor.name!r}: its fleet is a service, which somebody else runs; nothing to start")
    if actor.url.startswith("https:"):
        raise ConfigError(f"actor {actor.name!r}: url {actor.url!r}: servers of ours speak http; put https before them")
    match fleet.engine:
        case "embedded":
            return Launch(
                _embedded_command(fleet, actor, weights, machine), fleet.variables, _key(fleet, embedded.KEY_VARIABLE)
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


def _embedded_command(fleet: Fleet, actor: Actor, weights: str, machine: Machine) -> tuple[str, ...]:
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
