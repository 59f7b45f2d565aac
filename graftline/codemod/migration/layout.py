"""Statements that rules changed, laid out again as the repository's formatter would.

Not a formatter: it knows how Black, Prettier and, for Java, Eclipse break a line that is too long, and that they join one
that fits. It only acts where the repository shows that it is formatted so: most of the broken statements of the
files that change, and the statement itself as it was before, must come out of it as they are. What has comments,
backslashes or strings over several lines is left alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from graftline.astgrep.binding import JAVASCRIPT, Language, Node, SgNode, Tree, find_all, outline_once, span_of
from graftline.codemod.line_changes import LineRange, list_changed_lines
from graftline.core.errors import DataError

_WIDTHS = (79, 80, 88, 95, 100, 120)
_SIMPLE: Mapping[Language, frozenset[str]] = {
    "python": frozenset(("expression_statement", "return_statement", "assert_statement", "raise_statement")),
    "java": frozenset((
        "expression_statement", "return_statement", "assert_statement", "throw_statement", "local_variable_declaration",
        "field_declaration",
    )),
    **dict.fromkeys(JAVASCRIPT, frozenset((
        "expression_statement", "return_statement", "throw_statement", "lexical_declaration", "variable_declaration",
    ))),
}  # fmt: skip
_IMPORTS: Mapping[Language, str] = dict.fromkeys(JAVASCRIPT, "import_statement")
"""Imports that are broken as statements are; they say nothing of how those are."""
_HEADS = frozenset(("function_definition", "with_statement", "if_statement", "for_statement", "while_statement"))
_STRING = re.compile("|".join(rf"{quote}(?:[^{quote}\\]|\\.)*+(?:{quote}|\\?\Z)" for quote in "\"'`"), re.DOTALL)
"""Strings, the last of which may be open."""
_OPENING, _CLOSING = "([{", ")]}"
_SPECIAL = re.compile(r"=>| \? |[=(,:]\s*/[^/*]")
"""Arrow functions, conditions and regular expressions, which Prettier breaks by rules of their own."""
_CALL = re.compile(r"(?<=[\w)\]>])\.(?=(?:<[^<>()]*>)?\w+\()")
_OPERATOR = re.compile(r" (?:&&|\|\||->|[-+*/?:]) ")
_TEST = re.compile(r"([ \t]*)(return|\S.*?[\w\s?|&]=)\s(\S[^;]*)")
_COMPARED = re.compile(r"[=!]==?|&&|\|\||\?\?| [<>]=? ")
"""What makes a test one of two operands."""
_LEAST_SHARE, _LEAST_STATEMENTS, _MAX_STATEMENTS = 0.5, 4, 120
_MAX_LINES, _MAX_CHARACTERS = 40, 8_000


@dataclass(frozen=True, slots=True)
class Style:
    """How statements of a language are broken in a repository."""

    language: Language
    width: int
    """Columns of a line."""
    indent: str
    """Of one level."""
    trailing: bool
    """Whether the last of several arguments, one a line, has a comma."""
    breaks: bool
    """Whether lines that are too long are broken; else those that fit are joined and no more."""


class _UnknownFormError(Exception):
    """A line that is too long has what Prettier breaks by rules of its own."""


def lay_out(before: str, after: str, style: Style) -> str:
    """Return `after` with the statements that differ from `before` laid out in `style`."""
    try:
        edits = dict(_edits(before, after, style))
    except DataError:
        return after
    for (start, end), text in sorted(edits.items(), reverse=True):
        after = after[:start] + text + after[end:]
    is_script = style.language in JAVASCRIPT
    return _lay_out_conditions(before, after, style) if is_script and style.breaks else after


def _lay_out_conditions(before: str, after: str, style: Style) -> str:
    """Return `after` with changed `a ? b : c` of several lines as Prettier has them.

    In one line if it fits; else the test behind `=` has a line of its own.
    """
    old_lines, lines = before.split("\n"), after.split("\n")
    for start, end, new_start, new_end in sorted(list_changed_lines(old_lines, lines), reverse=True):
        for number in reversed(range(new_start, new_end)):
            later = [line.strip() for line in lines[number + 1 : number + 3]]
            head = _TEST.fullmatch(lines[number])
            if head is None or len(later) < 2 or not later[0].startswith("? "):
                continue
            margin, name, test = head.groups()
            joined = " ".join((lines[number], *later))
            ends = number + 3 >= len(lines) or _columns(_margin(lines[number + 3])) <= _columns(margin)
            if later[1].startswith(": ") and ends and _columns(joined) <= style.width and _is_balanced(joined):
                lines[number : number + 3] = [joined]
            elif name.endswith("=") and _COMPARED.search(_blank_strings(test)) and end - start == new_end - new_start:
                former = _TEST.fullmatch(old_lines[start + number - new_start])
                if former is None or _COMPARED.search(_blank_strings(former[3])):
                    continue  # it stood so before
                last = number + 1
                while last < len(lines) and _columns(_margin(lines[last])) > _columns(margin) and lines[last].strip():
                    lines[last] = style.indent + lines[last]
                    last += 1
                lines[number : number + 1] = [margin + name, margin + style.indent + test]
    return "\n".join(lines)


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_balanced(line: str) -> bool:
    """Return whether a line opens no bracket that it does not close, and has no comment."""
    bare = _blank_strings(line)
    return all(bare.count(o) == bare.count(c) for o, c in zip(_OPENING, _CLOSING, strict=True)) and "//" not in bare


def realign(before: str, after: str) -> str:
    """Return `after` with lines moved that hang from a bracket which edits on its line have moved."""
    old_lines, new_lines = before.split("\n"), after.split("\n")
    for start, end, new_start, new_end in list_changed_lines(old_lines, new_lines):
        for number in range(end - start if end - start == new_end - new_start else 0):
            old_column, column = _hanging(old_lines[start + number]), _hanging(new_lines[new_start + number])
            if old_column is None or column is None or old_column == column:
                continue
            for offset in range(number + 1, _MAX_LINES):
                if max(start, new_start) + offset >= min(len(old_lines), len(new_lines)):
                    break
                line, new_line = old_lines[start + offset], new_lines[new_start + offset]
                blanks = len(line) - len(line.lstrip())
                if blanks < old_column or not line.strip() or new_line[:blanks].strip():
                    break
                new_lines[new_start + offset] = " " * (blanks + column - old_column) + new_line.lstrip()
    return "\n".join(new_lines)


def _hanging(line: str) -> int | None:
    """Return the column behind the innermost bracket that is open at the end of a line with something behind it."""
    bare, opened = _blank_strings(line), list[int]()
    for position, sign in enumerate(bare):
        if sign in _OPENING:
            opened.append(position)
        elif sign in _CLOSING and opened:
            opened.pop()
    return opened[-1] + 1 if opened and bare[opened[-1] + 1 :].strip() else None


def infer_style(texts: Iterable[str], language: Language) -> Style | None:
    """Return the style of a repository, by some of its texts; None where none is kept to."""
    statements: list[tuple[str, str]] = []
    lines: list[str] = []
    for text in texts:
        try:
            tree = outline_once(text, language)
            statements += _list_statements(tree)
        except DataError:
            continue
        lines += text.split("\n")
        if len(statements) > 30 * _MAX_STATEMENTS:
            break
    broken = [(margin, text) for margin, text in statements if "\n" in text and _join(text, language) is not None]
    if len(broken) < _LEAST_STATEMENTS:
        return None
    broken = broken[:_MAX_STATEMENTS]
    indents = [line[: len(line) - len(line.lstrip())] for line in lines if line[:1] in (" ", "\t")]
    indent = "\t" if sum(i.startswith("\t") for i in indents) * 2 > len(indents) else "    "
    if language in JAVASCRIPT and indent != "\t":
        indent = "  " if sum(len(i) == 2 for i in indents) * 20 > len(indents) else indent
    widths = sorted(_columns(line) for line in lines if not line.lstrip().startswith(("*", "//", "/*", "#")))
    width = next((w for w in _WIDTHS if widths[int(len(widths) * 0.998)] <= w), _WIDTHS[-1])
    plain = Style(language, width, indent, False, False)
    best: tuple[float, Style] | None = None
    widths_tried = {"python": _WIDTHS, "java": (width,)}.get(language, _WIDTHS[1:])
    for width in widths_tried:
        for trailing in {"python": (True,), "java": (False,)}.get(language, (False, True)):
            style = Style(language, width, indent, trailing, True)
            results = [(format_statement(text, margin, style), text) for margin, text in broken]
            readable = [(result, text) for result, text in results if result is not None]
            if len(readable) < _LEAST_STATEMENTS:
                continue
            share = sum(result == text for result, text in readable) / len(readable)
            if best is None or share > best[0] + 0.001:
                best = share, style
    return best[1] if best and best[0] >= _LEAST_SHARE else plain


def format_statement(text: str, margin: str, style: Style) -> str | None:
    """Return a statement as the formatter lays it out; None if it is not one of those that are laid out here."""
    line = _join(text, style.language)
    try:
        return None if line is None or len(line) > _MAX_CHARACTERS else "\n".join(_break(line, margin, style))
    except _UnknownFormError:
        return None


def _edits(before: str, after: str, style: Style) -> Iterator[tuple[tuple[int, int], str]]:
    old_lines, new_lines = before.split("\n"), after.split("\n")
    old_starts, new_starts = _line_starts(old_lines), _line_starts(new_lines)
    for start, end, new_start, new_end in _split_changes(old_lines, new_lines):
        new = outline_once(after, style.language)
        node = _statement_at(new, new_starts, new_start, new_end)
        pair = _source_of(new, node.handle) if node else None
        if node is None or pair is None:
            continue
        margin, text = pair
        laid_out = format_statement(text, margin, style)
        if laid_out is None or laid_out == text:
            continue
        # only here, for mostly nothing is too long
        old = outline_once(before, style.language)
        former = _statement_at(old, old_starts, start, end)
        old_pair = _source_of(old, former.handle) if former else None
        if old_pair is None:
            continue
        old_margin, old_text = old_pair
        is_formatted = style.breaks and format_statement(old_text, old_margin, style) == old_text
        if style.breaks and not is_formatted and style.language != "java":
            continue
        if not is_formatted:
            joined, old_joined = _join(text, style.language), _join(old_text, style.language)
            fits = joined is not None and _columns(margin + joined) <= style.width
            if not fits or old_joined is None or _columns(old_margin + old_joined) <= style.width:
                continue
            head, last = text.partition("\n")[0][-1:], text.rpartition("\n")[2].strip()[:1]
            if style.language == "python" and (head not in _OPENING or last not in _CLOSING):
                continue  # lines that hang from a bracket stay as they are
        yield (node.start, node.start + len(text)), laid_out


def _split_changes(old: Sequence[str], new: Sequence[str]) -> Iterator[LineRange]:
    """Yield changed regions, line by line where as many lines stand on both sides."""
    for i, j, k, m in list_changed_lines(old, new):
        if j - i == m - k:
            yield from ((i + n, i + n + 1, k + n, k + n + 1) for n in range(j - i))
        else:
            yield i, j, k, m


def _line_starts(lines: Sequence[str]) -> list[int]:
    return [*accumulate(map((1).__add__, map(len, lines)), initial=0)]


def _statement_at(tree: Tree, starts: Sequence[int], first: int, last: int) -> Node | None:
    """Return the smallest statement that has the code of some lines."""
    start, end = starts[first], starts[max(last, first + 1)] - 1
    text = tree.text[start:end]
    start, end = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
    node: Node | None = tree.root
    chosen = None
    while node is not None:
        if node.kind in _SIMPLE[tree.language] or node.kind in _HEADS or node.kind == _IMPORTS.get(tree.language):
            chosen = node
        node = next((child for child in node.children if child.start <= start and end <= child.end), None)
    return chosen


def _list_statements(tree: Tree) -> list[tuple[str, str]]:
    """Return the statements of a file as `_source_of` does, the last first, and what stands in one after it."""
    kinds = _SIMPLE[tree.language] | (_HEADS if tree.language == "python" else frozenset())
    nodes = find_all(tree.root, {"any": [{"kind": kind} for kind in sorted(kinds)]})
    spans = sorted((-end, start, number) for number, (start, end) in enumerate(map(span_of, nodes)))
    pairs = (_source_of(tree, nodes[number]) for _, _, number in spans)
    return [pair for pair in pairs if pair is not None]


def _source_of(tree: Tree, node: SgNode) -> tuple[str, str] | None:
    """Return the indentation of a statement and its text, of one with a body the lines before that."""
    start, end = span_of(node)
    if node.kind() in _HEADS:
        if tree.language != "python":
            return None
        body = next((child for child in node.children() if child.kind() in ("block", "comment")), None)
        if body is None:
            return None
        end = start + len(tree.text[start : span_of(body)[0]].rstrip())
    text = tree.text[start:end].rstrip()
    line = tree.text[tree.text.rfind("\n", 0, start) + 1 : start]
    if line.strip() or text.count("\n") > _MAX_LINES:
        return None
    tail = tree.text[start + len(text) : tree.text.find("\n", start + len(text)) % (len(tree.text) + 1)]
    return None if tail.strip() else (line, text)


def _join(text: str, language: Language) -> str | None:
    """Return a statement as one line; None where its lines may not be joined."""
    if "\\\n" in text or '"""' in text or "'''" in text or not _is_plain(text, language):
        return None
    joined, is_import = "", text.startswith("import") and language in _IMPORTS
    for number, line in enumerate(text.split("\n")):
        part = line.strip()
        if not part and number:
            return None
        if joined and (joined[-1] in "([" or part[:1] in ")]" or (part[:1] == "." and language != "python")):
            joined += part
        else:
            joined += (" " if joined else "") + part
    if language != "python":
        if re.search(r"\{\s*\n", text) and not is_import:
            return None  # braces that are open stay open
        joined = re.sub(r", ?(?= \}| ?[)\]])" if is_import else r",(?=[)\]])", "", joined)
    return joined


