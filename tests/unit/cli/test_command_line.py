"""The commands in this process: what they print, where, and with which exit code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from graftline import __version__
from graftline.cli.main import main
from graftline.cli.options import port_rows
from graftline.core.paths import Paths
from graftline.pipeline.manifests import MANIFESTS, load_manifest

IN_WARM = ("--set", "sandbox=memory")


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


def ports(root: Path, name: str, overrides: dict[str, Any] | None = None) -> Any:
    return load_manifest(Paths(root), name, overrides).model_dump(mode="json")


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_configuration_is_what_stands_behind_each_port(small_checkout: Any, name: str) -> None:
    expected = ports(small_checkout.root, name)
    printed = graftline(small_checkout.root, "config", "--manifest", name, "--json")
    assert (printed.exit_code, the_json(printed), printed.stderr) == (0, expected, "")
    table = graftline(small_checkout.root, "config", "--manifest", name)
    words = [line.split()[:2] for line in table.stdout.splitlines()]
    assert (table.exit_code, table.stderr, words[0]) == (0, "", ["Manifest", name])
    assert [port for port, settings in expected.items() if [port, settings["kind"]] not in words] == []
    lines = table.stdout.splitlines()
    assert (max(map(len, lines)) <= 120, [line for line in lines if line != line.rstrip()]) == (True, [])
    assert {word for row in port_rows(expected) for word in row[2].split()} <= {*table.stdout.split()}


@pytest.mark.parametrize(
    ("changes", "overrides"),
    [
        (["teacher=openai"], {"teacher": "openai"}),
        (
            ["sandbox.limits.wall_s=3.5", "chat_model.fleet=smoke"],
            {"sandbox.limits.wall_s": 3.5, "chat_model.fleet": "smoke"},
        ),
        (
            ['dataset_hub={"kind": "memory", "files": {"a=b": "c"}}'],
            {"dataset_hub": {"kind": "memory", "files": {"a=b": "c"}}},
        ),
        # the last one wins
        (["teacher=memory", "teacher=induction"], {}),
    ],
)
def test_a_port_or_one_of_its_settings_can_be_replaced(
    small_checkout: Any, changes: Sequence[str], overrides: dict[str, Any]
) -> None:
    options = [word for change in changes for word in ("--set", change)]
    printed = the_json(graftline(small_checkout.root, "config", "--json", *options))
    assert printed == ports(small_checkout.root, "local", overrides)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--manifest", "staging"], "manifest 'staging' is unknown; known: default, local, dev, prod, test"),
        (["--set", "teacher.depth=3"], "--set teacher.depth: unknown key; known here: kind"),
        (["--set", "sandbox={"], "--set sandbox: line 1, column 2: not valid YAML: "),
    ],
)
@pytest.mark.parametrize("command", [["config"], ["run", "--dry-run"], ["run"]])
def test_a_configuration_that_does_not_fit_is_one_message(
    small_checkout: Any, command: Sequence[str], options: Sequence[str], message: str
) -> None:
    expected = message.format(local=small_checkout.root / "configs" / "manifests" / "local.yaml")
    code, out, err = shown(graftline(small_checkout.root, *command, *options))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {expected}")


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
            "repository_changes": 1,
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


def test_the_status_is_tables_for_people_and_a_value_for_programs(small_checkout: Any) -> None:
    printed = the_json(graftline(small_checkout.root, "status", "--json"))
    assert (sorted(printed), printed["partitions"]) == (["adapters", "partitions", "stages", "warnings"], {})
    result = graftline(small_checkout.root, "status")
    assert (result.exit_code, result.stderr, "Lineage" in result.stdout) == (0, "", True)
    assert str(small_checkout.root / "data") in result.stdout


def test_the_checkout_itself_is_configured_right(checkout: Path, tmp_path: Path) -> None:
    # configuration and samples alone: what is stored in it is its owner's
    (tmp_path / "configs").symlink_to(checkout / "configs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "samples").symlink_to(checkout / "data" / "samples")

    # and every recipe, deployment, evaluation and prompt
    folders = ("recipes", "harbor", "evaluations", "prompts")
    count = 13 + sum(len([*(checkout / "configs" / folder).glob("*.yaml")]) for folder in folders)
    assert shown(graftline(tmp_path, "check")) == (0, f"{count} checked, 0 faulty\n", "")


def test_faults_can_be_had_as_json(small_checkout: Any) -> None:
    path = small_checkout.root / "configs" / "trajectories.yaml"
    path.unlink()
    result = graftline(small_checkout.root, "check", "--json")

    fault = f"{path}: cannot be read (No such file or directory); expected a YAML file"
    assert (result.exit_code, the_json(result), result.stderr) == (1, {"checked": 10, "faults": [fault]}, "")


def test_a_stored_artifact_that_was_altered_is_a_fault(small_checkout: Any, pair: dict[str, Any]) -> None:
    small_checkout.write([pair])
    graftline(small_checkout.root, "run", "--json", *IN_WARM)
    folder = small_checkout.root / "data" / "raw" / "release_pairs" / "normalized"
    (folder / "python-00000.jsonl").write_text("{}\n", "utf-8")

    # 7 of configuration and samples, and 50 artifacts: 5 over all partitions, and 5 stages of 9
    assert shown(graftline(small_checkout.root, "check")) == (
        1,
        "60 checked, 1 faulty\n",
        f"{folder}: file 'python-00000.jsonl' was altered after it was written; materialize its asset again\n",
    )
    assert shown(graftline(small_checkout.root, "check", "--inputs")) == (0, "10 checked, 0 faulty\n", "")


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

    assert [the_json(from_above), the_json(from_environment)] == [ports(small_checkout.root, "local")] * 2


def test_half_a_configuration_of_vault_stops_no_command_that_needs_no_secret(
    small_checkout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")

    assert shown(graftline(small_checkout.root, "check")) == (0, "10 checked, 0 faulty\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "Error: No such command 'nosuch'; there are refactor, follow, learn,"),
        (["data", "fecth"], "Error: No such command 'fecth'; did you mean fetch?"),
        (["config", "--nosuch"], "Error: No such option '--nosuch'."),
        (["config", "extra"], "Error: Got unexpected extra argument (extra)"),
        (["config", "--manifest"], "Error: Option '--manifest' requires an argument."),
        (["config", "--set", "sandbox"], "Error: --set 'sandbox': expected KEY=VALUE"),
        (["--root", "/nowhere/at/all", "check"], "Error: Invalid value for '--root': Directory '/nowhere/at/all'"),
        (["--root", __file__, "check"], "Error: Invalid value for '--root': Directory "),
    ],
)
def test_wrong_usage_is_exit_code_2(small_checkout: Any, arguments: Sequence[str], message: str) -> None:
    result = graftline(small_checkout.root, *arguments)

    last = result.stderr.splitlines()[-1]
    assert (result.exit_code, result.stdout, last[: len(message)]) == (2, "", message)


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="graftline")

    assert shown(result) == (0, f"graftline, version {__version__}\n", "")
