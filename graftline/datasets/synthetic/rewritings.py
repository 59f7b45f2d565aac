"""What may become of a pattern: rewrites of many kinds, put together of its metavariables and of names of other code."""

import random
import re
from collections.abc import Iterator, Sequence

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.holes import STATEMENTS, Shape
from graftline.datasets.synthetic.words import Words

_WORD = re.compile(r"(?<![\w$.\"'])[A-Za-z_]\w*|(?<=\.)[A-Za-z_]\w*")
_KEYWORDS = frozenset({
    "return", "raise", "throw", "new", "await", "not", "None", "True", "False", "null", "true", "false", "const", "let",
    "var", "final", "if", "else", "in", "is", "and", "or", "assert", "from", "this", "self", "int", "boolean", "String",
    "lambda", "for", "yield", "typeof", "undefined",
})  # fmt: skip
_LEADING = re.compile(r"(return|raise|throw|await)\s+(.*)", re.DOTALL)
_COMPARED = re.compile(r"(\$[A-D])\s(\S+|is not|not in)\s(\$[A-D])")
_CALLED = re.compile(r"([^()]*)\((.*)\)", re.DOTALL)
_MADE = re.compile(r"new\s+([\w.]+)(\(.*\))", re.DOTALL)
_DECLARING = ("const", "let", "var")
_PYTHON_OPERATORS = (
    "+", "-", "*", "%", "==", "!=", "is", "is not", "in", "not in", "and", "or", "<", ">", "<=", ">=",
)  # fmt: skip
_JAVA_OPERATORS = ("+", "-", "==", "!=", "&&", "||", "<", ">", "<=", ">=")
_SCRIPT_OPERATORS = (*_JAVA_OPERATORS, "===", "!==", "??", "in", "instanceof")

Rewrite = tuple[str, str]
"""Its kind, and its text."""


def rewrites_of(shape: Shape, kind: str, language: Language, words: Words, rng: random.Random) -> Iterator[Rewrite]:
    """Yield rewrites of the pattern of `shape`, which is that of a node of `kind`; not all of them are code."""
    yield from _renamed(shape, words, language, rng)
    yield from _with_more_arguments(shape, words, language, rng)
    yield from _with_other_arguments(shape, rng)
    if kind in STATEMENTS:
        yield from _of_statement(shape, kind, language, words, rng)
        return
    yield from _around(shape, language, words, rng)
    if shape.single:
        yield "keep", rng.choice(shape.single)
    if shape.free:
        yield from _of_parts(shape, language, words, rng)
    yield from _of_operands(shape, language, rng)


def _renamed(shape: Shape, words: Words, language: Language, rng: random.Random) -> Iterator[Rewrite]:
    found = [match for match in _WORD.finditer(shape.pattern) if match[0] not in _KEYWORDS]
    if not found:
        return
    match, new = rng.choice(found), rng.choice(words.called)
    longer = f"{match[0]}_{new}" if language == "python" else f"{match[0]}{_capital(new)}"
    for name in (new, rng.choice((f"{new}.{match[0]}", longer))):
        yield "rename", shape.pattern[: match.start()] + name + shape.pattern[match.end() :]


def _with_more_arguments(shape: Shape, words: Words, language: Language, rng: random.Random) -> Iterator[Rewrite]:
    core, end = _core(shape.pattern)
    if not core.endswith(")"):
        return
    name, number = rng.choice(words.names), rng.choice(words.numbers)
    extra = [number, name, "None" if language == "python" else "null", _text(name, language)]
    if language == "python":
        extra += [f"{name}={value}" for value in (number, "True", "None", rng.choice(words.names))]
    added, opening = rng.choice(extra), core.find("(")
    separator = "" if core.endswith("()") else ", "
    yield "add_argument", f"{core[:-1]}{separator}{added}){end}"
    if opening > 0 and separator and "=" not in added:
        yield "add_first", f"{core[: opening + 1]}{added}, {core[opening + 1 :]}{end}"


def _with_other_arguments(shape: Shape, rng: random.Random) -> Iterator[Rewrite]:
    core, end = _core(shape.pattern)
    if not (found := _CALLED.fullmatch(core)) or not (arguments := _split(found[2])):
        return
    dropped = rng.randrange(len(arguments))
    yield "drop_argument", f"{found[1]}({', '.join(arguments[:dropped] + arguments[dropped + 1 :])}){end}"
    if len(arguments) > 1:
        one, other = rng.sample(range(len(arguments)), 2)
        arguments[one], arguments[other] = arguments[other], arguments[one]
        yield "swap_arguments", f"{found[1]}({', '.join(arguments)}){end}"


