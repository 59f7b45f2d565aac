"""EngineBench: the score, the agents, and a crate of one card from its task to its reward."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.harbor.contract import FailureCause, RolloutRequest
from graftline.harbor.engine_bench.cards import card_of, read_cards, stage_cards
from graftline.harbor.engine_bench.environment import EngineBenchEnvironment
from graftline.harbor.in_box import cargo_tests
from graftline.harbor.in_box.agents import AGENTS, command_of
from graftline.harbor.in_box.cargo_tests import Score, score_card
from graftline.harbor.in_box.commands import run_command
from graftline.harbor.refusal import RequestError
from graftline.harbor.task_format.importing import StagedTasks
from graftline.harbor.task_format.task_folder import read_task
from tests.processes import wait_until_ended
from tests.unit.harbor.tiny_crate import BROKEN, GOLD, HALF, LACKING, STUB, TESTS, write, write_card, write_crate

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo: https://rustup.rs")
BINARIES = """\
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.00s
test result: FAILED. 1 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests cards
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


def test_results_of_all_binaries_are_added_up() -> None:
    # 0.3 + 0.7 * 3 / 6; the ignored one neither passed nor failed
    assert score_card(0, "", 101, BINARIES, 7) == Score(True, 3, 6, 0.65)
    assert score_card(0, "", 101, BINARIES, 0).reward() == {
        "compile_ok": 1,
        "tests_passed": 3,
        "tests_total": 6,
        "pass_rate": 0.5,
        "score": 0.65,
    }


@pytest.mark.parametrize(
    ("check", "said", "output", "score"),
    [
        (101, "error: could not compile `tiny` (lib) due to 1 previous error\n", "", Score(False, 0, 0, 0.0)),
        # tests that do not compile against the card all fail
        (0, "", "error: could not compile `tiny` (lib test) due to 1 previous error\n", Score(True, 0, 4, 0.3)),
        # and so they do where the card ends the process they run in
        (
            0,
            "",
            "Caused by:\n  process didn't exit successfully: `/t/tiny-1` (signal: 6, SIGABRT: process abort signal)\n",
            Score(True, 0, 4, 0.3),
        ),
    ],
)
def test_what_the_card_breaks_is_worth_little(check: int, said: str, output: str, score: Score) -> None:
    assert score_card(check, said, None if check else 101, output, 4) == score


NOT_RUN = "Caused by:\n  could not execute process `/t/tiny-1` (never executed)\n\nCaused by:\n  Permission denied (os error 13)\n"
KILLED = "Caused by:\n  process didn't exit successfully: `/t/tiny-1` (signal: 9, SIGKILL: kill)\n"
FULL = "error: could not compile `tiny` (lib)\n  No space left on device (os error 28)\n"


@pytest.mark.parametrize(
    ("check", "said", "test", "output", "fault"),
    [
        (None, "", None, "", "cargo check ran out of time"),
        (101, "error: no such command: `check`\n", None, "", "cargo check failed, and not for what is in the crate"),
        (101, FULL, None, "", "cargo check failed, and not for what is in the crate"),
        (0, "", None, "", "cargo test ran out of time"),
        (0, "", 101, FULL, "the machine ended cargo test"),
        (0, "", 101, KILLED, "the machine ended cargo test"),
        (0, "", 101, NOT_RUN, "the tests cannot be started"),
        (0, "", 0, "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out;", "no test ran"),
        (0, "", 0, "test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured;", "9 tests ran where 2 are hidden"),
        (0, "", 0, "test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured;", "every test is ignored"),
        (0, "", 0, "nothing", "no test ran"),
    ],
)
def test_where_nothing_is_known_there_is_no_score(
    check: int | None, said: str, test: int | None, output: str, fault: str
) -> None:
    found = score_card(check, said, test, output, 2)
    assert found.score is None
    assert found.fault.startswith(fault)


