"""Examples of rules: cut out of larger texts, tried in the sandbox, and handed to ast-grep's own `test`."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.hunks import Unit, hunks, statement_at
from graftline.codemod.rule_file import Example, FileRule, named, written
from graftline.codemod.tidy import tidied
from graftline.core.errors import DataError
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided

MAX_CHARACTERS = 4_000
"""Of one side of an example."""
_UNITS: tuple[Unit, ...] = ("statement", "function")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one example of a rule showed."""

    rule: str
    kind: Literal["example", "stays"]
    number: int
    passed: bool
    detail: str = ""
    """Why it did not pass."""


def example_of(
    before: str,
    after: str,
    action: PatternAction | RuleAction,
    language: Language,
    sandbox: Sandbox,
    source: str = "",
) -> Example | None:
    """Return the smallest part of the change from `before` to `after` that `action` makes just so; None without one.

    Raises:
        SandboxError: the sandbox failed.
    """
    parts = [
        (hunk.before, hunk.after)
        for unit in _UNITS
        for hunk in hunks(before, after, language, (unit,))
        if max(len(hunk.before), len(hunk.after)) <= MAX_CHARACTERS
    ]
    if max(len(before), len(after)) <= MAX_CHARACTERS:
        parts.append((before, after))
    for old, new in sorted(parts, key=lambda part: len(part[0])):
        result = ensure_decided(*sandbox.apply_many(old, language, [action]))
        if result.verdict is Verdict.OK and tidied(old, result) == new:
            return Example(before=old, after=new, source=source)
    return None


def stays_of(
    text: str, lines: Sequence[int], action: PatternAction | RuleAction, language: Language, sandbox: Sandbox
) -> tuple[str, ...]:
    """Return the statements at `lines` (from 1) of `text` that `action` leaves as they are.

    Raises:
        SandboxError: the sandbox failed.
    """
    try:
        statements = [statement_at(text, language, line) for line in lines]
    except DataError:
        return ()
    short = list(dict.fromkeys(found for found in statements if found and len(found) <= MAX_CHARACTERS))
    results = [ensure_decided(*sandbox.apply_many(found, language, [action])) for found in short]
    return tuple(found for found, result in zip(short, results, strict=True) if result.verdict is Verdict.NO_MATCH)


def examples_tried(rule: FileRule, sandbox: Sandbox) -> Iterator[Outcome]:
    """Yield what every example of `rule`, and every text that it must leave, shows.

    Raises:
        SandboxError: the sandbox failed.
    """
    for number, example in enumerate(rule.examples, 1):
        result = ensure_decided(*sandbox.apply_many(example.before, rule.language, [rule.action]))
        text = tidied(example.before, result)
        detail = (
            "" if text == example.after else f"{result.verdict}: {result.error or _difference(text, example.after)}"
        )
        yield Outcome(rule.id, "example", number, not detail, detail)
    for number, staying in enumerate(rule.stays, 1):
        result = ensure_decided(*sandbox.apply_many(staying, rule.language, [rule.action]))
        text = tidied(staying, result)
        is_left = result.verdict in (Verdict.OK, Verdict.NO_MATCH) and text == staying
        detail = "" if is_left else f"{result.verdict}: {result.error or _difference(text, staying)}"
        yield Outcome(rule.id, "stays", number, is_left, detail)


def ast_grep_project(rules: Sequence[FileRule]) -> dict[str, str]:
    """Return the files, by their paths, of a project whose rules `ast-grep test --skip-snapshot-tests` tests.

    `invalid`, in its words, is what a rule finds something in: the texts before; `valid` what has to stay.
    """
    files = {"sgconfig.yml": "ruleDirs: [rules]\ntestConfigs:\n  - testDir: rule-tests\n"}
    for number, rule in enumerate(named(rules), 1):
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", rule.id).strip("-")[:80] or f"rule-{number}"
        name = f"{name}-{number}" if f"rules/{name}.yml" in files else name
        files[f"rules/{name}.yml"] = written([rule])
        tests = {"id": rule.id, "valid": list(rule.stays), "invalid": [example.before for example in rule.examples]}
        files[f"rule-tests/{name}-test.yml"] = f"{json.dumps(tests)}\n"
    return files


def _difference(text: str, wanted: str) -> str:
    """Return the first line in which two texts differ."""
    lines, wanted_lines = text.splitlines(), wanted.splitlines()
    for number in range(max(len(lines), len(wanted_lines))):
        one, other = "".join(lines[number : number + 1]), "".join(wanted_lines[number : number + 1])
        if one != other:
            return f"line {number + 1} is {one[:80]!r}, expected {other[:80]!r}"
    return "the texts differ in their line ends"
