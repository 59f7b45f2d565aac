"""Actions and sources made to harm whoever applies them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graftline.sandbox.base import IsolationLevel, Verdict

_OUT_OF_TIME = frozenset({Verdict.CPU_TIMEOUT})
_SLOW = frozenset({Verdict.CPU_TIMEOUT, Verdict.WALL_TIMEOUT})
_LARGE = frozenset({Verdict.OUTPUT_FLOOD, Verdict.OUT_OF_MEMORY, Verdict.CPU_TIMEOUT, Verdict.WALL_TIMEOUT})
_REFUSED = frozenset({Verdict.ACTION_ERROR, Verdict.NO_MATCH})
_RENAME = {"pattern": "f($A)", "rewrite": "g($A)"}


@dataclass(frozen=True, slots=True)
class ActionCase:
    """An action on a source, and how it has to end."""

    name: str
    source: str
    action: Mapping[str, Any]
    """As a model writes it; one that is refused before it is applied is contained."""
    ends: frozenset[Verdict] = frozenset()
    """Verdicts without a text after; empty where only `after` is right."""
    after: str | None = None
    """The text that has to come out, byte for byte, where the verdict is `ok`."""
    needs: IsolationLevel = "compute"
    group: str = "actions"


def search(relation: str, levels: int) -> dict[str, Any]:
    """Return a rule whose cost is the number of nodes to the power of `levels`."""
    rule: dict[str, Any] = {"pattern": "no_such_name"}
    for _ in range(levels):
        rule = {"kind": "call", relation: {**rule, "stopBy": "end"}}
    return rule


def _nest(levels: int) -> dict[str, Any]:
    rule: dict[str, Any] = {"pattern": "f($A)"}
    for _ in range(levels):
        rule = {"not": rule}
    return rule


def _growing(levels: int) -> dict[str, Any]:
    """Return transformations each of which puts forty letters before every letter of the one before."""
    names = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    grow = {"replace": "", "by": "a" * 40}
    return {names[n + 1]: {"replace": {"source": f"${names[n]}", **grow}} for n in range(levels)}


_CALLS = "f(" * 250 + "1" + ")" * 250 + "\n"
_SIGNS = "x = " + "-" * 16_000 + "1\n"

ACTION_CASES = (
    ActionCase(
        "stack_overflow_of_a_match",
        _SIGNS,
        {"pattern": _SIGNS.strip(), "rewrite": "y"},
        frozenset({Verdict.CRASH}),
    ),
    ActionCase("search_within_search", _CALLS, {"rule": search("has", 4), "fix": "x"}, _OUT_OF_TIME),
    ActionCase("search_above_search", _CALLS, {"rule": search("inside", 5), "fix": "x"}, _OUT_OF_TIME),
    ActionCase(
        "states_of_a_regular_expression",
        "x = '" + "a" * 400_000 + "'\n",
        {"rule": {"kind": "string", "regex": "(?:a{500}){500}b"}, "fix": "x"},
        _OUT_OF_TIME,
    ),
    ActionCase(
        "rewriter_of_itself",
        _CALLS,
        {
            "rule": {"pattern": "f($A)"},
            "fix": "$B",
            "transform": {"B": {"rewrite": {"rewriters": ["r"], "source": "$A"}}},
            "rewriters": [
                {
                    "id": "r",
                    "rule": {"pattern": "f($C)"},
                    "transform": {"D": {"rewrite": {"rewriters": ["r"], "source": "$C"}}},
                    "fix": "$D$D",
                }
            ],
        },
        _SLOW | _LARGE | _REFUSED,
    ),
    ActionCase(
        "rewriter_that_is_not_there",
        "f(1)\n",
        {
            "rule": {"pattern": "f($A)"},
            "fix": "$B",
            "transform": {"B": {"rewrite": {"rewriters": ["r"], "source": "$A"}}},
        },
        _REFUSED,
        "1\n",  # as ast-grep does: the source as it is
    ),
    ActionCase(
        "rule_of_itself",
        "f(1)\n",
        {"rule": {"matches": "r"}, "fix": "x", "utils": {"r": {"any": [{"matches": "r"}, {"not": {"matches": "r"}}]}}},
        _REFUSED | _SLOW | {Verdict.CRASH},
    ),
    ActionCase(
        "transformations_that_grow",
        "f('" + "a" * 300 + "')\n",
        {"rule": {"pattern": "f($A)"}, "fix": "$F", "transform": _growing(5)},
        _LARGE | {Verdict.ACTION_ERROR},
    ),
    ActionCase(
        "rewrite_that_repeats",
        "f(" + "a" * 9_000 + ")\n",
        {"pattern": "f($A)", "rewrite": "$A" * 1000},
        frozenset({Verdict.OUTPUT_FLOOD}),
    ),
    ActionCase(
        "matches_within_matches",
        "f(" * 10_000 + "1" + ")" * 10_000 + "\n",
        _RENAME,
        _LARGE | _REFUSED | {Verdict.CRASH},
        # the outermost alone is replaced
        "g(" + "f(" * 9_999 + "1" + ")" * 10_000 + "\n",
    ),
    ActionCase(
        "five_megabytes",
        "x=1\n" * 1_310_720,
        {"pattern": "y = $A", "rewrite": "z"},
        _LARGE | _REFUSED | {Verdict.CRASH},
    ),
    ActionCase("one_long_line", "x = [" + "1," * 250_000 + "]\n", {"pattern": "y", "rewrite": "z"}, _LARGE | _REFUSED),
    *(
        ActionCase(f"pattern_{name}", "y = 1\n", {"pattern": pattern, "rewrite": "z"}, _REFUSED)
        for name, pattern in {
            "like_an_option": "--version",
            "like_a_short_option": "-U",
            "like_the_end_of_options": "--",
            "like_the_standard_input": "-",
            "like_a_form_of_output": "--json",
            "like_rules": "--inline-rules=x",
            "like_a_file": "@/etc/passwd",
            "like_a_command": "$(id)",
            "like_a_config": "--config=/etc/passwd",
            "of_nothing": "$$$",
        }.items()
    ),
    ActionCase("leading_dash", "y = -x\n", {"pattern": "-x", "rewrite": "--version"}, after="y = --version\n"),
    ActionCase(
        "end_of_the_document",
        "f(1)\n",
        {"pattern": "f(1)", "rewrite": '"}\n---\n{"id": "b", "language": "python", "rule": {}, "fix": "2"}\n...\n'},
        after='"}\n---\n{"id": "b", "language": "python", "rule": {}, "fix": "2"}\n...\n\n',
    ),
    ActionCase("word_that_yaml_knows", "yes\n", {"pattern": "yes", "rewrite": "no"}, after="no\n"),
    ActionCase("undefined_variable", "f(1)\n", {"pattern": "f($A)", "rewrite": "g($B)"}, _REFUSED),
    ActionCase(
        "panic_in_a_transformation",
        "f(1)\n",
        {
            "rule": {"pattern": "f($_A)"},
            "fix": "$B",
            "transform": {"B": {"substring": {"source": "$_A", "startChar": 1}}},
        },
        _REFUSED | {Verdict.CRASH},
    ),
    ActionCase("half_a_character", "x = '\ud800'\nf(1)\n", _RENAME, _REFUSED),
    ActionCase("half_a_character_in_the_pattern", "f(1)\n", {"pattern": "f('\udfff')", "rewrite": "g"}, _REFUSED),
    ActionCase("unknown_key", "f(1)\n", {**_RENAME, "files": ["/etc/passwd"]}, _REFUSED),
    ActionCase("unknown_key_of_a_rule", "f(1)\n", {"rule": {"pattern": "f($A)", "patern": "x"}, "fix": "x"}, _REFUSED),
    ActionCase("unknown_kind", "f(1)\n", {"rule": {"kind": "no_such_kind"}, "fix": "x"}, _REFUSED),
    ActionCase("rule_of_many_levels", "f(1)\n", {"rule": _nest(2_000), "fix": "x"}, _REFUSED | {Verdict.CRASH}),
    ActionCase(
        "line_ends_and_marks",
        "\ufeffx = 1\r\nf(1)\r\ny = '\t\x0b\x0c\u2028'\r\n",
        _RENAME,
        after="\ufeffx = 1\r\ng(1)\r\ny = '\t\x0b\x0c\u2028'\r\n",
    ),
    ActionCase("zero_bytes", "# \0 \x1b[2J\nf(1)\n", _RENAME, _REFUSED, after="# \0 \x1b[2J\ng(1)\n"),
    ActionCase("suppression", "f(1)\n# ast-grep-ignore\nf(2)\n", _RENAME, after="g(1)\n# ast-grep-ignore\nf(2)\n"),
)
