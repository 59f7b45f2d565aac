"""From an instruction to a change of a repository, for somebody to review.

    1  an instruction that says what is written for what is done by its reader, without a model     (`codemod.instructions`)
    2  places that the instruction may be about are looked for, without a model                      (`agent.places`)
    3  a model edits one place, several times; edits that do the same to the repository agree        (`agent.edits`)
    4  the edit becomes rules, the rest follows, places without a word of the instruction aside      (`agent.trials`)
       where none follows, another place is edited; the model may answer the engine's questions      (`agent.questions`)
    5  the user's tests judge, in the jail; a failure goes back to the model once                     (`agent.check`)
    6  what is like the instruction and was not changed is the next place; the state goes along      (`rollouts.state`)

With examples, they take the place of steps 1 to 3. Below an agreement of the attempts nothing is done, and that is
said. Nothing is written here, and what a model says is only ever taken as a text of the place that it was shown.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from graftline.agent.check import Checker
from graftline.agent.model import AgentModel
from graftline.agent.places import Block, PlacesByWords, exclude_edited, find_places
from graftline.agent.proposal import Outcome, Proposal, Settings
from graftline.agent.run import Run, learn_edit
from graftline.agent.terms import describe_absent, read_replaced_name, read_terms
from graftline.agent.trials import Trial, accept_trial, try_place
from graftline.astgrep.binding import LANGUAGES, Language
from graftline.codemod.canonical import words_of
from graftline.codemod.follow import IMPORTS, FollowedEdit
from graftline.codemod.history import FileChange
from graftline.codemod.instructions.wording import read_instruction
from graftline.codemod.learn import extract_example
from graftline.codemod.migration.imports import compare_names
from graftline.codemod.migration.places import apply_rules, has_word, parses
from graftline.codemod.migration.renamings import rename_words
from graftline.codemod.reach import measure_reach
from graftline.codemod.rule_file import FileRule
from graftline.codemod.source_files import SourceFile, describe_skipped
from graftline.core.errors import DataError
from graftline.core.text_diff import keep_end, pluralize
from graftline.repository import find_files, find_protected, open_search
from graftline.rollouts.state.state import StateUpdate
from graftline.sandbox.base import Sandbox
from graftline.sandbox.jail.open import JailConfig

_MAX_INSTRUCTION, _MAX_READ_FILES, _MAX_READ_RULES, _MAX_SHOWN = 4_000, 400, 8, 3
_MAX_OUTPUT = 600
"""Of what tests print, in an error and in a question."""
_NAMES_ITSELF = re.compile(r"^[ \t]*(?:const |let |var )?(\S.*?) = \1;?[ \t]*$", re.MULTILINE)
_CALLEE = re.compile(r"[\w$][\w$.]*(?=\()")
_LEAST_LIKELY, _LEAST_LIKE = 0.25, 0.5
"""Of the score of the first place, what others have to have to be edited by the model: in its place, and after it."""


def refactor(
    instruction: str,
    repository: Path,
    *,
    sandbox: Sandbox,
    model: AgentModel | None = None,
    examples: Sequence[tuple[SourceFile, SourceFile]] = (),
    keep: Sequence[Path] = (),
    tests: str = "",
    jail: JailConfig | None = None,
    settings: Settings | None = None,
    report: Callable[[str], None] = lambda line: None,
    show: Callable[[Path], object] = str,
) -> Proposal:
    """Return what becomes of the files below the folder `repository` if `instruction` is done.

    `examples` are files before and after, which lead where there are some; `keep` are files and folders that stay, and
    rules that change nothing in them go before others; `tests` is a command that the jail of `jail` runs in a copy of
    the folder, before and after. `report` takes what is being done, a line each. `show` is how sentences have the path
    of a file.

    Raises:
        DataError: the instruction says nothing, the folder has no file of a covered language, or the tests fail
        beforehand. ActorError: the model does not answer. SandboxError: a jail fails.
    """
    settings = settings or Settings()
    files, skipped = read_repository(repository, settings)
    paths = {file.path.relative_to(repository).as_posix(): file for file in files}
    protected = find_protected(files, keep)
    kept_paths = frozenset(name for name, file in paths.items() if file.path in protected)
    checker = Checker(repository, tests, jail or JailConfig()) if tests else None
    try:
        if checker is not None:
            report("tests before the change")
            before = checker.run({})
            if before.passed is False:
                output = keep_end(before.output, _MAX_OUTPUT) or "they print nothing"
                raise DataError(f"--tests: fail before anything is changed; mend them first:\n{output}")
        proposal = refactor_files(
            instruction, paths, repository, sandbox, model, examples, kept_paths, settings, report, checker, show
        )
        reach = measure_reach(proposal.rules, files, proposal.files, sandbox)
        return replace(proposal, skipped=skipped, reach=reach)
    finally:
        if checker is not None:
            checker.close()


def read_repository(folder: Path, settings: Settings) -> tuple[list[SourceFile], str]:
    """Return the source files below `folder`, without those that git ignores there, and what was left out.

    DataError if there are none, or more than `settings` allow.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: is no folder; name the folder of the repository")
    search = open_search(LANGUAGES, [folder])
    files: list[SourceFile] = []
    characters = 0
    for file in find_files(search, [folder]):
        files.append(file)
        characters += len(file.text)
        if len(files) > settings.max_files:
            raise DataError(f"{folder}: holds more than {settings.max_files} source files; name a part of it")
        if characters > settings.max_characters:
            raise DataError(f"{folder}: holds more than {settings.max_characters} characters; name a part of it")
    skipped = describe_skipped(search.skipped)
    if not files:
        more = f"; left out: {skipped}" if skipped else ""
        raise DataError(f"{folder}: has no file in one of {', '.join(LANGUAGES)}{more}; name a folder that has some")
    return files, skipped


