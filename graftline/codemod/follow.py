"""A folder whose files follow an edit that was made by hand in some of them, as rules and as texts for somebody to review."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from pathlib import Path

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.canonical import canonicalize, list_required_words, list_written_words, words_of
from graftline.codemod.cost import is_general
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.history import FileChange
from graftline.codemod.learn import extract_example
from graftline.codemod.line_changes import list_changed_lines
from graftline.codemod.migration.generalize import Ask, ProposedRule, generalize
from graftline.codemod.migration.imports import list_import_lines
from graftline.codemod.migration.units import Demonstration
from graftline.codemod.review import Accepts, ChangedPlace, accept_all, list_words, shape_of
from graftline.codemod.rule_file import FileRule, assign_ids
from graftline.codemod.source_files import RewrittenFile, SourceFile
from graftline.codemod.token_changes import find_contradictions
from graftline.sandbox.base import Sandbox, ensure_decided

IMPORTS = "imports"
"""What places belong to that follow from those of rules."""
_LINE_ENDS = re.compile(r"(?<=\n)")
_NO_IMPORT = re.compile(r"""[^'"`#/]*?(?:[^\s\w$.,;(){}*\\'"`#/]|\.(?!import\b)\w+\()""")
"""What no line of an import has before its strings and comments; the others are looked up in the tree."""
_REQUIRE = re.compile(r"\brequire\(")
_WHOLE_IMPORT = re.compile(
    r"\s*(?:(?:import|from)\b[^({]*|import\s*(?:type\s*)?\{[^}]*\}[^({]*|[^\n]*\brequire\([^()]*\)[^(]*)$"
)


@dataclass(frozen=True, slots=True)
class FollowedEdit:
    """What became of a folder."""

    rules: tuple[FileRule, ...]
    files: tuple[RewrittenFile, ...]
    """Those that change."""
    undone: tuple[str, ...]
    """What was not done, and why: a sentence each."""
    questions: int
    contradictions: tuple[str, ...]
    """Where the edit says one thing here and another there: a sentence each."""


def follow_edit(
    changes: Sequence[FileChange],
    files: Sequence[SourceFile],
    folder: Path,
    sandbox: Sandbox,
    ask: Ask | None = None,
    instruction: str = "",
    max_questions: int = 5,
    negatives: Mapping[str, str] | None = None,
    show: Callable[[Path], object] = str,
) -> FollowedEdit:
    """Return what becomes of `files`, as they are below `folder`, if what `changes` show is done in all of them.

    DataError if the changes show no edit that is small enough. `show` is how sentences have the path of a file; other
    arguments as in `generalize`.
    """
    by_path = {file.path.relative_to(folder).as_posix(): file for file in files}
    # rules, imports and layout write line feeds; where lines end otherwise throughout, they do so again afterwards
    with_returns = {path for path, file in by_path.items() if 0 < file.text.count("\r\n") == file.text.count("\n")}
    texts = {
        path: file.text.replace("\r\n", "\n") if path in with_returns else file.text for path, file in by_path.items()
    }
    demonstrations = [
        Demonstration(change.path, change.before.replace("\r\n", "\n"), change.after.replace("\r\n", "\n"))
        if change.path in with_returns
        else Demonstration(change.path, change.before, change.after)
        for change in changes
    ]

    def show_path(path: str) -> str:
        # an example is no file of the folder
        return str(show(folder / path)) if path in by_path or path in (negatives or {}) else path

    proposal = generalize(demonstrations, texts, sandbox, ask, instruction, max_questions, negatives, show_path)
    rules = [rule for proposed in proposal.rules for rule in _make_rules(proposed, changes, sandbox)]
    written = {
        path: text.replace("\n", "\r\n") if path in with_returns else text for path, text in proposal.texts.items()
    }
    named = assign_ids(rules)
    changed = [rewrite_accepted(by_path[path], text, named) for path, text in sorted(written.items())]
    named = [count_places(rule, changed) for rule in named]
    contradictions = find_contradictions((show_path(change.path), change.before, change.after) for change in changes)
    return FollowedEdit(tuple(named), tuple(changed), proposal.undone, proposal.questions, tuple(contradictions))


