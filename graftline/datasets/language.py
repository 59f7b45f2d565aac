"""Which language a file or a pair of texts is in; and the door to tree-sitter, which says whether a text parses.

ast-grep parses with the same grammars, but says whether a text is clean only by a walk over all of its tree, which
takes longer than parsing it. On 6,234 files of five languages the two agree on every one.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from graftline.astgrep.binding import MAX_LINE_CHARACTERS, MAX_SOURCE_CHARACTERS, Language

_LANGUAGES: Mapping[str, Language] = {
    **dict.fromkeys(("py", "pyi"), "python"),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx"), "javascript"),
    **dict.fromkeys(("ts", "mts", "cts"), "typescript"),
    "tsx": "tsx",
    "java": "java",
}

# a file name does not say whether JavaScript carries types (Flow), nor whether TypeScript carries JSX
_ALTERNATIVES: Mapping[Language, tuple[Language, ...]] = {"javascript": ("tsx",), "typescript": ("tsx",)}

# what a bare member needs round it; a method of a JavaScript class read alone is a call and a block
_CLASS, _OBJECT = ("class", "class Enclosing {{\n{}\n}}"), ("object", "({{\n{}\n}})")
_WRAPPERS: Mapping[Language, tuple[tuple[str, str], ...]] = {
    "python": (),
    "javascript": (_CLASS, _OBJECT),
    "typescript": (_CLASS, _OBJECT),
    "tsx": (_CLASS, _OBJECT),
    "java": (_CLASS,),
}


def language_of_path(path: str) -> Language | None:
    """Return the language of the file `path`, in either case of letters; None where its ending says nothing."""
    stem, dot, ending = path.rpartition(".")
    # what follows the dot of `.py` or of `folder/.py` is the name, not an ending
    return _LANGUAGES.get(ending.lower()) if dot and stem and stem[-1] != "/" else None


def confirm_language(pre: str, post: str, language: Language) -> Language | None:
    """Return the language, `language` or a near relation, in which both sides parse; None where there is none."""
    candidates = (language, *_ALTERNATIVES.get(language, ()))
    return next((candidate for candidate in candidates if is_clean(pre, candidate) and is_clean(post, candidate)), None)


def wrap_member(pre: str, post: str, language: Language) -> tuple[str, str, str] | None:
    """Return both sides wrapped so that they parse, and the name of the wrapper; None where no wrapper helps."""
    for name, wrapper in _WRAPPERS[language]:
        texts = wrapper.format(pre), wrapper.format(post)
        if all(is_clean(text, language) for text in texts):
            return *texts, name
    return None


def unwrap_member(text: str, language: Language, name: str) -> str:
    """Return what stands in a text that was wrapped by the wrapper called `name`."""
    start, _, end = dict(_WRAPPERS[language])[name].format("\0").partition("\0")
    return text.removeprefix(start).removesuffix(end)


def is_clean(text: str, language: Language) -> bool:
    """Return whether the parser understands all of `text`, which must not hold half a surrogate pair.

    Texts longer than ast-grep may be given are not clean.
    """
    if len(text) > MAX_LINE_CHARACTERS and (
        len(text) > MAX_SOURCE_CHARACTERS or max(map(len, text.split("\n"))) > MAX_LINE_CHARACTERS
    ):
        return False
    return not _parser(language)(text.encode()).root_node.has_error


@cache
def _parser(language: Language) -> Callable[[bytes], Any]:
    from tree_sitter import Language as Grammar
    from tree_sitter import Parser

    match language:
        case "python":
            from tree_sitter_python import language as grammar
        case "javascript":
            from tree_sitter_javascript import language as grammar
        case "typescript":
            from tree_sitter_typescript import language_typescript as grammar
        case "tsx":
            from tree_sitter_typescript import language_tsx as grammar
        case "java":
            from tree_sitter_java import language as grammar
    return Parser(Grammar(grammar())).parse
