"""How long the whole lineage takes, and what it costs to start.

Measured from outside, as a user meets it, in a copy of the checkout's configuration and sample:

* the job `lineage` over everything, then once more with nothing changed, and `graftline status`;
* peak memory of that run and all its processes together;
* `dagster definitions validate` and `graftline --help`, best of several;
* processor seconds of loading the definitions: as shipped, with a hundred datasets more, with 500 recipes and 500 deployments;
* the largest event of a partition, in bytes, in a run over 15 of them and in one over 10,000.

Peer: the same stages called by `graftline run`, without Dagster and dbt, so that the price of orchestration shows.

    python -m benchmarks.lineage [--quick]

`--quick` takes 60 rows of each language instead of the whole sample.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from ruamel.yaml import YAML

from benchmarks.machine import machine
from graftline.core.build import Contents, Request, build

CHECKOUT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
_MADE_OF_IT = shutil.ignore_patterns("recipes", "harbor", "evaluations", "prompts", "closed_loop.yaml")
"""Configuration of what is trained, evaluated and optimized, which takes runs of its own."""


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer repetitions")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="graftline-bench-") as folder:
        figures, peers = measure(Path(folder), 60 if quick else None, 3 if quick else 7)
    print(json.dumps({"name": "lineage", "figures": figures, "peers": peers, "machine": machine()}))


def measure(folder: Path, rows_per_language: int | None, repetitions: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the claim, and those of the peer."""
    root = prepared(folder / "root", rows_per_language)
    home = folder / "home"
    home.mkdir()
    shutil.copy(CHECKOUT / "dagster.yaml", home)
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    }
    environment |= {"GRAFTLINE_ROOT": str(root), "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1"}
    # the shipped sample alone, whoever measures
    environment |= {"GRAFTLINE_DATASETS": "release_pairs"}
    materialize = run_jobs("lineage")
    first_s, peak_mb = timed(materialize, environment)
    summary = json.loads(output([str(BIN / "graftline"), "status", "--json"], environment))
    second_s, _ = timed(materialize, environment)
    again = json.loads(output([str(BIN / "graftline"), "status", "--json"], environment))
    stages = summary["stages"]
    figures = {
        "edits": stages["splits"]["counts"]["rows"],
        "synthetic_tasks": stages["synthetic_rules"]["counts"]["rows"],
        "trajectories_verified": stages["trajectories"]["counts"]["verified"],
        "verified_steps": stages["trajectories"]["counts"]["verified_steps"],
        "run_s": first_s,
        "second_run_s": second_s,
        "recomputed_by_second_run": sum(stage["made"] for stage in again["stages"].values()),
        "peak_memory_mb": peak_mb,
        "definitions_validate_s": best([str(BIN / "dagster"), "definitions", "validate"], environment, repetitions),
        "help_s": best([str(BIN / "graftline"), "--help"], environment, repetitions),
        **loading(folder, environment, repetitions),
        "event_bytes_of_15_partitions": largest_event(15),
        "event_bytes_of_10000_partitions": largest_event(1000 if rows_per_language else 10_000),
    }
    alone = prepared(folder / "alone", rows_per_language)
    peer_s, peer_mb = timed([str(BIN / "graftline"), "run"], {**environment, "GRAFTLINE_ROOT": str(alone)})
    return figures, {"graftline run": {"run_s": peer_s, "peak_memory_mb": peer_mb}}


def run_jobs(*jobs: str) -> list[str]:
    """Return the command that brings jobs up to date, as `make run` does."""
    return [sys.executable, "-m", "orchestration.run_jobs", *jobs]


def loading(folder: Path, environment: dict[str, str], repetitions: int) -> dict[str, float]:
    """Return the processor seconds of loading the definitions, by how much is configured."""
    shipped = prepared(folder / "shipped", None)
    datasets = prepared(folder / "datasets", None)
    path = datasets / "configs" / "datasets.yaml"
    catalog = YAML(typ="safe").load(path)
    names = [f"d{number:03}" for number in range(100)]
    catalog["datasets"] |= dict.fromkeys(names, catalog["datasets"]["release_pairs"])
    catalog["use"] = ["release_pairs", *names]
    path.write_text(json.dumps(catalog), "utf-8")  # JSON is YAML
    many = prepared(folder / "many", None)
    for kind, one in {"recipes": "first_adapter", "harbor": "refactoring"}.items():
        (many / "configs" / kind).mkdir()
        text = (CHECKOUT / "configs" / kind / f"{one}.yaml").read_text("utf-8")
        for number in range(500):
            named = text.replace("name: refactoring-python", f"name: r{number:03}")
            (many / "configs" / kind / f"r{number:03}.yaml").write_text(named, "utf-8")
    roots = {"definitions_cpu_s": shipped, "with_100_datasets_cpu_s": datasets, "with_500_and_500_cpu_s": many}
    own = {name: value for name, value in environment.items() if name != "GRAFTLINE_DATASETS"}
    return {name: loaded_cpu_s({**own, "GRAFTLINE_ROOT": str(root)}, repetitions) for name, root in roots.items()}


