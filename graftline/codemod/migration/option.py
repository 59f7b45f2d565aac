"""One or more rules that may stand for an edit, with what they quote and write."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.candidates import action_of
from graftline.codemod.canonical import list_required_words
from graftline.codemod.change import Change, Region, column, dedent
from graftline.codemod.diff import apply_sites
from graftline.codemod.grammar import KEYWORDS

Rule = PatternAction | RuleAction

MAX_QUOTED = 160
"""Characters of code that a rule quotes whole."""
KEYWORD_WORDS = frozenset[str]().union(*KEYWORDS.values())
NAME = re.compile(r"[^\W\d][\w$]*")
WORDS = re.compile(r"[^\W\d]\w*")
_OF_RULES = frozenset(("None", "template", "expandStart", "expandEnd", "kind", "pattern"))
"""Words of rules, not of code."""


@dataclass(frozen=True, slots=True)
class Option:
    """Rules that make one edit, applied one after the other."""

    actions: tuple[Rule, ...]
    kind: str
    """How they were made: `name`, `affix`, `text`, `shape`, `condition`, `insert`, `delete`, `brackets`, `modifier` or
    `example`."""
    context: str
    """How much they say of what stands around: `any`, `kind`, `role`, `neighbor`, `second`, `aunt`, `text`, `module`,
    `last` or `form`."""
    words: frozenset[str]
    """Words that a text must have for one of them to match in it."""
    parts: frozenset[str] = frozenset()
    """What it must have beside that, be it within words."""
    support: int = 1
    """Places of the edits shown that they put right."""
    contradictions: int = 0
    """Places there that they would change otherwise."""
    missed: int = 0
    """Edits shown that others of the same edit make, and they do not."""
    loses_parts: bool = False
    """Whether the edits shown lose code that they neither quote nor capture (`lost_parts`)."""

    @property
    def written(self) -> frozenset[str]:
        """Words that they write."""
        texts = (
            str(part) for action in self.actions for part in (rule_of(action)["fix"], rule_of(action).get("transform"))
        )
        return frozenset(WORDS.findall(VARIABLE.sub(" ", " ".join(texts))))

    @property
    def rewrites_lines(self) -> bool:
        """Whether they write several lines."""
        return any(str(rule_of(action)["fix"]).count("\n") > 1 for action in self.actions)

    @property
    def guesses(self) -> bool:
        """Whether one of them takes away what it does not quote: writing new words for it, or quoting no word."""
        for action in self.actions:
            rule = rule_of(action)
            pattern, fix = str(rule["rule"]), str((rule["fix"], rule.get("transform")))
            if {*VARIABLE.findall(pattern)} - {*VARIABLE.findall(fix)} - {"$WHOLE"}:
                words = [{*WORDS.findall(VARIABLE.sub(" ", text))} for text in (pattern, fix)]
                if words[1] - words[0] - _OF_RULES or not self.words:
                    return True
        return False

    @property
    def renamed(self) -> tuple[str, str] | None:
        """The one name that they put in the place of another; None where there are several."""
        gone, come = (side - KEYWORD_WORDS for side in (self.words - self.written, self.written - self.words))
        return (min(gone), min(come)) if len(gone) == len(come) == 1 else None


def make_option(
    rule: dict[str, Any], fix: str, kind: str, context: str, language: Language, quoted: str = ""
) -> Option:
    """Return the option of one rule that quotes `quoted`."""
    action = action_of(rule, fix) if not VARIABLE.search(quoted) else RuleAction(rule=rule, fix=fix)
    words = frozenset(WORDS.findall(quoted)) if "\\" not in quoted else frozenset()
    return Option((action,), kind, context, words | list_required_words(action, language))


def transform_rule(rule: dict[str, Any], edits: Sequence[tuple[str, str]]) -> RuleAction:
    """Return the rule that replaces regular expressions in the text of its match."""
    transform: dict[str, Any] = {}
    source = "$WHOLE"
    for number, (regex, by) in enumerate(edits):
        transform[f"T{number}"] = {"replace": {"source": source, "replace": regex, "by": by}}
        source = f"$T{number}"
    return RuleAction(rule={"pattern": "$WHOLE", **rule}, fix=source, transform=transform)


def new_text_of(change: Change, region: Region) -> str | None:
    """Return what becomes of a region, moved to the margin of its first line; None where a site is cut in two."""
    inside = change.inside(region.start, region.end)
    if not inside:
        return None
    text = apply_sites(change.before.text, [site for _, site in inside], region.start, region.end)
    return dedent(text, column(change.before.text, region.start))


def common_words(actions: Sequence[Rule], language: Language) -> frozenset[str]:
    """Return the words that a text must have for any of the rules to match in it."""
    return frozenset.intersection(*(list_required_words(action, language) for action in actions))
