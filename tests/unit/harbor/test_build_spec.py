"""Build specs: sound once constructed, and without secrets."""

import os
import random
import string
import traceback
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, DataError
from graftline.harbor.build_spec import HarborBuildSpec, HarborVerifier, TaskSeed
from graftline.harbor.contract import HarborLimits
from graftline.harbor.messages import DeploymentCreate

TOKEN = "hf_" + "".join(random.Random(3).choices(string.ascii_letters, k=34))


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "run_rollout.py").write_text("print(1)\n")
    return tmp_path


def refusal(**values: Any) -> str:
    with pytest.raises(ValueError, match="the build spec is refused") as caught:
        HarborBuildSpec(**{"name": "a", "context_dir": "context", **values})
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_a_spec_is_made_by_keywords(context: Path) -> None:
    spec = HarborBuildSpec(
        name="engine-bench-v1",
        dockerfile_path=context / "Dockerfile",
        context_dir=context,
        entrypoint="run_rollout --input /tmp/rollout.json --output /tmp/result.json",
        entrypoint_mode="file",
        limits={"timeout_s": 600, "cpu_cores": 4, "memory_mb": 8192, "disk_mb": 20480},
        metadata={"agent_type": "codex", "benchmark": "engine-bench", "version": "1.0"},
    )
    spec.validate_paths()
    assert spec.limits == HarborLimits(timeout_s=600, cpu_cores=4, memory_mb=8192, disk_mb=20480)
    assert spec.get_dockerfile_content() == "FROM scratch\n"
    assert spec.to_api_request("AAAA") == {
        "name": "engine-bench-v1",
        "description": None,
        "dockerfile": "FROM scratch\n",
        "context_tar_base64": "AAAA",
        "entrypoint": "run_rollout --input /tmp/rollout.json --output /tmp/result.json",
        "entrypoint_mode": "file",
        "limits": {"timeout_s": 600, "cpu_cores": 4, "memory_mb": 8192, "disk_mb": 20480},
        "env_vars": {},
        "metadata": {"agent_type": "codex", "benchmark": "engine-bench", "version": "1.0"},
        "tasks": [],
    }


def test_a_request_with_everything_is_one_that_the_service_takes(context: Path) -> None:
    spec = HarborBuildSpec(
        name="a",
        dockerfile_path="Dockerfile",
        context_dir=context,
        entrypoint_mode="command",
        description="What it is",
        env_vars={"MODEL": "small"},
        metadata={"deep": [{"er": None}]},
        verifier=HarborVerifier(entrypoint="sh grade.sh", artifacts=("out",), context_dir=context),
        tasks=[TaskSeed(seed=3, task_id="df-001", agent_files=("tasks/df-001",), metadata={"set": "df"})],
    )
    sent = DeploymentCreate.model_validate(spec.to_api_request("AAAA", "BBBB"))
    assert sent.verifier is not None
    assert sent.verifier.model_dump() == {
        "entrypoint": "sh grade.sh",
        "artifacts": ("out",),
        "reward_key": "reward",
        "timeout_s": 300,
        "context_tar_base64": "BBBB",
    }
    assert sent.tasks == [TaskSeed(seed=3, task_id="df-001", agent_files=("tasks/df-001",), metadata={"set": "df"})]
    assert (sent.entrypoint_mode, sent.env_vars, sent.dockerfile) == ("stdio", {"MODEL": "small"}, "FROM scratch\n")


@pytest.mark.parametrize("has_verifier", [True, False])
def test_verifier_and_its_context_come_together(context: Path, has_verifier: bool) -> None:
    verifier = HarborVerifier(entrypoint="sh grade.sh", context_dir=context) if has_verifier else None
    spec = HarborBuildSpec(name="a", context_dir=context, verifier=verifier)
    with pytest.raises(ValueError, match="give both or neither"):
        spec.to_api_request("AAAA", None if has_verifier else "BBBB")


