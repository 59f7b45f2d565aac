"""A refactoring under way: the texts as they are by now, the rules that made them so, and what was not done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from graftline.agent.edits import PlaceEdit, digest_texts
from graftline.agent.model import AgentModel
from graftline.agent.places import Block
from graftline.agent.proposal import Outcome, Proposal, Settings
from graftline.agent.questions import answer_with_model, list_examples
from graftline.agent.ranking import SearchMemory
from graftline.codemod.follow import FollowedEdit, count_places, follow_edit, rewrite_accepted
from graftline.codemod.history import FileChange
from graftline.codemod.learn import learn_rules
from graftline.codemod.migration.generalize import ADVICE, generalize
from graftline.codemod.migration.places import parses
from graftline.codemod.migration.units import Demonstration
from graftline.codemod.rule_file import FileRule, assign_ids
from graftline.codemod.source_files import SourceFile
from graftline.core.errors import DataError
from graftline.rollouts.state.state import State
from graftline.sandbox.base import Sandbox


@dataclass
class Run:
    """A refactoring under way."""

    instruction: str
    files: Mapping[str, SourceFile]
    folder: Path
    sandbox: Sandbox
    model: AgentModel | None
    kept_paths: frozenset[str]
    settings: Settings
    report: Callable[[str], None]
    show: Callable[[Path], object] = str
    """How sentences have the path of a file."""
    texts: dict[str, str] = field(default_factory=dict)
    rules: list[FileRule] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    edits: list[PlaceEdit] = field(default_factory=list)
    questions: int = 0
    memory: SearchMemory = field(default_factory=dict)
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
                self.kept_texts, self.show,
            )  # fmt: skip
            if followed.rules:
                return followed
            questions = followed.questions  # one who knows nothing is no reason to do less than where nobody is asked
        followed = follow_edit(
            changes, current, self.folder, self.sandbox, None, self.instruction, 0, self.kept_texts, self.show
        )
        return replace(followed, questions=questions)

    def accept(self, followed: FollowedEdit) -> None:
        """Have the texts follow."""
        for rewritten in followed.files:
            self.texts[rewritten.file.path.relative_to(self.folder).as_posix()] = rewritten.text
        self.rules += [rule for rule in followed.rules if rule.action not in [own.action for own in self.rules]]
        # nobody is here whom the engine could ask
        self.undone += [sentence.replace(ADVICE, "give an --example of it") for sentence in followed.undone]
        self.contradictions += followed.contradictions
        self.questions += followed.questions

    def locate(self, block: Block) -> str:
        """Return file and line of a block, as sentences have it."""
        return f"{self.show(self.files[block.path].path)}:{block.start + 1}"

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

    def propose(self, outcome: Outcome) -> Proposal:
        """Return what it comes to."""
        for path, file in self.files.items():
            if (
                self.texts[path] != file.text
                and not parses(self.texts[path], file.language)
                and parses(file.text, file.language)
            ):
                self.texts[path] = file.text
                self.undone.append(f"{self.show(file.path)}: would not parse any more; change it by hand")
        named = assign_ids([replace(rule, id="") for rule in self.rules])  # they were made in several turns
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
            tuple(self.edits), self.questions, state=self.state,
        )  # fmt: skip


def learn_edit(change: FileChange, sandbox: Sandbox) -> list[FileRule]:
    """Return rules that make an edit, and of which nobody knows what else they are to do."""
    old, new = (SourceFile(Path(change.path), change.language, side) for side in (change.before, change.after))
    try:
        return list(learn_rules([(old, new)], [], sandbox).rules)
    except DataError:
        return []
