"""The commands about rules, `graftline learn`, `apply`, `undo`, `test`, `explain` and `mine`: read files, call one function, print.

Rules go to standard output, or to `--output`; what is to be said of them goes to standard error, so that `… > rules.yml`
makes a rule file.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import (
    INTERRUPTED,
    CommandT,
    find_paths,
    json_option,
    pluralize,
    print_json,
    print_lines,
    print_table,
)
from graftline.cli.rules_printing import (
    ask_for_groups,
    describe_confidence,
    print_learned,
    print_mined,
    print_rewritten,
)
from graftline.core.errors import DataError

if TYPE_CHECKING:
    from graftline.astgrep.binding import Language
    from graftline.codemod.history import FileChange
    from graftline.codemod.mine import MinedRules
    from graftline.codemod.mining.pairs import CollectedPairs
    from graftline.codemod.review import PlaceGroup
    from graftline.codemod.rule_file import FileRule
    from graftline.codemod.source_files import FileMatches, SourceFile
    from graftline.repository import Rewrite
    from graftline.sandbox import Sandbox, SandboxSettings

_ALL_LANGUAGES: "tuple[Language, ...]" = ("python", "javascript", "typescript", "tsx", "java")
_LANGUAGE = click.Choice(_ALL_LANGUAGES)
_PATH = click.Path(path_type=Path)
_INTERRUPTED_S, _INTERRUPTED_FILES = 1.0, 200
"""For rules of what is there, and how many files they are tried on, once somebody has had enough."""


def output_option(command: CommandT) -> CommandT:
    """Add `--output`."""
    return click.option("--output", "out", type=_PATH, help="Write the rules to this file instead of standard output.")(
        command
    )


def rule_file_argument(command: CommandT) -> CommandT:
    """Add the file of rules."""
    return click.argument("rule_file", type=_PATH)(command)


@click.command()
@click.argument("before", required=False, type=_PATH)
@click.argument("after", required=False, type=_PATH)
@click.option("--from-diff", is_flag=True, help="Learn from what differs from the current commit, here or in a folder.")
@click.option("--from-commit", metavar="COMMIT", help="Learn from what this commit changes, here or in a folder.")
@click.option("--pair", "pairs", nargs=2, multiple=True, type=_PATH, metavar="BEFORE AFTER", help="One more example.")
@click.option(
    "--keep", multiple=True, type=_PATH, help="A file or folder that the rules must leave as it is; any number."
)
@click.option("--language", type=_LANGUAGE, help="Language of the files; without it, their names say it.")
@click.option("--check", multiple=True, type=_PATH, help="Say what the rules match in this file or folder.")
@output_option
@json_option
@click.pass_obj
def learn(
    root: Path | None, before: Path | None, after: Path | None, from_diff: bool, from_commit: str | None,
    pairs: tuple[tuple[Path, Path], ...], keep: tuple[Path, ...], language: "Language | None", check: tuple[Path, ...],
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find rules that make BEFORE into AFTER: two files, or two folders with files of the same names.

    With --from-diff or --from-commit, the examples are changed files of the git repository at BEFORE, or here."""
    from graftline.codemod.learn import learn_rules
    from graftline.repository import as_examples, read_changes, read_pairs, read_unchanged

    examples: list[tuple[SourceFile, SourceFile]] = []
    if from_diff or from_commit is not None:
        if after is not None or (from_diff and from_commit is not None):
            raise click.UsageError("give one of --from-diff and --from-commit, and at most one folder")
        examples += as_examples(read_changes(before or Path(), from_commit, language))
    elif before is not None and after is not None:
        pairs = ((before, after), *pairs)
    elif before is not None or after is not None or not pairs:
        raise click.UsageError("give a file before and the same file after, or --pair, --from-diff, --from-commit")
    examples += [example for pair in pairs for example in read_pairs(*pair, language)]
    if not examples:
        raise DataError("examples: the folders have no file of one name that differs; expected a change")
    unchanged = [
        source for path in keep for source in read_unchanged(path, language or examples[0][0].language, language)
    ]
    with open_rule_sandbox(root) as sandbox:
        learned = learn_rules(examples, unchanged, sandbox)
        matches, skipped = _match(check, learned.rules, sandbox) if check else ([], None)
    print_learned(learned, examples, matches, skipped, out, as_json)


