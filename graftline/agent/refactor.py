"""From an instruction to a change of a repository, for somebody to review.

    1  an instruction that says what is written for what is done by its reader, without a model     (`codemod.instructions`)
    2  places that the instruction may be about are looked for, without a model                      (`agent.places`)
    3  a model edits one place, several times; edits that do the same to the repository agree        (`agent.edits`)
    4  the edit becomes rules, the rest follows, places without a word of the instruction aside; where none follows, another place is
       edited; the model may answer the engine's questions                                           (`agent.questions`)
    5  the user's tests judge, in the jail; a failure goes back to the model once                     (`agent.check`)
    6  what is like the instruction and was not changed is the next place; the state goes along      (`rollouts.state`)

With examples, they take the place of steps 1 to 3. Below an agreement of the attempts nothing is done, and that is said. Nothing
is written here, and what a model says is only ever taken as a text of the place that it was shown.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from math import ceil
from pathlib import Path
from typing import Literal

from graftline.agent.check import Checker, CheckOutcome
from graftline.agent.edits import PlaceEdit, describe_context, digest_texts, edit_place, replace_block
from graftline.agent.model import AgentModel
from graftline.agent.places import Block, PlacesByWords, exclude_edited, find_places
from graftline.agent.questions import answer_with_model, list_examples
from graftline.agent.terms import Term, edit_by_words
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import words_of
from graftline.codemod.follow import IMPORTS, FollowedEdit, count_places, follow_edit, rewrite_accepted
from graftline.codemod.history import FileChange
from graftline.codemod.instructions.wording import read_instruction
from graftline.codemod.learn import learn_rules
from graftline.codemod.migration.generalize import generalize
from graftline.codemod.migration.places import apply_rules, parses
from graftline.codemod.migration.units import Demonstration
from graftline.codemod.rule_file import FileRule, assign_ids
from graftline.codemod.source_files import RewrittenFile, SourceFile, describe_skipped
from graftline.core.errors import DataError
from graftline.core.text_diff import pluralize
from graftline.repository import LANGUAGES, find_files, find_kept, open_search
from graftline.rollouts.state.state import State, StateUpdate
from graftline.sandbox.base import Sandbox
from graftline.sandbox.jail.open import JailConfig

Outcome = Literal["changed", "already done", "no place", "no agreement", "no rule", "not asked"]
MEANINGS: Mapping[Outcome, str] = {
    "already done": "nothing to do: the files have what the instruction asks for, and nothing that it says is to go",
    "no place": "no line of the files that parse has a word of the instruction; quote code in backticks, or give an --example",
    "no agreement": "the attempts of the model do not agree on an edit; give an --example, or say what is to be written",
    "no rule": "no rule makes the edit in any place; do it by hand, and `graftline follow` does the rest",
    "not asked": "the instruction is not understood without a model; say the code that is written and the code that it is written for, as"
    " 'Use `fetch` instead of `get`', name a model with --model, or give an --example",
    "changed": "the files change, and rules say how",
}
"""What somebody is told of an outcome."""
MAX_INSTRUCTION, MAX_READ_FILES, MAX_READ_RULES, MAX_SHOWN = 4_000, 400, 8, 3
_NAMES_ITSELF = re.compile(r"^[ \t]*(?:const |let |var )?(\S.*?) = \1;?[ \t]*$", re.MULTILINE)
_LEAST_LIKELY, _LEAST_LIKE = 0.25, 0.5
"""Of the score of the first place, what others have to have to be edited by the model: in its place, and after it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is done, and what is believed."""

    attempts: int = 4
    """Of the model at each place."""
    places: int = 3
    """Edited by the model, at most."""
    questions: int = 0
    """That the engine asks of the model for each edit, at most: what models of one or two billion parameters answer says nothing."""
    least_agreement: float = 0.75
    """Share of the attempts that have to come to the same."""
    max_files: int = 20_000
    """Of the repository."""
    max_characters: int = 256 << 20
    """Of all its files."""

    @property
    def least_votes(self) -> int:
        """Attempts that have to come to the same."""
        return ceil(self.least_agreement * self.attempts)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the repository would become."""

    outcome: Outcome
    rules: tuple[FileRule, ...] = ()
    files: tuple[RewrittenFile, ...] = ()
    """Those that change."""
    undone: tuple[str, ...] = ()
    """What was not done, and why: a sentence each."""
    contradictions: tuple[str, ...] = ()
    edits: tuple[PlaceEdit, ...] = ()
    """By the model."""
    questions: int = 0
    tests: CheckOutcome | None = None
    state: State = field(default_factory=State)
    """After the last step."""
    skipped: str = ""
    """Files that were left out, by the reason."""


