"""The work of the stages, with Hugging Face `datasets`: one batched map in two processes, then columns and `select`.

    .venv-peers/bin/python benchmarks/peers/hf_datasets.py SOURCE TARGET [--no-syntax]

SOURCE holds the raw files of JSON lines; TARGET gets `<split>.jsonl` and `<split>.parquet`. Prints one line of JSON.
Filters are part of the map: a batch comes back shorter, which saves the pass over the table that `filter` takes.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from clock import Clock, timed
from datasets import Features, List, Value, load_dataset
from edit_rules import BAND_ROWS, BANDS, FIELDS, divided, near_pairs, refined, signature

PROCESSES = 2
BATCH_ROWS = 1000
RAW = Features({field: Value("string") for field in FIELDS})
REFINED = Features(
    {
        **{name: Value("string") for name in ("id", "instruction", "pre", "post", "language")},
        "tags": List(Value("string")),
        **{name: Value("string") for name in ("license", "group")},
        "aliases": List(Value("string")),
        **{name: Value("string") for name in ("commit", "path", "origin")},
        **{name: Value("int64") for name in ("pre_tokens", "post_tokens")},
        **{name: Value("int64") for name in ("asked_key", "change_key", "pre_key", "done_key")},
        "link_keys": List(Value("int64")),
        "signature": Value("binary"),
        "reason": Value("string"),
    }
)
KEYS = ("asked_key", "change_key", "pre_key", "done_key", "link_keys", "signature", "reason")


def main() -> None:
    """Do the work, and print one line of JSON."""
    datasets.disable_progress_bars()
    timed(__doc__, work)


def work(source: Path, target: Path, cache: Path, check_syntax: bool, clock: Clock) -> dict[str, int]:
    """Write the splits, and return how many rows there were, are kept and fell out."""
    files = sorted(map(str, source.rglob("*.jsonl")))
    processes = min(PROCESSES, len(files))
    raw = load_dataset("json", data_files=files, split="train", features=RAW, cache_dir=str(cache), num_proc=processes)
    edits = raw.map(
        partial(batch, check_syntax=check_syntax),
        batched=True,
        batch_size=BATCH_ROWS,
        num_proc=PROCESSES,
        remove_columns=raw.column_names,
        features=REFINED,
        load_from_cache_file=False,
    )
    clock.lap("normalized")
    # a drop is a row with nothing but its reason, so that it is counted
    reasons = np.array(edits.data.column("reason").to_pylist())
    counts = Counter(f"dropped.{reason}" for reason in reasons.tolist() if reason)
    kept_rows = np.flatnonzero(reasons == "")
    edits = edits.select(kept_rows)
    columns = edits.with_format("arrow", columns=list(KEYS))[:].combine_chunks()
    links = columns["link_keys"].combine_chunks()
    owners = np.repeat(np.arange(len(edits)), links.value_lengths().to_numpy())
    signatures = np.frombuffer(b"".join(columns["signature"].to_pylist()), np.uint32).reshape(-1, BANDS * BAND_ROWS)
    kept, splits = divided(
        [columns[name].to_numpy() for name in ("asked_key", "change_key", "done_key")],
        links.flatten().to_numpy(),
        owners,
        columns["pre_key"].to_numpy(),
        near_pairs(signatures),
    )
    clock.lap("division")
    shown = edits.select_columns([name for name in REFINED if not name.endswith(("_key", "_keys"))])
    shown = shown.remove_columns(["signature", "reason"])
    for number, split in enumerate(("train", "dev", "test")):
        chosen = shown.select(np.flatnonzero(kept & (splits == number)))
        chosen.to_json(str(target / f"{split}.jsonl"), num_proc=PROCESSES)
        chosen.to_parquet(str(target / f"{split}.parquet"))
    clock.lap("splits")
    return {"rows_in": len(raw), "edits": len(edits), "rows": int(kept.sum()), **dict(sorted(counts.items()))}


def batch(rows: dict[str, list[Any]], check_syntax: bool) -> dict[str, list[Any]]:
    """Return the edits of some rows, column by column."""
    columns: dict[str, list[Any]] = {name: [] for name in REFINED}
    for values in zip(*(rows[field] for field in FIELDS), strict=True):
        found = refined(dict(zip(FIELDS, values, strict=True)), check_syntax)
        if isinstance(found, str):
            edit: dict[str, Any] = {"reason": found}
        else:
            edit = {**found, "signature": signature(found["pre"]), "reason": ""}
        for name, column in columns.items():
            column.append(edit.get(name))
    return columns


if __name__ == "__main__":
    main()
