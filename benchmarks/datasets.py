"""How fast raw rows become clean splits, in how much memory, and what a change makes anew.

Measured on rows of CommitPackFT's shape (`benchmarks.synthetic_rows`), with the stages as runs call them: records,
checksums and fsync included, raw files in place.

* `stages`: rows a second from raw files to splits, with and without the parse of both sides;
* `fetch`: a local file into the raw folder, checked and counted;
* `minhash`: signatures a second, in one process;
* `curve`: seconds and peak memory from ten thousand to a million rows, and the exponents of their growth;
* `rerun`: what is made anew when one of two datasets has one more row;
* `orders`: what moves between splits while seven datasets are added one by one, in random orders (`benchmarks.dataset_orders`).

Peers, in the same run, one after the other: the work of the stages with Hugging Face `datasets` and with `datatrove`,
two processes each, and MinHash with `datasketch` (`benchmarks/peers`, an environment of their own: `make peers`).

    python -m benchmarks.datasets [--quick] [--rows N] [--part stages ...]

The whole takes most of an hour on 2 cores, and 10 GB of disk; `--quick` two minutes.
"""

import argparse
import json
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import CHECKOUT, said, watched
from benchmarks.dataset_orders import orders
from benchmarks.dataset_stages import artifacts, prepare
from benchmarks.machine import machine
from benchmarks.synthetic_rows import row, write_rows
from graftline.core.paths import Paths
from graftline.datasets.fingerprints import signatures, strip_whitespace
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest

PEERS = Path(__file__).resolve().parent / "peers"
PEERS_PYTHON = CHECKOUT / ".venv-peers" / "bin" / "python"
STAGES = (sys.executable, "-m", "benchmarks.dataset_stages")
PARTS = ("stages", "fetch", "minhash", "curve", "rerun", "orders")
_BATCH_TEXTS = 128  # as many as the stage takes at once


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rows: int
    """Of the parts `stages` and `fetch`."""
    repetitions: int
    texts: int
    curve: tuple[int, ...]
    rerun: int
    orders: int
    rows_of_orders: int
    """Of each file, at most."""


FULL = Sizes(200_000, 3, 4000, (10_000, 30_000, 100_000, 300_000, 700_000, 1_000_000), 1000, 200, 1_000_000)
QUICK = Sizes(5000, 1, 300, (2000, 5000, 10_000), 200, 3, 25)


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="few rows, one repetition: shows that it runs, not how fast"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times; all without it")
    parser.add_argument(
        "--folder", type=Path, help="where there is room; the system's folder for such files without it"
    )
    parser.add_argument("--rows", type=int, help="of the parts `stages` and `fetch`")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    sizes = replace(sizes, rows=arguments.rows) if arguments.rows else sizes
    logging.getLogger("graftline").setLevel(logging.ERROR)  # of rows that are made to fall out
    with tempfile.TemporaryDirectory(prefix="graftline-bench-", dir=arguments.folder) as folder:
        figures, peers = measure(Path(folder), sizes, arguments.part or PARTS)
    print(json.dumps({"name": "datasets", "figures": figures, "peers": peers, "machine": machine()}))


def measure(folder: Path, sizes: Sizes, parts: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the claims, and those of the peers, by part."""
    measured: dict[str, Callable[[Path, Sizes], tuple[dict[str, Any], dict[str, Any]]]] = {
        "stages": stages,
        "fetch": fetch,
        "minhash": minhash,
        "curve": curve,
        "rerun": rerun,
        "orders": lambda of_part, sizes: (orders(of_part, sizes.orders, sizes.rows_of_orders), {}),
    }
    figures, peers = dict[str, Any](), dict[str, Any]()
    for part in parts:
        of_part = folder / part
        of_part.mkdir()
        figures[part], peers[part] = measured[part](of_part, sizes)
        shutil.rmtree(of_part)
    return figures, {part: found for part, found in peers.items() if found}


def stages(folder: Path, sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rows a second from raw files to splits, with and without the parse; all take turns."""
    source = folder / "source"
    size_bytes = written(source, sizes.rows)
    few = folder / "few"
    written(few, 500)
    runs = {"graftline": list(STAGES), **(peers_of_stages() if PEERS_PYTHON.exists() else {})}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {"parsed": [], "unparsed": []} for name in runs}
    # the first round warms up: compiled modules, and pages of libraries in memory
    for repetition in range(-1 if sizes.repetitions > 1 else 0, sizes.repetitions):
        for how, check_syntax in (("parsed", True), ("unparsed", False)):
            for name, command in runs.items():
                one = once(name, command, few if repetition < 0 else source, folder / "work", check_syntax)
                if repetition >= 0:
                    found[name][how].append(one)
    rates = {name: {how: _rates(ones, sizes.rows) for how, ones in of.items()} for name, of in found.items()}
    figures = {"rows": sizes.rows, "mean_row_bytes": round(size_bytes / sizes.rows), **rates.pop("graftline")}
    return figures, {
        name: {**of, "times_as_fast": {how: _times(figures[how], of[how]) for how in of}} for name, of in rates.items()
    }


