"""Making a pair of snippets parse as what it is in its file."""

from collections.abc import Mapping

from graftline.actions.astgrep import Language, parse
from graftline.errors import DataError

# what a bare member needs round it; a method of a JavaScript class read alone is a call and a block
_WRAPPERS: Mapping[Language, Mapping[str, str]] = {
    "python": {},
    "javascript": {"class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"},
    "typescript": {"class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"},
    "tsx": {"class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"},
    "java": {"class": "class Enclosing {{\n{}\n}}"},
}


def parsable(pre: str, post: str, language: Language) -> tuple[str, str, str] | None:
    """Return both sides so that they parse without error, and the name of the wrapper that took ("" for none).

    None where no wrapper helps.
    """
    for name, wrapper in {"": "{}", **_WRAPPERS[language]}.items():
        wrapped_pre, wrapped_post = wrapper.format(pre), wrapper.format(post)
        if _is_clean(wrapped_pre, language) and _is_clean(wrapped_post, language):
            return wrapped_pre, wrapped_post, name
    return None


def _is_clean(text: str, language: Language) -> bool:
    try:
        return parse(text, language).is_clean
    except DataError:
        return False
