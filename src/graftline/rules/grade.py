"""What one action achieved, as separate fields; how they are blended into one number is `trajectories.reward`'s.

`level` says how equal the text is to the wanted one. `progress` is 1 - cost(diff(text, wanted)) / cost(diff(before,
wanted)), clipped to [0, 1], the cost of a difference being the tokens it removes and adds: the outcome measure that
SWE-RL (https://arxiv.org/abs/2502.18449) takes on patches, here on trees. Similarity of the action's own text to a
gold action is no measure of right and wrong and not here.
"""

import re
from dataclasses import dataclass

from graftline.actions.action import PatternAction, RuleAction
from graftline.actions.astgrep import Language, parse
from graftline.rules.anti_unify import VARIABLE
from graftline.rules.diff import differences
from graftline.rules.equality import Level, equality

_TOKEN = re.compile(r"\w+|[^\s\w]")


@dataclass(frozen=True, slots=True)
class Grade:
    """The measures of a text on its way from `before` to `wanted`."""

    level: Level
    progress: float

    @property
    def is_verified(self) -> bool:
        """Whether the text counts as the wanted one."""
        return self.level.is_verified


def grade(before: str, text: str, wanted: str, language: Language) -> Grade:
    """Return how far `text` came from `before` towards `wanted`.

    Raises:
        DataError: one of the three cannot be parsed at all.
    """
    level = equality(text, wanted, language)
    if level.is_verified:
        return Grade(level, 1.0)
    whole = difference_cost(before, wanted, language)
    progress = 1 - difference_cost(text, wanted, language) / whole if whole else 0.0
    progress = round(min(1.0, max(0.0, progress)), 6)
    return Grade(Level.PARTIAL if progress > 0 else Level.NONE, progress)


def difference_cost(before: str, after: str, language: Language) -> int:
    """Return the tokens that have to be removed and added to make `after` from `before`."""
    sites = differences(parse(before, language), parse(after, language))
    return sum(len(_TOKEN.findall(before[site.start : site.end])) + len(_TOKEN.findall(site.text)) for site in sites)


def is_general(action: PatternAction | RuleAction) -> bool:
    """Return whether `action` leaves something free, so that it can match more than the text it was made for."""
    if isinstance(action, PatternAction):
        return bool(VARIABLE.search(action.pattern))
    free = set(VARIABLE.findall(str(action.rule)))
    # a rule that captures itself whole, to keep what it stands beside, frees nothing by that
    return bool(free - {action.rule.get("pattern")})
