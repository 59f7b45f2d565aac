"""Rules that the history of a repository repeats.

    1  every change of a file is split into small ones                                             (`codemod.hunks`)
    2  rules are induced from each of them, and from those that remove and add the same words      (`mining.pairs`)
    3  rules that mean the same become one; those about imports, layout or one place are left out  (`mining.subjects`)
    4  each is tried on both texts of every small change: what it makes of the text before was made by people, or was
       not; what it would make of the text after was not. Before the first of them did so, it was how one wrote
    5  those that hold often enough, and now and then finish a line that people changed, are tried on the files of the
       newest commit: what they would still change there, nobody changed                            (`mining.trial`)
    6  what names something that one file alone has is left out, unless several files had it; of rules that differ only in
       arguments or parameters that they leave as they are, one stays: that with variables for them if it holds as surely,
       else the commonest if it stands for many of them
    7  of those that remain, the ones that explain most are kept, until the rest explains nothing new; who makes the same
       edit as another one and says more of where is left out

Imports have no rules: what is imported follows from what is used.

Revisar (https://arxiv.org/abs/1803.03806) and Getafix (https://arxiv.org/abs/1902.06111) cluster edits by how they
anti-unify; here rules are compared by what they do to all edits.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from graftline.astgrep.action import ACTION, PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.canonical import key_of, list_required_words, words_of
from graftline.codemod.cost import description_length, is_general
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.learn import extract_example
from graftline.codemod.mining.pairs import CollectedPairs, KeyedAction, Pair
from graftline.codemod.mining.subjects import (
    Edit,
    free_arguments,
    is_half,
    is_of_imports,
    is_of_layout,
    is_of_one_place,
    is_own_member,
    name_removed_kind,
    read_edit,
    replaces_common_word,
)
from graftline.codemod.mining.trial import MiningConfig, Support, Trial
from graftline.codemod.rule_file import Example, FileRule
from graftline.codemod.source_files import SourceFile
from graftline.core.hashing import canonical_json
from graftline.sandbox.base import Sandbox, ensure_decided

_Key = tuple[Language, str]
_MAX_CANDIDATES = 3_000
_MAX_EXAMPLES = 3
_FEW_FILES = 2
_MAX_FAMILY = 4
"""Edits of rules that differ in arguments alone, for each edit of the commonest: with more, it stands for few of them."""
_FIRST_PART = 16
"""Candidates that are tried first where time is short."""


@dataclass(frozen=True, slots=True)
class MinedRules:
    """What a history came to."""

    rules: tuple[FileRule, ...]
    """The one that explains most first."""
    pairs: int
    candidates: int


def mine_rules(
    collected: CollectedPairs,
    config: MiningConfig,
    sandbox: Sandbox,
    newest: Sequence[SourceFile] = (),
    advance: Callable[[int, int], None] = lambda done, total: None,
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> MinedRules:
    """Return the rules that small changes have in common; what they would change in the `newest` files speaks against them.

    `advance` is called with the small changes and files that every rule was tried on, and with their number. With
    `time_limit_s`, what is tried is as many rules as there is time for, the commonest first.
    """
    start, pairs = clock(), collected.pairs
    candidates = list(islice(_gather_candidates(collected), _MAX_CANDIDATES))
    trial = Trial(pairs, newest, config, sandbox)
    supports, first, size = list[Support](), 0, _FIRST_PART if time_limit_s else max(1, len(candidates))
    while first < len(candidates):
        began = clock()
        supports += trial.run(candidates[first : first + size], advance)
        first, size = first + size, 2 * size
        # the next part is twice as large
        if time_limit_s and clock() + 2 * (clock() - began) > start + time_limit_s:
            break
    weighed = [replace(support, background=_count_hits(support)) for support in supports]
    families = _leave_out_copies(_leave_out_local(weighed, pairs, newest))
    rules = []
    explained: set[tuple[int, int]] = set()
    edits = list[tuple[Language, Edit]]()
    for support, places in sorted(families, key=lambda family: family[0].rank):
        news = support.right - explained
        edit = read_edit(support.action, support.language)
        is_copy = any(language == support.language and own.is_part_of(edit) for language, own in edits)
        if (
            len({pair for pair, _ in news}) >= config.min_support
            and 2 * len(news) >= len(support.right)
            and not is_copy
        ):
            explained |= places
            edits.append((support.language, edit))
            rules.append(_make_rule(support, pairs, sandbox))
        if time_limit_s and clock() > start + 2 * time_limit_s:
            break
    return MinedRules(tuple(rules), len(pairs), min(first, len(candidates)))


def _count_hits(support: Support) -> int:
    words = list_required_words(support.action, support.language)
    return background.hits(rule_of(support.action), support.language, words)


def _leave_out_local(supports: Sequence[Support], pairs: Sequence[Pair], newest: Sequence[SourceFile]) -> list[Support]:
    """Return the rules without those of one file that are about a member of `self`, or a name that no other file has.

    Nor those of one commit and few files that put a name in the place of what the language has: `None` is many things.
    """
    edits = [read_edit(support.action, support.language) for support in supports]
    names = [{word for word in edit.quoted | set(edit.gained) if word.isidentifier()} for edit in edits]
    all_names = frozenset[str]().union(*names)
    paths = defaultdict[str, set[str]](set)
    for path, text in (
        *((pair.path, side) for pair in pairs for side in (pair.before, pair.after)),
        *((file.path.as_posix(), file.text) for file in newest),
    ):
        for word in words_of(text) & all_names:
            paths[word].add(path)
    return [
        support
        for support, own in zip(supports, names, strict=True)
        if (support.files > 1 or (not is_own_member(support.action) and all(len(paths[name]) > 1 for name in own)))
        and not (
            support.commits == 1
            and support.files <= _FEW_FILES
            and replaces_common_word(support.action, support.language)
        )
    ]


def _leave_out_copies(supports: Iterable[Support]) -> Iterator[tuple[Support, frozenset[tuple[int, int]]]]:
    """Yield one of the rules that differ only in arguments that they leave as they are: the general one if it is as sure.

    Beside it stands where any of them is right: what holds there, or makes half of such an edit, is no news.
    """
    families = defaultdict[_Key, list[Support]](list)
    for support in supports:
        shape = free_arguments(support.action, support.language)
        families[support.language, key_of(shape or support.action)].append(support)
    for (_, key), family in families.items():
        family.sort(key=lambda support: support.rank)
        general = next((support for support in family if _frees_all(support.action, key)), None)
        special = next((support for support in family if not _frees_all(support.action, key)), None)
        right = frozenset[tuple[int, int]]().union(*(support.right for support in family))
        if general and (special is None or general.surety >= special.surety):
            yield general, right
        elif special and len(right) <= _MAX_FAMILY * len(special.right):
            yield special, right


def _frees_all(action: PatternAction | RuleAction, key: str) -> bool:
    """Return whether all arguments that a rule leaves as they are, are variables; `key` is that of the rule where they are."""
    if isinstance(action, PatternAction):
        pattern, rewrite = (
            text.strip().removesuffix(";").replace("$$$", "$") for text in (action.pattern, action.rewrite)
        )
        action = action.model_copy(update={"pattern": pattern, "rewrite": rewrite})
    return key_of(action) == key


def _gather_candidates(collected: CollectedPairs) -> Iterator[KeyedAction]:
    """Yield what may hold in more than one pair, commonest first."""
    counts: Counter[_Key] = Counter()
    actions: dict[_Key, PatternAction | RuleAction] = {}
    own = ((pair.language, action) for pair in collected.pairs for action in pair.actions)
    for language, action in (*own, *collected.shared):
        key = language, canonical_json(action.model_dump())  # they are canonical already
        counts[key] += 1
        actions[key] = action
    for shape, members in _gather_shapes(actions).items():
        counts[shape] = max(counts[shape], sum(counts[member] for member in members))
        actions[shape] = ACTION.validate_python(json.loads(shape[1]))
    repeated = [key for key in actions if counts[key] > 1 or is_general(actions[key])]
    repeated.sort(key=lambda key: (-counts[key], description_length(actions[key]), key))
    for language, name in repeated:
        action = actions[language, name]
        is_part = is_half(action, language) or is_of_one_place(action, language)
        if not (is_of_imports(action) or is_of_layout(action) or is_part):
            yield language, action


def _gather_shapes(actions: Mapping[_Key, PatternAction | RuleAction]) -> dict[_Key, list[_Key]]:
    """Return what several rules become with variables for the arguments that they leave as they are, and which these are."""
    shapes = defaultdict[_Key, list[_Key]](list)
    for key, action in actions.items():
        free = (free_arguments(action, key[0], frees_receivers) for frees_receivers in (True, False))
        for shape in sorted({canonical_json(shape.model_dump()) for shape in free if shape}):
            shapes[key[0], shape].append(key)
    return {shape: members for shape, members in shapes.items() if len(members) > 1}


def _make_rule(support: Support, all_pairs: Sequence[Pair], sandbox: Sandbox) -> FileRule:
    pairs = [all_pairs[index] for index in sorted(support.pairs)]
    counts = {
        "changes": len(pairs),
        "places": support.places,
        "commits": len({pair.commit for pair in pairs}),
        "files": len({pair.path for pair in pairs}),
        "contradictions": support.contradictions,
    }
    facts = {"general": is_general(support.action), "support": counts, "background": support.background}
    if removed := name_removed_kind(support.action):
        facts["removes"] = removed
    examples: dict[tuple[str, str], Example] = {}
    for pair in sorted(pairs, key=lambda pair: (len(pair.before), pair.commit, pair.path, pair.line)):
        if len(examples) < _MAX_EXAMPLES:
            result = ensure_decided(*sandbox.apply_many(pair.before, pair.language, [support.action]))
            after, source = normalize_blank_lines(pair.before, result), f"{pair.commit[:12]} {pair.path}:{pair.line}"
            example = extract_example(pair.before, after, support.action, pair.language, sandbox, source)
            if example is not None:
                examples.setdefault((example.before, example.after), example)
    return FileRule(support.action, support.language, examples=tuple(examples.values()), facts=facts)
