"""The `memory` sandbox: ast-grep's binding in this process.

Covered: nothing; an action that overflows the matcher's stack takes the process with it. For tests and for texts
and actions of one's own. Rules whose fix expands its range get the verdict `action_error`.
"""

from collections.abc import Sequence

from graftline.actions.action import PatternAction, RuleAction
from graftline.actions.astgrep import Language, parse
from graftline.actions.expand import InvalidActionError, replacements
from graftline.errors import DataError
from graftline.sandbox.base import Isolation, Match, SandboxResult, Verdict
from graftline.sandbox.result import applied

_ISOLATION = Isolation("none", "memory")


class MemorySandbox:
    """Answers from this process."""

    @property
    def isolation(self) -> Isolation:
        return _ISOLATION

    def apply_many(
        self, source: str, language: Language, actions: Sequence[PatternAction | RuleAction]
    ) -> list[SandboxResult]:
        try:
            tree = parse(source, language)
        except DataError as error:
            return [SandboxResult(Verdict.ACTION_ERROR, None, _ISOLATION, error=str(error)) for _ in actions]
        results = []
        for action in actions:
            try:
                matches = [Match(*found) for found in replacements(tree, action)]
            except InvalidActionError as error:
                results.append(SandboxResult(Verdict.ACTION_ERROR, None, _ISOLATION, error=str(error)))
            else:
                results.append(applied(source, matches, _ISOLATION))
        return results

    def close(self) -> None:
        """Nothing is held."""
