"""The shape of `configs/datasets.yaml`."""

import re
from typing import Any

import pytest

from graftline.config import validated
from graftline.datasets.catalogue import Catalogue, Cleaning, Dataset, Splitting, Synthesis
from graftline.datasets.tokens import token_estimate
from graftline.errors import ConfigError

DATASET = {"reader": "release_pairs", "home": "data", "version": "1", "license": "MIT", "files": [{"path": "a.jsonl"}]}
CATALOGUE = {"languages": ["python"], "datasets": {"demo": DATASET}}


def faults(tree: Any) -> str:
    with pytest.raises(ConfigError) as error:
        validated(tree, Catalogue, "datasets.yaml")
    return str(error.value)


def test_what_is_not_stated_is_the_vetted_default() -> None:
    catalogue = validated(CATALOGUE, Catalogue, "datasets.yaml")
    assert (catalogue.cleaning, catalogue.splitting, catalogue.synthesis) == (
        Cleaning(
            licences=("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC"),
            max_line_bytes=2_097_152,
            max_pre_tokens=2000,
        ),
        Splitting(seed=0, train=0.8, dev=0.1, test=0.1),
        Synthesis(seed=0, per_partition=40),
    )


def test_shares_that_do_not_add_up_are_refused() -> None:
    splitting = {"train": 0.8, "dev": 0.1, "test": 0.2}
    assert "splitting: value error, train, dev and test must add up to 1, not 1.1" in faults(
        {**CATALOGUE, "splitting": splitting}
    )


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_a_split_cannot_be_left_empty_by_its_share(share: float) -> None:
    assert "splitting.dev: input should be" in faults({**CATALOGUE, "splitting": {"dev": share}})


def test_files_that_would_replace_each_other_are_refused() -> None:
    files = [{"path": "a/rows.jsonl"}, {"path": "b/rows.jsonl"}]
    assert "must differ in their last part, not only in their folder: rows.jsonl, rows.jsonl" in faults(
        {**CATALOGUE, "datasets": {"demo": {**DATASET, "files": files}}}
    )


def test_an_unknown_reader_lists_the_known_ones() -> None:
    found = faults({**CATALOGUE, "datasets": {"demo": {**DATASET, "reader": "commits"}}})
    assert found == "datasets.yaml: datasets.demo.reader: input should be 'release_pairs' (got 'commits')"


def test_a_dataset_has_at_least_one_file() -> None:
    found = faults({**CATALOGUE, "datasets": {"demo": {**DATASET, "files": []}}})
    assert re.match(r"datasets.yaml: datasets.demo.files: tuple should have at least 1 item", found)


@pytest.mark.parametrize("name", ["Demo", "a/b", "..", "", "1st"])
def test_the_name_of_a_dataset_is_safe_as_a_folder(name: str) -> None:
    assert "string should match pattern" in faults({**CATALOGUE, "datasets": {name: DATASET}})


def test_a_pinned_checksum_is_sixty_four_small_hexadecimal_digits() -> None:
    files = [{"path": "a.jsonl", "sha256": "AB" * 32}]
    found = faults({**CATALOGUE, "datasets": {"demo": {**DATASET, "files": files}}})
    assert "datasets.demo.files.0.sha256: string should match pattern" in found


def test_a_dataset_is_pinned_only_where_it_says_so() -> None:
    dataset = validated(DATASET, Dataset, "datasets.yaml")
    assert [(file.size_bytes, file.sha256) for file in dataset.files] == [(None, None)]


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("äöüß", 1)])
def test_four_characters_are_estimated_as_one_token(text: str, tokens: int) -> None:
    assert token_estimate(text) == tokens


@pytest.mark.parametrize("path", ["", "rows.csv", "rows.jsonl.zst", ".rows.jsonl", "a/.rows.jsonl", "..\\rows.jsonl"])
def test_a_file_that_no_reader_would_look_at_is_refused(path: str) -> None:
    found = faults({**CATALOGUE, "datasets": {"demo": {**DATASET, "files": [{"path": path}]}}})
    assert "datasets.demo.files.0.path: string should match pattern" in found
