"""What a template family is: actions with slots, there and back. How people ask for them is in `instructions`.

A slot is a word in braces: `{name}`, `{owner}` and `{key}` are filled from a place found in a snippet, `{new}` and
`{other}` with names from other code, `{value}` with a literal from other code. Other braces stand for themselves.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from graftline.astgrep.action import ACTION, PatternAction, RuleAction
from graftline.astgrep.binding import JAVASCRIPT as JAVASCRIPT
from graftline.astgrep.binding import Language

Action = PatternAction | RuleAction
Kind = Literal[
    "rename", "wrap", "argument", "call", "place", "statement", "operator", "literal", "annotation", "type", "idiom",
    "import",
]  # fmt: skip
Role = Literal[
    "function", "method", "attribute", "keyword", "class", "module", "variable", "decorator", "definition", "number",
    "string", "imported", "type",
]  # fmt: skip
"""What a name stands for where it was found; `definition` is a function that is defined, `imported` a name that is taken
from a module."""

PYTHON: tuple[Language, ...] = ("python",)
TYPESCRIPT: tuple[Language, ...] = ("typescript", "tsx")
JAVA: tuple[Language, ...] = ("java",)
ALL: tuple[Language, ...] = (*PYTHON, *JAVASCRIPT, *JAVA)

SLOT = re.compile(r"\{(name|new|owner|key|other|value)\}")


@dataclass(frozen=True, slots=True)
class Site:
    """A named place in a snippet that a family may be filled from."""

    role: Role
    name: str
    owner: str = ""
    """Of a method or an attribute, the plain name it is asked of; of a keyword, the function called; of an imported
    name, its module."""
    key: str = ""
    """What else is to be known: the kind of a definition's first statement, the type argument of a class."""
    arguments: int = 0
    """Of a call, all of them; of a definition, its parameters."""
    keywords: tuple[str, ...] = ()
    """Of a call, the names of the arguments that have one; of a definition, its plain parameters."""
    is_statement: bool = False
    """Whether the call is a statement of its own."""


@dataclass(frozen=True, slots=True)
class Form:
    """The actions of a family in some languages; several are applied one after the other."""

    languages: tuple[Language, ...]
    there: tuple[Action, ...]
    back: tuple[Action, ...] = ()
    """From the text after to the text before; empty where that cannot be said."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of rewrites that differ in names alone."""

    id: str
    kind: Kind
    forms: tuple[Form, ...]
    role: Role | None = None
    """What `{name}` is; None for a family that needs no name."""
    new: Role | None = None
    """What `{new}` is in the code it is taken from."""
    other: Role | None = None
    fits: Callable[[Site], bool] = field(default=lambda _: True, compare=False)
    """Which places of that role will do."""
    inverse: str = ""
    """Template id of the way back; empty where there is none, or where it is the same family again."""

    def form(self, language: Language) -> Form | None:
        """Return the form of the family in `language`, if it has one."""
        return next((form for form in self.forms if language in form.languages), None)


def there_and_back(
    languages: tuple[Language, ...],
    pattern: str,
    rewrite: str,
    selector: str | None = None,
    back_selector: str | None = None,
) -> Form:
    """Return the form whose way back is the pattern and the rewrite changed over."""
    there = PatternAction(pattern=pattern, rewrite=rewrite, selector=selector)
    return Form(languages, (there,), (PatternAction(pattern=rewrite, rewrite=pattern, selector=back_selector),))


def one_way(languages: tuple[Language, ...], pattern: str, rewrite: str, selector: str | None = None) -> Form:
    """Return the form of one pattern and its rewrite."""
    return Form(languages, (PatternAction(pattern=pattern, rewrite=rewrite, selector=selector),))


def rule(fix: str | dict[str, Any], transform: dict[str, Any] | None = None, **parts: Any) -> RuleAction:
    """Return the action of one rule; `parts` are the keys of its `rule:`."""
    return RuleAction(rule=parts, fix=fix, transform=transform)


def fill(text: str, slots: Mapping[str, str]) -> str:
    """Return `text` with its slots filled."""
    return SLOT.sub(lambda match: slots[match[1]], text)


def fill_action(action: Action, slots: Mapping[str, str]) -> Action:
    """Return `action` with its slots filled, wherever they stand in it."""
    return ACTION.validate_python(_fill_value(action.model_dump(), slots))


def _fill_value(value: Any, slots: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return fill(value, slots)
    if isinstance(value, Mapping):
        return {key: _fill_value(inner, slots) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_value(inner, slots) for inner in value]
    return value