def refactor_files(
    instruction: str,
    files: Mapping[str, SourceFile],
    folder: Path,
    sandbox: Sandbox,
    model: AgentModel | None = None,
    examples: Sequence[tuple[SourceFile, SourceFile]] = (),
    kept_paths: frozenset[str] = frozenset(),
    settings: Settings | None = None,
    report: Callable[[str], None] = lambda line: None,
    checker: Checker | None = None,
    show: Callable[[Path], object] = str,
) -> Proposal:
    """Return what becomes of `files`, by their paths below `folder`; as `refactor`."""
    instruction = " ".join(instruction.split()) if len(instruction) <= _MAX_INSTRUCTION else ""
    if not any(character.isalpha() for character in instruction):
        raise DataError(
            f"instruction: says nothing, or more than {_MAX_INSTRUCTION} characters; expected a sentence such as"
            " 'Use `fetch()` instead of `get()`'"
        )
    run = Run(instruction, files, folder, sandbox, model, kept_paths, settings or Settings(), report, show)
    if examples:
        return _check(run, checker, _lead_by_examples(run, examples))
    if _read(run):
        return _check(run, checker, "changed")
    languages = {path: file.language for path, file in files.items()}
    places = find_places(instruction, run.open_texts, languages, memory=run.memory)
    absent = describe_absent(instruction, places.terms, places.counts, run.texts)
    if places.is_done:
        run.undone += absent
        return run.propose("already done")
    if not places.blocks:
        run.undone += absent
        return run.propose("no place")
    outcome = _edit_places(run, places)
    run.undone += absent if outcome != "changed" else ()
    proposal = _check(run, checker, outcome)
    if model is None or proposal.tests is None or proposal.tests.passed is not False:
        return proposal
    if model.prompt is not None:  # it is asked about the code alone, and would answer the same
        return proposal
    report("tests failed; the model is told once")
    again = Run(instruction, files, folder, sandbox, model, kept_paths, run.settings, report, show)
    outcome = _edit_places(again, places, f"the tests fail\n{keep_end(proposal.tests.output, _MAX_OUTPUT)}")
    repaired = _check(again, checker, outcome)
    return repaired if repaired.tests is not None and repaired.tests.passed else proposal


