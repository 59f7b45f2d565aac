"""Rules that put an item into a list or take one out, whatever else it holds: arguments, modifiers, decorators, brackets."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graftline.astgrep.action import RuleAction
from graftline.astgrep.binding import Node
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.candidates import rust_regex
from graftline.codemod.canonical import list_required_words
from graftline.codemod.change import Change, Region, column, dedent
from graftline.codemod.diff import Site, apply_sites
from graftline.codemod.migration.option import MAX_QUOTED, WORDS, Option, common_words, new_text_of, transform_rule
from graftline.codemod.migration.surroundings import MAX_NEIGHBOR, find_covering_chain, list_contexts

_TYPES = (
    *("type_identifier", "scoped_type_identifier", "generic_type", "array_type"),
    *("integral_type", "floating_point_type", "boolean_type", "void_type"),
)
_CAMEL = re.compile(r"[A-Z][a-z0-9]+")
_OPENING, _CLOSING = "([{", ")]}"


def list_item_options(change: Change, site: Site) -> Iterator[Option]:
    """Yield what a difference does to the list, brackets, modifiers or decorators that it stands in."""
    for options in (_lists, _brackets, _modifiers, _decorators):
        yield from options(change, site)


def _lists(change: Change, site: Site) -> Iterator[Option]:
    """Yield what puts an item into a list in brackets, or takes one out, without writing the others again."""
    chain = find_covering_chain(change.before, site)
    for node in chain[::-1][:2]:
        text = change.before.of(node)
        if len(text) < 2 or text[0] not in _OPENING or text[-1] not in _CLOSING or not node.is_named:
            continue
        inside = change.inside(node.start, node.end)
        if inside is None:
            return
        new = apply_sites(change.before.text, [site for _, site in inside], node.start, node.end)
        yield from _insertions(change, node, text, new)
        yield from _deletions(change, node, text, new)
        return


def _insertions(change: Change, node: Node, text: str, new: str) -> Iterator[Option]:
    old_body, new_body = text[1:-1].strip().rstrip(",").rstrip(), new[1:-1].strip().rstrip(",").rstrip()
    if new[:1] != text[0] or new[-1:] != text[-1] or len(new_body) <= len(old_body):
        return
    if new_body.startswith(old_body) and (not old_body or new_body[len(old_body) :].lstrip().startswith(",")):
        item, is_last = new_body[len(old_body) :].lstrip().removeprefix(",").strip(), True
    elif old_body and new_body.endswith(old_body) and new_body[: -len(old_body)].rstrip().endswith(","):
        item, is_last = new_body[: -len(old_body)].rstrip().removesuffix(",").strip(), False
    else:
        return
    if not item or "\n" in item or VARIABLE.search(item):
        return
    keyword = re.match(r"[A-Za-z_]\w*\s*[=:]", item) if item.count(",") == 0 else None
    absent = {"regex": f"^{rust_regex(keyword[0].strip())}" if keyword else f"^{rust_regex(item.partition(',')[0])}$"}
    by = item.replace("$", "$$")
    empty = (r"^(.)\s*(.)$", f"${{1}}{by}${{2}}")
    if is_last:
        forms = [
            empty,
            (r"(?s)^(.*)(\n[ \t]+)([^\n]*[^\s,]),(\s*\n[ \t]*.)$", f"${{1}}${{2}}${{3}},${{2}}{by},${{4}}"),
            (r"(?s)^(.*)(\n[ \t]+)([^\n]*[^\s,])(\s*\n[ \t]*.)$", f"${{1}}${{2}}${{3}},${{2}}{by}${{4}}"),
            (r"(?s)^(.+[^\s,]),?([ \t]*)(\S)$", f"${{1}}, {by}${{2}}${{3}}"),
        ]
    else:
        forms = [empty, (r"(?s)^(.)(\s*)(\S.*)$", f"${{1}}${{2}}{by}, ${{3}}")]
    for context, condition in list_contexts(change.before, node):
        if context == "any":
            continue
        actions = []
        for regex, replacement in forms:
            rule = {"kind": node.kind, "regex": regex, **condition, "not": {"has": absent}}
            actions.append(transform_rule(rule, [(regex, replacement)]))
        if _quotes(condition):
            yield Option(tuple(actions), "insert", context, common_words(actions, change.language))


def _deletions(change: Change, node: Node, text: str, new: str) -> Iterator[Option]:
    items = [child for child in node.children if child.is_named]
    if items and re.fullmatch(r"\(\s*\)", new):
        for context, condition in list_contexts(change.before, node):
            if _quotes(condition):
                rule = {"pattern": "$WHOLE", "kind": node.kind, "regex": r"(?s)^\(.*\S.*\)$", **condition}
                action = RuleAction(rule=rule, fix="()")
                yield Option((action,), "delete", context, list_required_words(action, change.language))
    for item in items:
        removed = change.before.of(item)
        remaining = [change.before.of(child) for child in items if child is not item]
        if (
            "\n" in removed
            or len(removed) > MAX_QUOTED
            or re.sub(r"[\s,]+", "", new[1:-1]) != re.sub(r"[\s,]+", "", "".join(remaining))
        ):
            continue
        if new[:1] != text[0]:
            continue
        quoted = rust_regex(removed)
        edits = [
            (rf"^(.)\s*{quoted}\s*,?\s*(.)$", "${1}${2}"),
            (rf"^(.\s*){quoted}\s*,\s*", "${1}"),
            (rf",\s*{quoted}(\s*,)", "${1}"),
            (rf",\s*{quoted}(,?\s*.)$", "${1}"),
        ]
        has = {"has": {"kind": item.kind, "regex": f"^{quoted}$"}}
        for context, condition in list_contexts(change.before, node):
            action = transform_rule({"kind": node.kind, **has, **condition}, edits)
            words = frozenset(WORDS.findall(removed)) if "\\" not in removed else frozenset()
            yield Option((action,), "delete", context, words | list_required_words(action, change.language))


def _brackets(change: Change, site: Site) -> Iterator[Option]:
    """Yield the change of a list of Python to a tuple, or back, whatever it holds, by its place."""
    if change.language != "python":
        return
    for node in find_covering_chain(change.before, site)[::-1]:
        new = new_text_of(change, Region(node, node))
        if node.kind not in ("list", "tuple") or new is None or new[:1] + new[-1:] not in ("()", "[]"):
            continue
        old = change.before.of(node)
        if new[0] == old[0] or [w.rstrip(",") for w in new[1:-1].split()] != [w.rstrip(",") for w in old[1:-1].split()]:
            return
        opening, closing = new[0], new[-1]
        edits = [(r"(?s)^.(.*).$", rf"{opening}${{1}}{closing}")]
        if opening == "(":  # one item alone needs a comma
            edits.append((r"(?s)^\(([^,]*[^,\s])(\s*)\)$", "(${1},${2})"))
        for context, condition in list_contexts(change.before, node):
            action = transform_rule({"kind": node.kind, **condition}, edits)
            yield Option((action,), "brackets", context, list_required_words(action, change.language))


def _modifiers(change: Change, site: Site) -> Iterator[Option]:
    """Yield what puts a word at the end of a declaration's modifiers, or takes one out, with the blank after it."""
    node = next((node for node in find_covering_chain(change.before, site)[::-1] if node.kind == "modifiers"), None)
    if node is None or node.parent is None or node.index + 1 >= len(node.parent.children):
        return
    yield from _insert_modifier(change, node, node.parent.kind)
    words = [child for child in node.children if not child.children and not child.is_named]
    inside = change.inside(node.start, node.end)
    new = apply_sites(change.before.text, [site for _, site in inside or ()], node.start, node.end)
    gone = [
        word
        for word in words
        if re.sub(rf"\b{change.before.of(word)}\b", "", change.before.of(node)).split() == new.split()
    ]
    beside = node.parent.children[node.index + 1]
    if len(gone) != 1 or gone[0] is not node.children[-1] or not beside.is_named:
        return
    word = change.before.of(gone[0])
    modifiers = {"kind": "modifiers", "pattern": "$M", "regex": rf"\b{word}$"}
    annotations = [child for child in node.children if "annotation" in child.kind]
    conditions: list[tuple[str, dict[str, Any]]] = [("role", {})]
    for child in annotations:
        text = change.before.of(child)
        if len(text) <= MAX_NEIGHBOR and "\n" not in text:
            conditions.append(("neighbor", {"has": {"kind": child.kind, "regex": f"^{rust_regex(text)}$"}}))
        if len(parts := _CAMEL.findall(text.partition("(")[0])) > 1:  # annotations of one family share a word
            conditions.append(("kind", {"has": {"kind": child.kind, "regex": rf"^@\w*({'|'.join(parts)})"}}))
    for context, condition in conditions:
        rule = {
            **{"pattern": "$T", "kind": beside.kind, "follows": {**modifiers, **condition}},
            "inside": {"kind": node.parent.kind},
        }
        transform = {"M0": {"replace": {"source": "$M", "replace": rf"{word}$", "by": ""}}}
        fix = {"template": "$M0$T", "expandStart": {"kind": "modifiers"}}
        yield Option((RuleAction(rule=rule, fix=fix, transform=transform),), "modifier", context, frozenset({word}))


