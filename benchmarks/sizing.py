"""What large amounts of data need, from rates that are measured here: the table of `docs/sizing.md`.

Four short measurements, in processor seconds, which a busy machine hardly changes, and in bytes on disk:

* `edits`: rows in the shape of AgentPack, read and cut down to what can be used, to splits; at two sizes, for memory that grows
  and memory that does not;
* `attempts`: tasks to attempts of the induction teacher, and these to Parquet, on a part of the shipped sample;
* `rollouts`: the deployment `refactoring` evaluated through the service, a jail for each rollout;
* `database`: instances and rollouts in PostgreSQL, or in SQLite where there is no server.

A language model is not measured: the tokens it is asked with by step are counted on real tasks, what it answers is at most
what the prompt allows, and `--tokens-per-s` says how many an actor writes.

    python -m benchmarks.sizing [--quick] [--table] [--into docs/sizing.md] [--tokens-per-s 1000]
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from benchmarks.commands import watched
from benchmarks.dataset_stages import prepare, processor_s
from benchmarks.lineage import CHECKOUT, prepared
from benchmarks.machine import machine
from benchmarks.synthetic_rows import write_agent_rows
from graftline.core.paths import Paths
from graftline.core.record import write_atomically
from graftline.core.tokens import count_tokens
from graftline.datasets.splits import SPLITS
from graftline.harbor.service.database import Database
from graftline.pipeline.exports import read_stored_attempts
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.stages.evaluation import evaluation
from graftline.pipeline.stages.harbor_deployment import harbor_deployment, instance_batch
from graftline.pipeline.stages.table import make
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import load_prompt
from tests.harbor_parts import deployed, service, until
from tests.postgres_server import new_database, postgres_server

CORES = (2, 8)
"""More processes than 8 are started by no stage on its own (`graftline.core.processes`)."""
ROWS, ATTEMPTS, INSTANCES = 1_300_000, 100_000, 10_000
FETCHED_GB = 62.9
"""Of AgentPack's 19 files, compressed: far longer patches than those of the rows here, which are read and left out."""
ACTORS = 3
MARK = "<!-- measured -->"
_PROMPT = "large"
_DEPLOYMENT = "refactoring"
_LANGUAGE = "python"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rows: int
    """Raw rows of the smaller of two runs; the other has twice as many."""
    pairs: int
    """Rows of the sample, of each language."""
    instances: int
    rollouts: int


FULL = Sizes(60_000, 100, 5_000, 500)
QUICK = Sizes(300, 9, 100, 10)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print one line of JSON, or the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything: shows that it runs, not how fast")
    parser.add_argument("--table", action="store_true", help="prints the table of docs/sizing.md instead")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="writes the table between the marks of this page")
    parser.add_argument(
        "--tokens-per-s", type=float, default=1000.0, help="that one actor writes, all requests together"
    )
    asked = parser.parse_args(arguments)
    if asked.into:
        between(asked.into)  # before anything is measured
    figures = measure(QUICK if asked.quick else FULL)
    if asked.into:
        put(written(figures, asked.tokens_per_s, machine()), asked.into)
    if asked.table:
        print(written(figures, asked.tokens_per_s, machine()), end="")
    else:
        print(json.dumps({"name": "sizing", "figures": figures, "peers": {}, "machine": machine()}))


def measure(sizes: Sizes) -> dict[str, Any]:
    """Return the rates."""
    with tempfile.TemporaryDirectory(prefix="graftline-sizing-") as name:
        folder = Path(name)
        return {
            "edits": edits(sizes, folder / "edits"),
            **attempts_and_rollouts(sizes, folder / "root"),
            "database": database(sizes, folder / "database"),
        }


