"""Sentences from operations, and operations from sentences, by one list of templates.

The reader knows the templates alone: what it recovers from an instruction and the text before is what the instruction says, and
not what the text after holds.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from graftline.astgrep.binding import Language
from graftline.codemod.instructions.operations import (
    Insert,
    Operation,
    Rename,
    Replace,
    Rewrite,
    apply_operation,
    find_code,
)
from graftline.core.config import parse_yaml
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_text
from graftline.sandbox.base import Sandbox

Detail = Literal["full", "lazy"]
_Section = Literal["full", "lazy", "also"]
# as many as places are told apart by their number (`plan.MAX_PLACES`)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_LETTERS = "xyzabcdefghijklmnopqrstuvw"
_MAX_INLINE = 120
_MANY = "…"
_VARIABLE = re.compile(r"\$(\$\$)?([A-Z_][A-Z0-9_]*)")
_CODE = re.compile(r"```[a-z]*\n(.*?)\n```|`([^`\n]+)`", re.DOTALL)
_SLOT = re.compile(r"\{(\w+)\}")
_ITEM = re.compile(r"^\d+\. ", re.MULTILINE)
_WHICH = rf"(?P<which>(?:every |the (?:{'|'.join(_ORDINALS)}) )?)"
_NAMES = re.compile(r"whatever (.+?) (?:is|are)\Z")


@dataclass(frozen=True, slots=True)
class Wording:
    """An instruction, and in how much detail it asks."""

    text: str
    detail: Detail


def word_operations(
    operations: Sequence[Operation], short: Sequence[Operation], before: str, language: Language, seed: str
) -> list[Wording] | None:
    """Return an instruction in full that asks for `operations`, and a lazy one for `short`, which do the same and quote less.

    They are the same for one `seed`; None where the code that they quote cannot be.
    """
    texts: dict[Detail, str] = {}
    by_detail: Mapping[Detail, Sequence[Operation]] = {"full": operations, "lazy": short}
    for detail, plan in by_detail.items():
        sentences = []
        for index, operation in enumerate(plan):
            sentence = _word(operation, before, language, f"{seed}\0{index}", detail)
            if sentence is None:
                return None
            sentences.append(sentence)
        if len(sentences) == 1:
            texts[detail] = sentences[0]
        else:
            texts[detail] = "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))
    return [Wording(text, detail) for detail, text in texts.items()]


def read_instruction(text: str, before: str, language: Language, sandbox: Sandbox) -> str | None:
    """Return what `before` becomes where `text` is done as it says; None where it is not understood, or is about other code."""
    # a zero byte stands for quoted code where sentences are read
    changed: str | None = before if text.strip() and "\0" not in text else None
    if changed is None:
        return None
    for sentence, codes in _sentences(text):
        operation = _read(sentence, codes)
        if operation is None or changed is None:
            return None
        try:
            changed = apply_operation(operation, changed, language, sandbox)
        except (DataError, ValueError):
            return None
    return changed


def _word(operation: Operation, before: str, language: Language, seed: str, detail: Detail) -> str | None:
    kind, slots = _slots(operation, before)
    templates = _templates()[kind][detail]
    template = templates[int(sha256_text(f"{seed}\0{kind}\0{detail}")[:8], 16) % len(templates)]
    values = {}
    for name, value in slots.items():
        if name in ("which", "names"):
            values[name] = value
        elif (quoted := _quote(value, language)) is None:
            return None
        else:
            values[name] = quoted
    # a block of code ends its line, and needs no sign after it
    sentence = re.sub(r"(?<=\n)```\n[,.:]? ?", "```\n", template.format(**{"which": "", **values}))
    sentence = re.sub(r" \n```", "\n```", sentence).strip()
    return sentence[:1].upper() + sentence[1:]


def _slots(operation: Operation, before: str) -> tuple[str, Mapping[str, str]]:
    match operation:
        case Rename(old, new):
            return "rename", {"old": old, "new": new}
        case Rewrite(pattern, rewrite):
            letters = _letters(pattern, before)
            names = [letter for letter in letters.values() if letter != _MANY]
            phrase = f"whatever {_join(names or [_MANY])} {'are' if len(names) > 1 else 'is'}"
            return "rewrite", {"old": _spell(pattern, letters), "new": _spell(rewrite, letters), "names": phrase}
        case Replace(old, new, number):
            which = _which(number, len(find_code(before, old)))
            return (
                ("replace", {"old": old, "new": new, "which": which})
                if new.strip()
                else ("remove", {"old": old, "which": which})
            )
        case Insert(code, anchor, side, number):
            return f"insert_{side}", {"code": code, "anchor": anchor, "which": _which(number, 1)}


def _which(number: int, places: int) -> str:
    if number:
        return f"the {_ORDINALS[number - 1]} "
    return "every " if places > 1 else ""


def _letters(pattern: str, before: str) -> dict[str, str]:
    """Return a letter for each variable of a pattern that is no word of the text."""
    words = {*re.findall(r"\w+", before + pattern)}
    free = iter(letter for letter in _LETTERS if letter not in words)
    return {
        name: _MANY if many else next(free, name.lower()) for many, name in dict.fromkeys(_VARIABLE.findall(pattern))
    }


def _spell(template: str, letters: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: letters.get(match[2], match[2]), template)


def _join(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _quote(code: str, language: Language) -> str | None:
    """Return code as Markdown: in its line where it is short, else as a block; None where it would end the block."""
    if "\n" not in code and "`" not in code and len(code) <= _MAX_INLINE and code == code.strip():
        return f"`{code}`"
    return None if "```" in code else f"\n```{language}\n{code}\n```\n"


def _sentences(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the sentences of an instruction, with the code that each quotes; in a sentence its number stands for it."""
    codes: list[str] = []

    def hold(match: re.Match[str]) -> str:
        codes.append(match[1] if match[1] is not None else match[2])
        return f" \0{len(codes) - 1}\0 "

    held = _CODE.sub(hold, text)
    for sentence in _ITEM.split(held):
        if sentence.strip():
            yield sentence, codes


