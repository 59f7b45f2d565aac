"""Snippets of real edits as the stages make them: wrapped where they do not parse alone."""

from graftline.astgrep.binding import Language
from graftline.datasets.language import confirm_language, wrap_excerpt


def parsable(pre: str, post: str, language: Language) -> tuple[str, str, str] | None:
    """Return both sides so that they parse, and the name of the wrapper; None where nothing helps."""
    return (pre, post, "") if confirm_language(pre, post, language) == language else wrap_excerpt(pre, post, language)
