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


UNSAFE_PATHS = ("", "/rows.jsonl", "../rows.jsonl", "a/../../b", "..\\rows.jsonl", "con.jsonl", "a\n")


def with_package(name: str) -> dict[str, Any]:
    return with_dataset(reader="package_releases", packages=[{**PACKAGES[0], "name": name}], files=[])


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        (
            {**CATALOG, "splitting": {"train": 0.8, "dev": 0.1, "test": 0.2}},
            "splitting: value error, train, dev and test must add up to 1, not 1.1",
        ),
        *(({**CATALOG, "splitting": {"dev": share}}, "splitting.dev: input should be") for share in (0, 1, -0.1)),
        (
            with_dataset(reader="commits"),
            "datasets.demo.reader: input should be 'agentpack', 'commitpackft', 'editpackft', 'edits', 'evaluation', 'marv',"
            " 'oce_dataft', 'package_releases', 'recorded', 'release_pairs' or 'smellycode' (got 'commits')",
        ),
        (with_dataset(files=[]), "datasets.demo: value error, expected at least one entry in `files`"),
        *(
            (with_dataset(**changes), "`packages` belong to the reader package_releases, and to it alone")
            for changes in ({"reader": "package_releases"}, {"packages": PACKAGES})
        ),
        *(
            (with_package(name), "string should match pattern")
            for name in ("../demo", "a b", "", "-demo", "@scope/", "https://x")
        ),
        *(
            ({**CATALOG, "datasets": {name: DATASET}}, "string should match pattern")
            for name in ("Demo", "a/b", "..", "", "1st")
        ),
        (
            with_dataset(files=[{"path": "a.jsonl", "sha256": "AB" * 32}]),
            "datasets.demo.files.0.sha256: string should match pattern",
        ),
        *((with_dataset(files=[{"path": path}]), "datasets.demo.files.0") for path in UNSAFE_PATHS),
        *(
            (
                with_dataset(files=[{"path": "data/*.jsonl", **pin}]),
                "'data/*.jsonl' may stand for several files, so it cannot have one sha256 or size_bytes",
            )
            for pin in ({"sha256": "a" * 64}, {"size_bytes": 0})
        ),
        ({**CATALOG, "use": ["nowhere"]}, "use: dataset 'nowhere' is unknown; known: demo"),
    ],
)
def test_a_catalog_that_does_not_fit_is_refused(tree: Any, fault: str) -> None:
    assert fault in faults(tree)


def test_packages_need_no_files() -> None:
    catalog = validate(with_dataset(reader="package_releases", packages=PACKAGES, files=[]), Catalog, "d.yaml")
    assert [package.name for package in catalog.datasets["demo"].packages] == ["demo"]


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
