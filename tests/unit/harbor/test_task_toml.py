"""`task.toml`: what is read, what older names become, what is refused by its name."""

import datetime

import pytest

from graftline.core.errors import DataError
from graftline.harbor.task_format.task_toml import TaskToml, task_toml, toml_text

WHOLE = """\
schema_version = "1.4"
source = "hub"
artifacts = ["out/report.txt", { source = "log.txt", destination = "logs/log.txt", exclude = ["*.tmp"] }]

[task]
name = "org/name"
version = "2.0"
description = "What it is."
keywords = ["a"]
authors = [{ name = "A", email = "a@example.org" }]

[metadata]
difficulty = "easy"
gold_loc = 73
share = 0.5
made = 2026-01-02
"a key" = { inner = ["x", "y"] }

[agent]
timeout_sec = 600
user = 1000
network_mode = "public"

[verifier]
timeout_sec = 300.5
environment_mode = "separate"
env = { KEY = "${KEY:-none}" }
user = "root"
collect = [{ command = "x" }]

[verifier.environment]
docker_image = "python:3.12"

[environment]
build_timeout_sec = 1200
docker_image = "python:3.11"
os = "LINUX"
cpus = 1.5
memory_mb = 2048
storage_mb = 1024
workdir = "/srv"
network_mode = "no-network"
env = { PATH_TO = "${HOME_OF:-/x}/y" }
gpus = 1
gpu_types = ["H100"]
mcp_servers = [{ name = "m", url = "http://m" }]
skills_dir = "/skills"

[environment.healthcheck]
command = "true"

[solution]
env = { A = "b" }
"""


def test_all_that_is_supported_is_read_and_written_again() -> None:
    read = task_toml(WHOLE, "t")
    assert [artifact.source for artifact in read.artifacts] == ["out/report.txt", "log.txt"]
    assert read.artifacts[1].exclude == ("*.tmp",)
    assert (read.agent.user, read.verifier.user, read.is_separate) == ("1000", "root", True)
    assert read.verifier.environment
    assert read.verifier.environment.docker_image == "python:3.12"
    assert read.environment.healthcheck
    assert read.environment.healthcheck.command == "true"
    assert read.environment.cpus == 1.5
    assert read.environment.os == "linux"
    assert read.environment.env == {"PATH_TO": "${HOME_OF:-/x}/y"}
    assert read.metadata["made"] == datetime.date(2026, 1, 2)
    assert task_toml(toml_text(read), "again") == read


def test_an_empty_file_is_all_defaults() -> None:
    assert task_toml("", "t") == TaskToml()
    assert toml_text(TaskToml()) == 'schema_version = "1.4"\n'


def test_older_names_become_the_present_ones() -> None:
    old = 'version = "1.0"\n[environment]\nmemory = "4G"\nstorage = "512M"\nallow_internet = false\n'
    new = 'schema_version = "1.0"\n[environment]\nmemory_mb = 4096\nstorage_mb = 512\nnetwork_mode = "no-network"\n'
    assert task_toml(old, "t") == task_toml(new, "t")


def test_older_names_that_contradict_the_present_ones_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"^t: environment\.memory: '4G' is 4096 MB, but memory_mb is 1; keep one of them$"
    ):
        task_toml('[environment]\nmemory = "4G"\nmemory_mb = 1\n', "t")
    with pytest.raises(DataError, match="'much' is no size"):
        task_toml('[environment]\nstorage = "much"\n', "t")


def test_what_is_not_supported_is_refused_by_name_in_one_message() -> None:
    text = """
    steps = [{ name = "one" }]
    artifacts = [{ source = "/a", service = "db" }]
    [environment]
    os = "windows"
    """
    with pytest.raises(DataError) as caught:
        task_toml(text, "t", ("environment/docker-compose.yaml",))
    assert str(caught.value).splitlines()[0] == (
        "t: uses what is not supported here: environment.os = windows, environment/docker-compose.yaml, services of Compose,"
        " steps; take it out of the task, or run it with harbor"
    )


def test_what_is_not_supported_and_says_nothing_is_read() -> None:
    assert task_toml("steps = []\n", "t") == TaskToml()


def test_a_key_that_the_format_does_not_know_says_nothing_and_is_named_with_the_one_it_looks_like() -> None:
    read = task_toml("[agent]\ntimeout_secs = 5\n[enviroment]\n", "t")
    assert read.agent == TaskToml().agent
    agent, section = sorted(read.ignored)
    assert agent.startswith("agent.timeout_secs: unknown key; did you mean 'timeout_sec'? known here: ")
    assert section.startswith("enviroment: unknown key; did you mean 'environment'? ")
    assert "ignored" not in toml_text(read)


@pytest.mark.parametrize("path", ["../secrets", "/logs/../etc"])
def test_an_artifact_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(DataError, match=r"leads out by '\.\.'"):
        task_toml(f'artifacts = ["{path}"]\n', "t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = [", "not valid TOML"),
        ('schema_version = "2.0"', "schema_version: "),
        ("[agent]\ntimeout_sec = nan\n", "agent.timeout_sec: "),
        ("[environment]\nmemory_mb = true\n", "environment.memory_mb: "),
        ('[task]\nname = "no organization"\n', "task.name: "),
        ("environment = 3\n", "environment: "),
        ("a" * (1 << 20) + "a", "is larger than"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        task_toml(text, "t")


def test_texts_of_metadata_survive_being_written() -> None:
    odd = TaskToml(metadata={"odd": 'quote " back\\slash \x7f \t \u2028 é \x01', "nested": {"list": [1, [True, "x"]]}})
    assert task_toml(toml_text(odd), "t") == odd
