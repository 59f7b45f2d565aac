"""The stage `synthetic_rules`: synthetic edits, each with the action that is known to be right."""

from collections import Counter
from pathlib import Path

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents
from graftline.core.jsonl import read_lines, write_lines
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.pipeline.attempt_settings import rewriter
from graftline.pipeline.lineage import Lineage, request_of


def synthetic_rules(lineage: Lineage, language: Language, split: Split) -> Built:
    """Make synthetic edits, each with its gold action, on the snippets of one language and split."""
    sources = {of: lineage.paths.partition("processed", of, split) for of in lineage.catalog.snippets_of(language)}
    synthesis = lineage.catalog.synthesis
    inputs = {
        "splits" if of == language else f"splits.{of}": lineage.verified(source, "splits")
        for of, source in sources.items()
    }
    config = {"synthesis": synthesis.model_dump(mode="json"), **rewriter(lineage.manifest)}
    request = request_of("synthetic_rules", f"{language}/{split}", inputs, config)

    def make(folder: Path) -> Contents:
        edits = [edit for source in sources.values() for edit in read_lines(source / "edits.jsonl", Edit)]
        made: list[Edit] = []
        found = synthesize(
            edits, language, synthesis.per_partition, synthesis.seed, lineage.ports.sandbox, split,
            synthesis.per_snippet,
        )  # fmt: skip
        for edit in found:
            made.append(edit)
            lineage.advance(len(made), synthesis.per_partition)
        made.sort(key=lambda edit: edit.id)
        write_lines(folder / "edits.jsonl", made)
        families = Counter(tag for edit in made for tag in edit.tags if tag.startswith("template:"))
        return Contents({"rows": len(made), **{f"rows.{tag}": count for tag, count in sorted(families.items())}})

    return lineage.build(lineage.paths.partition("synthetic", language, split), request, make)
