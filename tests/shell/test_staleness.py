"""Which partitions the UI calls stale after a rerun of some of them; and how much their events take."""

import json
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from dagster._core.events.log import EventLogEntry

from assets.descriptions import source_key
from assets.outcome import DATA_VERSION
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, ArtifactRecord
from orchestration.build import build_definitions
from tests.recipes import train_in_memory
from tests.shell.graphql_client import Query, open_graphql

PARTITIONS = [f"{language}|{split}" for language in ("java", "python") for split in ("train", "dev", "test")]
STAGES = ("splits", "synthetic_rules", "tasks")
MOST_BYTES = 6_000
"""Of the event of a partition."""


class StaleSource:
    """A root with an instance of Dagster, and what the UI says of it."""

    def __init__(self, small: Any, rows: list[dict[str, Any]], instance: dg.DagsterInstance, query: Query) -> None:
        self.small, self.rows, self.instance, self._query = small, rows, instance, query
        self.paths, self.definitions = Paths(small.root), build_definitions()

    def run(self, *assets: str, first: str = PARTITIONS[0], last: str = PARTITIONS[-1]) -> None:
        """Materialize assets over a range of partitions, in one run."""
        keys = [dg.AssetKey(name.split("/")) for name in assets]
        job = self.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={*keys})
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        assert job.execute_in_process(instance=self.instance, tags=tags).success

    def events(self, stage: str, partition: str) -> list[EventLogEntry]:
        """Return the events of a partition, the newest first."""
        records = dg.AssetRecordsFilter(asset_key=dg.AssetKey(stage), asset_partitions=[partition])
        return [record.event_log_entry for record in self.instance.fetch_materializations(records, limit=100).records]

    def change(self, row: int) -> None:
        """Give a row of the dataset another text, in the same package."""
        self.rows[row]["post"] = self.rows[row]["post"].replace("(a", "(a, 7")
        self.small.write(self.rows)

    def replace(self, partition: str) -> None:
        """Put a split with another identity in place of a stored one."""
        path = self.paths.partition("processed", *partition.split("|")) / RECORD_NAME
        record = json.loads(path.read_text("utf-8"))
        other = ArtifactRecord.model_validate({**record, "counts": {**record["counts"], "restored": 1}}).with_identity()
        path.write_text(other.model_dump_json(), "utf-8")

    def status(self, asset: str) -> str:
        """Return what the UI says of an asset without partitions."""
        [node] = self._query(f'{{ assetNodes(assetKeys: [{{path: ["{asset}"]}}]) {{ staleStatus }} }}')["assetNodes"]
        return str(node["staleStatus"])

    def stale(self) -> list[tuple[str, str]]:
        """Return the stages and partitions that are not fresh."""
        keys = ", ".join(f'{{path: ["{stage}"]}}' for stage in STAGES)
        status = f"staleStatusByPartition(partitions: {json.dumps(PARTITIONS)})"
        nodes = self._query(f"{{ assetNodes(assetKeys: [{keys}]) {{ assetKey {{ path }} {status} }} }}")["assetNodes"]
        return sorted(
            (node["assetKey"]["path"][0], key)
            for node in nodes
            for key, status in zip(PARTITIONS, node["staleStatusByPartition"], strict=True)
            if status != "FRESH"
        )


@pytest.fixture(scope="module")
def source(
    new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StaleSource]:
    """A root in which everything up to the tasks is made."""
    small = new_checkout(tmp_path_factory.mktemp("stale") / "root")
    rows = [dict(row) for row in varied_pairs if row["language"] != "javascript"]
    small.write(rows)
    small.configure(languages=("java", "python"), per_partition=1)
    train_in_memory(small.root)
    with (
        pytest.MonkeyPatch.context() as patch,
        dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as instance,
    ):
        patch.setenv("GRAFTLINE_ROOT", str(small.root))
        with open_graphql(instance) as query:
            source = StaleSource(small, rows, instance, query)
            source.run("raw_release_pairs", "normalized_release_pairs", "division", *STAGES)
            yield source


def test_an_unchanged_rerun_of_some_partitions_leaves_everything_fresh(source: StaleSource) -> None:
    assert source.stale() == []
    source.run("splits", first="python|train", last="python|dev")
    assert source.stale() == []


def test_of_a_partition_that_changed_only_the_same_one_is_stale_downstream(source: StaleSource) -> None:
    source.replace("python|dev")
    source.run("splits")
    assert source.stale() == [("synthetic_rules", "python|dev"), ("tasks", "python|dev")]
    source.run("synthetic_rules", "tasks", first="python|dev", last="python|dev")
    assert source.stale() == []


def test_a_changed_row_makes_what_was_made_of_other_languages_no_staler(source: StaleSource) -> None:
    source.change(row=-1)
    source.run("raw_release_pairs", "normalized_release_pairs", "division", "splits")
    assert {partition.partition("|")[0] for _, partition in source.stale()} == {source.rows[-1]["language"]}


def test_a_dataset_whose_source_has_another_revision_is_stale_until_it_is_fetched(source: StaleSource) -> None:
    source.run("raw_release_pairs")
    assert source.status("raw_release_pairs") == "FRESH"
    seen = dg.AssetObservation(source_key("release_pairs"), tags={DATA_VERSION: "another revision"})
    source.instance.report_runless_asset_event(seen)
    assert source.status("raw_release_pairs") == "STALE"
    # what is fetched is what the source has now, whatever was seen before
    source.run("raw_release_pairs")
    assert source.status("raw_release_pairs") == "FRESH"


def test_the_events_of_a_partition_are_small_however_many_partitions_a_run_has(source: StaleSource) -> None:
    source.run("splits")
    of_all, *_ = source.events("splits", "python|train")
    source.run("splits", first="python|train", last="python|train")
    of_one, *_ = source.events("splits", "python|train")
    assert of_one.asset_materialization is not None
    assert of_all.asset_materialization is not None
    # by its dimensions, as Dagster's own events
    assert isinstance(of_one.asset_materialization.partition, dg.MultiPartitionKey)
    assert of_one.asset_materialization.metadata == of_all.asset_materialization.metadata
    sizes = [len(dg.serialize_value(event)) for key in PARTITIONS for event in source.events("splits", key)]
    assert (len(sizes) > 2 * len(PARTITIONS), max(sizes) < MOST_BYTES) == (True, True)
