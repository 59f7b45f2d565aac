"""From examples that a person gives to the rules of a rule file; examples cut out of larger texts, and checked."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import canonicalize
from graftline.codemod.equality import Level, normalize_blank_lines
from graftline.codemod.hunks import UnitKind, find_statement, split_into_hunks
from graftline.codemod.induce import ScoredAction, Unsolved, induce
from graftline.codemod.induce_many import induce_many
from graftline.codemod.rule_file import Example, FileRule, assign_ids, format_rules
from graftline.codemod.source_files import SourceFile
from graftline.codemod.token_changes import find_contradictions
from graftline.core.errors import DataError
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided

MAX_CHARACTERS = 4_000
"""Of one side of an example."""
_MAX_EXAMPLES = 3
_MAX_UNCHANGED_CHARACTERS = 1_000

REASONS: dict[Unsolved, str] = {
    "": "solved",
    "unreadable": "a side is no valid Unicode, or is nested too deep; give a smaller part of it",
    "too_large": "a side is too long, or has too long a line, to be parsed; give the function that changes",
    "too_different": "more places differ than one edit has; give one change at a time",
    "no_candidate": "no rule makes any part of the change and leaves the rest as it is; give a smaller example",
    "partial": "the rules found make a part of the change, and none holds for what is left",
    "repeated": "a step led back to an earlier text; give a smaller example",
    "max_steps": "the change needs more steps than are taken; give a part of it",
}
"""Why examples are not solved."""


@dataclass(frozen=True, slots=True)
class LearnedRules:
    """Rules, and how far they lead."""

    rules: tuple[FileRule, ...]
    results: tuple[str, ...]
    """What becomes of each text before."""
    levels: tuple[Level, ...]
    unsolved: Unsolved
    """Why an example is not solved; empty where all are."""


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """What one example of a rule showed."""

    rule: str
    kind: Literal["example", "stays"]
    number: int
    passed: bool
    detail: str = ""
    """Why it did not pass."""


def learn_rules(
    pairs: Sequence[tuple[SourceFile, SourceFile]], unchanged: Sequence[SourceFile], sandbox: Sandbox
) -> LearnedRules:
    """Return the rules that lead from the first to the second of every pair and leave all of `unchanged` as they are.

    DataError if there is no pair, the two of one are equal, or the files are in several languages.
    """
    languages = sorted({file.language for file in (*(file for pair in pairs for file in pair), *unchanged)})
    if not pairs:
        raise DataError("examples: no two files differ; give a file before and the same file after")
    if len(languages) > 1:
        raise DataError(f"examples: are in {' and '.join(languages)}; give those of one language, or say --language")
    for before, after in pairs:
        if before.text == after.text:
            raise DataError(
                f"{before.path} and {after.path}: are equal; expected a change from the first to the second"
            )
    language, texts = languages[0], [(before.text, after.text) for before, after in pairs]
    if len(pairs) == 1 and not unchanged:
        induction = induce(*texts[0], language, sandbox)
        rejected_lines = [[action.line for action in step.rejected] for step in induction.steps]
        rules = _make_rules([step.chosen for step in induction.steps], pairs, rejected_lines, (), language, sandbox)
        return LearnedRules(rules, (induction.result,), (induction.level,), induction.unsolved)
    shared = induce_many(texts, language, sandbox, [file.text for file in unchanged])
    rules = _make_rules(shared.actions, pairs, [], unchanged, language, sandbox)
    cause: Unsolved = "" if shared.is_verified else "partial" if rules else "no_candidate"
    edits = ((str(before.path), before.text, after.text) for before, after in pairs)
    if cause and (contradictions := find_contradictions(edits)):
        raise DataError(f"examples: contradict each other: {'; '.join(contradictions)}; give one of them at a time")
    return LearnedRules(rules, shared.results, shared.levels, cause)


def _make_rules(
    actions: Sequence[ScoredAction],
    pairs: Sequence[tuple[SourceFile, SourceFile]],
    rejected_lines: Sequence[Sequence[int]],
    unchanged: Sequence[SourceFile],
    language: Language,
    sandbox: Sandbox,
) -> tuple[FileRule, ...]:
    """Return `actions` as rules, each with examples from the texts as those before it left them."""
    texts = [before.text for before, _ in pairs]
    short = tuple(file.text for file in unchanged if len(file.text) <= _MAX_UNCHANGED_CHARACTERS)
    rules = []
    for number, scored in enumerate(actions):
        action = canonicalize(scored.action)
        stays = (
            extract_unchanged(texts[0], rejected_lines[number], action, language, sandbox) if rejected_lines else short
        )
        examples, places = list[Example](), 0
        for index, (before, _) in enumerate(pairs):
            result = ensure_decided(*sandbox.apply_many(texts[index], language, [action]))
            places += len(result.matches)
            text = normalize_blank_lines(texts[index], result)
            if text != texts[index] and len(examples) < _MAX_EXAMPLES:
                example = extract_example(texts[index], text, action, language, sandbox, before.path.name)
                examples += [example] if example else []
            texts[index] = text
        facts = {
            "general": scored.is_general,
            "variables": scored.variables,
            "places": places,
            "background": scored.background,
        }
        rules.append(FileRule(action, language, examples=tuple(examples), stays=stays, facts=facts))
    return tuple(assign_ids(rules))


def extract_example(
    before: str, after: str, action: PatternAction | RuleAction, language: Language, sandbox: Sandbox, source: str = ""
) -> Example | None:
    """Return the smallest part of the change from `before` to `after` that `action` makes just so; None without one."""
    units: tuple[UnitKind, ...] = ("statement", "function")
    hunks = [hunk for unit in units for hunk in split_into_hunks(before, after, language, (unit,))]
    parts = [*((hunk.before, hunk.after) for hunk in hunks), (before, after)]
    short = [part for part in parts if max(map(len, part)) <= MAX_CHARACTERS]
    for old, new in sorted(short, key=lambda part: len(part[0])):
        result = ensure_decided(*sandbox.apply_many(old, language, [action]))
        if result.verdict is Verdict.OK and normalize_blank_lines(old, result) == new:
            return Example(before=old, after=new, source=source)
    return None


def extract_unchanged(
    text: str, lines: Sequence[int], action: PatternAction | RuleAction, language: Language, sandbox: Sandbox
) -> tuple[str, ...]:
    """Return the statements at `lines` (from 1) of `text` that `action` leaves as they are."""
    try:
        statements = [find_statement(text, language, line) for line in lines]
    except DataError:
        return ()
    short = list(dict.fromkeys(statement for statement in statements if statement and len(statement) <= MAX_CHARACTERS))
    results = [ensure_decided(*sandbox.apply_many(statement, language, [action])) for statement in short]
    pairs = zip(short, results, strict=True)
    return tuple(statement for statement, result in pairs if result.verdict is Verdict.NO_MATCH)


def check_examples(rule: FileRule, sandbox: Sandbox) -> Iterator[ExampleResult]:
    """Yield what every example of `rule`, and every text that it must leave, shows."""
    examples = [(example.before, example.after) for example in rule.examples]
    cases: dict[Literal["example", "stays"], list[tuple[str, str]]] = {
        "example": examples,
        "stays": [(text, text) for text in rule.stays],
    }
    for kind in cases:
        for number, (before, after) in enumerate(cases[kind], 1):
            result = ensure_decided(*sandbox.apply_many(before, rule.language, [rule.action]))
            text = normalize_blank_lines(before, result)
            passed = text == after and (kind == "example" or result.verdict in (Verdict.OK, Verdict.NO_MATCH))
            detail = "" if passed else f"{result.verdict}: {result.error or _first_difference(text, after)}"
            yield ExampleResult(rule.id, kind, number, passed, detail)


def ast_grep_project(rules: Sequence[FileRule]) -> dict[str, str]:
    """Return the files, by their paths, of a project whose rules `ast-grep test --skip-snapshot-tests` tests.

    `invalid`, in its words, is what a rule finds something in: the texts before; `valid` what has to stay.
    """
    files = {"sgconfig.yml": "ruleDirs: [rules]\ntestConfigs:\n  - testDir: rule-tests\n"}
    for number, rule in enumerate(assign_ids(rules), 1):
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", rule.id).strip("-")[:80] or f"rule-{number}"
        name = f"{name}-{number}" if f"rules/{name}.yml" in files else name
        files[f"rules/{name}.yml"] = format_rules([rule])
        tests = {"id": rule.id, "valid": list(rule.stays), "invalid": [example.before for example in rule.examples]}
        files[f"rule-tests/{name}-test.yml"] = f"{json.dumps(tests)}\n"
    return files


def _first_difference(text: str, target: str) -> str:
    """Return the first line in which two texts differ."""
    lines, target_lines = text.splitlines(), target.splitlines()
    for number in range(max(len(lines), len(target_lines))):
        line, expected = "".join(lines[number : number + 1]), "".join(target_lines[number : number + 1])
        if line != expected:
            return f"line {number + 1} is {line[:80]!r}, expected {expected[:80]!r}"
    return "the texts differ in their line ends"
