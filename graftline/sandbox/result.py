"""From the places an action rewrites to the text it makes."""

from collections.abc import Sequence

from graftline.sandbox.base import Isolation, Match, SandboxResult, Usage, Verdict


def applied(source: str, matches: Sequence[Match], isolation: Isolation, usage: Usage | None = None) -> SandboxResult:
    """Return the result of replacing the outermost of `matches`, as `ast-grep --update-all` does."""
    taken: list[Match] = []
    pieces, position = [], 0
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if match.start < position or (taken and match.start == taken[-1].start == match.end):
            continue
        pieces += [source[position : match.start], match.replacement]
        position = match.end
        taken.append(match)
    if not taken:
        return SandboxResult(Verdict.NO_MATCH, None, isolation, usage=usage)
    return SandboxResult(Verdict.OK, "".join(pieces) + source[position:], isolation, tuple(taken), usage=usage)