@dataclass
class _Run:
    """A refactoring under way."""

    instruction: str
    files: Mapping[str, SourceFile]
    folder: Path
    sandbox: Sandbox
    model: AgentModel | None
    kept_paths: frozenset[str]
    settings: Settings
    report: Callable[[str], None]
    texts: dict[str, str] = field(default_factory=dict)
    rules: list[FileRule] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    edits: list[PlaceEdit] = field(default_factory=list)
    questions: int = 0
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        self.texts = {path: file.text for path, file in self.files.items()}
        self.state = State(goals=(self.instruction[:256],))

    @property
    def open_texts(self) -> dict[str, str]:
        """The texts that may be changed."""
        return {path: text for path, text in self.texts.items() if path not in self.kept_paths}

    @property
    def kept_texts(self) -> dict[str, str]:
        """The texts that stay, by which rules are told from broader ones."""
        return {path: text for path, text in self.texts.items() if path in self.kept_paths}

    def follow(self, changes: Sequence[FileChange], edited: Mapping[str, str]) -> FollowedEdit:
        """Return what the rest becomes if it follows `changes`, where the texts of `edited` are as they were made."""
        texts = {**self.open_texts, **edited}
        current = [replace(file, text=texts[path]) for path, file in self.files.items() if path in texts]
        questions = 0
        if self.model and self.settings.questions:
            shown = [Demonstration(change.path, change.before, change.after) for change in changes]
            ask = answer_with_model(self.instruction, self.model, list_examples(shown))
            followed = follow_edit(
                changes, current, self.folder, self.sandbox, ask, self.instruction, self.settings.questions,
                self.kept_texts,
            )  # fmt: skip
            if followed.rules:
                return followed
            questions = followed.questions  # one who knows nothing is no reason to do less than where nobody is asked
        followed = follow_edit(changes, current, self.folder, self.sandbox, None, self.instruction, 0, self.kept_texts)
        return replace(followed, questions=questions)

    def accept(self, followed: FollowedEdit) -> None:
        """Have the texts follow."""
        for rewritten in followed.files:
            self.texts[rewritten.file.path.relative_to(self.folder).as_posix()] = rewritten.text
        self.rules += [rule for rule in followed.rules if rule.action not in [own.action for own in self.rules]]
        self.undone += followed.undone
        self.contradictions += followed.contradictions
        self.questions += followed.questions

    @property
    def may_edit(self) -> bool:
        """Whether the model may edit one more place."""
        return len(self.edits) < self.settings.places and not (self.model is not None and self.model.is_exhausted)

    def effect_of(self, path: str, edited: str) -> str:
        """Return what tells apart what an edit of a file does to the repository: that of its rules, no one asked."""
        texts = {**self.open_texts, path: edited}
        try:
            shown = [Demonstration(path, self.texts[path], edited)]
            changed = generalize(
                shown, texts, self.sandbox, instruction=self.instruction, negatives=self.kept_texts
            ).texts
        except DataError:
            changed = {}
        return digest_texts({path: edited, **changed})

    def propose(self, outcome: Outcome, tests: CheckOutcome | None = None, skipped: str = "") -> Proposal:
        """Return what it comes to."""
        for path, file in self.files.items():
            if (
                self.texts[path] != file.text
                and not parses(self.texts[path], file.language)
                and parses(file.text, file.language)
            ):
                self.texts[path] = file.text
                self.undone.append(f"{path}: would not parse any more; change it by hand")
        named = assign_ids(self.rules)
        changed = [
            rewrite_accepted(file, self.texts[path], named)
            for path, file in sorted(self.files.items())
            if self.texts[path] != file.text
        ]
        # what no rule makes is nothing that could be reviewed
        changed = [rewritten for rewritten in changed if rewritten.places and named]
        rules = tuple(count_places(rule, changed) for rule in named)
        return Proposal(
            outcome, rules, tuple(changed), tuple(dict.fromkeys(self.undone)), tuple(dict.fromkeys(self.contradictions)),
            tuple(self.edits), self.questions, tests, self.state, skipped,
        )  # fmt: skip


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
) -> Proposal:
    """Return what becomes of the files below the folder `repository` if `instruction` is done.

    `examples` are files before and after, which lead where there are some; `keep` are files and folders that stay, and
    rules that change nothing in them go before others; `tests` is a
    command that the jail of `jail` runs in a copy of the folder, before and after. `report` is told what is being done.

    Raises:
        DataError: the instruction says nothing, the folder has no file of a covered language, or the tests fail beforehand.
        ActorError: the model does not answer. SandboxError: a jail fails.
    """
    settings = settings or Settings()
    files, skipped = read_repository(repository, settings)
    paths = {file.path.relative_to(repository).as_posix(): file for file in files}
    stays = find_kept(files, keep)
    kept_paths = frozenset(name for name, file in paths.items() if file.path in stays)
    checker = Checker(repository, tests, jail or JailConfig()) if tests else None
    try:
        if checker is not None:
            report("tests before the change")
            before = checker.run({})
            if before.passed is False:
                raise DataError(f"--tests: fail before anything is changed: {before.output[-400:]}; mend them first")
        proposal = refactor_files(
            instruction, paths, repository, sandbox, model, examples, kept_paths, settings, report, checker
        )
        return replace(proposal, skipped=skipped)
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
) -> Proposal:
    """Return what becomes of `files`, by their paths below `folder`; as `refactor`."""
    instruction = " ".join(instruction.split()) if len(instruction) <= MAX_INSTRUCTION else ""
    if not any(character.isalpha() for character in instruction):
        raise DataError(
            f"instruction: says nothing, or more than {MAX_INSTRUCTION} characters; expected a sentence such as"
            " 'Use `fetch()` instead of `get()`'"
        )
    run = _Run(instruction, files, folder, sandbox, model, kept_paths, settings or Settings(), report)
    if examples:
        return _check(run, checker, _lead_by_examples(run, examples))
    if _read(run):
        return _check(run, checker, "changed")
    places = find_places(instruction, run.open_texts, {path: file.language for path, file in files.items()})
    if places.is_done:
        return run.propose("already done")
    if not places.blocks:
        return run.propose("no place")
    outcome = _edit_places(run, places, model)
    proposal = _check(run, checker, outcome)
    if model is None or proposal.tests is None or proposal.tests.passed is not False:
        return proposal
    report("tests failed; the model is told once")
    again = _Run(instruction, files, folder, sandbox, model, kept_paths, run.settings, report)
    outcome = _edit_places(again, places, model, f"the tests fail\n{proposal.tests.output[-600:]}")
    repaired = _check(again, checker, outcome)
    return repaired if repaired.tests is not None and repaired.tests.passed else proposal


