"""What the commands about rules print: rules, differences, tables, JSON."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import pluralize, print_json, print_lines, print_table, style_diff

if TYPE_CHECKING:
    from graftline.codemod.learn import LearnedRules
    from graftline.codemod.mine import MinedRules
    from graftline.codemod.mining.pairs import CollectedPairs
    from graftline.codemod.review import PlaceGroup
    from graftline.codemod.rule_file import FileRule
    from graftline.codemod.source_files import FileMatches, RewrittenFile, SourceFile
    from graftline.repository import Rewrite

_LINES_SHOWN = 3
_PLACES_SHOWN = 100
"""More of them are shown as groups on a terminal."""
_FILES_SHOWN = 10
WRITE, NOT_WRITTEN = "--write changes them", "nothing is written, for the tests do not pass"
"""What there is to do about places that would change."""


def print_learned(
    learned: "LearnedRules", examples: "Sequence[tuple[SourceFile, SourceFile]]", matches: "Sequence[FileMatches]",
    skipped: str | None, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Print rules, what they make of the examples and what they match; end with 1 where an example is unsolved."""
    from graftline.codemod.learn import REASONS
    from graftline.codemod.rule_file import format_rules

    text = format_rules(learned.rules) if learned.rules else ""
    if as_json:
        print_json(
            {
                "solved": not learned.unsolved,
                "unsolved": learned.unsolved,
                "reason": REASONS[learned.unsolved],
                "levels": [*learned.levels],
                "rules": [rule_as_dict(rule) for rule in learned.rules],
                "matched": [
                    {"rule": match.rule, "path": str(match.file.path), "lines": match.lines} for match in matches
                ],
                "skipped": skipped or "",
                "yaml": text,
            }
        )
    elif out is None:
        click.echo(text, nl=False)
    if out is not None and not learned.unsolved:
        write_rules(learned.rules, out)
    if not as_json:
        for (before, _), result in zip(examples, learned.results, strict=True):
            _print_diff(before.text, result, str(before.path), is_error=out is None)
        for rule in learned.rules:
            scope = "general" if rule.facts["general"] else "literal, for this example only"
            click.echo(f"{rule.id}: {scope}", err=True)
            _print_matches([match for match in matches if match.rule == rule.id], has_searched=skipped is not None)
        if skipped:
            click.echo(f"not looked at: {skipped}", err=True)
    if learned.unsolved:
        click.echo(f"unsolved ({learned.unsolved}): {REASONS[learned.unsolved]}", err=True)
        raise click.exceptions.Exit(1)


def print_rewritten(
    results: "Sequence[RewrittenFile]", groups: "Sequence[PlaceGroup]", skipped: str, is_written: bool, as_json: bool,
    advice: str = WRITE,
) -> None:  # fmt: skip
    """Print what the rules make of files: all of it, or on a terminal, where that is much, the groups of places.

    `advice` is what there is to do where nothing is written.
    """
    rewritten = [result for result in results if not result.fault]
    faults = [result.fault for result in results if result.fault]
    if as_json:
        print_json({**rewritten_as_json(results, groups), "skipped": skipped, "written": is_written})
    else:
        number = sum(len(result.places) for result in rewritten)
        if number <= _PLACES_SHOWN or not sys.stdout.isatty():
            for result in rewritten:
                _print_diff(result.file.text, result.text, _name_in_diff(result.file.path))
        else:
            for group in groups:
                print_group(group)
        places = pluralize(number, groups[0].noun if groups else "place")
        verb = "changed" if is_written else f"would change{f'; {advice}' if rewritten else ''}"
        click.echo(f"{places} in {pluralize(len(rewritten), 'file')} {verb}", err=True)
        if skipped:
            click.echo(f"not looked at: {skipped}", err=True)
    for fault in faults:
        click.echo(f"error: {fault}", err=True)


def rewritten_as_json(results: "Sequence[RewrittenFile]", groups: "Sequence[PlaceGroup]") -> dict[str, Any]:
    """Return what becomes of files, as JSON has it."""
    files = [
        {
            "path": str(result.file.path),
            "places": Counter(place.rule for place in result.places),
            "diff": _diff(result.file.text, result.text, _name_in_diff(result.file.path)),
        }
        for result in results
        if not result.fault
    ]
    rows = [
        {"id": group.id, "rule": group.rule, "shape": group.edit, "places": len(group.places), "rare": group.is_rare}
        for group in groups
    ]
    return {"files": files, "groups": rows, "faults": [result.fault for result in results if result.fault]}


def print_group(group: "PlaceGroup", is_error: bool = False) -> None:
    """Print a group of places, and a few of them."""
    rare = ", rare" if group.is_rare else ""
    print_lines([(f"{group.id}: {group.count} such as {group.edit}{rare}", "bold")], is_error)
    for place in group.typical:
        lines = [line.rstrip("\n") for line in place.diff]
        print_lines([(f"  {place.path}:{place.line}", ""), *style_diff(lines)], is_error)


