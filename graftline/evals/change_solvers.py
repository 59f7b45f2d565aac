"""Solvers of changes of repositories, whole or at single places: the agent, induction from places that are shown, and
`sed`.

A model that writes the rule itself is asked as about any task (`evals.solvers`), and its rule is applied to all files.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from graftline.agent.edits import describe_context, edit_place
from graftline.agent.model import AgentModel, Spent
from graftline.agent.places import Block
from graftline.agent.proposal import Settings
from graftline.agent.single_places import Shows, SinglePlace
from graftline.agent.terms import read_terms
from graftline.agent.texts import actions_of, propose_change, texts_of
from graftline.codemod.change_places import MultiFileChange, ShownPlace
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.migration.generalize import Ask, generalize
from graftline.codemod.migration.units import Demonstration
from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import digest, sha256_text
from graftline.evals.attempt import Attempted, Cost, Failed, Produced, Question, Replies, Reply, Unaskable
from graftline.evals.cases import repository_of
from graftline.evals.solvers import why_unaskable
from graftline.rollouts.answer_grading import attempt_edit
from graftline.rollouts.state.state import State
from graftline.sandbox.base import Sandbox
from graftline.sandbox.runner import language_of

NOTHING_TO_SHOW, REFUSED = "nothing_to_show", "refused"
"""Causes of questions that cannot be asked: the change has no place that can be shown, or the agent refuses the
instruction.
"""
_ONE_TEXT = "text"


class AgentSolver:
    """What `graftline refactor` does with `model`, which belongs to the caller; a further attempt is another draw.

    Of a single place its edit is taken, of one text the rules that induction makes of its edit. Places of the change
    are shown as examples where there are `demonstrations`.
    """

    draws = True

    def __init__(
        self, model: AgentModel, sandbox: Sandbox, settings: Settings, demonstrations: int = 0, shows: Shows = "imports"
    ) -> None:
        self._model, self._sandbox, self._settings = model, sandbox, settings
        self._demonstrations, self._shows = demonstrations, shows
        parts = [model.model.name, model.adapter, asdict(model.limits), asdict(settings), demonstrations, shows]
        self.digest = digest(["agent", *parts])

    def replies(self, questions: Sequence[Question]) -> Replies:
        for question in questions:
            model, began = replace(self._model, spent=Spent(), draw=question.attempt - 1), time.monotonic()
            try:
                reply = self._attempt(question, model)
            except BoundaryError as error:
                reply = Failed(question, str(error))
            except DataError:
                reply = Unaskable(question, REFUSED)
            yield replace(reply, cost=Cost(model.spent.tokens, None, round(time.monotonic() - began, 4)))

    def _attempt(self, question: Question, model: AgentModel) -> Reply:
        case = question.case
        if case.place is not None:
            return Produced(question, edit_single_place(case.task.instruction, case.place, model, self._shows))
        if case.repository is None:
            cause = why_unaskable(case)
            return Unaskable(question, cause) if cause else self._edit_text(question, model)
        shown = case.repository.change.show(question.attempt - 1, self._demonstrations)
        if len(shown) < self._demonstrations:
            return Unaskable(question, NOTHING_TO_SHOW)
        change, instruction = case.repository.change, case.repository.instruction
        proposal = propose_change(change, instruction, shown, model, self._sandbox, self._settings)
        return Produced(question, texts_of(proposal), tuple(shown), actions_of(proposal))

    def _edit_text(self, question: Question, model: AgentModel) -> Reply:
        """Have a whole text edited, and return the attempt whose actions induction makes of the edit."""
        task, number = question.case.task, question.attempt
        block = Block(_ONE_TEXT, task.language, 0, task.before.count("\n") + 1, task.before + "\n")
        edit = edit_place(
            task.instruction, block, task.before, model, self._settings.attempts, self._settings.least_votes,
            lambda text: sha256_text(normalize_whitespace(text)),
        )  # fmt: skip
        edited = edit.after if edit.votes >= self._settings.least_votes else task.before
        return Attempted(question, attempt_edit(task, edited, self._sandbox, number=number))


class DemonstrationSolver:
    """The rules of `count` places of the change, as people edited them (`graftline follow`); a further attempt is shown
    others.
    """

    draws = True

    def __init__(self, sandbox: Sandbox, count: int, seed: int = 0) -> None:
        self._sandbox, self._count, self._seed = sandbox, count, seed
        self.digest = digest(["demonstrations", count, seed])

    def replies(self, questions: Sequence[Question]) -> Replies:
        for question in questions:
            began = time.monotonic()
            try:
                reply = self._attempt(question)
            except BoundaryError as error:
                reply = Failed(question, str(error))
            yield replace(reply, cost=Cost(0, 0.0, round(time.monotonic() - began, 4)))

    def _attempt(self, question: Question) -> Reply:
        place, repository = question.case.place, repository_of(question.case)
        change, instruction = repository.change, repository.instruction
        seed = self._seed + question.attempt - 1
        if place is None:
            shown = change.show(seed, self._count)
            if len(shown) < self._count:
                return Unaskable(question, NOTHING_TO_SHOW)
            return Produced(question, follow_shown(change, instruction, shown, self._sandbox), tuple(shown))
        block = place.block
        candidates = [
            s for s in change.show(seed, self._count + 1)
            if s.path != block.path or s.end <= block.start or block.end <= s.start
        ][: self._count]  # fmt: skip
        if len(candidates) < self._count:
            return Unaskable(question, NOTHING_TO_SHOW)
        # the file as it was before anything was shown: what else its rules change there does not count
        texts = {block.path: place.before}
        return Produced(question, follow_shown(change, instruction, candidates, self._sandbox, texts))


class WordsSolver:
    """`sed`: the code that an instruction says is to go, at word boundaries, becomes the code that it says is to come,
    or nothing.
    """

    draws = False
    digest = digest(["sed", "removes"])

    def replies(self, questions: Sequence[Question]) -> Replies:
        for question in questions:
            began = time.monotonic()
            repository = repository_of(question.case)
            texts = replace_words(repository.instruction, repository.change.texts())
            yield Produced(question, texts, cost=Cost(0, 0.0, round(time.monotonic() - began, 4)))


def edit_single_place(instruction: str, place: SinglePlace, model: AgentModel, shows: Shows) -> dict[str, str]:
    """Return the text of the file with the likeliest edit, or that of another draw of `model`; it is empty where there
    is none.
    """
    context = describe_single_place(place, shows)
    edit = edit_place(instruction, place.block, place.before, model, 1, 0, lambda text: text, context)
    return {place.block.path: edit.after} if edit.votes else {}


def describe_single_place(place: SinglePlace, shows: Shows) -> str:
    """Return what a model is told beside the lines."""
    if shows == "imports":
        return describe_context(place.before, place.block, State())
    return f"An edit of this kind:\n{place.example}\n\n" if shows == "example" and place.example else ""


def follow_shown(
    change: MultiFileChange,
    instruction: str,
    shown: Sequence[ShownPlace],
    sandbox: Sandbox,
    texts: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    max_questions: int = 0,
) -> dict[str, str]:
    """Return `texts`, else all files of the change with the places that are `shown`, where rules of those are applied."""
    texts = change.texts(shown) if texts is None else texts
    demonstrations = [Demonstration(place.path, change.by_path[place.path].before, place.text) for place in shown]
    files = {path: text for path, text in texts.items() if language_of(path) is not None}
    proposal = generalize(demonstrations, files, sandbox, ask, instruction=instruction, max_questions=max_questions)
    return {**texts, **proposal.texts}


def replace_words(instruction: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts in which the names of the instruction that go are those that come, in their order.

    Where it says of none that it is to come, those that go are taken out, and with them lines that have no word any
    more.
    """
    terms, changed = read_terms(instruction), dict(texts)
    old = [term.text for term in terms if term.role == "old" and term.is_code and not term.is_qualifier]
    new = [term.text for term in terms if term.role == "new" and not term.is_qualifier]
    for before, after in zip(old, new, strict=False):
        pattern = re.compile(rf"(?<![\w$]){re.escape(before)}(?![\w$])")
        for path, text in changed.items():
            changed[path] = pattern.sub(lambda _, word=after: word, text)  # type: ignore[misc]
    if old and not new:
        pattern = re.compile(rf"(?<![\w$])(?:{'|'.join(map(re.escape, old))})(?![\w$])[ \t]*")
        for path, text in changed.items():
            lines = ((line, pattern.sub("", line)) for line in text.splitlines(keepends=True))
            changed[path] = "".join(after for line, after in lines if after == line or re.search(r"\w", after))
    return changed