def _lead_by_examples(run: _Run, examples: Sequence[tuple[SourceFile, SourceFile]]) -> Outcome:
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


def _read(run: _Run) -> bool:
    """Do what an instruction says that the reader of instructions understands; return whether it does."""
    changes: list[FileChange] = []
    dropped: list[str] = []
    for path, text in run.open_texts.items():
        language = run.files[path].language
        written = read_instruction(run.instruction, text, language, run.sandbox)
        edited = text if written is None else _keep_sound(text, written, language)
        if written not in (None, edited):
            dropped.append(
                f"{path}: stays where it would not parse, or would name a thing after itself; change that by hand"
            )
        if edited != text:
            changes.append(FileChange("", path, language, text, edited))
            if len(changes) >= MAX_READ_FILES:
                break
    if not changes:
        return False
    run.report(f"the instruction is understood without a model in {pluralize(len(changes), 'file')}")
    for change in changes:
        run.texts[change.path] = change.after
    for language in sorted({change.language for change in changes}):
        own = [change for change in changes if change.language == language]
        run.accept(run.follow(own[:MAX_SHOWN], {}))
        for change in own:  # the rules are to make all that the reader did
            actions = [rule.action for rule in run.rules if rule.language == language]
            has_room = len(run.rules) < MAX_READ_RULES
            if has_room and apply_rules(change.before, language, actions, run.sandbox) != change.after:
                run.rules += _learn(change, run.sandbox)
    run.undone[:] = dropped  # what is not like the first places, the reader did as well
    return True