def test_all_faults_are_told_at_once() -> None:
    message = refusal(
        name="", entrypoint_mode="shell", limits={"timeout_s": 29, "cpu_cores": 9, "disk": 1}, color="red"
    )
    assert message.splitlines() == [
        "the build spec is refused:",
        "- name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9 ._:@+-]{0,127}$'",
        "- entrypoint_mode: Input should be 'file' or 'stdio'",
        "- limits.timeout_s: Input should be greater than or equal to 30",
        "- limits.cpu_cores: Input should be less than or equal to 8",
        "- limits.disk: Extra inputs are not permitted",
        "- color: Extra inputs are not permitted",
    ]


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("timeout_s", 30, 86400), ("cpu_cores", 1, 8), ("memory_mb", 512, 32768), ("disk_mb", 1024, 102400)],
)
def test_ranges_of_limits_are_kept(field: str, least: int, most: int) -> None:
    for value in (least, most, float(most)):
        assert getattr(HarborBuildSpec(name="a", context_dir=".", limits={field: value}).limits, field) == value
    for value in (least - 1, most + 1, most - 0.5, str(most), True, None):
        assert f"- limits.{field}: " in refusal(limits={field: value})


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"env_vars": {"MY_OPENAI_API_KEY": "a"}}, "env_vars: 'MY_OPENAI_API_KEY' names a secret"),
        ({"env_vars": {"AWS_ACCESS_KEY_ID": "a"}}, "env_vars: 'AWS_ACCESS_KEY_ID' names a secret"),
        ({"env_vars": {"MODEL": TOKEN}}, "env_vars: 'MODEL' holds a token of Hugging Face"),
        ({"env_vars": {TOKEN: "a"}}, "env_vars: the name of variable 1 looks like a secret itself"),
        ({"env_vars": {"A B": "a"}}, "env_vars: 'A B' is no name of a variable"),
        ({"env_vars": {"A": "a\0"}}, "env_vars: 'A' holds a zero byte"),
        ({"env_vars": {"A": "\ud800"}}, "env_vars: 'A' holds half of a surrogate pair"),
        ({"env_vars": {"A": 1}}, "env_vars.A: Input should be a valid string"),
        ({"env_vars": {f"A{n}": "" for n in range(257)}}, "env_vars: has 257 variables; at most 256 are accepted"),
        ({"metadata": {"a": [{"b": f"Bearer {TOKEN}"}]}}, "metadata['a'][0]['b']: holds a token of Hugging Face"),
        ({"metadata": {"a": {1}}}, "metadata: holds what JSON cannot say"),
        ({"metadata": {"a": float("nan")}}, "metadata: holds what JSON cannot say"),
        ({"metadata": {"a": "\0"}}, "metadata: holds a zero byte"),
        ({"metadata": {"a": "x" * (1 << 20)}}, "metadata: has more than 1048576 characters"),
        ({"entrypoint": f"TOKEN={TOKEN} run"}, "entrypoint: holds a token of Hugging Face"),
        ({"entrypoint": f"{TOKEN}\0"}, r"entrypoint: String should match pattern '^[^\x00]*$'"),
        ({"description": TOKEN}, "description: holds a token of Hugging Face"),
        ({"name": "x" * 129}, "name: String should match pattern"),
        ({"name": "a/b"}, "name: String should match pattern"),
        ({"context_dir": ""}, "context_dir: is empty; name a path"),
        ({"tasks": [{"seed": 1, "task_id": "a"}, {"seed": 1, "task_id": "b"}]}, "tasks: seed 1 stands for two tasks"),
        ({"tasks": [{"seed": -1, "task_id": "a"}]}, "tasks.0.seed: Input should be greater than or equal to 0"),
        ({"tasks": [{"seed": 1, "task_id": "a", "metadata": {"a": TOKEN}}]}, "tasks[1].metadata['a']: holds a token"),
        ({"verifier": {"entrypoint": "a"}}, "verifier.context_dir: Field required"),
        ({"verifier": {"entrypoint": f"a {TOKEN}", "context_dir": "a"}}, "verifier.entrypoint: holds a token"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:40],
)
def test_a_fault_is_told_without_the_value(values: dict[str, Any], line: str) -> None:
    assert f"- {line}" in refusal(**values)


def test_metadata_may_speak_of_zero_bytes() -> None:
    assert HarborBuildSpec(name="a", context_dir=".", metadata={"a": "\\u0000"}).metadata == {"a": "\\u0000"}


def test_a_dockerfile_is_looked_for_in_the_context_first(
    context: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "Dockerfile"
    other.write_text("FROM other\n")
    assert (
        HarborBuildSpec(name="a", context_dir=context, dockerfile_path=other).get_dockerfile_content() == "FROM other\n"
    )
    inside = HarborBuildSpec(name="a", context_dir=context, dockerfile_path="Dockerfile")
    assert inside.get_dockerfile_content() == "FROM scratch\n"


def test_a_secret_in_a_dockerfile_is_refused_unless_it_is_allowed(context: Path) -> None:
    (context / "Dockerfile").write_text(f"FROM scratch\nENV A={TOKEN}\n")
    values: dict[str, Any] = {"name": "a", "context_dir": context, "dockerfile_path": context / "Dockerfile"}
    with pytest.raises(DataError, match=r"Dockerfile', line 2: holds a token of Hugging Face") as caught:
        HarborBuildSpec(**values).get_dockerfile_content()
    assert TOKEN not in str(caught.value)
    assert TOKEN in (HarborBuildSpec(**values, allow_secrets_in=("Dockerfile",)).get_dockerfile_content() or "")


def test_what_is_not_there_is_told_by_its_field(context: Path) -> None:
    os.mkfifo(context / "pipe")
    (context / "latin").write_bytes(b"\xe9")
    (context / "large").write_bytes(b"#" * ((1 << 20) + 1))

    def fault(**values: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            HarborBuildSpec(**{"name": "a", "context_dir": context, **values}).validate_paths()
        return str(caught.value).replace(str(context), "context")

    nowhere = HarborVerifier(entrypoint="a", context_dir=context / "no")
    assert [
        fault(context_dir=context / "no"),
        fault(context_dir=context / "Dockerfile"),
        fault(verifier=nowhere),
        fault(dockerfile_path="no/Dockerfile"),
        fault(dockerfile_path="pipe"),
        fault(dockerfile_path="latin"),
        fault(dockerfile_path="large"),
    ] == [
        "context_dir: 'context/no' is not there; expected a folder; name one that is there",
        "context_dir: 'context/Dockerfile' is no folder; expected a folder; name one that is there",
        "verifier.context_dir: 'context/no' is not there; expected a folder; name one that is there",
        "dockerfile_path: 'no/Dockerfile': cannot be read (No such file or directory); expected a Dockerfile",
        "dockerfile_path: 'context/pipe': cannot be read (is no plain file); expected a Dockerfile",
        "dockerfile_path: 'context/latin': is not UTF-8; expected a Dockerfile",
        "dockerfile_path: 'context/large': is no text of at most 1048576 bytes; expected a Dockerfile",
    ]
