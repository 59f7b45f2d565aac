"""What rules are about, by what they quote and write: imports, one place of one program, tests and definitions."""

import builtins
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of, template_of
from graftline.astgrep.binding import Language
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.canonical import canonicalize, list_required_words, strip_context, words_of
from graftline.codemod.cost import patterns_of
from graftline.codemod.grammar import KEYWORDS

_MAX_CONTEXT = 4
"""Words that a rule may quote of what stays: with more of them it is about one place."""
_IMPORT = re.compile(r"^\s*(?:import\b|from\s+\S+\s+import\b|(?:const|let|var)\b[^=\n]*=\s*require\()", re.MULTILINE)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_STRING = re.compile(r"""\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`""")
_LONG_STRING = re.compile(r"""(["'`])(?=[^"'`\n]*\s|[^"'`\n]{16})[^"'`\n]*\1""")
_IMPORT_KIND = re.compile(r"'kind': '(?:\w*import|scoped_identifier)")
"""Java's `scoped_identifier` is a name with dots as imports have it; elsewhere its dots are accesses of fields, or of types."""
_BRACKET = re.compile(_STRING.pattern + r"|[()\[\]{},]")
_RECEIVER = re.compile(r"(?<![\w$.\"'])([a-z_]\w*)(?=\.\w+\()")
_PARAMETER, _PARAMETER_TYPE = re.compile(r"[^\W\d]\w*(?=\s*[:=])"), re.compile(r"\$V0\s*:\s*([^\W\d][\w.]*)(?=\s*=|$)")
_PARAMETERS = frozenset(("typed_default_parameter", "typed_parameter", "default_parameter"))
_COMMON = {**KEYWORDS, "python": KEYWORDS["python"] | frozenset(dir(builtins))}
_DEFINITION_KIND = re.compile(r"(?:function|class|method)_(?:definition|declaration)")
_OWN_MEMBER = re.compile(r"(?:self|this)\.\w+")
_ASSIGNMENT = re.compile(r"(?:(?:const|let|var|final)\s+)?(?:[\w<>\[\]]+\s+)?\w+(?:, ?\w+)*\s*=(?!=)")
"""Of a variable that has a name."""
_DEFINED = re.compile(
    r"\b(?:def|class|function|interface|enum)\s+(\w+)|^[\w<>\[\], ]*\b(\w+)\([^()]*\)[^;=]*\{", re.MULTILINE
)
_DEFINITIONS = {
    "test": re.compile(r"\bdef test|@Test\b|^\s*(?:it|test|describe)\(", re.MULTILINE),
    "definition": re.compile(
        r"\b(?:def|class|function|interface|enum)\s|^\s*(?:public|private|protected|static)\b.*\(", re.MULTILINE
    ),
}


def is_of_imports(action: PatternAction | RuleAction) -> bool:
    """Return whether a rule quotes an import."""
    rule = rule_of(action)["rule"]
    parts = [part for part in rule["all"] if "not" not in part] if isinstance(rule.get("all"), list) else rule
    return bool(_IMPORT_KIND.search(str(parts))) or any(_IMPORT.search(text) for text in _list_quoted(rule))


def _list_quoted(rule: Any) -> list[str]:
    """Return the code that a rule quotes, be it as a regular expression."""
    regexes = (str(part["regex"]) for part in _list_parts(rule) if part.get("regex"))
    return [
        *patterns_of(rule),
        *(re.sub(r"\\(.)", r"\1", regex.removeprefix("^").removesuffix("$")) for regex in regexes),
    ]


def is_of_one_place(action: PatternAction | RuleAction, language: Language) -> bool:
    """Return whether a rule is about a variable, a definition of a name that it leaves as it is, or quotes much that stays."""
    rule = rule_of(action)
    written = words_of(str(rule["fix"]))
    if len((list_required_words(action, language) & written) - KEYWORDS[language]) > _MAX_CONTEXT:
        return True
    texts = _list_quoted(rule["rule"])
    # what is said in strings and comments is of one program
    whole = str(rule["fix"])
    fix = _STRING.sub("", whole).strip()
    is_of_string = fix != whole.strip() and any(fix in _STRING.sub("", text) for text in texts)
    if is_of_string or re.search("string|comment", str(rule["rule"].get("kind", ""))):
        return True
    if any(match[0] in str(rule["fix"]) for text in texts for match in _LONG_STRING.finditer(text)):
        return True
    if any(_ASSIGNMENT.match(text) for text in texts):
        return True
    names = {
        name for pattern in _list_whole_patterns(rule["rule"]) for pair in _DEFINED.findall(pattern) for name in pair
    }
    return bool(names & written)


def _list_whole_patterns(rule: Any) -> Iterator[str]:
    """Return the patterns of a rule whose code is its own, and no context that makes it a program."""
    return (part["pattern"] for part in _list_parts(rule) if isinstance(part.get("pattern"), str))


