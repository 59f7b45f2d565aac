"""The stage `evaluation` of solvers, and the check on its candidate, over a small root and a manifest in memory."""

import json
import shutil
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.build import Contents, Request, build
from graftline.core.errors import BoundaryError, ConfigError
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from graftline.evals.evaluation_file import ActorsEntry
from graftline.evals.metrics import summarize
from graftline.pipeline.deployed_adapter import Standing, adapter_not_worse_than_deployed, deploy, read_deployed
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.solvers import Solvers
from graftline.pipeline.stages.evaluation import evaluation, evaluation_names
from graftline.pipeline.stages.model_evaluation import (
    ATTEMPTS,
    BROWSER,
    CASES,
    REPORT,
    SUMMARY,
    describe_outdated,
    evaluate_models,
    read_attempts,
)
from graftline.pipeline.stages.raw import raw
from graftline.training.memory import MemoryTrainingService
from tests.eval_cases import RIGHT, UNREADABLE, attempt, case
from tests.harbor_lineage import write_deployment
from tests.lineages import opened_at
from tests.training_root import CHECKOUT

PAIRS = [
    {"id": f"p{n}", "language": "python", "pre": f"x = old({n})\n", "post": f"x = new({n})\n", "class": "rename"}
    for n in range(4)
]
TEACHERS = {"one": {"kind": "teacher"}, "gold": {"kind": "teacher", "teacher": {"kind": "memory"}}}
SERVED = {"model": {"kind": "actors", "fleet": "smoke", "prompt": "brief"}}


@pytest.fixture
def root(small_checkout: Any) -> Path:
    root: Path = small_checkout.root
    (root / "configs" / "evaluations").mkdir()
    shutil.copy(CHECKOUT / "configs" / "models.yaml", root / "configs")
    (root / "data" / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in PAIRS), "utf-8")
    return root


def write(root: Path, solvers: dict[str, Any], name: str = "mine", **more: Any) -> None:
    tasks = [{"kind": "pairs", "path": "data/pairs.jsonl"}]
    # JSON is YAML
    text = json.dumps({"tasks": tasks, "solvers": solvers, **more})
    (root / "configs" / "evaluations" / f"{name}.yaml").write_text(text, "utf-8")


def opened(root: Path, *answers: str, **ports: Any) -> AbstractContextManager[Lineage]:
    chat_model = {"chat_model": {"kind": "memory", "answers": list(answers)}} if answers else {}
    return opened_at(root, {**chat_model, **ports}, "test")


def test_solvers_are_evaluated_and_their_pages_written(root: Path) -> None:
    write(root, {**TEACHERS, **SERVED}, attempts=2)
    with opened(root, RIGHT, UNREADABLE) as lineage:
        built = evaluation(lineage, "mine")

    assert built.record.kind == "evaluation"
    assert {*built.record.files} == {ATTEMPTS, CASES, SUMMARY, REPORT, BROWSER}
    # teachers are asked once, the model twice
    assert {name: built.record.counts[name] for name in ("rows", "tasks", "valid", "infra")} == {
        "rows": 16, "tasks": 4, "valid": 16, "infra": 0,
    }  # fmt: skip
    found = {one.solver: one.pass_at[1] for one in summarize(read_attempts(built.folder))}
    assert found == {"one": 1.0, "gold": 0.0, "model": 0.5}
    summary = json.loads((built.folder / SUMMARY).read_text())
    assert summary["comparisons"][0]["difference"] == -1.0
    assert [(one["of"], one["solver"]) for one in summary["by_class"]] == [
        ("rename", "one"), ("rename", "gold"), ("rename", "model"),
    ]  # fmt: skip
    assert {one["of"] for one in summary["by_language"]} == {"python"}


