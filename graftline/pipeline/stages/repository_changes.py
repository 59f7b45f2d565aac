"""The stage `repository_changes`: commits, and steps between releases, that change many files of a repository alike."""

from collections.abc import Iterator
from pathlib import Path

from graftline.core.build import Built, Contents
from graftline.core.hashing import digest, sha256_file
from graftline.core.jsonl import read_lines
from graftline.core.record import ArtifactRecord
from graftline.datasets.deduplicate import shard_tables
from graftline.datasets.edit import Edit
from graftline.datasets.repository_changes.assign import SplitAssigner
from graftline.datasets.repository_changes.candidate import Candidate, ChangeRejection
from graftline.datasets.repository_changes.histories import (
    Repository,
    describe_skipped,
    open_repositories,
    read_candidates,
)
from graftline.datasets.repository_changes.judge import Judge
from graftline.datasets.repository_changes.records import read_records, record_files
from graftline.datasets.repository_changes.releases import release_candidates
from graftline.datasets.repository_changes.write import write_changes
from graftline.datasets.splits import ASSIGNED, read_near_edits
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.stages.normalized import evaluation_config, evaluation_records, read_evaluations, tool_versions
from graftline.pipeline.stages.splits import check_division, recall_assigned, recall_near


def repository_changes(lineage: Lineage) -> Built:
    """Gather the changes that span a repository, in the splits that their repositories have."""
    catalog, paths = lineage.catalog, lineage.paths
    config = catalog.repository_changes
    division = lineage.read_input(paths.division, "division")
    repositories = list(open_repositories(config, paths.root))
    files = [file for name in config.records for file in record_files(paths.root / name)]
    records = {name: lineage.read_input(paths.normalized(name), "normalized") for name in catalog.sources}
    check_division(lineage, division, records)
    datasets = [name for name, dataset in catalog.sources.items() if dataset.holds_releases and config.releases]
    inputs: dict[str, ArtifactRecord | str] = {
        "division": lineage.read_part(paths.division, division, ASSIGNED),
        **{f"normalized/{name}": _read_edits_of(lineage, name, record) for name, record in records.items()},
        **{f"git/{repository.settings.name}": _revision(repository) for repository in repositories},
        **{f"records/{paths.relative(file)}": sha256_file(file) for file in files},
        **evaluation_records(lineage),
    }
    settings = {
        "repository_changes": config.model_dump(mode="json"),
        "languages": list(catalog.languages),
        "splitting": catalog.splitting.model_dump(mode="json"),
        "cleaning": catalog.cleaning.model_dump(mode="json", include={"licenses", "check_syntax"}),
        **evaluation_config(lineage),
        "tools": tool_versions("characters/4"),  # tokens are not counted
    }

    def read_all() -> Iterator[Candidate | ChangeRejection]:
        yield from release_candidates(_read_edits(lineage, datasets), config.min_files)
        for file in files:
            yield from read_records(file, config)
        for repository in lineage.track(repositories):
            yield from read_candidates(repository, config, frozenset(catalog.languages))

    def make(folder: Path) -> Contents:
        least = catalog.splitting.near_duplicate
        folders = {name: paths.normalized(name) for name in records}
        assigner = SplitAssigner(
            catalog.splitting,
            recall_assigned(paths.division),
            recall_assigned(paths.repository_changes),
            read_near_edits(paths.division, folders, catalog.languages, least),
            recall_near(paths.repository_changes, least),
        )
        judge = Judge(config, catalog.cleaning, catalog.decontamination, read_evaluations(lineage))
        counts = write_changes(read_all(), judge, assigner, folder)
        return Contents({**counts, **describe_skipped(repositories)})

    return lineage.build(paths.repository_changes, request_of("repository_changes", "all", inputs, settings), make)


def _revision(repository: Repository) -> str:
    """Return what changes when other commits would be read."""
    return digest([repository.license, list(repository.aliases), list(repository.history.commits)])


def _read_edits_of(lineage: Lineage, dataset: str, record: ArtifactRecord) -> str:
    """Return what stands for the edits of a dataset: their lines, from which the signatures that are read with them follow."""
    names = sorted(name for name in record.files if name.endswith(".jsonl") and name != "labels.jsonl")
    return lineage.read_part(lineage.paths.normalized(dataset), record, *names) if names else record.identity


def _read_edits(lineage: Lineage, datasets: list[str]) -> Iterator[Edit]:
    for name in datasets:
        for language in lineage.catalog.languages:
            for table in shard_tables(lineage.paths.normalized(name), language):
                yield from read_lines(table.with_suffix(".jsonl"), Edit)
