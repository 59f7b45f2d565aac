"""Runs the stages from raw files in place to splits over one root folder, and says how long each took: one line of JSON.

A process of its own, so that its memory and processor time, workers included, can be told from those of the benchmark.

    python -m benchmarks.dataset_stages ROOT [--only raw]
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graftline.astgrep.binding import LANGUAGES
from graftline.core.build import Built
from graftline.core.paths import Paths
from graftline.datasets.splits import SPLITS
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.stages.table import make

CHECKOUT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run the stages, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", choices=("raw",), help="fetch the raw files, and no more")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.root, only_raw=arguments.only == "raw")))


_FILES = {"commitpackft": "data/python/*.jsonl", "agentpack": "train/*.jsonl.gz"}


def prepare(
    root: Path, sources: Mapping[str, str], check_syntax: bool = True, reader: str = "commitpackft", keep: str = "all"
) -> Paths:
    """Return the paths of a root whose datasets are the files in `sources`, by name, all of the shape that `reader` reads."""
    manifests = root / "configs" / "manifests"
    manifests.mkdir(parents=True, exist_ok=True)
    for source in (CHECKOUT / "configs" / "manifests").glob("*.yaml"):
        (manifests / source.name).write_text(source.read_text("utf-8"), "utf-8")
    datasets = {
        name: {
            "reader": reader,
            "url": source,
            "version": "1",
            "license": "MIT",
            "keep": keep,
            "files": [{"path": _FILES[reader]}],
        }
        for name, source in sources.items()
    }
    catalog = {
        "languages": list(LANGUAGES),
        "use": list(datasets),
        "datasets": datasets,
        "cleaning": {"check_syntax": check_syntax},
    }
    # JSON is YAML
    (root / "configs" / "datasets.yaml").write_text(json.dumps(catalog), "utf-8")
    (root / "configs" / "trajectories.yaml").write_text("{}", "utf-8")
    return Paths(root)


def run(root: Path, only_raw: bool = False) -> dict[str, Any]:
    """Return seconds, processor seconds and counts of the stages after `raw`, or of `raw` alone."""
    paths = Paths(root)
    with open_lineage(paths, load_manifest(paths, "local", {"sandbox": "memory"}), "benchmark") as lineage:
        names, before = list(lineage.catalog.sources), processor_s()
        if only_raw:
            seconds_of_raw, fetched = timed(lambda: [make("raw", lineage, name) for name in names])
            used_s = round(processor_s() - before, 3)
            return {"seconds": seconds_of_raw, "processor_seconds": used_s, "counts": {"raw": totals(fetched)}}
        stages: dict[str, Callable[[], list[Built]]] = {
            "normalized": lambda: [make("normalized", lineage, name) for name in names],
            "division": lambda: [make("division", lineage)],
            "splits": lambda: [make("splits", lineage, language, split) for language, split in lineage.partitions()],
        }
        seconds, used, counts = dict[str, float](), dict[str, float](), dict[str, dict[str, int]]()
        for stage, bring in stages.items():
            since = processor_s()
            seconds[stage], built = timed(bring)
            used[stage] = round(processor_s() - since, 3)
            counts[stage] = totals(built)
        return {
            "seconds": round(sum(seconds.values()), 3),
            "processor_seconds": round(processor_s() - before, 3),
            "stages": seconds,
            "processor_seconds_of_stages": used,
            "counts": counts,
        }


def artifacts(lineage: Lineage) -> dict[str, Built]:
    """Return every artifact up to the splits, brought up to date, by name."""
    built = {}
    for name in lineage.catalog.sources:
        built[f"raw/{name}"] = make("raw", lineage, name)
        built[f"normalized/{name}"] = make("normalized", lineage, name)
    built["division"] = make("division", lineage)
    for language in lineage.catalog.languages:
        for split in SPLITS:
            built[f"splits/{language}/{split}"] = make("splits", lineage, language, split)
    return built


def timed(make: Callable[[], list[Built]]) -> tuple[float, list[Built]]:
    """Return the seconds that `make` takes, and what it returns."""
    started = time.perf_counter()
    made = make()
    return round(time.perf_counter() - started, 3), made


def totals(built: list[Built]) -> dict[str, int]:
    """Return the sums of the counts."""
    sums: dict[str, int] = {}
    for one in built:
        for name, count in one.record.counts.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def processor_s() -> float:
    """Return the processor seconds of this process and of those it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
