"""What a run says when a dataset cannot be had as it is configured: one sentence, exit code 1, nothing stored."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.paths import Paths
from graftline.core.record import load_verified
from tests.hub_server import HubServer
from tests.unit.datasets.fixtures import commit_row

ROWS = json.dumps(commit_row(license="mit")).encode() + b"\n"
SHA256 = hashlib.sha256(ROWS).hexdigest()


class Root:
    """A root with the dataset `commits` beside the sample."""

    def __init__(self, checkout: Any) -> None:
        self.path: Path = checkout.root
        self.paths = Paths(self.path)

    def configure(self, file: Mapping[str, Any], **entry: Any) -> None:
        path = self.path / "configs" / "datasets.yaml"
        tree = json.loads(path.read_text("utf-8"))
        tree["datasets"]["commits"] = {
            **{"reader": "commitpackft", "url": "source", "version": "1", "license": "MIT"},
            **{"files": [file], **entry},
        }
        path.write_text(json.dumps({**tree, "languages": ["python"], "use": ["commits"]}), "utf-8")

    def put(self, content: bytes) -> None:
        (self.path / "source").mkdir(exist_ok=True)
        (self.path / "source" / "rows.jsonl").write_bytes(content)

    def run(self, *ports: str) -> tuple[int, str, str]:
        given = ("sandbox=memory", "teacher=memory", *ports)
        options = [word for port in given for word in ("--set", port)]
        result = CliRunner().invoke(main, ["--root", str(self.path), "run", "--json", *options])
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def root(small_checkout: Any) -> Root:
    return Root(small_checkout)


def test_a_file_that_is_not_the_pinned_one_is_refused_and_the_old_one_stays(root: Root) -> None:
    root.configure({"path": "rows.jsonl", "sha256": SHA256})
    root.put(ROWS)
    assert root.run()[0] == 0
    before = load_verified(root.paths.raw("commits"), "raw")
    root.configure({"path": "rows.jsonl", "sha256": "0" * 64})

    found = hashlib.sha256(ROWS).hexdigest()
    assert root.run() == (
        1,
        "",
        f"error: {root.path}/source/rows.jsonl: sha256 is {found}, but {'0' * 64} is expected; restore the file at its"
        " source, or pin the new version below configs/ if you mean to change it\n",
    )
    assert load_verified(root.paths.raw("commits"), "raw") == before


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        # names of all kinds: tests/unit/core/test_root_and_names.py
        ("data/../../rows.jsonl", "must stay inside its folder"),
        ("/etc/passwd", "must be relative and use forward slashes"),
        ("rows\u0000.jsonl", "holds a control character or a reserved one"),
        ("data/*/../../x", "must stay inside its folder"),
    ],
)
def test_a_configured_name_that_leads_elsewhere_is_refused(root: Root, path: str, reason: str) -> None:
    root.configure({"path": path})
    root.put(ROWS)
    code, output, said = root.run()
    where = f"error: {root.path}/configs/datasets.yaml: datasets.commits.files.0: "
    assert (code, output, said.startswith(where), reason in said) == (1, "", True, True)
    assert said.count("\n") == 1
    assert not (root.path / "data" / "raw").exists()


@pytest.mark.parametrize("url", ["/etc", "source/../../x"])
def test_a_source_outside_of_the_root_is_refused(root: Root, url: str) -> None:
    root.configure({"path": "rows.jsonl"}, url=url)
    code, output, said = root.run()
    assert (code, output, said.startswith(f"error: file name {url!r}: must "), said.count("\n")) == (1, "", True, 1)


@pytest.mark.parametrize("name", ["data/x\\..\\..\\rows.jsonl", "data/row\ns.jsonl"])
def test_a_name_that_a_home_tells_and_that_leads_elsewhere_is_refused(root: Root, name: str) -> None:
    with HubServer() as server:
        commit = server.put("demo/commits", {"data/good.jsonl": ROWS, name: ROWS})
        root.configure({"path": "data/*.jsonl"}, url="hf://datasets/demo/commits", version=commit)
        code, output, said = root.run(f"dataset_hub.huggingface={server.url}")
    assert (code, output, said.startswith(f"error: file name {name!r}: "), said.count("\n")) == (1, "", True, 1)
    assert not root.paths.raw("commits").exists()


def test_a_mirror_that_is_not_there_is_told_before_anything_is_done(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(tmp_path / "nowhere"))
    assert root.run() == (
        1,
        "",
        f"error: GRAFTLINE_DATASET_MIRROR: [Errno 2] No such file or directory: '{tmp_path / 'nowhere'}'; expected a"
        " folder, or a URL that fsspec knows, with a folder per dataset in it\n",
    )
    assert not (root.path / "data" / "raw").exists()


def test_a_mirror_of_an_unknown_kind_is_told(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", "floppy://a")
    code, output, said = root.run()
    where = "error: GRAFTLINE_DATASET_MIRROR: "
    assert (code, output, said.count("\n"), said.startswith(where), "floppy" in said) == (1, "", 1, True, True)


def test_a_mirror_without_a_file_of_a_dataset_says_which(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror" / "commits").mkdir(parents=True)
    (tmp_path / "mirror" / "commits" / "other.jsonl").write_bytes(ROWS)
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(tmp_path / "mirror"))
    root.configure({"path": "rows.jsonl"}, url="hf://datasets/demo/commits")
    assert root.run() == (
        1,
        "",
        f"error: {tmp_path}/mirror/commits/rows.jsonl: no such file; mend `files` of the dataset; found: other.jsonl\n",
    )


@pytest.mark.parametrize(("named", "unknown"), [("comits", "comits"), ("commits,", ""), ("release_pairs,ALL", "ALL")])
def test_an_unknown_name_among_the_datasets_lists_the_known_ones(
    root: Root, monkeypatch: pytest.MonkeyPatch, named: str, unknown: str
) -> None:
    root.configure({"path": "rows.jsonl"})
    monkeypatch.setenv("GRAFTLINE_DATASETS", named)
    message = f"dataset {unknown!r} is unknown; known: commits, release_pairs"
    assert root.run() == (1, "", f"error: GRAFTLINE_DATASETS: {message}\n")


def test_a_dataset_whose_source_nobody_knows_says_how_to_state_it(root: Root) -> None:
    root.configure({"path": "rows.jsonl"}, url=None)
    assert root.run() == (
        1,
        "",
        "error: dataset 'commits': nobody knows its source; state `url` in configs/datasets.yaml,"
        " or set GRAFTLINE_DATASET_MIRROR\n",
    )


def test_a_revision_that_is_no_commit_is_refused(root: Root) -> None:
    root.configure({"path": "rows.jsonl"}, url="hf://datasets/demo/commits", version="main")
    code, output, said = root.run("dataset_hub.huggingface=http://127.0.0.1:1")
    assert (code, output, said.count("\n")) == (1, "", 1)
    assert said.startswith("error: dataset 'commits': version 'main' is not a commit")


def test_what_was_made_before_a_refusal_stays_and_the_next_run_goes_on_from_there(root: Root) -> None:
    root.configure({"path": "rows.jsonl"})
    code, _, said = root.run()
    assert (code, said) == (
        1,
        f"error: {root.path}/source/rows.jsonl: no such file; mend `files` of the dataset; found: nothing\n",
    )
    root.put(ROWS)
    code, _, said = root.run()
    assert (code, said.splitlines()[0]) == (0, "raw commits: made (not there yet)")
