"""Synthetic edits: template rewrites, filled with names found in real snippets, so that the gold action is known.

A candidate is kept when its action changes 1 to 12 places and the result parses as cleanly as the snippet did. The
edit inherits group, licence and therefore split of its snippet. The instruction is written from the names and never
quotes the action.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.actions.action import PatternAction, rule_of
from graftline.actions.astgrep import Language, Tree, find_all, parse
from graftline.datasets.edit import Edit
from graftline.errors import DataError
from graftline.hashing import digest
from graftline.sandbox.base import Sandbox, Verdict, decided

MAX_PLACES = 12
_ATTEMPTS_PER_EDIT = 6
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALL_KINDS: Mapping[Language, str] = {
    "python": "call",
    "javascript": "call_expression",
    "typescript": "call_expression",
    "tsx": "call_expression",
    "java": "method_invocation",
}

Shape = Literal["function", "method", "any"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call found in a snippet."""

    name: str
    is_method: bool
    arguments: int
    is_statement: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A family of rewrites; `{name}` is filled from a call, `{new}` with a name derived from it."""

    id: str
    pattern: str
    rewrite: str
    instruction: str
    shape: Shape
    arguments: int | None = None
    """Number of arguments the call must have; None for any."""
    selector: str | None = None


_CALLS: tuple[Template, ...] = (
    Template("rename_function", "{name}($$$A)", "{new}($$$A)", "Rename calls of `{name}` to `{new}`.", "function"),
    Template("rename_method", "$O.{name}($$$A)", "$O.{new}($$$A)", "Call `{new}` instead of `{name}` on every object.", "method"),
    Template("wrap_function", "{name}($$$A)", "traced({name}($$$A))", "Wrap every call of `{name}` in `traced`.", "function"),
    Template("wrap_method", "$O.{name}($$$A)", "traced($O.{name}($$$A))", "Wrap every call of the method `{name}` in `traced`.", "method"),
    Template("swap_arguments", "{name}($A, $B)", "{name}($B, $A)", "Swap the two arguments of `{name}`.", "function", 2),
    Template("swap_method_arguments", "$O.{name}($A, $B)", "$O.{name}($B, $A)", "Swap the two arguments of the method `{name}`.", "method", 2),
    Template("drop_argument", "$O.{name}($A, $B)", "$O.{name}($A)", "Drop the second argument of the method `{name}`.", "method", 2),
    Template("method_to_function", "$O.{name}($A)", "{name}_of($O, $A)", "Turn the method `{name}` into the function `{name}_of`, which takes the object first.", "method", 1),
)  # fmt: skip
_PYTHON: tuple[Template, ...] = (
    Template("add_keyword", "{name}($$$A)", "{name}($$$A, timeout=30)", "Pass `timeout=30` to `{name}`.", "function"),
    Template("guard", "$O.{name}($$$A)", "if $O is not None:\n    $O.{name}($$$A)", "Call `{name}` only on objects that are not None.", "method", None, "expression_statement"),
    Template("none_by_equality", "$A is None", "$A == None", "Compare with None by `==`.", "any"),
    Template("get_item", "$D[$K]", "$D.get($K)", "Look keys up with `get`.", "any"),
    Template("not_in", "not $A in $B", "$A not in $B", "Write negated membership as `not in`.", "any"),
    Template("len_is_zero", "len($A) == 0", "not $A", "Test for emptiness without `len`.", "any"),
)  # fmt: skip
_JAVASCRIPT: tuple[Template, ...] = (
    Template("add_options", "{name}($$$A)", "{name}($$$A, {{ timeout: 30 }})", "Pass the option `timeout: 30` to `{name}`.", "function"),
    Template("guard", "$O.{name}($$$A)", "if ($O) {{\n  $O.{name}($$$A);\n}}", "Call `{name}` only on objects that exist.", "method", None, "expression_statement"),
    Template("strict_equality", "$A === $B", "Object.is($A, $B)", "Compare with `Object.is`.", "any"),
    Template("const_to_let", "const $A = $B", "let $A = $B", "Declare constants with `let`.", "any"),
    Template("var_to_let", "var $A = $B", "let $A = $B", "Declare variables with `let`.", "any"),
    Template("typeof_undefined", "$A === undefined", "typeof $A === 'undefined'", "Test for undefined by `typeof`.", "any"),
)  # fmt: skip
_JAVA: tuple[Template, ...] = (
    Template("add_argument", "$O.{name}($$$A)", "$O.{name}($$$A, 30)", "Pass a timeout of 30 as the last argument of `{name}`.", "method"),
    Template("guard", "$O.{name}($$$A);", "if ($O != null) {{\n    $O.{name}($$$A);\n}}", "Call `{name}` only on objects that are not null.", "method"),
    Template("is_null", "$A == null", "Objects.isNull($A)", "Test for null with `Objects.isNull`.", "any"),
    Template("is_not_null", "$A != null", "Objects.nonNull($A)", "Test for non-null with `Objects.nonNull`.", "any"),
    Template("new_list", "new ArrayList<>($$$A)", "Lists.newArrayList($$$A)", "Make lists with `Lists.newArrayList`.", "any"),
)  # fmt: skip


def templates(language: Language) -> tuple[Template, ...]:
    """Return the template families of `language`."""
    return _CALLS + {"python": _PYTHON, "java": _JAVA}.get(language, _JAVASCRIPT)


def synthesize(edits: Sequence[Edit], language: Language, count: int, seed: int, sandbox: Sandbox) -> Iterator[Edit]:
    """Yield at most `count` synthetic edits on the texts before of `edits`; families take turns.

    Raises:
        SandboxError: the sandbox failed.
    """
    rng = random.Random(digest([seed, language, [edit.id for edit in edits]]))
    made: set[str] = set()
    families = templates(language)
    snippets = list(edits)
    for attempt in range(count * _ATTEMPTS_PER_EDIT if snippets else 0):
        if len(made) >= count:
            return
        snippet = rng.choice(snippets)
        for edit in _filled(
            snippet, families[attempt % len(families) :] + families[: attempt % len(families)], rng, sandbox
        ):
            if edit.id not in made:
                made.add(edit.id)
                yield edit
                break


def _filled(snippet: Edit, families: Sequence[Template], rng: random.Random, sandbox: Sandbox) -> Iterator[Edit]:
    """Yield the synthetic edits of one snippet, in the order of `families`."""
    try:
        calls = calls_in(parse(snippet.pre, snippet.language))
    except DataError:  # nested deeper than ast-grep may be asked to go
        return
    for family in families:
        fitting = [call for call in calls if _fits(family, call)]
        if family.shape != "any" and not fitting:
            continue
        name = rng.choice(fitting).name if family.shape != "any" else ""
        edit = _instance(snippet, family, name, sandbox)
        if edit is not None:
            yield edit


def _instance(snippet: Edit, family: Template, name: str, sandbox: Sandbox) -> Edit | None:
    names = {"name": name, "new": f"{name}_v2" if "_" in name or snippet.language == "python" else f"{name}V2"}
    action = PatternAction(
        pattern=family.pattern.format(**names), rewrite=family.rewrite.format(**names), selector=family.selector
    )
    result = decided(sandbox.apply_many(snippet.pre, snippet.language, [action])[0])
    if result.verdict is not Verdict.OK or result.after is None or not 1 <= len(result.matches) <= MAX_PLACES:
        return None
    if result.after == snippet.pre or not parse(result.after, snippet.language).is_clean:
        return None
    # "every call" would be untrue where ast-grep rewrites the outer one of two and leaves the inner one as it is
    if len(find_all(parse(snippet.pre, snippet.language).root, rule_of(action)["rule"])) != len(result.matches):
        return None
    return Edit(
        instruction=family.instruction.format(**names),
        pre=snippet.pre,
        post=result.after,
        language=snippet.language,
        tags=("synthetic", f"template:{family.id}", f"licence:{snippet.licence}"),
        id=f"synthetic:{digest([snippet.id, family.id, name])[:16]}",
        dataset="synthetic_rules",
        licence=snippet.licence,
        group=snippet.group,
        origin=f"{family.id} on {snippet.id}",
        gold_action=action,
    )


def _fits(family: Template, call: Call) -> bool:
    is_right_shape = call.is_method == (family.shape == "method")
    is_right_count = family.arguments is None or call.arguments == family.arguments
    # a guard needs a statement of its own; add_* would leave a stray comma in an empty list
    is_statement = call.is_statement or family.id != "guard"
    has_arguments = call.arguments > 0 or not family.id.startswith("add_")
    return is_right_shape and is_right_count and is_statement and has_arguments


def calls_in(tree: Tree) -> list[Call]:
    """Return the calls by plain names in `tree`, in the order of the text."""
    calls = []
    for node in find_all(tree.root, {"kind": _CALL_KINDS[tree.language]}):
        arguments = node.field("arguments")
        function = node.field("name") if tree.language == "java" else node.field("function")
        if function is None or arguments is None:
            continue
        owner = node.field("object") if tree.language == "java" else function.field("object")
        member = function if tree.language == "java" else function.field("attribute") or function.field("property")
        name = (member or function).text() if owner is not None else function.text()
        if _NAME.fullmatch(name):
            count = sum(child.is_named() for child in arguments.children())
            parent = node.parent()
            calls.append(
                Call(name, owner is not None, count, parent is not None and parent.kind() == "expression_statement")
            )
    return calls
