"""The work of the stages, with `datatrove`: reader, filter, MinHash in its four steps, writers; two tasks at a time.

    .venv-peers/bin/python benchmarks/peers/datatrove_stages.py SOURCE TARGET [--no-syntax]

SOURCE holds the raw files of JSON lines, at least one per task; TARGET gets `splits/<split>/<task>.{jsonl,parquet}`.
Prints one line of JSON. Steps that one pass can do are in one pipeline: the edits that pass the filter are written,
their keys noted and their signatures taken in the same pass. Its own exact deduplication would read the edits anew for
every key, so keys are compared in one step of numpy here.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from clock import Clock, timed
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupSignature,
)
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter, ParquetWriter
from datatrove.utils.binaryio import read_tuples_from_file
from datatrove.utils.hashing import HashConfig
from datatrove.utils.logging import logger
from datatrove.utils.word_tokenizers import WhitespaceTokenizer
from edit_rules import BAND_ROWS, BANDS, divided, folded_key, grams, refined

TASKS = 2
MINHASH = MinhashConfig(n_grams=5, num_buckets=BANDS, hashes_per_bucket=BAND_ROWS, hash_config=HashConfig(precision=32))
COLUMNS = (
    *("id", "instruction", "pre", "post", "language", "tags", "license", "group", "aliases", "commit", "path"),
    *("origin", "pre_tokens", "post_tokens"),
)
SCHEMA = pa.schema(
    [
        (
            name,
            pa.list_(pa.string())
            if name in ("tags", "aliases")
            else pa.int64()
            if name.endswith("_tokens")
            else pa.string(),
        )
        for name in COLUMNS
    ]
)


def main() -> None:
    """Do the work, and print one line of JSON."""
    logger.remove()
    timed(__doc__, work)


def work(source: Path, target: Path, folder: Path, check_syntax: bool, clock: Clock) -> dict[str, int]:
    """Write the splits, and return how many rows there were, are kept and fell out."""
    run(
        folder / "refine",
        TASKS,
        JsonlReader(str(source), adapter=raw_document, add_file_path=False),
        EditFilter(check_syntax),
        Keys(folder / "keys"),
        JsonlWriter(str(folder / "edits"), compression=None, adapter=edit_of),
        EditSignature(str(folder / "signatures"), MINHASH, language=WhitespaceTokenizer()),
    )
    clock.lap("normalized")
    buckets = MinhashDedupBuckets(
        str(folder / "signatures"),
        str(folder / "buckets"),
        config=MINHASH,
        only_dedup_in_index=False,
        lines_to_buffer=1000,
    )
    run(folder / "match", BANDS, buckets)
    cluster = MinhashDedupCluster(
        str(folder / "buckets"), str(folder / "near"), config=MINHASH, save_cluster_id=True, lines_to_buffer=1000
    )
    run(folder / "divide", 1, cluster, Divide(folder / "keys", folder / "near", folder / "division"))
    clock.lap("division")
    run(
        folder / "split",
        TASKS,
        JsonlReader(str(folder / "edits"), adapter=edit_document, add_file_path=False),
        Assign(folder / "division"),
        JsonlWriter(str(target / "splits"), "${split}/${rank}.jsonl", compression=None, adapter=edit_of),
        ParquetWriter(
            str(target / "splits"),
            "${split}/${rank}.parquet",
            compression="zstd",
            adapter=edit_of,
            schema=SCHEMA,
            # what only readers on the Hub gain by
            use_content_defined_chunking=False,
            write_page_index=False,
        ),
    )
    clock.lap("splits")
    return counts_of(folder)


def run(folder: Path, tasks: int, *steps: Any) -> None:
    """Run one pipeline."""
    LocalPipelineExecutor(
        list(steps), tasks=tasks, workers=min(tasks, TASKS), logging_dir=str(folder), start_method="fork"
    ).run()


def raw_document(self: Any, data: dict[str, Any], path: str, number: int) -> dict[str, Any]:
    """Return a raw row as a document; new files have no text before, and must not be lost without being counted."""
    return {"text": data.get("old_contents") or "\n", "id": str(number), "metadata": {"row": data}}


def edit_document(self: Any, data: dict[str, Any], path: str, number: int) -> dict[str, Any]:
    """Return an edit that was written before as a document."""
    return {"text": data["pre"], "id": data["id"], "metadata": {"edit": data}}


def edit_of(self: Any, document: Document) -> dict[str, Any]:
    """Return what is written of a document."""
    return document.metadata["edit"]


class EditFilter(BaseFilter):
    """Keeps rows that become edits, and counts why the others do not."""

    name = "edits"

    def __init__(self, check_syntax: bool) -> None:
        super().__init__()
        self.check_syntax = check_syntax

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        """Put the edit in place of the row."""
        found = refined(doc.metadata["row"], self.check_syntax)
        if isinstance(found, str):
            return False, found
        doc.metadata = {
            "keys": [found.pop(name) for name in ("asked_key", "change_key", "done_key", "pre_key")],
            "links": found.pop("link_keys"),
            "edit": found,
        }
        return True


class Keys(PipelineStep):
    """Notes the keys of all edits of a task."""

    name, type = "keys", "keys"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Pass the edits on, and write their keys at the end."""
        keys: list[list[int]] = []
        links: list[int] = []
        sizes: list[int] = []
        for document in data:
            keys.append(document.metadata["keys"])
            links += document.metadata["links"]
            sizes.append(len(document.metadata["links"]))
            yield document
        self.folder.mkdir(parents=True, exist_ok=True)
        columns = np.array(keys, np.int64).reshape(-1, 4)
        np.savez(self.folder / f"{rank:05d}.npz", keys=columns, links=np.array(links, np.int64), sizes=sizes)


