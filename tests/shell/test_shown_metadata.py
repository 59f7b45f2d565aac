"""What a person sees of every asset in the UI: what it is, where it lies, how much there is, and a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.links import model_page, with_licenses
from assets.partitions import whole_range
from assets.training import GROUP as TRAINING
from graftline.core.paths import Paths
from graftline.pipeline.settings import load_settings
from orchestration.build import build_definitions
from tests.recipes import train_in_memory, write_recipes

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

PLOTTED = {
    "reports/adapters",
    "normalized_release_pairs", "division", "splits", "synthetic_rules", "tasks", "teacher_trajectories", "trajectories",
    "sft_dataset", "trained_adapter", "reports/datasets", "reports/teacher",
}  # fmt: skip
"""Assets whose numbers say more as a picture."""
LINKED = {"raw_release_pairs", "normalized_release_pairs", "sft_dataset"}
"""Assets that name what has a page of its own: homes, licenses."""
MOST_CHARACTERS = 40_000
"""Of a picture of 30 kB, as text."""

Shown = Mapping[str, Mapping[str, dg.MetadataValue[Any]]]
OTHERS = {"harbor", "evaluations", "prompts", "closed_loop"}
"""Groups that are made by services and models, and have tests of their own."""


def executable(definitions: dg.Definitions) -> list[Any]:
    graph = definitions.resolve_asset_graph()
    return [graph.get(key) for key in sorted(graph.materializable_asset_keys)]


@pytest.fixture(scope="module")
def root(new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = new_checkout(tmp_path_factory.mktemp("shown") / "root")
    small.write([*(row for row in varied_pairs if row["language"] == "python"), '{"id": '])
    small.configure(languages=("python",), per_partition=1)
    train_in_memory(small.root)
    write_recipes(small.root)
    found: Path = small.root
    return found


@pytest.fixture(scope="module")
def shown(root: Path) -> Shown:
    """What the page of every asset shows that the lineage and its recipes make: its last materialization, and of its
    partitions together the last observation."""
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(root))
        instance.add_dynamic_partitions("recipes", ["seen", "tiny"])
        definitions = build_definitions()
        ranges = {"lineage": whole_range(load_settings(Paths(root)).catalog), "training": ("seen", "tiny")}
        found: dict[str, Mapping[str, dg.MetadataValue[Any]]] = {}
        for name, (first, last) in ranges.items():
            tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
            result = definitions.resolve_job_def(name).execute_in_process(instance=instance, tags=tags)
            for event in result.get_asset_materialization_events():
                one = event.step_materialization_data.materialization
                found[one.asset_key.to_user_string()] = one.metadata
            for event in result.get_asset_observation_events():
                observation = event.asset_observation_data.asset_observation
                name = observation.asset_key.to_user_string()
                if name.startswith("source/"):
                    continue  # is made elsewhere
                found[name] = {**observation.metadata, **found[name]}
        return found


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
    # of one of the two recipes, whichever was shown last
    name = str(told["came_from"].value).removeprefix("graftline lineage ")
    assert name in ("seen", "tiny")
    assert told["on_what_terms"].value == f"graftline licenses {name}"
