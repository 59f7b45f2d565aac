"""`reports/datasets` and `reports/teacher`: pages of Markdown, with plots, from the report models.

Not here: the numbers (`models/marts`) and how a page reads (`dataset_page`, `index_page`, `teacher_page`).
https://docs.dagster.io/guides/build/assets
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.descriptions import WEEKLY
from assets.outcome import metadata_of, readable_failure
from assets.reports.dataset_files import INDEX, write_datasets
from assets.reports.markdown import Rows, without_pictures
from assets.reports.marts import WHEN_READY
from assets.reports.plots import bars, embed_png, group_bars, stack_bars
from assets.reports.teacher_page import FAILURES, LEVELS, teacher_page, time_rows, wilson
from graftline.codemod.equality import Level
from graftline.core.build import Contents, Request
from graftline.core.hashing import code_version, digest
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.teacher_terms import describe_terms, fleets_of_teachers
from graftline.rollouts.collect_many import times_folder
from graftline.rollouts.trajectory import AttemptTime
from resources.artifacts import Artifacts
from resources.warehouse import Warehouse

DATASET_MARTS = (
    "dataset_stats",
    "dataset_funnel",
    "dataset_tokens",
    "dataset_token_bins",
    "dataset_languages",
    "dataset_licenses",
    "dataset_drops",
    "dataset_overlaps",
    "dataset_labels",
    "dataset_instructions",
    "dataset_examples",
)
TEACHER_MARTS = (
    "teacher_precision",
    "teacher_comparison",
    "teacher_levels",
    "teacher_failures",
    "teacher_steps",
    "teacher_measures",
    "teacher_over_out",
    "teacher_srl",
)
_ACTIONS = ("general", "literal", "none")
"""How the actions of an attempt, or of a step, are told apart in the marts."""


def report_assets() -> list[dg.AssetsDefinition]:
    """Return the two reports."""

    @dg.asset(
        key=["reports", "datasets"],
        deps=DATASET_MARTS,
        group_name="reports",
        kinds={"markdown"},
        owners=["team:data"],
        pool="duckdb",
        automation_condition=WHEN_READY,
        freshness_policy=WEEKLY,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def dataset_reports(artifacts: Artifacts, warehouse: Warehouse) -> dg.MaterializeResult[Any]:
        """One page per dataset, and one over all: from rows to splits, lengths, licenses, what was dropped and why."""
        lineage = artifacts.stages({})
        used = lineage.catalog.used
        inputs = {f"raw/{name}": lineage.paths.raw(name) for name in used}
        inputs |= {f"normalized/{name}": lineage.paths.normalized(name) for name in lineage.catalog.sources}
        return _report(
            lineage, warehouse, "datasets", DATASET_MARTS, inputs,
            lambda folder, marts: write_datasets(folder, lineage, marts),
        )  # fmt: skip

    @dg.asset(
        key=["reports", "teacher"],
        deps=TEACHER_MARTS,
        group_name="reports",
        kinds={"markdown"},
        owners=["team:data"],
        pool="duckdb",
        automation_condition=WHEN_READY,
        freshness_policy=WEEKLY,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def teacher_report(artifacts: Artifacts, warehouse: Warehouse) -> dg.MaterializeResult[Any]:
        """Precision by language, source of the instruction, level and failure; what actions do elsewhere; milliseconds."""
        lineage = artifacts.stages({})
        times = time_rows(_times(lineage))
        terms = {name: describe_terms(fleet)[1] for name, fleet in fleets_of_teachers(lineage.paths.configs).items()}
        return _report(
            lineage, warehouse, "teacher", TEACHER_MARTS, {},
            lambda folder, marts: write_teacher(folder, marts, times, terms),
            {"times": digest(times), "terms": digest(terms)},
        )  # fmt: skip

    return [dataset_reports, teacher_report]


def write_teacher(
    folder: Path, marts: Mapping[str, Rows], times: Rows, terms: Mapping[str, str] | None = None
) -> Contents:
    """Write the page of the teachers with its plots; `terms` are those of the answers of models, by teacher."""
    precision = [{**row, "interval": wilson(row["verified"], row["valid"])} for row in marts["teacher_precision"]]
    teachers = {row["teacher"] for row in precision}
    plots = {
        "precision": bars(
            precision, ["teacher", "language", "instruction_source", "dataset"], "precision", "interval"
        ),
        "levels": stack_bars(_by_actions(marts["teacher_levels"], "level", "attempts"), ["level"], _ACTIONS, "attempts"),
        "over_out": stack_bars(
            _by_actions(marts["teacher_over_out"], "up_to", "steps"), ["up_to"], _ACTIONS[:2],
            "steps, by places changed in 100,000 characters of other code, up to",
        ),
    }  # fmt: skip
    if marts["teacher_failures"]:
        plots["failures"] = stack_bars(_by_class(marts["teacher_failures"]), ["failure"], ["attempts"], "attempts")
    if marts["teacher_srl"]:
        plots["srl"] = stack_bars(
            marts["teacher_srl"], ["teacher", "srl_from"], ["verified", "not_verified"], "steps, by similarity from"
        )
    if times:
        percentiles = ["attempt_p50", "attempt_p90", "answer_p50", "answer_p90"]
        plots["milliseconds"] = group_bars(times, ["teacher", "language"], percentiles, "milliseconds")
    for name, image in plots.items():
        (folder / f"{name}.png").write_bytes(image)
    own_terms = {teacher: words for teacher, words in (terms or {}).items() if teacher in teachers}
    (folder / "metrics.md").write_text(teacher_page(marts, times, own_terms), "utf-8")
    return Contents({"rows": len(marts["teacher_precision"])})


def _times(lineage: Lineage) -> Iterator[AttemptTime]:
    """Yield how long the latest attempts of all partitions took, as far as it was written down on this machine."""
    for language, split in lineage.partitions():
        for path in sorted(times_folder(lineage.paths.logs, language, split).glob("*.jsonl")):
            # a killed run leaves its last line half written, without an end
            lines = path.read_text("utf-8").split("\n")[:-1]
            times = (AttemptTime.model_validate_json(line) for line in lines)
            yield from {time.task_id: time for time in times}.values()


def _by_actions(rows: Rows, place: str, value: str) -> list[dict[str, Any]]:
    """Return a row for each value of `place` over all teachers, with a column for each of `_ACTIONS`."""
    sums: dict[Any, Counter[str]] = {}
    for row in rows:
        sums.setdefault(row[place], Counter())[row["actions"]] += row[value]
    order = [str(level) for level in Level] if place == "level" else sorted(key for key in sums if key is not None)
    present = [key for key in order if key in sums] + [key for key in sums if key is None]
    words = {level: name for level, (name, _) in LEVELS.items()} if place == "level" else {}
    return [
        {place: "more" if key is None else words.get(key, key), **{actions: sums[key][actions] for actions in _ACTIONS}}
        for key in present
    ]


def _by_class(failures: Rows) -> list[dict[str, Any]]:
    sums = Counter[str]()
    for row in failures:
        sums[FAILURES.get(row["failure"], row["failure"])] += row["attempts"]
    return [{"failure": failure, "attempts": number} for failure, number in sums.most_common()]


def _report(
    lineage: Lineage,
    warehouse: Warehouse,
    name: str,
    marts: Sequence[str],
    records: Mapping[str, Path],
    write: Callable[[Path, Mapping[str, Rows]], Contents],
    other_inputs: Mapping[str, str] | None = None,
) -> dg.MaterializeResult[Any]:
    with readable_failure():
        lineage.pull(lineage.paths.warehouse.parent)
        # the marts are small; their rows are the input, so that a rebuilt but equal warehouse changes no report
        with warehouse.open() as read:
            rows = {mart: read(f"select * from {mart} order by all") for mart in marts}
        inputs = {"marts": digest(rows), **{key: lineage.record(folder).identity for key, folder in records.items()}}
        inputs |= other_inputs or {}
        request = Request("reports", name, _code(), inputs)
        built = lineage.build(lineage.paths.reports / name, request, lambda folder: write(folder, rows))
    return dg.MaterializeResult(
        metadata={**metadata_of(built), **_shown(built.folder)}, data_version=dg.DataVersion(built.record.identity)
    )


def _shown(folder: Path) -> dict[str, dg.MetadataValue[Any]]:
    """Return pages and plots by name; plots are not in the pages as well, for each is stored with every run."""
    # the index first, if there is one
    pages = sorted(folder.glob("*.md"), key=lambda path: (path.name != INDEX, path.name))
    shown: dict[str, dg.MetadataValue[Any]] = {
        f"page: {path.stem}": dg.MetadataValue.md(without_pictures(path.read_text("utf-8"))) for path in pages
    }
    plots = sorted(folder.glob("*.png"))
    return {
        **shown,
        **{f"plot: {path.stem}": dg.MetadataValue.md(embed_png(path.stem, path.read_bytes())) for path in plots},
    }


def _code() -> str:
    folder = Path(__file__).parent
    own = [path.read_text("utf-8") for path in sorted(folder.glob("*.py"))]
    return digest([*map(code_version, ("graftline.core.markdown", "graftline.datasets.losses")), own])[:16]
