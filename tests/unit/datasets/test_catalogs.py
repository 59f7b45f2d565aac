"""The shape of `configs/datasets.yaml`."""

from typing import Any

import pytest

from graftline.core.config import validate
from graftline.core.errors import ConfigError
from graftline.datasets.catalog import Catalog, Cleaning, Dataset, Decontamination, Splitting, Synthesis

DATASET = {"reader": "release_pairs", "url": "data", "version": "1", "license": "MIT", "files": [{"path": "a.jsonl"}]}
PACKAGES = [{"registry": "pypi", "name": "demo", "old": "1.0", "new": "2.0"}]
CATALOG = {"languages": ["python"], "datasets": {"demo": DATASET}, "use": ["demo"]}


def faults(tree: Any) -> str:
    with pytest.raises(ConfigError) as error:
        validate(tree, Catalog, "datasets.yaml")
    return str(error.value)


def with_dataset(**changes: Any) -> dict[str, Any]:
    return {**CATALOG, "datasets": {"demo": {**DATASET, **changes}}}


def test_what_is_not_stated_is_the_vetted_default() -> None:
    catalog = validate(CATALOG, Catalog, "datasets.yaml")
    assert (catalog.cleaning, catalog.splitting, catalog.decontamination, catalog.synthesis) == (
        Cleaning(
            licenses=("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC"),
            max_line_bytes=2_097_152,
            max_pre_tokens=2000,
            tokenizer="characters/4",
            check_syntax=True,
        ),
        Splitting(seed=0, train=0.8, dev=0.1, test=0.1, near_duplicate=0.7),
        Decontamination(shared=0.5),
        Synthesis(seed=0, per_partition=40),
    )


def test_shares_that_do_not_add_up_are_refused() -> None:
    splitting = {"train": 0.8, "dev": 0.1, "test": 0.2}
    assert "splitting: value error, train, dev and test must add up to 1, not 1.1" in faults(
        {**CATALOG, "splitting": splitting}
    )


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_a_split_cannot_be_left_empty_by_its_share(share: float) -> None:
    assert "splitting.dev: input should be" in faults({**CATALOG, "splitting": {"dev": share}})


def test_an_unknown_reader_lists_the_known_ones() -> None:
    readers = (
        "'agentpack', 'commitpackft', 'editpackft', 'evaluation', 'marv', 'oce_dataft', 'package_releases',"
        " 'release_pairs' or 'smellycode'"
    )
    text = faults(with_dataset(reader="commits"))
    assert text == f"datasets.yaml: datasets.demo.reader: input should be {readers} (got 'commits')"


def test_a_dataset_has_at_least_one_file() -> None:
    assert "datasets.demo: value error, expected at least one entry in `files`" in faults(with_dataset(files=[]))


@pytest.mark.parametrize("changes", [{"reader": "package_releases"}, {"packages": PACKAGES}])
def test_packages_belong_to_the_reader_that_compares_them(changes: dict[str, Any]) -> None:
    assert "`packages` belong to the reader package_releases, and to it alone" in faults(with_dataset(**changes))


def test_packages_need_no_files() -> None:
    catalog = validate(with_dataset(reader="package_releases", packages=PACKAGES, files=[]), Catalog, "d.yaml")
    assert [package.name for package in catalog.datasets["demo"].packages] == ["demo"]


@pytest.mark.parametrize("name", ["../demo", "a b", "", "-demo", "@scope/", "https://x"])
def test_the_name_of_a_package_is_one_of_its_registry(name: str) -> None:
    packages = [{**PACKAGES[0], "name": name}]
    assert "string should match pattern" in faults(with_dataset(reader="package_releases", packages=packages, files=[]))


@pytest.mark.parametrize("name", ["Demo", "a/b", "..", "", "1st"])
def test_the_name_of_a_dataset_is_safe_as_a_folder(name: str) -> None:
    assert "string should match pattern" in faults({**CATALOG, "datasets": {name: DATASET}})


