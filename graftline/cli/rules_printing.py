"""What the commands below `graftline rules` print: rules, differences, tables, JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import print_table

if TYPE_CHECKING:
    from graftline.codemod.learn import LearnedRules
    from graftline.codemod.mine import CollectedPairs, MinedRules
    from graftline.codemod.rule_file import FileRule
    from graftline.codemod.source_files import FileMatches, RewrittenFile, SourceFile

_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}
_PLACES_SHOWN = 3
_FILES_SHOWN = 10


def _write_rules(text: str, out: Path | None) -> None:
    from graftline.codemod.source_files import replace_file

    if out is None:
        click.echo(text, nl=False)
    else:
        replace_file(out, text.encode())


def print_learned(
    found: "LearnedRules",
    examples: "Sequence[tuple[SourceFile, SourceFile]]",
    matched: "Sequence[FileMatches]",
    skipped: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print rules, what they make of the examples and what they match; end with 1 where an example is unsolved."""
    from graftline.codemod.learn import REASONS
    from graftline.codemod.rule_file import format_rules

    has_looked, text = skipped is not None, format_rules(found.rules) if found.rules else ""
    if as_json:
        said = {
            "solved": not found.unsolved,
            "unsolved": found.unsolved,
            "reason": REASONS[found.unsolved],
            "levels": [*found.levels],
            "rules": [_row(rule) for rule in found.rules],
            "matched": [{"rule": one.rule, "path": str(one.file.path), "lines": one.lines} for one in matched],
            "skipped": skipped or "",
            "yaml": text,
        }
        click.echo(json.dumps(said))
    elif out is None:
        _write_rules(text, None)
    if out is not None and not found.unsolved:
        _write_rules(text, out)
    if not as_json:
        for (before, _), result in zip(examples, found.results, strict=True):
            _print_diff(before.text, result, before.path.name, is_error=out is None)
        for rule in found.rules:
            click.echo(
                f"{rule.id}: {'general' if rule.facts['general'] else 'literal, for this example only'}", err=True
            )
            _print_places([one for one in matched if one.rule == rule.id], has_looked)
        if skipped:
            click.echo(f"not looked at: {skipped}", err=True)
    if found.unsolved:
        click.echo(f"unsolved ({found.unsolved}): {REASONS[found.unsolved]}", err=True)
        raise click.exceptions.Exit(1)


def _print_places(matched: "Sequence[FileMatches]", has_looked: bool) -> None:
    total = sum(len(one.lines) for one in matched)
    if has_looked:
        click.echo(f"  matches {counted(total, 'place')} in {counted(len(matched), 'file')}", err=True)
    for one in matched[:_FILES_SHOWN]:
        shown = ", ".join(map(str, one.lines[:_PLACES_SHOWN])) + (", …" if len(one.lines) > _PLACES_SHOWN else "")
        click.echo(f"  {one.file.path}: {len(one.lines)} (line {shown})", err=True)
    if len(matched) > _FILES_SHOWN:
        click.echo(f"  and {len(matched) - _FILES_SHOWN} more files; --json lists all", err=True)


def _row(rule: "FileRule") -> dict[str, Any]:
    return {
        "id": rule.id,
        "language": rule.language,
        "action": rule.action.model_dump(),
        "facts": dict(rule.facts),
        "examples": [example.model_dump() for example in rule.examples],
        "stays": list(rule.stays),
    }


def print_rewritten(
    done: "Sequence[RewrittenFile]", rules: "Sequence[FileRule]", skipped: str, is_written: bool, as_json: bool
) -> None:
    """Print what the rules make of files."""
    changed, faults = [one for one in done if not one.fault], [one.fault for one in done if one.fault]
    places = sum(sum(one.places) for one in changed)
    if as_json:
        files = [
            {
                "path": str(one.file.path),
                "places": {rule.id: number for rule, number in zip(rules, one.places, strict=True) if number},
                "diff": _diff(one.file.text, one.text, str(one.file.path)),
            }
            for one in changed
        ]
        click.echo(json.dumps({"files": files, "faults": faults, "skipped": skipped, "written": is_written}))
    else:
        for one in changed:
            _print_diff(one.file.text, one.text, str(one.file.path))
        what = "changed" if is_written else "would change; --write changes them" if changed else "would change"
        click.echo(f"{counted(places, 'place')} in {counted(len(changed), 'file')} {what}", err=True)
        if skipped:
            click.echo(f"not looked at: {skipped}", err=True)
    for fault in faults:
        click.echo(f"error: {fault}", err=True)


def print_mined(found: "MinedRules", changes: "CollectedPairs", commits: int, out: Path | None, as_json: bool) -> None:
    """Print the rules of a history, or a table of those that `out` has."""
    from graftline.codemod.rule_file import assign_ids, format_rules

    rules = assign_ids(found.rules)
    small = counted(found.pairs, "small change")
    heading = [f"{counted(len(rules), 'rule')} from {small} in {counted(commits, 'commit')}"]
    text = format_rules(rules, heading) if rules else ""
    if as_json:
        counts = {"commits": commits, "files": changes.changes, "changes": found.pairs, "candidates": found.candidates}
        click.echo(json.dumps({**counts, "rules": [_row(rule) for rule in rules], "yaml": text}))
    if out is not None and text:
        _write_rules(text, out)
    if not as_json and out is None:
        _write_rules(text, None)
    elif not as_json and rules:
        columns = ("changes", "commits", "files", "places", "contradictions")
        rows = [
            (rule.id, rule.language, *(str(rule.facts["support"][key]) for key in columns), _yes(rule.facts["general"]))
            for rule in rules
        ]
        print_table(str(out), ["rule", "language", *columns, "general"], rows)
    click.echo(heading[0], err=True)


def _print_diff(before: str, after: str, name: str, is_error: bool = False) -> None:
    lines = _diff(before, after, name).split("\n")[:-1]
    print_lines([(line, _STYLES.get(line[:1], "")) for line in lines], is_error)


def _diff(before: str, after: str, name: str) -> str:
    from graftline.core.text_diff import unified_diff

    return "".join(unified_diff(before, after, f"a/{name}", f"b/{name}"))


def print_lines(lines: Sequence[tuple[str, str]], is_error: bool = False) -> None:
    """Print lines with their styles, as they are where there is no terminal."""
    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.style import Style

    from graftline.core.text_diff import escape_controls

    console = Console(stderr=is_error)
    if not console.is_terminal:
        for line, _ in lines:
            click.echo(line, err=is_error)
    elif lines:
        # as they are: tabs stay tabs, and a long line is not folded
        segments = [Segment(escape_controls(line), Style.parse(style)) for line, style in lines]
        console.print(Segments(segments, new_lines=True), soft_wrap=True, end="")


def plain(value: Any) -> str:
    """Return a value of a rule's metadata as words."""
    return ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, dict) else str(value)


def _yes(value: Any) -> str:
    return "yes" if value else "no"


def counted(number: int, thing: str) -> str:
    """Return `number` with its noun: 1 place, 2 places."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
