"""A rule in words: what it matches, what its variables stand for, what it writes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of, template_of

_VARIABLE = re.compile(r"\${1,3}[A-Z_][A-Z0-9_]*")
_NAME = re.compile(r"\$*")
_MAX_INLINE = 60
_WHOLE_NAME = re.compile(r"\^([\w.]+)\$")
_WHOLE_TEXT, _ESCAPED = re.compile(r"\^((?:[\w\s'\",]|\\[^\w\s])+)\$"), re.compile(r"\\([^\w\s])")
_LAST_NAME = re.compile(r"\(\^\|\\\.\)(\w+)\$")
_MAX_SUMMARIZED = 3
"""So many nodes around a match are said in one line."""
_RELATIONS = {"inside": "inside", "has": "containing", "precedes": "before", "follows": "after"}
_PHRASES = {
    "kind": "a node of kind `{}`",
    "regex": "a text that the regular expression `{}` finds something in",
    "matches": "what the utility `{}` matches",
    "nthChild": "a node at position {!r} among its siblings",
    "range": "a node at {!r} of the file (lines and columns from 0)",
}
_STRICTNESS = {
    "cst": "every token of the pattern must be there",
    "smart": "",
    "ast": "unnamed tokens do not count",
    "relaxed": "unnamed tokens and comments do not count",
    "signature": "only kinds of nodes count, not their texts",
}


def summarize(action: PatternAction | RuleAction) -> str:
    """Return one line that says what `action` does, and under which conditions."""
    rule = rule_of(action)
    return _summarize_rewrite(rule) + _summarize_constraints(rule.get("constraints"))


def _summarize_rewrite(rule: Mapping[str, Any]) -> str:
    subject = "".join([_what(rule["rule"]), *(f" {phrase}" for phrase in _summarize_surroundings(rule["rule"]))])
    fix = template_of(rule["fix"])
    if not fix.strip():
        return f"Remove {subject}"
    if isinstance(rule["fix"], Mapping) and fix == "$A" and rule["fix"].get("expandEnd"):
        return f"Remove {subject}, and keep what follows it"
    if parts := list_replaced_parts(rule):
        (old, new), *further = parts
        more = f" and {len(further)} more" if further else ""
        return f"Replace {_quote(old)} by {_quote(new)}{more} in {subject}"
    old = _only_pattern(rule["rule"]) or "$A"
    if fix.startswith(old) and fix[len(old) :].lstrip(" ,;").startswith("\n"):
        return f"Insert {_quote(fix[len(old) :])} after {subject}"
    if fix.endswith(old) and fix[: -len(old)].rstrip(" ").endswith("\n"):
        return f"Insert {_quote(fix[: -len(old)])} before {subject}"
    return f"Replace {subject} by {_quote(fix)}"


def explain(action: PatternAction | RuleAction) -> list[str]:
    """Return lines that say all that `action` means; those that belong to one above are indented."""
    rule = rule_of(action)
    lines = ["Matches", *_indent(_matcher(rule["rule"]))]
    for name, utility in (rule.get("utils") or {}).items():
        lines += [f"Utility `{name}` matches", *_indent(_matcher(utility))]
    return [*lines, *_variables(rule), *_describe_fix(rule["fix"])]


def _what(rule: Any) -> str:
    """Return a rule in a few words."""
    pattern = _only_pattern(rule)
    if pattern is not None:
        selector = rule["pattern"].get("selector") if isinstance(rule["pattern"], Mapping) else None
        return f"the `{selector}` of {_quote(pattern)}" if selector else _quote(pattern)
    if not isinstance(rule, Mapping):
        return "what the rule matches"
    if isinstance(rule.get("all"), list) and rule["all"] and not rule.keys() & {"kind", "regex"}:
        return _what(rule["all"][0])
    kind, regex = rule.get("kind"), rule.get("regex")
    kinds = [inner.get("kind") for inner in rule.get("any") or () if isinstance(inner, Mapping)]
    text = f"`{kind}`" if kind else " or ".join(f"`{name}`" for name in kinds if name) or "a node"
    if regex and (whole := _WHOLE_NAME.fullmatch(str(regex))):
        text = f"the name {_quote(whole[1])}"
    elif regex:
        text += f" like {_quote(str(regex))}"
    name = rule.get("has")
    if isinstance(name, Mapping) and name.get("regex"):
        text += f" whose {name.get('field', 'part')} {_describe_text(str(name['regex']))}"
    return text


def _summarize_surroundings(rule: Any, depth: int = 0) -> Iterator[str]:
    """Yield what a rule says of the code around a match or within it, beside `_what`; not to any depth."""
    if not isinstance(rule, Mapping) or depth > _MAX_SUMMARIZED:
        return
    for key, value in rule.items():
        if key == "all" and isinstance(value, list):
            for inner in value:
                yield from _summarize_surroundings(inner, depth + 1)
        elif key == "not" and isinstance(value, Mapping):
            own = [f"like {_quote(str(value['regex']))}"] if value.get("regex") else []
            own += [_with_article(f"`{value['kind']}`")] if value.get("kind") else []
            yield from (f"not {phrase}" for phrase in (*own, *_summarize_surroundings(value, depth + 1)))
        elif key in _RELATIONS and isinstance(value, Mapping) and not (key == "has" and _names_part(rule)):
            further = "".join(f" {phrase}" for phrase in _summarize_surroundings(value, depth + 1))
            if key == "has" and value.get("field") and value.get("regex"):
                yield f"whose {value['field']} {_describe_text(str(value['regex']))}{further}"
                continue
            place = f"the `{value['field']}` of " if key == "inside" and value.get("field") else ""
            node = _what(value)
            is_kind = node.startswith("`") and _only_pattern(value) is None
            yield f"{_RELATIONS[key]} {place}{_with_article(node) if is_kind else node}{further}"


def _names_part(rule: Mapping[str, Any]) -> bool:
    """Return whether `_what` says what a rule contains."""
    inner = rule.get("has")
    return _only_pattern(rule) is None and isinstance(inner, Mapping) and bool(inner.get("regex"))


def _summarize_constraints(constraints: Any) -> str:
    """Return what the variables of a rule have to be; empty if they may be anything."""
    phrases = []
    for name, condition in (constraints or {}).items():
        kind, regex = (condition.get(key) if isinstance(condition, Mapping) else None for key in ("kind", "regex"))
        parts = [
            *([f"is {_with_article(f'`{kind}`')}"] if kind else []),
            *([_describe_text(str(regex))] if regex else []),
        ]
        phrases.append(f"`${name}` {' and '.join(parts) or 'has to meet a condition'}")
    return f", where {' and '.join(phrases)}" if phrases else ""


def _describe_text(regex: str) -> str:
    """Return what a regular expression asks of a text, as a predicate.

    `^name$`  ->  "is `name`"
    """
    if whole := _WHOLE_TEXT.fullmatch(regex):
        text = _ESCAPED.sub(r"\1", whole[1])
        return f"is {_quote(text)}"
    last = _LAST_NAME.fullmatch(regex)
    return f"ends in {_quote(last[1])}" if last else f"is like {_quote(regex)}"


def _with_article(kind: str) -> str:
    return f"{'an' if kind[1:2] in 'aeiou' else 'a'} {kind}"


def list_replaced_parts(rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the regular expressions that a rule replaces within its match, and by what; none where it writes more than that."""
    transforms = rule.get("transform") or {}
    if not transforms or template_of(rule["fix"]) != f"${next(reversed(transforms))}":
        return []
    parts = [inner.get("replace") if isinstance(inner, Mapping) else None for inner in transforms.values()]
    if not all(isinstance(part, Mapping) and {"replace", "by"} <= part.keys() for part in parts):
        return []
    return [(str(part["replace"]), str(part["by"])) for part in parts if part]


