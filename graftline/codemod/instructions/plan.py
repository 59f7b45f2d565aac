"""Which operations an edit comes to: words that were renamed, rules that rewrite several places alike, and lines for the rest.

Every operation is tried on the text as it is planned, so a plan leads to the text after or there is none.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.diff import common_ends
from graftline.codemod.equality import compare_texts
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.induce import InductionStep
from graftline.codemod.instructions.operations import (
    Insert,
    Operation,
    Rename,
    Replace,
    Rewrite,
    apply_operation,
    dedent,
    find_code,
    indent_of,
)
from graftline.core.errors import DataError
from graftline.sandbox.base import Sandbox

_TOKEN = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(r"[^\W\d]\w*")
_WORD = re.compile(r"\w")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
MAX_PLACES = 10
"""Of which one is meant by its number; there are no words for more."""
_MAX_CONTEXT = 3
_MAX_REWRITE = 200
"""Characters of a pattern and what is written for it, to be said in one line."""
_LIKENESS = 0.5
_MAX_SPLIT = 3


_Split = Callable[[str], list[str]]


def plan_operations(
    before: str, after: str, language: Language, steps: Sequence[InductionStep], sandbox: Sandbox
) -> list[Operation] | None:
    """Return operations that lead from `before` to what counts as `after`; None where they do not.

    `steps` are those of the induction; rules among them that are short and leave something free are taken as they are.
    """
    plans = [_plan_by_rules(before, language, steps, sandbox), _plan_by_lines(before, after, language, sandbox)]
    complete = [plan for plan in plans if plan and _leads_to(before, after, plan, language, sandbox)]
    if not complete:
        # blank lines count inside strings
        plan = _plan_by_lines(before, after, language, sandbox, _all_lines)
        complete = [plan] if plan and _leads_to(before, after, plan, language, sandbox) else []
    return min(complete, key=len) if complete else None


def shorten_operations(
    operations: Sequence[Operation], before: str, language: Language, sandbox: Sandbox
) -> list[Operation]:
    """Return operations that do the same and quote less: of a line that changes only the words that do, where they stand once."""
    shortened: list[Operation] = []
    text = before
    for operation in operations:
        changed = apply_operation(operation, text, language, sandbox)
        fragment = _shorten(operation)
        is_same = fragment is not None and apply_operation(fragment, text, language, sandbox) == changed
        shortened.append(fragment if fragment is not None and is_same else operation)
        text = text if changed is None else changed
    return shortened


def _shorten(operation: Operation) -> Replace | None:
    """Return the replacement of the words of one line that differ; None where there are none on a side, or it is of several lines."""
    if not isinstance(operation, Replace) or operation.number or "\n" in operation.old + operation.new:
        return None
    old, new = ([*_TOKEN.finditer(text)] for text in (operation.old, operation.new))
    words = [[match[0] for match in matches] for matches in (old, new)]
    head, tail = common_ends(words[0], words[1])
    # half a pair of brackets is nothing that anybody asks for
    while not all(_is_balanced(side[head : len(side) - tail]) for side in words):
        head, tail = head - (head > 0), tail - (tail > 0)
        if not head + tail:
            return None
    if head + tail >= min(len(old), len(new)):
        return None
    quoted = operation.old[old[head].start() : old[len(old) - tail - 1].end()]
    written = operation.new[new[head].start() : new[len(new) - tail - 1].end()]
    return Replace(quoted, written) if _WORD.search(quoted) and "`" not in quoted + written else None


def _is_balanced(words: Sequence[str]) -> bool:
    """Return whether every bracket among `words` has its other half, in order."""
    expected: list[str] = []
    for word in words:
        if word in _BRACKETS:
            expected.append(_BRACKETS[word])
        elif word in _BRACKETS.values() and (not expected or expected.pop() != word):
            return False
    return not expected


def _leads_to(before: str, after: str, plan: Sequence[Operation], language: Language, sandbox: Sandbox) -> bool:
    text: str | None = before
    for operation in plan:
        text = apply_operation(operation, text, language, sandbox) if text is not None else None
    try:
        return text is not None and compare_texts(text, after, language).is_verified
    except DataError:
        return False


def _plan_by_rules(
    before: str, language: Language, steps: Sequence[InductionStep], sandbox: Sandbox
) -> list[Operation] | None:
    plan: list[Operation] = []
    text = before
    for step in steps:
        rewrite = _as_rewrite(step.action)
        changed = apply_operation(rewrite, text, language, sandbox) if rewrite else None
        if rewrite and changed is not None:
            plan.append(rewrite)
            text = changed
            continue
        own = _plan_by_lines(text, step.after, language, sandbox)
        if own is None:
            return None
        plan += own
        text = step.after
    return plan


def _as_rewrite(action: PatternAction | RuleAction) -> Rewrite | None:
    """Return the rule as an operation where it can be said in one line: a pattern with variables, and what to write."""
    rule = rule_of(action)
    pattern, fix = rule["rule"].get("pattern"), rule["fix"]
    if rule["rule"].keys() != {"pattern"} or not isinstance(pattern, str) or not isinstance(fix, str):
        return None
    if any(rule.get(key) for key in ("constraints", "transform", "utils")) or not fix.strip():
        return None
    variables = VARIABLE.findall(pattern)
    lists = [name for name in variables if name.startswith("$$$")]
    is_plain = variables and len(lists) <= 1 and not any(name.lstrip("$").startswith("_") for name in variables)
    is_short = "\n" not in pattern + fix and len(pattern) + len(fix) <= _MAX_REWRITE
    return Rewrite(pattern, fix) if is_plain and is_short and "`" not in pattern + fix else None


def _lines(text: str) -> list[str]:
    return [line for line in _all_lines(text) if line]


def _all_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


def _plan_by_lines(
    before: str, after: str, language: Language, sandbox: Sandbox, split: _Split = _lines
) -> list[Operation] | None:
    plan: list[Operation] = []
    text = before
    for rename in _find_renames(before, after, language):
        changed = apply_operation(rename, text, language, sandbox)
        if changed is not None:
            plan.append(rename)
            text = changed
    for operation, changed in _line_operations(text, after, language, sandbox, split):
        if operation is None:
            return None
        plan.append(operation)
        text = changed
    return plan


def _find_renames(before: str, after: str, language: Language) -> Iterator[Rename | Replace]:
    """Yield words that became others: in several places, or as all that the edit is.

    One keyword is replaced by another, not renamed; a keyword that became a name, or came of one, is no word that became another.
    """
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    words_before, words_after = Counter(old), Counter(new)
    targets: dict[str, set[str]] = {}
    is_all = True
    for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if last - first != end - start:
            is_all = False  # which word became which is not to be told
            continue
        for source, target in zip(old[first:last], new[start:end], strict=True):
            targets.setdefault(source, set()).add(target)
    for source, became in targets.items():
        target = min(became)
        is_word = _NAME.fullmatch(source) and _NAME.fullmatch(target)
        is_moved = len(became) == 1 and not words_after[source]
        if not is_word or not is_moved or not (is_all or words_before[source] > 1):
            continue
        keywords = KEYWORDS[language] & {source, target}
        if keywords == {source, target}:
            yield Replace(source, target)
        elif not keywords and not words_before[target]:
            yield Rename(source, target)


def _line_operations(
    text: str, after: str, language: Language, sandbox: Sandbox, split: _Split
) -> Iterator[tuple[Operation | None, str]]:
    """Yield an operation for each place where lines differ, with the text it leads to; None where none does, as the last one."""
    old, new = split(text), split(after)
    for kind, *hunk in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for first, last, start, end in _split_hunk(old, new, *hunk):
            place = _Place(text, new[:start], old[first:last], new[start:end], old[last : last + 1])
            for operation in place.operations():
                whole = _with_blank_lines(operation, text, after)
                changed = apply_operation(whole, text, language, sandbox)
                if changed is not None and split(changed) == new[:end] + old[last:]:
                    yield whole, changed
                    text = changed
                    break
            else:
                yield None, text
                return


def _with_blank_lines(operation: Insert | Replace, text: str, after: str) -> Insert | Replace:
    """Return `operation` with the blank lines that its code has between others, which tell nothing of a place."""
    match operation:
        case Insert(code=code):
            return replace(operation, code=_as_written(code, after))
        case Replace(old, new):
            return replace(operation, old=_as_written(old, text), new=_as_written(new, after))


def _as_written(code: str, text: str) -> str:
    """Return lines of code as they stand in `text`, without common indentation; as they are where they do not."""
    spans = find_code(text, code) if "\n" in code else []
    if not spans:
        return code
    start, end = spans[0]
    return "\n".join(dedent(text[text.rfind("\n", 0, start) + 1 : end].split("\n")))


def _split_hunk(
    old: Sequence[str], new: Sequence[str], first: int, last: int, start: int, end: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield a hunk line by line where it is of a few lines that each changed a little, else as it is."""
    if _is_line_by_line(old[first:last], new[start:end]):
        yield from (
            (first + index, first + index + 1, start + index, start + index + 1) for index in range(end - start)
        )
    else:
        yield first, last, start, end


