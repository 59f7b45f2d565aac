"""The installed command as a process of its own: exit codes, streams, and how little it loads to answer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import graftline

COMMAND = Path(sys.executable).with_name("graftline")
FINDING = ["detail", "is_needed", "is_there", "name", "remedy"]
HEAVY = (
    "ast_grep_py",
    "dagster",
    "dotenv",
    "duckdb",
    "fsspec",
    "httpx",
    "huggingface_hub",
    "hvac",
    "matplotlib",
    "numpy",
    "orjson",
    "pyarrow",
    "pydantic",
    "requests",
    "rich",
    "ruamel",
    "scipy",
    "tinker",
    "torch",
    "transformers",
    "tree_sitter",
    "vllm",
)


def ran(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=240
    )


def test_what_is_done_is_exit_code_0_and_one_line_of_json(small_checkout: Any) -> None:
    done = ran(COMMAND, "config", "--manifest", "test", "--json", folder=small_checkout.root)

    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    assert json.loads(done.stdout)["teacher"] == {"kind": "memory"}


def test_an_error_is_exit_code_1_and_its_message_alone(small_checkout: Any) -> None:
    path = small_checkout.root / "configs" / "manifests" / "local.yaml"
    path.write_text("sandbox: {kind: porcess}\n", "utf-8")
    done = ran(COMMAND, "config", folder=small_checkout.root)

    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"error: {path}: dataset_hub: field required\n"
        f"{path}: sandbox: input tag 'porcess' found using 'kind' does not match any of the expected tags:"
        " 'warm', 'process', 'memory' (got {'kind': 'porcess'})\n"
        f"{path}: teacher: field required\n",
    )


def test_a_verbose_run_logs_and_shows_progress_on_standard_error_only(
    small_checkout: Any, pair: dict[str, Any]
) -> None:
    small_checkout.configure(languages=["python"])
    small_checkout.write([pair])
    done = ran(COMMAND, "-v", "run", "--json", "--set", "sandbox=memory", folder=small_checkout.root)

    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert json.loads(done.stdout)["stages"]["raw"]["artifacts"] == 1
    lines = done.stderr.splitlines()
    assert "INFO graftline.core.build: raw release_pairs: made (not there yet): rows 1, files 1" in lines
    assert "raw release_pairs: made (not there yet)" in lines


def test_a_run_that_keeps_edits_away_from_no_evaluation_says_so_once(small_checkout: Any) -> None:
    small_checkout.configure(languages=["python"])
    done = ran(COMMAND, "run", "--json", "--set", "sandbox=memory", folder=small_checkout.root)

    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert (done.returncode, warnings) == (
        0,
        [
            "WARNING graftline.decontamination: no evaluation is in use, so edits are kept away from none; add one to"
            " `use` of configs/datasets.yaml, or put its file into configs/evals"
        ],
    )


@pytest.fixture(scope="module")
def doctor(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """What the doctor says of this machine."""
    return ran(COMMAND, "doctor", "--json", folder=tmp_path_factory.mktemp("anywhere"))


def test_the_doctor_says_of_every_ability_how_to_get_it_and_fails_only_over_what_is_needed(
    doctor: subprocess.CompletedProcess[str],
) -> None:
    findings = json.loads(doctor.stdout)

    assert (doctor.stdout.count("\n"), doctor.stderr) == (1, "")
    assert [name for name, finding in findings.items() if finding["is_needed"]] == ["python", "ast-grep", "jail"]
    assert {
        name for name, finding in findings.items() if sorted(finding) != FINDING or finding["name"] != name
    } == set()
    missing = [finding for finding in findings.values() if not finding["is_there"]]
    assert [finding["name"] for finding in missing if not finding["remedy"]] == []
    assert doctor.returncode == (1 if any(finding["is_needed"] for finding in missing) else 0)


def test_the_doctor_fails_where_a_needed_tool_is_missing(tmp_path: Path) -> None:
    # an interpreter without tools beside it, nor any on the path
    python = tmp_path / "python"
    python.symlink_to(Path(sys.executable).resolve())
    (tmp_path / "empty").mkdir()
    folders = [str(Path(graftline.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    done = ran(
        python, "-c", "from graftline.cli.main import main; main(['doctor', '--json'])",
        folder=tmp_path, PYTHONPATH=os.pathsep.join(folders), PATH=str(tmp_path / "empty"),
    )  # fmt: skip

    assert (done.returncode, json.loads(done.stdout)["ast-grep"]) == (
        1,
        {
            "name": "ast-grep",
            "is_there": False,
            "detail": "not installed",
            "is_needed": True,
            "remedy": "pip install ast-grep-cli",
        },
    )


def test_the_doctor_prints_a_table_for_people(tmp_path: Path) -> None:
    done = ran(COMMAND, "doctor", folder=tmp_path)

    marks = {words[1]: words[0] for words in map(str.split, done.stdout.splitlines()) if len(words) > 2}
    assert marks["python"] == "yes"
    assert set(marks) >= {"ast-grep", "jail", "dagster", "docker", "gpu", "hvac", "vllm"}


def test_help_loads_nothing_but_the_command_line(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from graftline.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = ran(sys.executable, "-c", script, folder=tmp_path)

    assert done.returncode == 0
    assert [name for name in HEAVY if name in done.stderr.split()] == []


def test_importing_the_library_loads_nothing_and_says_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; import graftline.cli.main; print(*sorted(name for name in sys.modules if 'graftline' in name))"
    )
    done = ran(sys.executable, "-c", script, folder=tmp_path)

    assert (done.stdout, done.stderr) == (
        "graftline graftline.cli graftline.cli.main graftline.cli.options graftline.cli.renamed graftline.core"
        " graftline.core.errors graftline.core.text_diff\n",
        "",
    )