def edits(sizes: Sizes, folder: Path) -> dict[str, float]:
    """Measure rows at their source to splits."""
    seen = []
    for rows in (sizes.rows, 2 * sizes.rows):
        root = folder / f"root-{rows}"
        fetched_bytes = write_agent_rows(root / "source" / "train" / "rows.jsonl.gz", rows)
        prepare(root, {"made_up": "source"}, reader="agentpack", keep="wanted")
        stages = [sys.executable, "-m", "benchmarks.dataset_stages", str(root)]
        raw, raw_mb = watched([*stages, "--only", "raw"])
        told, peak_mb = watched(stages)
        kept_bytes = sum(size_of(root / "data" / name) for name in ("raw", "division", "processed"))
        used = told["processor_seconds_of_stages"]
        seen.append((rows, max(raw_mb, peak_mb)))
    (fewer, small_mb), (more, large_mb) = seen
    grows_mb = max(0.0, (large_mb - small_mb) / (more - fewer))
    return {
        "read_s_per_gb": round(1e9 * raw["processor_seconds"] / fetched_bytes, 1),
        "cpu_ms_per_row": round(1000 * told["processor_seconds"] / more, 3),
        "alone_ms_per_row": round(1000 * (used["division"] + used["splits"]) / more, 3),
        "bytes_per_row": round(kept_bytes / more),
        "edits_per_row": round(told["counts"]["splits"]["rows"] / more, 3),
        "memory_mb": round(max(small_mb - grows_mb * fewer, 0.0)),
        "memory_mb_per_million_rows": round(1e6 * grows_mb),
        "measured": more,
    }


def attempts_and_rollouts(sizes: Sizes, root: Path) -> dict[str, dict[str, float]]:
    """Measure tasks to attempts of the induction teacher, to Parquet, and the same tasks as rollouts of a service."""
    prepared(root, sizes.pairs)
    (root / "configs" / "harbor").mkdir()
    shutil.copy(CHECKOUT / "configs" / "harbor" / f"{_DEPLOYMENT}.yaml", root / "configs" / "harbor")
    paths = Paths(root)
    with opened(paths) as lineage:
        [name] = lineage.catalog.sources
        make("raw", lineage, name)
        make("normalized", lineage, name)
        make("division", lineage)
        for split in SPLITS:
            for stage in ("splits", "synthetic_rules", "tasks"):
                make(stage, lineage, _LANGUAGE, split)
    before = processor_s()
    with opened(paths) as lineage:
        for split in SPLITS:
            make("teacher_trajectories", lineage, _LANGUAGE, split)
            make("trajectories", lineage, _LANGUAGE, split)
    used_s = processor_s() - before
    found = [attempt for split in SPLITS for attempt in read_stored_attempts(paths, split)]
    stored = size_of(paths.data / "trajectories") / len(found)
    with opened(paths) as lineage:
        harbor_deployment(lineage, _DEPLOYMENT)
        instance_batch(lineage, _DEPLOYMENT)
    before = processor_s()
    with opened(paths) as lineage:
        rows = evaluation(lineage, _DEPLOYMENT).record.counts["rows"]
    tasks = [task for split in SPLITS for task in tasks_of(paths, split)]
    return {
        "attempts": {
            "cpu_s_per_attempt": round(used_s / len(found), 3),
            "bytes_per_attempt": round(stored),
            "steps_per_attempt": round(statistics.mean(len(attempt.steps) for attempt in found), 2),
            "measured": len(found),
        },
        "rollouts": {"cpu_s_per_rollout": round((processor_s() - before) / rows, 3), "measured": rows},
        "language_model": {
            "prompt_tokens_per_step": round(statistics.mean(map(prompt_tokens, tasks))),
            "most_tokens_per_answer": load_prompt(CHECKOUT / "configs", _PROMPT).settings.sampling.max_tokens,
        },
    }


@contextmanager
def opened(paths: Paths) -> Iterator[Any]:
    """Yield the lineage of the manifest `local`; what it started has ended afterwards, so that its time is known."""
    with open_lineage(paths, load_manifest(paths, "local"), "sizing") as lineage:
        yield lineage


