"""What the pages say of datasets, against the catalog, the readers and the constants of the code."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_args

import pytest

from graftline.codemod.history import MAX_COMMIT_BYTES, MAX_FILES_OF_COMMIT, MAX_MESSAGE_BYTES
from graftline.codemod.token_changes import MAX_KINDS
from graftline.core.config import load_yaml, parse_yaml, validate
from graftline.datasets import decontaminate, deduplicate, fingerprints
from graftline.datasets.catalog import Catalog, Decontamination, Splitting
from graftline.datasets.readers import ReaderName, agentpack, package_releases
from graftline.datasets.repository_changes.change import ChangeRejectReason, RepositoryChange
from graftline.datasets.repository_changes.judge import MAX_MOVED_SHARE
from graftline.datasets.sources.base import MIRROR_VARIABLE
from graftline.datasets.splits import LARGE_SHARE, REASONS
from graftline.pipeline.instruction_trials import _MOST_FAILURES
from graftline.pipeline.settings import DATASETS_VARIABLE, TrajectorySettings
from graftline.pipeline.summary import STAGES
from graftline.rollouts.task import OpenTask
from tests.pages import CHECKOUT, PAGES, Fence, codes, fences, section, table

PAGE = PAGES["docs/datasets.md"].read_text("utf-8")
WORDS = " ".join(PAGE.split())
EXAMPLES = [fence for fence in fences() if fence.page == "docs/datasets.md" and fence.language == "yaml"]
SETTINGS = [fence for fence in EXAMPLES if fence.body.startswith("instructions:")]
ENTRIES = [fence for fence in EXAMPLES if fence not in SETTINGS]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_yaml(CHECKOUT / "configs" / "datasets.yaml", Catalog)


def test_the_table_of_datasets_is_the_catalog(catalog: Catalog) -> None:
    rows = {codes(row[0])[0]: row for row in table(PAGE)}
    assert rows.keys() == catalog.datasets.keys()
    listed = {name: catalog.datasets[name].url for name, row in rows.items() if row[2].startswith("`")}
    assert {name: codes(rows[name][2])[0] for name in listed} == listed
    assert [name for name, row in rows.items() if row[2].startswith("unknown")] == [
        name for name, dataset in catalog.datasets.items() if dataset.url is None
    ]


def test_every_dataset_that_makes_edits_or_labels_has_its_row_of_how(catalog: Catalog) -> None:
    rows = table(section("docs/datasets.md", "## From rows to edits and labels"))
    assert [codes(row[0])[0] for row in rows] == [
        name for name, dataset in catalog.datasets.items() if not dataset.is_evaluation
    ]


@pytest.mark.parametrize("fence", ENTRIES, ids=lambda fence: f"{fence.page}:{fence.line}")
def test_an_example_of_an_entry_is_an_entry(fence: Fence, tmp_path: Path) -> None:
    path = tmp_path / "datasets.yaml"
    indented = "".join(f"  {line}\n" for line in fence.body.splitlines())
    name = fence.body.partition(":")[0]
    if name == "repository_changes":  # no dataset, but a key beside them
        shipped = (CHECKOUT / "configs" / "datasets.yaml").read_text("utf-8")
        path.write_text(shipped + fence.body, "utf-8")
        assert len(load_yaml(path, Catalog).repository_changes.repositories) == 1
        return
    path.write_text(f"languages: [python]\nuse: [{name}]\ndatasets:\n{indented}", "utf-8")
    assert list(load_yaml(path, Catalog).used) == [name]


def test_the_example_of_trials_fits() -> None:
    [fence] = SETTINGS
    settings = validate(parse_yaml(fence.body, fence.page), TrajectorySettings, fence.page).instructions
    assert settings.round_trip is not None
    assert (_MOST_FAILURES, "fails eight questions one after the other" in WORDS) == (8, True)


def test_your_own_data_is_added_fetched_built_and_shown_as_the_page_types_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CHECKOUT / "configs", tmp_path / "configs")
    for name in (DATASETS_VARIABLE, MIRROR_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    fences_here = [fence for fence in fences() if fence.body in section("docs/datasets.md", "## Your own data")]
    [script] = [fence.body for fence in fences_here if fence.language == "sh"]
    done = subprocess.run(["bash", "-e"], input=script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    entry = next(fence.body for fence in fences_here if fence.language == "yaml")
    text = (tmp_path / "configs/datasets.yaml").read_text("utf-8")
    assert textwrap.indent(entry, "  ") in text
    assert "-    show(item)\n+    logger.info(item)\n" in done.stdout
    assert "edits.jsonl:3   empty_post   new is empty" in done.stdout
    # what stood there, comments too, stands there still
    before = (CHECKOUT / "configs/datasets.yaml").read_text("utf-8")
    assert text.replace(f"\n{textwrap.indent(entry, '  ')}", "", 1) == before


def test_the_reasons_of_the_division_are_the_documented_ones() -> None:
    rows = table(section("docs/datasets.md", "## Duplicates"))
    assert [codes(row[0])[0] for row in rows] == list(REASONS[1:])
    bad_input = PAGES["docs/bad-input.md"].read_text("utf-8")
    assert [reason for reason in REASONS[1:] if f"`{reason}`" not in bad_input] == []


def test_changes_of_repositories_are_as_the_page_says() -> None:
    own = section("docs/datasets.md", "## Changes of whole repositories")
    fields, reasons = (table(own[own.index(f"| {title} |") - 1 :]) for title in ("field", "reason"))
    documented = {code for row in fields for cell in row for code in codes(cell)}
    assert RepositoryChange.model_fields.keys() - documented == {"schema_version", "id"}
    assert {code for row in fields for code in codes(row[0])} <= RepositoryChange.model_fields.keys()
    assert {codes(row[0])[0] for row in reasons} == {str(reason) for reason in ChangeRejectReason}
    said = [
        "that the eight most frequent kinds make",
        f"more than {MAX_FILES_OF_COMMIT} source files, of more than {MAX_COMMIT_BYTES >> 20} MiB",
        f"a message of more than {MAX_MESSAGE_BYTES >> 10} KiB",
    ]
    assert ([sentence for sentence in said if sentence not in WORDS], MAX_MOVED_SHARE, MAX_KINDS) == ([], 1 / 2, 8)


def test_the_fields_of_a_label_task_are_the_documented_ones() -> None:
    rows = table(section("docs/datasets.md", "## Label tasks"))
    assert {field for row in rows for field in codes(row[0])} == set(OpenTask.model_fields)


def test_the_readers_are_the_documented_ones() -> None:
    rows = table(section("docs/configuration.md", "## `configs/datasets.yaml`"))
    [meaning] = [row[2] for row in rows if codes(row[0]) == ["datasets.<name>.reader"]]
    assert sorted(codes(meaning)) == sorted(get_args(ReaderName))


def test_every_stage_is_in_the_architecture() -> None:
    rows = table(section("ARCHITECTURE.md", "## The stages"))
    assert {stage for row in rows for stage in codes(row[0])} == {
        name for name, stage in STAGES.items() if stage.function
    }


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    splitting, rows = Splitting(), deduplicate._BAND_ROWS
    said = [
        f"no longer than {agentpack.MAX_PATCH_CHARACTERS:,} characters",
        f"no more than {package_releases.MAX_CHANGED_LINES} lines",
        f"and {package_releases.MAX_FUNCTION_CHARACTERS:,} characters",
        f"`splitting.near_duplicate` ({splitting.near_duplicate}) of the shingles of {fingerprints.SHINGLE_BYTES} bytes",
        f"MinHash, {fingerprints.PERMUTATIONS} numbers for a text",
        f"one of {fingerprints.PERMUTATIONS // rows} bands of {rows} numbers",
        f"shingles of {decontaminate.WIDTH} bytes",
        f"less than {decontaminate.LEAST_SHINGLES} characters",
        f"{splitting.train} train, {splitting.dev} dev and {splitting.test} test as shipped",
    ]
    assert [sentence for sentence in said if sentence not in WORDS] == []
    assert (LARGE_SHARE, "more than a thousandth" in WORDS) == (1 / 1000, True)
    assert (Decontamination().shared, "shares half (`decontamination.shared`)" in WORDS) == (1 / 2, True)