def test_a_pinned_checksum_is_sixty_four_small_hexadecimal_digits() -> None:
    files = [{"path": "a.jsonl", "sha256": "AB" * 32}]
    text = faults({**CATALOG, "datasets": {"demo": {**DATASET, "files": files}}})
    assert "datasets.demo.files.0.sha256: string should match pattern" in text


def test_a_dataset_is_pinned_only_where_it_says_so() -> None:
    dataset = validate(DATASET, Dataset, "datasets.yaml")
    assert [(file.size_bytes, file.sha256) for file in dataset.files] == [(None, None)]


@pytest.mark.parametrize(
    "path", ["", "/rows.jsonl", "../rows.jsonl", "a/../../b", "..\\rows.jsonl", "con.jsonl", "a\n"]
)
def test_a_file_that_would_be_written_elsewhere_is_refused(path: str) -> None:
    assert "datasets.yaml: datasets.demo.files.0" in faults(with_dataset(files=[{"path": path}]))


@pytest.mark.parametrize("pin", [{"sha256": "a" * 64}, {"size_bytes": 0}])
def test_a_pattern_cannot_be_pinned(pin: dict[str, Any]) -> None:
    assert "'data/*.jsonl' may stand for several files, so it cannot have one sha256 or size_bytes" in faults(
        with_dataset(files=[{"path": "data/*.jsonl", **pin}])
    )


def test_files_of_one_name_in_two_folders_are_two_files() -> None:
    files = [{"path": "a/rows.jsonl"}, {"path": "b/rows.jsonl"}]
    catalog = validate(with_dataset(files=files), Catalog, "datasets.yaml")
    assert [file.path for file in catalog.datasets["demo"].files] == ["a/rows.jsonl", "b/rows.jsonl"]


@pytest.mark.parametrize(
    ("repository", "license"),
    [
        ("apache/kafka", "Apache-2.0"),
        ("Apache/Kafka", "Apache-2.0"),
        ("demo/queue", "ISC"),
        ("demo/other", "MIT"),
        ("apachefans/x", "MIT"),
    ],
)
def test_the_license_of_a_repository_is_that_of_its_entry(repository: str, license: str) -> None:
    dataset = validate({**DATASET, "licenses": {"apache/*": "Apache-2.0", "demo/queue": "ISC"}}, Dataset, "d.yaml")
    assert dataset.license_of(repository) == license


TWO = {**CATALOG, "datasets": {"one": DATASET, "exam": {**DATASET, "reader": "evaluation"}, "two": DATASET}}


def test_the_datasets_in_use_keep_the_order_of_precedence() -> None:
    catalog = validate({**TWO, "use": ["two", "exam", "one"]}, Catalog, "datasets.yaml")
    assert (list(catalog.used), list(catalog.sources)) == (["one", "exam", "two"], ["one", "two"])


def test_other_datasets_can_be_put_in_use() -> None:
    catalog = validate({**TWO, "use": ["one"]}, Catalog, "datasets.yaml")
    assert list(catalog.using(("two",), "GRAFTLINE_DATASETS").used) == ["two"]
    assert list(catalog.used) == ["one"]


@pytest.mark.parametrize(
    ("names", "fault"),
    [(["one", "nowhere"], "dataset 'nowhere' is unknown"), ([], "no dataset is named")],
)
def test_using_an_unknown_dataset_lists_the_known_ones(names: list[str], fault: str) -> None:
    catalog = validate({**TWO, "use": ["one"]}, Catalog, "datasets.yaml")
    with pytest.raises(ConfigError) as error:
        catalog.using(tuple(names), "GRAFTLINE_DATASETS")
    assert str(error.value) == f"GRAFTLINE_DATASETS: {fault}; known: exam, one, two"


def test_the_catalog_uses_what_it_has() -> None:
    assert "use: dataset 'nowhere' is unknown; known: demo" in faults({**CATALOG, "use": ["nowhere"]})