def loaded_cpu_s(environment: dict[str, str], repetitions: int) -> float:
    """Return the least processor seconds of a process that loads the definitions."""
    command = [sys.executable, "-c", "import orchestration.definitions, time; print(time.process_time())"]
    return round(min(float(output(command, environment).split()[-1]) for _ in range(repetitions)), 2)


def largest_event(partitions: int) -> int:
    """Return the bytes of the largest event of a partition, of a run over so many of them that makes nothing."""
    import dagster as dg

    from assets.outcome import materialize_each, metadata_of
    from assets.partitions import range_tags

    keys = [f"p{number}" for number in range(partitions)]
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder) / "one", Request("tasks", "one", "code", {}), lambda partial: Contents({"rows": 1}))

        @dg.asset(partitions_def=dg.StaticPartitionsDefinition(keys), backfill_policy=dg.BackfillPolicy.single_run())
        def one(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
            makes = dict.fromkeys(context.partition_keys, lambda: built)
            yield from materialize_each(context, SimpleNamespace(), makes, metadata_of)  # type: ignore[arg-type]

        with dg.DagsterInstance.local_temp(str(Path(folder))) as instance:
            assert dg.materialize([one], instance=instance, tags=range_tags(keys[0], keys[-1])).success
            found = instance.fetch_materializations(one.key, limit=partitions).records
            return max(len(dg.serialize_value(record.event_log_entry)) for record in found)


def prepared(root: Path, rows_per_language: int | None) -> Path:
    """Return a root folder with the configuration and the sample, or a part of it; without recipes and deployments
    nothing is trained or evaluated.
    """
    shutil.copytree(CHECKOUT / "configs", root / "configs", ignore=_MADE_OF_IT)
    shutil.copytree(CHECKOUT / "data" / "samples", root / "data" / "samples")
    if rows_per_language is not None:
        path = root / "data" / "samples" / "release_pairs.jsonl.gz"
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        taken: dict[str, list[bytes]] = {}
        for line in lines:
            taken.setdefault(json.loads(line)["language"], []).append(line)
        path.write_bytes(
            gzip.compress(b"".join(line for of in taken.values() for line in of[:rows_per_language]), mtime=0)
        )
        config = root / "configs" / "datasets.yaml"
        kept = [
            line for line in config.read_text("utf-8").splitlines() if "sha256" not in line and "size_bytes" not in line
        ]
        config.write_text("\n".join(kept) + "\n", "utf-8")
    return root


def timed(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds `command` takes, and the most memory it and its children have at once, in MB.

    Memory is the proportional set size, which counts a page that processes share once, sampled ten times a second.
    """
    started = time.monotonic()
    process = psutil.Popen(command, env=environment, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    finished = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not finished.wait(0.1):
            peak = max(peak, sum(map(proportional, family(process))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    took = time.monotonic() - started
    finished.set()
    watcher.join()
    if code:
        raise SystemExit(f"{' '.join(command)}: exit code {code}")
    return round(took, 2), round(peak / 1e6, 1)


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return `process` and all below it, as far as they are still there."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def proportional(process: psutil.Process) -> int:
    """Return the proportional set size of `process` in bytes; 0 when it is gone."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def best(command: Sequence[str], environment: dict[str, str], repetitions: int) -> float:
    """Return the least of the seconds `command` takes."""
    output(command, environment)  # compiles what is not compiled yet
    times = []
    for _ in range(repetitions):
        started = time.monotonic()
        output(command, environment)
        times.append(time.monotonic() - started)
    return round(min(times), 3)


def output(command: Sequence[str], environment: dict[str, str]) -> str:
    """Return the standard output of `command`."""
    done = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
