"""Actions from the text of an ast-grep rule file.

What a file says beside the rewrite (id, message, severity and the like) is left out; what would change which places
are rewritten and has no place in an action is refused. So is what YAML 1.2 and ast-grep's own reader take differently:
`0o17` is a number to one and not to the other, and a text in quotes is the same to both.
"""

import re
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any

from pydantic import ValidationError

from graftline.astgrep.action import MAX_RULE, RuleAction
from graftline.astgrep.binding import LANGUAGES, Language, is_unicode
from graftline.core.config import parse_yaml
from graftline.core.errors import ConfigError, DataError

_ALIASES: Mapping[str, Language] = {"py": "python", "js": "javascript", "jsx": "javascript", "ts": "typescript"}
_KEPT = ("rule", "fix", "constraints", "transform", "utils")
_LEFT_OUT = ("id", "message", "note", "severity", "url", "metadata", "labels")
_SEVERITIES = ("hint", "info", "warning", "error")
_REFUSED = {
    "files": "which files are rewritten is said by the task",
    "ignores": "which files are rewritten is said by the task",
    "rewriters": "write what they do into `fix` and `transform`, or run ast-grep itself",
}
_FIX_KEYS = ("template", "expandStart", "expandEnd")

_WHOLE_NUMBERS = frozenset({"nthChild", "position", "line", "column", "startChar", "endChar"})
"""Keys whose values ast-grep wants as numbers; everywhere else it wants texts."""
_TRUTHS = frozenset({"reverse"})
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,8})")
_NULL = re.compile(r"|~|null", re.IGNORECASE)  # ast-grep's reader does not mind the case
_NO_TEXT = re.compile(  # to that reader or to YAML 1.2
    r"true|false|[-+]?\.(inf|nan)"
    r"|[-+]?0[xob][0-9a-f_]+|[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(e[-+]?[0-9_]+)?",
    re.IGNORECASE,
)
_SHOWN = 80
_LONGEST_MESSAGE = 500
"""Characters; that of a YAML reader repeats what it read."""


def rule_action(text: str, source: str = "rule") -> tuple[RuleAction, Language | None]:
    """Return the action of a rule file, and the language that it names; `source` stands before every fault.

    DataError if `text` is not one rule with one fix, or says what an action cannot.
    """
    if len(text) > MAX_RULE:
        raise DataError(f"{source}: is a rule file of {len(text)} characters; at most {MAX_RULE} are read")
    keys = _top_level(text, source)
    for key in keys:
        if key in _REFUSED:
            raise DataError(f"{source}: {key!r} has no place in an action; take it out: {_REFUSED[key]}")
        if key not in ("language", *_KEPT, *_LEFT_OUT):
            keys_read = ", ".join(("language", *_KEPT, *_LEFT_OUT))
            raise DataError(f"{source}: unknown key {_short(key)}; known here: {keys_read}")
    _check_severity(keys, source)
    values = {key: _value(keys[key], key, source) for key in _KEPT if key in keys and not _is_null(keys[key])}
    for key in ("rule", "fix"):
        if key not in values:
            raise DataError(f"{source}: has no {key!r}; an action needs a rule and its fix")
    values["fix"] = _only_fix(values["fix"], source)
    try:
        return RuleAction.model_validate(values), _language(keys, source)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise DataError(f"{source}: {place + ': ' if place else ''}{fault['msg']}") from None


def _top_level(text: str, source: str) -> dict[str, Any]:
    """Return the YAML nodes of the one mapping in `text`, by key."""
    from ruamel.yaml import YAML

    try:
        # refuses what is no plain document: anchors, tags, several documents, equal keys, too many levels
        if not isinstance(parse_yaml(text, source), dict):
            raise DataError(f"{source}: is not a mapping; expected a rule with `rule` and `fix`")
        if match := re.search("[\x85\u2028\u2029]", text):
            # line breaks to some readers
            raise DataError(f"{source}: holds the character {match[0]!r}; write it as an escape in double quotes")
        return dict(_pairs(YAML(typ="safe", pure=True).compose(StringIO(text)), "", source))
    except ConfigError as error:
        raise DataError(str(error)[:_LONGEST_MESSAGE]) from None


def _pairs(mapping: Any, place: str, source: str) -> Iterator[tuple[str, Any]]:
    location = f"{source}: {_short(place) if place else 'the rule'}"
    for key, node in mapping.value:
        name = key.value
        if key.id != "scalar" or (not key.style and (_NO_TEXT.fullmatch(name) or _NULL.fullmatch(name))):
            raise DataError(f"{location}: has a key that is no text; quote it")
        if name == "<<":
            raise DataError(f"{location}: merges another mapping (<<); write its keys out")
        if not is_unicode(name):
            raise DataError(f"{location}: has a key with half of a surrogate pair; write the character itself")
        yield name, node


def _value(node: Any, key: str, source: str) -> Any:
    """Return the value of a YAML node; `key` is the one it stands under, or that of the list it stands in."""
    if node.id == "mapping":
        return {name: _value(inner, name, source) for name, inner in _pairs(node, key, source)}
    if node.id == "sequence":
        return [_value(inner, key, source) for inner in node.value]
    value: str = node.value
    location = f"{source}: line {node.start_mark.line + 1}: {_short(key)}"
    if not is_unicode(value):
        raise DataError(f"{location}: holds half of a surrogate pair; write the character itself")
    if node.style:
        return value
    if key in _WHOLE_NUMBERS and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    if key in _TRUTHS and value in ("true", "false"):
        return value == "true"
    if _is_null(node):
        raise DataError(f"{location}: has no value; give it one or take the key out")
    if _NO_TEXT.fullmatch(value):
        raise DataError(f"{location}: {_short(value)} is not read as a text; put it in quotes")
    return value


def _text(node: Any) -> str:
    return str(node.value) if node.id == "scalar" else f"a {node.id}"


def _is_null(node: Any) -> bool:
    return node.id == "scalar" and not node.style and _NULL.fullmatch(node.value) is not None


def _check_severity(keys: Mapping[str, Any], source: str) -> None:
    severity = _text(keys["severity"]) if "severity" in keys else "hint"
    if severity == "off":
        raise DataError(f"{source}: 'severity: off' turns the rule off; take it out if the rule is to be applied")
    if severity not in _SEVERITIES:
        raise DataError(f"{source}: 'severity' is {_short(severity)}; expected one of {', '.join(_SEVERITIES)}")


def _language(keys: Mapping[str, Any], source: str) -> Language | None:
    if "language" not in keys:
        return None
    name = _text(keys["language"])
    names: dict[str, Language] = {**{language: language for language in LANGUAGES}, **_ALIASES}
    if name.lower() not in names:
        raise DataError(f"{source}: 'language' is {_short(name)}; expected one of {', '.join(names)}")
    return names[name.lower()]


def _only_fix(fix: Any, source: str) -> Any:
    if isinstance(fix, list):
        raise DataError(f"{source}: 'fix' is a list, of which ast-grep applies the first; give the one that is meant")
    if not isinstance(fix, dict):
        return fix
    if not isinstance(fix.get("template"), str):
        raise DataError(f"{source}: 'fix' has no 'template' that is a text")
    if unknown := sorted(fix.keys() - {*_FIX_KEYS, "title"}):
        raise DataError(f"{source}: 'fix' has an unknown key {_short(unknown[0])}; known here: {', '.join(_FIX_KEYS)}")
    return {key: value for key, value in fix.items() if key != "title"}  # what an editor shows


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
