"""The commands in this process: what they print, where, and with which exit code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from graftline import __version__
from graftline.cli.main import main
from graftline.core.retry import RetryPolicy
from graftline.llm.fleet import PoolSettings
from graftline.rollouts.queue.base import QueueRules, RedisQueueConfig
from graftline.sandbox.base import Limits
from graftline.training.local.process import LocalBackendConfig

DEFAULT_LIMITS = Limits().model_dump(mode="json")
WARM = {"kind": "warm", "limits": DEFAULT_LIMITS, "workers": 1, "required_level": "compute"}
HOMES: dict[str, Any] = {
    "kind": "sources",
    "huggingface": None,
    "mirror_must_match_pins": False,
    "patience": RetryPolicy().model_dump(mode="json"),
}
ACTORS = {"kind": "actors", "fleet": "embedded", "pool": PoolSettings().model_dump(mode="json")}
REDIS = RedisQueueConfig().model_dump(mode="json")
HARBOR_SERVICE = {"kind": "service", "url": None, "api_key": "GRAFTLINE_HARBOR_KEY"}
LOCAL = {
    "dataset_hub": HOMES,
    "sandbox": WARM,
    "teacher": {"kind": "induction"},
    "chat_model": ACTORS,
    "queue": {"kind": "memory", **QueueRules().model_dump(mode="json")},
    "embedder": {"kind": "hashed", "dimensions": 512},
    "vector_store": {"kind": "sqlite", "path": "data/retrieval/examples.sqlite"},
    "blobs": {"kind": "filesystem", "url": "data/blobs", "options": {}, "secrets": {}},
    "training_client": {"kind": "local", **LocalBackendConfig(precision="auto").model_dump(mode="json")},
    "dataset_store": {"kind": "files", "folder": "."},
    "harbor": {"kind": "local", "executor": {"kind": "local"}, "pass_on": []},
    "artifacts": {"kind": "folder"},
    "executor": {"kind": "in_process"},
}
PORTS = [name for name in LOCAL if name != "executor"]
MANIFESTS: dict[str, dict[str, Any]] = {
    "local": LOCAL,
    "dev": {
        **LOCAL,
        "sandbox": {**WARM, "limits": {**DEFAULT_LIMITS, "cpu_s": 2, "wall_s": 10.0}},
        "chat_model": {**ACTORS, "fleet": "smoke"},
        "harbor": HARBOR_SERVICE,
    },
    "prod": {
        **LOCAL,
        "dataset_hub": {**HOMES, "mirror_must_match_pins": True},
        "chat_model": {**ACTORS, "fleet": "gpu"},
        "queue": REDIS,
        "training_client": {"kind": "tinker", "base_url": None, "api_key": "TINKER_API_KEY"},
        "harbor": HARBOR_SERVICE,
    },
    "test": {
        **LOCAL,
        "dataset_hub": {"kind": "memory", "files": {}},
        "sandbox": {"kind": "memory"},
        "teacher": {"kind": "memory"},
        "chat_model": {"kind": "memory", "answers": [""]},
        "vector_store": {"kind": "memory"},
        "blobs": {"kind": "memory"},
        "training_client": {"kind": "memory", "seed": 0},
        "dataset_store": {"kind": "memory", "files": {}},
        "harbor": {"kind": "memory"},
    },
}
IN_WARM = ("--set", "sandbox=memory")


@pytest.fixture(autouse=True)
def _environment_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRAFTLINE_ROOT", "VAULT_ADDR", "VAULT_TOKEN", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def graftline(root: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--root", str(root), *arguments])
    # whatever else is raised would be shown to the user as a traceback
    assert isinstance(result.exception, SystemExit | None)
    return result


def shown(result: Result) -> tuple[int, str, str]:
    return result.exit_code, result.stdout, result.stderr


def the_json(result: Result) -> Any:
    """Return what the one line on standard output says."""
    assert (result.stdout.count("\n"), result.stdout[-1:]) == (1, "\n")
    return json.loads(result.stdout)


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


@pytest.mark.parametrize("name", MANIFESTS)
def test_wiring_prints_what_stands_behind_each_port(small_checkout: Any, name: str) -> None:
    result = graftline(small_checkout.root, "config", "--manifest", name, "--json")

    assert (result.exit_code, the_json(result), result.stderr) == (0, MANIFESTS[name], "")


def test_wiring_is_that_of_the_local_manifest_by_default(small_checkout: Any) -> None:
    assert the_json(graftline(small_checkout.root, "config", "--json")) == LOCAL


@pytest.mark.parametrize("name", MANIFESTS)
def test_wiring_is_a_table_for_people(small_checkout: Any, name: str) -> None:
    result = graftline(small_checkout.root, "config", "--manifest", name)

    words = [line.split()[:2] for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr, words[0]) == (0, "", ["Manifest", name])
    for port, settings in MANIFESTS[name].items():
        assert [port, settings["kind"]] in words


@pytest.mark.parametrize(
    ("ports", "changed"),
    [
        (["sandbox=memory"], {"sandbox": {"kind": "memory"}}),
        (["teacher=memory"], {"teacher": {"kind": "memory"}}),
        (["teacher=openai"], {"teacher": {"kind": "openai", "prompt": "small", "adapter": ""}}),
        (["chat_model.fleet=smoke", "queue=redis"], {"chat_model": {**ACTORS, "fleet": "smoke"}, "queue": REDIS}),
        (["dataset_hub=local"], {"dataset_hub": {"kind": "local", "mirror_must_match_pins": False}}),
        (
            ["dataset_hub.patience.read_s=3"],
            {"dataset_hub": {**HOMES, "patience": {**HOMES["patience"], "read_s": 3.0}}},
        ),
        (["dataset_hub=memory"], {"dataset_hub": {"kind": "memory", "files": {}}}),
        (["sandbox.required_level=none"], {"sandbox": {**WARM, "required_level": "none"}}),
        (["sandbox.limits.wall_s=3"], {"sandbox": {**WARM, "limits": {**DEFAULT_LIMITS, "wall_s": 3.0}}}),
        (
            ["sandbox.limits.wall_s=3.5", "sandbox.limits.cpu_s=1", "teacher=memory"],
            {
                "sandbox": {**WARM, "limits": {**DEFAULT_LIMITS, "wall_s": 3.5, "cpu_s": 1}},
                "teacher": {"kind": "memory"},
            },
        ),
        (['sandbox={"kind": "memory"}'], {"sandbox": {"kind": "memory"}}),
        (
            ['dataset_hub={"kind": "memory", "files": {"a=b": "c"}}'],
            {"dataset_hub": {"kind": "memory", "files": {"a=b": "c"}}},
        ),
        # the last one wins
        (["teacher=memory", "teacher=induction"], {}),
    ],
)
def test_a_port_or_one_of_its_settings_can_be_replaced(
    small_checkout: Any, ports: Sequence[str], changed: dict[str, Any]
) -> None:
    options = [word for port in ports for word in ("--set", port)]

    assert the_json(graftline(small_checkout.root, "config", "--json", *options)) == {**LOCAL, **changed}


def test_an_implementation_does_not_inherit_the_settings_of_another(small_checkout: Any) -> None:
    # dev has limits, which the sandbox in memory does not know
    result = graftline(small_checkout.root, "config", "--json", "--manifest", "dev", "--set", "sandbox=memory")

    assert the_json(result)["sandbox"] == {"kind": "memory"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--manifest", "staging"], "manifest 'staging' is unknown; known: default, local, dev, prod, test"),
        (["--manifest", "../local"], "manifest '../local' is unknown; known: default, local, dev, prod, test"),
        (["--set", "trainer=memory"], f"port 'trainer' is unknown; known: {', '.join(PORTS)}"),
        (["--set", "=memory"], f"port '' is unknown; known: {', '.join(PORTS)}"),
        (
            ["--set", "teacher=oracle"],
            "{local}: teacher: input tag 'oracle' found using 'kind' does not match any of the expected tags:"
            " 'induction', 'memory', 'openai' (got {{'kind': 'oracle'}})",
        ),
        (
            ["--set", "sandbox.color=red"],
            "{local}: sandbox.warm.color: unknown key; known here: kind, limits, required_level, workers",
        ),
        (["--set", "teacher.depth=3"], "{local}: teacher.induction.depth: unknown key; known here: kind"),
        (
            ["--set", "sandbox.limits.wall_s=soon"],
            "{local}: sandbox.warm.limits.wall_s: input should be a valid number (got 'soon')",
        ),
        (
            ["--set", "teacher.kind.a=1"],
            "{local}: teacher.kind.a: cannot be overridden, 'teacher.kind' is not a mapping",
        ),
    ],
)
@pytest.mark.parametrize("command", [["config"], ["run", "--dry-run"], ["run"]])
def test_wiring_that_does_not_fit_is_one_message(
    small_checkout: Any, command: Sequence[str], options: Sequence[str], message: str
) -> None:
    expected = message.format(local=small_checkout.root / "configs" / "manifests" / "local.yaml")

    assert shown(graftline(small_checkout.root, *command, *options)) == (1, "", f"error: {expected}\n")


def test_a_manifest_that_is_empty_is_one_message_whatever_is_replaced(small_checkout: Any) -> None:
    local = small_checkout.root / "configs" / "manifests" / "local.yaml"
    local.write_text("", "utf-8")

    assert shown(graftline(small_checkout.root, "config", "--set", "sandbox=memory")) == (
        1,
        "",
        f"error: {local}: sandbox: cannot be overridden, the file is not a mapping\n",
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_dry_run_prints_the_wiring_and_makes_nothing(small_checkout: Any, name: str) -> None:
    before = files(small_checkout.root)
    for form in ([], ["--json"]):
        result = graftline(small_checkout.root, "run", "--dry-run", "--manifest", name, *form)
        assert shown(result) == shown(graftline(small_checkout.root, "config", "--manifest", name, *form))

    assert files(small_checkout.root) == before


def test_a_run_makes_every_stage_and_prints_what_is_stored(small_checkout: Any, pair: dict[str, Any]) -> None:
    small_checkout.write([pair])
    result = graftline(small_checkout.root, "run", "--json", *IN_WARM)
    first = the_json(result)
    again = the_json(graftline(small_checkout.root, "run", "--json", *IN_WARM))

    made_counts = {stage: summary["made"] for stage, summary in first["stages"].items() if summary["artifacts"]}
    # three languages in three splits make nine partitions
    assert (result.exit_code, made_counts) == (
        0,
        {
            "raw": 1,
            "normalized": 1,
            "division": 1,
            "splits": 9,
            "label_tasks": 1,
            "synthetic_rules": 9,
            "tasks": 9,
            "teacher_trajectories": 9,
            "trajectories": 9,
        },
    )
    assert {
        stage: summary["unchanged"] for stage, summary in again["stages"].items() if summary["artifacts"]
    } == made_counts
    assert len(first["partitions"]) == 9
    # progress is for people, and goes where it does not disturb
    assert result.stderr.splitlines()[0] == "raw release_pairs: made (not there yet)"
    assert the_json(graftline(small_checkout.root, "status", "--json")) == again


def test_a_run_without_its_dataset_is_one_message(small_checkout: Any) -> None:
    small_checkout.sample.unlink()

    assert shown(graftline(small_checkout.root, "run", "--json", *IN_WARM)) == (
        1,
        "",
        f"error: {small_checkout.sample}: no such file; mend `files` of the dataset; found: nothing\n",
    )


def test_the_summary_of_an_empty_root_is_empty(small_checkout: Any) -> None:
    result = graftline(small_checkout.root, "status", "--json")

    summary = the_json(result)
    assert (result.exit_code, sorted(summary), summary["partitions"]) == (
        0,
        ["adapters", "partitions", "stages", "warnings"],
        {},
    )
    assert [stage["artifacts"] for stage in summary["stages"].values()] == [0] * len(summary["stages"])


def test_the_summary_is_tables_for_people(small_checkout: Any) -> None:
    result = graftline(small_checkout.root, "status")

    assert (result.exit_code, result.stderr, "Lineage" in result.stdout) == (0, "", True)
    assert str(small_checkout.root / "data") in result.stdout


def test_a_checkout_that_is_right_has_no_faults(small_checkout: Any) -> None:
    # the settings, what may leave, four manifests and the samples
    assert shown(graftline(small_checkout.root, "check")) == (0, "10 checked, 0 faulty\n", "")


def test_the_checkout_itself_is_configured_right(checkout: Path, tmp_path: Path) -> None:
    # configuration and samples alone: what is stored in it is its owner's
    (tmp_path / "configs").symlink_to(checkout / "configs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "samples").symlink_to(checkout / "data" / "samples")

    # and every recipe, deployment, evaluation and prompt
    folders = ("recipes", "harbor", "evaluations", "prompts")
    count = 13 + sum(len([*(checkout / "configs" / folder).glob("*.yaml")]) for folder in folders)
    assert shown(graftline(tmp_path, "check")) == (0, f"{count} checked, 0 faulty\n", "")


def test_faults_of_the_configuration_are_printed_without_a_traceback(small_checkout: Any) -> None:
    configs = small_checkout.root / "configs"
    (configs / "manifests" / "dev.yaml").write_text("sandbox: [", "utf-8")
    (configs / "trajectories.yaml").write_text("{wrokers: 1, least_verified_steps: -1}", "utf-8")

    assert shown(graftline(small_checkout.root, "check")) == (
        1,
        "10 checked, 2 faulty\n",
        f"{configs}/trajectories.yaml: least_verified_steps: input should be greater than or equal to 0 (got -1)\n"
        f"{configs}/trajectories.yaml: wrokers: unknown key;"
        " known here: asking, collecting, least_verified_steps, workers\n"
        f"{configs}/manifests/dev.yaml: line 1, column 11: not valid YAML:"
        " expected the node content, but found '<stream end>'\n",
    )


def test_faults_can_be_had_as_json(small_checkout: Any) -> None:
    path = small_checkout.root / "configs" / "trajectories.yaml"
    path.unlink()
    result = graftline(small_checkout.root, "check", "--json")

    fault = f"{path}: cannot be read (No such file or directory); expected a YAML file"
    assert (result.exit_code, the_json(result), result.stderr) == (1, {"checked": 10, "faults": [fault]}, "")


def test_a_root_without_configuration_is_faulty_throughout(tmp_path: Path) -> None:
    result = graftline(tmp_path, "check", "--json")

    # the settings, what may leave and four manifests; no samples are asked for without settings
    assert (result.exit_code, len(the_json(result)["faults"])) == (1, 6)


def test_a_stored_artifact_that_was_altered_is_a_fault(small_checkout: Any, pair: dict[str, Any]) -> None:
    small_checkout.write([pair])
    graftline(small_checkout.root, "run", "--json", *IN_WARM)
    folder = small_checkout.root / "data" / "raw" / "release_pairs" / "normalized"
    (folder / "python-00000.jsonl").write_text("{}\n", "utf-8")

    # 7 of configuration and samples, and 49 artifacts: 4 over all partitions, and 5 stages of 9
    assert shown(graftline(small_checkout.root, "check")) == (
        1,
        "59 checked, 1 faulty\n",
        f"{folder}: file 'python-00000.jsonl' was altered after it was written; materialize its asset again\n",
    )
    assert shown(graftline(small_checkout.root, "check", "--inputs")) == (0, "10 checked, 0 faulty\n", "")


def test_a_sample_that_is_missing_is_a_fault(small_checkout: Any) -> None:
    small_checkout.sample.unlink()

    assert shown(graftline(small_checkout.root, "check")) == (
        1,
        "10 checked, 1 faulty\n",
        f"{small_checkout.sample}: no such file; mend `files` of the dataset; found: nothing\n",
    )


def test_without_a_root_the_message_says_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["config"])

    assert shown(result) == (
        1,
        "",
        f"error: {tmp_path}: neither this folder nor one above it holds configs/manifests/;"
        " run from a checkout of graftline or set GRAFTLINE_ROOT\n",
    )


def test_the_root_may_come_from_the_environment_or_from_a_folder_above(
    small_checkout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_checkout.root / "data" / "samples")
    from_above = CliRunner().invoke(main, ["config", "--json"])
    monkeypatch.chdir(tmp_path)
    from_environment = CliRunner().invoke(main, ["config", "--json"], env={"GRAFTLINE_ROOT": str(small_checkout.root)})

    assert [the_json(from_above), the_json(from_environment)] == [LOCAL, LOCAL]


def test_half_a_configuration_of_vault_stops_no_command_that_needs_no_secret(
    small_checkout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")

    assert shown(graftline(small_checkout.root, "check")) == (0, "10 checked, 0 faulty\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "Error: No such command 'nosuch'."),
        (["config", "--nosuch"], "Error: No such option '--nosuch'."),
        (["config", "extra"], "Error: Got unexpected extra argument (extra)"),
        (["config", "--manifest"], "Error: Option '--manifest' requires an argument."),
        (["config", "--set", "sandbox"], "Error: --set 'sandbox': expected KEY=VALUE"),
        (["run", "--set", "sandbox"], "Error: --set 'sandbox': expected KEY=VALUE"),
        (["--root", "/nowhere/at/all", "check"], "Error: Invalid value for '--root': Directory '/nowhere/at/all'"),
    ],
)
def test_wrong_usage_is_exit_code_2(small_checkout: Any, arguments: Sequence[str], message: str) -> None:
    result = graftline(small_checkout.root, *arguments)

    last = result.stderr.splitlines()[-1]
    assert (result.exit_code, result.stdout, last[: len(message)]) == (2, "", message)


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("", "utf-8")

    assert graftline(tmp_path / "a", "check").exit_code == 2


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="graftline")

    assert shown(result) == (0, f"graftline, version {__version__}\n", "")
