"""What a fix writes for a match: ast-grep's template expansion on top of its binding, which only matches.

Follows ast-grep 0.51 (crates/core/src/replacer/template.rs and indent.rs): variables are replaced by the source text
they captured, a captured block is re-indented from where it stood to where the variable stands, and the whole is
re-indented to the line of the match. Only blanks count as indentation, and the look-back ends after 512 bytes.

What cannot be done exactly here raises `BeyondBindingError`, so that ast-grep's own command line can do it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ast_grep_py import Config, SgNode, SgRoot

if TYPE_CHECKING:  # this module is loaded in the jail, where nothing else is wanted
    from graftline.astgrep.binding import Language

_LOOK_BACK_BYTES = 512
_SUPPRESSION = "ast-grep-ignore"
_MAX_UTILITIES = 40
_CHARACTERS_OF_PLACE = 1_000
"""To look at one place takes as long as to go through so many characters of a parsed text."""
_NUMBERED = re.compile(r"^\s*\d+: ")
_BARE_VARIABLE = re.compile(r"\s*\$(\$\$|\$)?[A-Z_0-9]*\s*")
_VARIABLE = re.compile(r"(\$\$\$|\$\$|\$)([A-Z_][A-Z_0-9]*)")


class InvalidActionError(ValueError):
    """ast-grep would refuse the action."""


class BeyondBindingError(Exception):
    """The binding would not do what the command line does."""


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed text; keep it to apply many rules to it."""

    text: str
    language: "Language"
    root: SgNode
    _places: dict[int, tuple[Mapping[str, Any], list[SgNode]]] = field(default_factory=dict)
    """Rules, by their `id`, with all nodes that they may match."""

    def look_for(self, rules: Iterable[Mapping[str, Any]]) -> None:
        """Go through the text once for all places where one of many rules may match, which are then looked at alone.

        The rules are those of `action.rule_of`, of which ast-grep refuses none; others are not to be among them, for
        without a place nothing refuses them. `replacements` of a rule are the same with and without this.
        """
        pairs = [(rule, part) for rule in rules if (part := _decisive_part(rule["rule"]))]
        parts = {json.dumps(part): part for _, part in pairs}
        try:
            nodes = _find_all(self.root, {"rule": {"any": [*parts.values()]}}) if parts else []
            are_few = len(nodes) * _CHARACTERS_OF_PLACE < len(self.text)
            places = {
                key: [node for node in nodes if _matches(node, part)]
                if are_few
                else _find_all(self.root, {"rule": part})
                for key, part in parts.items()
            }
        except InvalidActionError:  # ast-grep panics; `replacements` tells at which rule
            return
        self._places.update((id(rule), (rule, places[json.dumps(part)])) for rule, part in pairs)

    def find_all(self, rule: Mapping[str, Any], transforms: Mapping[str, Any]) -> list[SgNode]:
        """Return the matches of a rule, with other transformations than its own, in the order of the text.

        InvalidActionError if ast-grep refuses it.
        """
        config = {key: value for key, value in rule.items() if key not in {"fix", "transform"}}
        config |= {"transform": transforms} if transforms else {}
        _, places = self._places.get(id(rule), (rule, None))
        if places is None or len(places) * _CHARACTERS_OF_PLACE > len(self.text):
            return _find_all(self.root, config)
        # the first match in a node and below it is the node, unless it is none
        pairs = ((place, _find_all(place, config, is_first=True)) for place in places)
        return [match for place, own in pairs for match in own if match == place]

    @classmethod
    def parse(cls, text: str, language: "Language") -> "Source":
        """Parse `text`, which must be valid Unicode and no larger than is safe (see `astgrep.binding.is_safe`)."""
        return cls(text, language, SgRoot(text, language).root())


@dataclass(frozen=True, slots=True)
class _Hole:
    name: str
    is_multiple: bool
    indent: int
    following: str
    """The text of the template up to the next hole."""