def ask_for_groups(groups: "Sequence[PlaceGroup]", is_error: bool) -> list[str]:
    """Return the ids of the groups, and of parts of groups, that a person at the terminal does not want."""
    rejected = []
    pending = [*groups]
    while pending:
        group = pending.pop(0)
        print_group(group, is_error)
        parts = group.parts
        split = f", [s]plit into {len(parts)} that look alike" if parts else ""
        answer = click.prompt(
            f"change {group.count}? [y]es, [n]o{split}, [a]ll that follow, [q]uit with none of them",
            type=click.Choice(["y", "n", *(["s"] if parts else []), "a", "q"]),
            show_choices=False,
            err=True,
        )
        if answer == "a":
            break
        if answer == "s":
            pending = [*parts, *pending]
        if answer in ("n", "q"):
            rejected.append(group.id)
        if answer == "q":
            return [*rejected, *(later.id for later in pending)]
    return rejected


def print_mined(mined: "MinedRules", changes: "CollectedPairs", commits: int, out: Path | None, as_json: bool) -> None:
    """Print the rules of a history, or a table of those that are written to `out`."""
    from graftline.codemod.rule_file import assign_ids, format_rules

    rules = assign_ids(mined.rules)
    pairs = pluralize(mined.pairs, "small change")
    heading = f"{pluralize(len(rules), 'rule')} from {pairs} in {pluralize(commits, 'commit')}"
    text = format_rules(rules, [heading]) if rules else ""
    if as_json:
        counts = {"commits": commits, "files": changes.changes, "changes": mined.pairs, "candidates": mined.candidates}
        print_json({**counts, "rules": [rule_as_dict(rule) for rule in rules], "yaml": text})
    if out is not None and text:
        write_rules(rules, out, [heading])
    if not as_json and out is None:
        click.echo(text, nl=False)
    elif not as_json and rules:
        columns = ("changes", "commits", "files", "places", "contradictions")
        rows = [
            (
                rule.id,
                rule.language,
                *(str(rule.facts["support"][key]) for key in columns),
                "yes" if rule.facts["general"] else "no",
            )
            for rule in rules
        ]
        print_table(str(out), ["rule", "language", *columns, "general"], rows)
    click.echo(heading, err=True)


def write_rules(rules: "Sequence[FileRule]", out: Path, heading: Sequence[str] = ()) -> None:
    """Write a rule file."""
    from graftline.codemod.rule_file import format_rules
    from graftline.codemod.source_files import replace_file

    replace_file(out, format_rules(rules, heading).encode())


def write_rules_of_change(rules: "Sequence[FileRule]", result: "Rewrite", out: Path) -> None:
    """Write the rules of a change, those aside of which all places are left out, and say where they do another thing by themselves."""
    chosen = result.rules_of(rules)
    if not chosen:
        click.echo(f"rules: {out} is not written, all their places are left out", err=True)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_rules(chosen, out)
    click.echo(f"rules: {out}", err=True)
    for sentence in result.reach.describe(out.name):
        click.echo(sentence, err=True)


def _print_matches(matches: "Sequence[FileMatches]", has_searched: bool) -> None:
    if has_searched:
        count = pluralize(sum(len(match.lines) for match in matches), "match")
        click.echo(f"  {count} in {pluralize(len(matches), 'file')}", err=True)
    for match in matches[:_FILES_SHOWN]:
        more = ", …" if len(match.lines) > _LINES_SHOWN else ""
        lines = ", ".join(map(str, match.lines[:_LINES_SHOWN])) + more
        click.echo(f"  {match.file.path}: {len(match.lines)} (line {lines})", err=True)
    if len(matches) > _FILES_SHOWN:
        click.echo(f"  and {len(matches) - _FILES_SHOWN} more files; --json lists all", err=True)


def describe_rule(rule: "FileRule") -> str:
    """Return a rule in one line, with its confidence."""
    from graftline.codemod.explain import summarize

    return f"{rule.id}: {summarize(rule.action)}{describe_confidence(rule)}"


def describe_confidence(rule: "FileRule") -> str:
    """Return how likely it is that a rule is the one that is meant, as it is said after it; empty where that is not known."""
    confidence = rule.facts.get("confidence")
    return f" (confidence {confidence:.2f})" if isinstance(confidence, float) else ""


def rule_as_dict(rule: "FileRule") -> dict[str, Any]:
    """Return a rule as JSON has it."""
    return {
        "id": rule.id,
        "language": rule.language,
        "action": rule.action.model_dump(),
        "facts": dict(rule.facts),
        "examples": [example.model_dump() for example in rule.examples],
        "stays": list(rule.stays),
    }


def _name_in_diff(path: Path) -> str:
    """Return a path as `git apply` takes it: as it was given, or else from the root of the repository that the file is in."""
    if not path.is_absolute() and ".." not in path.parts:
        return str(path)
    whole = Path(os.path.normpath(path.absolute()))
    root = next((parent for parent in whole.parents if (parent / ".git").exists()), Path(whole.anchor))
    return str(whole.relative_to(root))


def _print_diff(before: str, after: str, name: str, is_error: bool = False) -> None:
    print_lines(style_diff(_diff(before, after, name).split("\n")[:-1]), is_error)


def _diff(before: str, after: str, name: str) -> str:
    from graftline.core.text_diff import unified_diff

    return "".join(unified_diff(before, after, f"a/{name}", f"b/{name}"))
