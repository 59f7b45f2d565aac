"""Synthetic edits: template families filled with names of real snippets, so that the gold actions are known.

An edit inherits group, commit, license and therefore split of its snippet. Of the families about a fifth is held out
(`families.HELD_OUT`): none of their instances is in train. Which instances hold is judged by `apply`.
"""

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from graftline.astgrep.binding import Language, Tree, parse
from graftline.codemod.grammar import KEYWORDS
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.datasets.edit import Edit
from graftline.datasets.language import is_clean
from graftline.datasets.synthetic.apply import ActionSequence, apply_sequences
from graftline.datasets.synthetic.candidates import Candidate, CandidateFinder, Names, inverse_of, parts_of
from graftline.datasets.synthetic.families import FAMILIES, HELD_OUT
from graftline.datasets.synthetic.family import Site
from graftline.datasets.synthetic.sites import sites_in, words_of
from graftline.sandbox.base import Match, Sandbox

if TYPE_CHECKING:
    from graftline.datasets.splits import Split  # which needs numpy

_WORD = re.compile(r"\w+")
_BATCH = 16
"""Snippets that go to the sandbox together. How often a family was used counts from one batch to the next, so the edits
depend on this number, but not on the machine."""

_LEAST_READ = 200
"""Snippets that are read where fewer edits are wanted: new names come from all of them."""


LookAlike = Literal["same_name", "similar_name", "same_kind"]
"""What in a snippet looks like the places an action changes, and stays: the hard negatives of a task."""


@dataclass(frozen=True, slots=True)
class _Snippet:
    edit: Edit
    tree: Tree
    sites: Sequence[Site]
    words: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class _Instance:
    candidate: Candidate
    pre: str
    post: str
    alike: LookAlike | None


