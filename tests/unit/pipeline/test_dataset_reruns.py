"""What a second run makes again when one of several datasets changed, or the code of one reader."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import graftline
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.datasets.readers import ReaderName
from tests.lineages import Run
from tests.unit.datasets.fixtures import commit_row

TEXTS = {
    "python": ("py", "def {name}(a):\n    return old(a, '{name}')\n"),
    "java": ("java", "int {name}(int a) {{\n    return old(a, {name});\n}}\n"),
}


def commits(dataset: str, language: str, count: int = 4) -> list[dict[str, Any]]:
    """Return rows of CommitPackFT, each of a repository of its own."""
    ending, text = TEXTS[language]
    rows = []
    for number in range(count):
        pre = text.format(name=f"{dataset}_{language}_{number}")
        path = f"{dataset}{number}.{ending}"
        rows.append(
            commit_row(
                commit=f"{dataset}{language}{number}",
                old_file=path,
                new_file=path,
                old_contents=pre,
                new_contents=pre.replace("old(", "new("),
                message=f"Call new in {dataset} {language} {number}",
                lang=language,
                license="mit",
                repos=f"{dataset}/{language}{number}",
            )
        )
    return rows


class TwoDatasets:
    """A root with two datasets of commits, each with a file for Python and one for Java."""

    def __init__(self, checkout: Any) -> None:
        self.root: Path = checkout.root
        self.paths = Paths(self.root)
        files = [{"path": f"{language}.jsonl"} for language in TEXTS]
        entry = {"reader": "commitpackft", "version": "1", "license": "MIT", "files": files}
        datasets = {name: {**entry, "url": f"data/samples/{name}"} for name in ("first", "second")}
        catalog = {"languages": ["java", "python"], "datasets": datasets, "use": ["first", "second"]}
        (self.root / "configs" / "datasets.yaml").write_text(
            json.dumps({**catalog, "synthesis": {"per_partition": 0}}), "utf-8"
        )
        for name in datasets:
            for language in TEXTS:
                self.put(name, language, commits(name, language))

    def put(self, dataset: str, language: str, rows: list[dict[str, Any]]) -> None:
        folder = self.root / "data" / "samples" / dataset
        folder.mkdir(exist_ok=True)
        (folder / f"{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture
def two(small_checkout: Any) -> TwoDatasets:
    return TwoDatasets(small_checkout)


def test_a_changed_language_of_one_dataset_remakes_that_language_alone(two: TwoDatasets, run: Run) -> None:
    # 2 stages of 2 datasets, 3 over all of them, 5 stages in 6 partitions
    assert len(run(two.root)) == 4 + 3 + 5 * 6
    two.put("second", "python", commits("second", "python", 5))
    reasons = {name: reason for name, reason in run(two.root).items() if reason}
    over_all = {
        "raw second": "input source changed",
        "normalized second": "input raw changed",
        "division all": "input second changed",
        "repository_changes all": "input division, input normalized/second changed",
    }
    assert {name: reasons.pop(name) for name in over_all} == over_all
    # every split of that language, for which is whose is decided for all at once; and nothing of the other
    partitions = {"/".join(name.partition(" ")[2].split("/")[:2]) for name in reasons}
    assert partitions == {"python/train", "python/dev", "python/test"}
    assert {reason for name, reason in reasons.items() if name.startswith("splits")} == {
        "input division, input normalized/second changed"
    }


def test_rows_that_are_dropped_anyway_change_no_split(two: TwoDatasets, run: Run) -> None:
    run(two.root)
    refused = {**commits("second", "python", 6)[5], "license": "agpl-3.0"}
    two.put("second", "python", [*commits("second", "python"), refused])
    reasons = {name: reason for name, reason in run(two.root).items() if reason}
    assert reasons == {
        "raw second": "input source changed",
        "normalized second": "input raw changed",
        "division all": "input second changed",
    }
    assert load_record(two.paths.normalized("second")).counts["dropped.license"] == 1


def test_a_dataset_that_is_no_longer_used_is_taken_out_of_the_splits(
    two: TwoDatasets, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(two.root)
    monkeypatch.setenv("GRAFTLINE_DATASETS", "first")
    reasons = {name: reason for name, reason in run(two.root).items() if reason}
    # what of the order of the datasets, and of the rows of both, each stage hangs on
    assert reasons["division all"] == "input second, config precedence changed"
    assert {reason for name, reason in reasons.items() if name.startswith("splits")} == {
        "input division, input normalized/second changed"
    }
    assert [name for name in reasons if name.startswith(("raw", "normalized"))] == []
    text = "".join(path.read_text("utf-8") for path in (two.root / "data" / "processed").rglob("edits.jsonl"))
    assert ('"dataset":"first"' in text, '"dataset":"second"' in text) == (True, False)


def test_two_datasets_that_change_places_are_divided_anew(
    two: TwoDatasets, run: Run, reconfigure: Callable[..., None]
) -> None:
    # the same edit in both: which of them is kept is a matter of their order
    two.put("second", "python", commits("first", "python"))
    run(two.root)
    path = two.root / "configs" / "datasets.yaml"
    tree = json.loads(path.read_text("utf-8"))
    tree["datasets"] = dict(reversed(tree["datasets"].items()))
    path.write_text(json.dumps(tree), "utf-8")
    reasons = {name: reason for name, reason in run(two.root).items() if reason}
    assert reasons["division all"] == "config precedence changed"
    assert [name for name in reasons if name.startswith(("raw", "normalized"))] == []
    text = "".join(
        path.read_text("utf-8") for path in (two.root / "data" / "processed" / "python").rglob("edits.jsonl")
    )
    assert ('"dataset":"first"' in text, '"dataset":"second"' in text) == (False, True)


def test_changed_code_of_one_dataset_leaves_the_others_and_with_equal_output_all_that_follows(
    two: TwoDatasets, run: Run
) -> None:
    run(two.root)
    for folder in (two.paths.raw("second"), two.paths.normalized("second")):
        path = folder / "_meta.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "code_version": "before"}), "utf-8")
    reasons = {name: reason for name, reason in run(two.root).items() if reason}
    assert reasons == {"raw second": "code changed", "normalized second": "code changed"}


_READERS = tuple(reader for reader in get_args(ReaderName) if reader != "evaluation")
_CHANGED = {
    **{f"datasets/readers/{reader}": {f"raw {reader}", f"normalized {reader}"} for reader in _READERS},
    # what the one makes are rows that the other reads
    "datasets/readers/release_pairs": {
        *("raw release_pairs", "normalized release_pairs"),
        *("raw package_releases", "normalized package_releases"),
    },
    "datasets/readers/commitpackft": {
        *("raw commitpackft", "normalized commitpackft"),
        *("raw editpackft", "normalized editpackft"),
    },
    "datasets/deduplicate": {"division", "splits"},
    "rollouts/exports/parquet": {"trajectories"},
}
_PROGRAM = """
import functools, json, sys
from pathlib import Path
import graftline
from graftline.core import hashing
from graftline.pipeline.settings import stage_code

