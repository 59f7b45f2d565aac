"""Rules that may stand for one edit, from broad to narrow: what is taken away is quoted, all else is left free.

The rules of `codemod.candidates` explain an example; they quote the code that it happens to stand in. Those here are
made to be tried on a repository: a name in every syntactic place, a node by its text or its shape in the place of its
parent, a list that gains or loses an item. Only the node that changes is written again. Every rule comes with variants
that say more of what stands around it, so that places can be told apart.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language, Node, Tree, captures_of, matches
from graftline.codemod.anti_unify import VARIABLE, Lists, Policy, make_template
from graftline.codemod.candidates import action_of, generate_candidates, matcher_of, rust_regex
from graftline.codemod.canonical import required_words
from graftline.codemod.change import Change, Region, column, dedent
from graftline.codemod.diff import Site, apply_sites
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.migration.imports import IMPORT_KINDS, is_importable
from graftline.codemod.migration.surroundings import MAX_NEIGHBOR, find_covering_chain, list_contexts

Rule = PatternAction | RuleAction

_ARGUMENTS = frozenset(("argument_list", "arguments", "parameters", "formal_parameters"))
_NAMES: Mapping[Language, tuple[str, ...]] = {
    "python": ("identifier",),
    "java": ("identifier", "type_identifier"),
    **dict.fromkeys(
        ("javascript", "typescript", "tsx"),
        (
            *("identifier", "property_identifier", "shorthand_property_identifier"),
            *("shorthand_property_identifier_pattern", "type_identifier"),
        ),
    ),
}
_TYPELESS = {"javascript": {"type_identifier"}}
_TYPES: Mapping[Language, str] = {
    "python": "x: @",
    "typescript": "let x: @",
    "tsx": "let x: @",
    "java": "class A { @ x; }",
}
"""Where a type stands that is no program alone."""
_TEXTS: Mapping[Language, tuple[str, ...]] = {
    "python": ("string_content", "comment"),
    "java": ("string_fragment", "line_comment", "block_comment"),
    **dict.fromkeys(("javascript", "typescript", "tsx"), ("string_fragment", "comment")),
}
_NODE_MODULES = (
    "assert|buffer|child_process|cluster|console|constants|crypto|dgram|diagnostics_channel|dns|domain|events"
    "|fs|http|http2|https|inspector|module|net|os|path|perf_hooks|process|punycode|querystring|readline|repl"
    "|stream|string_decoder|timers|tls|trace_events|tty|url|util|v8|vm|wasi|worker_threads|zlib"
)
"""Modules that are a part of Node.js: a string that is one of them is likely to stand for all."""
KEYWORD_WORDS = frozenset[str]().union(*KEYWORDS.values())
_NAME = re.compile(r"[^\W\d][\w$]*")
_TOKENS = re.compile(r"\w+|[^\w\s]")
_QUOTES = re.compile(r"""(['"`]).*?\1|\\\S*""")
"""What may be written otherwise where it is matched."""
_WORDS = re.compile(r"[^\W\d]\w*")
_OF_RULES = frozenset(("None", "template", "expandStart", "expandEnd", "kind", "pattern"))
"""Words of rules, not of code."""
_NAMES_OF = re.compile(r"[^\W\d][\w$]*")
_RENAMED = re.compile(r"""([\w$.]*[\w$])(\(\))?[`'"]*\s*(->|=>|→|\bto\b|\bwith\b|\bby\b)\s*[`'"]*([\w$.]*[\w$])""")
_ARROWS = ("->", "=>", "→")
_REPLACES = re.compile(r"\b(renam|replac|chang|migrat|switch|convert|mov)", re.IGNORECASE)
_MAX_QUOTED, _MAX_REGIONS, _MAX_VARIABLES = 160, 3, 3
_TELLING = re.compile(r".[_A-Z]")
_LEAST_TELLING = 6
"""Characters of a name that is looked for in strings and comments."""
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Option:
    """Rules that make one edit, applied one after the other."""

    actions: tuple[Rule, ...]
    kind: str
    """How they were made: `name`, `affix`, `text`, `shape`, `insert`, `delete`, `modifier` or `example`."""
    context: str
    """How much they say of what stands around: `any`, `role`, `neighbor`, `second`, `aunt`, `kind`."""
    words: frozenset[str]
    """Words that a text must have for one of them to match in it."""
    support: int = 1
    """Places of the edits shown that they put right."""
    contradictions: int = 0
    """Places there that they would change otherwise."""

    @property
    def written(self) -> frozenset[str]:
        """Words that they write."""
        texts = (
            str(part) for action in self.actions for part in (rule_of(action)["fix"], rule_of(action).get("transform"))
        )
        return frozenset(_WORDS.findall(VARIABLE.sub(" ", " ".join(texts))))

    @property
    def rewrites_lines(self) -> bool:
        """Whether they write several lines."""
        return any(str(rule_of(action)["fix"]).count("\n") > 1 for action in self.actions)

    @property
    def guesses(self) -> bool:
        """Whether one of them writes new words in the place of something that it does not quote."""
        for action in self.actions:
            rule = rule_of(action)
            pattern, fix = str(rule["rule"]), str((rule["fix"], rule.get("transform")))
            if {*VARIABLE.findall(pattern)} - {*VARIABLE.findall(fix)} - {"$WHOLE"}:
                words = [{*_WORDS.findall(VARIABLE.sub(" ", text))} for text in (pattern, fix)]
                if words[1] - words[0] - _OF_RULES:
                    return True
        return False

    @property
    def renamed(self) -> tuple[str, str] | None:
        """The one name that they put in the place of another; None where there are several."""
        gone, come = (side - KEYWORD_WORDS for side in (self.words - self.written, self.written - self.words))
        return (min(gone), min(come)) if len(gone) == len(come) == 1 else None


def generate_options(change: Change, site: Site, instruction: str = "") -> Iterator[Option]:
    """Yield the options for a difference, each once, broad ones first.

    A name that `instruction` speaks of is renamed in strings, comments and compound names as well.
    """
    emitted = set()
    sources = (
        *(_names(change, site, instruction), _affixes(change, site), _nodes(change, site), _lists(change, site)),
        *(_brackets(change, site), _modifiers(change, site), _decorators(change, site), _shapes(change, site)),
    )
    for option in (option for source in sources for option in source):
        key = "\n".join(action.model_dump_json() for action in option.actions)
        if key not in emitted:
            emitted.add(key)
            yield option
    for candidate in generate_candidates(change, site):
        key = candidate.action.model_dump_json()
        is_any_import = "import" in candidate.region.first.kind and not candidate.words - KEYWORD_WORDS
        if key not in emitted and not is_any_import:
            emitted.add(key)
            yield Option((candidate.action,), "example", "any", candidate.words)


def rename_everywhere(old: str, new: str, language: Language) -> Iterator[Option]:
    """Yield the renaming of a name in code, and in strings, comments and compound names as well."""
    kinds = [kind for kind in _NAMES[language] if kind not in _TYPELESS.get(language, ())]
    names = {"any": [{"kind": kind} for kind in kinds], "regex": f"^{rust_regex(old)}$"} | _outside_imports(
        new, language
    )
    yield _option(names, new, "name", "any", language, old)
    if len(old) < _LEAST_TELLING or not _TELLING.search(old):
        return
    quoted, by = rust_regex(old), new.replace("$", "$$")
    part, word = rf"(^|_){quoted}(_|$)", rf"\b{quoted}\b"
    compound = {"any": [{"kind": kind} for kind in kinds], "regex": part, "not": {"regex": f"^{quoted}$"}}
    texts = {"any": [{"kind": kind} for kind in _TEXTS[language]], "regex": word}
    further = (_transform(compound, [(part, f"${{1}}{by}${{2}}")]), _transform(texts, [(word, by)]))
    first = _option(names, new, "name", "text", language, old)
    yield replace(first, actions=(*first.actions, *further), words=frozenset())


def read_renaming(instruction: str) -> tuple[str, str] | None:
    """Return the name that a sentence says is replaced, and the new one; None if it says no such thing.

    `a.old_name -> a.new_name` is the renaming of `old_name`.
    """
    for match in _RENAMED.finditer(instruction):
        old, new = match[1].split("."), match[4].split(".")
        is_name = len(old[-1]) >= _LEAST_TELLING and bool(_TELLING.search(old[-1]))
        is_told = match[3] in _ARROWS or bool(_REPLACES.search(instruction[: match.start()]))
        if old[:-1] == new[:-1] and old != new and is_name and is_told:
            return old[-1], new[-1]
    return None


def _names(change: Change, site: Site, instruction: str) -> Iterator[Option]:
    """Yield the renaming of a name: in every kind of node, in its own, and by its place."""
    node = find_covering_chain(change.before, site)[-1]
    old = change.before.of(node)
    if node.children or site.start < node.start or site.end > node.end or not _NAME.fullmatch(old):
        return
    new = apply_sites(change.before.text, [site], node.start, node.end)
    if not new.strip() or "\n" in new:
        return
    rule = {"regex": f"^{rust_regex(old)}$"}
    kinds = [kind for kind in _NAMES[change.language] if kind not in _TYPELESS.get(change.language, ())]
    if _NAME.fullmatch(new) and node.kind in kinds:
        is_told = old in _NAMES_OF.findall(instruction)
        yield from list(rename_everywhere(old, new, change.language))[: 2 if is_told else 1]
    if node.is_named:
        for context, condition in list_contexts(change.before, node):
            is_own = {"kind": node.kind, **rule, **_outside_imports(new, change.language), **condition}
            yield _option(is_own, new, "name", context if context != "any" else "kind", change.language, old)


def _outside_imports(new: str, language: Language) -> dict[str, Any]:
    """Return the condition that keeps from imports what nothing can be imported by: no name, and what Python has anyway."""
    if is_importable(new, language):
        return {}
    kinds = [{"kind": kind} for kind in IMPORT_KINDS.get(language, ("import_statement",))]
    return {"not": {"inside": {"any": kinds, "stopBy": "end"}}}


def _affixes(change: Change, site: Site) -> Iterator[Option]:
    """Yield what is put before or behind a string or a name, whatever it says, by its place."""
    node = find_covering_chain(change.before, site)[-1]
    old = change.before.of(node)
    inside = change.inside(node.start, node.end)
    if node.children or not node.is_named or inside is None or not re.fullmatch(r"[\w$./-]+", old):
        return
    new = apply_sites(change.before.text, [site for _, site in inside], node.start, node.end)
    head, middle, tail = new.partition(old)
    if not middle or not (head or tail) or "\n" in new or VARIABLE.search(new):
        return
    form = r"^[A-Za-z][\w$/-]*$" if "." not in old else r"^[\w$./-]+$"
    if re.fullmatch(rf"({_NODE_MODULES})(/\w+)?", old):
        form = rf"^({_NODE_MODULES})(/\w+)?$"
    excluded = {"not": {"regex": f"^{rust_regex(head)}"}} if head else {"not": {"regex": f"{rust_regex(tail)}$"}}
    for context, condition in list_contexts(change.before, node):
        if context in ("second", "aunt"):
            rule = {"pattern": "$WHOLE", "kind": node.kind, "regex": form, **excluded, **condition}
            action = RuleAction(rule=rule, fix=f"{head}$WHOLE{tail}")
            yield Option((action,), "affix", context, required_words(action, change.language))


def _brackets(change: Change, site: Site) -> Iterator[Option]:
    """Yield the change of a list of Python to a tuple, or back, whatever it holds, by its place."""
    if change.language != "python":
        return
    for node in find_covering_chain(change.before, site)[::-1]:
        new = _new_text(change, Region(node, node))
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
            action = _transform({"kind": node.kind, **condition}, edits)
            yield Option((action,), "brackets", context, required_words(action, change.language))


def _modifiers(change: Change, site: Site) -> Iterator[Option]:
    """Yield the removal of a word of a declaration's modifiers, with the blank after it."""
    node = next((node for node in find_covering_chain(change.before, site)[::-1] if node.kind == "modifiers"), None)
    if node is None or node.parent is None or node.index + 1 >= len(node.parent.children):
        return
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
    for context, condition in conditions:
        rule = {
            **{"pattern": "$T", "kind": beside.kind, "follows": {**modifiers, **condition}},
            "inside": {"kind": node.parent.kind},
        }
        transform = {"M0": {"replace": {"source": "$M", "replace": rf"{word}$", "by": ""}}}
        fix = {"template": "$M0$T", "expandStart": {"kind": "modifiers"}}
        yield Option((RuleAction(rule=rule, fix=fix, transform=transform),), "modifier", context, frozenset({word}))


def _decorators(change: Change, site: Site) -> Iterator[Option]:
    """Yield the removal of a decorator, with its line."""
    decorated = [node for node in find_covering_chain(change.before, site) if node.kind == "decorated_definition"]
    for node in decorated[-1:]:
        new = _new_text(change, Region(node, node))
        margin = column(change.before.text, node.start)
        for child in node.children[:-1]:
            text = change.before.of(child)
            following = node.children[child.index + 1]
            remaining = change.before.text[node.start : child.start] + change.before.text[following.start : node.end]
            if new is not None and dedent(remaining, margin) == new and "\n" not in text:
                rule = {
                    **{"kind": "decorator", "regex": f"^{rust_regex(text)}$"},
                    "precedes": {"pattern": "$N"},
                }
                fix = {"template": "$N", "expandEnd": {"pattern": "$N"}}
                action = RuleAction(rule=rule, fix=fix)
                yield Option((action,), "delete", "role", frozenset(_WORDS.findall(text)))


def _nodes(change: Change, site: Site) -> Iterator[Option]:
    """Yield the replacement of a node that is quoted whole, by its place."""
    for region in _regions(change, site):
        old = change.before.of(region.first)
        new = _new_text(change, region)
        if new is None or len(old) > _MAX_QUOTED or "\n" in old or not region.first.is_named or VARIABLE.search(new):
            continue
        if not region.first.children and _NAME.fullmatch(old):
            continue  # a name
        rule = {"kind": region.first.kind, "regex": f"^{rust_regex(old)}$"}
        for context, condition in list_contexts(change.before, region.first):
            yield _option({**rule, **condition}, new, "text", context, change.language, old)


def _shapes(change: Change, site: Site) -> Iterator[Option]:
    """Yield patterns that leave free whatever the edit does not take away, and what tells their captures apart."""
    emitted = set()
    forms: tuple[tuple[Policy, Lists], ...] = (
        *(("broad", "runs"), ("broad", "long_runs"), ("broad", "items"), ("open", "runs"), ("open", "items")),
        ("loose", "runs"),
    )
    for region in _regions(change, site):
        if region.first.kind in _ARGUMENTS:
            continue  # without what is called they say too little; `_lists` has them
        for policy, lists in forms:
            template = make_template(change, region, policy, lists)
            if template is None or template in emitted or not template.variables or "\n" in template.pattern:
                continue  # what is written again over several lines is indented again
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
                yield _option({**rule, **condition}, fix, "shape", context, change.language, quoted)
            names = [name[1:] for name in dict.fromkeys(VARIABLE.findall(template.pattern)) if name[:2] != "$$"]
            captures = captures_of(change.before.root, {"rule": rule}, names).get(region.start, {})
            for name, (kind, text) in list(captures.items())[:_MAX_VARIABLES]:
                conditions = [("kind", {"kind": kind})] if kind else []
                if len(text) <= MAX_NEIGHBOR and "\n" not in text:
                    conditions.append(("neighbor", {"regex": f"^{rust_regex(text)}$"}))
                for context, condition in conditions:
                    action = RuleAction(rule=rule, fix=fix, constraints={name: condition})
                    words = frozenset(_WORDS.findall(quoted)) | required_words(action, change.language)
                    yield Option((action,), "shape", context, words)


def _is_about(change: Change, region: Region, pattern: str) -> bool:
    """Return whether a pattern quotes a name, or something that the edit takes away."""
    quoted = VARIABLE.sub(" ", pattern)
    if frozenset(_WORDS.findall(quoted)) - KEYWORDS[change.language]:
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
    old, new = change.before.of(region.first), _new_text(change, region)
    if new is None or new.count(old) != 1 or new == old or VARIABLE.search(new) or len(old) < 2:
        return None
    head, _, tail = new.partition(old)
    is_whole = not (head[-1:] + old[:1]).isidentifier() and not (old[-1:].isalnum() and tail[:1].isalnum())
    return f"{head}$WHOLE{tail}" if is_whole and "\n" not in head + tail else None


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
            actions.append(_transform(rule, [(regex, replacement)]))
        if _quotes(condition):
            yield Option(tuple(actions), "insert", context, _words_of(actions, change.language))


def _deletions(change: Change, node: Node, text: str, new: str) -> Iterator[Option]:
    items = [child for child in node.children if child.is_named]
    for item in items:
        removed = change.before.of(item)
        remaining = [change.before.of(child) for child in items if child is not item]
        if (
            "\n" in removed
            or len(removed) > _MAX_QUOTED
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
            action = _transform({"kind": node.kind, **has, **condition}, edits)
            words = frozenset(_WORDS.findall(removed)) if "\\" not in removed else frozenset()
            yield Option((action,), "delete", context, words | required_words(action, change.language))


def _transform(rule: dict[str, Any], edits: Sequence[tuple[str, str]]) -> RuleAction:
    """Return the rule that replaces regular expressions in the text of its match."""
    transform: dict[str, Any] = {}
    source = "$WHOLE"
    for number, (regex, by) in enumerate(edits):
        transform[f"T{number}"] = {"replace": {"source": source, "replace": regex, "by": by}}
        source = f"$T{number}"
    return RuleAction(rule={"pattern": "$WHOLE", **rule}, fix=source, transform=transform)


def _regions(change: Change, site: Site) -> list[Region]:
    """Return single nodes around a site: those it consists of, and those that cover it."""
    regions = [region for region in change.regions(site) if region.is_single]
    spans = {(region.start, region.end) for region in regions if region.start <= site.start <= site.end <= region.end}
    chosen = [region for region in regions if (region.start, region.end) in spans]
    return chosen[:_MAX_REGIONS]


def _new_text(change: Change, region: Region) -> str | None:
    """Return what becomes of a region, moved to the margin of its first line; None where a site is cut in two."""
    inside = change.inside(region.start, region.end)
    if not inside:
        return None
    text = apply_sites(change.before.text, [site for _, site in inside], region.start, region.end)
    return dedent(text, column(change.before.text, region.start))


def _option(rule: dict[str, Any], fix: str, kind: str, context: str, language: Language, quoted: str = "") -> Option:
    action = action_of(rule, fix) if not VARIABLE.search(quoted) else RuleAction(rule=rule, fix=fix)
    words = frozenset(_WORDS.findall(quoted)) if "\\" not in quoted else frozenset()
    return Option((action,), kind, context, words | required_words(action, language))


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


def _words_of(actions: Sequence[Rule], language: Language) -> frozenset[str]:
    return frozenset.intersection(*(required_words(action, language) for action in actions))


def _quotes(condition: Mapping[str, Any]) -> bool:
    """Return whether a condition holds a text, and not kinds alone."""
    return "regex" in str(rule_of(RuleAction(rule=dict(condition), fix="")))
