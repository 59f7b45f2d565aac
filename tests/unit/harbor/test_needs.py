"""What a Harbor task needs of the box that runs it: found by reading it, and told in place of a reward where it is not there."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graftline.harbor.contract import VerifierSettings, counts
from graftline.harbor.executors.base import BuildContext
from graftline.harbor.in_box.needs import find_missing
from graftline.harbor.packager import HarborPackager, find_omitted_files
from graftline.harbor.task_format.importing import import_harbor_tasks
from graftline.harbor.task_format.task_folder import HarborTask, needs_of, needs_of_solution, read_task, workdir_of
from tests.rollout_specs import LIMITS, a_local, a_spec, never, on_local
from tests.unit.harbor.test_importing import COUNT, acted, graded_with_output, laid
from tests.unit.harbor.tiny_crate import write

REWARD = 'echo "$r" > "$LOGS_DIR/reward.txt"\n'
PATHS = {
    "toml": "task.toml",
    "dockerfile": "environment/Dockerfile",
    "test": "tests/test.sh",
    "outputs": "tests/test_outputs.py",
    "solve": "solution/solve.sh",
}
WRONG = f"#!/bin/sh\ngrep -q 3 answer.txt && r=1 || r=0\n{REWARD}"
# what every test.sh of Terminal-Bench 2 does, with a network or without
TERMINAL_BENCH = """#!/bin/bash
apt-get update && apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx -p 3.13 -w pytest==8.4.1 pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""


def task(folder: Path, **files: str) -> HarborTask:
    """Return a task that needs nothing but for these files."""
    return read_task(write(folder / "count", {**COUNT, **{PATHS[name]: text for name, text in files.items()}}))


@pytest.mark.parametrize(
    "line",
    [
        "apt-get -y install curl",
        "apk add --no-cache bash",
        "pip install pytest==8.4.1",
        "python3 -m pip install -q pytest",
        "uvx pytest x",
        "uv run \\\n  --with pytest pytest x",
        "curl -LsSf https://astral.sh/uv/install.sh | sh",
        "wget -q http://example.org/x",
        "npm ci",
        "git clone https://example.org/x.git",
    ],
)
def test_a_script_that_fetches_something_needs_a_network(tmp_path: Path, line: str) -> None:
    found = needs_of(task(tmp_path, test=f"#!/bin/sh\n{line}\n{REWARD}"), "/app", has_image=True)
    assert list(found) == ["network"]
    assert found["network"].startswith("tests/test.sh: ")
    assert list(needs_of_solution(task(tmp_path, solve=f"#!/bin/sh\n{line}\n"), "/app")) == ["network"]


@pytest.mark.parametrize(
    "line",
    [
        "# apt-get install curl",
        "pip install --no-index --find-links wheels pytest",
        "echo update the apt file",
        "python3 -m pytest -q",
        'python3 check.py "${TESTS_DIR:-/tests}/wanted" "$PWD/app"',
        "cat ./tests/x mytests/y http://host/tests",
    ],
)
def test_what_only_looks_so_needs_nothing(tmp_path: Path, line: str) -> None:
    assert needs_of(task(tmp_path, test=f"#!/bin/sh\n{line}\n{REWARD}"), "/app", has_image=True) == {}


