"""What rules do to files that they were not made on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ast_grep_py import SgNode, SgRoot

from benchmarks.induction_pairs import File
from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language, parse
from graftline.codemod.background import texts
from graftline.codemod.diff import diff_trees
from graftline.codemod.equality import normalize_whitespace
from graftline.core.errors import DataError
from graftline.sandbox import Request, Sandbox, Verdict

PER_LANGUAGE = 80
_SHARED_LINES = 3
"""With fewer lines in common two texts hold no function in common, but for the smallest."""
_SHORT_LINE = 30
"""Characters; shorter ones are alike by chance."""

Edits = frozenset[tuple[int, int, str]]
"""Places in characters of the text before, with the new text of each, blanks aside."""


@dataclass(frozen=True)
class UnseenFiles:
    """Files to try rules on, each parsed once."""

    files: Sequence[File]
    _roots: dict[tuple[str, str], SgNode] = field(default_factory=dict, repr=False)

    def apart_from(self, repository: str, language: Language, count: int = PER_LANGUAGE) -> list[File]:
        """Return the first `count` files of `language` that are of other repositories."""
        found = (file for file in self.files if file.language == language and file.repository != repository)
        return [file for file, _ in zip(found, range(count), strict=False)]

    def touched(self, action: PatternAction | RuleAction, files: Sequence[File], sandbox: Sandbox) -> int:
        """Return the number of places in `files` that `action` changes.

        Raises:
            SandboxError: the sandbox failed.
        """
        suspects = [file for file in files if self._may_match(action, file)]
        answers = sandbox.apply_each([Request(file.text, file.language, (action,)) for file in suspects])
        return sum(
            match.replacement != file.text[match.start : match.end]
            for file, [result] in zip(suspects, answers, strict=True)
            for match in result.matches
        )

    def edited(
        self, actions: Sequence[PatternAction | RuleAction], files: Sequence[File], sandbox: Sandbox
    ) -> Mapping[File, str]:
        """Return the files that `actions`, one after the other, change, with the text they come to.

        Raises:
            SandboxError: the sandbox failed.
        """
        texts: dict[File, str] = {}
        for action in actions:
            # a text that an earlier action changed is tried without a look: the trees kept here are of the originals
            suspects = [file for file in files if file in texts or self._may_match(action, file)]
            answers = sandbox.apply_each(
                [Request(texts.get(file, file.text), file.language, (action,)) for file in suspects]
            )
            for file, [result] in zip(suspects, answers, strict=True):
                if result.verdict is Verdict.OK and result.after is not None:
                    texts[file] = result.after
        return {file: text for file, text in texts.items() if text != file.text}

    def _may_match(self, action: PatternAction | RuleAction, file: File) -> bool:
        rule = rule_of(action)
        config = {key: rule[key] for key in ("rule", "constraints", "utils") if key in rule}
        try:
            return self._root(file).find(config) is not None  # type: ignore[call-overload]
        except (RuntimeError, ValueError):  # the binding refuses what the sandbox gives to the command line
            return True

    def _root(self, file: File) -> SgNode:
        key = (file.repository, file.path)
        if key not in self._roots:
            self._roots[key] = SgRoot(file.text, file.language).root()
        return self._roots[key]


def without_corpus(files: Sequence[File]) -> list[File]:
    """Return those of `files` that hold no function of the corpus by which the inducer weighs its rules."""
    known = {language: _lines("\n".join(texts(language))) for language in {file.language for file in files}}
    return [file for file in files if len(_lines(file.text) & known[file.language]) < _SHARED_LINES]


def _lines(text: str) -> set[str]:
    return {line for row in text.splitlines() if len(line := row.strip()) > _SHORT_LINE}


@lru_cache(maxsize=1024)  # the known rule and the induced one often make the same text
def edits(before: str, after: str, language: Language) -> Edits:
    """Return the places at which `after` differs from `before` by more than blanks."""
    try:
        sites = diff_trees(parse(before, language), parse(after, language))
    except DataError:  # a rule made a text that is too long or too deep to be compared
        return frozenset({(0, len(before), normalize_whitespace(after))})
    return frozenset((site.start, site.end, normalize_whitespace(site.text)) for site in sites if not site.is_blank)
