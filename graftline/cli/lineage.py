"""`graftline lineage` and `graftline licences`: what an adapter came from, and on what terms."""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import json_option, paths_of, print_table

if TYPE_CHECKING:
    from rich.tree import Tree

    from graftline.pipeline.provenance.license_bill import LicenseBill
    from graftline.pipeline.provenance.rows import Standing, TrainingRow
    from graftline.pipeline.provenance.trace import Ancestry, Parent

_MOST_SHOWN = 10
"""Lines of a table of counts on a terminal; `--json` has all of them."""
_CALLED = {"group": "package"}
_WIDE = 1000
_LEFT_OUT = re.compile(r"^(dropped|unsound|not_kept)\.")
"""Of names of counts: what stands before the reason."""
_NAMED = ("dataset", "held_out", "start_from", "teacher_path", "teacher_model")
"""Inputs of a run, which say what is what where the artifact does not."""
_HIDDEN = ("written_at", "code", "config_digest", "digest", "sha256", "versions", "dropped", "file", "ast_grep")
"""Facts that are in `--json` alone."""


@click.command()
@click.argument("adapter")
@click.option("--rows", "is_by_row", is_flag=True, help="List the rows that were trained on, each with file and line of its source.")  # fmt: skip
@click.option("--offset", type=click.IntRange(min=0), default=0, show_default=True, help="With --rows: rows to leave out before.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="With --rows: rows at most.")
@click.option("--dot", "drawing", flag_value="dot", help="Print a graph for Graphviz.")
@click.option("--mermaid", "drawing", flag_value="mermaid", help="Print a graph for Mermaid.")
@json_option
@click.pass_obj
def lineage(
    root: Path | None, adapter: str, is_by_row: bool, offset: int, limit: int, drawing: str | None, as_json: bool
) -> None:
    """Show everything ADAPTER came from: the name of a recipe, the id of a run, or a folder. Fails if something of it changed."""
    from graftline.pipeline.provenance import trace as provenance_graph
    from graftline.pipeline.provenance.rows import standing, training_rows, with_sources
    from graftline.pipeline.provenance.trace import ancestry

    paths = paths_of(root)
    found = ancestry(paths, adapter)
    if drawing:
        click.echo(provenance_graph.dot(found) if drawing == "dot" else provenance_graph.mermaid(found), nl=False)
    else:
        rows = training_rows(paths, found)
        shown = with_sources(paths, rows[offset : offset + limit]) if is_by_row else []
        if as_json:
            told = {**found.as_dict(), "stands_on": standing(rows).as_dict()}
            click.echo(json.dumps({**told, "rows": [row.as_dict() for row in shown]} if is_by_row else told))
        else:
            _print_lineage(found, standing(rows))
            _print_rows(shown, offset, len(rows)) if is_by_row else None
    if found.faults:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("adapter")
@click.option("--notice", "is_notice", is_flag=True, help="Print the lines that a NOTICE of the adapter needs, and nothing else.")  # fmt: skip
@click.option("--cyclonedx", "is_document", is_flag=True, help="Print the bill as a CycloneDX 1.6 document, an ML-BOM.")
@json_option
@click.pass_obj
def licences(root: Path | None, adapter: str, is_notice: bool, is_document: bool, as_json: bool) -> None:
    """Print the licence bill of materials of ADAPTER, named as in `graftline lineage`."""
    from graftline.pipeline.provenance.license_bill import license_bill
    from graftline.pipeline.provenance.trace import ancestry

    paths = paths_of(root)
    bill = license_bill(paths, ancestry(paths, adapter))
    if is_document:
        from graftline.pipeline.provenance.license_document import cyclonedx

        click.echo(cyclonedx(bill), nl=False)
    elif is_notice:
        click.echo("\n".join(bill.notices()))
    elif as_json:
        click.echo(json.dumps(bill.as_dict()))
    else:
        _print_bill(bill)


def _print_lineage(of: "Ancestry", on: "Standing") -> None:
    from rich.console import Console
    from rich.tree import Tree

    first = next(iter(of.ancestors))
    tree = Tree(_line(of, first))
    _grow(tree, of, first, {first})
    # without a terminal there is no width to keep to
    Console(width=None if sys.stdout.isatty() else _WIDE).print(tree)
    for name, counts in on.by.items():
        if counts:
            more = len(counts) - _MOST_SHOWN
            shown = [(key, f"{count:,}") for key, count in counts.most_common(_MOST_SHOWN)]
            print_table(
                f"Rows by {_CALLED.get(name, name)}",
                [_CALLED.get(name, name), "rows"],
                [*shown, *([(f"and {more:,} more", "")] if more > 0 else [])],
            )
    reward = "" if on.mean_reward is None else f"; mean reward {on.mean_reward:.3f} of {on.rewarded:,}"
    unknown = f", {on.unknown:,} of which nothing is known" if on.unknown else ""
    click.echo(f"{on.rows:,} rows were trained on{unknown}{reward}.")
    for fault in of.faults:
        click.echo(fault, err=True)
    click.echo(f"{len(of.ancestors)} ancestors, {len(of.faults)} of them not as they were." if of.faults else f"{len(of.ancestors)} ancestors, all as they were.")  # fmt: skip


def _grow(tree: "Tree", of: "Ancestry", key: str, shown: set[str]) -> None:
    for parent in of.ancestors[key].parents:
        branch = tree.add(_line(of, parent.key, parent, parent.key in shown))
        if parent.key not in shown:
            shown.add(parent.key)
            _grow(branch, of, parent.key, shown)


def _line(of: "Ancestry", key: str, parent: "Parent | None" = None, is_above: bool = False) -> Any:
    from rich.text import Text

    one = of.ancestors[key]
    text = Text(f"{parent.name}: " if parent is not None and parent.name in _NAMED else "")
    text.append(f"{one.kind} {one.name}", style="bold")
    if parent is not None and parent.drift:
        text.append(f"  {parent.drift}", style="red")
    if is_above:
        return text.append("  see above", style="dim")
    if one.fault:
        text.append(f"  {one.state}: {one.fault}", style="red")
    facts = {name: value for name, value in one.facts.items() if name not in _HIDDEN and value not in ({}, None, "")}
    if "code_now" in facts:
        facts["code_now"] = "changed since"
    told = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in facts.items())
    identity = f"{one.identity[:12]}" if one.identity else ""
    return text.append("  " + "  ".join(part for part in (identity, told) if part), style="dim")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " + ".join(f"{_LEFT_OUT.sub('', name)} {_shown(count)}" for name, count in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)