def test_hidden_tests_are_found_in_their_source() -> None:
    two = "mod one {\n    mod inner {\n    }\n}\npub mod two {\n}\nmod elsewhere;\n"
    assert [cargo_tests.MODULE.findall(text) for text in (TESTS, two, "fn a() {}")] == [
        ["eval_tests"],
        ["one", "two"],
        [],
    ]
    assert [
        len(cargo_tests.TEST.findall(text)) for text in (TESTS, "#[tokio::test]\nasync fn a() {}\n// #[test]\n")
    ] == [2, 1]


@pytest.fixture
def staged(tmp_path: Path) -> StagedTasks:
    write(tmp_path, {"Dockerfile": "FROM rust:1.82-bookworm\n"})
    write_card(tmp_path / "tasks")
    write_card(tmp_path / "tasks", "df-002-owl")
    crate = write_crate(tmp_path / "crate")
    write(crate, {"target/debug/junk": "x"})
    return stage_cards(
        read_cards(tmp_path / "tasks"), crate, tmp_path / "Dockerfile", tmp_path / "staging", agent="nop"
    )


def test_a_card_is_found_by_its_instruction(tmp_path: Path) -> None:
    card = card_of(read_task(write_card(tmp_path)))
    assert (card.card_file, card.stub, card.tests, card.solution, card.module) == (
        "src/cards/df_001_fox.rs",
        "stubs/df_001_fox.rs",
        "df_001_fox_eval.rs",
        "df_001_fox.rs",
        "df_001_fox",
    )


def test_what_is_no_card_is_refused_or_left_out_by_name(tmp_path: Path) -> None:
    write_card(tmp_path)
    other = write_card(tmp_path, "netter-rng")
    (other / "tests" / "netter_rng_eval.rs").unlink()
    with pytest.raises(DataError, match=r"netter-rng: is no card; expected netter_rng\.rs below environment/"):
        read_cards(tmp_path)
    assert [card.task.id for card in read_cards(tmp_path, ("df-*",))] == ["df-001-fox"]
    with pytest.raises(DataError, match="no task's name matches hp-"):
        read_cards(tmp_path, ("hp-*",))


def test_a_folder_without_a_crate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no Cargo\.toml"):
        stage_cards(
            [card_of(read_task(write_card(tmp_path)))], write(tmp_path / "c", {"x": ""}), tmp_path, tmp_path / "s"
        )


def test_the_agent_gets_the_stub_and_not_the_tests(staged: StagedTasks) -> None:
    files = sorted(path.relative_to(staged.context).as_posix() for path in staged.context.rglob("*.rs"))
    assert files == [
        "common/base/src/cards/mod.rs",
        "common/base/src/lib.rs",
        "tasks/df-001-fox/environment/stubs/df_001_fox.rs",
        "tasks/df-002-owl/environment/stubs/df_002_owl.rs",
    ]
    assert staged.verifier.reward_key == "score"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where cargo builds, for all tests of this module."""
    folder = tmp_path_factory.mktemp("target")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CARGO_TARGET_DIR", str(folder))
        yield folder


@pytest.fixture
def box(staged: StagedTasks, tmp_path: Path) -> Path:
    """The verifier's box of the first card."""
    for folder in staged.seeds[0].verifier_files:
        shutil.copytree(staged.verifier_context / folder, tmp_path / "box", dirs_exist_ok=True)
    return tmp_path / "box"


CARD, EVAL = "submission/src/cards/df_001_fox.rs", "tests/df_001_fox_eval.rs"
PASSING = "#[cfg(test)]\nmod {} {{\n    #[test]\n    fn passes() {{}}\n}}\n"


