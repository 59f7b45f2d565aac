"""Rules that may stand for one edit, from broad to narrow: what is taken away is quoted, all else is left free.

The rules of `codemod.candidates` explain an example; they quote the code that it happens to stand in. Those here are
made to be tried on a repository: a name in every syntactic place, a node by its text or its shape in the place of its
parent, a list that gains or loses an item. Only the node that changes is written again. Every rule comes with variants
that say more of what stands around it, so that places can be told apart.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graftline.astgrep.action import RuleAction, rule_of
from graftline.astgrep.binding import Language, Node, Tree, captures_of, matches
from graftline.codemod.anti_unify import VARIABLE, Lists, Policy, Template, make_template
from graftline.codemod.candidates import generate_candidates, matcher_of, rust_regex
from graftline.codemod.canonical import list_required_words
from graftline.codemod.change import Change, Region
from graftline.codemod.diff import Site
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.migration.lists import list_item_options
from graftline.codemod.migration.negation import add_negation
from graftline.codemod.migration.option import (
    KEYWORD_WORDS,
    MAX_QUOTED,
    NAME,
    WORDS,
    Option,
    Rule,
    make_option,
    new_text_of,
)
from graftline.codemod.migration.renamings import list_renamings
from graftline.codemod.migration.surroundings import MAX_NEIGHBOR, find_covering_chain, list_contexts

_ARGUMENTS = frozenset(("argument_list", "arguments", "parameters", "formal_parameters"))
_TYPES: Mapping[Language, str] = {
    "python": "x: @",
    "typescript": "let x: @",
    "tsx": "let x: @",
    "java": "class A { @ x; }",
}
"""Where a type stands that is no program alone."""
_TOKENS = re.compile(r"\w+|[^\w\s]")
_QUOTES = re.compile(r"""(['"`]).*?\1|\\\S*""")
"""What may be written otherwise where it is matched."""
_FORMS = (r"""^['"`]\\?.['"`]$""", r"^[A-Z][A-Z0-9_]+$")
"""What captures may have in common: strings of one character, names of constants."""
_BETWEEN_LINES = re.compile(r"[ \t]*\n\s*")
_NO_LINES = re.compile(r"#|//|/\*|`|'{3}|\"{3}")
_OBJECT = re.compile(r"\{\s*[\w$]+\s*:")
"""Of JavaScript, and no block."""
_BRACKETS = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}")
_MAX_REGIONS, _MAX_VARIABLES = 3, 3


def generate_options(change: Change, site: Site, instruction: str = "") -> Iterator[Option]:
    """Yield the options for a difference, each once, broad ones first.

    A name that `instruction` speaks of is renamed in strings, comments and compound names as well.
    """
    emitted = set()
    renamings, items = list_renamings(change, site, instruction), list_item_options(change, site)
    shapes = [*_shapes(change, site)]
    halves = [option for shape in shapes if (option := add_negation(shape, change.language)) is not None]
    for option in (*renamings, *_nodes(change, site), *items, *halves, *shapes):
        key = "\n".join(action.model_dump_json() for action in option.actions)
        if key not in emitted:
            emitted.add(key)
            yield option
    for candidate in generate_candidates(change, site):
        key = candidate.action.model_dump_json()
        is_any_import = "import" in candidate.region.first.kind and not candidate.words - KEYWORD_WORDS
        if key not in emitted and not is_any_import:
            emitted.add(key)
            yield Option((_join_lines(candidate.action),), "example", "any", candidate.words)


def _join_lines(action: Rule) -> Rule:
    """Return a rule that quotes what stands in brackets in one line: where it is written, lines break as in the code."""
    rule = rule_of(action)
    old, fix = rule["rule"].get("pattern"), rule["fix"]
    if not isinstance(old, str) or not isinstance(fix, str) or "\n" not in old:
        return action
    pattern, new = _join(old), _join(fix)
    if pattern is None or new is None:
        return action
    return RuleAction.model_validate({**rule, "rule": {**rule["rule"], "pattern": pattern}, "fix": new})


def _join(text: str) -> str | None:
    """Return code without its line breaks; None where one does not stand in brackets, or in those of a block."""
    if _NO_LINES.search(text):
        return None
    pieces, position = list[str](), 0
    for gap in _BETWEEN_LINES.finditer(text):
        head = _QUOTES.sub("", text[: gap.start()])
        while (outer := _BRACKETS.sub("", head)) != head:
            head = outer
        opening = re.findall(r"[(\[{]", head)
        if not opening:
            return None
        if opening[-1] == "{" and not _OBJECT.match(head[head.rindex("{") :] + text[gap.end() :]):
            return None
        piece, following = text[position : gap.start()], text[gap.end() : gap.end() + 1]
        is_edge = piece[-1:] in ("(", "[") or following in (")", "]", ".")
        pieces += [piece.removesuffix(",") if following in (")", "]", "}") else piece, "" if is_edge else " "]
        position = gap.end()
    return "".join([*pieces, text[position:]])


def _nodes(change: Change, site: Site) -> Iterator[Option]:
    """Yield the replacement of a node that is quoted whole, by its place."""
    for region in _regions(change, site):
        old = change.before.of(region.first)
        new = new_text_of(change, region)
        if new is None or len(old) > MAX_QUOTED or "\n" in old or not region.first.is_named or VARIABLE.search(new):
            continue
        if not region.first.children and NAME.fullmatch(old):
            continue  # a name
        rule = {"kind": region.first.kind, "regex": f"^{rust_regex(old)}$"}
        for context, condition in list_contexts(change.before, region.first):
            yield make_option({**rule, **condition}, new, "text", context, change.language, old)


def _shapes(change: Change, site: Site) -> Iterator[Option]:
    """Yield patterns that leave free whatever the edit does not take away, and what tells their captures apart."""
    emitted = set()
    forms: tuple[tuple[Policy, Lists], ...] = (
        *(("broad", "runs"), ("broad", "long_runs"), ("broad", "items"), ("open", "runs"), ("open", "items")),
        *(("loose", "runs"), ("broad", "any_runs"), ("loose", "any_runs")),
    )
    for region in _regions(change, site):
        if region.first.kind in _ARGUMENTS:
            continue  # without what is called they say too little; `_lists` has them
        for policy, lists in forms:
            template = make_template(change, region, policy, lists)
            if template is not None and "\n" in template.pattern + template.rewrite:
                # what is written again over several lines is indented again; one line is broken where it is too long
                pattern, rewrite = _join(template.pattern), _join(template.rewrite)
                is_broken = "\n" in template.pattern
                joined = Template(pattern, rewrite, template.variables) if pattern and rewrite else None
                template = joined if joined or is_broken else template
            if template is None or template in emitted or not template.variables:
                continue
            if not _is_about(change, region, template.pattern):
                continue
            emitted.add(template)
            rule = _matcher(change.before, region.first, template.pattern)
            if rule is None:
                continue
            wrapped = _wrapping(change, region)
            if wrapped is not None:
                rule, fix = {"all": [{"pattern": "$WHOLE"}, rule]}, wrapped
            else:
                fix = template.rewrite
            quoted = _QUOTES.sub(" ", VARIABLE.sub(" ", template.pattern))
            for context, condition in [("any", {}), *list(list_contexts(change.before, region.first))[1:2]]:
                yield make_option({**rule, **condition}, fix, "shape", context, change.language, quoted)
            names = [name[1:] for name in dict.fromkeys(VARIABLE.findall(template.pattern)) if name[:2] != "$$"]
            captures = captures_of(region.first, {"rule": rule}, names).get(region.start, {})
            for name, (kind, text) in list(captures.items())[:_MAX_VARIABLES]:
                conditions = [("kind", {"kind": kind})] if kind else []
                if len(text) <= MAX_NEIGHBOR and "\n" not in text:
                    conditions.append(("neighbor", {"regex": f"^{rust_regex(text)}$"}))
                if last := re.search(r"(?:^|\.)([^\W\d][\w$]*)$", text):
                    conditions.append(("last", {"regex": rf"(^|\.){rust_regex(last[1])}$"}))
                conditions += [("form", {"regex": form}) for form in _FORMS if re.fullmatch(form, text)]
                for context, condition in conditions:
                    action = RuleAction(rule=rule, fix=fix, constraints={name: condition})
                    words = frozenset(WORDS.findall(quoted)) | list_required_words(action, change.language)
                    yield Option((action,), "shape", context, words)


def _is_about(change: Change, region: Region, pattern: str) -> bool:
    """Return whether a pattern quotes a name, or something that the edit takes away."""
    quoted = VARIABLE.sub(" ", pattern)
    if frozenset(WORDS.findall(quoted)) - KEYWORDS[change.language]:
        return True
    if "import" in region.first.kind:
        return False
    removed = " ".join(
        change.before.text[site.start : site.end] for _, site in change.inside(region.start, region.end) or ()
    )
    return bool(set(_TOKENS.findall(quoted)) & set(_TOKENS.findall(removed)) - {"(", ")", ",", ";"})


def _matcher(tree: Tree, node: Node, pattern: str) -> dict[str, Any] | None:
    rule = matcher_of(tree, node, pattern)
    context = _TYPES.get(tree.language)
    if rule is None and context is not None and "type" in node.kind:
        rule = {"pattern": {"context": context.replace("@", pattern), "selector": node.kind}}
        return rule if matches(node, rule) else None
    return rule


def _wrapping(change: Change, region: Region) -> str | None:
    """Return what to write if the text of `region` comes back whole within new text."""
    old, new = change.before.of(region.first), new_text_of(change, region)
    if new is None or new.count(old) != 1 or new == old or VARIABLE.search(new) or len(old) < 2:
        return None
    head, _, tail = new.partition(old)
    is_whole = not (head[-1:] + old[:1]).isidentifier() and not (old[-1:].isalnum() and tail[:1].isalnum())
    return f"{head}$WHOLE{tail}" if is_whole and "\n" not in head + tail else None


def _regions(change: Change, site: Site) -> list[Region]:
    """Return single nodes around a site: those it consists of, and those that cover it."""
    regions = [region for region in change.regions(site) if region.is_single]
    spans = {(region.start, region.end) for region in regions if region.start <= site.start <= site.end <= region.end}
    chosen = [region for region in regions if (region.start, region.end) in spans]
    return chosen[:_MAX_REGIONS]


def guard_option(option: Option, change: Change, starts: Sequence[int]) -> Option | None:
    """Return `option` kept from what is edited already, which it would edit again at `starts` of the text after.

    A match is left alone if it stands in what the edit wraps it in; None where nothing is wrapped.
    """
    chain = find_covering_chain(change.after, Site(starts[0], starts[0] + 1, 0, 0, "", False))
    new_start = min((site.new_start for site in change.code_sites if site.new_end >= starts[0]), default=-1)
    outer = [node for node in chain if node.start < starts[0] and node.start >= new_start >= 0 and node.is_named]
    if not outer:
        return None
    head = change.after.text[outer[0].start : starts[0]]
    if not head.strip() or "\n" in head or len(head) > MAX_NEIGHBOR:
        return None
    guard: dict[str, Any] = {"kind": outer[0].kind, "regex": f"^{rust_regex(head.rstrip())}"}
    for node in outer[1:]:
        guard = {"kind": node.kind, "inside": guard}
    actions = []
    for action in option.actions:
        rule = rule_of(action)
        actions.append(RuleAction.model_validate({**rule, "rule": {"all": [rule["rule"], {"not": {"inside": guard}}]}}))
    return replace(option, actions=tuple(actions))
