"""What an edit asks for, in words from which it can be done again: that a reader does so is what makes it an instruction."""

from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts
from graftline.codemod.induce import InductionConfig, induce
from graftline.codemod.instructions.plan import plan_operations, shorten_operations
from graftline.codemod.instructions.wording import Wording, read_instruction, word_operations
from graftline.core.errors import DataError
from graftline.sandbox.base import Sandbox

MAX_CHARACTERS = 2000
"""Of an instruction: what is longer is the text after, and no request for it."""


def describe_edit(
    before: str,
    after: str,
    language: Language,
    seed: str,
    sandbox: Sandbox,
    config: InductionConfig | None = None,
) -> list[Wording]:
    """Return instructions that ask for the edit from `before` to `after`, in full and lazy; those that a reader can follow.

    They quote names and values that the edit introduces, and nothing else that only the text after has. The same texts and the
    same `seed` give the same words; another seed gives other words that ask for the same. There are none where induction does not
    solve the edit, or it takes too many words.
    """
    induction = induce(before, after, language, sandbox, config)
    if not induction.is_verified:
        return []
    operations = plan_operations(before, after, language, induction.steps, sandbox)
    if operations is None:
        return []
    short = shorten_operations(operations, before, language, sandbox)
    wordings = word_operations(operations, short, before, language, seed) or []
    return [
        wording
        for wording in wordings
        if len(wording.text) <= MAX_CHARACTERS and is_answerable(wording.text, before, after, language, sandbox)
    ]


def is_answerable(instruction: str, before: str, after: str, language: Language, sandbox: Sandbox) -> bool:
    """Return whether the edit can be done from the instruction and the text before, by the reader of our own sentences."""
    result = read_instruction(instruction, before, language, sandbox)
    try:
        return result is not None and compare_texts(result, after, language).is_verified
    except DataError:
        return False