def count_places(rule: FileRule, files: Sequence[RewrittenFile]) -> FileRule:
    """Return `rule` with the number of its places, as they are shown, and of the files that they are in."""
    counts = [count for file in files if (count := sum(place.rule == rule.id for place in file.places))]
    return replace(rule, facts={**rule.facts, "places": sum(counts), "files": len(counts)})


def rewrite_accepted(
    file: SourceFile, text: str, rules: Sequence[FileRule], accepts: Accepts = accept_all
) -> RewrittenFile:
    """Return `file` with the changed lines of `text`, which `rules` made of it, that are accepted."""
    # not at form feeds and their like, which belong to a line
    old, new = (_LINE_ENDS.split(side) for side in (file.text, text))
    sides = file.text, text

    @cache
    def list_imports(side: int) -> frozenset[int]:
        return list_import_lines(sides[side], file.language)

    pieces, places, has_edits, has_rejected = list[str](), list[ChangedPlace](), False, False
    held_back: list[tuple[int, str]] = []
    position = 0
    for start, end, new_start, new_end in list_changed_lines(old, new):
        before, after = "".join(old[start:end]), "".join(new[new_start:new_end])
        pieces.append("".join(old[position:start]))
        position = end
        numbered = [*zip(repeat(0), range(start, end), old[start:end])]
        numbered += zip(repeat(1), range(new_start, new_end), new[new_start:new_end])
        is_import = all(
            not line.strip() or _REQUIRE.search(line) or (not _NO_IMPORT.match(line) and number in list_imports(side))
            for side, number, line in numbered
        )
        rule = None if is_import else _find_rule(before, after, file.language, rules)
        kind, words = (rule.id, list_words(rule.action)) if rule else (IMPORTS, frozenset[str]())
        shape = shape_of(before, after, words) if rule else IMPORTS
        place = ChangedPlace(kind, file.path, start + 1, before.rstrip("\n"), after.rstrip("\n"), shape)
        is_accepted = accepts(kind, place.shape)
        has_edits = has_edits or kind != IMPORTS
        has_rejected = has_rejected or not (is_accepted or is_import)
        if is_import and is_accepted and not words_of(before) <= words_of(after):
            # what stays as it was needs its old imports; where each line is one, the new ones can stand beside them
            is_whole = all(_WHOLE_IMPORT.match(line) for line in (*old[start:end], *new[new_start:new_end]))
            held_back.append((len(pieces), before + after if is_whole else before))
        pieces.append(after if is_accepted else before)
        places += [place] if is_accepted else []
    pieces.append("".join(old[position:]))
    if has_edits and all(place.rule == IMPORTS for place in places):
        return RewrittenFile(file, file.text)  # imports follow edits
    for number, piece in held_back if has_rejected else ():
        pieces[number] = piece
    return RewrittenFile(file, "".join(pieces), tuple(places))


def _find_rule(before: str, after: str, language: Language, rules: Sequence[FileRule]) -> FileRule | None:
    """Return the first rule that may have made the change of some lines; where none may, for they follow, the first."""
    own, old, new = [rule for rule in rules if rule.language == language], words_of(before), words_of(after)
    fitting = [
        rule
        for rule in own
        if list_required_words(rule.action, language) <= old and list_written_words(rule.action) <= new
    ]
    # of rules with the same words, the one whose code is there
    exact = [rule for rule in fitting if all(part.strip() in before for part in _split_pattern(rule))]
    return next(iter(exact or fitting or own), None)


def _split_pattern(rule: FileRule) -> list[str]:
    """Return what the pattern of a rule quotes between its variables."""
    pattern = rule_of(rule.action)["rule"].get("pattern")
    return VARIABLE.split(pattern) if isinstance(pattern, str) else []


def _make_rules(proposed: ProposedRule, changes: Sequence[FileChange], sandbox: Sandbox) -> list[FileRule]:
    facts = {"confidence": min(0.99, round(proposed.confidence, 2))}  # a few answers make nothing certain
    rules = []
    for action in map(canonicalize, proposed.actions):
        examples = []
        for change in changes[:3]:
            result = ensure_decided(*sandbox.apply_many(change.before, change.language, [action]))
            text = normalize_blank_lines(change.before, result)
            if text != change.before:
                example = extract_example(change.before, text, action, change.language, sandbox, change.path)
                examples += [example] if example else []
        general = {"general": is_general(action)}
        rules.append(FileRule(action, proposed.language, examples=tuple(examples), facts={**general, **facts}))
    return rules
