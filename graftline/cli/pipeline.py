"""The commands over everything: `graftline run`, `status`, `check`, `doctor` and `config`; `lineage` and `licenses`, which say
what an adapter came from, and on what terms.
"""

import os
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import (
    ManifestChoice,
    Output,
    json_option,
    manifest_options,
    output_option,
    pass_paths,
    port_rows,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from graftline.core.paths import Paths
    from graftline.pipeline.provenance.license_bill import LicenseBill
    from graftline.pipeline.provenance.rows import Standing, TrainingRow
    from graftline.pipeline.provenance.trace import Parent, Provenance

_MOST_SHOWN = 10
"""Lines of a table of counts on a terminal; `--json` has all of them."""
_COLUMN_NAMES = {"group": "package"}
_HELD_OUT = {
    "test": "held out: its tasks are asked before and after, never trained on",
    "dev": "held out: looked at while it trains, never trained on",
}
"""What a split other than `train` is used for, by its name."""
_REASON_PREFIX = re.compile(r"^(dropped|invalid|unsound|not_kept)\.")
_NAMED_INPUTS = ("dataset", "held_out", "start_from", "teacher_path", "teacher_model")
"""Inputs of a run, which say what is what where the artifact does not."""
_HIDDEN_FACTS = ("written_at", "code", "config_digest", "digest", "sha256", "versions", "dropped", "file", "ast_grep")
"""Facts that are in `--json` alone."""


@click.command()
@output_option
def doctor() -> Output:
    """Say what this machine can do, and how to get what is missing. Fails if the embedded default cannot run."""
    from graftline.pipeline.doctor import examine

    findings = examine(os.environ)
    rows = [
        (
            "yes" if finding.is_there else "MISSING" if finding.is_needed else "no",
            finding.name,
            finding.purpose,
            finding.detail,
            "" if finding.is_there else finding.remedy,
        )
        for finding in findings
    ]
    table = ("This machine", ["", "what", "needed for", "found", "to get it"], rows)
    is_failure = any(finding.is_needed and not finding.is_there for finding in findings)
    return Output({finding.name: asdict(finding) for finding in findings}, [table], is_failure=is_failure)


@click.command()
@manifest_options
@output_option
@pass_paths
def config(paths: "Paths", manifest: ManifestChoice) -> Output:
    """Print what stands behind each port by a manifest, without opening anything."""
    return _show_ports(paths, manifest)


def _show_ports(paths: "Paths", manifest: ManifestChoice) -> Output:
    from graftline.pipeline.ports import describe

    ports = describe(manifest.load(paths))
    return Output(ports, [(f"Manifest {manifest.name}", ["port", "implementation", "settings"], port_rows(ports))])


@click.command()
@manifest_options
@output_option
@click.option(
    "--dry-run", is_flag=True, help="Print what `graftline config` prints, and what the teacher will cost, and stop."
)
@pass_paths
def run(paths: "Paths", manifest: ManifestChoice, dry_run: bool) -> Output:
    """Make every stage from the datasets to adapters that is not up to date, without Dagster."""
    if dry_run:
        return _show_plan(paths, manifest)
    from graftline.core.progress import progress_bars
    from graftline.pipeline.run import run_all

    with progress_bars() as bars:
        run_all(paths, manifest.name, manifest.overrides, bars)
    return _show_summary(paths)


def _show_plan(paths: "Paths", manifest: ManifestChoice) -> Output:
    from graftline.pipeline.cost_estimate import estimate_cost
    from graftline.pipeline.settings import load_settings

    ports, trajectories = _show_ports(paths, manifest), load_settings(paths).trajectories
    if (estimate := estimate_cost(paths, manifest.load(paths), trajectories)) is None:
        return ports
    return Output({**ports.value, "cost": estimate.as_dict()}, ports.tables, "\n".join(estimate.sentences()))


@click.command()
@output_option
@pass_paths
def status(paths: "Paths") -> Output:
    """Show what is stored, and what the last run made or found unchanged."""
    return _show_summary(paths)


def _show_summary(paths: "Paths") -> Output:
    from graftline.pipeline.summary import summarize, tables, verdict

    summary = summarize(paths)
    places = f"Files are in {paths.data}, reports in {paths.reports}. `make ui` opens the lineage in a browser."
    notes = [f"warning: {warning}" for warning in summary.warnings]
    return Output(summary.as_dict(), tables(summary), f"{verdict(summary)}\n{places}", notes)


@click.command()
@output_option
@click.option("--inputs", is_flag=True, help="Only what a run starts from: configuration and samples.")
@pass_paths
def check(paths: "Paths", inputs: bool) -> Output:
    """Check the configuration, the samples, and every stored artifact against its record."""
    from graftline.pipeline.provenance.audit import audit

    report = audit(paths, os.environ.get("GRAFTLINE_MANIFEST", "local"), inputs_only=inputs)
    text = f"{report.checked} checked, {len(report.faults)} faulty"
    value = {"checked": report.checked, "faults": report.faults}
    return Output(value, text=text, notes=report.faults, is_failure=bool(report.faults))


@click.command()
@click.argument("adapter")
@click.option(
    "--rows",
    "is_by_row",
    is_flag=True,
    help="List the rows that were trained on, each with file and line of its source.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="With --rows: rows to leave out before.")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="With --rows: rows at most.")
@click.option("--dot", "drawing", flag_value="dot", help="Print a graph for Graphviz.")
@click.option("--mermaid", "drawing", flag_value="mermaid", help="Print a graph for Mermaid.")
@json_option
@pass_paths
def lineage(
    paths: "Paths", adapter: str, is_by_row: bool, offset: int, limit: int, drawing: str | None, as_json: bool
) -> None:
    """Show everything ADAPTER came from: the name of a recipe, the id of a run, or a folder. Fails if something of it changed."""
    from graftline.pipeline.provenance import trace as provenance_graph
    from graftline.pipeline.provenance.rows import standing, training_rows, with_sources
    from graftline.pipeline.provenance.trace import trace_provenance

    provenance = trace_provenance(paths, adapter)
    if drawing:
        draw = provenance_graph.dot if drawing == "dot" else provenance_graph.mermaid
        click.echo(draw(provenance), nl=False)
    else:
        rows = training_rows(paths, provenance)
        page = with_sources(paths, rows[offset : offset + limit]) if is_by_row else []
        if as_json:
            values = {**provenance.as_dict(), "stands_on": standing(rows).as_dict()}
            print_json({**values, "rows": [asdict(row) for row in page]} if is_by_row else values)
        else:
            _print_lineage(provenance, standing(rows))
            if is_by_row:
                _print_training_rows(page, offset, len(rows))
    if provenance.faults:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("adapter")
@click.option(
    "--notice", "is_notice", is_flag=True, help="Print the lines that a NOTICE of the adapter needs, and nothing else."
)
@click.option("--cyclonedx", "is_document", is_flag=True, help="Print the bill as a CycloneDX 1.6 document, an ML-BOM.")
@json_option
@pass_paths
def licenses(paths: "Paths", adapter: str, is_notice: bool, is_document: bool, as_json: bool) -> None:
    """Print the license bill of materials of ADAPTER, named as in `graftline lineage`."""
    from graftline.pipeline.provenance.license_bill import license_bill
    from graftline.pipeline.provenance.trace import trace_provenance

    bill = license_bill(paths, trace_provenance(paths, adapter))
    if is_document:
        from graftline.pipeline.provenance.license_document import cyclonedx

        click.echo(cyclonedx(bill), nl=False)
    elif is_notice:
        click.echo("\n".join(bill.notices()))
    elif as_json:
        print_json(bill.as_dict())
    else:
        _print_bill(bill)


def _print_lineage(provenance: "Provenance", basis: "Standing") -> None:
    from rich.console import Console
    from rich.tree import Tree

    first = next(iter(provenance.nodes))
    tree = Tree(_describe_node(provenance, first))
    _grow(tree, provenance, first, {first})
    # without a terminal there is no width to keep to
    Console(width=None if sys.stdout.isatty() else 1000).print(tree)
    for name, counts in basis.by.items():
        if counts:
            column, more = _COLUMN_NAMES.get(name, name), len(counts) - _MOST_SHOWN
            rows = [(key, f"{count:,}") for key, count in counts.most_common(_MOST_SHOWN)]
            rows += [(f"and {more:,} more", "")] if more > 0 else []
            print_table(f"Rows by {column}", [column, "rows"], rows)
    reward = "" if basis.mean_reward is None else f"; mean reward {basis.mean_reward:.3f} of {basis.rewarded:,}"
    unknown = f", {basis.unknown:,} of which nothing is known" if basis.unknown else ""
    click.echo(f"{basis.rows:,} rows were trained on{unknown}{reward}.")
    for fault in provenance.faults:
        click.echo(fault, err=True)
    state = f"{len(provenance.faults)} of them not as they were" if provenance.faults else "all as they were"
    click.echo(f"{len(provenance.nodes)} ancestors, {state}.")


def _grow(tree: "Tree", provenance: "Provenance", key: str, printed: set[str]) -> None:
    for parent in provenance.nodes[key].parents:
        branch = tree.add(_describe_node(provenance, parent.key, parent, parent.key in printed))
        if parent.key not in printed:
            printed.add(parent.key)
            _grow(branch, provenance, parent.key, printed)


def _describe_node(
    provenance: "Provenance", key: str, parent: "Parent | None" = None, is_above: bool = False
) -> "Text":
    from rich.text import Text

    node = provenance.nodes[key]
    text = Text(f"{parent.name}: " if parent is not None and parent.name in _NAMED_INPUTS else "")
    text.append(f"{node.kind} {node.name}", style="bold")
    if parent is not None and parent.drift:
        text.append(f"  {parent.drift}", style="red")
    # of the parts of an adapter's data, by language and split
    if use := next((words for split, words in _HELD_OUT.items() if split in node.name.split("/")), ""):
        text.append(f"  {use}", style="green")
    if is_above:
        return text.append("  see above", style="dim")
    if node.fault:
        text.append(f"  {node.state}: {node.fault}", style="red")
    facts = {
        name: value for name, value in node.facts.items() if name not in _HIDDEN_FACTS and value not in ({}, None, "")
    }
    if "code_now" in facts:
        facts["code_now"] = "changed since"
    details = ", ".join(f"{name.replace('_', ' ')} {_format_fact(value)}" for name, value in facts.items())
    return text.append("  " + "  ".join(part for part in (node.identity[:12], details) if part), style="dim")


def _format_fact(value: Any) -> str:
    if isinstance(value, dict):
        return " + ".join(f"{_REASON_PREFIX.sub('', name)} {_format_fact(count)}" for name, count in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)


def _print_training_rows(rows: "list[TrainingRow]", offset: int, total: int) -> None:
    cells = [
        (
            f"{row.line}", f"{row.task_id}\n{row.source}", row.license, row.group, row.template or row.rule,
            row.teacher, "" if row.reward is None else f"{row.reward:.2f} {row.cause}",
        )
        for row in rows
    ]  # fmt: skip
    columns = ["line", "task, and its source", "license", "package", "template or rule", "teacher", "reward"]
    print_table(f"Rows {offset + 1} to {offset + len(rows)} of {total:,}", columns, cells)


def _print_bill(bill: "LicenseBill") -> None:
    parts = [
        (part.kind, part.name, part.license, f"{part.rows:,}" if part.rows else "", part.detail) for part in bill.parts
    ]
    print_table(f"What {bill.adapter} stands on", ["", "name", "license", "rows", "which"], parts)
    by_license = [
        (row["license"], row["asks"], f"{row['rows']:,}", f"{row['packages']:,}", ", ".join(row["datasets"]))
        for row in bill.by_license()
    ]
    print_table("Rows by license", ["license", "asks for", "rows", "packages", "datasets"], by_license)
    packages = [
        (package.name, package.license, f"{package.rows:,}", ", ".join(package.places[:3])) for package in bill.packages
    ]
    print_table("Packages and repositories", ["name", "license", "rows", "where"], packages)
    for fault in bill.unknown:
        click.echo(fault)
    click.echo(
        f"{bill.rows:,} rows, {len(bill.packages)} packages, {len(bill.unknown)} without a license that is known."
    )


COMMANDS = (run, status, doctor, config, check, lineage, licenses)