def _is_plain(text: str, language: Language) -> bool:
    """Return whether there are no comments and no strings over several lines."""
    if any("\n" in string[0] for string in _STRING.finditer(text)):
        return False
    bare = _blank_strings(text)
    return "#" not in bare if language == "python" else "//" not in bare and "/*" not in bare


def _blank_strings(text: str) -> str:
    return _STRING.sub(_blank_string, text)


def _blank_string(string: re.Match[str]) -> str:
    text = string[0]
    return text[0] + "_" * (len(text) - 2) + text[-1] if len(text) > 1 else text


def _break(line: str, margin: str, style: Style) -> list[str]:
    """Return the lines of one that may be too long; the first without its indentation."""
    if _columns(margin + line) <= style.width and not _is_magic(line, style):
        return [line]
    if style.language == "java":
        return _fill(line, margin, style)
    pairs = _pairs(_blank_strings(line))
    if not pairs:
        return [line]
    is_python = style.language == "python"
    fitting = [(a, b) for a, b in reversed(pairs) if b - a > 1 and _columns(margin + line[: a + 1]) <= style.width]
    if not fitting:
        return [line]
    opening, closing = fitting[0]
    head, body, tail = line[: opening + 1], line[opening + 1 : closing].strip(), line[closing:]
    inner = margin + style.indent
    items = _split(body)
    if not is_python and (_SPECIAL.search(_blank_strings(f"{head} {tail}")) or "=>" in "".join(items[-1:])):
        raise _UnknownFormError
    is_magic = body.endswith(",")
    if not is_python and len(items) > 1 and items[-1].startswith("{") and items[-1].endswith("}"):
        start = head + ", ".join(items[:-1]) + ", {"
        if _columns(margin + start) <= style.width:
            members = _split(items[-1][1:-1].strip())
            ends = [*["," for _ in members[:-1]], "," if style.trailing else ""]
            return [
                start,
                *(inner + member + end for member, end in zip(members, ends, strict=True)),
                margin + "}" + tail,
            ]
    if is_python and not is_magic and _columns(inner + body) <= style.width:
        return [head, inner + body, margin + tail]
    if len(items) == 1 and not is_magic:
        lines = _break(items[0], inner, style)
        lines[-1] += "," if style.trailing and not is_python and not items[0].startswith("...") else ""
        return [head, inner + lines[0], *lines[1:], margin + tail]
    lines = []
    for number, item in enumerate(items):
        own = _break(item, inner, style)
        is_last = number + 1 == len(items)
        own[-1] += "," if not is_last or (style.trailing and not item.startswith(("*", "..."))) else ""
        lines += [inner + own[0], *own[1:]]
    return [head, *lines, margin + tail]


