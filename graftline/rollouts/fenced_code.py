"""Code in a fenced block, as language models are asked about it and answer with it."""

import re

from graftline.astgrep.binding import Language

_FENCES = re.compile(r"`{3,}")
_BLOCK = re.compile(r"^(?P<fence>`{3,})[\w+#-]*[ \t]*\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE)


def fence_code(code: str, language: Language) -> str:
    """Return code in a fenced block whose fence is longer than those in it."""
    fence = "`" * (1 + max(map(len, _FENCES.findall(code)), default=2))
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"


def read_text(answer: str) -> str | None:
    """Return the text in the first fenced block of an answer, or all of one that has none; None where it is empty."""
    match = _BLOCK.search(answer)
    text = match["text"] if match else answer
    return None if not text.strip() or (match is None and _FENCES.search(text)) else text


def read_code(answer: str, before: str) -> str | None:
    """Return the code of an answer, which ends as the text before does; None where there is none."""
    code = read_text(answer)
    if code is None or "\0" in code:
        return None
    return code.strip("\n") + before[len(before.rstrip("\n")) :]
