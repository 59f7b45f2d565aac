"""What an actor is started with."""

from dataclasses import replace
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError, ModelError
from graftline.core.paths import Paths
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.servers.commands import Launch, Machine, launch_of, weights_below, weights_of

MACHINE = Machine(python=Path("/venv/bin/python"), vllm_environment=Path("/vllm"), cores=(4, 5, 6))
GPU = Actor(name="a", url="http://127.0.0.1:8001", gpu_ids=(2, 3), tensor_parallel_size=2, slots=48)
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
ON_CORES = {**QUIET, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}


def fleet_on_cores(*threads: int | None) -> Fleet:
    actors = tuple(
        Actor(name=f"a{number}", url=f"http://127.0.0.1:800{number}", slots=8, threads=count)
        for number, count in enumerate(threads)
    )
    return Fleet(engine="vllm-cpu", model="m", takes_seed=False, actors=actors)


def test_vllm_gets_everything_that_the_configuration_says() -> None:
    fleet = Fleet(
        engine="vllm",
        model="Qwen/Qwen3-14B-AWQ",
        served_name="qwen3-14b",
        quantization="awq_marlin",
        context_tokens=8192,
        adapters=("adapters/one",),
        arguments=("--max-lora-rank", "32"),
        variables={"VLLM_LOGGING_LEVEL": "DEBUG"},
        shutdown_s=45,
        api_key="OUR_KEY",
        actors=(GPU,),
    )
    assert launch_of(fleet, GPU, fleet.model, MACHINE) == Launch(
        command=(
            *("/vllm/bin/vllm", "serve", "Qwen/Qwen3-14B-AWQ", "--host", "127.0.0.1", "--port", "8001"),
            *("--served-model-name", "qwen3-14b", "--max-model-len", "8192", "--max-num-seqs", "48"),
            *("--tensor-parallel-size", "2", "--shutdown-timeout", "45", "--quantization", "awq_marlin"),
            *("--enable-lora", "--max-lora-rank", "32"),
        ),
        variables={
            **QUIET,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "CUDA_VISIBLE_DEVICES": "2,3",
            "VLLM_LOGGING_LEVEL": "DEBUG",
        },
        key_variable="VLLM_API_KEY",
    )


@pytest.mark.parametrize(
    ("threads", "bound"),
    [
        ((1, 1), ["4", "5"]),
        ((2, 1), ["4,5", "6"]),
        # more than there are: some are shared, and none is taken twice by one actor
        ((2, 2), ["4,5", "4,6"]),
        ((9,), ["4,5,6"]),
    ],
)
def test_actors_on_cores_have_cores_of_their_own(threads: tuple[int, ...], bound: list[str]) -> None:
    fleet = fleet_on_cores(*threads)
    assert [launch_of(fleet, actor, "/m", MACHINE).variables for actor in fleet.actors] == [
        {**ON_CORES, "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": cores} for cores in bound
    ]


def test_an_actor_without_threads_is_not_bound() -> None:
    fleet = fleet_on_cores(None)
    assert launch_of(fleet, fleet.actors[0], "org/m", MACHINE).variables == ON_CORES


def test_the_embedded_server_runs_in_the_interpreter_of_graftline() -> None:
    actor = Actor(name="a", url="http://127.0.0.1:8011", slots=4, threads=2)
    fleet = Fleet(
        engine="embedded", model="smol", context_tokens=2048, shutdown_s=5, api_key="OUR_KEY", actors=(actor,)
    )
    assert launch_of(fleet, actor, "/models/smol.gguf", MACHINE) == Launch(
        command=(
            *(
                "/venv/bin/python",
                "-m",
                "graftline.llm.servers.embedded",
                "--model",
                "/models/smol.gguf",
                "--name",
                "smol",
            ),
            *("--host", "127.0.0.1", "--port", "8011", "--slots", "4", "--context-tokens", "2048"),
            *("--shutdown-timeout", "5", "--threads", "2"),
        ),
        variables={},
        key_variable="LLAMA_API_KEY",
    )


def test_the_embedded_server_is_told_the_folders_of_its_adapters() -> None:
    actor = Actor(name="a", url="http://127.0.0.1:8011")
    fleet = Fleet(engine="embedded", model="smol", adapters=("models/adapters/one", "/other/two"), actors=(actor,))
    command = launch_of(fleet, actor, "/models/smol.gguf", replace(MACHINE, root=Path("/root"))).command
    assert command[-4:] == ("--adapter", "/root/models/adapters/one", "--adapter", "/other/two")


@pytest.mark.parametrize(
    ("engine", "url", "message"),
    [
        ("vllm", GPU.url, "none is named; set python_environment of the fleet, or GRAFTLINE_VLLM_ENV"),
        ("vllm", "https://127.0.0.1:8001", "servers of ours speak http; put https before them"),
        ("service", GPU.url, "actor 'a': its fleet is a service, which somebody else runs"),
    ],
)
def test_what_cannot_be_started_by_us_is_refused(engine: str, url: str, message: str) -> None:
    fleet = fleet_of(engine, "m").model_copy(update={"actors": (Actor(name="a", url=url),)})
    with pytest.raises(ConfigError, match=message):
        launch_of(fleet, fleet.actors[0], "m", replace(MACHINE, vllm_environment=None))


def test_settings_of_vllm_are_refused_for_the_embedded_server() -> None:
    with pytest.raises(ValueError, match="arguments and quantization are vLLM's"):
        Fleet(engine="embedded", model="smol", arguments=("--one",), actors=(GPU,))


@pytest.mark.parametrize("folders", [("a/one", "b/one"), ("a/smol",), ("/",)])
def test_adapters_have_names_of_their_own(folders: tuple[str, ...]) -> None:
    with pytest.raises(
        ValueError, match="adapters: each needs a folder whose name is its own, and not that of the model"
    ):
        Fleet(engine="embedded", model="smol", adapters=folders, actors=(GPU,))


def fleet_of(engine: str, model: str) -> Fleet:
    return Fleet.model_validate({"engine": engine, "model": model, "takes_seed": False, "actors": (GPU,)})


@pytest.fixture
def root(tmp_path: Path, checkout: Path) -> Path:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "models.yaml").write_bytes((checkout / "configs" / "models.yaml").read_bytes())
    return tmp_path


@pytest.mark.parametrize("engine", ["embedded", "vllm", "vllm-cpu"])
def test_weights_that_are_a_path_are_served_from_there(root: Path, engine: str) -> None:
    (root / "my" / "weights").mkdir(parents=True)
    assert weights_of(fleet_of(engine, "my/weights"), Paths(root), {}) == str(root / "my" / "weights")


@pytest.mark.parametrize(("engine", "remedy"), [("embedded", "fetch"), ("vllm-cpu", "convert")])
def test_weights_that_are_not_here_name_the_command_that_brings_them(root: Path, engine: str, remedy: str) -> None:
    with pytest.raises(ModelError, match=f"graftline model {remedy} smollm2-135m"):
        weights_of(fleet_of(engine, "smollm2-135m"), Paths(root), {})


@pytest.mark.parametrize(
    ("engine", "model", "weights"),
    [
        ("embedded", "smollm2-135m", "/opt/graftline/data/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
        ("vllm-cpu", "smollm2-135m", "/opt/graftline/data/models/smollm2-135m-safetensors"),
        ("vllm", "org/m", "org/m"),
    ],
)
def test_units_name_the_weights_of_the_machine_that_they_are_for(
    root: Path, engine: str, model: str, weights: str
) -> None:
    assert weights_below(Path("/opt/graftline"), fleet_of(engine, model), Paths(root)) == weights