def test_an_evaluation_is_made_once_until_something_changes(root: Path) -> None:
    write(root, TEACHERS)
    with opened(root) as lineage:
        first, again = evaluate_models(lineage, "mine"), evaluate_models(lineage, "mine")
        (root / "data" / "pairs.jsonl").write_text(json.dumps(PAIRS[0]) + "\n", "utf-8")
        other_tasks = evaluate_models(lineage, "mine")
        write(root, {"one": {"kind": "teacher", "most_steps": 2}})
        other_solver = evaluate_models(lineage, "mine")

        assert describe_outdated(lineage, "mine", other_solver.record) == ""
        write(root, {"one": {"kind": "actors", "fleet": "nowhere"}})
        unknown = describe_outdated(lineage, "mine", other_solver.record)
    shown = CliRunner().invoke(main, ["--root", str(root), "eval", "report", "mine", "--manifest", "test"])

    assert (shown.exit_code, "'nowhere' is unknown" in unknown) == (0, True), shown.output
    assert "this is of an earlier run, what it needs now is not here" in shown.stderr
    assert [one.reason for one in (first, again)] == ["not there yet", ""]
    assert other_tasks.reason == "input pairs.data/pairs.jsonl changed"
    assert "config contestants" in other_solver.reason


def test_what_was_not_known_is_asked_again_and_the_rest_is_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, SERVED)
    asked: list[str] = []
    broken = {"p1"}

    def replies(self: Any, questions: Any) -> Any:
        from graftline.evals.attempt import Answered, Failed
        from graftline.rollouts.teachers.answer import AnswerFormat

        for question in questions:
            asked.append(question.case.id)
            failed = question.case.id in broken
            yield Failed(question, "gone") if failed else Answered(question, RIGHT, AnswerFormat(layout="action"))

    monkeypatch.setattr("graftline.evals.solvers.ChatSolver.replies", replies)
    with opened(root, RIGHT) as lineage:
        first = evaluate_models(lineage, "mine")
        assert sorted(asked) == ["p0", "p1", "p1", "p2", "p3"]
        asked.clear()
        broken.clear()
        second, third = evaluate_models(lineage, "mine"), evaluate_models(lineage, "mine")

    assert (first.record.counts["infra"], second.record.counts["infra"], third.reason) == (1, 0, "")
    assert asked == ["p1"]


def test_where_nobody_answers_nothing_is_stored(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, SERVED)

    def replies(self: Any, questions: Any) -> Any:
        from graftline.evals.attempt import Failed

        yield from (Failed(question, "nobody is there") for question in questions)

    monkeypatch.setattr("graftline.evals.solvers.ChatSolver.replies", replies)
    with opened(root, RIGHT) as lineage, pytest.raises(BoundaryError, match="nobody is there"):
        evaluate_models(lineage, "mine")
    assert not (Paths(root).evaluation("mine") / ATTEMPTS).exists()


def test_the_bare_model_of_a_recipe_is_asked_and_the_adapter_of_a_service_that_ended_is_refused(root: Path) -> None:
    write_bare_recipe(root)
    write(root, {"base": {"kind": "trained", "recipe": "tiny", "is_bare": True}})
    with opened(root) as lineage:
        built = evaluate_models(lineage, "mine")
        write(root, {"run": {"kind": "trained", "recipe": "tiny", "run": "tiny-1"}})
        with pytest.raises(ConfigError, match="'memory' end with the process that trained them"):
            evaluate_models(lineage, "mine")

    assert built.record.counts["valid"] == 4


def write_bare_recipe(root: Path) -> None:
    recipe = {"recipe": "sl_basic", "model": "smollm2-135m", "renderer": "qwen3_instruct", "answer_tokens": 8}
    (root / "configs" / "recipes").mkdir(exist_ok=True)
    (root / "configs" / "recipes" / "tiny.yaml").write_text(json.dumps({**recipe, "data": {"kind": "synthetic"}}))


