"""The command `graftline refactor`: an instruction and a repository become a change for somebody to review."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import find_paths, json_option, pluralize, print_json
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
from graftline.core.errors import BoundaryError, ConfigError, DataError

if TYPE_CHECKING:
    from graftline.agent.model import AgentModel, Limits
    from graftline.agent.proposal import Proposal
    from graftline.repository import Rewrite

_PATH = click.Path(path_type=Path)
_FOLDER = Path("agent")
_ADVICE = "the edit can be read in other ways; give another --example, or ask with --ask"


@click.command()
@click.argument("instruction")
@click.argument("folder", default=".", metavar="[PATH]", type=_PATH)
@click.option("--example", "examples", nargs=2, multiple=True, type=_PATH, metavar="BEFORE AFTER", help="Edit by hand.")
@click.option("--keep", multiple=True, type=_PATH, help="A file or folder that stays as it is; any number.")
@click.option("--tests", default="", metavar="CMD", help="Run in the jail, in copies of PATH, before and after.")
@click.option("--model", metavar="FLEET[:ADAPTER]", help="A language model that is up.")
@click.option("--attempts", type=click.IntRange(1, 64), default=4, help="Of the model, at each place that it edits.")
@click.option("--questions", type=click.IntRange(0, 100), default=0, help="Asked of the model about places, at most.")
@click.option("--tokens", type=click.IntRange(1), default=200_000, help="Ask for so many at most.")
@click.option("--seconds", type=click.FloatRange(1), default=3_600.0, help="Wait for the model so long at most.")
@click.option("--write", is_flag=True, help="Change the files; without it, what would change is shown only.")
@click.option(
    "--force", is_flag=True, help="Write though files differ from the commit, rules are unsure, or tests fail."
)
@click.option("--review", type=_PATH, metavar="PAGE", help="Write the review page there.")
@click.option("--output", "out", type=_PATH, help="Write the rules there.")
@click.option("--ask", is_flag=True, help="Show group by group, and ask of each whether it is to be changed.")
@click.option("--reject", multiple=True, metavar="GROUP", help="Leave out a group, or all of a rule; any number.")
@click.option(
    "--record", is_flag=True, help="Keep this run, code included, as a trajectory on this machine, to train on."
)
@json_option
@click.pass_obj
def refactor(
    root: Path | None, instruction: str, folder: Path, examples: tuple[tuple[Path, Path], ...], keep: tuple[Path, ...],
    tests: str, model: str | None, attempts: int, questions: int, tokens: int, seconds: float, write: bool, force: bool,
    review: Path | None, out: Path | None, ask: bool, reject: tuple[str, ...], record: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Change the files below PATH as INSTRUCTION says, for you to review.

    A language model edits one place, its edit becomes rules, and the rest follows. An instruction that says what is
    written for what, with code in backticks, needs no model, and neither does an --example. Without --write, nothing is
    changed."""
    from graftline.agent.model import Limits
    from graftline.agent.proposal import Settings
    from graftline.agent.refactor import refactor
    from graftline.codemod.writes import default_journals, write_files
    from graftline.repository import choose_places, is_unsure, read_pairs

    if record:
        find_paths(root)  # where there is no place for a record, nothing is begun
    pairs = [pair for before, after in examples for pair in read_pairs(before, after, None)]
    is_dirty = _look_at_tree(folder, write and not force)
    opened = open_agent_model(root, model, Limits(tokens, seconds)) if model else nullcontext()
    with open_rule_sandbox(root) as sandbox, opened as agent_model:
        proposal = refactor(
            instruction, folder, sandbox=sandbox, model=agent_model, examples=pairs, keep=keep, tests=tests,
            jail=load_settings(root).tests, settings=Settings(attempts=attempts, questions=questions),
            report=lambda line: click.echo(line, err=True),
        )  # fmt: skip
    result = choose_places(
        proposal.files, proposal.rules, proposal.skipped,
        lambda groups: choose_rejected(groups, reject, ask, is_error=as_json), proposal.reach,
    )  # fmt: skip
    unsure = [] if force or ask or reject else [rule.id for rule in proposal.rules if is_unsure([rule])]
    if write and result.files and unsure:
        raise DataError(
            f"{folder}: {', '.join(unsure)}: {_ADVICE}; look at them without --write, or say --force; nothing was changed"
        )
    if result.files and not write:
        pages = agent_folder(root) / "review"
        review, out = review or pages / "review.html", out or pages / "rules.yml"
    if review is not None and result.files:
        review.parent.mkdir(parents=True, exist_ok=True)
        command = _repeat(instruction, folder, examples, keep, tests, model, attempts, questions)
        write_review(review, result, proposal.rules, command, _list_notes(proposal))
    if out is not None and result.files:
        write_rules_of_change(proposal.rules, result, out)
    has_failed = proposal.tests is not None and proposal.tests.passed is not True
    is_written = write and bool(result.files) and (not has_failed or force)
    journal = write_files(result.writes, default_journals()) if is_written else None
    if record:
        is_decided = is_written or bool(result.rejected) or ask
        _record(root, instruction, folder, proposal, result if is_decided else None, model or "", journal)
    if as_json:
        print_json(_as_dict(folder, proposal, agent_model, result, is_written))
    else:
        needs_force = not force and (bool(unsure) or is_dirty)
        advice = NOT_WRITTEN if has_failed and not force else f"{WRITE} only with --force" if needs_force else WRITE
        _print_proposal(proposal, agent_model, result, is_written, advice)
    if has_failed or (not result.files and proposal.outcome != "already done"):
        raise click.exceptions.Exit(1)


COMMANDS = (refactor,)


