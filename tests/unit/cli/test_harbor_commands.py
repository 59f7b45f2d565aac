"""The commands below `graftline env`, asked of a service in this process whose rewards are a table."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from graftline.astgrep.action import PatternAction
from graftline.cli.main import main
from graftline.harbor.contract import FailureCause, RewardInfo, RolloutResponse, SuccessStatus
from graftline.harbor.executors.base import Execution, RolloutSpec
from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.served import serve_task_app
from graftline.rollouts.task import Task
from tests.harbor_parts import KEY, service
from tests.harbor_tasks import TASKS
from tests.unit.cli.test_missing_extra import ran_without
from tests.unit.harbor.tiny_crate import write

HALVES = {
    "name": "halves",
    "description": "What is half of the seed?",
    "environment": {"kind": "folder", "context": "halves"},
    "calibration": {"is_required": False},
}
REFACTORING = {"name": "rewrites", "environment": {"kind": "refactoring", "tasks": "tasks.jsonl"}}
BROKEN = 3
TRACEBACK = """Traceback (most recent call last):
  File "run_rollout.py", line 7, in <module>
    main()
ValueError: it broke
  in two lines
"""


def outcome(box: RolloutSpec) -> Execution:
    """Reward a seed by a tenth of it, but for one that breaks; agents and teachers by who they are."""
    config = box.request["policy"]["config"]
    actor = config.get("agent", config.get("teacher"))
    if box.request["seed"] == BROKEN:
        return Execution(SuccessStatus.RUNTIME_ERROR, None, FailureCause.UNCLASSIFIED, TRACEBACK)
    fixed = {"nop": 0.0, "oracle": 1.0, "memory": 1.0, "half_right": 0.5}
    return Execution(SuccessStatus.SUCCESS, fixed.get(actor, box.request["seed"] / 10), cost_usd=0.25, tokens=10)


def task(number: int) -> Task:
    gold = PatternAction(pattern="old($A)", rewrite="new($A)")
    return Task(
        id=f"mine:{number}",
        dataset="mine",
        language="python",
        instruction="Call new.",
        before=f"old({number})\n",
        target=f"new({number})\n",
        gold_action=gold,
        license="MIT",
        group="mine",
        origin="mine",
    )


class Place:
    """A root, and the service that its commands ask."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url

    def __call__(self, *arguments: str, **environment: str) -> Result:
        options = {"GRAFTLINE_HARBOR_URL": self.url, **environment}
        result = CliRunner().invoke(main, ["--root", str(self.root), "env", *arguments], env=options)
        # whatever else is raised would be shown to the user as a traceback
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert (result.exit_code, result.stdout.count("\n")) == (0, 1), result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("harbor")
    for name, file in (("halves", HALVES), ("refactoring", REFACTORING)):
        path = root / "configs" / "harbor" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        # JSON is YAML
        path.write_text(json.dumps(file), "utf-8")
    (root / "halves").mkdir()
    (root / "halves" / "run_rollout.py").write_text("print(1)\n", "utf-8")
    (root / "tasks.jsonl").write_text("".join(task(n).model_dump_json() + "\n" for n in range(2)), "utf-8")
    (root / "data" / "harbor" / "service").mkdir(parents=True)
    (root / "data" / "harbor" / "service" / "api_key").write_text(KEY, "utf-8")
    with service(f"sqlite:///{root / 'harbor.sqlite'}", outcome) as client:
        place = Place(root, str(client.base_url).rstrip("/"))
        assert place("upload", "halves").exit_code == 0
        yield place