def _print_rows(rows: "list[TrainingRow]", offset: int, total: int) -> None:
    cells = [
        (
            f"{row.line}", row.task_id, row.licence, row.group, row.source, row.template or row.rule,
            row.teacher, "" if row.reward is None else f"{row.reward:.2f} {row.cause}",
        )
        for row in rows
    ]  # fmt: skip
    columns = ["line", "task", "licence", "package", "source", "template or rule", "teacher", "reward"]
    print_table(f"Rows {offset + 1} to {offset + len(rows)} of {total:,}", columns, cells)


def _print_bill(bill: "LicenseBill") -> None:
    parts = [(part.kind, part.name, part.licence, f"{part.rows:,}" if part.rows else "", part.detail) for part in bill.parts]  # fmt: skip
    print_table(f"What {bill.adapter} stands on", ["", "name", "licence", "rows", "which"], parts)
    by_licence = [
        (one["licence"], one["asks"], f"{one['rows']:,}", f"{one['packages']:,}", ", ".join(one["datasets"]))
        for one in bill.by_licence()
    ]
    print_table("Rows by licence", ["licence", "asks for", "rows", "packages", "datasets"], by_licence)
    packages = [(one.name, one.licence, f"{one.rows:,}", ", ".join(one.places[:3])) for one in bill.packages]
    print_table("Packages and repositories", ["name", "licence", "rows", "where"], packages)
    for fault in bill.unknown:
        click.echo(fault)
    click.echo(
        f"{bill.rows:,} rows, {len(bill.packages)} packages, {len(bill.unknown)} without a licence that is known."
    )


COMMANDS = (lineage, licences)
