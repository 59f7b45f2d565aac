"""How many of the shipped edits get an instruction made of their own rules, and how many of those can be done from it.

Every edit of the sample `release_pairs` is put into words, in full and lazily, and the reader of the templates makes the change from
these words and the text before. The reader knows the templates, so this says that an instruction is complete, not that a model
understands it. Nothing was tuned on other edits than these. Beside it, in the same run: the sentence that a row alone would give ("Change `X`
as P did from 1.0 to 2.0."), from which nobody can do the change.

    python -m benchmarks.instructions [--limit N]
"""

import argparse
import gzip
import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from graftline.codemod.instructions.describe import describe_edit, is_answerable
from graftline.datasets.edit import Edit
from graftline.datasets.readers.release_pairs import ReleasePair, edit_of
from graftline.sandbox.actions import MemorySandbox

SAMPLE = CHECKOUT / "data/samples/release_pairs.jsonl.gz"


def measure_edit(edit: Edit, origin: str) -> dict[str, Any]:
    """Return what became of one edit: details in which it is asked for, characters, whether the sentence `origin` would do."""
    sandbox = MemorySandbox()
    started = time.process_time()
    wordings = describe_edit(edit.pre, edit.post, edit.language, edit.id, sandbox)
    return {
        "language": edit.language,
        "details": [wording.detail for wording in wordings],
        "characters": len(wordings[0].text) if wordings else 0,
        "milliseconds": 1000 * (time.process_time() - started),
        "origin_answers": is_answerable(origin, edit.pre, edit.post, edit.language, sandbox),
    }


def sentence_of_origin(pair: ReleasePair) -> str:
    """Return all that a row says of what was done."""
    return f"Change `{pair.qual.lstrip('.')}` as {pair.pkg} did from {pair.old} to {pair.new}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--limit", type=int, help="edits at most")
    options = parser.parse_args(arguments)
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as stream:
        pairs = [ReleasePair.model_validate_json(line) for line in stream]
    results = [(edit_of(pair, "release_pairs"), sentence_of_origin(pair)) for pair in pairs]
    edits = [(result, sentence) for result, sentence in results if isinstance(result, Edit)][: options.limit]
    rows = [measure_edit(edit, sentence) for edit, sentence in edits]
    described = [row for row in rows if row["details"]]
    of_language, languages = Counter(row["language"] for row in described), Counter(row["language"] for row in rows)
    figures = {
        "edits": len(rows),
        "described": round(len(described) / len(rows), 4),
        "described_lazily": round(sum("lazy" in row["details"] for row in rows) / len(rows), 4),
        "by_language": {name: round(of_language[name] / count, 4) for name, count in sorted(languages.items())},
        "characters_median": statistics.median(row["characters"] for row in described),
        "cpu_ms_per_edit": round(statistics.mean(row["milliseconds"] for row in rows), 1),
    }
    peers = {"sentence_of_origin": {"answered": round(sum(row["origin_answers"] for row in rows) / len(rows), 4)}}
    print(json.dumps({"name": "instructions", "figures": figures, "peers": peers, "machine": machine()}))


if __name__ == "__main__":
    main()