@needs_cargo
@pytest.mark.parametrize(
    ("files", "answer", "score"),
    [
        # 0.3 + 0.7 * 1 / 2
        ({CARD: HALF}, "submission", Score(True, 1, 2, 0.65)),
        ({CARD: BROKEN}, "submission", Score(False, 0, 0, 0.0)),
        ({CARD: LACKING}, "submission", Score(True, 0, 2, 0.3)),
        # with the constants of the stub, which it has not
        ({}, "solution", Score(True, 2, 2, 1.0)),
        # tests of the agent do not count, nor do other files of its
        (
            {CARD: STUB + PASSING.format("eval_tests_mine"), "submission/src/lib.rs": "compile_error!();\n"},
            "submission",
            Score(True, 0, 2, 0.3),
        ),
        # all hidden modules count: 0.3 + 0.7 * 1 / 3
        ({CARD: STUB, EVAL: TESTS + PASSING.format("behavioral_tests")}, "submission", Score(True, 1, 3, 0.533333)),
    ],
    ids=["half", "broken", "lacking", "solution", "own tests", "modules"],
)
def test_a_card_is_scored_by_its_hidden_tests(
    box: Path, target: Path, files: dict[str, str], answer: str, score: Score
) -> None:
    assert "DAMAGE" not in GOLD
    write(box, files)
    assert cargo_tests.grade(box, json.loads((box / "task.json").read_text()), answer) == score


def test_a_card_that_was_removed_is_worth_nothing(box: Path) -> None:
    assert cargo_tests.grade(box, json.loads((box / "task.json").read_text())) == Score(False, 0, 0, 0.0)


def test_without_cargo_there_is_no_reward(box: Path, tmp_path: Path) -> None:
    write(box / "submission", {"src/cards/df_001_fox.rs": STUB})
    words = [sys.executable, "-m", "in_box.cargo_tests", "--logs", str(tmp_path / "logs")]
    ended = subprocess.run(words, cwd=box, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        3,
        "nothing can be graded: [Errno 2] No such file or directory: 'cargo'\n",
    )
    assert not (tmp_path / "logs").exists()


@needs_cargo
def test_a_rollout_of_the_task_app_scores_as_a_box_does(staged: StagedTasks, box: Path, target: Path) -> None:
    environment = EngineBenchEnvironment(staged, target=target)
    response = environment.run_rollout(RolloutRequest.model_validate({"trace_correlation_id": "c", "env": {"seed": 0}}))
    write(box / "submission", {"src/cards/df_001_fox.rs": STUB})
    score = cargo_tests.grade(box, json.loads((box / "task.json").read_text()))
    assert response.reward_info.outcome_reward == score.score == 0.3
    assert (response.failure_cause, response.reward_valid) == (None, True)
    assert response.reward_info.outcome_objectives == {
        "compile_ok": 1.0,
        "tests_passed": 0.0,
        "tests_total": 2.0,
        "pass_rate": 0.0,
        "score": 0.3,
    }
    assert [artifact.content for artifact in response.artifact or ()] == [STUB]


def test_an_agent_that_is_missing_is_no_reward_of_the_task_app(tmp_path: Path, staged: StagedTasks) -> None:
    write(staged.context, {"common/agent.json": '{"agent": "opencode"}'})
    environment = EngineBenchEnvironment(staged, {"PATH": "/nowhere"})
    request = {"trace_correlation_id": "c", "env": {"seed": 1}, "policy": {"config": {"model": "m"}}}
    response = environment.run_rollout(RolloutRequest.model_validate(request))
    assert (response.reward_info.outcome_reward, response.failure_cause) == (None, FailureCause.UNCLASSIFIED)
    assert not response.reward_valid


def test_the_task_app_knows_its_cards(staged: StagedTasks) -> None:
    environment = EngineBenchEnvironment(staged)
    assert environment.provide_taskset_description()["seeds"] == {"first": 0, "last": 1}
    [info] = environment.provide_task_instances([1])
    assert (info.task.id, info.task.description) == ("df-002-owl", "Edit the file `/app/src/cards/df_002_owl.rs`.\n")
    with pytest.raises(RequestError, match="seed 2 stands for no card; there are 0 to 1"):
        environment.provide_task_instances([2])