def format_metadata(value: Any) -> str:
    """Return a value of a rule's metadata as words."""
    return ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, dict) else str(value)


def _only_pattern(rule: Any) -> str | None:
    pattern = rule.get("pattern") if isinstance(rule, Mapping) else None
    if isinstance(pattern, str) and not re.fullmatch(r"\$[A-Z_]+", pattern):
        return pattern
    return str(pattern["context"]) if isinstance(pattern, Mapping) and "context" in pattern else None


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line if len(line) <= _MAX_INLINE else line[: _MAX_INLINE - 3] + '...'}`"


def _matcher(rule: Any) -> Iterator[str]:
    """Yield what a rule object asks for; conditions after the first begin with `and`."""
    if not isinstance(rule, Mapping):
        yield f"{rule!r}"
        return
    for number, (key, value) in enumerate(rule.items()):
        first, *following = _condition(key, value)
        yield f"and {first}" if number else first
        yield from following


def _condition(key: str, value: Any) -> Iterator[str]:
    match key:
        case "pattern":
            yield from _pattern(value)
        case "all" | "any":
            yield "all of" if key == "all" else "any of"
            for inner in value if isinstance(value, list) else [value]:
                yield from _itemize(_matcher(inner))
        case "not":
            yield "not"
            yield from _indent(_matcher(value))
        case "inside" | "has" | "precedes" | "follows":
            yield from _relation(key, value)
        case _:
            yield _PHRASES[key].format(value) if key in _PHRASES else f"{key}: {value!r}"


def _pattern(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _block("code of the form", value)
        return
    selector, strictness = value.get("selector"), _STRICTNESS.get(str(value.get("strictness", "")), "")
    subject = f"the `{selector}` in code of the form" if selector else "code of the form"
    yield from _block(subject, str(value.get("context", "")))
    if strictness:
        yield f"  ({strictness})"


def _relation(key: str, value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{_RELATIONS[key]} {value!r}"
        return
    inner = {name: item for name, item in value.items() if name not in ("stopBy", "field")}
    stop, field = value.get("stopBy", "neighbor"), value.get("field")
    near = {"end": "at any distance"}.get(str(stop), "directly") if isinstance(stop, str) else "up to a node that stops"
    place = f", as its `{field}`" if field and key == "has" else f", in its `{field}`" if field else ""
    yield f"{_RELATIONS[key]} ({near}{place})"
    yield from _indent(_matcher(inner))
    if not isinstance(stop, str):
        yield "  where it stops at"
        yield from _indent(_indent(_matcher(stop)))


def _variables(rule: Mapping[str, Any]) -> Iterator[str]:
    names = list(dict.fromkeys(_VARIABLE.findall(str(rule["rule"]) + str(rule.get("utils") or ""))))
    constraints, transforms = rule.get("constraints") or {}, rule.get("transform") or {}
    if names or transforms:
        yield "Variables"
    for name in names:
        bare = _NAME.sub("", name, count=1)
        many = "any number of nodes, none included" if name.startswith("$$$") else "any one node"
        if bare.startswith("_"):
            many += ", not kept"
        elif name not in template_of(rule["fix"]) and not _is_used(bare, transforms):
            many += ", left out of what is written"
        yield f"  `{name}`: {many}"
        if bare in constraints:
            yield "    that is"
            yield from _indent(_indent(_indent(_matcher(constraints[bare]))))
    for name, transform in transforms.items():
        yield f"  `${name}`: {_describe_transform(transform)}"


def _is_used(name: str, transforms: Mapping[str, Any]) -> bool:
    return any(re.search(rf"\${name}\b", str(transform)) for transform in transforms.values())


def _describe_transform(transform: Any) -> str:
    if not isinstance(transform, Mapping) or len(transform) != 1:
        return f"made by {transform!r}"
    [(kind, options)] = transform.items()
    if not isinstance(options, Mapping):
        return f"made by {kind} {options!r}"
    source = options.get("source")
    match kind:
        case "replace":
            return f"the text of `{source}` with `{options.get('replace')}` replaced by `{options.get('by')}`"
        case "substring":
            return f"characters {options.get('startChar', 0)} to {options.get('endChar', 'the end')} of the text of `{source}`"
        case "convert":
            return f"the text of `{source}` in {options.get('toCase')}"
        case _:
            return f"made by {kind} of `{source}`"


def _describe_fix(fix: Any) -> Iterator[str]:
    template = template_of(fix)
    if template:
        yield from _block("Writes", template)
    else:
        yield "Removes it"
    for key, subject in (("expandStart", "before"), ("expandEnd", "after")):
        if isinstance(fix, Mapping) and fix.get(key):
            yield f"Takes with it, {subject} the match,"
            yield from _indent(_matcher(fix[key]))


def _block(head: str, text: str) -> Iterator[str]:
    if "\n" not in text:
        yield f"{head} `{text}`"
        return
    yield head
    yield from (f"  | {line}".rstrip() for line in text.split("\n"))


def _indent(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _itemize(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"  - {line}" if number == 0 else f"    {line}"