def _lead_by_examples(run: Run, examples: Sequence[tuple[SourceFile, SourceFile]]) -> Outcome:
    changes = []
    for number, (before, after) in enumerate(examples, 1):
        if before.text == after.text:
            raise DataError(
                f"--example {before.path} {after.path}: are equal; expected an edit from the first to the second"
            )
        changes.append(FileChange("", f"example-{number}/{before.path.name}", before.language, before.text, after.text))
    run.report(f"following {pluralize(len(changes), 'example')}")
    followed = run.follow(changes, {})
    run.accept(followed)
    run.state = run.state.apply(StateUpdate(history=[f"followed {pluralize(len(changes), 'example')}"]))
    return "changed" if followed.rules else "no rule"


def _read(run: Run) -> bool:
    """Do what an instruction says that the reader of instructions understands; return whether it does."""
    changes: list[FileChange] = []
    dropped: list[str] = []
    for path, text in run.open_texts.items():
        language = run.files[path].language
        written = read_instruction(run.instruction, text, language, run.sandbox)
        edited = text if written is None else _keep_valid(text, written, language)
        if written not in (None, edited):
            dropped.append(
                f"{run.show(run.files[path].path)}: stays where it would not parse, would name a thing after itself or a call has nothing to call;"
                " change that by hand"
            )
        if edited != text:
            changes.append(FileChange("", path, language, text, edited))
            if len(changes) >= _MAX_READ_FILES:
                break
    if not changes:
        run.undone += dropped
        return False
    run.report(f"the instruction is understood without a model in {pluralize(len(changes), 'file')}")
    for change in changes:
        run.texts[change.path] = change.after
    renamed = set[Language]()
    for language in sorted({change.language for change in changes}):
        own = [change for change in changes if change.language == language]
        if renaming := _rules_of_renaming(run, own):
            run.rules += renaming
            renamed.add(language)  # where it is imported as well
            continue
        followed = run.follow(own[:_MAX_SHOWN], {})
        # the reader did all that the words say; what is left to follow are imports, and not a broader reading
        if not _changes_code(followed) or any(map(_has_other_names, own)):
            run.accept(followed)
        for change in own:  # the rules are to make all that the reader did
            actions = [rule.action for rule in run.rules if rule.language == language]
            has_room = len(run.rules) < _MAX_READ_RULES
            if has_room and apply_rules(change.before, language, actions, run.sandbox) != change.after:
                run.rules += [rule for rule in learn_edit(change, run.sandbox) if rule.action not in actions]
    # what is not like the first places, the reader did as well
    run.undone[:] = [*dropped, *_list_unbound(run, [change for change in changes if change.language not in renamed])]
    return True


def _rules_of_renaming(run: Run, changes: Sequence[FileChange]) -> list[FileRule]:
    """Return two rules for `changes` in one language: for a name, and for strings and comments; none unless they make just these."""
    names = read_replaced_name(run.instruction, read_terms(run.instruction))
    if names is None:
        return []
    language, rules = changes[0].language, list[FileRule]()
    texts = [change.before for change in changes]
    for action in rename_words(names[0].text, names[1].text, language):
        renamed = [apply_rules(text, language, [action], run.sandbox) for text in texts]
        pairs = zip(changes, texts, renamed, strict=True)
        change, before, after = next((pair for pair in pairs if pair[1] != pair[2]), (changes[0], "", ""))
        if before != after:
            example = extract_example(before, after, action, language, run.sandbox, change.path)
            rules.append(FileRule(action, language, examples=(example,) if example else (), facts={"general": False}))
        texts = renamed
    return rules if texts == [change.after for change in changes] else []


def _list_unbound(run: Run, changes: Sequence[FileChange]) -> Iterator[str]:
    """Yield a sentence for each file of `changes` that has names by now which it neither defines nor imports."""
    for change in changes:
        if names := compare_names(change.before, run.texts[change.path], change.language).of_code:
            listed = ", ".join(f"`{name}`" for name in sorted(names))
            yield f"{run.show(run.files[change.path].path)}: no file tells where {listed} is imported from; add its import by hand"


