"""Every asset by itself, with stub resources of the manifest `test`, and what a person sees of it in the UI."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from ruamel.yaml import YAML

from assets.links import model_page, with_licenses
from assets.partitions import range_tags, whole_range
from assets.training import GROUP as TRAINING
from graftline.core.errors import SandboxError
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.pipeline.settings import load_settings
from graftline.training.memory import MemoryTrainingService
from orchestration.build import build_definitions, resources_for
from resources.artifacts import Artifacts
from resources.warehouse import Warehouse
from tests.harbor_lineage import task, write_deployment, write_tasks
from tests.recipes import SYNTHETIC, write_recipe
from tests.shell.runs import failure_of
from tests.unit.pipeline.test_optimized_prompts import FILE as PROMPT
from tests.unit.pipeline.test_optimized_prompts import task as prompt_task

DATASET = "release_pairs"
SOURCE = f"source/{DATASET}"
OVER_ALL = ("raw", "normalized", "division", "label_tasks", "repository_changes")
OF_PARTITIONS = ("splits", "synthetic_rules", "tasks", "teacher_trajectories", "trajectories")
OF_NAMES = {
    "sft_dataset": "tiny", "trained_adapter": "tiny", "harbor_deployment": "tiny", "instance_batch": "tiny",
    "deployment_evaluation": "tiny", "evaluation": "teachers", "optimized_prompt": "tiny",
}  # fmt: skip
"""Assets that are over names, with one of theirs."""
REPORTS = ("report_models", "reports/datasets", "reports/teacher")
LAST = ("reports/adapters", "closed_loop_results")
FOLDERS: Mapping[str, Callable[[Paths], Path]] = {
    "raw": lambda paths: paths.raw(DATASET),
    "normalized": lambda paths: paths.normalized(DATASET),
    "division": lambda paths: paths.data / "division",
    "label_tasks": lambda paths: paths.data / "label_tasks",
    "repository_changes": lambda paths: paths.data / "repository_changes",
    "splits": lambda paths: paths.partition("processed", "python", "train"),
    "synthetic_rules": lambda paths: paths.partition("synthetic", "python", "train"),
    "tasks": lambda paths: paths.partition("tasks", "python", "train"),
    "trajectories": lambda paths: paths.partition("trajectories/parquet", "python", "train"),
    "sft_dataset": lambda paths: paths.training_set("tiny"),
    "trained_adapter": lambda paths: paths.adapter("tiny"),
    "harbor_deployment": lambda paths: paths.harbor("deployments", "tiny"),
    "instance_batch": lambda paths: paths.harbor("instances", "tiny"),
    "deployment_evaluation": lambda paths: paths.harbor("evaluations", "tiny"),
    "evaluation": lambda paths: paths.evaluation("teachers"),
    "reports/adapters": lambda paths: paths.reports / "adapters",
    "closed_loop_results": lambda paths: paths.data / "closed_loop",
}
"""Where the artifact of an asset is, of which the event has to say the identity."""


PLOTTED = {
    "reports/adapters",
    "normalized_release_pairs", "division", "splits", "synthetic_rules", "tasks", "teacher_trajectories", "trajectories",
    "sft_dataset", "trained_adapter", "reports/datasets", "reports/teacher",
}  # fmt: skip
"""Assets whose numbers say more as a picture."""
LINKED = {"raw_release_pairs", "normalized_release_pairs", "sft_dataset", "reports/teacher"}
"""Assets that name what has a page of its own: homes, licenses, papers."""
MOST_CHARACTERS = 40_000
"""Of a picture of 30 kB, as text."""

Shown = Mapping[str, Mapping[str, dg.MetadataValue[Any]]]
OTHERS = {"harbor", "evaluations", "prompts", "closed_loop"}
"""Groups that are made by services and models, and have tests of their own."""


@pytest.fixture(scope="module")
def root(new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a file for everything that may be configured, and nothing made of it."""
    small = new_checkout(tmp_path_factory.mktemp("each") / "root")
    root: Path = small.root
    small.write([*(row for row in varied_pairs if row["language"] == "python"), '{"id": '])
    small.configure(languages=("python",), per_partition=1)
    write_recipe(root, "tiny", SYNTHETIC)
    write_tasks(root, task(0), task(1))
    write_deployment(root)
    rows = [{"language": "python", "pre": f"x = old({n})\n", "post": f"x = new({n})\n"} for n in range(2)]
    (root / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (root / "tasks.jsonl").write_text("".join(f"{prompt_task(n).model_dump_json()}\n" for n in range(24)), "utf-8")
    solvers = {name: {"kind": "teacher"} for name in ("base", "candidate", "improved", "rival")}
    contest = {"tasks": [{"kind": "pairs", "path": "pairs.jsonl"}], "solvers": solvers}
    loop = {"recipes": ["tiny"], "evaluations": {"teachers": "pairs"}, **{name: name for name in solvers}}
    for name, content in {"evaluations/teachers": contest, "prompts/tiny": PROMPT, "closed_loop": loop}.items():
        path = root / "configs" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
    return root


def stubs(root: Path, **replaced: Any) -> dict[str, Any]:
    """Return resources that start no process and reach no network, some of them replaced."""
    manifest = root / "configs" / "manifests" / "test.yaml"
    text = manifest.read_text("utf-8").replace("dataset_hub:\n  kind: memory", "dataset_hub:\n  kind: sources")
    manifest.write_text(text, "utf-8")
    return {**resources_for(Paths(root), "test"), **replaced}


def assets_of(root: Path) -> dict[str, dg.AssetsDefinition]:
    """Return every asset by the name of its key, that of the report models by the name of what makes them all."""
    found = {}
    for one in build_definitions().assets or ():
        assert isinstance(one, dg.AssetsDefinition)
        keys = sorted(key.to_user_string() for key in one.keys)
        name = keys[0].removesuffix(f"_{DATASET}") if len(keys) == 1 else "report_models"
        found[name] = one
    return found


def materialize(
    root: Path, name: str, asset: dg.AssetsDefinition, instance: dg.DagsterInstance, **replaced: Any
) -> dg.ExecuteInProcessResult:
    """Materialize one asset alone."""
    first, last = whole_range(load_settings(Paths(root)).catalog)
    over = {"partition_key": OF_NAMES[name]} if name in OF_NAMES else {}
    tags = range_tags(first, last) if name in OF_PARTITIONS else {}
    resources = {key: one for key, one in stubs(root, **replaced).items() if key in asset.required_resource_keys}
    return dg.materialize([asset], resources=resources, instance=instance, tags=tags, raise_on_error=False, **over)


def add_named_partitions(instance: dg.DagsterInstance) -> None:
    for definition in ("recipes", "deployments", "evaluated_deployments"):
        instance.add_dynamic_partitions(definition, ["tiny"])
    instance.add_dynamic_partitions("evaluations", ["teachers"])


@pytest.fixture(scope="module")
def results(root: Path) -> dict[str, dg.ExecuteInProcessResult]:
    """What came of every asset, each in a run of its own, in the order in which they need each other."""
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(root))
        add_named_partitions(instance)
        assets = assets_of(root)
        order = [*OVER_ALL, *OF_PARTITIONS, *OF_NAMES, *REPORTS, *LAST]
        assert {*order, SOURCE} == {*assets}
        return {name: materialize(root, name, assets[name], instance) for name in order}


