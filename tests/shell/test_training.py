"""The assets of recipes and the sensor on their runs, over a small root that trains in memory."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.partitions import main as print_range
from assets.partitions import range_tags
from graftline.core.build import Contents, Request, build
from graftline.core.errors import ConfigError, TrainingError
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.recipe_models import resolve_checkpoints
from graftline.pipeline.stages.sft_dataset import sft_dataset
from graftline.pipeline.stages.table import make
from graftline.training.loop import Interrupted
from graftline.training.memory import MemoryTrainingService, memory_tokenizer
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import CheckpointNote, Runs, TrainingRun
from graftline.training.train import MEMORY_OUTPUT, OUTPUT, run_id_of, train_on_tinker
from orchestration.build import build_definitions, resources_for
from orchestration.run_jobs import plan_runs
from sensors.training_runs import training_runs
from tests.recipes import SYNTHETIC, train_in_memory, write_recipe, write_recipes
from tests.shell.runs import materializations

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

CHECKOUT = Path(__file__).resolve().parents[2]
HOLDER = """
import sys
from pathlib import Path
from graftline.training.runs import Runs
with Runs(Path(sys.argv[1])).lock(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""
ASKING = """
import json, runpy, sys
dagster, asked = sys.argv[1:]
for words in json.loads(asked):
    sys.argv = [dagster, "asset", "materialize", "-m", "orchestration.definitions", "--select", *words]
    try:
        runpy.run_path(dagster, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    print("ended by", code, file=sys.stderr)
"""
"""The command of Dagster for one selection after the other, in a process that has loaded the definitions."""


@pytest.fixture(scope="module")
def prepared(new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with all that recipes are made of."""
    small = new_checkout(tmp_path_factory.mktemp("prepared") / "root")
    small.write([row for row in varied_pairs if row["language"] == "python"])
    small.configure(languages=("python",), per_partition=1)
    train_in_memory(small.root)
    write_recipes(small.root)
    paths = Paths(small.root)
    with open_lineage(paths, load_manifest(paths, "local"), "prepared") as lineage:
        make("raw", lineage, "release_pairs")
        make("normalized", lineage, "release_pairs")
        make("division", lineage)
        for stage in ("splits", "synthetic_rules", "tasks", "teacher_trajectories"):
            for split in ("train", "dev", "test"):
                make(stage, lineage, "python", split)
    return paths.root


@pytest.fixture
def root(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same root once more, for a test of its own."""
    root = Path(shutil.copytree(prepared, tmp_path / "root"))
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    return root


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions("recipes", ["seen", "tiny"])
    return instance


def materialize(instance: dg.DagsterInstance, **options: Any) -> dg.ExecuteInProcessResult:
    job = build_definitions().resolve_job_def("training")
    return job.execute_in_process(instance=instance, raise_on_error=False, **options)


# assets


def test_each_recipe_is_a_partition_and_shows_what_it_learnt_once(root: Path, instance: dg.DagsterInstance) -> None:
    result = materialize(instance, tags=range_tags("seen", "tiny"))
    shown = {(one.asset_key.to_user_string(), one.partition): one.metadata for one in materializations(result)}
    page = str(shown.pop(("reports/adapters", None))["page"].value)
    assert re.search(r"^\| seen \| sl_basic \| memory \|.*\n\| tiny \| sl_basic \| memory \|", page, re.M), page
    assert (result.success, sorted(shown)) == (
        True,
        [(asset, recipe) for asset in ("sft_dataset", "trained_adapter") for recipe in ("seen", "tiny")],
    )
    record = load_record(Paths(root).adapter("tiny"))
    metadata = shown["trained_adapter", "tiny"]
    assert metadata["state"].value == "made: not there yet"
    assert metadata["run"].value == record.config["run_id"]
    assert metadata["loss_curve"].value.startswith("![loss](data:image/png;base64,")
    assert metadata["solved"].value.startswith("| of | tasks | solved before | solved after | unknown |\n")
    assert metadata["card"].value == str(Paths(root).adapter("tiny") / "README.md")
    # rows have a name of Dagster's own
    counts = {name: count for name, count in record.counts.items() if name != "rows"}
    assert {name: metadata[name].value for name in counts} == counts
    assert metadata["dagster/partition_row_count"].value == record.counts["rows"]
    # of the asset: both recipes
    both = sum(shown["trained_adapter", name]["dagster/partition_row_count"].value for name in ("seen", "tiny"))
    assert metadata["dagster/row_count"].value == both
    assert (metadata["share_solved_before"].value, metadata["last_loss"].value > 0) == (0.0, True)
    assert shown["sft_dataset", "tiny"]["license.MIT"].value == metadata["examples"].value
    # a second run makes nothing
    again = materialize(instance, partition_key="tiny")
    assert [one.metadata["state"].value for one in materializations(again)] == ["unchanged"] * 3
    assert versions_of_tiny(again) == versions_of_tiny(result)


def versions_of_tiny(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    made = [one for one in materializations(result) if one.partition in ("tiny", None)]
    return {one.asset_key.to_user_string(): (one.tags or {})["dagster/data_version"] for one in made}


def test_a_fault_of_a_recipe_is_said_without_a_traceback(root: Path, instance: dg.DagsterInstance) -> None:
    write_recipe(root, "tiny", {"kind": "synthetic", "prompt": "huge"})
    [failure] = materialize(instance, partition_key="tiny").get_step_failure_events()
    said = failure.step_failure_data.user_failure_data
    assert said is not None
    assert "prompt 'huge' is unknown; known: brief, edit, edit_shots, example, example_shots, " in str(said.description)


def test_a_range_in_the_wrong_order_fails_instead_of_doing_nothing(root: Path, instance: dg.DagsterInstance) -> None:
    assert not materialize(instance, tags=range_tags("tiny", "seen")).success


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an instance that the environment names."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


def partitions(home: Path) -> list[str]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return [*instance.get_dynamic_partitions("recipes")]


def test_without_a_recipe_that_has_data_there_is_nothing_to_train(root: Path, home: Path) -> None:
    shutil.rmtree(root / "configs" / "recipes")
    assert [*plan_runs(Paths(root), "training", [])] == []
    assert partitions(home) == []


def test_recipes_are_added_and_those_on_demand_where_they_are_named(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recipe(root, "rare", SYNTHETIC, is_on_demand=True)
    runs = [("training", {"dagster/partition": name}) for name in ("seen", "tiny", "rare")]
    assert [*plan_runs(Paths(root), "training", [])] == runs[:2]
    assert partitions(home) == ["seen", "tiny"]
    assert [*plan_runs(Paths(root), "training", ["rare"])] == runs[2:]
    assert partitions(home) == ["seen", "tiny", "rare"]
    with pytest.raises(ConfigError, match="'rarest' is none of the recipes; known: rare, seen, tiny"):
        [*plan_runs(Paths(root), "training", ["rarest"])]
    write_recipe(root, "alone", None, dataset="data/rows.jsonl")
    with pytest.raises(ConfigError, match="recipe 'alone': has no `data`"):
        [*plan_runs(Paths(root), "training", ["alone"])]
    # the range of what is not a file, for a command line of Dagster
    print_range(["rare"])
    assert capsys.readouterr().out == "python|train...python|test\n"


def test_a_run_that_fails_ends_the_command_with_its_cause_as_the_last_line(root: Path, home: Path) -> None:
    write_recipe(root, "tiny", {"kind": "synthetic", "prompt": "huge"})
    words = [sys.executable, "-m", "orchestration.run_jobs", "training", "--partition", "tiny", "--partition", "seen"]
    completed = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True)
    assert completed.returncode == 1
    last = completed.stderr.splitlines()[-1]
    assert last.startswith("error: sft_dataset: ")
    assert "prompt 'huge' is unknown; known: brief, edit, edit_shots, example, example_shots, " in last
    # what comes after a run that failed is left for when it is mended
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert [run.tags["dagster/partition"] for run in instance.get_runs()] == ["tiny"]


def test_a_partition_or_an_asset_that_there_is_not_ends_the_command_of_dagster_with_a_sentence(
    root: Path, home: Path
) -> None:
    dagster = Path(sys.executable).with_name("dagster")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_dynamic_partitions("recipes", ["seen", "tiny"])
    sentences = [
        (["sft_dataset", "--partition", "teeny"], "error: sft_dataset has no partition 'teeny'; did you mean 'tiny'? It has seen, tiny\n"),
        (["sft_datasets", "--partition", "tiny"], "error: AssetKey(s) ['sft_datasets'] were selected"),
        (["sft_dataset"], "error: sft_dataset has partitions; name one with --partition: seen, tiny\n"),
    ]  # fmt: skip
    asked = json.dumps([words for words, _ in sentences])
    completed = subprocess.run(
        [sys.executable, "-c", ASKING, dagster, asked], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert (completed.returncode, "Traceback" in completed.stderr) == (0, False)
    said = completed.stderr.split("ended by 1\n")
    assert [sentence in text for text, (_, sentence) in zip(said, sentences, strict=False)] == [True] * 3


def test_the_sensor_adds_a_partition_for_a_new_file_without_a_reload(root: Path, instance: dg.DagsterInstance) -> None:
    definitions = build_definitions()

    def added() -> list[str]:
        resources = {"artifacts": definitions.resources["artifacts"]}
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            result = definitions.resolve_sensor_def("partitions").evaluate_tick(context)
        return [key for one in result.dynamic_partitions_requests or [] for key in one.partition_keys]

    assert added() == []
    write_recipe(root, "new", SYNTHETIC)
    write_recipe(root, "rare", SYNTHETIC, is_on_demand=True)
    assert added() == ["new"]


def test_what_is_trained_is_a_job_of_its_own(root: Path) -> None:
    definitions = build_definitions()
    graph = definitions.resolve_asset_graph()
    jobs = {
        name: definitions.resolve_job_def(name).asset_layer.executable_asset_keys for name in ("lineage", "training")
    }
    assert {key.to_user_string() for key in jobs["training"]} == {"sft_dataset", "trained_adapter", "reports/adapters"}
    apart = {key for key in graph.materializable_asset_keys if graph.get(key).group_name in ("harbor", "evaluations")}
    assert jobs["lineage"] | jobs["training"] == graph.materializable_asset_keys - apart
    assert not jobs["lineage"] & jobs["training"]
    parents = sorted(key.to_user_string() for key in graph.get(dg.AssetKey("sft_dataset")).parent_keys)
    assert parents == ["splits", "tasks", "teacher_trajectories"]


# the sensor


@dataclass
class Watched:
    """The root, its run of `tiny`, and ticks of the sensor."""

    root: Path
    instance: dg.DagsterInstance

    def __post_init__(self) -> None:
        self.paths = Paths(self.root)
        self.runs = Runs(self.root / MEMORY_OUTPUT)
        self.sensor = training_runs("training")

    def evaluate(self, sensor: Any, cursor: str | None = None) -> Any:
        resources = {name: resources_for(self.paths, "local")[name] for name in ("artifacts", "tinker")}
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, resources=resources) as context:
            return sensor(context)

    def make_dataset(self) -> None:
        with open_lineage(self.paths, load_manifest(self.paths, "local"), "watched") as lineage:
            sft_dataset(lineage, "tiny")

    @property
    def run_id(self) -> str:
        return run_id_of(load_recipe(self.paths, "tiny"), self.root)

    @property
    def run(self) -> TrainingRun:
        return self.runs.get(self.run_id)

    def train(self, **options: Any) -> None:
        """Train as somebody else does, without the lineage."""
        with MemoryTrainingService() as service:
            train_on_tinker(
                load_recipe(self.paths, "tiny"), output_dir=self.runs.folder, root=self.root,
                tokenizer=memory_tokenizer(), service=service, **options,
            )  # fmt: skip

    def interrupt(self, after: int) -> None:
        steps: list[int] = []
        with pytest.raises(Interrupted):
            self.train(on_step=lambda step, total: steps.append(step.step), is_stopped=lambda: len(steps) >= after)

    def tick(self, cursor: str | None = None) -> dg.SensorResult:
        result = self.evaluate(self.sensor, cursor)
        assert isinstance(result, dg.SensorResult)
        return result

    def execute(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        selection = request.asset_selection
        return materialize(self.instance, partition_key=request.partition_key, asset_selection=selection)


@pytest.fixture
def watched(root: Path, instance: dg.DagsterInstance) -> Watched:
    watched = Watched(root, instance)
    watched.make_dataset()
    return watched


def said(result: dg.SensorResult) -> str:
    return result.skip_reason.skip_message if result.skip_reason and result.skip_reason.skip_message else ""


def told(result: dg.SensorResult) -> list[tuple[Any, ...]]:
    """Return of each observation what it is of and the state it tells."""
    return [
        (event.asset_key.to_user_string(), event.partition, event.metadata["state"].value, event.metadata["step"].value)
        for event in result.asset_events
    ]


def test_without_a_run_there_is_nothing_to_do(watched: Watched) -> None:
    result = watched.tick()
    assert (said(result), result.run_requests, result.asset_events) == (
        "no recipe of the lineage was trained yet", [], [],
    )  # fmt: skip


def test_a_run_that_was_interrupted_is_requested_once_and_brought_to_its_end(watched: Watched) -> None:
    watched.interrupt(after=2)
    left = watched.tick()
    [request] = left.run_requests or []
    assert (request.run_key, request.partition_key) == (f"{watched.run_id}/left/1", "tiny")
    assert told(left) == [("trained_adapter", "tiny", "left", 2)]
    again = watched.tick(left.cursor)
    # the key is the same until somebody has tried, and Dagster launches one run for a key
    assert ([one.run_key for one in again.run_requests or []], again.asset_events) == ([request.run_key], [])

    done = watched.execute(request)

    adapter = load_record(watched.paths.adapter("tiny"))
    assert (done.success, adapter.config["run_id"]) == (True, watched.run_id)
    assert (watched.run.status, len(watched.run.attempts)) == ("done", 2)
    assert [step.step for step in watched.runs.steps(watched.run_id)] == [*range(watched.run.total_steps)]
    after = watched.tick(again.cursor)
    assert (said(after), told(after)[0][2]) == (f"tiny: {watched.run_id} is there", "fetched")
    assert watched.tick(after.cursor).asset_events == []


def test_a_run_that_another_process_holds_is_only_told_of(watched: Watched) -> None:
    watched.interrupt(after=2)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(watched.runs.folder), watched.run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        held = watched.tick()
        again = watched.tick(held.cursor)
        holder.kill()
    total = watched.run.total_steps
    assert (held.run_requests, said(held)) == ([], f"tiny: {watched.run_id} goes on, step 2 of {total}")
    assert (told(held), again.asset_events) == ([("trained_adapter", "tiny", "held", 2)], [])
    # it was killed: nobody holds it any more
    assert [one.partition_key for one in watched.tick(again.cursor).run_requests or []] == ["tiny"]


def test_a_run_that_ended_elsewhere_is_fetched(watched: Watched) -> None:
    watched.train()
    [request] = watched.tick().run_requests or []
    assert request.run_key == f"{watched.run_id}/ended/1"
    assert watched.execute(request).success
    assert watched.tick().run_requests == []


def test_a_run_that_goes_on_from_another_adapter_is_gone_on_with(watched: Watched) -> None:
    paths = watched.paths
    write_recipe(watched.root, "after", SYNTHETIC, follows="tiny")
    with open_lineage(paths, load_manifest(paths, "local"), "after") as lineage:
        sft_dataset(lineage, "after")
    manifest = {"dataset_hub": "homes", "sandbox": "memory", "teacher": "induction", "training_client": "local"}
    text = json.dumps({port: {"kind": kind} for port, kind in manifest.items()})
    (paths.configs / "manifests" / "local.yaml").write_text(text, "utf-8")
    runs = Runs(watched.root / OUTPUT)
    about = {"recipe": "sl_basic", "config": {}, "config_digest": "0", "dataset": {}, "examples": 1, "versions": {}}
    sensor = training_runs("training")
    # what it follows is not there yet
    assert watched.evaluate(sensor).skip_reason.skip_message == "no recipe of the lineage was trained yet"
    checkpoint = CheckpointNote(step=4, path="tinker://a/weights/4", probe_loss=1.0)
    runs.write(TrainingRun(run_id="sl-1", **about, backend="b", total_steps=4, checkpoints=[checkpoint]))
    request = Request("trained_adapter", "tiny", "1", {}, {"run_id": "sl-1"})
    build(paths.adapter("tiny"), request, lambda folder: Contents({}))
    config = resolve_checkpoints(load_recipe(paths, "after"), paths, runs, has_checkpoints=True)
    run_id = run_id_of(config, paths.root)
    runs.write(TrainingRun(run_id=run_id, status="interrupted", **about, backend="b", total_steps=4))

    [request] = watched.evaluate(sensor).run_requests

    assert (request.partition_key, request.run_key) == ("after", f"{run_id}/left/0")


def test_a_run_that_failed_is_left_to_people(watched: Watched) -> None:
    def fail(step: Any, total: int) -> None:
        raise TrainingError("the quota is used up")

    with pytest.raises(TrainingError):
        watched.train(on_step=fail)
    result = watched.tick()
    [observed] = result.asset_events
    assert (result.run_requests, said(result)) == ([], f"tiny: {watched.run_id} failed: the quota is used up")
    assert observed.metadata["error"].value == "the quota is used up"


def test_a_record_that_cannot_be_read_is_said_and_stands_in_nobodys_way(watched: Watched) -> None:
    watched.interrupt(after=1)
    with open_lineage(watched.paths, load_manifest(watched.paths, "local"), "other") as lineage:
        sft_dataset(lineage, "seen")
    other = run_id_of(load_recipe(watched.paths, "seen"), watched.root)
    watched.runs.path(other).write_text(json.dumps({"run_id": other}), "utf-8")
    assert [one.partition_key for one in watched.tick("not JSON").run_requests or []] == ["tiny"]
    watched.runs.path(watched.run_id).unlink()
    assert f"seen: {watched.runs.path(other)}: is no record of a run" in said(watched.tick())


@pytest.mark.parametrize("damage", [lambda text: "{}\n" + text, lambda text: text.replace("{", "[")])
def test_steps_that_cannot_be_read_are_said(watched: Watched, damage: Callable[[str], str]) -> None:
    watched.interrupt(after=1)
    path = watched.runs.steps_path(watched.run_id)
    path.write_text(damage(path.read_text("utf-8")), "utf-8")
    assert f"tiny: {path}: holds a line that is no step" in said(watched.tick())
