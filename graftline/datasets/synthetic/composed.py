"""Composed edits: rewrites put together at random of real code, beside those of the template families.

Families are what people do; composed edits are what a change can look like at all, so that a model which learns from
examples learns to tell what stays from what changes, and not a list of families. Some are rewrites undone, whose patterns are
what rewrites make. One in three stands in the text that it was found in, the others in short texts, most of them of several
places, where what is free can be seen. Their actions are known, and were tried in the sandbox; none has the form of a family that is
held out.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language, Node, Tree
from graftline.codemod.canonical import canonicalize
from graftline.core.hashing import digest
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic.apply import ActionSequence, apply_sequences
from graftline.datasets.synthetic.families import has_held_out_form
from graftline.datasets.synthetic.patterns import ARGUMENTS, STATEMENTS, pattern_of
from graftline.datasets.synthetic.rewrites import rewrites_of
from graftline.datasets.synthetic.short_texts import (
    Vocabulary,
    collect_vocabulary,
    fill_pattern,
    metavariables,
    parse_clean,
)
from graftline.sandbox.base import Sandbox

_NEVER = frozenset({
    "identifier", "string", "comment", "integer", "float", "number", "block", "statement_block", "module", "program",
    "string_literal", "decimal_integer_literal", "type_identifier", "line_comment", "block_comment", "ERROR", "true",
    "property_identifier", "false", "none", "null", "escape_sequence", "string_content", "string_fragment", "parameters",
    "formal_parameters", "template_string", "interpolation", "keyword_argument", "pair", "else_clause", "class_body",
    "parenthesized_expression", "modifiers", "type_arguments", "generic_type", "scoped_type_identifier", *ARGUMENTS,
    "type_annotation", "predefined_type",
})  # fmt: skip
_LEAST, _LONGEST = 5, 90
_MOST_PLACES = 4
_PER_TEXT, _TRIES, _ROUNDS = 2, 6, 12
_BATCH = 512
_LEAST_READ, _READ_FOR_EACH = 200, 4
"""Texts that are read at least, and for each edit that is wanted."""
_SITES = (1, 2, 2, 2, 2, 3)
_IN_PLACE = 0.5
"""How probable it is that the text that a pattern was found in becomes an edit too."""
_UNDONE = frozenset({
    "add_argument", "add_first", "ask", "binary", "conditional", "guard", "method", "subscript", "test", "wrap",
})  # fmt: skip
"""Kinds of rewrites that are also undone: what they make is a pattern that such code has, and has little of."""
_UNDO = 0.5


@dataclass(frozen=True, slots=True)
class _Draft:
    edit: Edit
    text: str
    template: str
    action: PatternAction


def compose(
    edits: Sequence[Edit], language: Language, count: int, seed: int, sandbox: Sandbox, most_characters: int
) -> Iterator[Edit]:
    """Yield at most `count` composed edits in `language` on the texts before of `edits`; none of theirs is longer than said.

    The same arguments give the same edits. An edit keeps group, commit and license of its text.

    Raises:
        SandboxError: the sandbox failed.
    """
    rng = random.Random(digest(["composed", seed, language, [edit.id for edit in edits]]))
    sample = rng.sample(edits, min(len(edits), max(_LEAST_READ, _READ_FOR_EACH * count)))
    trees = [(edit, tree) for edit in sample if (tree := parse_clean(edit, language)) is not None]
    vocabulary, ids = collect_vocabulary(tree for _, tree in trees), set[str]()
    for _ in range(_ROUNDS):
        drafts = [
            draft
            for edit, tree in trees
            for draft in _draft(edit, tree, vocabulary, rng)
            if len(draft.text) <= most_characters and not has_held_out_form(draft.action, language)
        ]
        rng.shuffle(drafts)
        for start in range(0, len(drafts), _BATCH):
            batch = drafts[start : start + _BATCH]
            sequences = [ActionSequence(draft.text, (draft.action,)) for draft in batch]
            for draft, result in zip(batch, apply_sequences(sequences, language, sandbox), strict=True):
                if len(ids) == count:
                    return
                if result is None or len(result.matches) > _MOST_PLACES:
                    continue
                edit = _edit(draft, result.post, language, seed)
                if edit.id not in ids:
                    ids.add(edit.id)
                    yield edit


def _draft(edit: Edit, tree: Tree, vocabulary: Vocabulary, rng: random.Random) -> Iterator[_Draft]:
    nodes = defaultdict[str, list[Node]](list)
    for node in tree.root.walk():
        if _is_usable(tree, node):
            nodes[node.kind].append(node)
    drafts = 0
    for _ in range(_TRIES if nodes else 0):
        node = rng.choice(nodes[rng.choice(sorted(nodes))])
        pattern = pattern_of(tree, node, rng)
        if pattern is None or not re.search(r"\w\w|[=<>!+&|]", re.sub(r"\$+[A-D]", "", pattern.text)):
            continue
        kinds = defaultdict[str, list[str]](list)
        for kind, text in rewrites_of(pattern, node.kind, tree.language, vocabulary, rng):
            if text != pattern.text:
                kinds[kind].append(text)
        if not kinds:
            continue
        kind = rng.choice(sorted(kinds))
        rewrite = rng.choice(kinds[kind])
        is_undone = kind in _UNDONE and metavariables(rewrite) == metavariables(pattern.text) and rng.random() < _UNDO
        if is_undone:
            action, kind = _action(rewrite, pattern.text), f"undo_{kind}"
        else:
            action = _action(pattern.text, rewrite)
        if not is_undone and rng.random() < _IN_PLACE:
            yield _Draft(edit, tree.text, f"composed_{kind}", action)
        sites = rng.choice(_SITES)
        if short := fill_pattern(action.pattern, node.kind in STATEMENTS, tree.language, sites, vocabulary, rng):
            yield _Draft(edit, short, f"composed_{kind}", action)
        drafts += 1
        if drafts == _PER_TEXT:
            return


def _action(pattern: str, rewrite: str) -> PatternAction:
    action = canonicalize(PatternAction(pattern=pattern, rewrite=rewrite))
    assert isinstance(action, PatternAction)  # it was one
    return action


def _is_usable(tree: Tree, node: Node) -> bool:
    return (
        node.is_named
        and node.parent is not None
        and node.kind not in _NEVER
        and _LEAST <= node.end - node.start <= _LONGEST
        and "\n" not in tree.of(node)
        and any(child.is_named for child in node.children)
    )


def _edit(draft: _Draft, post: str, language: Language, seed: int) -> Edit:
    source, action = draft.edit, draft.action
    tags = ["synthetic", "composed", f"template:{draft.template}", f"license:{source.license}", f"seed:{seed}"]
    if source.language != language:
        tags.append(f"source_language:{source.language}")
    facts = [source.id, language, draft.text, action.pattern, action.rewrite]
    return Edit(
        # none of the words of the action: what is asked is seen in the example
        instruction="Make the change that the example shows.",
        pre=draft.text,
        post=post,
        language=language,
        tags=tuple(tags),
        instruction_source="rule",
        answerable=None,
        answerable_by=None,
        id=f"composed:{digest(facts)[:16]}",
        dataset="synthetic_rules",
        license=source.license,
        group=source.group,
        aliases=source.aliases,
        commit=source.commit,
        other_commits=source.other_commits,
        origin=f"{draft.template} on {source.id}, {source.origin}",
        gold_action=action,
    )
