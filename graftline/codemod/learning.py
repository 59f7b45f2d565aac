"""From examples that a person gives to the rules of a rule file, with what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.binding import Language
from graftline.codemod.canonical import canonical
from graftline.codemod.equality import Level
from graftline.codemod.examples import example_of, stays_of
from graftline.codemod.induce import induce
from graftline.codemod.induce_many import induce_many
from graftline.codemod.induction import Scored, Unsolved
from graftline.codemod.rule_file import Example, FileRule, named
from graftline.codemod.source_files import SourceFile
from graftline.codemod.tidy import tidied
from graftline.core.errors import DataError
from graftline.sandbox.base import Sandbox, ensure_decided

_MAX_EXAMPLES = 3
_MAX_STAYING_CHARACTERS = 1_000

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
class Learned:
    """Rules, and how far they lead."""

    rules: tuple[FileRule, ...]
    results: tuple[str, ...]
    """What becomes of each text before."""
    levels: tuple[Level, ...]
    unsolved: Unsolved
    """Why an example is not solved; empty where all are."""


def learned(pairs: Sequence[tuple[SourceFile, SourceFile]], kept: Sequence[SourceFile], sandbox: Sandbox) -> Learned:
    """Return the rules that lead from the first to the second of every pair and leave all of `kept` as they are.

    Raises:
        DataError: there is no pair, the two of one are equal, or the files are in several languages.
        SandboxError: the sandbox failed.
    """
    languages = sorted({file.language for file in (*(file for pair in pairs for file in pair), *kept)})
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
    if len(pairs) == 1 and not kept:
        found = induce(*texts[0], language, sandbox)
        rejected = [[wrong.line for wrong in step.rejected] for step in found.steps]
        rules = _rules([step.chosen for step in found.steps], pairs, rejected, kept, language, sandbox)
        return Learned(rules, (found.result,), (found.level,), found.unsolved)
    shared = induce_many(texts, language, sandbox, [file.text for file in kept])
    rules = _rules(shared.actions, pairs, [], kept, language, sandbox)
    cause: Unsolved = "" if shared.is_verified else "partial" if rules else "no_candidate"
    return Learned(rules, shared.results, shared.levels, cause)


def _rules(
    actions: Sequence[Scored],
    pairs: Sequence[tuple[SourceFile, SourceFile]],
    rejected: Sequence[Sequence[int]],
    kept: Sequence[SourceFile],
    language: Language,
    sandbox: Sandbox,
) -> tuple[FileRule, ...]:
    """Return `actions` as rules, each with examples from the texts as those before it left them."""
    texts = [before.text for before, _ in pairs]
    staying = tuple(file.text for file in kept if len(file.text) <= _MAX_STAYING_CHARACTERS)
    rules = []
    for number, scored in enumerate(actions):
        action = canonical(scored.action)
        examples: list[Example] = []
        stays = stays_of(texts[0], rejected[number], action, language, sandbox) if rejected else staying
        for index, (before, _) in enumerate(pairs):
            text = tidied(texts[index], ensure_decided(*sandbox.apply_many(texts[index], language, [action])))
            if text != texts[index] and len(examples) < _MAX_EXAMPLES:
                found = example_of(texts[index], text, action, language, sandbox, before.path.name)
                examples += [found] if found else []
            texts[index] = text
        facts = {
            "general": scored.is_general,
            "variables": scored.variables,
            "places": scored.sites,
            "background": scored.background,
        }
        rules.append(FileRule(action, language, examples=tuple(examples), stays=stays, facts=facts))
    return tuple(named(rules))