hashing._imports = functools.cache(hashing._imports)  # by text; they are looked up a thousand times
readers, modules = map(json.loads, sys.argv[1:])

def codes():
    for remembered in (hashing.code_version, hashing._source):
        remembered.cache_clear()
    of_datasets = {f"{stage} {reader}": stage_code(stage, reader) for stage in ("raw", "normalized") for reader in readers}
    others = ("division", "splits", "label_tasks", "tasks", "trajectories")
    return {**of_datasets, **{stage: stage_code(stage) for stage in others}}

before, changed = codes(), {}
for module in modules:
    path = Path(graftline.__file__).parent / f"{module}.py"
    text = path.read_text("utf-8")
    path.write_text(text + "\\n# changed\\n", "utf-8")
    after = codes()
    changed[module] = sorted(name for name in before if before[name] != after[name])
    path.write_text(text, "utf-8")
print(json.dumps(changed))
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The stages whose code is another one after something was added to a module, in a copy of the library."""
    folder = tmp_path_factory.mktemp("library")
    shutil.copytree(Path(graftline.__file__).parent, folder / "graftline")
    command = [sys.executable, "-c", _PROGRAM, json.dumps(_READERS), json.dumps(list(_CHANGED))]
    done = subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("module", _CHANGED)
def test_changed_code_is_that_of_the_stages_that_use_it(changed: dict[str, list[str]], module: str) -> None:
    assert set(changed[module]) == _CHANGED[module]
