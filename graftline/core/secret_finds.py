"""Secrets where none may be: in the variables and the metadata of a deployment, in the files of its context, and in recorded code.

A name is secret by what it says, a value by its shape. What is found is told by kind and place, never by value. Covered:
the shapes of well-known keys, private keys and signed tokens. Not covered: passwords, and whatever has no shape.

Every pattern is a prefix and one class of characters up to a bound, and begins only where a run of that class begins:
the time is linear in the text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SCANNED_BYTES = 4 << 20
"""Of one file; what comes after is not looked at."""
_MAX_DEPTH = 64
_BINARY_LOOK_BYTES = 8192
_LOOKED_AT, _FEWEST_DISTINCT = 16, 6
"""The last characters of a key, and how many different ones; `sk-xxxxxxxxxxxxxxxx` stands in for one."""

_VENDOR_NAMES = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "GOOGLE_API_KEY", "COHERE_API_KEY",
    "HUGGINGFACE_API_KEY", "SYNTH_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY", "TINKER_API_KEY", "HF_TOKEN",
)  # fmt: skip
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API|ACCESS|AUTH|SECRET|PRIVATE)?(?:TOKEN|KEY|KEY_ID|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$"
)
_PLAIN_AWS_NAMES = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION"})


@dataclass(frozen=True, slots=True)
class _Shape:
    kind: str
    marks: tuple[bytes, ...]
    """One of them is in every text that the pattern is in; to look for them is far quicker."""
    pattern: re.Pattern[bytes]
    is_run: bool = False
    """Whether it has so many letters and digits without a dash, as names of things that begin like it have not."""


_RUN = re.compile(rb"[A-Za-z0-9]{16}")


def _shape(kind: str, marks: str, pattern: str, is_run: bool = False) -> _Shape:
    # in the text of a program, a line break before a key is a backslash and a letter
    start = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
    return _Shape(kind, tuple(marks.encode().split()), re.compile((start + pattern).encode()), is_run)


_PRIVATE_KEY = _Shape(
    "a private key",
    (b"PRIVATE KEY",),
    re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
)
_SHAPES = (
    _shape("a key of a language model (sk-…)", "sk-", r"sk-[A-Za-z0-9_-]{16,512}", is_run=True),
    _shape("a key of Tinker (tml-…)", "tml-", r"tml-[A-Za-z0-9_-]{16,512}", is_run=True),
    _shape("a token of Hugging Face (hf_…)", "hf_", r"hf_[A-Za-z0-9]{20,128}"),
    _shape("a token of GitHub (gh…_…)", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,255}"),
    _shape("a token of GitHub (github_pat_…)", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,255}"),
    _shape("a token of GitLab (glpat-…)", "glpat-", r"glpat-[A-Za-z0-9_-]{16,255}"),
    _shape("an access key of AWS", "AKIA ASIA", r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("a key of Google (AIza…)", "AIza", r"AIza[A-Za-z0-9_-]{30,128}"),
    _shape("a token of Slack (xox…)", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    _shape("a signed token (JWT)", "eyJ", r"eyJ[A-Za-z0-9_-]{8,8192}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{8,2048}"),
    _PRIVATE_KEY,
)
_ESCAPED = re.compile(rb"\\+([-.])")
"""As regular expressions have them; the other signs of secrets need no escape."""
_WHOLE_KEY = re.compile(
    # the headers of a key have dashes; where none says that it ends, the first dash does
    _PRIVATE_KEY.pattern.pattern + rb"(?:(?:(?!-----)[\s\S]){0,16384}-----END [A-Z0-9 ]{0,64}-----|[^-]{0,16384})"
)
_MARKS = re.compile(b"|".join(mark for shape in _SHAPES for mark in shape.marks))


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name is to hold a secret."""
    upper = name.upper().replace("-", "_")
    if is_vendor_name(name) or _SECRET_NAME.search(upper):
        return True
    return upper.startswith("AWS_") and upper not in _PLAIN_AWS_NAMES