def peers_of_stages() -> dict[str, list[str]]:
    """Return how each peer is started."""
    scripts = {"datasets": "hf_datasets.py", "datatrove": "datatrove_stages.py"}
    return {name: [str(PEERS_PYTHON), str(PEERS / script)] for name, script in scripts.items()}


def once(name: str, command: Sequence[str], source: Path, work: Path, check_syntax: bool) -> dict[str, Any]:
    """Return what one run over the files in `source` says of itself."""
    work.mkdir()
    try:
        if name != "graftline":
            return said([*command, str(source), str(work), *([] if check_syntax else ["--no-syntax"])])
        fetched(work, source, check_syntax)
        return said([*command, str(work)])
    finally:
        shutil.rmtree(work)


def _rates(ones: Sequence[Mapping[str, Any]], rows: int) -> dict[str, Any]:
    """Return the medians over repetitions."""

    def median(of: Callable[[Mapping[str, Any]], float]) -> float:
        return statistics.median(map(of, ones))

    return {
        "rows_per_s": round(rows / median(lambda one: one["seconds"])),
        "seconds": [one["seconds"] for one in ones],
        "processor_us_per_row": round(median(lambda one: one["processor_seconds"]) / rows * 1e6, 1),
        "us_per_row": {
            stage: round(median(lambda one, stage=stage: one["stages"][stage]) / rows * 1e6, 1)  # type: ignore[misc]
            for stage in ones[0]["stages"]
        },
        "counts": ones[0]["counts"],
    }