def test_what_is_too_long_is_no_reward_for_a_trained_model_as_for_a_served_one(root: Path) -> None:
    write_bare_recipe(root)
    long = {**PAIRS[0], "pre": "x = old(1)\n" * 9000}
    (root / "data" / "pairs.jsonl").write_text(f"{json.dumps(long)}\n{json.dumps(PAIRS[1])}\n", "utf-8")
    write(root, {"base": {"kind": "trained", "recipe": "tiny", "is_bare": True}, **SERVED})
    with opened(root, UNREADABLE) as lineage:
        attempts = read_attempts(evaluate_models(lineage, "mine").folder)

    found = {(one.solver, one.cause, one.reward, one.is_infra) for one in attempts if one.cause == "too_long"}
    assert found == {("base", "too_long", 0.0, False), ("model", "too_long", 0.0, False)}
    assert not any(one.is_infra for one in attempts)


def test_what_a_service_computes_with_is_a_fact_of_the_record_and_not_of_its_identity(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bare_recipe(root)
    write(root, {"base": {"kind": "trained", "recipe": "tiny", "is_bare": True}})
    with opened(root) as lineage:
        before = evaluate_models(lineage, "mine")
    shutil.rmtree(before.folder)
    told = {"precision": "bfloat16", "device": "cpu"}
    monkeypatch.setattr(MemoryTrainingService, "computed_with", lambda self: told)
    with opened(root) as lineage:
        after = evaluate_models(lineage, "mine")

    assert before.record.facts == {"base.precision": "float32", "base.device": "cpu"}
    assert after.record.facts == {"base.precision": "bfloat16", "base.device": "cpu"}
    with opened(root) as lineage:
        assert evaluate_models(lineage, "mine").reason == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"solvers": {}}, "solvers"),
        ({"solvers": TEACHERS, "candidate": "x"}, "candidate: 'x' is no solver; known: one, gold"),
        ({"solvers": TEACHERS, "candidate": "one", "deployed": "one"}, "'one' is deployed"),
        ({"solvers": {"a": {"kind": "oracle"}}}, "'teacher', 'actors', 'trained'"),
        ({"solvers": TEACHERS, "tasks": [{"kind": "families", "templates": ["nothing"]}]}, "'nothing' is unknown"),
        ({"solvers": TEACHERS, "tasks": [{"kind": "pairs", "path": "../x"}]}, "must stay inside"),
        ({"solvers": TEACHERS, "tasks": [{"kind": "pairs", "path": "none.jsonl"}]}, "'none.jsonl' is no file"),
        ({"solvers": {"m": {"kind": "actors", "fleet": "x"}}}, "fleet 'x' is unknown"),
        ({"solvers": {"m": {"kind": "actors", "fleet": "smoke", "prompt": "x"}}}, "prompt 'x' is unknown"),
    ],
)
def test_a_file_that_cannot_be_meant_is_one_clear_error(root: Path, changes: dict[str, Any], reason: str) -> None:
    write(root, **changes)
    with opened(root, RIGHT) as lineage, pytest.raises(ConfigError, match=reason):
        evaluate_models(lineage, "mine")


def test_evaluations_of_both_kinds_have_names_of_their_own(root: Path) -> None:
    write_deployment(root, name="tiny")
    write(root, TEACHERS)
    assert evaluation_names(Paths(root)) == ["tiny", "mine"]

    write(root, TEACHERS, name="tiny")
    with pytest.raises(ConfigError, match="'tiny': is in configs/harbor and in configs/evaluations"):
        evaluation_names(Paths(root))


def stored(root: Path, rights: dict[str, list[bool | None]], inputs: dict[str, str] | None = None) -> None:
    """Store an evaluation: what came of each solver at each task, None where nothing is known."""
    rows = [
        attempt(name, f"demo:{n}", is_right=bool(right), is_infra=right is None)
        for name, of_tasks in rights.items()
        for n, right in enumerate(of_tasks)
    ]

    def make(folder: Path) -> Contents:
        write_lines(folder / ATTEMPTS, rows)
        write_lines(folder / CASES, [case(n) for n in range(2)])
        return Contents({"rows": len(rows)})

    build(Paths(root).evaluation("mine"), Request("evaluation", "mine", "1", inputs or {}, {"n": len(rows)}), make)


