"""A dataset of which no row is left, for no license of them is stated: what terminal, UI and report say."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.paths import Paths
from graftline.core.record import load_record
from orchestration.build import build_definitions
from tests.shell.graphql_client import Query, open_graphql
from tests.small_mirror import first_rows, put_lines, shared_data

NORMALIZED = "normalized_agentpack"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root that uses the first rows of AgentPack, from a mirror, on the terms that are shipped."""
    checkout = Path(__file__).resolve().parents[2]
    rows = first_rows(shared_data(checkout) / "mirror/agentpack/train/part-0000.jsonl.gz", 75)
    folder = tmp_path_factory.mktemp("lost")
    put_lines(folder / "mirror/agentpack/train/part-0000.jsonl.gz", rows)
    shutil.copytree(checkout / "configs", folder / "root" / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAFTLINE_ROOT", str(folder / "root"))
        patch.setenv("GRAFTLINE_DATASET_MIRROR", str(folder / "mirror"))
        patch.setenv("GRAFTLINE_DATASETS", "agentpack")
        yield folder / "root"


@pytest.fixture(scope="module")
def query(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """The UI, after a run that fetched and normalized the dataset."""
    home = str(tmp_path_factory.mktemp("dagster"))
    with dg.DagsterInstance.local_temp(home) as instance:
        keys = {dg.AssetKey("raw_agentpack"), dg.AssetKey(NORMALIZED)}
        job = build_definitions().resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
        assert job.execute_in_process(instance=instance).success
        with open_graphql(instance) as query:
            yield query


@pytest.fixture(scope="module")
def loss(root: Path, query: Query) -> str:
    """What has to be said."""
    number = load_record(Paths(root).normalized("agentpack")).counts["dropped.license"]
    assert number > 0
    return (
        f"dataset 'agentpack': {number} of {number} rows (100%) are rejected as license; state `license` or `licenses` of"
        " the dataset in configs/datasets.yaml, or allow what its rows state in `cleaning.licenses`"
    )


@pytest.mark.parametrize("command", [("data", "build", "agentpack"), ("summary",)])
def test_the_terminal_warns_of_it(command: tuple[str, ...], loss: str) -> None:
    plain = CliRunner().invoke(main, command)
    assert (plain.exit_code, f"warning: {loss}" in plain.stderr.splitlines()) == (0, True)
    as_json = CliRunner().invoke(main, [*command, "--json"])
    assert loss in json.loads(as_json.stdout)["warnings"]


def test_the_ui_warns_of_it_and_the_run_goes_on(query: Query, loss: str) -> None:
    [last] = query(
        f'{{ assetCheckExecutions(assetKey: {{path: {json.dumps(NORMALIZED)}}}, checkName: "most_rows_kept", limit: 1)'
        " { status evaluation { severity description } } }"
    )["assetCheckExecutions"]
    assert (last["status"], last["evaluation"]["severity"]) == ("FAILED", "WARN")
    assert f"{loss}." in last["evaluation"]["description"]
    entries = "metadataEntries { label ... on TextMetadataEntry { text } }"
    [node] = query(
        f"{{ assetNodes(assetKeys: [{{path: {json.dumps(NORMALIZED)}}}]) {{ assetMaterializations(limit: 1) {{ {entries} }} }} }}"
    )["assetNodes"]
    [materialization] = node["assetMaterializations"]
    [text] = [entry["text"] for entry in materialization["metadataEntries"] if entry["label"] == "warning"]
    assert text == f"{loss}."
