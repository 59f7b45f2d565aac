"""What may become of a pattern: rewrites of many kinds, put together of its metavariables and of names of other code."""

import random
import re
from collections.abc import Iterator, Sequence

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.patterns import STATEMENTS, Pattern
from graftline.datasets.synthetic.short_texts import Vocabulary

_WORD = re.compile(r"(?<![\w$.\"'])[A-Za-z_]\w*|(?<=\.)[A-Za-z_]\w*")
_KEYWORDS = frozenset({
    "return", "raise", "throw", "new", "await", "not", "None", "True", "False", "null", "true", "false", "const", "let",
    "var", "final", "if", "else", "in", "is", "and", "or", "assert", "from", "this", "self", "int", "boolean", "String",
    "lambda", "for", "yield", "typeof", "undefined",
})  # fmt: skip
_LEADING = re.compile(r"(return|raise|throw|await)\s+(.*)", re.DOTALL)
_COMPARED = re.compile(r"(\$[A-D])\s(\S+|is not|not in)\s(\$[A-D])")
_CALLED = re.compile(r"([^()]*)\((.*)\)", re.DOTALL)
_CONSTRUCTED = re.compile(r"new\s+([\w.]+)(\(.*\))", re.DOTALL)
_DECLARING = ("const", "let", "var")
_PYTHON_OPERATORS = (
    "+", "-", "*", "%", "==", "!=", "is", "is not", "in", "not in", "and", "or", "<", ">", "<=", ">=",
)  # fmt: skip
_JAVA_OPERATORS = ("+", "-", "==", "!=", "&&", "||", "<", ">", "<=", ">=")
_SCRIPT_OPERATORS = (*_JAVA_OPERATORS, "===", "!==", "??", "in", "instanceof")

Rewrite = tuple[str, str]
"""Its kind, and its text."""


def rewrites_of(
    pattern: Pattern, kind: str, language: Language, vocabulary: Vocabulary, rng: random.Random
) -> Iterator[Rewrite]:
    """Yield rewrites of `pattern`, which is that of a node of `kind`; not all of them are code."""
    yield from _rename(pattern, vocabulary, language, rng)
    yield from _add_argument(pattern, vocabulary, language, rng)
    yield from _change_arguments(pattern, rng)
    if kind in STATEMENTS:
        yield from _of_statement(pattern, kind, language, vocabulary, rng)
        return
    yield from _around(pattern, language, vocabulary, rng)
    if pattern.single:
        yield "keep", rng.choice(pattern.single)
    if pattern.free:
        yield from _of_parts(pattern, language, vocabulary, rng)
    yield from _of_operands(pattern, language, rng)


def _rename(pattern: Pattern, vocabulary: Vocabulary, language: Language, rng: random.Random) -> Iterator[Rewrite]:
    words = [match for match in _WORD.finditer(pattern.text) if match[0] not in _KEYWORDS]
    if not words:
        return
    match, new = rng.choice(words), rng.choice(vocabulary.called)
    longer = f"{match[0]}_{new}" if language == "python" else f"{match[0]}{_capital(new)}"
    for name in (new, rng.choice((f"{new}.{match[0]}", longer))):
        yield "rename", pattern.text[: match.start()] + name + pattern.text[match.end() :]


def _add_argument(
    pattern: Pattern, vocabulary: Vocabulary, language: Language, rng: random.Random
) -> Iterator[Rewrite]:
    core, end = _core(pattern.text)
    if not core.endswith(")"):
        return
    name, number = rng.choice(vocabulary.names), rng.choice(vocabulary.numbers)
    extra = [number, name, "None" if language == "python" else "null", _string(name, language)]
    if language == "python":
        extra += [f"{name}={value}" for value in (number, "True", "None", rng.choice(vocabulary.names))]
    added, opening = rng.choice(extra), core.find("(")
    separator = "" if core.endswith("()") else ", "
    yield "add_argument", f"{core[:-1]}{separator}{added}){end}"
    if opening > 0 and separator and "=" not in added:
        yield "add_first", f"{core[: opening + 1]}{added}, {core[opening + 1 :]}{end}"


def _change_arguments(pattern: Pattern, rng: random.Random) -> Iterator[Rewrite]:
    core, end = _core(pattern.text)
    if not (call := _CALLED.fullmatch(core)) or not (arguments := _split_arguments(call[2])):
        return
    dropped = rng.randrange(len(arguments))
    yield "drop_argument", f"{call[1]}({', '.join(arguments[:dropped] + arguments[dropped + 1 :])}){end}"
    if len(arguments) > 1:
        first, second = rng.sample(range(len(arguments)), 2)
        arguments[first], arguments[second] = arguments[second], arguments[first]
        yield "swap_arguments", f"{call[1]}({', '.join(arguments)}){end}"


