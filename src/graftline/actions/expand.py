"""What a fix writes for a match: ast-grep's template expansion on top of its binding, which only matches.

Follows ast-grep 0.51 (crates/core/src/replacer/template.rs and indent.rs): variables are replaced by the source text
they captured, a captured block is re-indented from where it stood to where the variable stands, and the whole is
re-indented to the line of the match. Only blanks count as indentation, and the look-back ends after 512 bytes.

Not here: `expandStart`/`expandEnd` and suppression comments. `replacements` refuses what it cannot do exactly.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ast_grep_py import Config, SgNode

from graftline.actions.action import PatternAction, RuleAction, rule_of
from graftline.actions.astgrep import Tree

_LOOK_BACK_BYTES = 512
_VARIABLE = re.compile(r"(\$\$\$|\$\$|\$)([A-Z_][A-Z_0-9]*)")


class InvalidActionError(ValueError):
    """ast-grep would refuse the action."""


@dataclass(frozen=True, slots=True)
class _Hole:
    name: str
    is_multiple: bool
    indent: int
    following: str
    """The text of the template up to the next hole."""


def replacements(tree: Tree, action: PatternAction | RuleAction) -> list[tuple[int, int, str]]:
    """Return start, end (characters) and new text of every match of `action`, nested ones included.

    Raises:
        InvalidActionError: the action is invalid, or beyond what is expanded here.
    """
    config = rule_of(action)
    fix = config.pop("fix")
    if isinstance(fix, dict) and set(fix) != {"template"}:
        raise InvalidActionError("fix: only a template can be expanded in this process")
    template = fix["template"] if isinstance(fix, dict) else fix
    if not isinstance(template, str):
        raise InvalidActionError(f"fix: its template is {template!r}, expected a text")
    transforms = dict(config.get("transform") or {})
    head, holes = _parsed(template)
    # the binding finds an undefined variable when a transformation reads it
    probes = {f"PROBE{i}": _copy_of(hole) for i, hole in enumerate(holes) if hole.name not in transforms}
    nodes = _found(tree, config if not probes else {**config, "transform": {**transforms, **probes}})
    return [(*_span(node), _rendered(tree.text, node, head, holes, transforms)) for node in nodes]


def _copy_of(hole: _Hole) -> dict[str, Any]:
    sigil = "$$$" if hole.is_multiple else "$"
    return {"substring": {"source": sigil + hole.name}}


def _found(tree: Tree, config: Mapping[str, Any]) -> list[SgNode]:
    try:
        return list(tree.root.handle.find_all(cast(Config, config)))
    except Exception as error:  # RuntimeError, ValueError, TypeError: whatever the binding makes of a bad rule
        raise InvalidActionError(str(error).partition("\n\n")[0]) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3 derives it from BaseException
            raise
        raise InvalidActionError(f"ast-grep panics: {error}") from None


def _parsed(template: str) -> tuple[str, list[_Hole]]:
    found = list(_VARIABLE.finditer(template))
    starts = [match.start() for match in found] + [len(template)]
    holes = [
        _Hole(match[2], match[1] == "$$$", _indent(template[: match.start()]), template[match.end() : end])
        for match, end in zip(found, starts[1:], strict=True)
    ]
    return template[: starts[0]], holes


def _rendered(text: str, node: SgNode, head: str, holes: list[_Hole], transforms: Mapping[str, Any]) -> str:
    pieces = [head]
    for hole in holes:
        pieces += [_filled(text, node, hole, hole.name in transforms), hole.following]
    return _reindented("".join(pieces), 0, _indent(text[: _span(node)[0]]))


def _filled(text: str, node: SgNode, hole: _Hole, is_transform: bool) -> str:
    if is_transform:
        return _reindented(node.get_transformed(hole.name) or "", 0, hole.indent)
    single = None if hole.is_multiple else node.get_match(hole.name)
    captured = [single] if single else node.get_multiple_matches(hole.name) if hole.is_multiple else []
    if not captured:
        return ""
    start, end = _span(captured[0])[0], _span(captured[-1])[1]
    block = text[start:end]
    return _reindented(block, _indent(text[:start]), hole.indent) if "\n" in block else block


def _span(node: SgNode) -> tuple[int, int]:
    span = node.range()
    return span.start.index, span.end.index


def _indent(before: str) -> int:
    """Return the number of blanks that the last line of `before` starts with."""
    tail = before[-_LOOK_BACK_BYTES:].encode()
    is_cut = len(before.encode()) > _LOOK_BACK_BYTES
    tail = tail[-_LOOK_BACK_BYTES:]
    line = tail.rpartition(b"\n")[2]
    if is_cut and b"\n" not in tail:
        return 0
    return len(line) - len(line.lstrip(b" "))


def _reindented(text: str, indent: int, wanted: int) -> str:
    """Return `text`, which stood at `indent`, as it stands at `wanted`: every line but the first is moved."""
    if wanted < indent:
        surplus = " " * (indent - wanted)
        return "\n".join(line.removeprefix(surplus) for line in text.split("\n"))
    return text.replace("\n", "\n" + " " * (wanted - indent))