def test_agents_are_started_by_their_commands() -> None:
    words = {name: command_of(agent, "gpt-4o-mini", "Do {model}.") for name, agent in AGENTS.items()}
    assert words == {
        "codex": ["codex", "exec", "--yolo", "--skip-git-repo-check", "-m", "gpt-4o-mini", "Do {model}."],
        "opencode": ["opencode", "run", "Do {model}."],
        "claude_code": [
            "claude", "--print", "--dangerously-skip-permissions", "--model", "gpt-4o-mini", "Do {model}.",
        ],
        "mini_swe_agent": [
            "mini", "--yolo", "--exit-immediately", "--cost-limit", "0", "--model", "openai/gpt-4o-mini", "--task",
            "Do {model}.",
        ],
    }  # fmt: skip
    with pytest.raises(ValueError, match="is no name of a model"):
        command_of(AGENTS["codex"], "--help", "x")


def test_agents_are_told_where_the_model_is_and_no_file_holds_the_key() -> None:
    codex, opencode, claude = AGENTS["codex"], AGENTS["opencode"], AGENTS["claude_code"]
    assert codex.files("m", "http://u/v1") == {
        ".codex/config.toml": 'model = "m"\nmodel_provider = "task_app"\n[model_providers.task_app]\nname = "task app"\n'
        'base_url = "http://u/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
    }
    [settings] = opencode.files("m", "http://u/v1").values()
    assert json.loads(settings)["provider"]["task_app"]["options"] == {
        "baseURL": "http://u/v1",
        "apiKey": "{env:OPENAI_API_KEY}",
    }
    assert claude.variables("http://u", "key") == {"ANTHROPIC_BASE_URL": "http://u", "ANTHROPIC_AUTH_TOKEN": "key"}
    assert claude.variables("", "key") == {"ANTHROPIC_API_KEY": "key"}
    variables = AGENTS["mini_swe_agent"].variables("http://u/v1", "key")
    assert (variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]) == ("http://u/v1", "key")


def test_a_command_does_not_outlive_its_time(tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > pid; echo said; wait"
    ended = run_command(["sh", "-c", script], tmp_path, os.environ, 2.0)
    assert (ended.status, ended.output) == (None, "said\n")
    wait_until_ended(int((tmp_path / "pid").read_text()))


def test_nothing_that_left_its_group_runs_on(tmp_path: Path) -> None:
    program = """
import os, pathlib, sys
from in_box.commands import adopt_orphans, end_children, run_command
adopt_orphans()
folder = pathlib.Path(sys.argv[1])
run_command(["sh", "-c", "setsid sh -c 'echo $$ > pid; exec sleep 60' > /dev/null 2>&1 & while ! test -s pid; do :; done"], folder, os.environ, 30)
end_children()
print(pathlib.Path(f"/proc/{int((folder / 'pid').read_text())}").exists())
"""
    variables = {**os.environ, "PYTHONPATH": str(Path(cargo_tests.__file__).parents[1])}
    words = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(words, env=variables, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_reward_that_somebody_else_left_is_taken_away(box: Path, tmp_path: Path, is_folder: bool) -> None:
    write(tmp_path / "logs", {"reward.json/x" if is_folder else "reward.json": '{"score": 1.0}'})
    words = [sys.executable, "-m", "in_box.cargo_tests", "--logs", str(tmp_path / "logs")]
    # without a card nothing compiles
    subprocess.run(words, cwd=box, check=True)
    assert json.loads((tmp_path / "logs" / "reward.json").read_text())["score"] == 0.0
    (box / "task.json").write_text("{}")
    assert subprocess.run(words, cwd=box, capture_output=True, check=False).returncode == 3
    assert not (tmp_path / "logs" / "reward.json").exists()


def test_programs_of_boxes_need_the_standard_library_alone() -> None:
    folder = Path(cargo_tests.__file__).parent
    program = (
        "import sys; import in_box.run_rollout, in_box.cargo_tests, in_box.run_tests;"
        "print([name for name in sys.modules if name.startswith(('graftline', 'pydantic'))])"
    )
    words = [sys.executable, "-S", "-c", program]
    ended = subprocess.run(words, env={"PYTHONPATH": str(folder.parent)}, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