def replacements(source: Source, rule: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    """Return start, end (characters) and new text of what `ast-grep scan --update-all` replaces by `rule`.

    `rule` is that of `action.rule_of`. Of matches that overlap only the first in the order of the text counts.
    InvalidActionError if ast-grep refuses the rule. BeyondBindingError if the binding would answer differently than
    ast-grep.
    """
    fix = rule["fix"]
    expansions = dict(fix) if isinstance(fix, dict) else {"template": fix}
    template = expansions.pop("template", None)
    if not isinstance(template, str):
        raise InvalidActionError(f"fix: its template is {template!r}, expected a text")
    if unknown := expansions.keys() - {"expandStart", "expandEnd"}:
        raise InvalidActionError(f"fix: unknown key {min(unknown)!r}")
    transforms = dict(rule.get("transform") or {})
    if any(_rewrites(transform) for transform in transforms.values()) or _SUPPRESSION in source.text:
        raise BeyondBindingError
    for relation in expansions.values():
        _matches(source.root, _without_reach(relation)[0])  # a bad one is refused, whether or not anything matches
    head, holes = _parse_template(template)
    # the binding finds an undefined variable when a transformation reads it
    probes = {f"PROBE{i}": _copy_of(hole) for i, hole in enumerate(holes) if hole.name not in transforms}
    try:
        nodes = source.find_all(rule, {**transforms, **probes})
    except InvalidActionError as error:
        unbound = [hole.name for hole in holes if f"meta var `{hole.name}` used in `transform`" in str(error)]
        raise InvalidActionError(f"Undefined meta var `{unbound[0]}` used in `fix`.") if unbound else error from None
    if not _has_known_kinds(rule["rule"], source.language, rule.get("utils") or {}):
        raise InvalidActionError("rule: may match nodes of any kind; add `kind`")
    changes: list[tuple[int, int, str]] = []
    last = 0
    for node in nodes:
        start, end = _expand_span(node, expansions)
        # where two touch and one is empty, the empty one is left out
        if start >= last and not (changes and changes[-1][0] == start == end):
            changes.append((start, end, _render(source.text, node, head, holes, transforms)))
            last = end
    return changes


def _rewrites(transform: Any) -> bool:
    if isinstance(transform, str):
        return transform.lstrip().startswith("rewrite")
    return isinstance(transform, dict) and "rewrite" in transform


def _has_known_kinds(
    rule: Mapping[str, Any], language: "Language", utilities: Mapping[str, Any], depth: int = 0
) -> bool:
    """Return whether the kinds of nodes that `rule` may match are known; the command line refuses a rule without."""
    if depth > _MAX_UTILITIES or "kind" in rule:
        return True
    if "pattern" in rule and _has_known_kind(rule["pattern"], language):
        return True
    all_of, any_of = rule.get("all") or [], rule.get("any") or []
    if any(_has_known_kinds(part, language, utilities, depth + 1) for part in all_of):
        return True
    if any_of and all(_has_known_kinds(part, language, utilities, depth + 1) for part in any_of):
        return True
    utility = utilities.get(rule.get("matches", ""))
    return utility is not None and _has_known_kinds(utility, language, utilities, depth + 1)


def _has_known_kind(pattern: str | Mapping[str, str], language: "Language") -> bool:
    if not isinstance(pattern, str):
        if pattern.get("selector"):
            return True
        pattern = pattern.get("context", "")
    if _BARE_VARIABLE.fullmatch(pattern):
        return False
    # as ast-grep reads a pattern: Python has no names with a dollar
    node = SgRoot(pattern.replace("$", "\u00b5") if language == "python" else pattern, language).root()
    while (children := node.children()) and (len(children) == 1 or (len(children) == 2 and not children[1].text())):
        node = children[0]
    return node.kind() != "ERROR"


def _expand_span(node: SgNode, expansions: Mapping[str, Any]) -> tuple[int, int]:
    start, end = _span(node)
    if not expansions:
        return start, end
    before = _neighbor(node, expansions.get("expandStart"), is_after=False)
    after = _neighbor(node, expansions.get("expandEnd"), is_after=True)
    return _span(before)[0] if before else start, _span(after)[1] if after else end


def _neighbor(node: SgNode, relation: Any, is_after: bool) -> SgNode | None:
    """Return the sibling that a fix takes along, the last one looked at first matched."""
    if relation is None:
        return None
    rule, stop = _without_reach(relation)
    if stop == "neighbor":
        sibling = node.next() if is_after else node.prev()
        return sibling if sibling is not None and _matches(sibling, rule) else None
    for sibling in node.next_all() if is_after else node.prev_all():
        if _matches(sibling, rule):
            return sibling
        if stop != "end" and _matches(sibling, stop):
            return None
    return None


def _without_reach(relation: Any) -> tuple[dict[str, Any], Any]:
    """Return the rule of a relation, and where the search for it stops."""
    if not isinstance(relation, dict):
        raise InvalidActionError("fix: what it expands to is no rule")
    if "field" in relation:
        raise BeyondBindingError
    return {key: value for key, value in relation.items() if key != "stopBy"}, relation.get("stopBy", "neighbor")


def _matches(node: SgNode, rule: Mapping[str, Any]) -> bool:
    with _refuse():
        return bool(node.matches(**rule))


def _copy_of(hole: _Hole) -> dict[str, Any]:
    sigil = "$$$" if hole.is_multiple else "$"
    return {"substring": {"source": sigil + hole.name}}


def _decisive_part(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a rule that what it matches has to match, and little else does; empty if there is none."""
    pattern = rule.get("pattern")
    if pattern is not None and not (isinstance(pattern, str) and _BARE_VARIABLE.fullmatch(pattern)):
        return {"pattern": pattern}
    # not parts that name rules of `utils`, which are not there
    is_simple = all(part.keys() <= {"kind", "pattern", "regex"} for part in rule.get("any") or ())
    keys = ("any", "kind", "regex") if is_simple else ("kind", "regex")
    is_decisive = "regex" in rule and (is_simple or "kind" in rule)
    return {key: rule[key] for key in keys if key in rule} if is_decisive else {}


def _find_all(root: SgNode, config: Mapping[str, Any], is_first: bool = False) -> list[SgNode]:
    with _refuse():
        if is_first:
            match = root.find(cast(Config, config))
            return [] if match is None else [match]
        return list(root.find_all(cast(Config, config)))


@contextmanager
def _refuse() -> Iterator[None]:
    """Raise InvalidActionError where the binding fails."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # RuntimeError, ValueError, TypeError: whatever the binding makes of a bad rule
        raise InvalidActionError(_cause(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3 derives it from BaseException
            raise
        raise InvalidActionError(f"ast-grep panics: {error}") from None


def _cause(error: Exception) -> str:
    """Return the causes that ast-grep names, as its command line does."""
    text = str(error).partition("\n\nStack backtrace")[0]
    lines = text.partition("Caused by:")[2].splitlines() or [text]
    return " ".join(_NUMBERED.sub("", line).strip() for line in lines).strip()


def _parse_template(template: str) -> tuple[str, list[_Hole]]:
    variables = list(_VARIABLE.finditer(template))
    starts = [match.start() for match in variables] + [len(template)]
    holes = [
        _Hole(match[2], match[1] == "$$$", _indent(template, match.start()), template[match.end() : end])
        for match, end in zip(variables, starts[1:], strict=True)
    ]
    return template[: starts[0]], holes


def _render(text: str, node: SgNode, head: str, holes: list[_Hole], transforms: Mapping[str, Any]) -> str:
    pieces = [head]
    for hole in holes:
        pieces += [_fill(text, node, hole, hole.name in transforms), hole.following]
    return _reindent("".join(pieces), 0, _indent(text, _span(node)[0]))


def _fill(text: str, node: SgNode, hole: _Hole, is_transform: bool) -> str:
    if is_transform:
        return _reindent(node.get_transformed(hole.name) or "", 0, hole.indent)
    single = None if hole.is_multiple else node.get_match(hole.name)
    captured = [single] if single else node.get_multiple_matches(hole.name) if hole.is_multiple else []
    if not captured:
        return ""
    start, end = _span(captured[0])[0], _span(captured[-1])[1]
    block = text[start:end]
    return _reindent(block, _indent(text, start), hole.indent) if "\n" in block else block


def _span(node: SgNode) -> tuple[int, int]:
    span = node.range()
    return span.start.index, span.end.index


def _indent(text: str, at: int) -> int:
    """Return the number of blanks that the line starts with in which character `at` of `text` is."""
    tail = text[max(0, at - _LOOK_BACK_BYTES) : at].encode()
    is_cut = at > _LOOK_BACK_BYTES or len(tail) > _LOOK_BACK_BYTES
    tail = tail[-_LOOK_BACK_BYTES:]
    line = tail.rpartition(b"\n")[2]
    if is_cut and b"\n" not in tail:
        return 0
    return len(line) - len(line.lstrip(b" "))


def _reindent(text: str, indent: int, target: int) -> str:
    """Return `text`, which stood at `indent`, as it stands at `target`: every line but the first is moved."""
    if target < indent:
        surplus = " " * (indent - target)
        return "\n".join(line.removeprefix(surplus) for line in text.split("\n"))
    return text.replace("\n", "\n" + " " * (target - indent))