@pytest.mark.parametrize(
    ("toml", "is_needed"),
    [
        ('[environment]\nnetwork_mode = "public"\n', True),
        ("[environment]\nallow_internet = true\n", True),
        ('[verifier]\nnetwork_mode = "public"\n', True),
        ('[environment]\nnetwork_mode = "public"\n[verifier]\nnetwork_mode = "no-network"\n', False),
        ("[environment]\nallow_internet = false\n", False),
        ("", False),
    ],
)
def test_a_network_that_a_task_asks_for_is_needed(tmp_path: Path, toml: str, is_needed: bool) -> None:
    assert ("network" in needs_of(task(tmp_path, toml=toml), "/app", has_image=True)) == is_needed


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("r = get('http://localhost:8080/x')", {"service": "tests/test_outputs.py: localhost"}),
        ("s.connect(('127.0.0.1', 5432))", {"service": "tests/test_outputs.py: 127.0.0.1"}),
        ("open('/var/log/nginx/access.log')", {"outside": "tests/test_outputs.py: /var/log/nginx/access.log"}),
        ("open('/root/answer.txt')", {"outside": "tests/test_outputs.py: /root/answer.txt"}),
        ("open('/app/answer.txt')", {"folders": {"/app": "tests/test_outputs.py"}}),
        ("open('/tests/wanted.txt')", {"folders": {"/tests": "tests/test_outputs.py"}}),
    ],
)
def test_places_that_tests_name_are_needed(tmp_path: Path, line: str, needs: dict[str, Any]) -> None:
    assert needs_of(task(tmp_path, outputs=f"{line}\n"), "/app", has_image=True) == needs
    # what grades in a box of its own on purpose names what is there
    toml = '[verifier]\nenvironment_mode = "separate"\n'
    separate = needs_of(task(tmp_path, outputs=f"{line}\n", toml=toml), "/app", has_image=True)
    assert separate == {cause: place for cause, place in needs.items() if cause == "folders"}


def test_an_image_that_nobody_builds_is_missing(tmp_path: Path) -> None:
    built = task(tmp_path, dockerfile="FROM debian\nRUN apt-get update\nWORKDIR /srv/app\n")
    assert needs_of(built, "/srv/app", has_image=False) == {"image": "environment/Dockerfile: RUN apt-get update"}
    assert needs_of(built, "/srv/app", has_image=True) == {}
    assert (workdir_of(built, "/app"), workdir_of(task(tmp_path / "other"), "/app")) == ("/srv/app", "/app")
    plain = task(tmp_path / "plain", dockerfile="FROM debian\nCOPY start.txt /app/\n")
    assert needs_of(plain, "/app", has_image=False) == {}


def test_a_rollout_of_a_task_that_cannot_be_graded_starts_no_agent_and_says_why(tmp_path: Path) -> None:
    write(tmp_path / "count", {**COUNT, "tests/test.sh": TERMINAL_BENCH})
    spec = import_harbor_tasks(tmp_path / "count", "mine", tmp_path / "staging", has_image=False)
    assert list(spec.tasks[0].metadata["needs"]) == ["network", "bash", "folders"]
    result = acted(spec.context_dir, (), tmp_path / "agent", policy={"config": {"model": "m"}})
    assert (result["failure_cause"], result["success_status"]) == ("verifier_failed", "apply_failed")
    assert result["error"] == (
        "nothing can be graded: needs network: the box that grades has none (tests/test.sh: apt-get update);"
        " work folder: the box has it elsewhere (/tests, which tests/test.sh names)"
    )
    assert not (tmp_path / "agent" / "submission").exists()


def verified(tmp_path: Path, script: str, **submitted: str) -> tuple[int, str, str | None]:
    """Return status, last line and reward of a verifier that did not see beforehand what the task needs."""
    write(tmp_path / "count", {**COUNT, "tests/test.sh": script})
    spec = import_harbor_tasks(tmp_path / "count", "mine", tmp_path / "staging", has_image=False)
    assert spec.verifier is not None
    box = laid(spec.verifier.context_dir, (), tmp_path / "box")
    known = json.loads((box / "task.json").read_text())
    (box / "task.json").write_text(json.dumps({**known, "needs": {}}))
    write(box / "submission", {"answer.txt": "0", **submitted})
    status, last = graded_with_output(box, tmp_path / "logs")
    reward = tmp_path / "logs" / "reward.txt"
    return status, last, reward.read_text() if reward.exists() else None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            f"#!/bin/sh\nuvx-of-nobody pytest && r=1 || r=0\n{REWARD}",
            "needs uvx-of-nobody: the box has no such program",
        ),
        (
            f"#!/bin/bash\nnobodys-pytest\n[[ $? = 0 ]] && r=1 || r=0\n{REWARD}",
            "needs nobodys-pytest: the box has no such",
        ),
        (
            f"#!/bin/sh\npython3 -m a_runner_of_nobody -q && r=1 || r=0\n{REWARD}",
            "needs a_runner_of_nobody: ",
        ),
    ],
)
def test_a_zero_of_a_machine_without_what_the_tests_run_is_no_reward(tmp_path: Path, script: str, reason: str) -> None:
    status, last, reward = verified(tmp_path, script)
    assert (status, reward) == (3, None)
    assert last.startswith(f"nothing can be graded: {reason}")


