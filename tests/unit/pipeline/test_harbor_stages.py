"""The stages of Harbor over a small root: what is kept of a deployment, when it is made again, and that nothing unknown is a 0."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Built, Contents, Request
from graftline.core.errors import ConfigError, GraftlineError, HarborError, RecordError
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, load_record
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution, RolloutSpec
from graftline.pipeline import evaluation_checks as checks
from graftline.pipeline.evaluation_rollouts import Rollouts
from graftline.pipeline.harbor_port import HarborService, LocalHarborConfig, place_of
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.provenance.audit import audit
from graftline.pipeline.stages.evaluation import deployment_evaluation_names, evaluation, read_summary
from graftline.pipeline.stages.harbor_deployment import (
    deployment_file,
    deployment_names,
    harbor_deployment,
    instance_batch,
    read_rows,
)
from tests.harbor_lineage import task, use_service, write_deployment, write_tasks
from tests.harbor_parts import KEY, service
from tests.lineages import opened_at
from tests.repository_tasks import repository_task

STAGES = (harbor_deployment, instance_batch, evaluation)


def opened(root: Path, manifest: str = "local") -> AbstractContextManager[Lineage]:
    return opened_at(root, manifest=manifest)


def all_made(root: Path, manifest: str = "local", name: str = "tiny") -> list[Built]:
    with opened(root, manifest) as lineage:
        return [stage(lineage, name) for stage in STAGES]


def reasons(root: Path, manifest: str = "local") -> list[str]:
    return [built.reason for built in all_made(root, manifest)]


@pytest.fixture(scope="module")
def _prepared(new_checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = new_checkout(tmp_path_factory.mktemp("harbor") / "root").root
    write_tasks(root, task(0), task(1))
    write_deployment(root)
    all_made(root, "test")
    return root


@pytest.fixture
def evaluated_root(_prepared: Path, tmp_path: Path) -> Path:
    """A root whose deployment was evaluated by a service of this process, with rewards that are worked out."""
    return Path(shutil.copytree(_prepared, tmp_path / "root"))


@pytest.fixture
def root(small_checkout: Any) -> Path:
    """A root with a deployment, and nothing made."""
    write_tasks(small_checkout.root, task(0), task(1))
    write_deployment(small_checkout.root)
    return small_checkout.root


def test_a_deployment_is_kept_with_what_decides_its_rollouts_apart_from_where_it_is(evaluated_root: Path) -> None:
    paths = Paths(evaluated_root)
    folder = paths.harbor("deployments", "tiny")
    record = load_record(folder)
    decided, place = (json.loads((folder / name).read_text("utf-8")) for name in ("deployment.json", "build.json"))
    assert (record.counts, read_rows(folder / "tasks.jsonl")) == (
        {"rows": 2, "version": 1},
        [{"seed": 0, "task_id": "d:0"}, {"seed": 1, "task_id": "d:1"}],
    )
    assert record.config == {key: place[key] for key in ("service", "deployment")} | {"digest": decided["digest"]}
    assert (decided["name"], decided["limits"]["timeout_s"]) == ("tiny", 60)
    assert (place["service"], place["version"], place["snapshot_id"].partition("-")[0]) == ("memory", 1, "memory")
    assert sorted(record.files) == ["build.json", "build.log", "deployment.json", "tasks.jsonl"]
    instances = paths.harbor("instances", "tiny")
    assert read_rows(instances / "seeds.jsonl") == read_rows(folder / "tasks.jsonl")
    assert [row["status"] for row in read_rows(instances / "instances.jsonl")] == ["ready", "ready"]


def test_an_evaluation_keeps_every_seed_a_summary_and_a_page(evaluated_root: Path) -> None:
    folder = Paths(evaluated_root).harbor("evaluations", "tiny")
    rows, summary = read_rows(folder / "results.jsonl"), read_summary(folder)
    rewards = [row["reward"] for row in rows]
    assert ([(row["seed"], row["task_id"]) for row in rows], load_record(folder).counts) == (
        [(0, "d:0"), (1, "d:1")],
        {"rows": 2, "valid": 2, "infra": 0},
    )
    assert (summary["mean_reward"], summary["coverage"], summary["floor"]) == (sum(rewards) / 2, 1.0, None)
    assert summary["policy"] == {"teacher": "induction"}
    page = (folder / "report.md").read_text("utf-8")
    titles = [line for line in page.splitlines() if line.startswith("#")]
    assert titles == ["# Evaluation of tiny", "## Causes", "## The lowest rewards"]
    assert f"| mean reward | {sum(rewards) / 2:.4g} |" in page
    assert "| none | success | 2 | 2 |" in page


def test_nothing_is_made_again_where_nothing_changed_and_all_of_it_is_sound(evaluated_root: Path) -> None:
    assert reasons(evaluated_root, "test") == ["", "", ""]
    assert audit(Paths(evaluated_root)).faults == []


def test_what_a_service_lost_it_gets_anew_and_the_evaluation_stays(evaluated_root: Path) -> None:
    shutil.rmtree(evaluated_root / "data" / "harbor" / "service")
    assert reasons(evaluated_root, "test") == ["config deployment changed", "config deployment changed", ""]


def test_another_task_is_another_deployment_with_all_that_follows(evaluated_root: Path) -> None:
    write_tasks(evaluated_root, task(0), task(1), task(2))
    before = load_record(Paths(evaluated_root).harbor("deployments", "tiny")).config["digest"]
    deployment, instances, evaluation_ = all_made(evaluated_root, "test")
    assert deployment.record.counts == {"rows": 3, "version": 2}
    assert deployment.record.config["digest"] != before
    assert instances.reason == "input harbor_deployment, config deployment, config seeds changed"
    assert evaluation_.reason == "input harbor_deployment, input instance_batch changed"
    assert evaluation_.record.counts["rows"] == 3


def test_another_policy_evaluates_again_and_what_only_judges_does_not(evaluated_root: Path) -> None:
    write_deployment(evaluated_root, evaluation={"min_coverage": 0.5, "least_mean_reward": 0.9, "at_once": 1})
    assert reasons(evaluated_root, "test") == ["", "", ""]
    write_deployment(evaluated_root, evaluation={"policy": {"teacher": "nop"}, "seeds": [1]})
    found = all_made(evaluated_root, "test")
    follow = ["config seeds changed", "input instance_batch, config policy changed"]
    assert [built.reason for built in found] == ["", *follow]
    assert found[2].record.counts == {"rows": 1, "valid": 1, "infra": 0}


def test_tasks_of_the_lineage_are_an_input(root: Path) -> None:
    write_deployment(root, environment={"kind": "refactoring", "tasks": "data/tasks/python/test/tasks.jsonl"})
    folder = Paths(root).partition("tasks", "python", "test")

    def write(partial: Path) -> Contents:
        shutil.copyfile(root / "data" / "samples" / "tiny.jsonl", partial / "tasks.jsonl")
        return Contents({"rows": 2})

    with opened(root, "test") as lineage:
        tasks = lineage.build(folder, Request("tasks", "python/test", "1"), write).record
        record = harbor_deployment(lineage, "tiny").record
    assert (record.inputs, record.counts["rows"]) == ({"tasks": tasks.identity}, 2)


def test_changes_of_the_lineage_are_an_input_and_others_are_another_deployment(root: Path) -> None:
    environment = {
        "kind": "repository_refactoring",
        "changes": "data/repository_changes/test.jsonl",
        "has_image": False,
    }
    write_deployment(root, environment=environment, evaluation=None)
    folder = Paths(root).repository_changes

    def build(lineage: Lineage, *ids: str) -> ArtifactRecord:
        def write(partial: Path) -> Contents:
            write_lines(partial / "test.jsonl", [repository_task(id=id) for id in ids])
            return Contents({"rows": len(ids)})

        request = Request("repository_changes", "all", "1", config={"ids": [*ids]})
        changes = lineage.build(folder, request, write).record
        record = harbor_deployment(lineage, "tiny").record
        assert (record.inputs, record.counts["rows"]) == ({"repository_changes": changes.identity}, len(ids))
        return record

    with opened(root, "test") as lineage:
        first, second = build(lineage, "acme/shop@2"), build(lineage, "acme/shop@2", "acme/shop@3")
    assert (first.counts["version"], second.counts["version"]) == (1, 2)


class Outcomes:
    """Rewards by seed; None is a machine that failed. It counts how often each is asked for."""

    def __init__(self, rewards: dict[int, float | None]) -> None:
        self.rewards, self.asked = rewards, Counter[int]()

    def __call__(self, box: RolloutSpec) -> Execution:
        seed = box.request["env"]["seed"]
        self.asked[seed] += 1
        reward = self.rewards[seed]
        if reward is None:
            return Execution(
                SuccessStatus.APPLY_FAILED, failure_cause=FailureCause.SANDBOX_FAILED, error="no box to be had"
            )
        return Execution(SuccessStatus.SUCCESS, reward, cost_usd=0.5, tokens=10)


@contextmanager
def served(root: Path, outcomes: Callable[[RolloutSpec], Execution]) -> Iterator[str]:
    """Have the manifest `local` below `root` talk to a service with these outcomes."""
    with service(f"sqlite:///{root / 'elsewhere.sqlite'}", outcomes, attempts=1) as client:
        url = str(client.base_url).rstrip("/")
        use_service(root, url, KEY)
        yield url


def test_a_seed_without_a_reward_is_no_zero_and_is_asked_for_again_alone(root: Path) -> None:
    outcomes = Outcomes({0: 0.5, 1: None})
    write_deployment(root, evaluation={"min_coverage": 0.6, "budget": {"max_usd": 5.0}})
    with served(root, outcomes):
        first = all_made(root)[2]
        summary = read_summary(first.folder)
        assert first.record.counts == {"rows": 2, "valid": 1, "infra": 1, "cause.sandbox_failed": 1}
        assert (summary["mean_reward"], summary["interval"], summary["coverage"]) == (0.5, None, 0.5)
        assert (summary["cost_usd"], summary["status"]) == (None, "completed_with_errors")
        with opened(root) as lineage:
            [covered] = checks.coverage(lineage)
            [cost] = checks.cost(lineage)
        assert (covered.is_right, covered.found, covered.wanted) == (False, "1 of 2 seeds", "0.6 of them or more")
        assert (cost.is_right, cost.found, cost.wanted) == (True, "not known", "5 USD or less")
        outcomes.rewards[1] = 1.0
        second = all_made(root)[2]
        assert (second.reason, second.record.counts) == ("config after changed", {"rows": 2, "valid": 2, "infra": 0})
        assert (read_summary(second.folder)["mean_reward"], outcomes.asked) == (0.75, {0: 1, 1: 2})
        assert reasons(root) == ["", "", ""]


def test_an_evaluation_of_which_nothing_is_known_is_an_error_and_what_was_known_stays(root: Path) -> None:
    outcomes = Outcomes({0: 0.5, 1: 1.0})
    with served(root, outcomes):
        known = all_made(root)[2].record
        outcomes.rewards = {0: None, 1: None}
        write_deployment(root, evaluation={"policy": {"teacher": "nop"}})
        with pytest.raises(
            HarborError, match=r"none of its 2 seeds has a reward that counts.*no box to be had.*run again"
        ):
            all_made(root)
    assert load_record(Paths(root).harbor("evaluations", "tiny")) == known


def test_a_service_that_refuses_is_an_error_and_leaves_nothing(root: Path) -> None:
    with served(root, Outcomes({})) as url:
        use_service(root, url, "a-key-of-somebody-else")
        with pytest.raises(HarborError, match=r"401 Unauthorized.*check the key"):
            all_made(root)
    assert not (root / "data" / "harbor" / "deployments").exists()


def test_a_job_that_was_begun_before_an_interruption_is_waited_for_and_not_paid_for_twice(root: Path) -> None:
    outcomes, note = Outcomes({0: 0.5, 1: 1.0}), root / ".policy.job"
    with served(root, outcomes) as url, opened(root) as lineage:
        deployment = harbor_deployment(lineage, "tiny").record.config["deployment"]
        harbor = lineage.ports.harbor
        assert harbor == HarborService(url, harbor.key)
        file = deployment_file(lineage.paths, "tiny")
        assert file.evaluation is not None
        rollouts = Rollouts(lineage, "tiny", file, file.evaluation, deployment, 60.0, root)
        first = rollouts.rewards([0, 1])
        assert not note.exists()
        note.write_text(first.job_id, "utf-8")
        again = rollouts.rewards([0, 1])
        assert (again.job_id, outcomes.asked) == (first.job_id, {0: 1, 1: 1})
        # one that the service lost is begun anew
        note.write_text("job_gone", "utf-8")
        third = rollouts.rewards([0, 1])
        assert (third.job_id == first.job_id, outcomes.asked) == (False, {0: 2, 1: 2})


def test_floor_and_ceiling_are_found_where_they_are_required(root: Path) -> None:
    def outcomes(box: RolloutSpec) -> Execution:
        teacher = box.request["policy"]["config"]["teacher"]
        return Execution(SuccessStatus.SUCCESS, {"nop": 0.0, "memory": 1.0, "induction": 0.5}[teacher])

    # of the third it is known what is wanted, and not how it is done
    write_tasks(root, task(0), task(1), task(2, has_solution=False))
    write_deployment(root, calibration={"is_required": True}, evaluation={"least_mean_reward": 0.6})
    with served(root, outcomes):
        folder = all_made(root)[2].folder
        with opened(root) as lineage:
            [calibration] = checks.calibration(lineage)
            [mean] = checks.mean_reward(lineage)
    summary = read_summary(folder)
    assert (summary["floor"], summary["ceiling"], summary["mean_normalised"]) == (0.0, 1.0, 0.5)
    assert json.loads((folder / "calibration.json").read_text("utf-8"))["tasks"].keys() == {"d:0", "d:1"}
    assert (calibration.is_right, calibration.found) == (True, "oracle 1, nop 0 at 2 tasks")
    assert (mean.is_right, mean.found, mean.wanted) == (False, "0.5, between 0.5 and 0.5 (95 %)", "0.6 or more")


def test_a_reference_solution_that_earns_less_than_all_is_a_finding(evaluated_root: Path) -> None:
    write_deployment(evaluated_root, calibration={"is_required": True})
    all_made(evaluated_root, "test")
    with opened(evaluated_root, "test") as lineage:
        [finding] = checks.calibration(lineage)
    assert not finding.is_right
    assert finding.found.startswith("oracle 0.")
    assert "d:0: oracle_below_full" in finding.found


def test_a_floor_that_is_not_known_is_looked_for_again_and_the_rest_is_not(root: Path) -> None:
    asked, is_broken = Counter[str](), True

    def outcomes(box: RolloutSpec) -> Execution:
        teacher = box.request["policy"]["config"]["teacher"]
        asked[teacher] += 1
        if teacher == "nop" and is_broken:
            return Execution(SuccessStatus.APPLY_FAILED, failure_cause=FailureCause.SANDBOX_FAILED, error="no box")
        return Execution(SuccessStatus.SUCCESS, 0.0 if teacher == "nop" else 1.0)

    write_deployment(root, calibration={"is_required": True})
    with served(root, outcomes):
        assert read_summary(all_made(root)[2].folder)["floor"] is None
        is_broken = False
        again = all_made(root)[2]
        assert (read_summary(again.folder)["floor"], asked) == (0.0, {"nop": 4, "memory": 4, "induction": 2})
        assert reasons(root) == ["", "", ""]


def test_agents_are_evaluated_by_doing_nothing_where_no_policy_is_named(root: Path, checkout: Path) -> None:
    examples = checkout / "examples" / "engine_bench"
    environment = {
        "kind": "engine_bench",
        "tasks": str(examples / "tasks"),
        "include": ["df-00[12]*"],
        "crate": str(examples / "harbor" / "crate"),
        "dockerfile": str(examples / "harbor" / "Dockerfile"),
    }
    cards: dict[str, Any] = {"environment": environment, "limits": None, "calibration": {"is_required": True}}

    def evaluate(**evaluation: Any) -> tuple[Built, list[str], int]:
        write_deployment(root, "cards", **cards, evaluation=evaluation)
        built = all_made(root, "test", "cards")[2]
        with opened(root, "test") as lineage:
            uploader = lineage.ports.harbor.uploader()
            rollouts = uploader.client.request("GET", "/api/harbor/rollouts")["rollouts"]
            return built, sorted(one.name for one in uploader.list_deployments()), len(rollouts)

    built, names, rollouts = evaluate()
    assert (built.record.counts["rows"], read_summary(built.folder)["policy"]) == (2, {"agent": "nop"})
    assert names == ["cards", "cards-nop", "cards-oracle"]
    # of the two that do nothing, one is the evaluation
    assert rollouts == 4
    kept = json.loads((root / "data" / "harbor" / "calibration" / "cards.json").read_text("utf-8"))
    assert (kept["deployment"], len(kept["digests"]), len(kept["tasks"])) == ("cards", 2, 2)
    # floor and ceiling are those of the same deployments
    built, _, rollouts = evaluate(policy={"agent": "codex", "model": "m"})
    assert (built.reason, rollouts) == ("config policy changed", 6)


OF_LINEAGE = {"kind": "refactoring", "tasks": "data/tasks/python/test/tasks.jsonl"}
NOWHERE = {"kind": "refactoring", "tasks": "data/nowhere.jsonl"}


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        (
            {"evaluation": None},
            ConfigError,
            r"configs/harbor/tiny\.yaml: asks for no `evaluation`; those that do: none",
        ),
        (
            {"evaluation": {"seeds": [0, 7]}},
            ConfigError,
            r"evaluation\.seeds: 7 stands for no task; there are 2, of the",
        ),
        ({"environment": OF_LINEAGE}, RecordError, "data/tasks/python/test: has no _meta.json, so it was not made yet"),
        ({"environment": NOWHERE}, ConfigError, r"environment\.tasks: 'data/nowhere\.jsonl' is not there"),
    ],
)
def test_a_deployment_that_cannot_be_made_says_why(
    root: Path, changes: dict[str, Any], kind: type[GraftlineError], message: str
) -> None:
    write_deployment(root, **changes)
    with pytest.raises(kind, match=message):
        all_made(root, "test")


def test_names_are_those_of_the_files(root: Path) -> None:
    write_deployment(root, "other", evaluation=None)
    paths = Paths(root)
    assert (deployment_names(paths), deployment_evaluation_names(paths)) == (["other", "tiny"], ["tiny"])
    with opened(root, "test") as lineage, pytest.raises(ConfigError, match=r"'x' is unknown; .*: other, tiny"):
        harbor_deployment(lineage, "x")


def test_a_deployment_of_another_service_is_uploaded_to_this_one_first(evaluated_root: Path) -> None:
    with (
        opened(evaluated_root) as lineage,
        pytest.raises(RecordError, match="was uploaded to 'memory', and the manifest has 'local'; materialize harbor"),
    ):
        instance_batch(lineage, "tiny")


def test_an_executor_of_a_manifest_is_checked_when_it_is_read(checkout: Path) -> None:
    paths = Paths(checkout)
    with pytest.raises(
        ConfigError, match=r"--set harbor\.executor: value error, Input tag 'podman' .*: 'local', 'memory', 'docker'"
    ):
        load_manifest(paths, "local", {"harbor.executor": {"kind": "podman"}})
    config = load_manifest(paths, "local", {"harbor.executor": {"kind": "local", "runs_own": True}}).harbor
    assert config == LocalHarborConfig(executor={"kind": "local", "runs_own": True})
    assert place_of(config) == "local"
