"""The license bill of an adapter: what is counted, what is asked for, what is not known, and the document of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.pipeline.provenance.license_bill import ASKS, LicenseBill, license_bill
from graftline.pipeline.provenance.license_document import cyclonedx
from graftline.pipeline.provenance.trace import Provenance, ProvenanceNode, State

RAW = {"license": "MIT", "version": "1", "url": "data/samples"}


def chat(number: int, license: str, origin: str, **other: Any) -> dict[str, Any]:
    row = {"messages": [], "task_id": f"pairs:{number}", "dataset": "pairs", "language": "python"}
    return {**row, "license": license, "origin": origin, **other}


@pytest.fixture
def bill(tmp_path: Path, checkout: Path) -> LicenseBill:
    """Of five rows: two of one package, one without a license, one made by a template, one by a model that nobody knows."""
    from graftline.core.parquet import write_parquet

    rows = [
        chat(1, "MIT", "pypi:one 1->2 a.py"),
        chat(2, "MIT", "pypi:one 2->3 a.py"),
        chat(3, "", "owner/name abc a.py"),
        chat(4, "Apache-2.0", "add_keyword on pairs:4/7, npm:@of/two 1->2 b.js", task_id="synthetic:4", dataset="synthetic_rules"),
        chat(5, "GPL-3.0-only", "debian:three 1->2 C.java", teacher="openai/unheard-of", attempt=1, step=1),
    ]  # fmt: skip
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "models.yaml").write_text(
        (checkout / "configs" / "models.yaml").read_text("utf-8"), "utf-8"
    )
    file = tmp_path / "data" / "sft.jsonl"
    groups = ["pypi:one", "pypi:one", "owner/name", "npm:@of/two", "debian:three"]
    edits = tmp_path / "data" / "processed" / "python" / "train" / "edits.parquet"
    edits.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = [{"id": f"pairs:{number}", "origin_group": group} for number, group in enumerate(groups, 1)]
    write_parquet(edits, found, {"id": "text", "origin_group": "word"})
    return license_bill(Paths(tmp_path), of(file))


def of(file: Path) -> Provenance:
    record = ArtifactRecord(
        kind="adapter", name="mine", inputs={}, config={}, code_version="0", files={}, counts={},
        written_at="2024-05-01T12:00:00+00:00",
    ).with_identity()  # fmt: skip

    def stated(key: str, kind: str, facts: Mapping[str, Any]) -> ProvenanceNode:
        return ProvenanceNode(key, kind, key, State.STATED, facts=facts)

    model = {"license": "Apache-2.0", "digest": "ab" * 32, "card": "maker/base"}
    ancestors = [stated("pairs", "raw", RAW), stated("untouched", "raw", RAW), stated("base", "base_model", model)]
    return Provenance(file.parent, record, None, {file: None}, {one.key: one for one in ancestors})


def test_rows_are_counted_by_license_package_and_dataset(bill: LicenseBill) -> None:
    assert bill.by_license() == [
        {"license": "MIT", "asks": "notice", "rows": 2, "packages": 1, "datasets": ["pairs"]},
        {"license": "Apache-2.0", "asks": "notice and changes", "rows": 1, "packages": 1, "datasets": ["pairs"]},
        {"license": "GPL-3.0-only", "asks": "share alike", "rows": 1, "packages": 1, "datasets": ["pairs"]},
        {"license": "NOASSERTION", "asks": "unknown", "rows": 1, "packages": 1, "datasets": ["pairs"]},
    ]
    assert [(one.name, one.rows, one.places) for one in bill.packages] == [
        ("pypi:one", 2, ("1->2", "2->3")),
        ("npm:@of/two", 1, ("1->2",)),
        ("debian:three", 1, ("1->2",)),
        ("owner/name", 1, ("abc",)),
    ]
    # of a dataset that no row is of, nothing is asked
    assert [(part.kind, part.name, part.license, part.rows) for part in bill.parts] == [
        ("dataset", "pairs", "MIT", 5),
        ("base model", "base", "Apache-2.0", 0),
        ("teacher", "openai/unheard-of", "NOASSERTION", 1),
    ]


def test_what_has_no_license_that_is_known_is_told_and_never_left_out(bill: LicenseBill) -> None:
    assert bill.unknown == [
        "owner/name: NOASSERTION, 1 row; find out its license, or leave its rows out",
        "teacher openai/unheard-of: license unknown; find out on what terms it is",
    ]


def test_notices_are_of_what_asks_for_them(bill: LicenseBill) -> None:
    assert bill.notices() == [
        f"base (maker/base, sha256 {'ab' * 32}): Apache-2.0",
        "pypi:one (1->2 and 1 more): MIT; copyright of its authors, whose notice, and the text of the license are there",
        "npm:@of/two (1->2): Apache-2.0; copyright of its authors, whose notice, its NOTICE file if it has one, and the text"
        " of the license are there",
        "debian:three (1->2): GPL-3.0-only; copyright of its authors, whose notice, and the text of the license are there",
    ]


def test_every_license_that_is_allowed_by_default_has_what_it_asks_for() -> None:
    from graftline.datasets.catalog import Cleaning

    assert [license for license in Cleaning().licenses if license not in ASKS] == []


def test_the_document_is_one_of_cyclonedx(bill: LicenseBill) -> None:
    pytest.importorskip("cyclonedx", reason="pip install 'graftline[bom]'")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = cyclonedx(bill)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert document["metadata"]["component"]["type"] == "machine-learning-model"
    components = {one["name"]: one for one in document["components"]}
    assert {name: one.get("purl") for name, one in components.items()} == {
        "pairs": None, "base": None, "openai/unheard-of": None, "pypi:one": "pkg:pypi/one",
        "npm:@of/two": "pkg:npm/%40of/two", "debian:three": "pkg:deb/debian/three", "owner/name": "pkg:github/owner/name",
    }  # fmt: skip
    assert components["pypi:one"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert "licenses" not in components["owner/name"]
    depends = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    assert len(depends["adapter/mine"]) == len(components)
    assert len(depends["dataset/pairs"]) == len(bill.packages)
    assert cyclonedx(bill) == text


def test_a_document_that_is_none_is_refused_by_the_schema_it_is_tested_with(bill: LicenseBill) -> None:
    pytest.importorskip("cyclonedx", reason="pip install 'graftline[bom]'")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    wrong = json.loads(cyclonedx(bill))
    wrong["components"][0]["type"] = "poem"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(wrong)) is not None