def test_what_a_script_could_not_install_is_missing_unless_the_tests_had_begun() -> None:
    script, said = "uvx -w numpy==1.26.4 pytest /tests/test_outputs.py\n", "error: Failed to build `numpy==1.26.4`\n"
    assert find_missing(said, [script], has_network=True) == f"needs what a script installs: {said.strip()}"
    assert find_missing(said, ["cat answer.txt\n"], has_network=True) == ""
    # an answer may print what an installer would
    assert find_missing(f"==== test session starts ====\n{said}", [script], has_network=True) == ""


def test_a_host_that_only_a_network_reaches_is_missing_where_the_tests_name_it() -> None:
    output = "urllib3: Failed to resolve: Temporary failure in name resolution"
    asks = "get('https://example.org/x')\n"
    reason = "needs network: a script asks https://example.org, which the box does not reach"
    assert find_missing(output, [asks], has_network=False) == reason
    assert find_missing(output, [asks], has_network=True) == ""
    assert find_missing("AssertionError", [asks], has_network=False) == ""
    assert find_missing(output, ["get('http://localhost:1/x')  # an answer's\n"], has_network=False) == ""


@pytest.mark.parametrize(("answer", "reward"), [("0", "0\n"), ("3", "1\n")])
def test_an_answer_that_is_wrong_counts_0_and_one_that_is_right_1(tmp_path: Path, answer: str, reward: str) -> None:
    assert verified(tmp_path, WRONG, **{"answer.txt": answer}) == (0, "", reward)


@pytest.mark.parametrize(
    "words",
    [
        "test.sh: line 3: uvx: command not found",
        "/usr/bin/python3: No module named pytest",
        "curl: (6) Could not resolve host: astral.sh",
        "test.sh: 1: Syntax error: ( unexpected",
    ],
)
def test_an_answer_cannot_talk_itself_out_of_a_0(tmp_path: Path, words: str) -> None:
    script = f"#!/bin/sh\nsh ./program && grep -q 3 answer.txt && r=1 || r=0\n{REWARD}"
    assert verified(tmp_path, script, program=f"echo '{words}'\n") == (0, words, "0\n")


@pytest.mark.parametrize("first", ["#!/bin/bash\n", "#!/usr/bin/env bash\n", "#!/bin/sh\n", ""])
def test_a_script_in_bash_is_run_by_bash(tmp_path: Path, first: str) -> None:
    script = f'{first}a=(3 4)\nif [[ "$(< answer.txt)" == "${{a[0]}}" ]]; then r=1; else r=0; fi\n{REWARD}'
    assert verified(tmp_path, script, **{"answer.txt": "3"}) == (0, "", "1\n")