def _keep_sound(before: str, after: str, language: Language) -> str:
    """Return `before` with those changed lines of `after` that leave it a program and do not give a thing its own name."""
    if parses(after, language) and not _NAMES_ITSELF.search(after):
        return after
    if not parses(before, language):
        return before
    old, new = before.split("\n"), after.split("\n")
    lines, shift = old[:], 0
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        edited = [*lines[: i + shift], *new[k:m], *lines[j + shift :]]
        if parses("\n".join(edited), language) and not any(map(_NAMES_ITSELF.match, new[k:m])):
            lines, shift = edited, shift + (m - k) - (j - i)
    return "\n".join(lines)


def _learn(change: FileChange, sandbox: Sandbox) -> list[FileRule]:
    """Return rules that make an edit, and of which nobody knows what else they are to do."""
    old, new = (SourceFile(Path(change.path), change.language, side) for side in (change.before, change.after))
    try:
        return list(learn_rules([(old, new)], [], sandbox).rules)
    except DataError:
        return []


@dataclass(frozen=True, slots=True)
class _Trial:
    """An edit that attempts of the model agree on, and what it would do."""

    edit: PlaceEdit
    change: FileChange
    followed: FollowedEdit
    is_of_imports: bool
    """Whether a module is moved: `unittest.mock` in place of `mock`."""

    @property
    def reach(self) -> int:
        """Other places that follow; those of imports count where a module is moved."""
        places = [place.rule for file in self.followed.files for place in file.places]
        return sum(self.is_of_imports or rule != IMPORTS for rule in places)


def _edit_places(run: _Run, places: PlacesByWords, model: AgentModel | None, feedback: str = "") -> Outcome:
    """Have the model edit likely places until others follow one, then what is left to do; the rest follows each."""
    languages = {path: file.language for path, file in run.files.items()}
    edited: list[Block] = []
    best: _Trial | None = None
    for block in places.blocks:
        is_likely = block.score >= _LEAST_LIKELY * places.blocks[0].score
        if not is_likely or not run.may_edit or (best is not None and best.reach):
            break
        if not exclude_edited([block], edited):
            continue
        edited.append(block)
        trial = _try_place(run, places.terms, block, model, feedback)
        if trial is not None and (best is None or trial.reach > best.reach):
            best = trial
    outcome: Outcome = "changed" if best is not None else "no agreement" if model else "not asked"
    removed: frozenset[str] = frozenset()
    while best is not None:
        _accept(run, best)
        removed |= words_of(best.edit.block.text) - words_of(best.edit.after_block)
        places = find_places(run.instruction, run.open_texts, languages)
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
        best = _try_place(run, places.terms, similar[0], model, feedback)
    return outcome