@pytest.mark.parametrize(
    ("candidate", "deployed", "outcome"),
    [
        ([True] * 20, [False] * 20, "passed"),
        ([True, False] * 10, [False, True] * 10, "passed"),
        ([False] * 20, [True] * 20, "failed"),
        ([None] * 10 + [True] * 10, [True] * 20, "warned"),
        ([None] * 20, [True] * 20, "warned"),
        # what fails, fails, however little is known
        ([None] * 10 + [False] * 10, [True] * 20, "failed"),
        # but for next to nothing
        ([False] * 4, [True] * 4, "warned"),
    ],
)
def test_a_candidate_fails_where_it_is_worse_for_sure_and_warns_where_too_little_is_known(
    root: Path, candidate: list[bool | None], deployed: list[bool | None], outcome: str
) -> None:
    write(root, TEACHERS, candidate="one", deployed="gold")
    stored(root, {"one": candidate, "gold": deployed})
    with opened(root) as lineage:
        [found] = adapter_not_worse_than_deployed(lineage)

    assert (found.outcome, found.candidate, found.deployed) == (outcome, "one", "gold")


@pytest.mark.parametrize(
    ("rights", "words", "numbers"),
    [
        (
            {"one": [True, True, True, None], "gold": [False] * 4},
            "1.000 against 0.000: +1.000, +1.000 to +1.000 (95 %), at 3 tasks, which are 75% of all; 95% or more were"
            " expected; fewer than 5 tasks tell nothing",
            (1.0, 1.0, 1.0, 0.75),
        ),
        # a solver that is new in the file
        ({"one": [True] * 10}, "solver 'gold' made no attempt; known: one; evaluate it again", ()),
    ],
)
def test_the_check_says_the_numbers(
    root: Path, rights: dict[str, list[bool | None]], words: str, numbers: tuple[float, ...]
) -> None:
    write(root, TEACHERS, candidate="one", deployed="gold")
    stored(root, rights)
    with opened(root) as lineage:
        assert adapter_not_worse_than_deployed(lineage) == [Standing("mine", "warned", "one", "gold", words, *numbers)]


def test_what_is_deployed_is_what_was_recorded(root: Path) -> None:
    solvers = {
        "new": {"kind": "trained", "recipe": "new"},
        "old": {"kind": "trained", "recipe": "old"},
    }
    write(root, solvers, candidate="new")
    paths = Paths(root)

    def standing(**inputs: str) -> Standing:
        stored(root, {"new": [True] * 6, "old": [True] * 6}, inputs)
        with opened(root) as lineage:
            [found] = adapter_not_worse_than_deployed(lineage)
        return found

    nothing = standing()
    make_adapter(paths, "old", "old-1")
    with opened(root) as lineage:
        recorded = deploy(lineage, "old")
    same = standing(**{"trained_adapter.old": recorded.identity})
    another = standing(**{"trained_adapter.old": "another"})

    with opened(root) as lineage:
        assert read_deployed(lineage) == recorded
    assert (nothing.outcome, nothing.deployed) == ("warned", "nothing")
    assert (same.outcome, same.deployed) == ("passed", "old")
    assert (another.outcome, "was trained anew since it was deployed" in another.found) == ("warned", True)


