"""Rule files: ast-grep rules with the examples that say what they are for, as one text of YAML documents.

`ast-grep scan --rule` takes what is written here. What only Graftline knows stands under `metadata`, which ast-grep
keeps and does not look at: `general`, `variables`, `support` and the like as facts; `examples`, texts before and after;
`stays`, texts that the rule leaves as they are. What the rule itself may say is `graftline.astgrep.rule_text`'s.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from typing import Any

from pydantic import ValidationError

from graftline.astgrep.action import MAX_RULE, PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.astgrep.rule_text import rule_action
from graftline.codemod.explain import list_replaced_parts, summarize
from graftline.core.config import Config, parse_yaml, to_yaml
from graftline.core.errors import DataError

MAX_FILE_CHARACTERS = 4 << 20
MAX_RULES = 1_000
_BREAK = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_CONTENT = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
_WORD = re.compile(r"(?<!\$)\b[^\W\d]\w*")
_MAX_ID = 48


class Example(Config):
    """A text, and what the rule makes of it."""

    before: str
    after: str
    source: str = ""
    """Where it comes from: a commit and a path, or a file."""


class _Metadata(Config):
    examples: tuple[Example, ...] = ()
    stays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRule:
    """One rule of a rule file."""

    action: PatternAction | RuleAction
    language: Language
    id: str = ""
    """Given to it when it is written, if it has none."""
    examples: tuple[Example, ...] = ()
    stays: tuple[str, ...] = ()
    """Texts that it must leave as they are."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is known of it, of the kinds that JSON has."""
    message: str = ""


def format_rules(rules: Sequence[FileRule], heading: Sequence[str] = ()) -> str:
    """Return the text of a rule file; lines of `heading` stand before the rules as comments.

    Examples are left out, last first, of a rule that they would make too long to be read. DataError if a rule holds
    something that no rule file can say.
    """
    comments = "".join(f"# {line}".rstrip() + "\n" for line in heading)
    return comments + "---\n".join(map(_document, assign_ids(rules)))


def assign_ids(rules: Sequence[FileRule]) -> list[FileRule]:
    """Return `rules` with ids that tell them apart; those that have one keep it, if it is the first of its name."""
    used: set[str] = set()
    renamed = []
    for rule in rules:
        base = rule.id or slug(rule.action)
        name, number = base, 2
        while name in used:
            name, number = f"{base}-{number}", number + 1
        used.add(name)
        renamed.append(replace(rule, id=name))
    return renamed


def slug(action: PatternAction | RuleAction) -> str:
    """Return a name for `action`, of the words that it takes away and puts in.

    assertEquals($A, $B) => assertEqual($A, $B)    assertequals-to-assertequal
    """
    rule = rule_of(action)
    written = [*_texts(rule["fix"]), *(by for _, by in list_replaced_parts(rule))]
    old, new = _words(" ".join(_texts(rule["rule"]))), _words(" ".join(written))
    gone, come = [word for word in old if word not in new], [word for word in new if word not in old]
    if gone and come:
        words = [*gone[-2:], "to", *come[:2]]
    elif come:
        words = [*old[:1], "with", *come[:2]]
    elif gone:
        words = ["drop" if new else "remove", *gone[-2:]]
    else:
        words = old[:3]
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    return text[:_MAX_ID].strip("-") or "rule"


def read_rules(text: str, source: str) -> tuple[FileRule, ...]:
    """Return the rules of a file that `format_rules` or a person wrote; `source` stands before every fault.

    DataError if it holds no rule, or one that is no action, names no language, or has examples of another form.
    """
    if len(text) > MAX_FILE_CHARACTERS:
        raise DataError(
            f"{source}: is a rule file of {len(text)} characters; at most {MAX_FILE_CHARACTERS} are read; divide it"
        )
    documents = [part for part in _BREAK.split(text.replace("\r\n", "\n")) if _CONTENT.search(part)]
    if not documents:
        raise DataError(f"{source}: holds no rule; expected ast-grep rules with `rule` and `fix`")
    if len(documents) > MAX_RULES:
        raise DataError(f"{source}: holds {len(documents)} rules; at most {MAX_RULES} are read; divide it")
    is_one = len(documents) == 1
    rules = [_read(part, source if is_one else f"{source}: rule {n}") for n, part in enumerate(documents, 1)]
    return tuple(assign_ids(rules))