def _insert_modifier(change: Change, node: Node, declaration: str) -> Iterator[Option]:
    """Yield what puts a word behind the last of the modifiers of such a declaration, and behind `static` after that."""
    old, inside = change.before.of(node).split(), change.inside(node.start, node.end)
    new = apply_sites(change.before.text, [site for _, site in inside or ()], node.start, node.end).split()
    if new[:-1] != old or not all(WORDS.fullmatch(word) for word in (old[-1], new[-1])):
        return
    modifiers = {"kind": "modifiers", "regex": rf"\b{old[-1]}( static)?$", "not": {"regex": rf"\b{new[-1]}\b"}}
    rule = {"pattern": "$T", "any": [{"kind": kind} for kind in _TYPES], "follows": modifiers}
    action = RuleAction(rule={**rule, "inside": {"kind": declaration}}, fix=f"{new[-1]} $T")
    yield Option((action,), "modifier", "role", frozenset({old[-1]}))


def _decorators(change: Change, site: Site) -> Iterator[Option]:
    """Yield the removal of a decorator, with its line."""
    decorated = [node for node in find_covering_chain(change.before, site) if node.kind == "decorated_definition"]
    for node in decorated[-1:]:
        new = new_text_of(change, Region(node, node))
        margin = column(change.before.text, node.start)
        for child in node.children[:-1]:
            text = change.before.of(child)
            following = node.children[child.index + 1]
            remaining = change.before.text[node.start : child.start] + change.before.text[following.start : node.end]
            if new is not None and dedent(remaining, margin) == new and "\n" not in text:
                rule = {"kind": "decorator", "regex": f"^{rust_regex(text)}$", "precedes": {"pattern": "$N"}}
                fix = {"template": "$N", "expandEnd": {"pattern": "$N"}}
                name = next((c for c in node.children[-1].children if c.kind == "identifier"), None)
                conditions: list[tuple[str, dict[str, Any]]] = [("role", {})]
                if name is not None:
                    called = {"field": "name", "regex": f"^{rust_regex(change.before.of(name))}$"}
                    inside = {"kind": node.kind, "has": {"field": "definition", "has": called}}
                    conditions.append(("neighbor", {"inside": inside}))
                for context, condition in conditions:
                    action = RuleAction(rule={**rule, **condition}, fix=fix)
                    yield Option((action,), "delete", context, frozenset(WORDS.findall(text)))


def _quotes(condition: Mapping[str, Any]) -> bool:
    """Return whether a condition holds a text, and not kinds alone."""
    return "regex" in str(condition)
