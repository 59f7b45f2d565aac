"""Which language a pair of texts is in, confirmed by its parser, and what a snippet needs round it to parse."""

from collections.abc import Mapping

from graftline.astgrep.binding import Language
from graftline.datasets.syntax import is_clean

# a file name does not say whether JavaScript carries types (Flow), nor whether TypeScript carries JSX
_ALTERNATIVES: Mapping[Language, tuple[Language, ...]] = {"javascript": ("tsx",), "typescript": ("tsx",)}

# what a bare member needs round it; a method of a JavaScript class read alone is a call and a block
_WRAPPERS: Mapping[Language, Mapping[str, str]] = {
    "python": {},
    "javascript": {"class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"},
    "typescript": {"class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"},
    "tsx": {"class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"},
    "java": {"class": "class Enclosing {{\n{}\n}}"},
}


def confirmed(pre: str, post: str, language: Language) -> Language | None:
    """Return the language, `language` or a near relation, in which both sides parse; None where there is none."""
    for candidate in (language, *_ALTERNATIVES.get(language, ())):
        if is_clean(pre, candidate) and is_clean(post, candidate):
            return candidate
    return None


def wrapped(pre: str, post: str, language: Language) -> tuple[str, str, str] | None:
    """Return both sides wrapped so that they parse, and the name of the wrapper; None where no wrapper helps."""
    for name, wrapper in _WRAPPERS[language].items():
        inside = wrapper.format(pre), wrapper.format(post)
        if all(is_clean(text, language) for text in inside):
            return *inside, name
    return None