def test_where_there_is_no_bash_what_is_written_in_it_is_no_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("sh", "grep", "python3"):
        program = shutil.which(name)
        assert program is not None
        (bin_ / name).symlink_to(program)
    monkeypatch.setenv("PATH", str(bin_))
    status, last, reward = verified(tmp_path, f"#!/bin/bash\nr=0\n{REWARD}")
    assert (status, reward) == (3, None)
    assert last == "nothing can be graded: needs bash: tests/test.sh is a script of it, and the box has none"
    # one that says sh and is not: it is read before it is run
    status, last, reward = verified(tmp_path, f"#!/bin/sh\na=(1 2)\nr=0\n{REWARD}")
    assert (status, reward) == (3, None)
    assert last == "nothing can be graded: needs bash: sh cannot read tests/test.sh, and the box has no bash"
    status, last, reward = verified(tmp_path, f"#!/bin/sh\nif [[ -f answer.txt ]]; then r=1; else r=0; fi\n{REWARD}")
    assert (status, reward) == (3, None)
    assert last == "nothing can be graded: needs bash: another shell does not know '[['"
    # without a first line, and written so that every shell reads it
    assert verified(tmp_path, f"grep -q 3 answer.txt && r=1 || r=0\n{REWARD}") == (0, "", "0\n")


@pytest.mark.parametrize(
    "lost", ["environment/server.pem", "tests/.ssh/id", "environment/a.key", "tests/node_modules/x.js"]
)
def test_a_task_of_which_a_file_is_dropped_has_no_reward(tmp_path: Path, lost: str) -> None:
    write(tmp_path / "tasks" / "count", COUNT)
    write(tmp_path / "tasks" / "whole", COUNT)
    write(tmp_path / "tasks" / "count", {lost: "text\n"})
    spec = import_harbor_tasks(tmp_path / "tasks", "mine", tmp_path / "staging", has_image=False)
    dropped = {"dropped": f"tasks/count/{lost}"}
    assert [each.metadata.get("needs") for each in spec.tasks] == [dropped, None]
    result = acted(spec.context_dir, spec.tasks[0].agent_files, tmp_path / "agent", task_id="count")
    assert (result["failure_cause"], result["error"]) == (
        "verifier_failed",
        "nothing can be graded: file dropped: an archive takes no file that looks like a secret or a leftover"
        f" (tasks/count/{lost})",
    )
    # what is said is what is packed
    packed = {*HarborPackager(spec).package_bytes().files}
    written = {path.relative_to(spec.context_dir).as_posix() for path in spec.context_dir.rglob("*") if path.is_file()}
    assert written - packed == {*find_omitted_files(spec.context_dir)}


@on_local
@pytest.mark.parametrize(
    ("files", "agent", "reward", "cause", "reason"),
    [
        ({}, "oracle", 1.0, None, ""),
        ({}, "nop", 0.0, None, ""),
        ({"tests/test.sh": TERMINAL_BENCH}, "oracle", None, "verifier_failed", "nothing can be graded: needs network: "),
        ({"solution/solve.sh": "#!/bin/sh\nno-such-tool\nexit 0\n"}, "oracle", None, "verifier_failed",
         "nothing can be graded: needs no-such-tool: the box has no such program"),
    ],
)  # fmt: skip
def test_in_a_box_of_this_machine_only_what_was_tested_counts(
    tmp_path: Path, files: dict[str, str], agent: str, reward: float | None, cause: str | None, reason: str
) -> None:
    write(tmp_path / "count", {**COUNT, **files})
    spec = import_harbor_tasks(tmp_path / "count", "mine", tmp_path / "staging", agent=agent, has_image=False)
    packager, executor = HarborPackager(spec), a_local(tmp_path / "local")
    packages = (packager.package_bytes(), packager.package_verifier())
    contexts = [BuildContext(each.digest, partial(getattr, each, "archive"), "") for each in packages if each]
    snapshots = [executor.build(context) for context in contexts]
    assert spec.verifier is not None
    box = a_spec(
        snapshots[0].snapshot_id,
        entrypoint=spec.entrypoint,
        verifier=VerifierSettings(**{name: getattr(spec.verifier, name) for name in VerifierSettings.model_fields}),
        verifier_snapshot_id=snapshots[1].snapshot_id,
        limits=LIMITS,
    )
    end = executor.run(box, never)
    executor.close()
    assert (end.reward, end.failure_cause) == (reward, cause)
    assert end.error.startswith(reason)
    assert counts(end.reward, end.failure_cause) == (reward is not None)