def _list_parts(rule: Any) -> list[Any]:
    """Return a rule, and those that it is all of."""
    return [rule, *rule["all"]] if isinstance(rule.get("all"), list) else [rule]


@dataclass(frozen=True, slots=True)
class Edit:
    """What a rule quotes, and what it takes away of that and adds, in tokens without variables."""

    quoted: frozenset[str]
    lost: Mapping[str, int]
    gained: Mapping[str, int]

    def is_part_of(self, other: "Edit") -> bool:
        """Return whether another rule makes the same edit, and says more of where."""
        return self.quoted <= other.quoted and self.changes == other.changes

    @property
    def changes(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """What is lost and gained by one of the edits, where a rule makes the same one several times."""
        times = math.gcd(*self.lost.values(), *self.gained.values()) or 1
        lost, gained = ({token: n // times for token, n in side.items()} for side in (self.lost, self.gained))
        return lost, gained


def read_edit(action: PatternAction | RuleAction, language: Language) -> Edit:
    """Return what a rule takes away and adds.

    `List[A]` to `List[m.A]`  ->  quoted `List [ A ]`, gained `m .`: a part of it is `A` to `m.A`
    """
    rule = rule_of(action)
    pattern = rule["rule"].get("pattern")
    if isinstance(pattern, dict):
        texts = [strip_context(str(pattern.get("context")), str(pattern.get("selector")), language)]
    else:
        texts = _list_quoted(rule["rule"])
    fix = template_of(rule["fix"])
    old, new = (Counter(_TOKEN.findall(VARIABLE.sub(" ", text))) for text in (" ".join(texts), fix))
    return Edit(frozenset(old) - {";"}, dict(old - new), dict(new - old))


def free_arguments(
    action: PatternAction | RuleAction, language: Language, frees_receivers: bool = True
) -> PatternAction | RuleAction | None:
    """Return a rule with a variable for every argument that it writes as it quotes it; None if it is more than a pattern.

    `assertTrue($A.has($B));` to `assertThat($A.has($B)).isTrue();`  ->  `assertTrue($A)` to `assertThat($A).isTrue()`
    `a: T = None` to `a: Optional[T] = None`, of a parameter  ->  `$A: $B = None` to `$A: Optional[$B] = None`

    With `frees_receivers`, what methods of arguments are called of as well: `f(a.size(), 1)`  ->  `f($A.size(), $B)`.
    """
    if not isinstance(action, PatternAction) or action.strictness:
        return None
    if action.selector:
        return _free_parameter(action, action.selector, language)
    pattern, rewrite = action.pattern.strip(), action.rewrite.strip()
    if pattern.endswith(";") and rewrite.endswith(";"):
        pattern, rewrite = pattern[:-1], rewrite[:-1]
    names: dict[str, str] = {}
    pieces, end = list[str](), 0
    for start, stop in _list_arguments(pattern, rewrite, frees_receivers):
        name = names.setdefault(pattern[start:stop], f"$V{len(names)}")
        pieces += [pattern[end:start], name]
        end = stop
    free = "".join((*pieces, pattern[end:]))
    for argument in sorted(names, key=len, reverse=True):
        rewrite = re.sub(_whole(argument), names[argument], rewrite)
    is_bound = {*VARIABLE.findall(rewrite)} <= {*VARIABLE.findall(free)}
    if not is_bound or not words_of(VARIABLE.sub(" ", free)) or free == rewrite:
        return None
    result = canonicalize(PatternAction(pattern=free, rewrite=rewrite))
    return result if isinstance(result, PatternAction) else None


def _free_parameter(action: PatternAction, selector: str, language: Language) -> RuleAction | None:
    """Return a rule about a parameter with variables for its name and its type, which is to be one name as well."""
    text = strip_context(action.pattern, selector, language)
    parameter = _PARAMETER.match(text) if selector in _PARAMETERS else None
    if parameter is None or not action.rewrite.startswith(parameter[0]):
        return None
    free, rewrite = f"$V0{text[parameter.end() :]}", f"$V0{action.rewrite[parameter.end() :]}"
    constraints = {}
    kind = _PARAMETER_TYPE.match(free)
    if kind is not None and re.search(_whole(kind[1]), rewrite):
        free = f"{free[: kind.start(1)]}$V1{free[kind.end(1) :]}"
        rewrite = re.sub(_whole(kind[1]), "$V1", rewrite)
        constraints = {"V1": {"regex": r"^[\w.]+$"}}
    pattern = {"context": action.pattern.replace(text, free), "selector": selector}
    result = canonicalize(RuleAction(rule={"pattern": pattern}, fix=rewrite, constraints=constraints or None))
    return result if isinstance(result, RuleAction) else None


def _list_arguments(pattern: str, rewrite: str, with_receivers: bool) -> Iterator[tuple[int, int]]:
    """Yield where outermost arguments, and what methods of them are called of, stand that the rewrite has as well."""
    stack, end = list[list[int]](), -1
    spans = list[tuple[int, int]]()
    for token in _BRACKET.finditer(pattern):
        if token[0] in "([{":
            stack.append([token.end()])
        elif stack and token[0] == ",":
            spans.append((stack[-1][-1], token.start()))
            stack[-1].append(token.end())
        elif stack and token[0] in ")]}":
            spans.append((stack.pop()[-1], token.start()))
    first = pattern.find("(")
    receivers = _RECEIVER.finditer(pattern) if with_receivers and "\n" not in pattern else ()
    spans += [receiver.span(1) for receiver in receivers if receiver.start() > first >= 0]
    for first, last in sorted(spans, key=lambda span: (span[0], -span[1])):
        text = pattern[first:last]
        start, stop = first + len(text) - len(text.lstrip()), last - len(text) + len(text.rstrip())
        if start >= end and start < stop and re.search(_whole(pattern[start:stop]), rewrite):
            yield start, stop
            end = stop


def _whole(code: str) -> str:
    return rf"(?<![\w$.]){re.escape(code)}(?!\w)"


def is_own_member(action: PatternAction | RuleAction) -> bool:
    """Return whether all that a rule quotes is a member of the object itself, which every class has for itself."""
    texts = _list_quoted(rule_of(action)["rule"])
    return bool(texts) and all(_OWN_MEMBER.fullmatch(text.strip()) for text in texts)


def is_broad(action: PatternAction | RuleAction) -> bool:
    """Return whether a rule knows its places by one word at most: a name, or what stands behind a variable."""
    rule = rule_of(action)["rule"]
    patterns = list(patterns_of(rule))
    is_open = all(text.lstrip().startswith("$") for text in patterns)
    return is_open and len(words_of(" ".join(VARIABLE.sub(" ", text) for text in _list_quoted(rule)))) <= 1


def is_renaming(action: PatternAction | RuleAction) -> bool:
    """Return whether a rule puts one name in the place of another, wherever it stands."""
    rule = rule_of(action)
    texts = _list_quoted(rule["rule"])
    return len(texts) == 1 and texts[0].isidentifier() and str(rule["fix"]).isidentifier()


def replaces_common_word(action: PatternAction | RuleAction, language: Language) -> bool:
    """Return whether a rule puts a program's words in the place of words of the language, such as `dict` or `None`."""
    edit, common = read_edit(action, language), _COMMON[language]
    lost, gained = ({token for token in side if token[0].isalpha()} for side in (edit.lost, edit.gained))
    return bool(lost) and lost <= common and not gained <= common


def is_of_layout(action: PatternAction | RuleAction) -> bool:
    """Return whether a rule writes lines, or takes a statement away that it quotes: another one has other lines."""
    rule = rule_of(action)
    fix = str(rule["fix"])
    return "\n" in fix.strip() or (not fix.strip() and bool(rule["rule"].get("regex")))


def is_half(action: PatternAction | RuleAction, language: Language) -> bool:
    """Return whether a rule takes away a definition that others use, or renames a parameter that its function uses."""
    rule = rule_of(action)
    parts = _list_parts(rule["rule"])
    fix = template_of(rule["fix"])
    is_definition = name_removed_kind(action) == "definition" or any(
        _DEFINITION_KIND.search(str(part.get("kind"))) for part in parts
    )
    is_removed = is_definition and not words_of(VARIABLE.sub(" ", fix))
    is_of_parameters = any("parameters" in str((part.get("inside") or {}).get("kind")) for part in parts)
    return is_removed or (is_of_parameters and is_renaming(action)) or _renames_parameter(action, language)


def _renames_parameter(action: PatternAction | RuleAction, language: Language) -> bool:
    pattern, edit = rule_of(action)["rule"].get("pattern"), read_edit(action, language)
    if not isinstance(pattern, dict) or "parameter" not in str(pattern.get("selector")):
        return False
    lost, gained = list(edit.lost), list(edit.gained)
    is_name = len(lost) == len(gained) == 1 and lost[0].isidentifier() and gained[0].isidentifier()
    return is_name and re.search(rf"[(,]\s*{lost[0]}\b", str(pattern.get("context"))) is not None


def name_removed_kind(action: PatternAction | RuleAction) -> str:
    """Return whether a rule takes away a `test` or a `definition`; empty if neither."""
    fix = rule_of(action)["fix"]
    for kind, pattern in _DEFINITIONS.items():
        rule = rule_of(action)["rule"]
        texts = [*_list_whole_patterns(rule), *([] if rule.get("pattern") else _list_quoted(rule))]
        if any(pattern.search(text) for text in texts) and not pattern.search(str(fix)):
            return kind
    return ""
