"""Induction on real changes, replayed with the command line of ast-grep alone."""

import ast
import subprocess
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, executable, rules_document
from graftline.codemod.equality import compare_texts, normalize_blank_lines
from graftline.codemod.induce import induce
from graftline.sandbox import WarmSandboxConfig, open_sandbox

Pairs = Callable[[int, int], list[tuple[str, str, Language]]]


def rewritten(text: str, language: Language, action: PatternAction | RuleAction, folder: Path) -> str:
    done = subprocess.run(
        [executable(), "scan", f"--inline-rules={rules_document([action], language)}", "--stdin", "-U"],
        input=text.encode(),
        capture_output=True,
        cwd=folder,
        check=True,
    )
    # what is printed ends with one newline more than the new text
    return done.stdout.decode()[:-1]


def meaning(text: str) -> str | None:
    """Return what Python itself reads; None for what it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in strings
        try:
            return ast.dump(ast.parse(textwrap.dedent(text)))
        except SyntaxError:
            return None


def test_what_induction_reports_equal_is_equal_when_its_steps_are_replayed(sample_pairs: Pairs, tmp_path: Path) -> None:
    pairs = sample_pairs(75, 4)
    sandbox = open_sandbox(WarmSandboxConfig())
    verified = 0
    try:
        for before, after, language in pairs:
            found = induce(before, after, language, sandbox)
            replayed = before
            for step in found.steps:
                written = rewritten(replayed, language, step.action, tmp_path)
                [result] = sandbox.apply_many(replayed, language, [step.action])
                assert written == step.written == result.after
                replayed = normalize_blank_lines(replayed, result)
            assert replayed == found.result
            is_verified = compare_texts(replayed, after, language).is_verified
            if is_verified and language == "python":
                assert meaning(replayed) == meaning(after)
            verified += is_verified
    finally:
        sandbox.close()
    # at most a few in a hundred real changes are beyond induction
    assert verified >= 73