def is_vendor_name(name: str) -> bool:
    """Return whether `name` has the name of a well-known secret in it."""
    upper = name.upper().replace("-", "_")
    return any(vendor_name in upper for vendor_name in _VENDOR_NAMES)


def kind_of(text: str) -> str | None:
    """Return what kind of secret is in a text that stands for nothing else, None where there is none."""
    content = text.encode("utf-8", "surrogatepass")
    return next((kind for kind, _, _ in _search(content)), None)


def finds_in(value: Any, name: str) -> Iterator[str]:
    """Yield where in a JSON-like value something looks like a secret, at any depth that is allowed, without the secret.

    Raises:
        ValueError: it is nested too deeply to be looked through.
    """
    pending: list[tuple[Any, str, int]] = [(value, name, 0)]
    while pending:
        item, place, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise ValueError(f"{name}: is nested deeper than {_MAX_DEPTH} levels")
        if isinstance(item, str):
            if kind := kind_of(item):
                yield f"{place}: holds {kind}"
        elif isinstance(item, Mapping):
            for key, inner in item.items():
                if kind := kind_of(str(key)):
                    # the key itself is not to be shown
                    yield f"{place}, a name in it: holds {kind}"
                    continue
                inside = f"{place}[{str(key)[:64]!r}]"
                if is_vendor_name(str(key)) and isinstance(inner, str) and inner:
                    yield f"{inside}: holds a secret, by its name"
                    continue
                pending.append((inner, inside, depth + 1))
        elif isinstance(item, Sequence) and not isinstance(item, bytes):
            pending.extend((inner, f"{place}[{index}]", depth + 1) for index, inner in enumerate(item))


def find_in_file(content: bytes, place: str) -> str:
    """Return where the first secret of a text file is, without it; empty where there is none. Binary files are not looked at."""
    text = _as_utf8(content[:MAX_SCANNED_BYTES])
    if b"\0" in text[:_BINARY_LOOK_BYTES]:
        return ""
    for kind, start, match in _search(text):
        if not _is_example(match):
            line = text.count(b"\n", 0, start) + 1
            return f"{place}, line {line}: holds {kind}"
    return ""


def _search(content: bytes) -> Iterator[tuple[str, int, bytes]]:
    if not _MARKS.search(content):
        return
    for shape in _SHAPES:
        if any(mark in content for mark in shape.marks):
            for match in shape.pattern.finditer(content):
                if not shape.is_run or _RUN.search(match[0]):
                    yield shape.kind, match.start(), match[0]


def _is_example(match: bytes) -> bool:
    """Return whether this is an example of a secret, as documents have them."""
    return len(set(match[-_LOOKED_AT:])) < _FEWEST_DISTINCT or match.endswith(b"EXAMPLE")


def _as_utf8(content: bytes) -> bytes:
    if content[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return content
    return content[: len(content) & ~1].decode("utf-16", "replace").encode()


def redact(text: str) -> str:
    """Return `text` with `[secret]` in place of what has the shape of one; of a private key, of all of it.

    One that stands in a regular expression, with escapes, is one as well.
    """
    content = text.encode("utf-8", "surrogatepass")
    plain = _ESCAPED.sub(rb"\1", content)
    if not _MARKS.search(plain):
        return text
    content = _WHOLE_KEY.sub(b"[secret]", content)
    plain = _ESCAPED.sub(rb"\1", content)
    if _PRIVATE_KEY.pattern.search(plain):
        content = plain = _WHOLE_KEY.sub(b"[secret]", plain)
    # the longest first: another one may be the beginning of it
    for secret in sorted({match for _, _, match in (*_search(content), *_search(plain))}, key=len, reverse=True):
        content = re.sub(re.sub(rb"\\([-.])", rb"\\\\*\\\1", re.escape(secret)), b"[secret]", content)
    return content.decode("utf-8", "surrogatepass")