def synthesize(
    edits: Sequence[Edit],
    language: Language,
    count: int,
    seed: int,
    sandbox: Sandbox,
    split: "Split" = "train",
    per_snippet: int = 8,
    only: Collection[str] = (),
) -> Iterator[Edit]:
    """Yield at most `count` synthetic edits in `language` on the texts before of `edits`, `per_snippet` on each.

    They are instances of the templates in `only`, families and their inverses, or of all where it is empty. Texts of
    another language are taken where they parse in this one: so JavaScript becomes TypeScript. Snippets and families take
    turns, families that were used least and instances with a look-alike that must stay first.

    Raises:
        SandboxError: the sandbox failed.
    """
    rng = random.Random(digest([seed, language, split, [edit.id for edit in edits]]))
    sample = rng.sample(edits, min(len(edits), max(_LEAST_READ, count) if count else 0))
    snippets = [snippet for edit in sample if (snippet := _read_snippet(edit, language)) is not None]
    families = [family for family in FAMILIES if split != "train" or family.id not in HELD_OUT]
    families = [family for family in families if not only or {family.id, family.inverse} & {*only}]
    finder = CandidateFinder(families, language, Names(site for snippet in snippets for site in snippet.sites))
    ids: set[str] = set()
    used: Counter[str] = Counter()
    quota = min(per_snippet, -(-count // max(1, len(snippets))))
    while snippets and quota:
        for start in range(0, len(snippets), _BATCH):
            batch = snippets[start : start + _BATCH]
            for snippet, instances in zip(batch, _instances(batch, finder, seed, sandbox), strict=True):
                usable = [instance for instance in instances if not only or instance.candidate.template_id in only]
                fresh = [instance for instance in usable if _id(snippet, instance) not in ids]
                for instance in _choose(fresh, used, quota - (len(usable) - len(fresh)), rng):
                    if len(ids) == count:
                        return
                    ids.add(_id(snippet, instance))
                    yield _edit(snippet, instance, language, seed)
        # where too few families fit, the snippets in which more do make up for it
        quota = min(per_snippet, 2 * quota) if quota < per_snippet else 0


def _read_snippet(edit: Edit, language: Language) -> _Snippet | None:
    """Return what `edit` offers as a snippet of `language`; None where its text does not parse."""
    if not is_clean(edit.pre, language):
        return None
    try:
        tree = parse(edit.pre, language)
    except DataError:  # nested deeper than ast-grep may be asked to go
        return None
    return _Snippet(edit, tree, sites_in(tree), words_of(tree))


def _instances(
    batch: Sequence[_Snippet], finder: CandidateFinder, seed: int, sandbox: Sandbox
) -> list[list[_Instance]]:
    """Return the instances that hold on each snippet of `batch`, ways back included."""
    language = batch[0].tree.language
    generators = [random.Random(digest([seed, language, snippet.edit.id])) for snippet in batch]
    candidates = [
        (number, candidate)
        for number, (snippet, rng) in enumerate(zip(batch, generators, strict=True))
        for candidate in finder.candidates(snippet.edit.pre, [word for _, word in snippet.words], snippet.sites, rng)
    ]
    instances: list[list[_Instance]] = [[] for _ in batch]
    sequences = [ActionSequence(batch[number].edit.pre, candidate.actions) for number, candidate in candidates]
    ways_back: list[tuple[_Instance, int]] = []
    for (number, candidate), result in zip(candidates, apply_sequences(sequences, language, sandbox), strict=True):
        if result is None:
            continue
        snippet = batch[number]
        alike = _find_look_alike(snippet.tree, snippet.words, candidate.slots["name"], result.matches)
        instances[number].append(_Instance(candidate, snippet.edit.pre, result.post, alike))
        inverse = inverse_of(candidate, generators[number])
        if inverse is not None:
            # what is outside the places changed is the same on the way back, but nodes there may be of another kind
            alike = None if alike == "same_kind" else alike
            ways_back.append((_Instance(inverse, result.post, snippet.edit.pre, alike), number))
    sequences = [ActionSequence(instance.pre, instance.candidate.actions) for instance, _ in ways_back]
    for (instance, number), result in zip(ways_back, apply_sequences(sequences, language, sandbox), strict=True):
        if result is not None and result.post == instance.post:
            instances[number].append(instance)
    return instances


def _choose(instances: Sequence[_Instance], used: Counter[str], quota: int, rng: random.Random) -> Iterator[_Instance]:
    """Yield at most `quota` of `instances`: of families that were used least, and with a look-alike, first."""

    def cost(instance: _Instance) -> int:
        return used[instance.candidate.template_id] * (1 if instance.alike else 2) + (not instance.alike)

    waiting = rng.sample(instances, len(instances))
    while waiting and quota > 0:
        best = min(waiting, key=cost)
        waiting.remove(best)
        used[best.candidate.template_id] += 1
        quota -= 1
        yield best


def _id(snippet: _Snippet, instance: _Instance) -> str:
    candidate = instance.candidate
    # a way back starts from another text than the snippet's, with the same names
    facts = [snippet.edit.id, snippet.tree.language, candidate.template_id, dict(candidate.slots), instance.pre]
    return f"synthetic:{digest(facts)[:16]}"


def _edit(snippet: _Snippet, instance: _Instance, language: Language, seed: int) -> Edit:
    source, candidate = snippet.edit, instance.candidate
    tags = [
        "synthetic",
        f"template:{candidate.template_id}",
        f"templates:{'held_out' if candidate.family.id in HELD_OUT else 'trained'}",
        f"license:{source.license}",
        f"seed:{seed}",
    ]
    if instance.alike:
        tags.append(f"hard_negative:{instance.alike}")
    if source.language != language:
        tags.append(f"source_language:{source.language}")
    is_named = _names_what_is_new(candidate.instruction, instance.pre, instance.post, language)
    return Edit(
        instruction=candidate.instruction,
        pre=instance.pre,
        post=instance.post,
        language=language,
        tags=tuple(tags),
        instruction_source="rule",
        answerable=True if is_named else None,
        answerable_by="template" if is_named else None,
        id=_id(snippet, instance),
        dataset="synthetic_rules",
        license=source.license,
        group=source.group,
        aliases=source.aliases,
        commit=source.commit,
        other_commits=source.other_commits,
        origin=f"{candidate.template_id} on {source.id}, {source.origin}",
        gold_action=candidate.actions[0],
        gold_next=candidate.actions[1:],
    )


def _names_what_is_new(instruction: str, pre: str, post: str, language: Language) -> bool:
    """Return whether `instruction` names every word that only the text after has; which keyword is meant follows from it."""
    new = {*_WORD.findall(post)} - {*_WORD.findall(pre)} - KEYWORDS[language]
    return new <= {*_WORD.findall(instruction)}


def _find_look_alike(
    tree: Tree, words: Sequence[tuple[int, str]], name: str, matches: Sequence[Match]
) -> LookAlike | None:
    """Return the nearest look-alike in `tree` outside `matches`, None where there is none; `words` are all its identifiers.

    `same_name`: the name of the family stands elsewhere, as something else or in another shape. `similar_name`: a longer
    name holds all its words. `same_kind`: for a family without a name, a node of the kind that is changed.
    """
    if not name:
        return "same_kind" if _has_same_kind(tree, matches) else None
    outside = [word for at, word in words if not any(match.start <= at < match.end for match in matches)]
    if name in outside:
        return "same_name"
    parts = parts_of(name)
    if parts and any(len(longer := parts_of(word)) > len(parts) and {*parts} <= {*longer} for word in outside):
        return "similar_name"
    return None


def _has_same_kind(tree: Tree, matches: Sequence[Match]) -> bool:
    places = {(match.start, match.end) for match in matches}
    nodes = [node for node in tree.root.walk() if node.is_named]
    changed = {node.kind for node in nodes if (node.start, node.end) in places}
    return any(
        node.kind in changed and all(node.end <= match.start or node.start >= match.end for match in matches)
        for node in nodes
    )