def words(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_the_same_content_is_uploaded_once_and_shown(place: Place) -> None:
    first, again = place.json("upload", "halves"), place.json("upload", str(place.root / "configs/harbor/halves.yaml"))
    assert first == again
    assert {key: first[key] for key in ("name", "version", "status", "error")} == {
        "name": "halves", "version": 1, "status": "ready", "error": None,
    }  # fmt: skip
    shown = place("upload", "halves")
    assert [first["id"], "halves", "1", "ready", first["snapshot_id"]] in words(shown)
    assert "calibrate" not in shown.stdout
    assert first["id"] in [entry["id"] for entry in place.json("list", "--status", "ready")["deployments"]]


def test_an_upload_has_another_name_or_no_build_where_that_is_asked_for(place: Place) -> None:
    deployment = place.json("upload", "refactoring", "--name", "unbuilt", "--no-build")
    assert (deployment["name"], deployment["status"]) == ("unbuilt", "pending")
    assert place.json("list", "--status", "pending", "--limit", "1")["deployments"] == [deployment]
    assert place.json("build", "unbuilt")["status"] == "ready"
    status = place.json("status", deployment["id"])
    assert (status["status"], [entry["status"] for entry in status["builds"]]) == ("ready", ["completed"])
    assert f"unbuilt, version 1 ({deployment['id']}): ready" in place("status", "unbuilt").stdout.splitlines()
    line = place("upload", "refactoring").stdout.splitlines()[-1]
    assert line == "its floor and ceiling are not known yet: graftline env calibrate refactoring"


def test_instances_are_made_once_per_seed(place: Place) -> None:
    place.json("upload", "halves", "--name", "counted")
    instances = place.json("instances", "create", "counted", "--seeds", "0,4,1-2")["instances"]
    assert [(entry["seed"], entry["status"]) for entry in instances] == [
        (0, "ready"),
        (1, "ready"),
        (2, "ready"),
        (4, "ready"),
    ]
    more = place.json("instances", "create", "counted", "--count", "2", "--start-seed", "4", "--no-wait")["instances"]
    assert more[0]["id"] == instances[-1]["id"]
    listed = place("instances", "list", "counted", "--status", "ready")
    assert listed.stdout.splitlines()[-1] == "5 of 5 are ready"
    assert place.json("instances", "build", "counted") == {"total_instances": 5, "ready_count": 5}
    assert place("instances", "build", "counted").stdout == "5 of 5 instances are ready\n"


def test_rollouts_have_names_of_their_own_and_what_broke_is_no_zero(place: Place) -> None:
    first, again = (place.json("run", "halves", "--seeds", "0-3") for _ in range(2))
    rows = [
        (entry["seed"], entry["reward"], entry["reward_valid"], entry["failure_cause"]) for entry in first["rollouts"]
    ]
    assert rows == [(0, 0.0, True, None), (1, 0.1, True, None), (2, 0.2, True, None), (3, None, False, "unclassified")]
    summary = first["summary"]
    assert {key: summary[key] for key in ("n_valid", "n_infra", "n_total", "coverage", "total_cost_usd")} == {
        "n_valid": 3, "n_infra": 1, "n_total": 4, "coverage": 0.75, "total_cost_usd": None,
    }  # fmt: skip
    assert summary["mean_reward"] == pytest.approx(0.1)
    names = [entry["trace_correlation_id"] for run in (first, again) for entry in run["rollouts"]]
    assert len({*names}) == 8


def test_rollouts_are_a_table_for_people_and_trials_for_programs(place: Place, tmp_path: Path) -> None:
    shown = place("run", "halves", "--seeds", "2,3", "--output", str(tmp_path / "trials"))
    # seed, task, status, reward, and the cause with what is known of it
    rows = [line for line in words(shown) if line[2:3] in (["completed"], ["failed"])]
    assert [(row[0], *row[2:-1]) for row in rows] == [
        ("2", "completed", "0.2000"),
        ("3", "failed", "-", "unclassified:", "ValueError:", "it", "broke"),
    ]
    assert shown.stdout.splitlines()[-2:] == [
        "mean reward 0.2000 over 1 of 2 seeds; coverage 50%, 1 without a reward that counts",
        f"2 trials are in {tmp_path / 'trials'}",
    ]
    rewards = [json.loads(path.read_text()) for path in tmp_path.glob("trials/*/verifier/reward.json")]
    assert rewards == [{"reward": 0.2}]
    assert shown.exit_code == 0
    assert place("run", "halves", "--seeds", "3").exit_code == 1


def test_without_seeds_those_of_the_instances_are_run(place: Place) -> None:
    deployment = place.json("upload", "halves", "--name", "few")
    refused = place("run", "few")
    assert (refused.exit_code, "deployment 'few': has no instances; name --seeds" in refused.stderr) == (1, True)
    place.json("instances", "create", deployment["id"], "--seeds", "5,7")
    assert [entry["reward"] for entry in place.json("run", "few")["rollouts"]] == [0.5, 0.7]
    assert [entry["reward"] for entry in place.json("eval", "few")["results"]] == [0.5, 0.7]


def test_a_policy_reaches_the_rollout(place: Place) -> None:
    options = ["--model", "m", "--agent", "half_right", "--set", "prompt.system=Be brief.", "--set", "temperature=0"]
    [entry] = place.json("run", "halves", "--seeds", "1", *options)["rollouts"]
    assert entry["reward"] == 0.5
    view = place.json("export", entry["rollout_id"], str(place.root / "trials"))
    [folder] = view["folders"]
    assert json.loads((Path(folder) / "config.json").read_text())["agent"] == {"name": "half_right", "model_name": "m"}


def test_an_evaluation_says_what_counts_and_how_sure_it_is(place: Place) -> None:
    done = place.json("eval", "halves", "--seeds", "1-3", "--min-coverage", "0.5")
    assert (done["status"], [entry["reward"] for entry in done["results"]]) == ("completed", [0.1, 0.2, None])
    assert done["summary"]["mean_reward"] == pytest.approx(0.15)
    assert done["summary"]["interval"] == pytest.approx([0.1, 0.2])
    shown = place("eval", f"{place.url}/api/harbor/deployments/halves", "--seeds", "1-3")
    assert ": completed_with_errors" in shown.stdout.splitlines()[-2]
    assert shown.stdout.splitlines()[-1] == (
        "mean reward 0.1500 (95 %: 0.1000 to 0.2000) over 2 of 3 seeds; coverage 67%, 1 without a reward that counts"
    )
    assert shown.exit_code == 0


def test_an_evaluation_without_a_reward_that_counts_fails(place: Place) -> None:
    result = place("eval", "halves", "--seeds", str(BROKEN))
    assert ["unclassified:", "ValueError:", "it", "broke"] in [line[3:7] for line in words(result)]
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        1,
        "mean reward - over 0 of 1 seeds; coverage 0%, 1 without a reward that counts",
    )


