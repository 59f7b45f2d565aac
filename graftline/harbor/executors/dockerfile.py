"""Dockerfiles, read into instructions. What is not supported here is named, all of it in one message.

Supported: FROM (also of stages), RUN, COPY, ADD of files of the context, WORKDIR, ENV, ARG, USER, SHELL; what says nothing
of files or commands (LABEL, EXPOSE, CMD, STOPSIGNAL, HEALTHCHECK, MAINTAINER) is left out. Heredocs and continued lines are read as
BuildKit reads them (https://docs.docker.com/reference/dockerfile/).
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graftline.core.errors import DataError

_SILENT = frozenset({"LABEL", "EXPOSE", "CMD", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER"})
_BUILT = frozenset({"FROM", "RUN", "COPY", "ADD", "WORKDIR", "ENV", "ARG", "USER", "SHELL"})
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_FLAG = re.compile(r"--([a-z]+)(?:=(\S*))?\s+")
_VARIABLE = re.compile(r"\\(\$)|\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_FLAGS = {
    "FROM": {"platform"},
    "RUN": {"mount", "network"},
    "COPY": {"from", "chown", "chmod"},
    "ADD": {"chown", "chmod"},
}
_MOST_CHARACTERS = 1 << 17
"""Of one text, after its variables are put in: the kernel takes no longer ones either."""
_PLATFORMS = ("linux/amd64", "$BUILDPLATFORM", "$TARGETPLATFORM")
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of them, before its variables are put in."""

    name: str
    text: str
    """What follows its flags."""
    flags: Mapping[str, str] = field(default_factory=dict)
    heredocs: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Its words: of the form of JSON, or as a shell reads them."""
        if self.text.startswith("["):
            try:
                words = json.loads(self.text)
            except (ValueError, RecursionError):
                words = None
            if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
                return words
        return split_words(self, self.text)

    @property
    def is_exec_form(self) -> bool:
        """Whether no shell reads it."""
        return self.text.startswith("[") and self.text.rstrip().endswith("]")


def read_instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile that make an image.

    Raises:
        DataError: something in it is not supported, or is none; the message names all of it.
    """
    instructions, faults = [], []
    for instruction in _split(text):
        if fault := _fault_of(instruction):
            faults.append(fault)
        elif instruction.name in _BUILT:
            instructions.append(instruction)
    if not any(instruction.name == "FROM" for instruction in instructions):
        faults.append("no FROM")
    if faults:
        raise DataError(f"the Dockerfile has what executor 'local' does not build: {'; '.join(dict.fromkeys(faults))}")
    return instructions


def _fault_of(instruction: Instruction) -> str:
    name, shown = instruction.name, f"{instruction.name} {instruction.text[:60]}"
    if name not in _BUILT | _SILENT:
        return name
    if name in _SILENT:
        return ""
    if unknown := sorted({*instruction.flags} - _FLAGS.get(name, set())):
        return f"{name} --{unknown[0]}"
    mount = instruction.flags.get("mount", "type=cache")
    if "type=cache" not in mount and "type=tmpfs" not in mount:
        return f"RUN --mount={mount}"
    if name == "FROM" and instruction.flags.get("platform", _PLATFORMS[0]) not in _PLATFORMS:
        return f"FROM --platform={instruction.flags['platform']}"
    sources = instruction.words[:-1] if name == "ADD" else []
    if any("://" in source or source.startswith("git@") for source in sources):
        return f"{shown} (an address)"
    return f"{shown} (an archive)" if any(source.endswith(_ARCHIVES) for source in sources) else ""


def _split(text: str) -> Iterator[Instruction]:
    lines = iter(text.replace("\r\n", "\n").splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line.rstrip()
        while whole.endswith("\\"):
            # between continued lines, comments and empty lines are none
            following = next((more for more in lines if more.strip() and not more.lstrip().startswith("#")), "")
            whole = f"{whole[:-1]}{following.rstrip()}"
        name, _, text_after = whole.strip().replace("\t", " ", 1).partition(" ")
        heredocs = []
        if name.upper() in ("RUN", "COPY"):
            for match in _HEREDOC.finditer(text_after):
                content: list[str] = []
                for following in lines:
                    if following.strip() == match[2]:
                        break
                    content.append(following)
                heredocs.append("\n".join(content) + "\n")
        flags = {}
        text_after = f"{text_after.strip()} "
        while flag := _FLAG.match(text_after):
            flags[flag[1]] = flag[2] or ""
            text_after = text_after[flag.end() :]
        yield Instruction(name.upper(), text_after.strip(), flags, tuple(heredocs))


def split_words(instruction: Instruction, text: str) -> list[str]:
    """Return the words of `text`, a part of an instruction, as a shell reads them. DataError where it reads none."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise DataError(f"Dockerfile: {instruction.name} {text[:80]}: {error}") from None


def put_in(text: str, variables: Mapping[str, str]) -> str:
    """Return `text` with its variables put in, as instructions other than RUN have them.

    Raises:
        DataError: it comes to more than an environment can hold, as of variables that double one another.
    """
    size = 0

    def value(match: re.Match[str]) -> str:
        nonlocal size
        word = value_of(match)
        size += len(word)
        if size > _MOST_CHARACTERS:
            raise DataError(f"Dockerfile: {text[:80]}: its variables come to more than {_MOST_CHARACTERS} characters")
        return word

    def value_of(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name, operator, word = match[2] or match[5], match[3], match[4]
        own = variables.get(name, "")
        if operator == "-":
            return own or word
        return (word if own else "") if operator == "+" else own

    return _VARIABLE.sub(value, text)


def assignments(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Return what ENV sets, in either of its forms."""
    first, _, text_after = instruction.text.partition(" ")
    if "=" not in first:
        return {first: put_in(text_after.strip(), variables)}
    text = instruction.text.replace("\\\n", " ").replace("\n", " ")
    return {
        name: put_in(value, variables)
        for name, _, value in (word.partition("=") for word in split_words(instruction, text))
    }
