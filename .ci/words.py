"""Refuse names that say nothing: placeholder variables, functions named by a participle, and words that the field has others for.

    python .ci/words.py [FOLDER ...]

Prints every offending name with its place, and ends with 1 if there are any.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("graftline", "orchestration", "sensors", "assets", "resources")
PLACEHOLDERS = frozenset(
    [
        "found",
        "one",
        "said",
        "told",
        "known",
        "made",
        "asked",
        "kept",
        "wanted",
        "given",
        "left",
        "of",
        "each",
        "where",
        "what",
        "whose",
        "taken",
        "tried",
        "meant",
        "drawn",
        "seen",
        "here",
        "others",
        "rest",
    ]
)
"""No variable, parameter or field is called so."""
REPLACED = {
    "artefact": "artifact",
    "catalogue": "catalog",
    "colour": "color",
    "behaviour": "behavior",
    "contestant": "model or solver",
    "entrant": "model or solver",
    "keeper": "supervisor",
    "ancestor": "provenance",
    "ancestry": "provenance",
    "persistently": "with_retries",
    "undisturbed": "check_inputs_unchanged",
    "squeezed": "strip_whitespace",
    "tidied": "normalize_blank_lines",
}
"""No identifier has one of these in it; the field, or our glossary, says the other."""
VERBS_IN_ED = frozenset(["seed", "feed", "need", "embed", "speed", "shed", "proceed", "exceed", "read"])
ALLOWED = {
    # fields that are keys of stored files, of configuration or of what commands print
    "graftline/core/blobs.py": {"kept"},
    "graftline/datasets/synthetic/families/calls.py": {"of"},
    "graftline/evals/attempt.py": {"contestant"},
    "graftline/evals/evaluation_file.py": {"contestants"},
    "graftline/evals/metrics.py": {"contestant", "of"},
    "graftline/evals/sources.py": {"of"},
    "graftline/llm/servers/supervisor.py": {"keeper", "keeper_started"},
    "graftline/pipeline/deployed_adapter.py": {"found"},
    "graftline/pipeline/evaluation_checks.py": {"found", "wanted"},
    "graftline/pipeline/summary.py": {"made"},
    "graftline/prompts/outcome.py": {"asked"},
    "graftline/rollouts/teachers/prompt.py": {"kept"},
    "graftline/sandbox/runner.py": {"kept"},
    "graftline/training/settings.py": {"of"},
    "graftline/training/tinker.py": {"computed_with"},
    # a folder, and a stage, both called as their artifact is
    "graftline/core/paths.py": {"normalized"},
    "graftline/pipeline/stages/normalized.py": {"normalized"},
}
"""Names that stand although they break a rule, for others read them."""
PREPOSITIONS = frozenset(["by", "within", "with", "from", "in", "of", "to", "at", "on", "for", "as"])


def is_participle(name: str) -> bool:
    """Return whether a function is named by what was done alone: `judged`, `named_by`; `accepted_keys` says what there is."""
    first, *more = name.strip("_").split("_")
    return first.endswith("ed") and first not in VERBS_IN_ED and (not more or more[0] in PREPOSITIONS)


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read as a value."""
    names = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    return bool(names & {"property", "cached_property"})


def offences(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and fault of every name in a file that breaks a rule."""
    tree = ast.parse(path.read_text("utf-8"))
    has_sides = any(isinstance(node, ast.Name) and node.id == "right" for node in ast.walk(tree))
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
                if is_participle(name) and not is_property(node):
                    yield line, name, "a function is named by a verb"
            case ast.ClassDef(name=name, lineno=line):
                pass
            case ast.Name(id=name, lineno=line, ctx=ast.Store()) | ast.arg(arg=name, lineno=line):
                # what stands to the left of something is what its name says
                if name.strip("_") in PLACEHOLDERS and not (has_sides and name == "left"):
                    yield line, name, "says nothing of its value"
            case _:
                continue
        for word, better in REPLACED.items():
            if word in name.lower():
                yield line, name, f"is {better} here"


def main() -> int:
    """Check the folders, and return the exit code."""
    faults = [
        f"{path}:{line}: {name}: {fault}"
        for folder in sys.argv[1:] or FOLDERS
        for path in sorted(Path(folder).rglob("*.py"))
        for line, name, fault in offences(path)
        if name not in ALLOWED.get(path.as_posix(), ())
    ]
    print("\n".join([*faults, f"{len(faults)} names to change"] if faults else ["names are verbs and things"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