@pytest.mark.parametrize("name", [*OVER_ALL, *OF_PARTITIONS, *OF_NAMES, *REPORTS, *LAST])
def test_an_asset_is_made_alone_with_stub_resources(
    root: Path, results: Mapping[str, dg.ExecuteInProcessResult], name: str
) -> None:
    result = results[name]
    assert result.success, failure_of(result)
    made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    assert made
    if name in FOLDERS:
        identity = load_record(FOLDERS[name](Paths(root))).identity
        assert identity in {(one.tags or {}).get("dagster/data_version") for one in made}


def test_a_dataset_in_its_home_is_observed_with_the_revision_that_a_run_fetches(
    root: Path, results: Mapping[str, dg.ExecuteInProcessResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    source = assets_of(root)[SOURCE]
    resources = {key: one for key, one in stubs(root).items() if key in source.required_resource_keys}
    look = dg.define_asset_job("look", selection=dg.AssetSelection.assets(["source", DATASET]))
    job = dg.Definitions(assets=[source], jobs=[look], resources=resources).resolve_job_def("look")
    with dg.DagsterInstance.ephemeral() as instance:
        [event] = job.execute_in_process(instance=instance).get_asset_observation_events()
    tags = event.asset_observation_data.asset_observation.tags
    assert tags["dagster/data_version"] == load_record(Paths(root).raw(DATASET)).inputs["source"]


# what a person sees of them in the UI


@pytest.fixture(scope="module")
def shown(results: Mapping[str, dg.ExecuteInProcessResult]) -> Shown:
    """What the page of every asset shows that the lineage and its recipes make: its last materialization, and of its
    partitions together the last observation."""
    found: dict[str, Mapping[str, dg.MetadataValue[Any]]] = {}
    of_others = {
        "harbor_deployment",
        "instance_batch",
        "deployment_evaluation",
        "evaluation",
        "optimized_prompt",
        "closed_loop_results",
    }
    for result in (one for name, one in results.items() if name not in of_others):
        made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
        found |= {one.asset_key.to_user_string(): one.metadata for one in made}
        for event in result.get_asset_observation_events():
            observation = event.asset_observation_data.asset_observation
            name = observation.asset_key.to_user_string()
            if name in found:  # others are made elsewhere
                found[name] = {**observation.metadata, **found[name]}
    return found


def executable(definitions: dg.Definitions) -> list[Any]:
    graph = definitions.resolve_asset_graph()
    return [graph.get(key) for key in sorted(graph.materializable_asset_keys)]


def test_every_asset_says_what_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    lacking = [
        (node.key.to_user_string(), what)
        for node in executable(build_definitions())
        for what, is_there in (
            ("description", bool(node.description)),
            ("group", node.group_name != "default"),
            ("kinds", any(tag.startswith("dagster/kind/") for tag in node.tags)),
            ("owners", bool(node.owners)),
            ("one run for a range", not node.is_partitioned or node.backfill_policy == dg.BackfillPolicy.single_run()),
        )
        if not is_there
    ]
    assert lacking == []


def test_every_asset_of_the_lineage_leads_to_the_code_that_makes_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    nodes = [node for node in executable(build_definitions()) if node.group_name not in {*OTHERS, "reports"}]
    assert {node.group_name for node in nodes} == {"datasets", "tasks", "trajectories", TRAINING}
    for node in nodes:
        [place] = node.metadata["dagster/code_references"].code_references
        lines = Path(place.file_path).read_text("utf-8").splitlines()
        assert f"def {place.label.rpartition('.')[2]}(" in lines[place.line_number - 1]


def test_every_asset_shows_where_it_lies_how_much_there_is_and_a_table(
    root: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    wanted = [node.key.to_user_string() for node in executable(build_definitions()) if node.group_name not in OTHERS]
    assert sorted(shown) == wanted
    lacking = [
        (key, what)
        for key, metadata in shown.items()
        for what, is_there in (
            ("a path", any(isinstance(value, dg.PathMetadataValue) for value in metadata.values())),
            ("a number of rows", isinstance(metadata["dagster/row_count"].value, int)),
            # of a model without rows, its columns
            (
                "a table",
                any(
                    "\n|---" in str(value.value) or isinstance(value, dg.TableSchemaMetadataValue)
                    for value in metadata.values()
                ),
            ),
        )
        if not is_there
    ]
    assert lacking == []


def test_plots_and_links_are_where_they_are_promised(shown: Shown) -> None:
    def having(text: str) -> set[str]:
        return {key for key, values in shown.items() if any(text in str(value.value) for value in values.values())}

    assert having("](data:image/png;base64,") == PLOTTED
    assert having("](https://") == LINKED


def test_no_picture_is_large_and_no_link_is_one_that_a_browser_does_not_open(shown: Shown) -> None:
    values = [value for metadata in shown.values() for value in metadata.values()]
    pictures = [str(value.value) for value in values if "](data:image/" in str(value.value)]
    assert max(map(len, pictures)) < MOST_CHARACTERS
    assert [value for value in values if isinstance(value, dg.UrlMetadataValue) and "file:" in str(value.value)] == []


def test_a_raw_dataset_leads_to_its_source_and_its_terms(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("release_pairs", "commitpackft", "agentpack", "smellycode")
    monkeypatch.setenv("GRAFTLINE_ROOT", str(checkout))
    monkeypatch.setenv("GRAFTLINE_DATASETS", ",".join(names))
    graph = build_definitions().resolve_asset_graph()
    found = {name: graph.get(dg.AssetKey(f"raw_{name}")).metadata for name in names}
    assert {name: metadata["source"] for name, metadata in found.items()} == {
        "release_pairs": dg.MetadataValue.text("data/samples"),
        "commitpackft": dg.MetadataValue.url("https://huggingface.co/datasets/bigcode/commitpackft"),
        "agentpack": dg.MetadataValue.url("https://huggingface.co/datasets/nuprl/AgentPack"),
        "smellycode": dg.MetadataValue.url(
            "https://github.com/HRI-EU/SmellyCodeDataset/tree/70d987a032355d25651b62a7df8fa56e5ea09e85"
        ),
    }
    terms = {name: metadata["terms_page"] for name, metadata in found.items() if "terms_page" in metadata}
    assert terms == {"agentpack": dg.MetadataValue.url("https://huggingface.co/datasets/nuprl/AgentPack")}


@pytest.mark.parametrize(
    ("expression", "shown_as"),
    [
        ("MIT", "[MIT](https://spdx.org/licenses/MIT.html)"),
        (
            "Apache-2.0 AND MIT",
            "[Apache-2.0](https://spdx.org/licenses/Apache-2.0.html) AND [MIT](https://spdx.org/licenses/MIT.html)",
        ),
        # has no text there
        ("NOASSERTION", "NOASSERTION"),
        ("LicenseRef-BSD-3-Clause-ML-Restriction", "LicenseRef-BSD-3-Clause-ML-Restriction"),
    ],
)
def test_licenses_lead_to_their_texts(expression: str, shown_as: str) -> None:
    assert with_licenses(expression) == shown_as


@pytest.mark.parametrize(
    ("card", "page"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("memory", ""),
    ],
)
def test_a_model_of_the_hub_leads_to_its_card(card: str, page: str) -> None:
    assert model_page(card) == page


def test_a_table_of_files_is_not_hidden_by_the_number_of_files(shown: Shown) -> None:
    assert "| `release_pairs.jsonl` |" in str(shown["raw_release_pairs"]["files"].value)


def test_a_model_of_dbt_shows_its_table_and_nothing_of_how_it_is_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    metadata = build_definitions().resolve_asset_graph().get(dg.AssetKey("stg_edits")).metadata
    assert metadata["dagster/table_name"] == "main.stg_edits"
    assert [name for name in metadata if "dbt" in name] == []


def test_paths_that_are_shown_exist(shown: Shown) -> None:
    paths = {
        value.value
        for metadata in shown.values()
        for value in metadata.values()
        if isinstance(value, dg.PathMetadataValue)
    }
    assert [path for path in paths if not Path(str(path)).exists()] == []


def test_tables_of_rows_have_their_columns(root: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    graph = build_definitions().resolve_asset_graph()
    declared = {
        key.to_user_string(): [column.name for column in graph.get(key).metadata["dagster/column_schema"].columns]
        for key in graph.materializable_asset_keys
        if "dagster/column_schema" in graph.get(key).metadata
    }
    assert {
        "normalized_release_pairs", "division", "splits", "label_tasks", "synthetic_rules", "tasks",
        "teacher_trajectories", "trajectories",
    } <= declared.keys()  # fmt: skip
    assert ("license" in declared["splits"], "steps" in declared["teacher_trajectories"]) == (True, True)
    measured = shown["dataset_stats"]["dagster/column_schema"]
    assert isinstance(measured, dg.TableSchemaMetadataValue)
    assert "dataset" in [column.name for column in measured.schema.columns]
    rows = shown["sft_dataset"]["dagster/column_schema"]
    assert isinstance(rows, dg.TableSchemaMetadataValue)
    assert "messages" in [column.name for column in rows.schema.columns]


def test_what_was_left_out_is_a_table_by_reason_and_a_plot(shown: Shown) -> None:
    normalized = shown["normalized_release_pairs"]
    assert "| dropped | malformed_json | 1 |" in str(normalized["left_out"].value)
    assert str(normalized["plot"].value).startswith("![outcomes](data:image/png;base64,")
    assert "| [MIT](https://spdx.org/licenses/MIT.html) | 3 |" in str(normalized["licenses"].value)
    assert "| license | [MIT](https://spdx.org/licenses/MIT.html) |" in str(shown["raw_release_pairs"]["terms"].value)
    assert str(shown["teacher_trajectories"]["plot"].value).startswith("![attempts](data:image/png;base64,")


def test_an_adapter_says_how_to_see_what_it_came_from(shown: Shown) -> None:
    told = shown["trained_adapter"]
    assert told["came_from"].value == "graftline lineage tiny"
    assert told["on_what_terms"].value == "graftline licenses tiny"


# what is given in place of a resource


class Refusing:
    """What is given in place of a system, and says so when it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # the framework looks whether it is a resource
        raise SandboxError(f"the stand-in was asked for {name}")


class RefusingTrainer(MemoryTrainingService):
    """One that refuses to train: another object has no words for its tokens."""

    def create_training_client(self, *arguments: Any, **settings: Any) -> Any:
        raise SandboxError("the stand-in was asked for a training client")


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("dataset_sources", "raw"),
        ("sandbox", "synthetic_rules"),
        ("teacher", "teacher_trajectories"),
        ("tinker", "trained_adapter"),
        ("harbor", "harbor_deployment"),
        ("actors", "optimized_prompt"),
    ],
)
def test_what_is_given_in_place_of_a_resource_is_what_its_asset_uses(
    root: Path,
    results: Mapping[str, dg.ExecuteInProcessResult],
    monkeypatch: pytest.MonkeyPatch,
    resource: str,
    name: str,
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    stand_in = RefusingTrainer() if resource == "tinker" else Refusing()
    # so that it has to be made anew
    for folder in [FOLDERS[name](Paths(root))] if name in FOLDERS else []:
        shutil.rmtree(folder)
    shutil.rmtree(root / "models" / "adapters" / "memory", ignore_errors=True)
    with dg.DagsterInstance.ephemeral() as instance:
        add_named_partitions(instance)
        result = materialize(root, name, assets_of(root)[name], instance, **{resource: stand_in})
    assert not result.success
    assert "the stand-in was asked for" in failure_of(result)


def test_another_root_another_warehouse_and_another_queue_are_those_that_are_used(
    root: Path,
    results: Mapping[str, dg.ExecuteInProcessResult],
    monkeypatch: pytest.MonkeyPatch,
    new_checkout: Any,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("GRAFTLINE_ROOT", str(root))
    monkeypatch.delenv("GRAFTLINE_REDIS_URL", raising=False)
    elsewhere, assets = new_checkout(tmp_path / "elsewhere"), assets_of(root)
    manifest = json.loads(json.dumps(YAML(typ="safe").load(root / "configs" / "manifests" / "test.yaml")))
    queued = {**manifest, "teacher": {"kind": "openai"}, "queue": {"kind": "redis"}}
    (root / "configs" / "manifests" / "dev.yaml").write_text(json.dumps(queued), "utf-8")
    asking = {name: one for name, one in resources_for(Paths(root), "dev").items() if name in ("teacher", "queue")}
    with dg.DagsterInstance.ephemeral() as instance:
        made = materialize(
            root, "raw", assets["raw"], instance, artifacts=Artifacts(root=str(elsewhere.root), manifest="local")
        )
        read = materialize(
            root, "reports/teacher", assets["reports/teacher"], instance, warehouse=Warehouse(path="/no/where.duckdb")
        )
        # a secret that is missing is told before the run
        with pytest.raises(dg.DagsterInvalidConfigError, match="GRAFTLINE_REDIS_URL"):
            materialize(root, "teacher_trajectories", assets["teacher_trajectories"], instance, **asking)
    assert made.success
    assert load_record(Paths(elsewhere.root).raw(DATASET)).counts["rows"] == 0
    assert "/no/where.duckdb: no such file" in failure_of(read)
