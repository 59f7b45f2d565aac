"""Sentences of RefactoringMiner to instructions: `Rename Method public a() : void renamed to … in class p.C`.

A sentence says what was done; an instruction says what is to be done, by the names that stand in the code.
"""

from collections.abc import Callable, Mapping

Instruct = Callable[[str], str | None]


def instruction_of(kind: str, description: str) -> str | None:
    """Return what asks for the refactorings in `description`, all of them of one kind; None where it is not understood.

    Rename Variable a : int to b : int in method public f() : void from class p.C
    → Rename the variable `a` to `b` in `f`.
    """
    instruct = _KINDS.get(kind)
    if instruct is None:
        return None
    wanted = dict[str, None]()
    for sentence in description.split("; "):
        start, found, rest = sentence.strip().partition(f"{kind} ")
        instruction = instruct(rest) if found and not start else None
        if instruction is None:
            return None
        wanted[instruction] = None
    return " ".join(wanted)


def _extract_method(text: str) -> str | None:
    new, found, rest = text.partition(" extracted from ")
    method, source = _method(new), _method(rest)
    if not found or not method or not source:
        return None
    return (
        f"Extract a method `{method}` from `{source}`." if method != source else f"Extract an overload of `{method}`."
    )


def _rename_method(text: str) -> str | None:
    before, found, rest = text.partition(" renamed to ")
    old, new, owner = _method(before), _method(rest), _class(rest)
    if not found or not old or not new:
        return None
    return f"Rename the method `{old}` to `{new}`" + (f" in `{owner}`." if owner else ".")


def _rename_variable(text: str) -> str | None:
    variables, found, method = text.partition(" in method ")
    before, found_to, after = variables.partition(" to ")
    old, new, owner = _variable(before), _variable(after), _method(method)
    return (
        f"Rename the variable `{old}` to `{new}` in `{owner}`."
        if found and found_to and old and new and owner
        else None
    )


def _remove_parameter(text: str) -> str | None:
    parameter, found, method = text.partition(" in method ")
    name, owner = _variable(parameter), _method(method)
    return f"Remove the parameter `{name}` from `{owner}`." if found and name and owner else None


_KINDS: Mapping[str, Instruct] = {
    "Extract Method": _extract_method,
    "Rename Method": _rename_method,
    "Rename Variable": _rename_variable,
    "Remove Parameter": _remove_parameter,
}
KINDS = tuple(_KINDS)


def _method(signature: str) -> str | None:
    """Return the name in `public static name(a int) : void`."""
    before, found, _ = signature.partition("(")
    return _name(before.split()[-1]) if found and before.strip() else None


def _variable(declaration: str) -> str | None:
    """Return the name in `name : Type`."""
    name, found, _ = declaration.partition(" : ")
    return _name(name.strip()) if found else None


def _class(text: str) -> str | None:
    """Return the plain name in `… in class p.Name`; None where the class has none."""
    return _name(text.rpartition(" in class ")[2].rpartition(".")[2].strip())


def _name(text: str) -> str | None:
    return text if text.replace("$", "_").isidentifier() else None
