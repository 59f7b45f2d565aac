"""Proposes changes of a prompt without a language model, from what its rollouts came to.

Two things help small models most, and both can be read off rollouts: an answer that was right, shown with its question, and
what went wrong most often, said beforehand. Each proposal adds one of them, or takes one away again; which one depends on the
text, the rollouts and the number of the wish alone, so that the same wish has the same answer.
"""

import re
from collections import Counter
from collections.abc import Sequence

from graftline.core.hashing import sha256_text
from graftline.prompts.candidates import names_in
from graftline.prompts.proposals import Proposal, Reflection, Wish

EXAMPLES, MISTAKES = "Solved examples:", "Common mistakes, and how to avoid them:"
"""The headings under which something is added, at the end of the text."""
_MOST_OF_EACH = 4
_MOST_CHARACTERS = 600
"""Of one example: a prompt that grows with every change is soon longer than the context."""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'")
_NUMBERS = re.compile(r"\b\d+\b")
_RIGHT = 1.0


class OfflineProposer:
    """Deterministic; asks nobody."""

    name = "offline"

    def check(self) -> None:
        return

    def propose(self, wish: Wish) -> Proposal:
        changes = _changes(wish)
        if not changes:
            return Proposal(wish.text, "nothing to add")
        # of equal standing: who wishes again gets the next one, who wishes of another text another order
        start = int(sha256_text(wish.text)[:8], 16) if wish.number else 0
        return changes[(start + wish.number) % len(changes)]


def _changes(wish: Wish) -> list[Proposal]:
    """Return all changes there are, the most promising first, without any that leaves the text as it is."""
    own, examples, mistakes = _divided(wish.text)
    found = []
    new = [text for text in _solved(wish.reflections) if text not in examples and not names_in(text)]
    faults = [text for text in _faults(wish.reflections) if text not in mistakes and not names_in(text)]
    if faults:
        added = [*mistakes, *faults[:2]][-_MOST_OF_EACH:]
        found.append(Proposal(_joined(own, examples, added), "common mistakes said beforehand"))
    for example in new[:2]:
        added = [*examples, example][-_MOST_OF_EACH:]
        found.append(Proposal(_joined(own, added, mistakes), "a solved example shown"))
    if faults and new:
        both = _joined(own, [*examples, new[0]][-_MOST_OF_EACH:], [*mistakes, faults[0]][-_MOST_OF_EACH:])
        found.append(Proposal(both, "a solved example and a common mistake"))
    if examples:
        found.append(Proposal(_joined(own, examples[1:], mistakes), "an example taken away"))
    if mistakes:
        found.append(Proposal(_joined(own, examples, mistakes[1:]), "a mistake taken away"))
    return [one for one in found if one.text != wish.text]


def _solved(reflections: Sequence[Reflection]) -> list[str]:
    """Return the answers that were right, each with its question, the shortest first."""
    found = []
    for one in reflections:
        inputs, output = one.said.get("inputs", {}), str(one.said.get("output", "")).strip()
        if one.reward < _RIGHT or not output or not inputs:
            continue
        asked = "\n".join(str(inputs[key]) for key in ("instruction", "text") if key in inputs)
        text = f"Asked: {asked.strip()}\nAnswer: {output}"
        if len(text) <= _MOST_CHARACTERS:
            found.append(text)
    return sorted(set(found), key=lambda text: (len(text), text))


def _faults(reflections: Sequence[Reflection]) -> list[str]:
    """Return what was said of those that failed, the most common first; what is the same but for quotations counts once."""
    counted: Counter[str] = Counter()
    shown: dict[str, str] = {}
    for one in reflections:
        said = " ".join(str(one.said.get("feedback", "")).split())
        if one.reward >= _RIGHT or not said:
            continue
        kind = _NUMBERS.sub("0", _QUOTED.sub("", said))
        counted[kind] += 1
        shown[kind] = min(shown.get(kind, said), said, key=lambda text: (len(text), text))
    order = sorted(counted, key=lambda kind: (-counted[kind], kind))
    return [shown[kind][: _MOST_CHARACTERS // 2] for kind in order]


def _divided(text: str) -> tuple[str, list[str], list[str]]:
    """Return the text without what was added, the examples, and the mistakes."""
    own, _, rest = text.partition(f"\n\n{MISTAKES}\n")
    own, _, examples = own.partition(f"\n\n{EXAMPLES}\n\n")
    mistakes = [line.removeprefix("- ") for line in rest.strip().split("\n") if line.startswith("- ")]
    return own, [one for one in examples.strip().split("\n\n") if one], mistakes


def _joined(own: str, examples: Sequence[str], mistakes: Sequence[str]) -> str:
    """Return a text that `_divided` takes apart again."""
    said = own
    if examples:
        # an empty line would end the example
        said += f"\n\n{EXAMPLES}\n\n" + "\n\n".join(re.sub(r"\n\s*\n", "\n", one) for one in examples)
    if mistakes:
        said += f"\n\n{MISTAKES}\n" + "\n".join(f"- {one}" for one in mistakes)
    return said
