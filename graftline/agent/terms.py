"""What an instruction names, by its words alone: code and words that are to go, that are to come, or where it is done.

What it quotes or writes like code counts most, then its words, as parts of identifiers.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, get_close_matches
from typing import Literal

from graftline.codemod.migration.places import has_word
from graftline.datasets.synthetic.candidates import parts_of

_MAX_TERMS = 24
Role = Literal["old", "new", "any"]
_TOKEN = re.compile(
    r"`+(?P<code>[^`\n]{1,200})`+|(?P<arrow>->|=>|→)"
    r"|(?P<word>[@$]?[A-Za-z_][\w$]*(?:(?:\.|::|-(?=[a-z]))[A-Za-z_$][\w$]*)*(?:\(\))?)|(?P<end>[.;:!?\n])"
)
_SAYS_OLD = re.compile(
    r"(?:replac|renam|remov|dropp?|delet|deprecat)(?:e|es|ed|ing|ion|ions|s)?|unused|without|instead|from|than|over|away"
)
_SAYS_NEW = re.compile(r"with|to|into|by|us(?:e|es|ed|ing)|prefer|add(?:s|ed|ing)?|adopt|introduce")
_SAYS_WHERE = frozenset(("for", "in", "on", "of", "where", "when", "if"))
_ADDS, _REMOVES = re.compile(r"add|introduce"), re.compile(r"remov|drop|delet")
_KINDS = frozenset((
    "annotation", "argument", "attribute", "decorator", "fixture", "flag", "keyword", "modifier", "operator", "option", "parameter",
    "statement",
))  # fmt: skip
"""What is said of the name before: that it stands so in code."""
_LIKE_CODE = re.compile(r"[_$@.()]|[a-z][A-Z]|::|^[a-z]+\d")
_FOLLOWER = re.compile(r"\s+([A-Za-z]+)")
_KIND_OF_COMMIT = re.compile(r"^\s*[a-z]{2,10}(\([^)]*\))?!?:\s|\(#\d+\)")
_STOP = frozenset((
    "a", "an", "and", "all", "any", "are", "as", "at", "be", "been", "but", "call", "calls", "can", "change", "changes", "class",
    "convert", "do", "does", "each", "every", "everywhere", "file", "files", "fix", "fixes", "for", "function", "functions", "has",
    "have", "if", "in", "internal", "is", "it", "its", "make", "method", "methods", "migrate", "more", "move", "new", "no", "not",
    "now", "of", "old", "on", "one", "only", "or", "our", "place", "places", "project", "refactor", "repository", "same", "should",
    "so", "some", "switch", "that", "the", "their", "them", "then", "there", "these", "this", "those", "turn", "update", "updates",
    "upgrade", "usage", "usages", "version", "was", "we", "when", "where", "which", "while", "will", "would", "you",
))  # fmt: skip
_QUALIFIER = 0.3
_DOTTED = re.compile(r"(?P<name>[A-Za-z_$][\w$]*)(?P<dot>\.(?=\w))?")
_NAME = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]{2,60}(?![\w$])")
_MAX_NAMES_READ, _MAX_SIMILAR, _LEAST_SIMILAR, _LEAST_MISSPELT = 20_000_000, 3, 0.6, 0.8
_SUFFIX = re.compile(r"(ations?|ings?|ed|es|s|e)$")


@dataclass(frozen=True, slots=True)
class Term:
    """Something that the instruction names."""

    text: str
    role: Role
    weight: float
    is_code: bool
    """Whether it is a name as it stands in code, and not a word that may be a part of one."""
    is_qualifier: bool = False
    """Whether it stands before a dot: it may be called otherwise elsewhere."""
    is_shared: bool = False
    """Whether what is to go and what is to come both have it."""

    @property
    def is_gone(self) -> bool:
        """Whether it is code that is not to be there afterwards."""
        return self.role == "old" and self.is_code and not (self.is_qualifier or self.is_shared)

    @property
    def pattern(self) -> str:
        """A regular expression that matches it."""
        escaped = re.escape(self.text)
        if self.is_qualifier:
            return (
                rf"(?<![\w$]){escaped}(?=\s*(?:\.|::))|(?m:^[ \t]*(?:from|import)\b[^\n]*?(?<![\w$]){escaped}(?![\w$]))"
            )
        if self.is_code:
            return rf"(?<![\w$]){escaped}(?![\w$])"
        return rf"(?<![A-Za-z]){escaped}|(?<=[a-z_]){escaped[:1].upper()}{escaped[1:]}|{escaped[:1].upper()}{escaped[1:]}(?=[a-z]*\b|[A-Z_])"


def read_terms(instruction: str) -> list[Term]:
    """Return what an instruction names.

    "Use `fetch()` instead of `get()`"  ->  fetch (new), get (old)
    """
    role: Role = "any"
    terms: dict[str, Term] = {}

    def add(text: str, weight: float, is_code: bool, is_qualifier: bool = False) -> None:
        earlier = terms.get(text)
        is_shared = earlier is not None and (earlier.is_shared or {earlier.role, role} == {"old", "new"})
        if earlier is None or (earlier.role == "new" and role == "old") or (is_code and not earlier.is_code):
            terms[text] = Term(text, role, weight, is_code, is_qualifier, is_shared)
        elif is_shared:
            terms[text] = replace(earlier, is_shared=True)

    def add_code(code: str, weight: float) -> None:
        names = [*_DOTTED.finditer(code)]
        for name in names:
            if len(names) > 1 and len(name["name"]) == 1 and not name["dot"]:
                continue  # stands for any code
            add(
                name["name"],
                weight * (_QUALIFIER if name["dot"] else 1.0),
                is_code=True,
                is_qualifier=bool(name["dot"]),
            )

    verb = previous = ""
    text = _KIND_OF_COMMIT.sub("", instruction[:4_000])
    for match in _TOKEN.finditer(text):
        if match["end"]:
            role, verb = "any", ""
        elif match["arrow"]:
            role = "new"
            for name, term in [*terms.items()]:
                terms[name] = replace(term, role="old" if term.role == "any" else term.role)
        elif match["code"]:
            add_code(match["code"], 4.0)
        else:
            word = match["word"]
            lower = word.lower()
            is_code = bool(_LIKE_CODE.search(word)) or (word.isupper() and len(word) > 1)
            follower = _FOLLOWER.match(text, match.end())
            is_code |= text[match.end() : match.end() + 1] == "["
            is_code |= follower is not None and follower[1].lower().removesuffix("s") in _KINDS
            # "`unittest.mock` instead of mock"
            is_code |= (
                previous == "of"
                and role == "old"
                and any(term.role == "new" and term.text == word for term in terms.values())
            )
            previous, earlier = lower, previous
            if not is_code and (
                (_REMOVES.match(verb) and lower in ("from", "on", "in", "of"))
                or (_ADDS.match(verb) and lower in ("to", "into"))
                or (lower in _SAYS_WHERE and role == "new")
            ):
                role = "any"  # where it is done
            elif not is_code and lower == "from" and earlier.startswith("inherit"):
                role = "new"
            elif not is_code and lower in ("use", "uses", "using") and earlier in ("only", "that", "which"):
                role = "any"
            elif not is_code and (_SAYS_OLD.fullmatch(lower) or _SAYS_NEW.fullmatch(lower)):
                verb = lower if _ADDS.match(lower) or _REMOVES.match(lower) else verb
                role = "old" if _SAYS_OLD.fullmatch(lower) else "new"
            elif is_code:
                add_code(word, 3.0)
            elif lower not in _STOP and len(word) > 1 and lower.removesuffix("s") not in _KINDS:
                add(_SUFFIX.sub("", lower) if len(lower) > 4 else lower, 1.0, is_code=False)
    return [*terms.values()][:_MAX_TERMS]


def read_replaced_name(instruction: str, terms: Sequence[Term]) -> tuple[Term, Term] | None:
    """Return the one name that is to go, and the one that comes in its place; None where the words leave a choice."""
    own = [term for term in terms if term.is_code and not term.is_qualifier and term.text in instruction]
    old, new = ([term for term in own if term.role == role] for role in ("old", "new"))
    if len(own) != 2 or len(old) != 1 or len(new) != 1 or any(term.is_shared for term in own):
        return None
    if any(f"{term.text}[" in instruction for term in own):
        return None  # what stands in the brackets is to change as well
    return old[0], new[0]


def edit_by_words(instruction: str, terms: Sequence[Term], code: str) -> str | None:
    """Return `code` with the one name that is to come in place of the one that is to go; None where the words leave a choice.

    "Migrate to Node.findall() from Node.traverse()"  ->  `findall` for `traverse`
    """
    names = read_replaced_name(instruction, terms)
    edited = re.sub(names[0].pattern, lambda _: names[1].text, code) if names else code
    return edited if edited != code else None


def add_similar(terms: Sequence[Term], texts: Mapping[str, str]) -> list[Term]:
    """Return the terms, and beside a new name that no file has those that are likest it: what it is for is often called
    alike.

    `rolldownOptions` where there is `rollupOptions`, `read_text()` where there is `text()`
    """
    similar = list(terms)
    if any(term.is_code and not term.is_qualifier and term.role == "old" for term in terms):
        return similar
    names: Counter[str] = Counter()
    for term in terms:
        if not term.is_code or term.is_qualifier or any(has_word(term.text, text) for text in texts.values()):
            continue
        names = names or _count_names(texts)
        parts = frozenset(parts_of(term.text))
        # that a part is in it at all is told sooner than that it is one of its own
        likely = (name for name, count in names.items() if count > 1 and any(part in name.lower() for part in parts))
        likeness = {
            name: SequenceMatcher(None, name.lower(), term.text.lower()).ratio()
            for name in likely
            if not parts.isdisjoint(parts_of(name))
        }
        nearest = sorted(likeness, key=lambda name: (-likeness[name], -names[name], name))[:_MAX_SIMILAR]
        similar += [
            Term(name, "old", term.weight * likeness[name], is_code=True)
            for name in nearest
            if likeness[name] >= _LEAST_SIMILAR
        ]
    return similar


def describe_absent(
    instruction: str, terms: Sequence[Term], counts: Mapping[str, int], texts: Mapping[str, str]
) -> list[str]:
    """Return a sentence for each name that the instruction says is to go and that no line has, with the names that are
    likest it.

    `counts` are the lines that have a term. A word without a name that is like it is no misspelling.
    """
    absent = [term for term in terms if term.role == "old" and not term.is_qualifier and not counts[term.text]]
    names = _count_names(texts) if absent else Counter()
    sentences = []
    for term in absent:
        written = re.search(rf"(?<![\w$]){re.escape(term.text)}[\w$]*", instruction, re.IGNORECASE)
        word = term.text if term.is_code or written is None else written[0]
        if nearest := get_close_matches(word, names, _MAX_SIMILAR, _LEAST_MISSPELT):
            listed = ", ".join(f"`{name}`" for name in nearest)
            sentences.append(f"no line has `{word}`; if that is misspelt, the nearest names that are there: {listed}")
    return sentences


def _count_names(texts: Mapping[str, str]) -> Counter[str]:
    """Return how often the names of some texts are there; those of a large repository are not all looked at."""
    names: Counter[str] = Counter()
    size = 0
    for text in texts.values():
        names.update(_NAME.findall(text))
        size += len(text)
        if size > _MAX_NAMES_READ:
            break
    return names