def test_what_is_deployed_and_evaluated_is_known_to_every_worker(root: Path, tmp_path: Path) -> None:
    write(root, TEACHERS)
    other = tmp_path / "other"
    shutil.copytree(root / "configs", other / "configs")
    ports = {"artifacts": {"kind": "bucket", "url": f"file://{tmp_path}/bucket"}}
    request = Request("trained_adapter", "old", "1", {}, {"run_id": "sl-1"})
    with opened(root, **ports) as lineage:
        evaluate_models(lineage, "mine")
        lineage.build(Paths(root).adapter("old"), request, lambda folder: Contents({}))
        recorded = deploy(lineage, "old")
    with opened(other, **ports) as lineage:
        assert read_deployed(lineage) == recorded
        again = deploy(lineage, "old")
    assert (again, recorded.adapter, recorded.run_id) == (recorded, "old", "sl-1")
    typed = ["--root", str(other), "eval", "compare", "mine", "one", "gold", "--manifest", "test"]
    missing = CliRunner().invoke(main, typed)
    assert "is not made yet; `graftline eval run mine` makes it" in missing.output
    options = ["--set", "artifacts=bucket", "--set", f"artifacts.url=file://{tmp_path}/bucket"]
    shown = CliRunner().invoke(main, [*typed, *options])
    assert (shown.exit_code, "one against gold" in shown.output) == (0, True), shown.output
    (Paths(other).evaluation("mine") / ATTEMPTS).write_text("", "utf-8")
    altered = CliRunner().invoke(main, typed)
    assert (altered.exit_code, "was altered after it was written" in altered.output) == (1, True), altered.output


def make_adapter(paths: Paths, recipe: str, run_id: str) -> str:
    """Make the adapter of a run, and return its identity."""
    request = Request("trained_adapter", recipe, "1", {}, {"run_id": run_id})
    return build(paths.adapter(recipe), request, lambda folder: Contents({})).record.identity


def standing_at(root: Path, solvers: dict[str, Any], candidate: str, inputs: dict[str, str]) -> Standing:
    """Return how a candidate stands that solves every second task, as all others do the other ones."""
    write(root, solvers, candidate=candidate)
    stored(root, {name: [number % 2 == 0] * 10 for number, name in enumerate(solvers)}, inputs)
    with opened(root) as lineage:
        [found] = adapter_not_worse_than_deployed(lineage)
    return found


NOW = {"kind": "trained", "recipe": "r"}
BEFORE = {"kind": "trained", "recipe": "r", "run": "r-1"}


def test_an_adapter_that_was_trained_anew_is_compared_with_the_run_that_is_deployed(root: Path) -> None:
    paths = Paths(root)
    make_adapter(paths, "r", "r-1")
    with opened(root) as lineage:
        assert deploy(lineage, "r").run_id == "r-1"
    later = make_adapter(paths, "r", "r-2")
    inputs = {"trained_adapter.r": later}

    found = standing_at(root, {"now": NOW, "before": BEFORE}, "now", inputs)
    alone = standing_at(root, {"now": NOW}, "now", inputs)

    assert (found.outcome, found.deployed, found.difference) == ("passed", "before", 1.0)
    assert (alone.outcome, alone.deployed) == ("warned", "nothing")
    assert alone.found == "the adapter 'r', which is deployed, is no solver; add it (recipe: r, run: r-1)"


def test_a_candidate_that_is_the_deployed_adapter_passes(root: Path) -> None:
    paths = Paths(root)
    inputs = {"trained_adapter.r": make_adapter(paths, "r", "r-1")}
    with opened(root) as lineage:
        deploy(lineage, "r")

    found = standing_at(root, {"now": NOW}, "now", inputs)

    assert (found.outcome, found.deployed, found.found) == ("passed", "now", "it is the adapter that is deployed")


def test_a_candidate_that_was_trained_anew_since_it_was_evaluated_is_doubtful(root: Path) -> None:
    paths = Paths(root)
    evaluated = {"trained_adapter.r": make_adapter(paths, "r", "r-1")}
    make_adapter(paths, "r", "r-2")
    write(root, {"now": NOW, "other": {"kind": "teacher"}}, candidate="now", deployed="other")
    stored(root, {"now": [True] * 10, "other": [False] * 10}, evaluated)
    with opened(root) as lineage:
        [found] = adapter_not_worse_than_deployed(lineage)

    assert found.outcome == "warned"
    assert "the candidate was evaluated before r was trained anew; evaluate it again" in found.found


