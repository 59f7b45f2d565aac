"""The pages of documentation as their tests read them: fences, sections, tables, and a root that examples run in.

What is typed at a shell in a fence is in `tests.page_commands`.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from graftline.core.paths import Paths
from graftline.core.progress import progress_bars
from graftline.pipeline.run import run_all
from tests.rules_examples import write_rules_examples

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = {
    path.relative_to(CHECKOUT).as_posix(): path
    for pattern in ("*.md", "docs/*.md", "configs/**/*.md")
    for path in CHECKOUT.glob(pattern)
}


@dataclass(frozen=True)
class Fence:
    """A fenced block; `output` is the block of text that follows it with nothing between, for that is what it prints."""

    page: str
    line: int
    language: str
    body: str
    output: str | None


def fences() -> Iterator[Fence]:
    # of an item of a list a block is indented as its text is
    body = r"((?:(?! *```).*\n)*)\1```"
    fence = re.compile(rf"^( *)```(\w+)\n{body}\n(?:\n\1```text\n{body})?", re.M)
    for page, path in sorted(PAGES.items()):
        text = path.read_text("utf-8")
        for match in fence.finditer(text):
            _, language, shown, output = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            yield Fence(page, line, language, textwrap.dedent(shown), output and textwrap.dedent(output))


def section(page: str, heading: str) -> str:
    """Return what stands under `heading`, up to the next heading of its level or a higher one."""
    level = len(heading) - len(heading.lstrip("#"))
    _, _, rest = PAGES[page].read_text("utf-8").partition(f"{heading}\n")
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.M)[0]


def table(text: str) -> list[list[str]]:
    """Return the cells of the first table in `text`, without its head."""
    lines = text[text.index("\n|") :].lstrip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def keys_of(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Return every dotted key of a configuration file with its default as JSON, or `needed`."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        shape = {dict: ".<name>", tuple: "[]"}.get(get_origin(field.annotation), "") if inner else ""
        key = f"{prefix}{name}{shape}"
        for member in inner:
            found |= {**keys_of(member, f"{key}."), **found}
        if not inner:
            # `kind` has a default in its class, but tells the members of a union apart in a file
            is_needed = field.is_required() or name == "kind"
            found[key] = "needed" if is_needed else f"`{json.dumps(field.get_default(call_default_factory=True))}`"
    return found


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def pair_of(name: str, language: str, pre: str, post: str, **other: Any) -> dict[str, Any]:
    row = {"id": f"release:{name}", "source": f"pypi:{name} 1->2", "license": "MIT", "language": language}
    row |= {"pre": pre, "post": post, "registry": "pypi", "pkg": name, "old": "1", "new": "2", "path": "a", "qual": "f"}
    return {**row, **other}


def written_root(small: Any) -> Path:
    """Run every stage in a small checkout, and return its root: it has everything a run writes, and a row left out."""
    call = {"python": "def f{n}(a):\n    return {name}(a, b{n})\n"}
    call |= {"javascript": "function f{n}(a) {{\n  return {name}(a, b{n});\n}}\n"}
    call |= {"java": "int f{n}(int a) {{\n    return {name}(a, b{n});\n}}\n"}
    rows = [
        pair_of(f"{language}{n}", language, text.format(n=n, name="old"), text.format(n=n, name="fresh"))
        for language, text in call.items()
        for n in range(3)
    ]
    small.write([*rows, pair_of("gone", "python", "f(1)\n", "")])
    with progress_bars() as bars:
        run_all(Paths(small.root), "local", {}, bars)
    root: Path = small.root
    (root / "code").mkdir()
    (root / "code" / "m.py").write_text("def total(rows):\n    return sum([row for row in rows])\n", "utf-8")
    [spec] = [fence.body for fence in fences() if fence.page == "docs/cli.md" and fence.language == "json"]
    (root / "tests.json").write_text(spec, "utf-8")
    write_rules_examples(root)
    return root
