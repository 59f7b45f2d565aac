"""Which implementation stands behind each port, and that ports are closed at the end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from graftline.astgrep.action import PatternAction
from graftline.core.blobs import MemoryBlobsConfig
from graftline.core.errors import ConfigError, DataError
from graftline.core.paths import Paths, portable
from graftline.datasets.sources.base import FolderHub
from graftline.datasets.sources.mirror import MirrorHub
from graftline.datasets.sources.open import MemoryHubConfig, SourcesHub, SourcesHubConfig
from graftline.datasets.store import FilesDatasetStoreConfig, MemoryDatasetStoreConfig
from graftline.llm.fleet import PoolSettings
from graftline.llm.open import ActorsConfig, MemoryChatModelConfig
from graftline.pipeline import MANIFESTS, Manifest, build_ports, load_manifest
from graftline.pipeline.harbor_port import LocalHarborConfig, MemoryHarborConfig, ServiceHarborConfig
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.ports import dataset_hub, describe, open_ports
from graftline.pipeline.settings import attempt_settings, load_settings
from graftline.pipeline.stages.table import make
from graftline.rollouts.queue.base import MemoryQueueConfig, RedisQueueConfig
from graftline.rollouts.retrieval import MemoryVectorStoreConfig
from graftline.rollouts.teachers.base import InductionTeacherConfig, MemoryTeacherConfig, OpenAITeacherConfig
from graftline.rollouts.teachers.induction import InductionTeacher, MemoryTeacher
from graftline.sandbox.actions import MemorySandboxConfig, ProcessSandboxConfig, WarmSandboxConfig
from graftline.sandbox.base import Isolation, Limits
from graftline.training.local.process import LocalBackendConfig
from graftline.training.open import MemoryTrainingConfig, TinkerServiceConfig
from tests.processes import command_line

EMBEDDED = Manifest(
    dataset_hub=SourcesHubConfig(),
    sandbox=WarmSandboxConfig(limits=Limits(), required_level="compute"),
    teacher=InductionTeacherConfig(),
    chat_model=ActorsConfig(fleet="embedded"),
    training_client=LocalBackendConfig(precision="auto"),
    dataset_store=FilesDatasetStoreConfig(),
    harbor=LocalHarborConfig(),
)


def children() -> list[int]:
    """Return the processes below this one that run, but for one that Python keeps as long as the tests run."""
    return [child.pid for child in psutil.Process().children(recursive=True) if is_ours(child)]


def is_ours(child: psutil.Process) -> bool:
    """Return whether a process runs; one that ends while it is looked at does not."""
    line = command_line(child)
    return bool(line) and "resource_tracker" not in line


MANIFEST_OF = {
    "default": EMBEDDED,
    "local": EMBEDDED,
    "prod": EMBEDDED.model_copy(
        update={
            "dataset_hub": SourcesHubConfig(mirror_must_match_pins=True),
            "chat_model": ActorsConfig(fleet="gpu"),
            "queue": RedisQueueConfig(),
            "training_client": TinkerServiceConfig(),
            "harbor": ServiceHarborConfig(),
        }
    ),
    "dev": EMBEDDED.model_copy(
        update={
            "sandbox": WarmSandboxConfig(limits=Limits(cpu_s=2, wall_s=10.0)),
            "chat_model": ActorsConfig(fleet="smoke"),
            "harbor": ServiceHarborConfig(),
        }
    ),
    "test": Manifest(
        dataset_hub=MemoryHubConfig(),
        sandbox=MemorySandboxConfig(),
        teacher=MemoryTeacherConfig(),
        chat_model=MemoryChatModelConfig(),
        vector_store=MemoryVectorStoreConfig(),
        blobs=MemoryBlobsConfig(),
        training_client=MemoryTrainingConfig(),
        dataset_store=MemoryDatasetStoreConfig(),
        harbor=MemoryHarborConfig(),
    ),
}


@pytest.mark.parametrize("name", MANIFEST_OF)
def test_every_manifest_loads(checkout: Path, name: str) -> None:
    assert load_manifest(Paths(checkout), name) == MANIFEST_OF[name]


def test_every_manifest_is_tested(checkout: Path) -> None:
    files = {path.stem for path in (checkout / "configs" / "manifests").iterdir()}
    assert {"default", *files} == {"default", *MANIFESTS} == {*MANIFEST_OF}


OVERRIDES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "none": ({}, {}),
    "a port by its implementation": ({"sandbox": "memory"}, {"sandbox": MemorySandboxConfig()}),
    # what the file says of another implementation is not kept
    "a port by the same one": ({"sandbox": "warm"}, {"sandbox": WarmSandboxConfig()}),
    "a port as a whole": (
        {"sandbox": {"kind": "process", "required_level": "none"}},
        {"sandbox": ProcessSandboxConfig(required_level="none")},
    ),
    "a key of a port": ({"sandbox.limits.cpu_s": 1}, {"sandbox": WarmSandboxConfig(limits=Limits(cpu_s=1))}),
    "a teacher by the name of a fleet": (
        {"teacher": "glm-4.6"},
        {"teacher": OpenAITeacherConfig(prompt="large"), "chat_model": ActorsConfig(fleet="glm-4.6")},
    ),
    "a teacher by the name of a fleet, with other settings": (
        {"teacher": "qwen3-14b-vllm", "teacher.prompt": "small", "chat_model.pool.max_tries": 5},
        {
            "teacher": OpenAITeacherConfig(prompt="small"),
            "chat_model": ActorsConfig(fleet="qwen3-14b-vllm", pool=PoolSettings(max_tries=5)),
        },
    ),
    "ports and keys together": (
        {"dataset_hub": "memory", "dataset_hub.files": {"a.jsonl": ""}, "teacher": "memory"},
        {"dataset_hub": MemoryHubConfig(files={"a.jsonl": ""}), "teacher": MemoryTeacherConfig()},
    ),
}


@pytest.mark.parametrize(("overrides", "changes"), OVERRIDES.values(), ids=OVERRIDES)
def test_ports_and_single_keys_can_be_replaced(
    checkout: Path, overrides: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    assert load_manifest(Paths(checkout), "local", overrides) == EMBEDDED.model_copy(update=dict(changes))


MANIFESTS_THERE_ARE = "known: default, local, dev, prod, test"
PORTS_THERE_ARE = (
    "known: dataset_hub, sandbox, teacher, chat_model, queue, embedder, vector_store, blobs, training_client,"
    " dataset_store, harbor, artifacts"
)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("staging", {}, f"manifest 'staging' is unknown; {MANIFESTS_THERE_ARE}"),
        ("../local", {}, f"manifest '../local' is unknown; {MANIFESTS_THERE_ARE}"),
        ("local", {"jail": "memory"}, f"port 'jail' is unknown; {PORTS_THERE_ARE}"),
        ("local", {"jail.limits": 1}, f"port 'jail' is unknown; {PORTS_THERE_ARE}"),
    ],
)
def test_an_unknown_manifest_or_port_lists_the_known_ones(
    checkout: Path, name: str, overrides: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_manifest(Paths(checkout), name, overrides)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"sandbox": "docker"}, ["--set sandbox: ", "'docker'", "'warm', 'process', 'memory'"]),
        ({"teacher": "oracle"}, ["--set teacher: ", "'oracle'", "'induction', 'memory'", "glm-4.6"]),
        ({"dataset_hub": "cloud"}, ["--set dataset_hub: ", "'cloud'", "'sources', 'homes', 'local', 'memory'"]),
        (
            {"sandbox.limits.cpu": 1},
            ["--set sandbox.limits.cpu: unknown key; known here: cpu_s, memory_mb, output_mb, wall_s"],
        ),
        ({"sandbox.limits.cpu_s": "2"}, ["--set sandbox.limits.cpu_s: input should be a valid integer (got '2')"]),
        ({"teacher": 3}, ["--set teacher: input should be an object (got 3)"]),
    ],
)
def test_what_does_not_fit_says_where_and_what_would(
    checkout: Path, overrides: Mapping[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        load_manifest(Paths(checkout), "local", overrides)
    assert [word for word in words if word not in str(error.value)] == []


def test_a_manifest_names_every_port(tmp_path: Path) -> None:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    path = tmp_path / "configs" / "manifests" / "local.yaml"
    path.write_text("sandbox: {kind: memory}\n", "utf-8")
    with pytest.raises(ConfigError) as error:
        load_manifest(Paths(tmp_path), "local")
    assert str(error.value) == f"{path}: dataset_hub: field required\n{path}: teacher: field required"


def test_ports_are_what_the_manifest_says(checkout: Path) -> None:
    with build_ports(Paths(checkout), "local", {"sandbox": "memory"}) as ports:
        found = [type(ports.dataset_hub), ports.sandbox.isolation.implementation, type(ports.teacher)]
    assert found == [SourcesHub, "memory", InductionTeacher]
    with build_ports(Paths(checkout), "local", {"sandbox": "memory", "dataset_hub": "local"}) as ports:
        assert type(ports.dataset_hub) is FolderHub
    with build_ports(Paths(checkout), "test") as ports:
        found = [type(ports.dataset_hub), ports.sandbox.isolation.implementation, type(ports.teacher)]
    assert found == [FolderHub, "memory", MemoryTeacher]


def test_a_mirror_stands_before_the_hub_of_the_manifest_but_not_before_files_in_memory(
    checkout: Path, tmp_path: Path
) -> None:
    mirrored = {"GRAFTLINE_DATASET_MIRROR": str(tmp_path)}
    manifests = [load_manifest(Paths(checkout), name) for name in ("local", "test")]
    found = [type(dataset_hub(manifest, Paths(checkout), mirrored)) for manifest in manifests]
    assert found == [MirrorHub, FolderHub]


def test_the_jail_of_the_local_manifest_answers_and_is_gone_at_the_end(checkout: Path) -> None:
    before = children()
    with build_ports(Paths(checkout)) as ports:
        [result] = ports.sandbox.apply_many("old(1)", "python", [PatternAction(pattern="old($A)", rewrite="new($A)")])
        during = children()
    assert (result.after, result.isolation.level, result.isolation != Isolation("none", "memory")) == (
        "new(1)",
        "compute",
        True,
    )
    assert (len(during) > len(before), children()) == (True, before)


def test_ports_are_closed_when_the_work_fails(checkout: Path) -> None:
    before = children()
    with pytest.raises(DataError), build_ports(Paths(checkout)):
        portable("..")
    assert children() == before


def test_worker_processes_end_with_the_lineage(made: Path) -> None:
    before = children()
    paths = Paths(made)
    (made / "configs" / "trajectories.yaml").write_text("workers: 2\n", "utf-8")
    manifest = load_manifest(paths, "local", {"sandbox": "memory", "teacher": "memory"})
    with open_lineage(paths, manifest, "workers") as lineage:
        reason = make("teacher_trajectories", lineage, "python", "train").reason
        during = children()
    assert (reason, len(during) > len(before), children()) == ("not there yet", True, before)


def test_a_lineage_with_faulty_settings_opens_nothing(made: Path) -> None:
    before = children()
    paths = Paths(made)
    (made / "configs" / "trajectories.yaml").write_text("worker: 2\n", "utf-8")
    with (
        pytest.raises(
            ConfigError,
            match="worker: unknown key; known here: asking, collecting, instructions, least_verified_steps, workers",
        ),
        open_lineage(paths, load_manifest(paths, "local"), "faulty"),
    ):
        pass
    assert children() == before


def test_a_description_names_every_setting_and_opens_nothing(tmp_path: Path, checkout: Path) -> None:
    before = children()
    described = describe(load_manifest(Paths(checkout), "local", {"dataset_hub": "memory"}))
    assert described == {
        "dataset_hub": {"kind": "memory", "files": {}},
        "sandbox": {
            "kind": "warm",
            "limits": {"cpu_s": 5, "wall_s": 30.0, "memory_mb": 2048, "output_mb": 32},
            "workers": 1,
            "required_level": "compute",
        },
        "teacher": {"kind": "induction"},
        "chat_model": {"kind": "actors", "fleet": "embedded", "pool": PoolSettings().model_dump(mode="json")},
        "queue": MemoryQueueConfig().model_dump(mode="json"),
        "embedder": {"kind": "hashed", "dimensions": 512},
        "vector_store": {"kind": "sqlite", "path": "data/retrieval/examples.sqlite"},
        "blobs": {"kind": "filesystem", "url": "data/blobs", "options": {}, "secrets": {}},
        "training_client": LocalBackendConfig(precision="auto").model_dump(mode="json"),
        "dataset_store": {"kind": "files", "folder": "."},
        "harbor": {"kind": "local", "executor": {"kind": "local"}, "pass_on": []},
        "artifacts": {"kind": "folder"},
        "executor": {"kind": "in_process"},
    }
    assert (children(), list(tmp_path.iterdir())) == (before, [])


def test_attempts_are_others_in_another_jail_of_tests(tmp_path: Path, checkout: Path) -> None:
    (tmp_path / "configs").mkdir()
    manifest, settings, parts = load_manifest(Paths(checkout), "test"), load_settings(Paths(checkout)), []
    for text in ("tests: {}", "tests: {limits: {cpu_s: 7}}"):
        (tmp_path / "configs" / "sandbox.yaml").write_text(text, "utf-8")
        with open_ports(manifest, Paths(tmp_path)) as ports:
            parts.append(attempt_settings(Paths(tmp_path), manifest, settings, ports).get("tests"))
    assert parts == [None, {"limits": {"cpu_s": 7}}]
