"""Which language a file is in, by the ending of its name; whether it parses as that is not judged here."""

from collections.abc import Mapping

from graftline.astgrep.binding import Language

_LANGUAGES: Mapping[str, Language] = {
    "py": "python",
    "pyi": "python",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "jsx": "javascript",
    "ts": "typescript",
    "mts": "typescript",
    "cts": "typescript",
    "tsx": "tsx",
    "java": "java",
}


def language_of_path(path: str) -> Language | None:
    """Return the language of the file `path`, in either case of letters; None where its ending says nothing."""
    stem, dot, ending = path.rpartition(".")
    # what follows the dot of `.py` or of `folder/.py` is the name, not an ending
    return _LANGUAGES.get(ending.lower()) if dot and stem and stem[-1] != "/" else None