def _is_line_by_line(old: Sequence[str], new: Sequence[str]) -> bool:
    return 1 < len(old) == len(new) <= _MAX_SPLIT and all(
        indent_of(before) == indent_of(after) and SequenceMatcher(None, before, after).ratio() > _LIKENESS
        for before, after in zip(old, new, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Lines of a text that become others, below those that are done."""

    text: str
    done: Sequence[str]
    old: Sequence[str]
    new: Sequence[str]
    following: Sequence[str]
    """The line after them, if there is one."""

    def operations(self) -> Iterator[Insert | Replace]:
        """Yield what may be said of it, the plainest first; a bracket says nothing of the place, unless nothing else does."""
        operations = [*self._all_operations()]
        yield from sorted(operations, key=lambda operation: not _is_telling(operation))

    def _all_operations(self) -> Iterator[Insert | Replace]:
        if not self.old:
            for is_numbered in (False, True):
                yield from self._insertions(is_numbered)
        # an insertion that has no line to stand beside is a change of the lines above it
        for context in range(0 if self.old else 1, min(_MAX_CONTEXT, len(self.done)) + 1):
            above = self.done[len(self.done) - context :]
            old, new = [*above, *self.old], [*above, *self.new]
            if self.new and _margin(old) != _margin(new):
                continue
            quoted, written = "\n".join(dedent(old)), "\n".join(dedent(new))
            for is_numbered in (False, True):
                for number in _numbers(self.text, quoted, is_numbered):
                    yield Replace(quoted, written, number)

    def _insertions(self, is_numbered: bool) -> Iterator[Insert]:
        code = "\n".join(dedent(self.new))
        sides: Mapping[Literal["after", "before"], Sequence[str]] = {"after": self.done[-1:], "before": self.following}
        for side, lines in sides.items():
            for anchor in map(str.strip, lines):
                for number in _numbers(self.text, anchor, is_numbered):
                    yield Insert(code, anchor, side, number)


def _is_telling(operation: Insert | Replace) -> bool:
    return _WORD.search(operation.anchor if isinstance(operation, Insert) else operation.old) is not None


def _margin(lines: Sequence[str]) -> int:
    return min((indent_of(line) for line in lines if line.strip()), default=0)


def _numbers(text: str, code: str, is_numbered: bool) -> Sequence[int]:
    """Return by which number a place of `code` may be meant: none where there is one, each where there are several."""
    places = len(find_code(text, code))
    if not is_numbered:
        return [0] if places == 1 else []
    return range(1, places + 1) if 1 < places <= MAX_PLACES else []