def _read(sentence: str, codes: Sequence[str]) -> Operation | None:
    normalized = _normalize(sentence)
    for kind, pattern in _readers():
        if match := pattern.fullmatch(normalized):
            slots = match.groupdict()
            # a number stands for quoted code
            values = {name: codes[int(value)] if value.isdigit() else value for name, value in slots.items()}
            return _OPERATIONS[kind](values)
    return None


def _rewrite_of(values: Mapping[str, str]) -> Operation:
    """Return the operation whose letters are variables of a pattern again."""
    names = _NAMES.search(values["names"])
    letters = re.split(r", | and ", names[1]) if names else []
    variables = {letter: f"${letter.upper()}" for letter in letters if letter != _MANY}

    def spell(text: str) -> str:
        restored = re.sub(r"(?<!\w)[a-z](?!\w)", lambda match: variables.get(match[0], match[0]), text)
        return restored.replace(_MANY, "$$$REST")

    return Rewrite(spell(values["old"]), spell(values["new"]))


def _number_of(values: Mapping[str, str]) -> int:
    word = (values.get("which") or "").strip().removeprefix("the ")
    return _ORDINALS.index(word) + 1 if word in _ORDINALS else 0


_OPERATIONS: Mapping[str, Callable[[Mapping[str, str]], Operation]] = {
    "rename": lambda values: Rename(values["old"], values["new"]),
    "rewrite": _rewrite_of,
    "replace": lambda values: Replace(values["old"], values["new"], _number_of(values)),
    "remove": lambda values: Replace(values["old"], "", _number_of(values)),
    "insert_after": lambda values: Insert(values["code"], values["anchor"], "after", _number_of(values)),
    "insert_before": lambda values: Insert(values["code"], values["anchor"], "before", _number_of(values)),
}


def _normalize(sentence: str) -> str:
    """Return a sentence without signs beside quoted code and at its end, blanks folded, in small letters."""
    without = re.sub(r"\s*[,.:]*\s*(\x00\d+\x00)\s*[,.:]*\s*", r" \1 ", sentence)
    return " ".join(without.split()).rstrip(".").strip().lower()


@cache
def _templates() -> Mapping[str, Mapping[_Section, Sequence[str]]]:
    path = Path(__file__).with_suffix(".yaml")
    templates: Mapping[str, Mapping[_Section, Sequence[str]]] = parse_yaml(path.read_text("utf-8"), path.name)
    return templates


@cache
def _readers() -> Sequence[tuple[str, re.Pattern[str]]]:
    """Return kind and regular expression of every template, a group for each of its slots."""
    readers = []
    for kind, by_detail in _templates().items():
        for template in (template for templates in by_detail.values() for template in templates):
            slots = _SLOT.findall(template)
            # as a sentence is normalized that quotes code in the places of the slots
            held = _SLOT.sub(lambda match, slots=slots: _stand_in(match[1], slots), template)  # type: ignore[misc]
            pattern = re.escape(_normalize(held))
            for index, name in enumerate(slots):
                pattern = pattern.replace(re.escape(f"\0{index}\0"), rf"\x00(?P<{name}>\d+)\x00")
            pattern = pattern.replace("<names>", "(?P<names>whatever .+?)")
            readers.append((kind, re.compile(re.sub(r"<which>(?:\\ )?", _WHICH.replace("\\", r"\\"), pattern))))
    return readers


def _stand_in(slot: str, slots: Sequence[str]) -> str:
    return f"<{slot}>" if slot in ("which", "names") else f"\0{slots.index(slot)}\0"