def agent_folder(root: Path | None) -> Path:
    """Return where the agent keeps what was answered: below the data folder of the root, else in the state folder of
    the user.
    """
    from graftline.codemod.writes import default_journals

    try:
        return find_paths(root).data / _FOLDER
    except ConfigError:
        return default_journals().parent / _FOLDER


@contextmanager
def open_agent_model(root: Path | None, name: str, limits: "Limits | None" = None) -> "Iterator[AgentModel]":
    """Open the language model `name`; its answers are kept below the data folder of the root.

    ActorError with what to do where nobody answers.
    """
    from graftline.agent.model import Limits, use_model
    from graftline.core.secrets import open_secrets

    paths = find_paths(root)
    secrets, answers = open_secrets(os.environ, paths.root), agent_folder(root) / "answers"
    with use_model(name, paths.configs, secrets, answers, limits or Limits()) as model:
        yield model


def _record(
    root: Path | None, instruction: str, repository: Path, proposal: "Proposal", result: "Rewrite | None", model: str,
    journal: Path | None,
) -> None:  # fmt: skip
    """Keep a run, with what became of its places where that was decided; not where the terms of the model forbid to
    train on it.
    """
    from graftline.agent.record import DATASET, record_run
    from graftline.llm.fleet import load_fleet
    from graftline.repository import identify_repository

    paths = find_paths(root)
    terms = load_fleet(paths.configs, model.partition(":")[0]).outputs if model else None
    if terms is not None and terms.may_train is False:
        click.echo(f"not recorded: nothing may be trained on what {model} answers ({terms.terms})", err=True)
        return
    folder = paths.data / "trajectories" / "attempts" / DATASET
    accepted = result.files if result else None
    with open_rule_sandbox(root) as sandbox:
        name = identify_repository(repository)
        rows = record_run(instruction, proposal, accepted, folder, sandbox, model, name, journal)
    click.echo(f"recorded: {pluralize(len(rows), 'rule')} in {folder}", err=True)


def _look_at_tree(folder: Path, needs_clean: bool) -> bool:
    """Return, and say, whether tracked files below `folder` differ from the current commit; DataError where it
    `needs_clean`.

    Nothing is said of a folder that is in no git repository.
    """
    from graftline.repository import read_changes

    try:
        is_dirty = bool(read_changes(folder, None))
    except (BoundaryError, ConfigError, DataError):
        return False
    if is_dirty:
        click.echo(f"{folder}: has files that differ from the current commit", err=True)
    if is_dirty and needs_clean:
        raise DataError(f"{folder}: commit what differs, or say --force; nothing was changed")
    return is_dirty


def _repeat(
    instruction: str, folder: Path, examples: tuple[tuple[Path, Path], ...], keep: tuple[Path, ...], tests: str,
    model: str | None, attempts: int, questions: int,
) -> list[str]:  # fmt: skip
    """Return the command that comes to the same again: what the model answered is kept."""
    words = ["graftline", "refactor", instruction, str(folder)]
    words += [part for before, after in examples for part in ("--example", str(before), str(after))]
    words += [part for path in keep for part in ("--keep", str(path))]
    words += ["--tests", tests] if tests else []
    words += ["--model", model, "--attempts", str(attempts)] if model else []
    return [*words, "--questions", str(questions)] if model and questions else words


def _list_notes(proposal: "Proposal") -> list[str]:
    """Return what there is to know before anything is written, a line each."""
    from graftline.agent.proposal import MEANINGS
    from graftline.repository import is_unsure

    tests, ending = proposal.tests, []
    if tests is not None:
        failure = f"tests do not pass with the change:\n{tests.output or 'they print nothing'}"
        ending = ["tests pass with the change" if tests.passed else failure]
    return [
        *ending,
        *([f"unsure: {_ADVICE}"] if is_unsure(proposal.rules) else []),
        *(f"contradictory: {sentence}" for sentence in proposal.contradictions),
        # a name that may be misspelt is why there is nothing to do
        *(f"not done: {sentence}" for sentence in proposal.undone),
        *([MEANINGS[proposal.outcome]] if proposal.outcome != "changed" else []),
    ]


def _print_proposal(
    proposal: "Proposal", model: "AgentModel | None", result: "Rewrite", is_written: bool, advice: str
) -> None:
    for line in [*map(describe_rule, proposal.rules), *_list_notes(proposal)]:
        click.echo(line, err=True)
    if model is not None:
        spent = model.spent
        click.echo(
            f"model: {pluralize(spent.questions, 'question')}, {spent.replayed} answered before,"
            f" {spent.tokens} tokens, {spent.seconds:.0f} s",
            err=True,
        )
    if proposal.files:
        print_rewritten(result.files, result.groups, proposal.skipped, is_written, as_json=False, advice=advice)
    elif proposal.skipped:
        click.echo(f"not looked at: {proposal.skipped}", err=True)


def _as_dict(
    folder: Path, proposal: "Proposal", model: "AgentModel | None", result: "Rewrite", is_written: bool
) -> dict[str, Any]:
    edits = [
        {
            "path": str(folder / edit.block.path),
            "line": edit.block.start + 1,
            "votes": edit.votes,
            "attempts": [attempt.fault or "edited" for attempt in edit.attempts],
        }
        for edit in proposal.edits
    ]
    return {
        "outcome": proposal.outcome,
        "rules": [rule_as_dict(rule) for rule in proposal.rules],
        "edits": edits,
        "undone": proposal.undone,
        "contradictions": proposal.contradictions,
        "questions": proposal.questions,
        "tests": proposal.tests and asdict(proposal.tests),
        "model": model and {"name": model.name, **asdict(model.spent)},
        "state": proposal.state.model_dump(exclude_defaults=True),
        "skipped": proposal.skipped,
        "written": is_written,
        **rewritten_as_json(result.files, result.groups),
    }
