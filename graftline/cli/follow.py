"""The command `graftline follow`: an edit made by hand in a few places, done in the rest of the repository."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.options import json_option, pluralize, print_json, print_lines, style_diff
from graftline.cli.rules import choose_rejected, load_settings, open_rule_sandbox, write_review
from graftline.cli.rules_printing import (
    NOT_WRITTEN,
    WRITE,
    describe_rule,
    print_rewritten,
    rewritten_as_json,
    rule_as_dict,
    write_rules_of_change,
)
from graftline.core.errors import DataError

if TYPE_CHECKING:
    from graftline.agent.check import CheckOutcome
    from graftline.codemod.follow import FollowedEdit
    from graftline.codemod.history import FileChange
    from graftline.codemod.migration.generalize import Question
    from graftline.codemod.source_files import RewrittenFile

_PATH = click.Path(path_type=Path)
_LINES_AROUND = 2
_ANSWERS = {"y": True, "n": False, "d": None}
_ADVICE_ON_CONTRADICTIONS = "show one of them at a time, or answer questions"
_ADVICE = "other rules make this edit, too; answer questions, or edit one more place"
_LIKELIEST = "or say --questions 0 to write what is likeliest"


@click.command()
@click.argument("folder", default=".", type=_PATH)
@click.option(
    "--commit", help="The edit is what this commit changed; without it, what differs from the current commit."
)
@click.option("--about", "instruction", default="", metavar="TEXT", help="What the edit is about, as a commit says it.")
@click.option("--keep", multiple=True, type=_PATH, help="A file or folder that stays as it is; any number.")
@click.option(
    "--questions",
    type=click.IntRange(0, 100),
    help="Ask so often at most.  [default: 5 on a terminal or with --model, else 0]",
)
@click.option(
    "--model", metavar="FLEET[:ADAPTER]", help="A language model answers the questions, by what --about says."
)
@click.option("--answers", metavar="ynd…", help="Answers to the questions, a letter each, in place of a terminal.")
@click.option("--tests", default="", metavar="CMD", help="Run in the jail, in a copy of FOLDER with the change in it.")
@click.option("--write", is_flag=True, help="Change the files; without it, the difference is shown only.")
@click.option("--review", type=_PATH, metavar="PAGE", help="Write an HTML page of the places, those alike in a group.")
@click.option("--ask", is_flag=True, help="Show group by group, and ask of each whether it is to be changed.")
@click.option("--reject", multiple=True, metavar="GROUP", help="Leave out a group, or all of a rule; any number.")
@click.option("--output", "out", type=_PATH, help="Write the rules to this file.")
@json_option
@click.pass_obj
def follow(
    root: Path | None, folder: Path, commit: str | None, instruction: str, keep: tuple[Path, ...], questions: int | None,
    model: str | None, answers: str | None, tests: str,
    write: bool, review: Path | None, ask: bool, reject: tuple[str, ...], out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Have the rest of a git repository follow an edit that you made in one or a few places of it.

    The edit becomes rules, the rules are tried on all files of FOLDER, and where it is not clear what you mean, you are
    asked. Imports and layout follow. Without --write, nothing is changed, nor where the tests fail."""
    from graftline.codemod.writes import default_journals, write_files
    from graftline.repository import follow, read_changes

    changes = read_changes(folder, commit)
    if answers is not None and set(answers) - _ANSWERS.keys():
        raise click.UsageError(
            f"--answers {answers!r}: expected a letter for each question, y for yes, n for no, d for do not know"
        )
    if model is not None and (answers is not None or not instruction):
        raise click.UsageError("--model answers by what the edit is about: give it --about, and no --answers")
    has_chosen = questions is not None or answers is not None
    if questions is None:
        is_answered = model is not None or (sys.stdin.isatty() and not as_json)
        questions = len(answers) if answers is not None else 5 if is_answered else 0
    given_letters = iter(answers or "")
    letters = list[str]()

    def answer(question: "Question") -> bool | None:
        letters.append(next(given_letters, "") or ask_model(question) or _ask(question, folder))
        return _ANSWERS[letters[-1]]

    with open_rule_sandbox(root) as sandbox, _open_answers(root, model, instruction, folder, changes) as ask_model:
        followed, result = follow(
            folder, changes, sandbox, answer if questions else None, instruction, questions,
            lambda groups: choose_rejected(groups, reject, ask, is_error=as_json), keep=keep,
            needs_reach=out is not None,
        )  # fmt: skip
    notes = [*_list_notes(followed, has_chosen), *_list_unused_answers(followed, answers or "")]
    if review is not None:
        command = _repeat(folder, commit, keep, instruction, "".join(letters), tests)
        write_review(review, result, followed.rules, command, notes)
    doubt = "" if ask or letters else _describe_doubt(followed, has_chosen)
    if write and doubt:
        raise DataError(f"{folder}: {doubt}; nothing was changed")
    outcome = _run_tests(root, folder, tests, result.files) if tests and result.files else None
    has_failed = outcome is not None and outcome.passed is not True
    write = write and not has_failed
    if write:
        write_files(result.writes, default_journals())
    if out is not None and followed.rules:
        write_rules_of_change(followed.rules, result, out)
    if as_json:
        values: dict[str, object] = {
            "rules": [rule_as_dict(rule) for rule in followed.rules],
            "undone": followed.undone,
            "contradictions": followed.contradictions,
            "tests": outcome and asdict(outcome),
            "questions": followed.questions,
            "skipped": result.skipped,
            "written": write,
        }
        print_json({**values, **rewritten_as_json(result.files, result.groups)})
    else:
        for line in [*map(describe_rule, followed.rules), *notes]:
            click.echo(line, err=True)
        held = "--write alone does not change them, for it is not clear what is meant" if doubt else WRITE
        advice = NOT_WRITTEN if has_failed else held
        print_rewritten(result.files, result.groups, result.skipped, write, as_json=False, advice=advice)
    if has_failed or not followed.rules:
        raise click.exceptions.Exit(1)


