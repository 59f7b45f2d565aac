"""The stage `label_tasks`: tasks without gold, of what people said about texts."""

from pathlib import Path

from graftline.astgrep.binding import LANGUAGES
from graftline.core.build import Built, Contents, Request
from graftline.core.jsonl import read_lines, write_lines
from graftline.datasets.edit import Label
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.rollouts.task import OpenTask, open_task_of


def label_tasks(lineage: Lineage) -> Built:
    """Make tasks without gold of the labels of all datasets."""
    folders = {name: lineage.paths.normalized(name) for name in lineage.catalog.sources}
    inputs = {}
    for name, folder in folders.items():
        record = lineage.verified(folder, "normalized")
        if "labels.jsonl" in record.files:
            inputs[f"normalized/{name}"] = lineage.part_of(folder, record, "labels.jsonl")
    config = {"languages": list(lineage.catalog.languages), "precedence": list(inputs)}
    request = Request("label_tasks", "all", stage_code("label_tasks"), inputs, config)

    def make(target: Path) -> Contents:
        tasks: dict[str, OpenTask] = {}
        labels = 0
        for name in inputs:
            for label in read_lines(folders[name.partition("/")[2]] / "labels.jsonl", Label):
                labels += 1
                if label.language in lineage.catalog.languages:
                    tasks.setdefault(label.id, open_task_of(label))
        for language in LANGUAGES:
            of_language = [task for task in tasks.values() if task.language == language]
            if of_language:
                write_lines(target / f"{language}.jsonl", of_language)
        return Contents({"rows_in": labels, "rows": len(tasks)})

    return lineage.build(lineage.paths.label_tasks, request, make)
