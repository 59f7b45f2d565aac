"""The stage `normalized`: the rows of a dataset as edits and labels, kept away from evaluations; the others are counted."""

import logging
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graftline.core.build import Built, Contents
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_file
from graftline.core.processes import default_workers
from graftline.core.record import ArtifactRecord, DatasetRecord
from graftline.core.tokens import TokenizerName
from graftline.datasets.catalog import Dataset
from graftline.datasets.decontaminate import Evaluations, evaluation_files, evaluations, texts_in
from graftline.datasets.normalize import Plan, normalize
from graftline.datasets.readers import source_of
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import stage_code

logger = logging.getLogger(__name__)
decontamination = logging.getLogger("graftline.decontamination")  # the command shows its warnings without -v

_INLINE_BYTES = 4 << 20  # starting workers takes as long as so much raw text
_TOOLS = (
    *("tree-sitter", "tree-sitter-java", "tree-sitter-javascript", "tree-sitter-python", "tree-sitter-typescript"),
    *("rensa", "xxhash"),
)


def normalized(lineage: Lineage, name: str) -> Built:
    """Turn the rows of the dataset called `name` into edits, labels and counted drops."""
    dataset = lineage.dataset(name)
    raw = lineage.read_input(lineage.paths.raw(name), "raw")
    config = {
        "reader": dataset.reader,
        "cleaning": lineage.catalog.cleaning.model_dump(mode="json"),
        **evaluation_config(lineage),
        "tools": tool_versions(lineage.catalog.cleaning.tokenizer),
        **dataset.model_dump(mode="json", include={"licenses", "columns"}),
        **(dataset.model_dump(mode="json", include={"fields", "language"}) if dataset.reader == "edits" else {}),
    }
    records = evaluation_records(lineage)
    if not records and not config["evaluation_files"]:
        lineage.once("no_evaluation", lambda: _warn_of_no_evaluation(lineage))
    code = stage_code("normalized", dataset.reader)
    request = request_of("normalized", name, {"raw": raw, **records}, config, code)
    make = partial(_normalize, lineage, name, dataset, raw)
    return lineage.build(lineage.paths.normalized(name), request, make)


def _normalize(lineage: Lineage, name: str, dataset: Dataset, raw: ArtifactRecord, folder: Path) -> Contents:
    for leftover in folder.iterdir():  # by a killed run; with another order of units it would not be replaced
        leftover.unlink()
    source = source_of(dataset.reader)
    cleaning = lineage.catalog.cleaning
    plan = Plan(name, dataset, cleaning, lineage.catalog.decontamination, read_evaluations(lineage), folder)
    size = sum(file.size_bytes for file in raw.files.values())
    cores = default_workers()
    workers = cores if size > _INLINE_BYTES and cores > 1 else 0
    rows = source.rows(lineage.paths.raw(name), dataset, cleaning.max_line_bytes)
    done = normalize(rows, plan, workers, lineage.advance)
    for file, line, reason, detail in done.first_rejected:
        path = lineage.paths.relative(lineage.paths.raw(name) / file)
        logger.warning("%s: line %d: %s: %s", path, line, reason, detail)
    contract: dict[str, Any] = raw.contract() if isinstance(raw, DatasetRecord) else {}
    return Contents(done.counts, {**contract, "licenses": done.licenses, "tokenizer": cleaning.tokenizer})


def evaluation_config(lineage: Lineage) -> dict[str, Any]:
    """Return what decides what is too near to an evaluation, beside the evaluations in use."""
    return {
        "decontamination": lineage.catalog.decontamination.model_dump(mode="json"),
        "evaluation_files": {lineage.paths.relative(path): sha256_file(path) for path in _evaluation_files(lineage)},
    }


def _warn_of_no_evaluation(lineage: Lineage) -> None:
    """Say that no edit is kept away from any evaluation."""
    decontamination.warning(
        "no evaluation is in use, so edits are kept away from none; add one to `use` of configs/datasets.yaml, or"
        " put its file into %s",
        lineage.paths.relative(lineage.paths.benchmarks),
    )


def evaluation_records(lineage: Lineage) -> dict[str, ArtifactRecord]:
    """Return the records of the evaluations in use."""
    used = {name: dataset for name, dataset in lineage.catalog.used.items() if dataset.is_evaluation}
    return {f"evaluation/{name}": lineage.read_input(lineage.paths.raw(name), "raw") for name in used}


def _evaluation_files(lineage: Lineage) -> list[Path]:
    folder = lineage.paths.benchmarks
    files = evaluation_files(folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and path not in files and not path.name.startswith(".") and path.suffix != ".md":
            raise DataError(f"{path}: cannot be read as an evaluation; expected .jsonl, .jsonl.gz or .parquet")
    return files


def read_evaluations(lineage: Lineage) -> Evaluations:
    """Return the texts that edits and changes are kept away from."""
    folders = [lineage.paths.raw(name.partition("/")[2]) for name in evaluation_records(lineage)]
    files = [*(path for folder in folders for path in evaluation_files(folder)), *_evaluation_files(lineage)]
    return evaluations(text for path in files for text in texts_in(path))


def tool_versions(tokenizer: TokenizerName) -> dict[str, str]:
    """Return the versions of what decides whether a text parses, how long it is, and what it is like."""
    tools = _TOOLS if tokenizer == "characters/4" else (*_TOOLS, "bpe-openai")
    # whose grammar decides what is Python
    return {"python": ".".join(map(str, sys.version_info[:2])), **{tool: version(tool) for tool in tools}}