def _of_statement(
    pattern: Pattern, kind: str, language: Language, vocabulary: Vocabulary, rng: random.Random
) -> Iterator[Rewrite]:
    text, (core, end), new = pattern.text, _core(pattern.text), rng.choice(vocabulary.called)
    is_python, name = language == "python", rng.choice(vocabulary.names)
    if match := _LEADING.fullmatch(core):
        yield "wrap_value", f"{match[1]} {new}({match[2]}){end}"
        yield "negate_value", f"{match[1]} {'not ' if is_python else '!'}{match[2]}{end}"
    if kind == "lexical_declaration":
        keyword, _, declaration = text.partition(" ")
        yield from (("declare", f"{other} {declaration}") for other in _DECLARING if other != keyword)
    if kind != "expression_statement":
        return
    if pattern.single:
        variable = rng.choice(pattern.single)
        tests = (f"{variable} is not None", variable) if is_python else (f"{variable} != null", variable)
        test = rng.choice(tests)
        yield "guard", f"if {test}:\n    {text}" if is_python else f"if ({test}) {{\n    {text}\n}}"
        if is_python:
            yield "guard", f"with {new}({variable}):\n    {text}"
    if not re.search(r"[^=!<>]=[^=]", core):
        keyword = {"python": "", "java": "final var "}.get(language, "const ")
        yield "assign", f"{keyword}{name} = {text}"


def _around(pattern: Pattern, language: Language, vocabulary: Vocabulary, rng: random.Random) -> Iterator[Rewrite]:
    core, new = pattern.text, rng.choice(vocabulary.called)
    yield "wrap", f"{new}({core})"
    yield "ask", f"{core}.{new}()"
    if match := _CONSTRUCTED.fullmatch(core):
        yield "factory", f"{match[1]}.{new}{match[2]}"
    if language != "java":
        yield "await", f"await {core}"
        yield "read", f"{core}.{rng.choice(vocabulary.names)}"


def _of_parts(pattern: Pattern, language: Language, vocabulary: Vocabulary, rng: random.Random) -> Iterator[Rewrite]:
    new, name, number = rng.choice(vocabulary.called), rng.choice(vocabulary.names), rng.choice(vocabulary.numbers)
    some = rng.sample(pattern.free, rng.randint(1, len(pattern.free))) if rng.random() < 0.7 else pattern.free
    yield "call", f"{new}({', '.join(some)})"
    if not pattern.single:
        return
    variable = rng.choice(pattern.single)
    remaining = [free for free in pattern.free if free != variable]
    operands = [free for free in remaining if not free.startswith("$$$")]
    operand = operands[0] if operands and rng.random() < 0.8 else rng.choice((number, name, _nothing(language), '""'))
    yield "method", f"{variable}.{new}({', '.join(remaining)})"
    yield "attribute", f"{variable}.{name}"
    yield "not", f"{'not ' if language == 'python' else '!'}{variable}"
    yield "binary", f"{variable} {rng.choice(_operators(language))} {operand}"
    if language != "java":
        yield "subscript", f"{variable}[{operands[0] if operands else number}]"
    yield "test", rng.choice(_tests(variable, operand, name, _capital(new), language))
    if len(pattern.single) >= 3:
        first, second, third = pattern.single[:3]
        is_python = language == "python"
        yield "conditional", f"{first} if {second} else {third}" if is_python else f"{second} ? {first} : {third}"


def _tests(variable: str, operand: str, name: str, class_name: str, language: Language) -> tuple[str, ...]:
    match language:
        case "python":
            idioms = (
                f"{variable} is not None",
                f"{variable} is None",
                f"len({variable}) > 0",
                f"isinstance({variable}, {operand})",
            )
            return *idioms, f"[{variable}]", f"{variable}.{name} if {variable} else None"
        case "java":
            return f"{class_name}.{name}({variable})", f"new {class_name}({variable})", f"({class_name}) {variable}"
        case _:
            idioms = f'typeof {variable} === "{name}"', f"{variable}?.{name}", f"[...{variable}]", f"String({variable})"
            return *idioms, f"{{ ...{variable} }}", f"new {class_name}({variable})"


def _of_operands(pattern: Pattern, language: Language, rng: random.Random) -> Iterator[Rewrite]:
    if match := _COMPARED.fullmatch(pattern.text):
        yield "operator", f"{match[1]} {rng.choice(_operators(language))} {match[3]}"
        yield "operator", f"{match[3]} {match[2]} {match[1]}"


def _core(pattern: str) -> tuple[str, str]:
    """Return a pattern without its semicolon, and the semicolon, if it has one."""
    return (pattern[:-1], ";") if pattern.endswith(";") else (pattern, "")


def _split_arguments(arguments: str) -> list[str]:
    """Return the arguments of a call; commas in brackets part none, and texts that hold some give what is no code."""
    parts, depth = [""], 0
    for sign in arguments:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _operators(language: Language) -> Sequence[str]:
    return {"python": _PYTHON_OPERATORS, "java": _JAVA_OPERATORS}.get(language, _SCRIPT_OPERATORS)


def _nothing(language: Language) -> str:
    return "None" if language == "python" else "null"


def _string(name: str, language: Language) -> str:
    return f"'{name}'" if language == "python" else f'"{name}"'


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