def _fill(line: str, margin: str, style: Style) -> list[str]:
    """Return the lines of a long statement of Java, broken before calls of a chain, else between arguments.

    Each line is filled, as Eclipse's formatter wraps where necessary: `A a = b` and `.c(d).e(f);`, or `A a = b.c(d,` and
    `e);`.
    """
    bare = _blank_strings(line)
    pairs = _pairs(bare)
    calls, operators = (
        [match.start() for match in sign.finditer(bare) if not any(a < match.start() < b for a, b in pairs)]
        for sign in (_CALL, _OPERATOR)
    )
    if operators:
        raise _UnknownFormError
    if len(calls) > 1:
        cuts = calls
    elif pairs and bare[pairs[-1][0]] == "(":
        (opening, closing), depth, cuts = pairs[-1], 0, []
        for position in range(opening + 1, closing):
            depth += (bare[position] in _OPENING) - (bare[position] in _CLOSING)
            cuts += [position + 2] if bare[position : position + 2] == ", " and depth == 0 else []
    else:
        raise _UnknownFormError
    inner = margin + 2 * style.indent
    pieces = [line[a:b] for a, b in zip([0, *cuts], [*cuts, len(line)], strict=True)]
    lines = [pieces[0]]
    for piece in pieces[1:]:
        start = inner if len(lines) > 1 else margin
        if _columns(start + (lines[-1] + piece).rstrip()) <= style.width:
            lines[-1] += piece
        else:
            lines[-1] = lines[-1].rstrip()
            lines.append(piece)
    if len(lines) == 1 or any(_columns((inner if n else margin) + own) > style.width for n, own in enumerate(lines)):
        raise _UnknownFormError
    return [lines[0], *(inner + own for own in lines[1:])]