COMMANDS = (follow,)


def _run_tests(root: Path | None, folder: Path, command: str, files: "Sequence[RewrittenFile]") -> "CheckOutcome":
    """Run the tests with the change, and where they fail with the edit alone; say what comes of it."""
    from graftline.agent.check import Checker

    texts = {file.file.path.relative_to(folder).as_posix(): file.file.with_text(file.text) for file in files}
    checker = Checker(folder, command, load_settings(root).tests)
    try:
        click.echo("tests with the change", err=True)
        outcome = checker.run(texts)
        if outcome.passed is True:
            click.echo("tests pass", err=True)
        elif outcome.passed is False:
            alone = checker.run({}).passed
            ending = "pass with your edit alone" if alone else "fail with your edit alone, too"
            click.echo(
                f"tests fail with the change; they {'did not run without it' if alone is None else ending}", err=True
            )
            click.echo(outcome.output, err=True)
        else:
            click.echo(f"tests did not run: {outcome.output}", err=True)
    finally:
        checker.close()
    return outcome


def _ask(question: "Question", folder: Path) -> str:
    """Ask a person at the terminal about a place; return the letter of the answer."""
    from graftline.core.text_diff import unified_diff

    first = question.text.count("\n", 0, question.start)
    last = question.text.count("\n", 0, question.end)
    lines = question.text.split("\n")
    start = sum(len(line) + 1 for line in lines[:first])
    old = "\n".join(lines[first : last + 1])
    new = old[: question.start - start] + question.replacement + old[question.end - start :]
    around = max(0, first - _LINES_AROUND)
    context = [f" {line}" for line in lines[around:first]]
    after = [f" {line}" for line in lines[last + 1 : last + 1 + _LINES_AROUND]]
    shown = [line.rstrip("\n") for line in unified_diff(f"{old}\n", f"{new}\n", "", "")][3:]
    print_lines(
        [(f"{folder / question.path}:{first + 1}", "bold"), *style_diff([*context, *shown, *after])], is_error=True
    )
    letter: str = click.prompt(
        "is this to be changed so? [y]es, [n]o, [d]o not know",
        type=click.Choice([*_ANSWERS]), show_choices=False, err=True,
    )  # fmt: skip
    return letter


@contextmanager
def _open_answers(
    root: Path | None, model: str | None, instruction: str, folder: Path, changes: "Sequence[FileChange]"
) -> "Iterator[Callable[[Question], str]]":
    """Open what has the letter of an answer by the language model `model`; that of nothing where there is no model."""
    if model is None:
        yield lambda question: ""
        return
    from graftline.agent.questions import answer_with_model, list_examples
    from graftline.cli.refactor import open_agent_model
    from graftline.codemod.migration.units import Demonstration

    examples = list_examples(Demonstration(change.path, change.before, change.after) for change in changes)
    with open_agent_model(root, model) as agent_model:
        answer = answer_with_model(instruction, agent_model, examples)
        letters = {value: letter for letter, value in _ANSWERS.items()}

        def ask_model(question: "Question") -> str:
            letter = letters[answer(question)]
            click.echo(f"{folder / question.path}: {model} answers {letter}", err=True)
            return letter

        yield ask_model


def _repeat(
    folder: Path, commit: str | None, keep: Sequence[Path], instruction: str, letters: str, tests: str
) -> list[str]:
    """Return the command that comes to the same again: answers that were given are in it."""
    words = ["graftline", "follow", str(folder), *(["--commit", commit] if commit else [])]
    words += [word for path in keep for word in ("--keep", str(path))]
    words += ["--about", instruction] if instruction else []
    words += ["--answers", letters] if letters else ["--questions", "0"]
    return [*words, "--tests", tests] if tests else words


def _describe_doubt(followed: "FollowedEdit", has_chosen: bool) -> str:
    """Return why nothing is written, for it may well not be meant; empty where it may be written. `has_chosen` is whether
    somebody said how much to ask.
    """
    from graftline.repository import is_unsure

    if followed.contradictions:
        return f"{'; '.join(followed.contradictions)}; {_ADVICE_ON_CONTRADICTIONS}"
    return f"{_ADVICE}, {_LIKELIEST}" if is_unsure(followed.rules) and not has_chosen else ""


def _list_unused_answers(followed: "FollowedEdit", answers: str) -> list[str]:
    """Return, as a line, that there were fewer questions than answers."""
    count = len(answers) - followed.questions
    questions, letters = pluralize(followed.questions, "question"), pluralize(count, "letter")
    return [f"--answers {answers}: {questions} asked, so that {letters} at its end say nothing"] if count > 0 else []


def _list_notes(followed: "FollowedEdit", has_chosen: bool) -> list[str]:
    """Return what there is to know before anything is written, a line each."""
    from graftline.repository import is_unsure

    advice = _ADVICE if has_chosen else f"{_ADVICE}, {_LIKELIEST}"
    return [
        *([f"unsure: {advice}"] if is_unsure(followed.rules) else []),
        *(f"contradictory: {sentence}; {_ADVICE_ON_CONTRADICTIONS}" for sentence in followed.contradictions),
        *(f"not done: {sentence}" for sentence in followed.undone),
    ]