def test_another_adapter_in_the_folder_of_a_fleet_is_another_solver(root: Path) -> None:
    configure(root, adapters=["data/style"])
    entry = ActorsEntry(fleet="smoke", adapter="style")
    found = []
    with opened(root, RIGHT) as lineage, ExitStack() as stack:
        entrants = Solvers(lineage, stack)
        for weights in ("", "a", "b"):
            if weights:
                (root / "data" / "style").mkdir(exist_ok=True)
                (root / "data" / "style" / "adapter_model.safetensors").write_text(weights)
            found.append(entrants.settings(entry)["adapter_digest"])

    assert found[0] == ""
    assert len({*found}) == 3


def configure(root: Path, **said: Any) -> None:
    """Say so of the fleet `smoke`."""
    path = root / "configs" / "vllm_actors.yaml"
    known: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    known["fleets"]["smoke"].update(said)
    path.unlink()
    path.write_text(yaml.safe_dump(known), "utf-8")


OTHER_CODE = '{"pattern": "return n", "rewrite": "return n + n"}'


def write_benchmark(root: Path) -> None:
    """Give `root` an evaluation of a benchmark of two problems, one of which imports what is not there."""
    tests = {
        "1_double": "assert double(2) == 4\n",
        "2_absent": "import a_module_that_is_absent\nassert double(2) == 4\n",
    }
    texts = {"before": "def double(n):\n    return n\n", "after": "def double(n):\n    return 2 * n\n"}
    rows = [
        {
            "full_name": name,
            "tests": text,
            "instruction_lazy": "fix",
            "instruction_descriptive": "Return twice `n`.",
            **texts,
        }
        for name, text in tests.items()
    ]
    (root / "data" / "benchmark").mkdir()
    (root / "data" / "benchmark" / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    path = root / "configs" / "datasets.yaml"
    catalog = json.loads(path.read_text("utf-8"))
    catalog["datasets"]["canitedit"] = {
        "reader": "evaluation", "url": "data/benchmark", "version": "1", "license": "LicenseRef-No-Training",
        "files": [{"path": "test.jsonl"}],
    }  # fmt: skip
    path.write_text(json.dumps(catalog), "utf-8")
    (root / "configs" / "sandbox.yaml").write_text("tests: {kind: namespaces, required_level: confined}\n", "utf-8")
    write(root, {"one": {"kind": "teacher"}, **SERVED}, tasks=[{"kind": "benchmark"}])


def test_a_benchmark_is_judged_by_its_tests_and_reported_by_instruction_and_level(root: Path) -> None:
    write_benchmark(root)
    with opened(root, OTHER_CODE, UNREADABLE, dataset_hub="local") as lineage:
        with pytest.raises(
            ConfigError, match="'canitedit' is not here yet; `graftline data fetch canitedit` brings it"
        ):
            evaluation(lineage, "mine")
        raw(lineage, "canitedit")
        built = evaluation(lineage, "mine")

    counts = built.record.counts
    assert (counts["tasks"], counts["solved.one"], counts["solved.model"], counts["left_out.gold_fails_tests"]) == (
        2,
        2,
        1,
        2,
    )
    page = (built.folder / REPORT).read_text("utf-8")
    [right] = [one for one in read_attempts(built.folder) if one.solver == "model" and one.is_verified]
    assert (right.level, right.reward, right.over_application) == ("tests", 0.8, None)
    assert f"| {right.edit_class} | model | 0 | 0 | 0 | 1 | 0 | 0 |" in page
    assert "| 2 | gold_fails_tests: test_edit.py::test_edit: ModuleNotFoundError" in page
    assert {*json.loads((built.folder / SUMMARY).read_text())["left_out"]} == {
        "canitedit:2_absent:descriptive", "canitedit:2_absent:lazy",
    }  # fmt: skip


def test_a_dataset_that_is_trained_on_is_no_benchmark(root: Path) -> None:
    write(root, TEACHERS, tasks=[{"kind": "benchmark", "dataset": "release_pairs"}])
    with opened(root) as lineage, pytest.raises(ConfigError, match="'release_pairs' is trained on"):
        evaluation(lineage, "mine")