@click.command()
@rule_file_argument
@click.argument("paths", nargs=-1, required=True, type=_PATH)
@click.option("--write", is_flag=True, help="Change the files; without it, the difference is shown only.")
@click.option("--review", type=_PATH, metavar="PAGE", help="Write an HTML page of the places, those alike in a group.")
@click.option("--ask", is_flag=True, help="Show group by group, and ask of each whether it is to be changed.")
@click.option("--reject", multiple=True, metavar="GROUP", help="Leave out a group, or all of a rule; any number.")
@json_option
@click.pass_obj
def apply(
    root: Path | None, rule_file: Path, paths: tuple[Path, ...], write: bool, review: Path | None, ask: bool,
    reject: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Apply the rules of RULE_FILE, one after the other, to the files at PATHS, in the jail."""
    from graftline.codemod.writes import default_journals, write_files
    from graftline.repository import read_rule_file, rewrite

    rules = read_rule_file(rule_file)
    with open_rule_sandbox(root) as sandbox:
        result = rewrite(rules, paths, sandbox, lambda groups: choose_rejected(groups, reject, ask, is_error=as_json))
    if review is not None:
        command = ["graftline", "apply", str(rule_file), *map(str, paths)]
        write_review(review, result, rules, command)
    if write:
        write_files(result.writes, default_journals())
    print_rewritten(result.files, result.groups, result.skipped, write, as_json)
    if any(file.fault for file in result.files):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("path", default=".", type=_PATH)
@json_option
def undo(path: Path, as_json: bool) -> None:
    """Take back the newest `apply`, `follow` or `refactor` with `--write` that changed a file at or below PATH."""
    from graftline.codemod.writes import RECORDED, default_journals, undo_write

    recorded = 0

    def mark(journal: Path) -> None:
        nonlocal recorded
        if journal.with_suffix(RECORDED).is_file():
            from graftline.agent.record import mark_undone

            recorded = mark_undone(journal)

    undone = undo_write(path, default_journals(), mark=mark)
    if as_json:
        print_json(asdict(undone))
    else:
        files = pluralize(len(undone.restored), "file")
        click.echo(f"{files} as before the write of {undone.at:%Y-%m-%d %H:%M:%S} UTC")
        if recorded:
            click.echo(f"recorded: {pluralize(recorded, 'rule')} as undone", err=True)
        for file in undone.changed_since:
            click.echo(f"error: {file}: was changed since and stays; its text before is in {undone.journal}", err=True)
    if undone.changed_since:
        raise click.exceptions.Exit(1)


@click.command()
@rule_file_argument
@json_option
def explain(rule_file: Path, as_json: bool) -> None:
    """Say in words what every rule of RULE_FILE matches, what its variables stand for, and what it writes."""
    from graftline.codemod.explain import explain, format_metadata, summarize
    from graftline.core.text_diff import escape_controls
    from graftline.repository import read_rule_file

    rules = read_rule_file(rule_file)
    if as_json:
        rows = [
            {"id": rule.id, "language": rule.language, "summary": summarize(rule.action), "lines": explain(rule.action)}
            for rule in rules
        ]
        print_json({"rules": rows})
        return
    for number, rule in enumerate(rules):
        facts = [f"{key} {format_metadata(value)}" for key, value in rule.facts.items()]
        head = f"{rule.id} ({rule.language}){': ' + ', '.join(facts) if facts else ''}"
        lines = [(escape_controls(head), "bold"), *((escape_controls(line), "") for line in explain(rule.action))]
        print_lines([*lines, ("", "")] if number < len(rules) - 1 else lines)


@click.command()
@rule_file_argument
@click.option("--output", "export", type=_PATH, help="Write a folder, not there yet, that `ast-grep test` takes.")
@json_option
@click.pass_obj
def test(root: Path | None, rule_file: Path, export: Path | None, as_json: bool) -> None:
    """Try the examples that the rules of RULE_FILE are written with, in the jail. Fails unless all pass."""
    from graftline.codemod.learn import check_examples
    from graftline.repository import read_rule_file

    rules = read_rule_file(rule_file)
    with open_rule_sandbox(root) as sandbox:
        outcomes = [outcome for rule in rules for outcome in check_examples(rule, sandbox)]
    if export is not None:
        _export(rules, export)
    untested = [rule.id for rule in rules if not rule.examples]
    failures = sum(not outcome.passed for outcome in outcomes)
    if as_json:
        print_json({"outcomes": [asdict(outcome) for outcome in outcomes], "untested": untested})
    else:
        rows = [
            (outcome.rule, f"{outcome.kind} {outcome.number}", "passed" if outcome.passed else "FAILED", outcome.detail)
            for outcome in outcomes
        ]
        rows += [(name, "", "untested", "it has no examples under `metadata`") for name in untested]
        print_table(rule_file.name, ["rule", "tried", "outcome", "why"], rows)
        without = f"{pluralize(len(untested), 'rule')} without examples"
        click.echo(f"{len(outcomes) - failures} passed, {failures} failed, {without}")
    if failures or not outcomes:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("source", default=".", metavar="[DIRECTORY|RANGE]")
@click.option("--range", "span", metavar="A..B", help="Commits after A up to B; without it, those up to now.")
@click.option("--commits", default=1000, type=click.IntRange(1, 1_000_000), help="So many at most.")
@click.option("--language", "languages", multiple=True, type=_LANGUAGE, help="Only this language; any number.")
@click.option("--min-support", default=2, type=click.IntRange(1), help="Small changes that a rule has to make.")
@click.option(
    "--min-precision",
    default=0.9,
    type=click.FloatRange(0, 1),
    help="Share of the places a rule would change that were changed just so.",
)
@click.option("--general", is_flag=True, help="Leave out rules without variables.")
@click.option(
    "--concurrency", "workers", type=click.IntRange(0, 256), help="Processes; 0 is this one.  [default: one per core]"
)
@click.option("--journal", type=_PATH, help="Keep what is induced in this file, and go on from there.")
@output_option
@json_option
@click.pass_obj
def mine(
    root: Path | None, source: str, span: str | None, commits: int, languages: "tuple[Language, ...]",
    min_support: int, min_precision: float, general: bool, workers: int | None, journal: Path | None,
    out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find the edits that a git history repeats, as rules with the number of commits, files and places they come from."""
    from graftline.codemod.history import History
    from graftline.codemod.mine import mine_rules
    from graftline.codemod.mining.trial import MiningConfig
    from graftline.core.progress import progress_bars
    from graftline.datasets.language import language_of_path

    is_range = ".." in source and ".." not in Path(source).parts
    folder, span = (Path(), source) if is_range else (Path(source), span or "")
    history = History.read(folder, span, commits)
    if history.is_shallow:
        click.echo(f"{folder}: is a shallow clone; only the commits that were fetched are looked at", err=True)
    config = MiningConfig(min_support=min_support, min_precision=min_precision, needs_general=general)
    chosen = frozenset(languages or _ALL_LANGUAGES)
    changes = _collect_pairs(root, history, chosen, workers, journal)

    def try_rules() -> "MinedRules":
        files = history.newest_files(language_of_path, chosen) if changes.pairs else iter(())
        newest = list(islice(files, _INTERRUPTED_FILES) if changes.is_interrupted else files)
        time_limit_s = _INTERRUPTED_S if changes.is_interrupted else None
        with open_rule_sandbox(root) as sandbox, progress_bars() as bars:
            bars.start("rules of", history.folder.resolve().name)
            mined = mine_rules(changes, config, sandbox, newest, bars.advance, time_limit_s)
            bars.finish(f"{mined.candidates} candidates tried on {len(newest)} files of now")
        return mined

    try:
        mined = try_rules()
    except KeyboardInterrupt:
        if changes.is_interrupted:
            raise
        changes.is_interrupted = True
        mined = try_rules()
    print_mined(mined, changes, len(history.commits), out, as_json)
    if changes.is_interrupted:
        advice = "the same command goes on from there" if journal else "with --journal, the next call would go on"
        click.echo(f"interrupted; these are rules of what was looked at until then; {advice}", err=True)
        raise click.exceptions.Exit(INTERRUPTED)


COMMANDS = (learn, apply, undo, test, explain, mine)


def load_settings(root: Path | None) -> "SandboxSettings":
    """Return what the root says of jails, or the settings of the library where nobody named a root.

    A root is not looked for in the folders above: the checkout of somebody else must not weaken its own jail.
    """
    from graftline.sandbox import SandboxSettings
    from graftline.sandbox.runner import load_sandbox_settings

    if root is None and not os.environ.get("GRAFTLINE_ROOT"):
        return SandboxSettings()
    return load_sandbox_settings(find_paths(root).root)


@contextmanager
def open_rule_sandbox(root: Path | None) -> "Iterator[Sandbox]":
    """Open the jail of the root, on all cores; with the settings of the library where there is none."""
    from graftline.repository import open_workers

    with open_workers(load_settings(root).actions) as sandbox:
        yield sandbox


def choose_rejected(
    groups: "Sequence[PlaceGroup]", reject: Sequence[str], ask: bool, is_error: bool
) -> tuple[str, ...]:
    """Return the names of groups and rules that are left out: those of `reject`, and where a person is asked, theirs."""
    if not ask:
        return tuple(reject)
    open_groups = [group for group in groups if not {group.id, group.rule} & {*reject}]
    return (*reject, *ask_for_groups(open_groups, is_error))


def write_review(
    page: Path, result: "Rewrite", rules: "Sequence[FileRule]", command: Sequence[str], notes: Sequence[str] = ()
) -> None:
    """Write the page of what `rules` change, with `notes`; what it says to type leaves out what is left out here."""
    from graftline.codemod.explain import explain, summarize
    from graftline.codemod.follow import IMPORTS
    from graftline.codemod.review_page import format_review
    from graftline.codemod.source_files import replace_file

    words = {IMPORTS: ["what follows from the others"]}  # a rule of a file may have that id, too
    for rule in rules:
        summary = f"{rule.message or summarize(rule.action)}{describe_confidence(rule)}"
        words[rule.id] = [summary, *explain(rule.action)]
    whole = [*command, *(part for name in result.rejected for part in ("--reject", name)), "--write"]
    replace_file(page, format_review(result.groups, words, whole, notes).encode())
    click.echo(f"review: {page}", err=True)


def _match(paths: Sequence[Path], rules: "Sequence[FileRule]", sandbox: "Sandbox") -> "tuple[list[FileMatches], str]":
    from graftline.codemod.source_files import describe_skipped, match_files
    from graftline.repository import find_files, open_search

    search = open_search((rule.language for rule in rules), paths)
    return list(match_files(find_files(search, paths), rules, sandbox)), describe_skipped(search.skipped)


def _collect_pairs(
    root: Path | None, history: Any, languages: "frozenset[Language]", workers: int | None, journal: Path | None
) -> "CollectedPairs":
    from graftline.codemod.mining.pairs import collect_pairs
    from graftline.core.processes import default_workers
    from graftline.core.progress import progress_bars
    from graftline.datasets.language import language_of_path

    numbers = {commit: number for number, commit in enumerate(history.commits, 1)}
    name, count = history.folder.resolve().name, 0

    def advance(change: "FileChange") -> None:
        nonlocal count
        count += 1
        bars.advance(numbers[change.commit], len(numbers))

    def advance_groups(done: int, total: int) -> None:
        if done == 1:
            bars.finish(pluralize(count, "changed file"))
            bars.start("groups of changes of", name)
        bars.advance(done, total)

    with progress_bars() as bars:
        bars.start("commits of", name)
        collected = collect_pairs(
            history.changes(language_of_path, languages),
            journal,
            default_workers() if workers is None else workers,
            load_settings(root).actions,
            advance,
            advance_groups,
        )
        bars.finish(
            f"{pluralize(collected.changes, 'changed file')}, {pluralize(len(collected.pairs), 'small change')}"
        )
    return collected


def _export(rules: "Sequence[FileRule]", folder: Path) -> None:
    from graftline.codemod.learn import ast_grep_project
    from graftline.codemod.source_files import replace_file

    if folder.exists():
        raise DataError(f"{folder}: is there already; name a folder that is not")
    for name, text in ast_grep_project(rules).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
