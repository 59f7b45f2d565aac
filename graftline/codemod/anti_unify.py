"""From one region of a tree and its new text to a pattern and a rewrite with metavariables.

What the change does not touch, or moves unchanged, becomes a metavariable, the same text the same one. How much
becomes one is a policy; several are tried, and the sandbox tells which hold.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.binding import Node
from graftline.codemod.change import Change, Region, column, dedent
from graftline.codemod.diff import Site, is_sequence

Policy = Literal["named", "scoped", "all", "literal", "broad", "open", "loose"]
"""`scoped` keeps the names that say what the code is about (callees, attributes, keywords, types, imports) and frees
operands, arguments and values; `named` keeps as well what is defined and the callees of calls that move as a whole;
`all` frees receivers too; `literal` frees nothing. `broad` frees all but the callees and members that are on the way to
the edit: also what is defined, types, strings and bodies. `open` frees as well the operands and arguments that the edit
takes away, `loose` callees and members too: what is quoted then is what the edit takes away alone."""
Lists = Literal["runs", "long_runs", "items", "any_runs"]
"""Whether untouched neighbors in a list become one `$$$VARIABLE` (from one, or from two on) or one each; with `any_runs`
arguments do also where there are none."""

POLICIES: tuple[tuple[Policy, Lists], ...] = (
    ("scoped", "long_runs"),
    ("scoped", "items"),
    ("scoped", "runs"),
    ("named", "long_runs"),
    ("named", "items"),
    ("all", "long_runs"),
    ("all", "items"),
    ("literal", "items"),
)

VARIABLE = re.compile(r"\$+[A-Z_][A-Z0-9_]*")
_WORD_OR_OPERATOR = re.compile(r"\w|[^\s\w(){}\[\],.;:]")
_CONSTANTS = frozenset({"None", "True", "False", "null", "undefined", "true", "false", "this", "self", "super", "cls"})
_KEPT_KINDS = re.compile(
    r"type|import|modifier|operator|clause|string_(content|start|end|fragment)|escape|comment|annotation|keyword_arg"
    r"|property_identifier|decorator|jsx_|field_name|label|interpolation|template_subst"
)
_BROAD: tuple[Policy, ...] = ("broad", "open", "loose")
_MOVED: Mapping[Policy, Policy] = {"named": "named", **dict.fromkeys(_BROAD, "broad")}
"""Policies by which what moves as a whole is freed, where that is not `all`."""
_BROADLY_KEPT = re.compile(  # an operation of Python is a `binary_operator`
    r"import|modifier|^operator|clause|string_(content|start|end|fragment)|escape|comment|keyword_arg"
    r"|property_identifier|jsx_|field_name|label|interpolation|template_subst"
)
_CALLS = {"call", "call_expression", "new_expression", "method_invocation"}
_ACCESSES = {"attribute", "member_expression", "field_access", "method_invocation"}
_CHAINS = _CALLS | _ACCESSES | {"subscript", "subscript_expression"}
_ARGUMENTS = {"argument_list", "arguments"}
_NAMINGS = {"variable_declarator", "assignment", "assignment_expression"}
_LITERAL_LISTS = {"object", "array", "list", "dictionary", "tuple", "set"}


@dataclass(frozen=True, slots=True)
class Template:
    """A pattern that stands for a region, and the text that replaces it."""

    pattern: str
    rewrite: str
    variables: int
    """Number of metavariables in `pattern`."""


def make_template(change: Change, region: Region, policy: Policy, lists: Lists) -> Template | None:
    """Return the template of `region` under a policy; None where it would say nothing or cannot be written.

    It cannot be written where the source itself holds something that reads as a metavariable.
    """
    inside = change.inside(region.start, region.end) or []
    sites = [site for _, site in inside]
    text = change.before.text
    if not sites or VARIABLE.search(text[region.start : region.end]):
        return None
    if any(VARIABLE.search(site.text) for site in sites):
        return None
    holes = _Holes(change, region, inside, policy, lists)
    cut = [hole for hole in holes.found if not any(_covers(site, hole) for site in sites)]
    new = [(site.start, site.end, holes.in_new_text(site)) for site in sites]
    indent = column(text, region.start)
    pattern = dedent(_fill(text, region.start, region.first.end, holes.found), indent)
    rewrite = dedent(_fill(text, region.start, region.end, sorted([*cut, *new])), indent)
    variables = set(VARIABLE.findall(pattern))
    if set(VARIABLE.findall(rewrite)) - variables:
        return None
    if any(name not in rewrite and _repeats(rewrite, text[start:end]) for start, end, name in holes.found):
        # the pattern would match whatever stands there, and the rewrite put this example's text in its place
        return None
    if not _WORD_OR_OPERATOR.search(VARIABLE.sub("", pattern)):
        return None
    return Template(pattern, rewrite, len(variables))


class _Holes:
    """The metavariables of one region, and the spans they replace."""

    def __init__(
        self, change: Change, region: Region, inside: Sequence[tuple[int, Site]], policy: Policy, lists: Lists
    ) -> None:
        self._change, self._region, self._sites = change, region, [site for _, site in inside]
        self._policy, self._lists = policy, lists
        self._names: dict[str, str] = {}
        self._moved = {change.after.of(node) for index, _ in inside for node in change.new_nodes[index]}
        self.found: list[tuple[int, int, str]] = []
        for node in region.nodes:
            self._visit(node)
        self.found.sort()

    def in_new_text(self, site: Site) -> str:
        """Return the new text of `site` with what the pattern captures replaced by its variables."""
        edits = list(self._capture_spans(self._change.after.root, site))
        return _fill(self._change.after.text, site.new_start, site.new_end, edits)

    def _capture_spans(self, node: Node, site: Site) -> Iterator[tuple[int, int, str]]:
        is_inside = site.new_start <= node.start and node.end <= site.new_end
        name = self._names.get(self._change.after.of(node)) if is_inside and node.is_named else None
        if name and not _kept_kinds(self._policy).search(node.kind):
            yield node.start, node.end, name
            return
        items = [child for child in node.children if child.is_named] if is_inside and is_sequence(node) else []
        run = self._names.get(self._change.after.text[items[0].start : items[-1].end]) if items else None
        if run and run.startswith("$$$"):
            yield items[0].start, items[-1].end, run
            return
        for child in node.children:
            if child.end > site.new_start and child.start < site.new_end:
                yield from self._capture_spans(child, site)

    def _visit(self, node: Node) -> None:
        text = self._change.before.of(node)
        if (node is not self._region.first or not self._region.is_single) and self._policy != "literal":
            if not self._is_touched(node):
                if _is_free(self._change, node, self._policy):
                    self._add(node.start, node.end, text)
                    return
            elif (
                node.is_named
                and text in self._moved
                and self._is_replaced(node)
                and _is_free(self._change, node, _MOVED.get(self._policy, "all"))
            ) or (self._policy in _BROAD[1:] and self._is_replaced(node) and _is_free(self._change, node, "broad")):
                self._add(node.start, node.end, text)
                return
        if self._lists != "items" and self._policy != "literal" and is_sequence(node):
            self._visit_list(node)
            return
        for child in node.children:
            self._visit(child)

    def _visit_list(self, node: Node) -> None:
        is_empty = node.kind in _ARGUMENTS and not any(child.is_named for child in node.children)
        if self._lists == "any_runs" and is_empty and not self._is_touched(node):
            self._add(node.start + 1, node.end - 1, "", is_many=True)
            return
        # a list that comes back as it was is as good as untouched
        is_moved = self._is_replaced(node) and self._change.before.of(node) in self._moved
        for run in self._runs(node.children, is_moved):
            items = [child for child in run if child.is_named]
            is_plain = all(self._is_plain(child, is_moved) for child in run)
            if len(items) >= (2 if self._lists == "long_runs" else 1) and is_plain:
                start, end = items[0].start, items[-1].end
                self._add(start, end, self._change.before.text[start:end], is_many=True)
                continue
            for child in run:
                self._visit(child)

    def _runs(self, children: Sequence[Node], is_moved: bool) -> Iterator[list[Node]]:
        """Yield maximal runs of plain children; any other child is a run of its own."""
        run: list[Node] = []
        for child in children:
            if not self._is_plain(child, is_moved):
                yield from filter(None, (run, [child]))
                run = []
                continue
            if run and any(run[-1].end <= site.start == site.end <= child.start for site in self._sites):
                yield run
                run = []
            run.append(child)
        if run:
            yield run

    def _is_plain(self, child: Node, is_moved: bool) -> bool:
        """Return whether a child of a list is an untouched item or separator."""
        is_part = child.is_named or self._change.before.of(child) in (",", ";", "")
        # a comment inside $$$ would swallow the separator that follows it
        return is_part and "comment" not in child.kind and (is_moved or not self._is_touched(child))

    def _add(self, start: int, end: int, text: str, is_many: bool = False) -> None:
        if text not in self._names:
            number = len(self._names)
            letter = chr(ord("A") + number) if number < 26 else f"V{number}"
            self._names[text] = ("$$$" if is_many else "$") + letter
        self.found.append((start, end, self._names[text]))

    def _is_touched(self, node: Node) -> bool:
        return any(
            (site.start < node.end and node.start < site.end) or node.start < site.start == site.end < node.end
            for site in self._sites
        )

    def _is_replaced(self, node: Node) -> bool:
        return any(site.start <= node.start and node.end <= site.end for site in self._sites)


def _is_free(change: Change, node: Node, policy: Policy) -> bool:
    """Return whether `node` may become a metavariable."""
    parent = node.parent
    if not node.is_named or parent is None or _kept_kinds(policy).search(node.kind):
        return False
    text = change.before.of(node)
    if policy in _BROAD and text not in _CONSTANTS and _is_definition_name(node, parent):
        return True
    if text in _CONSTANTS or not text.strip():
        return False
    is_first = next((child for child in parent.children if child.is_named), None) is node
    if is_first and parent.kind in ("keyword_argument", "pair", "property_signature"):
        return False
    is_method_name = (
        parent.kind == "method_invocation"
        and node.kind == "identifier"
        and node.index + 1 < len(parent.children)
        and parent.children[node.index + 1].kind in ("argument_list", "type_arguments")
    )
    is_member_name = parent.kind in ("attribute", "field_access") and node.index == len(parent.children) - 1
    is_callee = parent.kind in _CALLS - {"method_invocation"} and is_first
    is_name = is_method_name or is_member_name or is_callee
    if is_name and policy == "loose":
        return True
    if is_name or _is_definition_name(node, parent):
        return False
    if policy == "named" and (node.kind in _CALLS or (is_first and parent.kind in _NAMINGS)):
        return False
    if is_sequence(node) and node.kind not in _LITERAL_LISTS:
        return False
    if is_first and parent.kind in _ACCESSES and policy not in ("all", *_BROAD):
        return _is_local(change, node)
    return True


def _kept_kinds(policy: Policy) -> re.Pattern[str]:
    return _BROADLY_KEPT if policy in _BROAD else _KEPT_KINDS


def _is_definition_name(node: Node, parent: Node) -> bool:
    is_definition = "definition" in parent.kind or "declaration" in parent.kind
    return is_definition and node.kind == "identifier" and "variable" not in parent.kind


def _is_local(change: Change, receiver: Node) -> bool:
    """Return whether a receiver is a value of this text rather than a module or class that the change is about."""
    root = receiver
    while root.children and root.kind in _CHAINS:
        root = root.children[0]
    name = change.before.of(root)
    # by convention a name with a capital is that of a class or a constant
    return (
        (name in change.bound and not name[:1].isupper())
        or root.kind not in ("identifier", "this")
        or (name in ("self", "this") and root is not receiver)
    )


def _repeats(rewrite: str, text: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", rewrite))


def _covers(site: Site, hole: tuple[int, int, str]) -> bool:
    return site.start < site.end and site.start <= hole[0] and hole[1] <= site.end


def _fill(text: str, start: int, end: int, edits: Sequence[tuple[int, int, str]]) -> str:
    pieces, position = [], start
    for edit_start, edit_end, new in edits:
        if position <= edit_start <= end and edit_end <= end:
            pieces += [text[position:edit_start], new]
            position = edit_end
    return "".join(pieces) + text[position:end]