def _read(document: str, source: str) -> FileRule:
    action, language = rule_action(document, source)
    if language is None:
        raise DataError(f"{source}: names no 'language'; add one, such as `language: python`")
    tree = parse_yaml(document, source)
    metadata_tree = tree.get("metadata")
    if metadata_tree is not None and not isinstance(metadata_tree, dict):
        raise DataError(f"{source}: 'metadata' is {metadata_tree!r}; expected a mapping")
    facts = dict(metadata_tree or {})
    own = {key: facts.pop(key) for key in ("examples", "stays") if facts.get(key) is not None}
    try:
        metadata = _Metadata.model_validate_json(json.dumps(own))
    except (ValidationError, TypeError, ValueError):
        raise DataError(
            f"{source}: 'metadata' has examples of another form; expected `examples` with `before` and `after`,"
            " and `stays` with texts"
        ) from None
    return FileRule(
        action,
        language,
        id=str(tree.get("id") or ""),
        examples=metadata.examples,
        stays=metadata.stays,
        facts=facts,
        message=str(tree.get("message") or ""),
    )


def _document(rule: FileRule) -> str:
    text = _text(rule)
    while len(text) > MAX_RULE and (rule.examples or rule.stays):
        shorter = replace(rule, stays=rule.stays[:-1]) if rule.stays else replace(rule, examples=rule.examples[:-1])
        rule, text = shorter, _text(shorter)
    again, language = rule_action(text, f"rule {rule.id!r}")
    if rule_of(again) != rule_of(rule.action) or language != rule.language:
        raise DataError(f"rule {rule.id!r}: holds keys or numbers that a rule file would say otherwise; leave it out")
    return text


def _text(rule: FileRule) -> str:
    examples = [
        {key: value for key, value in example.model_dump().items() if value or key != "source"}
        for example in rule.examples
    ]
    metadata = {**rule.facts, **({"examples": examples} if examples else {})}
    metadata |= {"stays": list(rule.stays)} if rule.stays else {}
    tree = {
        "id": rule.id,
        "language": rule.language,
        "severity": "hint",
        "message": rule.message or summarize(rule.action),
        **({"note": note} if (note := _note(rule)) else {}),
        **rule_of(rule.action),
        **({"metadata": metadata} if metadata else {}),
    }
    try:
        return to_yaml(tree)
    except RecursionError:
        raise DataError(f"rule {rule.id!r}: is nested too deep for a rule file; leave it out") from None


def _note(rule: FileRule) -> str:
    """Return the first example as a difference, for whoever meets the rule in ast-grep's output."""
    if not rule.examples:
        return ""
    first = rule.examples[0]
    lines = unified_diff(first.before.splitlines(), first.after.splitlines(), lineterm="", n=1)
    return "\n".join(["For example:", *(line.rstrip() for line in list(lines)[2:] if line[:2] != "@@")])


def _texts(rule: Any) -> Iterator[str]:
    """Yield the code and the regular expressions in a rule object or a fix."""
    if isinstance(rule, str):
        yield rule
    elif isinstance(rule, list):
        for inner in rule:
            yield from _texts(inner)
    elif isinstance(rule, Mapping):
        for key, inner in rule.items():
            if key not in ("kind", "selector", "strictness", "field", "stopBy", "expandStart", "expandEnd"):
                yield from _texts(inner)


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(re.sub(r"\$+\w+|\\[bBdDsSwW]", " ", text))))
