"""Code that was not shown, for tasks whose right action is known: what the action makes of it is what counts as right.

An action that repeats its example solves the task and nothing else; this tells the two apart.
"""

import random
from collections.abc import Mapping, Sequence

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.core.hashing import digest
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic.fillings import filling
from graftline.datasets.synthetic.trial import Trial, outcomes
from graftline.datasets.synthetic.words import read_tree, words_in
from graftline.evals.cases import Case, Unseen
from graftline.sandbox.base import Sandbox

_SITES = 2


def with_unseen(cases: Sequence[Case], edits: Mapping[Language, Sequence[Edit]], sandbox: Sandbox) -> list[Case]:
    """Return `cases`, those of one pattern with code in which it matches, put together of words of `edits` in its language.

    Cases for which no such code can be made stay as they are.

    Raises:
        SandboxError: the sandbox failed.
    """
    found = {case.id: case for case in cases}
    for language in dict.fromkeys(case.task.language for case in cases):
        trees = (tree for edit in edits[language] if (tree := read_tree(edit, language)) is not None)
        words, asked = words_in(trees), list[tuple[Case, Trial]]()
        for case in cases:
            action = case.task.gold_action
            if case.task.language != language or not isinstance(action, PatternAction) or action.selector:
                continue
            text = filling(action.pattern, False, language, _SITES, words, random.Random(digest(["unseen", case.id])))
            if text is not None:
                asked.append((case, Trial(text, (action,))))
        for (case, trial), outcome in zip(
            asked, outcomes([trial for _, trial in asked], language, sandbox), strict=True
        ):
            if outcome is not None:
                unseen = Unseen(pre=trial.text, post=outcome.post)
                found[case.id] = case.model_copy(update={"unseen": unseen})
    return [*found.values()]
