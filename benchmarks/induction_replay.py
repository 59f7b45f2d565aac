"""Induced steps once more, on disk, by ast-grep's own command line."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, executable, rules_document
from graftline.codemod.equality import normalize_blank_lines, normalize_whitespace
from graftline.codemod.induce import Induction
from graftline.sandbox import Sandbox

_ENDINGS: Mapping[Language, str] = {
    "python": "py",
    "javascript": "js",
    "typescript": "ts",
    "tsx": "tsx",
    "java": "java",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether the command line agrees with the sandbox on one solution."""

    is_same_as_written: bool
    """Whether after each step the file holds, byte for byte, what the sandbox answers to that action."""
    is_same_at_the_end: bool
    """Whether the files, tidied after each step, lead to the text of the induction."""
    is_same_by_itself: bool
    """Whether ast-grep alone, nothing tidied between steps, leads to that text, blanks aside."""


def replayed(before: str, induction: Induction, language: Language, sandbox: Sandbox, folder: Path) -> Replay:
    """Apply every step to a file in `folder`.

    Raises:
        SandboxError: the sandbox failed.
    """
    text, is_same, is_tidied = before, True, False
    for step in induction.steps:
        written = rewritten(text, step.action, language, folder)
        [answer] = sandbox.apply_many(step.before, language, [step.action])
        if written == answer.after:
            text = normalize_blank_lines(step.before, answer)
        else:  # places of another text say nothing about this one
            text, is_same = written, False
        is_tidied = is_tidied or text != written
    own = text
    if is_tidied:
        own = before
        for step in induction.steps:
            own = rewritten(own, step.action, language, folder)
    return Replay(
        is_same, text == induction.result, normalize_whitespace(own) == normalize_whitespace(induction.result)
    )


def rewritten(text: str, action: PatternAction | RuleAction, language: Language, folder: Path) -> str:
    """Return what `ast-grep scan --update-all` makes of a file that holds `text`."""
    rules, source = folder / "rules.yml", folder / f"source.{_ENDINGS[language]}"
    rules.write_text(rules_document([action], language), "utf-8")
    source.write_bytes(text.encode())
    command = [str(executable()), "scan", "--rule", rules.name, "--update-all", source.name]
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return source.read_bytes().decode()