def tasks_of(paths: Paths, split: str) -> list[Task]:
    """Return the tasks of one split."""
    lines = (paths.partition("tasks", _LANGUAGE, split) / "tasks.jsonl").read_text("utf-8").splitlines()
    return [Task.model_validate_json(line) for line in lines]


def prompt_tokens(task: Task) -> int:
    """Return the tokens of the first question about `task`."""
    prompt = load_prompt(CHECKOUT / "configs", _PROMPT)
    return sum(count_tokens(message.content) for message in prompt.chat(task, task.before, State()))


def database(sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Measure what instances and rollouts add to the database of the service."""
    folder.mkdir()
    try:
        with postgres_server() as server:
            return {"kind": "postgresql", **grown(sizes, new_database(server))}
    except pytest.skip.Exception:
        return {"kind": "sqlite", **grown(sizes, f"sqlite:///{folder / 'harbor.sqlite'}")}


def grown(sizes: Sizes, url: str) -> dict[str, float]:
    """Return the bytes per instance and per rollout of the database at `url`."""
    with service(url, rollouts_at_once=8) as client:
        found, empty = deployed(client), stored_bytes(url)
        at = f"/api/harbor/deployments/{found}/instances/batch"
        client.post(at, json={"count": sizes.instances}).raise_for_status()
        with_instances = stored_bytes(url)
        asked = {"deployment_id": found, "seeds": list(range(sizes.rollouts)), "max_concurrent": 8}
        job = client.post("/api/eval/jobs", json=asked).json()["job_id"]
        until(client, f"/api/eval/jobs/{job}", lambda view: view["status"] == "completed")
        with_rollouts = stored_bytes(url)
    return {
        "bytes_per_instance": round((with_instances - empty) / sizes.instances),
        "bytes_per_rollout": round((with_rollouts - with_instances) / sizes.rollouts),
    }


def stored_bytes(url: str) -> int:
    """Return the size of a database."""
    with Database(url) as base, base.reading() as connection:
        query = (
            "select page_count * page_size from pragma_page_count(), pragma_page_size()"
            if base.is_sqlite
            else "select pg_database_size(current_database())"
        )
        return int(connection.execute(text(query)).scalar_one())


def size_of(folder: Path) -> int:
    """Return the bytes of all files below `folder`; a file with several names counts once."""
    found = {(status.st_dev, status.st_ino): status.st_size for status in stats_of(folder)}
    return sum(found.values())


def stats_of(folder: Path) -> Iterator[Any]:
    """Yield what the system knows of every file below `folder`."""
    return (path.stat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def written(figures: Mapping[str, Any], tokens_per_s: float, of: Mapping[str, Any]) -> str:
    """Return the tables of the page."""
    found, tried, ran, base = (figures[name] for name in ("edits", "attempts", "rollouts", "database"))
    model = figures["language_model"]
    read_h = FETCHED_GB * found["read_s_per_gb"] / 3600
    rows_h, alone_h = (read_h + ROWS * found[f"{name}_ms_per_row"] / 3.6e6 for name in ("cpu", "alone"))
    attempts_h = ATTEMPTS * tried["cpu_s_per_attempt"] / 3600
    rollouts_h = INSTANCES * ran["cpu_s_per_rollout"] / 3600
    memory_gb = (found["memory_mb"] + found["memory_mb_per_million_rows"] * ROWS / 1e6) / 1000
    steps = ATTEMPTS * tried["steps_per_attempt"]
    gpu_h = steps * model["most_tokens_per_answer"] / tokens_per_s / 3600
    lines = [
        f"Measured on {of['cores']} cores of {of['cpu']}, Python {of['python']}, with {found['measured']:,} rows,"
        f" {tried['measured']:,} attempts and {ran['measured']:,} rollouts.",
        "",
        "| rate | measured |",
        "|---|---|",
        f"| GB of compressed rows, read | {found['read_s_per_gb']:.0f} s of one core |",
        f"| row of AgentPack, from there to splits | {found['cpu_ms_per_row']:.2f} ms of one core,"
        f" {found['alone_ms_per_row']:.2f} of them in one process; {found['bytes_per_row'] / 1000:.2f} kB kept,"
        f" {found['edits_per_row']:.2f} edits |",
        f"| memory of that | {found['memory_mb']:,} MB, and {found['memory_mb_per_million_rows']:,} MB per million rows |",
        f"| attempt of `induction` | {tried['cpu_s_per_attempt']:.3f} s of one core,"
        f" {tried['bytes_per_attempt'] / 1000:.1f} kB kept, {tried['steps_per_attempt']:.2f} steps |",
        f"| rollout in a jail | {ran['cpu_s_per_rollout']:.2f} s of one core |",
        f"| instance, rollout in {base['kind']} | {base['bytes_per_instance'] / 1000:.1f} kB,"
        f" {base['bytes_per_rollout'] / 1000:.1f} kB |",
        f"| question of the prompt `{_PROMPT}` | {model['prompt_tokens_per_step']:,} tokens,"
        f" an answer of at most {model['most_tokens_per_answer']:,} |",
        "",
        f"| what | core hours | {' | '.join(f'on {cores} cores' for cores in CORES)} | kept |",
        f"|---|---|{'---|' * len(CORES)}---|",
        row_of(
            f"{ROWS / 1e6:.1f} million rows of AgentPack, {FETCHED_GB:.0f} GB",
            rows_h,
            ROWS * found["bytes_per_row"],
            alone_h,
        ),
        row_of(f"{ATTEMPTS:,} attempts of `induction`", attempts_h, ATTEMPTS * tried["bytes_per_attempt"]),
        row_of(
            f"{INSTANCES:,} instances, a rollout each",
            rollouts_h,
            INSTANCES * (base["bytes_per_instance"] + base["bytes_per_rollout"]),
        ),
        "",
        f"The rows take {memory_gb:.1f} GB of memory. {ATTEMPTS:,} attempts of a language model are {steps / 1e6:.2f} million"
        f" steps, {steps * model['prompt_tokens_per_step'] / 1e6:,.0f} million tokens read and at most"
        f" {steps * model['most_tokens_per_answer'] / 1e6:,.0f} million written: {gpu_h:,.1f} GPU hours at"
        f" {tokens_per_s:,.0f} tokens a second, {gpu_h / ACTORS:,.1f} hours with {ACTORS} actors.",
    ]
    return "\n".join(lines) + "\n"


def put(tables: str, page: Path) -> None:
    """Replace what stands between the marks of `page` by `tables`."""
    before, after = between(page)
    write_atomically(page, f"{before}{MARK}\n{tables}{MARK}{after}")


def between(page: Path) -> tuple[str, str]:
    """Return what stands before and after the marks of `page`."""
    parts = page.read_text("utf-8").split(MARK) if page.is_file() else []
    if len(parts) != 3:
        raise SystemExit(f"{page}: is no page with two lines {MARK!r} and the tables between them")
    return parts[0], parts[2]


def row_of(name: str, core_hours: float, kept_bytes: float, alone_hours: float = 0.0) -> str:
    """Return one row of the table; of the hours, so many are those of one core alone."""
    hours = " | ".join(lasting(alone_hours + (core_hours - alone_hours) / cores) for cores in CORES)
    kept = f"{kept_bytes / 1e9:,.1f} GB" if kept_bytes >= 1e9 else f"{kept_bytes / 1e6:,.0f} MB"
    return f"| {name} | {core_hours:,.1f} | {hours} | {kept} |"


def lasting(hours: float) -> str:
    """Return a duration as people say it, rounded up to a minute."""
    minutes = math.ceil(60 * hours)
    return f"{minutes} min" if minutes < 120 else f"{hours:,.1f} h"


if __name__ == "__main__":
    main()