def _is_magic(line: str, style: Style) -> bool:
    """Return whether a comma before a closing bracket keeps Black from joining its lines."""
    if style.language != "python":
        return False
    bare = _blank_strings(line)
    return any(
        bare[a + 1 : b].rstrip().endswith(",") and not (bare[a] == "(" and len(_split(line[a + 1 : b])) == 1)
        for a, b in _pairs(bare)
    )


def _pairs(bare: str) -> list[tuple[int, int]]:
    """Return the outermost pairs of brackets of a text without strings."""
    pairs, depth, start = [], 0, 0
    for position, sign in enumerate(bare):
        if sign in _OPENING:
            start = position if depth == 0 else start
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            if depth == 0:
                pairs.append((start, position))
    return pairs


def _split(body: str) -> list[str]:
    """Return what stands between the outermost commas."""
    bare, items, depth, start = _blank_strings(body), [], 0, 0
    for position, sign in enumerate(bare):
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if sign == "," and depth == 0:
            items.append(body[start:position].strip())
            start = position + 1
    return [item for item in [*items, body[start:].strip()] if item]


def _columns(line: str) -> int:
    return len(line.expandtabs(4))


def styles_of(texts: Mapping[str, str], languages: Mapping[str, Language]) -> dict[Language, Style]:
    """Return the styles of the languages of some files."""
    styles = {}
    for language in sorted(set(languages.values())):
        style = infer_style((text for path, text in texts.items() if languages.get(path) == language), language)
        if style is not None:
            styles[language] = style
    return styles