def _changes_code(followed: FollowedEdit) -> bool:
    """Return whether more than imports would follow."""
    return any(place.rule != IMPORTS for file in followed.files for place in file.places)


def _has_other_names(change: FileChange) -> bool:
    """Return whether a file lacks an import after a change, or has one that it needs no more."""
    names = compare_names(change.before, change.after, change.language)
    return bool(names.unused or names.of_code)


def _keep_valid(before: str, after: str, language: Language) -> str:
    """Return `before` with those changed lines of `after` that leave it a program and do not give a thing its own name."""
    old, new = before.split("\n"), after.split("\n")
    if parses(after, language) and not _NAMES_ITSELF.search(after) and not _loses_callee(old, new):
        return after
    if not parses(before, language):
        return before
    lines, shift = old[:], 0
    pending = [span for tag, *span in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if tag != "equal"]
    while pending:
        i, j, k, m = pending.pop(0)
        edited = [*lines[: i + shift], *new[k:m], *lines[j + shift :]]
        is_faulty = any(map(_NAMES_ITSELF.match, new[k:m])) or _loses_callee(old[i:j], new[k:m])
        if not is_faulty and parses("\n".join(edited), language):
            lines, shift = edited, shift + (m - k) - (j - i)
        elif j - i == m - k > 1:  # line by line, then
            pending = [*([i + n, i + n + 1, k + n, k + n + 1] for n in range(j - i)), *pending]
    return "\n".join(lines)


def _loses_callee(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether a call of some lines has lost what it calls: of `cast(int, x)`, `(int, x)` would be a tuple."""
    if len(old) != len(new):
        return False
    changed = ((before, after) for before, after in zip(old, new, strict=True) if before != after)
    return any(
        after == before[: match.start()] + before[match.end() :]
        for before, after in changed
        for match in _CALLEE.finditer(before)
    )


def _edit_places(run: Run, places: PlacesByWords, feedback: str = "") -> Outcome:
    """Have the model edit likely places until others follow one, then what is left to do; the rest follows each."""
    languages = {path: file.language for path, file in run.files.items()}
    edited: list[Block] = []
    best: Trial | None = None
    for block in places.blocks:
        is_likely = block.score >= _LEAST_LIKELY * places.blocks[0].score
        if not is_likely or not run.may_edit or (best is not None and best.reach):
            break
        if not exclude_edited([block], edited):
            continue
        edited.append(block)
        trial = try_place(run, places.terms, block, feedback)
        if trial is not None and (best is None or trial.reach > best.reach):
            best = trial
    outcome: Outcome = "changed" if best is not None else "no agreement" if run.model else "not asked"
    removed: frozenset[str] = frozenset()
    while best is not None:
        accept_trial(run, best)
        removed |= words_of(best.edit.block.text) - words_of(best.edit.after_block)
        if not run.may_edit or not any(has_word(word, text) for text in run.open_texts.values() for word in removed):
            break
        places = find_places(run.instruction, run.open_texts, languages, memory=run.memory)
        # what is left to do has what was taken away before, of what the instruction says: `client.fetch`, not `dog.fetch`
        owners = [term.text.lower() for term in places.terms if term.is_qualifier and term.role != "new"]
        similar = [
            block
            for block in exclude_edited(places.blocks, edited)
            if block.score >= _LEAST_LIKE * places.blocks[0].score
            and words_of(block.text) & removed
            and all(owner in block.text.lower() for owner in owners)
        ]
        if not similar or not run.may_edit:
            break
        edited.append(similar[0])
        best = try_place(run, places.terms, similar[0], feedback)
    return outcome


def _check(run: Run, checker: Checker | None, outcome: Outcome) -> Proposal:
    proposal = run.propose(outcome)
    if proposal.outcome == "changed" and not proposal.files:
        proposal = replace(proposal, outcome="no rule")
    if checker is None or not proposal.files:
        return proposal
    run.report("tests with the change")
    texts = {
        file.file.path.relative_to(run.folder).as_posix(): file.file.with_text(file.text) for file in proposal.files
    }
    return replace(proposal, tests=checker.run(texts))