@pytest.mark.parametrize("budget", ["--budget-usd=0.25", "--budget-rollouts=1", "--budget-tokens=10"])
def test_an_evaluation_ends_with_its_budget(place: Place, budget: str) -> None:
    done = place.json("eval", "halves", "--seeds", "0-2", "--concurrency", "1", budget)
    assert (done["status"], [entry["status"] for entry in done["results"]]) == (
        "completed_with_errors",
        ["completed", "cancelled", "cancelled"],
    )


def test_a_task_app_that_is_no_deployment_is_evaluated_with_its_own_key(place: Place) -> None:
    def rollout(request: Any) -> RolloutResponse:
        reward = RewardInfo(outcome_reward=request.seed / 4)
        return RolloutResponse(trace_correlation_id=request.trace_correlation_id, reward_info=reward)

    config = LocalAPIConfig(app_id="quarters", rollout=rollout, api_key="the-key-of-the-app")  # type: ignore[arg-type]
    with serve_task_app(create_local_api(config)) as url:
        done = place("eval", url, "--seeds", "1,2", "--json", ENVIRONMENT_API_KEY="the-key-of-the-app")
        assert json.loads(done.stdout)["summary"]["mean_reward"] == pytest.approx(0.375)
        assert "does not say which seeds it has; name --seeds" in place("eval", url).stderr


def test_calibration_finds_floor_and_ceiling_and_keeps_them(place: Place) -> None:
    done = place.json("calibrate", "refactoring")
    path = place.root / "data/harbor/calibration/rewrites.json"
    assert (done["path"], done["floor"], done["ceiling"], done["faults"]) == (str(path), 0.0, 1.0, {})
    assert json.loads(path.read_text())["tasks"] == {
        "mine:0": {"floor": 0.0, "ceiling": 1.0},
        "mine:1": {"floor": 0.0, "ceiling": 1.0},
    }
    assert "calibrate" not in place("upload", "rewrites").stdout


