"""Which datasets a run uses: those of the configuration, those that are named, those that a mirror holds."""

import json
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError
from graftline.datasets.catalog import Catalog
from graftline.pipeline.settings import in_use

FILES = [{"path": "*"}]


@pytest.fixture
def catalog() -> Catalog:
    """Datasets here, elsewhere, nowhere known and in a registry, of which only the first is in use."""

    def entry(reader: str, source: str | None, **more: Any) -> dict[str, Any]:
        return {"reader": reader, "url": source, "version": "1", "license": "MIT", "files": FILES, **more}

    package = {"registry": "pypi", "name": "demo", "old": "1", "new": "2"}
    datasets = {
        "here": entry("release_pairs", "data/samples"),
        "elsewhere": entry("commitpackft", "hf://datasets/demo/commits"),
        "nowhere": entry("marv", None),
        "registry": entry("package_releases", None, files=[], packages=[package]),
        "exam": entry("evaluation", "https://example.org/exam"),
    }
    return Catalog.model_validate_json(json.dumps({"languages": ["python"], "datasets": datasets, "use": ["here"]}))


@pytest.mark.parametrize(
    ("held", "named", "expected"),
    [
        pytest.param(None, None, ["here"], id="what is configured"),
        pytest.param(None, "", ["here"], id="no name is no wish"),
        pytest.param(None, "all", ["here", "elsewhere", "nowhere", "registry", "exam"], id="all there are"),
        pytest.param(None, " exam , here ", ["here", "exam"], id="by name, in the order of precedence all the same"),
        pytest.param(["elsewhere"], None, ["here", "elsewhere"], id="what the mirror holds beside what lies here"),
        pytest.param(["nowhere", "exam"], None, ["here", "nowhere", "exam"], id="a mirror knows what has no source"),
        pytest.param(["here", "registry"], None, ["here"], id="no mirror stands for what is here, nor for a registry"),
        pytest.param([], None, ["here"], id="an empty mirror"),
        pytest.param(["stranger"], None, ["here"], id="a mirror of something else too"),
        pytest.param(["elsewhere"], "exam", ["exam"], id="names go before what the mirror holds"),
    ],
)
def test_the_environment_says_which_datasets_are_used(
    catalog: Catalog, tmp_path: Path, held: list[str] | None, named: str | None, expected: list[str]
) -> None:
    environment = {} if named is None else {"GRAFTLINE_DATASETS": named}
    if held is not None:
        environment["GRAFTLINE_DATASET_MIRROR"] = str(tmp_path)
        for name in held:
            (tmp_path / name).mkdir()
    assert list(in_use(catalog, environment).used) == expected


def test_an_evaluation_is_used_but_is_no_source_of_edits(catalog: Catalog) -> None:
    found = in_use(catalog, {"GRAFTLINE_DATASETS": "here,exam"})
    assert (list(found.used), list(found.sources)) == (["here", "exam"], ["here"])


def test_a_dataset_elsewhere_that_the_mirror_lacks_is_not_used_over_it(catalog: Catalog, tmp_path: Path) -> None:
    # a site without a network runs over what its mirror holds
    used = catalog.using(("here", "elsewhere", "exam"), "use")
    (tmp_path / "exam").mkdir()
    assert list(in_use(used, {"GRAFTLINE_DATASET_MIRROR": str(tmp_path)}).used) == ["here", "exam"]


def test_a_mirror_that_leaves_nothing_to_use_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        in_use(catalog.using(("elsewhere",), "use"), {"GRAFTLINE_DATASET_MIRROR": str(tmp_path)})
    assert str(raised.value) == (
        "GRAFTLINE_DATASET_MIRROR: no dataset is named; known: elsewhere, exam, here, nowhere, registry"
    )