def _try_place(
    run: _Run, terms: Sequence[Term], block: Block, model: AgentModel | None, feedback: str
) -> _Trial | None:
    """Return what follows an edit of a place; None where its attempts do not agree, or it is not about the instruction."""
    place, text = f"{block.path}:{block.start + 1}", run.texts[block.path]
    written = None if feedback else edit_by_words(run.instruction, terms, block.text)
    edited = replace_block(text, block, written) if written is not None else text
    if written is not None and parses(edited, block.language):
        edit = PlaceEdit(block, edited, (), run.settings.least_votes, text.count("\n") + 1 - block.end)
    elif model is None:
        return None
    else:
        run.report(f"{place}: asking for {pluralize(run.settings.attempts, 'edit')}")
        edit = edit_place(
            run.instruction, block, text, model, run.settings.attempts, run.settings.least_votes,
            lambda edited: run.effect_of(block.path, edited), describe_context(text, block, run.state), feedback,
        )  # fmt: skip
    run.edits.append(edit)
    fault, advice = "", "edit it by hand and let `graftline follow` do the rest, or give an example"
    named = _find_named(terms, edit)
    followed = None
    if edit.after == text or edit.votes < run.settings.least_votes:
        fault = edit.agreement
    elif not named:
        fault = "what the attempts agree on has no word of the instruction"
    else:
        change = FileChange("", block.path, block.language, text, edit.after)
        try:
            followed = hold_back(run.follow([change], {block.path: edit.after}), named)
        except DataError:  # comments alone, or more than a few lines
            fault = "no rule can be made of the edit"
    if followed is None:
        run.report(f"{place}: {fault}")
        run.undone.append(f"{place}: {fault}; {advice}")
        run.state = run.state.apply(StateUpdate(open_issues=[*run.state.open_issues, f"{place}: {fault}"[:256]]))
        return None
    return _Trial(edit, change, followed, any(term.is_shared and not term.is_qualifier for term in named))


def _find_named(terms: Sequence[Term], edit: PlaceEdit) -> list[Term]:
    """Return the terms of the instruction that are in the lines which an edit changes; none if what is to go stays as it was."""
    old, new = edit.block.text, edit.after_block
    is_moved = {term: len(re.findall(term.pattern, old)) != len(re.findall(term.pattern, new)) for term in terms}
    is_there = any(term.is_gone and re.search(term.pattern, old) for term in terms)
    if is_there and not any(is_moved[term] for term in terms if term.role != "any"):
        return []
    return [term for term in terms if re.search(term.pattern, edit.changed_lines)]


def hold_back(followed: FollowedEdit, named: Sequence[Term]) -> FollowedEdit:
    """Return what follows without places of which neither what goes nor what comes has a word that edit and instruction share.

    A rule that is broader than what was meant changes such places; one who edits by hand sees them, a model does not.
    """
    pattern = re.compile("|".join(term.pattern for term in named))
    votes: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for file in followed.files:
        for place in file.places:
            is_named = place.rule == IMPORTS or bool(pattern.search(f"{place.before}\n{place.after}"))
            votes[place.rule, place.shape].append(is_named)
    unlike = {group for group, own in votes.items() if 2 * sum(own) < len(own)}
    if not unlike:
        return followed
    files = [
        rewrite_accepted(file.file, file.text, followed.rules, lambda rule, shape: (rule, shape) not in unlike)
        for file in followed.files
    ]
    rules = [rule for rule in followed.rules if any(group[0] == rule.id and group not in unlike for group in votes)]
    count = sum(len(votes[group]) for group in unlike)
    note = f"{pluralize(count, 'place')} that a rule would change have no word of the instruction and stay"
    changed = tuple(file for file in files if file.places)
    return replace(followed, rules=tuple(rules), files=changed, undone=(*followed.undone, note))


def _accept(run: _Run, trial: _Trial) -> None:
    """Make an edit, and have the rest follow."""
    place = f"{trial.change.path}:{trial.edit.block.start + 1}"
    run.texts[trial.change.path] = trial.change.after
    count = len(run.rules)
    run.accept(trial.followed)
    if not trial.followed.rules:
        run.rules += _learn(trial.change, run.sandbox)
    summaries = [str(rule.id or rule.action)[:200] for rule in run.rules[count:]]
    run.report(f"{place}: {trial.edit.agreement}, {pluralize(len(summaries), 'rule')}")
    run.state = run.state.apply(
        StateUpdate(
            history=[f"edited {place}"], decisions=summaries or None, next_focus="what is like it and unchanged"
        )
    )


def _check(run: _Run, checker: Checker | None, outcome: Outcome) -> Proposal:
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
