"""The `memory` sandbox: ast-grep's binding in this process.

Covered: nothing; an action that overflows the matcher's stack takes the process with it. For tests and for texts
and actions of one's own. What the binding cannot do as ast-grep's command line does gets the verdict `needs_cli`.
"""

from collections.abc import Sequence

from graftline.astgrep.action import Action, rule_of
from graftline.astgrep.binding import Language, parse
from graftline.astgrep.expand import BeyondBindingError, InvalidActionError, Source, replacements
from graftline.core.errors import DataError
from graftline.sandbox.base import Isolation, Match, Sandbox, SandboxResult, Verdict, replace_matches

_ISOLATION = Isolation("none", "memory")


class MemorySandbox(Sandbox):
    """Answers from this process."""

    @property
    def isolation(self) -> Isolation:
        return _ISOLATION

    def apply_many(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        try:
            tree = parse(source, language)
        except DataError as error:
            return [SandboxResult(Verdict.ACTION_ERROR, None, _ISOLATION, error=str(error)) for _ in actions]
        parsed = Source(source, language, tree.root.handle)
        return [_apply(parsed, action) for action in actions]

    def close(self) -> None:
        """Nothing is held."""


def _apply(source: Source, action: Action) -> SandboxResult:
    try:
        matches = [Match(*span) for span in replacements(source, rule_of(action))]
    except InvalidActionError as error:
        return SandboxResult(Verdict.ACTION_ERROR, None, _ISOLATION, error=str(error))
    except BeyondBindingError:
        return SandboxResult(Verdict.NEEDS_CLI, None, _ISOLATION, error="ast-grep's command line is needed for this")
    return replace_matches(source.text, matches, _ISOLATION)
