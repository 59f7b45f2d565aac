"""How alike two actions are as texts: a number beside the outcome of an action, and never in its place.

SRL (https://arxiv.org/abs/2510.25992) rewards an action by 2M/T, M being the characters in the blocks that match those of
the expert's and T those of both, as `difflib.SequenceMatcher` counts them. Deviations:

1. Actions are compared in a canonical form, so that neither the names of metavariables nor blanks nor the order of
   keys count.
2. `autojunk` is off: it would leave out the commonest characters of texts of 200 characters or more.
3. The nearest of several right actions counts, for an edit has more than one.

SRL's -1 for an answer that cannot be read is `trajectories.reward.rl_reward`'s. On ast-grep actions this similarity does
not tell right from wrong ones: a rule that matches too much differs from the gold by a word.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.canonical import canonical_text

MAX_COMPARED_CHARACTERS = 4_000
"""Of one canonical form; matching takes time in the square of it."""


def srl(action: PatternAction | RuleAction, golds: Sequence[PatternAction | RuleAction]) -> float | None:
    """Return the similarity of `action` to the nearest of `golds`, from 0 to 1; None where it cannot be told.

    It cannot where there is no gold, or a canonical form is longer than `MAX_COMPARED_CHARACTERS`.
    """
    forms = [canonical_text(gold) for gold in golds]
    own = canonical_text(action)
    if own in forms:
        return 1.0
    if not forms or max(map(len, (own, *forms))) > MAX_COMPARED_CHARACTERS:
        return None
    return round(max(SequenceMatcher(None, own, form, autojunk=False).ratio() for form in forms), 6)