def _times(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    return {
        "by_the_clock": round(ours["rows_per_s"] / theirs["rows_per_s"], 2),
        "by_processor_time": round(theirs["processor_us_per_row"] / ours["processor_us_per_row"], 2),
    }


def fetch(folder: Path, sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how fast a local file becomes raw files that are checked, counted and on record."""
    size_bytes = written(folder / "root" / "source", sizes.rows)
    prepare(folder / "root", {"commitpackft": "source"})
    seconds = []
    for _ in range(sizes.repetitions):
        seconds.append(said([*STAGES, str(folder / "root"), "--only", "raw"])["seconds"])
        shutil.rmtree(folder / "root" / "data")
    median = statistics.median(seconds)
    return {
        "rows_per_s": round(sizes.rows / median),
        "mb_per_s": round(size_bytes / median / 1e6, 1),
        "seconds": seconds,
    }, {}


def minhash(folder: Path, sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return signatures a second, ours in batches as the stage takes them, those of the peer one by one."""
    rows = (row(number) for number in range(2 * sizes.texts))
    texts = [strip_whitespace(found["old_contents"]).lower() for found in rows if found["old_contents"]][: sizes.texts]
    path = folder / "texts"
    path.write_bytes(b"\n".join((*texts, b"")))
    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    signatures(texts[:_BATCH_TEXTS])
    for _ in range(sizes.repetitions):
        started = time.perf_counter()
        for at in range(0, len(texts), _BATCH_TEXTS):
            signatures(texts[at : at + _BATCH_TEXTS])
        ours.append(time.perf_counter() - started)
        if PEERS_PYTHON.exists():
            for name, found in said(
                [str(PEERS_PYTHON), str(PEERS / "datasketch_signatures.py"), str(path), "1"]
            ).items():
                theirs.setdefault(name, []).extend(found)
    rate = len(texts) / statistics.median(ours)
    figures = {
        "texts": len(texts),
        "mean_folded_bytes": round(sum(map(len, texts)) / len(texts)),
        "texts_per_s": round(rate),
    }
    return figures, {
        f"datasketch, {name}": {
            "texts_per_s": round(len(texts) / statistics.median(found)),
            "times_as_fast": round(rate * statistics.median(found) / len(texts), 1),
        }
        for name, found in theirs.items()
    }


def curve(folder: Path, sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return seconds and peak memory of all processes together, by number of rows."""
    points = []
    for rows in sizes.curve:
        root = folder / "root"
        written(root / "source", rows)
        prepare(root, {"commitpackft": "source"})
        said([*STAGES, str(root), "--only", "raw"])
        shutil.rmtree(root / "source")  # room for what is made of it
        one, peak_mb = watched([*STAGES, str(root)])
        disk_mb = sum(path.stat().st_size for path in (root / "data").rglob("*") if path.is_file()) / 1e6
        points.append(
            {"rows": rows, "seconds": one["seconds"], "peak_memory_mb": peak_mb, "disk_mb": round(disk_mb)}
            | {"stages": one["stages"], "kept": one["counts"]["splits"]["rows"]}
        )
        shutil.rmtree(root)
    return {
        "points": points,
        "time_exponent": exponent([(point["rows"], point["seconds"]) for point in points]),
        "memory_exponent": exponent([(point["rows"], point["peak_memory_mb"]) for point in points]),
    }, {}


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the power of x that y grows with, by least squares on logarithms."""
    x, y = np.log(np.array(points)).T
    return round(float(np.polyfit(x, y, 1)[0]), 3)


def rerun(folder: Path, sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is made anew, and why, when nothing changed and when one of two datasets has one more row."""
    write_rows(folder / "first" / "data" / "python" / "data.jsonl", sizes.rerun)
    second = folder / "second" / "data" / "python" / "data.jsonl"
    # without the parse a language is what the name of the file says
    texts = [{**row(1_000_000 + number), "new_file": f"{number}.js"} for number in range(sizes.rerun)]
    second.parent.mkdir(parents=True)
    second.write_text("".join(json.dumps(text) + "\n" for text in texts), "utf-8")
    paths = prepare(folder, {"first": "first", "second": "second"}, check_syntax=False)
    first_s, made = _made(paths)
    nothing_s, unchanged = _made(paths)
    with second.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({**row(2_000_000), "new_file": "one-more.js"}) + "\n")
    changed_s, anew = _made(paths)
    return {
        "rows": 2 * sizes.rerun,
        "first_run": {"seconds": first_s, "made": len(made)},
        "nothing_changed": {"seconds": nothing_s, "made": len(unchanged)},
        "one_row_more_in_second": {"seconds": changed_s, "made": anew},
        "left_as_they_were": len(made) - len(anew),
    }, {}


def _made(paths: Paths) -> tuple[float, dict[str, str]]:
    """Return seconds, and the artifacts that were made with the reason for each."""
    started = time.perf_counter()
    with open_lineage(paths, load_manifest(paths, "local", {"sandbox": "memory"}), "benchmark") as lineage:
        built = artifacts(lineage)
    seconds = round(time.perf_counter() - started, 3)
    return seconds, {name: one.reason for name, one in built.items() if one.is_fresh}


def written(source: Path, rows: int) -> int:
    """Write `rows` rows to the files of a source, one per process of the peers, and return their size in bytes."""
    half = rows // 2
    parts = ((0, half), (half, rows - half))
    return sum(
        write_rows(source / "data" / "python" / f"data-{number}.jsonl", count, first)
        for number, (first, count) in enumerate(parts)
    )


def fetched(root: Path, source: Path, check_syntax: bool) -> None:
    """Put the files in `source` into place as raw files of a new root."""
    prepare(root, {"commitpackft": "source"}, check_syntax)
    (root / "source").symlink_to(source)
    said([*STAGES, str(root), "--only", "raw"])


if __name__ == "__main__":
    main()
