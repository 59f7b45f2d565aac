"""Rules applied to source files, in the jail: one after the other, or each on its own to see what it matches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from graftline.codemod.rule_file import FileRule
from graftline.codemod.source_files import SourceFile
from graftline.codemod.tidy import tidied
from graftline.core.errors import DataError
from graftline.sandbox.base import Request, Sandbox, SandboxResult, Verdict, ensure_decided

_BATCH_FILES = 32


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What the rules made of a file."""

    file: SourceFile
    text: str
    """As it was where there is a fault."""
    places: tuple[int, ...]
    """Places that each rule changed."""
    fault: str = ""
    """Why it could not be rewritten."""


@dataclass(frozen=True, slots=True)
class Matched:
    """The places of a file that a rule would change."""

    rule: str
    file: SourceFile
    lines: tuple[int, ...]
    """Their lines, from 1."""


def rewritten(files: Iterable[SourceFile], rules: Sequence[FileRule], sandbox: Sandbox) -> Iterator[Rewritten]:
    """Yield the files that some rule changes, or that cannot be rewritten; the rules follow one another.

    Raises:
        DataError: ast-grep refuses a rule.
        SandboxError: the sandbox failed.
    """
    for file, results in _all_of_each(files, rules, sandbox):
        if any(result.verdict is not Verdict.NO_MATCH for result in results):
            done = _in_order(file, rules, sandbox)
            if done.fault or done.text != file.text:
                yield done


def matched(files: Iterable[SourceFile], rules: Sequence[FileRule], sandbox: Sandbox) -> Iterator[Matched]:
    """Yield what each rule, on its own, would change in every file.

    Raises:
        DataError: ast-grep refuses a rule.
        SandboxError: the sandbox failed.
    """
    for file, results in _all_of_each(files, rules, sandbox):
        of_language = [rule for rule in rules if rule.language == file.language]
        for rule, result in zip(of_language, results, strict=True):
            lines = tuple(file.text.count("\n", 0, match.start) + 1 for match in result.matches)
            if lines:
                yield Matched(rule.id, file, lines)


def _all_of_each(
    files: Iterable[SourceFile], rules: Sequence[FileRule], sandbox: Sandbox
) -> Iterator[tuple[SourceFile, list[SandboxResult]]]:
    """Yield every file with what the rules of its language do to it, each on its own."""
    pending = iter(files)
    while some := list(islice(pending, _BATCH_FILES)):
        requests = [
            Request(file.text, file.language, tuple(rule.action for rule in rules if rule.language == file.language))
            for file in some
        ]
        for file, results in zip(some, sandbox.apply_each(requests), strict=True):
            for rule, result in zip([rule for rule in rules if rule.language == file.language], results, strict=True):
                _checked(rule, ensure_decided(result))
            yield file, results


def _in_order(file: SourceFile, rules: Sequence[FileRule], sandbox: Sandbox) -> Rewritten:
    text, places = file.text, []
    for rule in rules:
        if rule.language != file.language:
            places.append(0)
            continue
        result = _checked(rule, ensure_decided(*sandbox.apply_many(text, file.language, [rule.action])))
        if result.verdict not in (Verdict.OK, Verdict.NO_MATCH):
            fault = f"{file.path}: rule {rule.id!r}: {result.verdict}{': ' + result.error if result.error else ''}"
            return Rewritten(file, file.text, tuple(0 for _ in rules), fault)
        places.append(len(result.matches))
        text = tidied(text, result)
    return Rewritten(file, text, tuple(places))


def _checked(rule: FileRule, result: SandboxResult) -> SandboxResult:
    if result.verdict is Verdict.ACTION_ERROR:
        raise DataError(f"rule {rule.id!r}: ast-grep refuses it: {result.error}")
    return result
