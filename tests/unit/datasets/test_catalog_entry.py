"""`graftline data add`: what it writes into `configs/datasets.yaml`, and what it refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.core.config import load_yaml
from graftline.datasets.catalog import Catalog

CATALOG = """# ours
languages: [python]
use: [first]
datasets:
    # the first one
    first:
        reader: release_pairs
        url: data
        version: "1"
        license: MIT
        files: [{path: a.jsonl}]
# what a row must be
cleaning:
  max_pre_tokens: 10
"""
ROW = {"pre": "a", "post": "b", "repo": "us/shop", "licence": "MIT"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "configs/datasets.yaml": CATALOG,
        "data/mine/rows.jsonl": json.dumps({"note": "no text"}) + "\n" + json.dumps(ROW) + "\n",
        "data/mine/deep/more.jsonl": json.dumps(ROW) + "\n",
        "data/bare.jsonl": json.dumps({"x": "a", "y": "b"}) + "\n",
        "data/none.jsonl": "[1]\n",
        "data/empty/notes.txt": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--root", ".", "data", "add", *arguments])


def test_an_entry_stands_after_those_there_are_and_nothing_else_changes(root: Path) -> None:
    assert add("mine", "data/mine").exit_code == 0
    text = (root / "configs/datasets.yaml").read_text("utf-8")
    head, tail = CATALOG.split("# what a row must be\n")
    assert text.startswith(f"{head}\n    mine:\n      reader: edits\n")
    assert text.endswith(f"\n# what a row must be\n{tail}")
    dataset = load_yaml(root / "configs/datasets.yaml", Catalog).datasets["mine"]
    assert dataset.model_dump(exclude_defaults=True) == {
        **{"reader": "edits", "url": "data/mine", "version": "1", "license": "NOASSERTION"},
        "files": ({"path": "deep/more.jsonl"}, {"path": "rows.jsonl"}),
        "fields": {"before": "pre", "after": "post", "group": "repo", "license": "licence"},
    }


@pytest.mark.parametrize(
    ("arguments", "entry"),
    [
        # a folder beside the root, a file in it
        (["{outside}/o x/rows.jsonl"], {"url": "file://{outside}/o x", "files": [{"path": "rows.jsonl"}]}),
        (["data/bare.jsonl", "--field", "before=x", "--field", "after=y"], {"fields": {"before": "x", "after": "y"}}),
        (
            ["us/edits", "--file", "*.parquet", "--field", "before=x", "--field", "after=y"],
            {"url": "hf://datasets/us/edits", "version": "main", "follow": True, "files": [{"path": "*.parquet"}]},
        ),
        (
            ["https://x.test/a/b.jsonl.gz", "--reader", "commitpackft", "--version", "2"],
            {"reader": "commitpackft", "url": "https://x.test/a", "version": "2", "files": [{"path": "b.jsonl.gz"}]},
        ),
    ],
)
def test_what_is_added_is_what_was_said(
    root: Path, tmp_path_factory: pytest.TempPathFactory, arguments: list[str], entry: dict[str, object]
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "o x").mkdir()
    (outside / "o x" / "rows.jsonl").write_text(json.dumps(ROW), "utf-8")
    result = add("mine", *(word.format(outside=outside) for word in arguments), "--license", "apache-2.0", "--json")
    written = json.loads(result.stdout)
    expected = json.loads(json.dumps(entry).replace("{outside}", str(outside)))
    assert {key: written[key] for key in ("license", *expected)} == {"license": "Apache-2.0", **expected}
    assert result.stderr == ""


def test_a_license_that_is_not_allowed_is_said_loudly(root: Path) -> None:
    arguments = ["mine", "data/bare.jsonl", "--field", "before=x", "--field", "after=y", "--license", "GPL-3.0"]
    result = add(*arguments)
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: the license of mine is GPL-3.0-only, which `cleaning.licenses` does not ")
    assert result.stderr.endswith(": its rows will be left out\n")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["first", "data/mine"], "dataset 'first' is there already; known in configs/datasets.yaml: first"),
        (["Mine", "data/mine"], "'Mine' is no name of a dataset; expected lower-case letters, digits and _"),
        (["mine", "data/nowhere"], "data/nowhere: is no folder or file here; of a dataset of the hub, name the files"),
        (["mine", "./nowhere"], "./nowhere: is no folder or file, nor an address, nor a name of the hub"),
        (["mine", "s3://us/edits"], "s3://us/edits: cannot be looked at; name the files with --file"),
        (["mine", "data/empty"], "data/empty: holds no file that ends in .jsonl or .jsonl.gz or .parquet"),
        (["mine", "data/mine", "--file", "b.jsonl"], "data/mine: has no file b.jsonl"),
        (["mine", "data/none.jsonl"], "none of its first 100 rows is an object; expected JSON lines or Parquet"),
        (
            ["mine", "data/bare.jsonl"],
            "nothing says which column is `before`; name it, as --field before=COLUMN; the rows",
        ),
        (["mine", "data/mine", "--field", "old=x"], "--field old: is no part of a row; known: before, after, "),
        (
            ["mine", "data/mine", "--field", "before=x"],
            "--field before=x: the rows have no such column; known: pre, post",
        ),
        (["mine", "data/mine", "--field", "license="], "--field 'license=': expected PART=COLUMN, as before=old_code"),
        (["mine", "data/mine", "--language", "rust"], "dataset 'mine': language: input should be 'python', "),
        (["mine", "data/mine", "--reader", "rows"], "dataset 'mine': reader: input should be 'agentpack', "),
        (
            ["mine", "data/bare.jsonl", "--field", "before=x", "--field", "after=y"],
            "data/bare.jsonl: nothing says under which license its rows are, and rows without an allowed license are never",
        ),
    ],
)
def test_what_cannot_be_added_leaves_the_file_as_it_is(root: Path, arguments: list[str], fault: str) -> None:
    result = add(*arguments)
    assert fault in result.stderr
    # a field that cannot be read at all is wrong usage
    exit_code = 2 if "expected PART=COLUMN" in fault else 1
    assert (result.exit_code, (root / "configs/datasets.yaml").read_text("utf-8")) == (exit_code, CATALOG)


def test_a_catalog_that_cannot_be_added_to_is_left_alone_with_what_to_add(root: Path) -> None:
    text = CATALOG.partition("datasets:")[0] + (
        "datasets: {first: {reader: release_pairs, url: d, version: '1', license: MIT, files: [{path: a.jsonl}]}}\n"
    )
    (root / "configs/datasets.yaml").write_text(text, "utf-8")
    result = add("mine", "data/mine")
    assert (result.exit_code, (root / "configs/datasets.yaml").read_text("utf-8")) == (1, text)
    assert (
        "an entry cannot be added to what `datasets` holds as it is written; add this to it:\nmine:\n  reader:"
        in result.stderr
    )