def test_calibration_that_is_not_sound_fails(place: Place) -> None:
    result = place("calibrate", "halves", "--seeds", f"0,{BROKEN}")
    assert result.exit_code == 1
    assert ["-", "-", "nop_unknown,", "oracle_unknown"] in [line[1:] for line in words(result)]
    assert "not sound: 1 tasks have faults; kept in " in result.stdout


def test_tasks_are_exported_and_imported_as_harbor_tasks(place: Place, tmp_path: Path) -> None:
    written = place.json("export", str(place.root / "tasks.jsonl"), str(tmp_path / "tasks"))["folders"]
    assert len(written) == 2
    assert all((Path(folder) / "task.toml").is_file() for folder in written)
    result = place("import", str(tmp_path / "tasks"), "--name", "imported", "--no-image", "--agent", "opencode")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "2 tasks, seeds 0 to 1")
    instances = place.json("instances", "create", "imported", "--count", "2")["instances"]
    assert [entry["task_id"] for entry in instances] == sorted(Path(folder).name for folder in written)


def test_a_folder_is_imported_with_its_images_and_what_cannot_be_is_named(place: Place, tmp_path: Path) -> None:
    toml = "[agent]\ntimeout_secs = 5\n[environment]\ngpus = 1\n"
    for name, more in {"a": {}, "b": {"environment/compose.yaml": ""}, "c": {"task.toml": toml}}.items():
        write(tmp_path / "tasks" / name, {**TASKS["variables"], **more})
    value = place.json(
        "import", str(tmp_path / "tasks"), "--name", "many", "--calibrate", "--report", str(tmp_path / "r.jsonl")
    )
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [line["task"] for line in lines] == ["a", "b", "c"]
    assert [line["executor"] for line in lines] == ["memory", "", "memory"]
    assert lines[1]["verdict"] == "refused"
    assert "environment/docker-compose.yaml" in lines[1]["reason"]
    assert "environment.gpus: boxes have none; ignored: agent.timeout_secs: unknown key" in lines[2]["reason"]
    assert [task["verdict"] for task in value["tasks"]] == [line["verdict"] for line in lines]
    result = place("import", str(tmp_path / "tasks"), "--name", "many", "--report", str(tmp_path / "r.jsonl"))
    assert "2 tasks, seeds 0 to 1; 1 refused" in result.stdout
    nothing = place("import", str(tmp_path / "tasks" / "b"), "--name", "none")
    assert nothing.exit_code == 1
    assert "environment/docker-compose.yaml" in nothing.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["upload", "thirds"], 1, "deployment 'thirds' is not configured; known: halves, refactoring; name one of them"),
        (["upload", "thirds.yaml"], 1, "thirds.yaml: cannot be read (No such file or directory); expected a YAML file"),
        (["status", "halvs"], 1, "answers 404 Not Found: deployment 'halvs': there is none; there are halves"),
        (["status", ".."], 1, "deployment_id: '..' names no deployment; `graftline env list` shows them"),
        (["run", "thirds", "--seeds", "1"], 1, "deployment 'thirds': there is none"),
        (["run", "rewrites", "--seeds", "0-9"], 1, "stands for no task; it has 2 tasks, of the seeds 0 to 1"),
        (["run", "halves", "--seeds", "1", "--set", "a"], 2, "--set 'a': expected KEY=VALUE"),
        (["run", "halves", "--seeds", "1-0"], 2, "'1-0' is no seed and no range of them; expected them as 1,2,5-9"),
        (["run", "halves", "--seeds", "0-99999999"], 2, "there are more than 100000; ask for them in several goes"),
        (["run", "halves", "--seeds", "2147483648"], 2, "'2147483648' is no seed"),
        (["run", "halves", "--seeds", "9" * 5000], 2, "is no seed and no range"),
        (["run", "halves", "--seeds", "1,0-2"], 2, "one of them is there twice; expected each once"),
        (["instances", "create", "halves"], 2, "expected --count or --seeds, and not both"),
        (["instances", "create", "halves", "--count", "1", "--seeds", "1"], 2, "expected --count or --seeds"),
        (["calibrate", "halves"], 1, "halves.yaml: does not say which seeds stand for its tasks; name them"),
        (["calibrate", "refactoring", "--seeds", "5"], 1, "refactoring.yaml: seed 5 stands for no task; known: 0 to 1"),
        (["import", ".", "--name", "x", "--no-image", "--calibrate"], 2, "are of tasks with their own images"),
        (["import", "halves", "--name", "x"], 2, "Directory 'halves' does not exist"),
        (["export", "rol_none", "out"], 1, "rollout 'rol_none': there is none"),
        (["list", "--url", "ftp://127.0.0.1"], 1, "'ftp://127.0.0.1': is no URL of a service"),
        (["list", "--url", "http://harbor.test"], 1, "would send the key unencrypted to another machine"),
        (["list", "--url", "https://harbor.test"], 1, "GRAFTLINE_HARBOR_KEY: is not set, and no service of this"),
        (["serve", "--host", "0.0.0.0", "--port", "0"], 1, "would offer the service to other machines"),
        (["serve", "--set", "service.atonce=3"], 1, "service.atonce: unknown key; known here: archive_mb, attempts"),
        (["serve", "--database", "postgresql://me:word@h/x"], 1, "--database: holds a password, which others of this"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_without_a_traceback(place: Place, arguments: list[str], code: int, message: str) -> None:
    result = place(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_the_key_is_that_of_the_environment_before_the_file_of_the_service(place: Place, tmp_path: Path) -> None:
    assert place("list", GRAFTLINE_HARBOR_KEY=KEY).exit_code == 0
    wrong = place("list", GRAFTLINE_HARBOR_KEY="another-key-altogether")
    assert (wrong.exit_code, "401 Unauthorized" in wrong.stderr, "another-key" in wrong.stderr) == (1, True, False)
    assert "holds a character that no key has" in place("list", SYNTH_API_KEY="two words").stderr
    elsewhere = Place(tmp_path, place.url)
    assert "has left its key in" in elsewhere("list").stderr
    (tmp_path / ".env").write_text(f"SYNTH_API_KEY={KEY}\n", "utf-8")
    assert elsewhere("list").exit_code == 0


def test_the_schema_is_brought_up_to_date_without_serving_and_twice_is_the_same_as_once(tmp_path: Path) -> None:
    file = tmp_path / "service" / "harbor.sqlite"
    arguments = ["env", "migrate", "--folder", str(file.parent), "--json"]
    answers = [CliRunner().invoke(main, arguments) for _ in range(2)]
    assert [json.loads(answer.output) for answer in answers] == [{"database": f"sqlite:///{file}"}] * 2
    with sqlite3.connect(file) as base:
        assert ("rollouts",) in base.execute("select name from sqlite_master where type = 'table'").fetchall()


def test_a_password_on_the_command_line_is_refused_by_every_command_that_takes_a_database() -> None:
    for command in ("serve", "migrate"):
        answer = CliRunner().invoke(main, ["env", command, "--database", "postgresql://me:secret@there/harbor"])
        assert (answer.exit_code, "secret" in answer.output) == (1, False)
        assert "set GRAFTLINE_HARBOR_DATABASE" in answer.output


def test_a_service_is_served_until_it_is_interrupted(place: Place, tmp_path: Path) -> None:
    program = "import sys; from graftline.cli.main import main; main(sys.argv[1:])"
    serve = ["--root", str(place.root), "env", "serve", "--port", "0", "--executor", "memory", "--json"]
    command = [sys.executable, "-c", program, *serve, "--folder", str(tmp_path / "files")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        announcement = json.loads(process.stdout.readline())
        key = (tmp_path / "files" / "api_key").read_text("utf-8")
        listed = Place(place.root, announcement["url"])("list", "--json", GRAFTLINE_HARBOR_KEY=key)
        process.send_signal(signal.SIGINT)
        assert process.wait(240) == 0
    assert (announcement["executor"], announcement["api_key_from"]) == ("memory", str(tmp_path / "files" / "api_key"))
    assert json.loads(listed.stdout) == {"deployments": []}


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_library_that_is_missing_is_brought_by_the_extra(place: Place, missing: str) -> None:
    expected = (
        f"error: {missing} is missing, but env needs it; .venv/bin/pip install -c constraints.txt -e '.[harbor]'\n"
    )
    assert ran_without(missing, place.root, "env", "serve", "--port", "0") == (1, expected)