class EditSignature(MinhashDedupSignature):
    """Signatures over five words of code, found with one regular expression: no tokenizer of the library is asked."""

    def get_shingles(self, text: str) -> np.ndarray:
        """Return the hashes of the shingles, which 32 bits are enough for."""
        found = [folded_key(gram.encode()) & 0xFFFFFFFF for gram in grams(text)]
        return np.array(found, np.uint64).reshape(-1, 1)


class Divide(PipelineStep):
    """Decides for the edits of all tasks which are kept and in which split they are."""

    name, type = "divide", "divide"

    def __init__(self, keys: Path, near: Path, division: Path) -> None:
        super().__init__()
        self.keys, self.near, self.division = keys, near, division

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Write the split of every edit of every task, -1 where it is not kept."""
        tasks = [np.load(path) for path in sorted(self.keys.glob("*.npz"))]
        sizes = [len(task["keys"]) for task in tasks]
        firsts = np.concatenate(([0], np.cumsum(sizes)))
        columns = np.concatenate([task["keys"] for task in tasks])
        owners = np.repeat(np.arange(len(columns)), np.concatenate([task["sizes"] for task in tasks]).astype(np.int64))
        kept, splits = divided(
            list(columns.T[:3]),
            np.concatenate([task["links"] for task in tasks]),
            owners,
            columns[:, 3],
            self._near(firsts),
        )
        self.division.mkdir()
        chosen = np.where(kept, splits, -1)
        for task in range(len(tasks)):
            np.save(self.division / f"{task:05d}.npy", chosen[firsts[task] : firsts[task + 1]])

    def _near(self, firsts: np.ndarray) -> np.ndarray:
        found: dict[int, list[int]] = {}
        for path in sorted(self.near.glob("*.clusters")):
            first = int(firsts[int(path.stem)])
            with path.open("rb") as stream:
                for number, cluster in read_tuples_from_file(stream, "2I", lines_to_buffer=1000):
                    found.setdefault(cluster, []).append(first + number)
        pairs = [(min(rows), other) for rows in found.values() for other in rows if other != min(rows)]
        return np.array(pairs, np.int64).reshape(-1, 2)


class Assign(BaseFilter):
    """Drops the edits that are not kept, and tells the others which split they are in."""

    name = "assign"

    def __init__(self, division: Path) -> None:
        super().__init__()
        self.division = division

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Pass on the edits of one task that are kept."""
        names = ("train", "dev", "test")
        for document, split in zip(data, np.load(self.division / f"{rank:05d}.npy").tolist(), strict=True):
            if split >= 0:
                document.metadata["split"] = names[split]
                yield document

    def filter(self, doc: Document) -> bool:
        """Keep what `run` passes on."""
        return True


def counts_of(folder: Path) -> dict[str, int]:
    """Return how many rows there were, are kept and fell out, from the statistics of the pipelines."""
    refined_stats = json.loads((folder / "refine" / "stats.json").read_text())
    found = Counter[str]()
    for name, stat in refined_stats[1]["stats"].items():
        value = stat["total"] if isinstance(stat, dict) else stat
        if name.startswith("dropped_"):
            found["dropped." + name.removeprefix("dropped_")] = int(value)
        elif name in ("total", "forwarded"):
            found[{"total": "rows_in", "forwarded": "edits"}[name]] = int(value)
    kept = sum(int((np.load(path) >= 0).sum()) for path in (folder / "division").glob("*.npy"))
    return {"rows_in": found.pop("rows_in"), "edits": found.pop("edits"), "rows": kept, **dict(sorted(found.items()))}


if __name__ == "__main__":
    main()