def _of_statement(shape: Shape, kind: str, language: Language, words: Words, rng: random.Random) -> Iterator[Rewrite]:
    pattern, (core, end), new = shape.pattern, _core(shape.pattern), rng.choice(words.called)
    is_python, name = language == "python", rng.choice(words.names)
    if found := _LEADING.fullmatch(core):
        yield "wrap_value", f"{found[1]} {new}({found[2]}){end}"
        yield "negate_value", f"{found[1]} {'not ' if is_python else '!'}{found[2]}{end}"
    if kind == "lexical_declaration":
        first, _, rest = pattern.partition(" ")
        yield from (("declare", f"{word} {rest}") for word in _DECLARING if word != first)
    if kind != "expression_statement":
        return
    if shape.single:
        one = rng.choice(shape.single)
        tests = (f"{one} is not None", one) if is_python else (f"{one} != null", one)
        test = rng.choice(tests)
        yield "guard", f"if {test}:\n    {pattern}" if is_python else f"if ({test}) {{\n    {pattern}\n}}"
        if is_python:
            yield "guard", f"with {new}({one}):\n    {pattern}"
    if not re.search(r"[^=!<>]=[^=]", core):
        kind_of_name = {"python": "", "java": "final var "}.get(language, "const ")
        yield "assign", f"{kind_of_name}{name} = {pattern}"


def _around(shape: Shape, language: Language, words: Words, rng: random.Random) -> Iterator[Rewrite]:
    core, new = shape.pattern, rng.choice(words.called)
    yield "wrap", f"{new}({core})"
    yield "ask", f"{core}.{new}()"
    if found := _MADE.fullmatch(core):
        yield "factory", f"{found[1]}.{new}{found[2]}"
    if language != "java":
        yield "await", f"await {core}"
        yield "read", f"{core}.{rng.choice(words.names)}"


def _of_parts(shape: Shape, language: Language, words: Words, rng: random.Random) -> Iterator[Rewrite]:
    new, name, number = rng.choice(words.called), rng.choice(words.names), rng.choice(words.numbers)
    some = rng.sample(shape.free, rng.randint(1, len(shape.free))) if rng.random() < 0.7 else shape.free
    yield "call", f"{new}({', '.join(some)})"
    if not shape.single:
        return
    one = rng.choice(shape.single)
    others = [free for free in shape.free if free != one]
    operands = [free for free in others if not free.startswith("$$$")]
    operand = operands[0] if operands and rng.random() < 0.8 else rng.choice((number, name, _nothing(language), '""'))
    yield "method", f"{one}.{new}({', '.join(others)})"
    yield "attribute", f"{one}.{name}"
    yield "not", f"{'not ' if language == 'python' else '!'}{one}"
    yield "binary", f"{one} {rng.choice(_operators(language))} {operand}"
    if language != "java":
        yield "subscript", f"{one}[{operands[0] if operands else number}]"
    yield "test", rng.choice(_tests(one, operand, name, _capital(new), language))
    if len(shape.single) >= 3:
        first, second, third = shape.single[:3]
        is_python = language == "python"
        yield "conditional", f"{first} if {second} else {third}" if is_python else f"{second} ? {first} : {third}"


def _tests(one: str, operand: str, name: str, class_name: str, language: Language) -> tuple[str, ...]:
    match language:
        case "python":
            idioms = f"{one} is not None", f"{one} is None", f"len({one}) > 0", f"isinstance({one}, {operand})"
            return *idioms, f"[{one}]", f"{one}.{name} if {one} else None"
        case "java":
            return f"{class_name}.{name}({one})", f"new {class_name}({one})", f"({class_name}) {one}"
        case _:
            idioms = f'typeof {one} === "{name}"', f"{one}?.{name}", f"[...{one}]", f"String({one})"
            return *idioms, f"{{ ...{one} }}", f"new {class_name}({one})"


def _of_operands(shape: Shape, language: Language, rng: random.Random) -> Iterator[Rewrite]:
    if found := _COMPARED.fullmatch(shape.pattern):
        yield "operator", f"{found[1]} {rng.choice(_operators(language))} {found[3]}"
        yield "operator", f"{found[3]} {found[2]} {found[1]}"


def _core(pattern: str) -> tuple[str, str]:
    """Return a pattern without its semicolon, and the semicolon, if it has one."""
    return (pattern[:-1], ";") if pattern.endswith(";") else (pattern, "")


def _split(arguments: str) -> list[str]:
    """Return the arguments of a call; commas in brackets part none, and texts that hold some give what is no code."""
    found, depth = [""], 0
    for sign in arguments:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return [one.strip() for one in found if one.strip()]


def _operators(language: Language) -> Sequence[str]:
    return {"python": _PYTHON_OPERATORS, "java": _JAVA_OPERATORS}.get(language, _SCRIPT_OPERATORS)


def _nothing(language: Language) -> str:
    return "None" if language == "python" else "null"


def _text(name: str, language: Language) -> str:
    return f"'{name}'" if language == "python" else f'"{name}"'


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
