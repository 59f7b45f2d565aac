"""Trials of places: one is edited, by the words of the instruction or by a model, and others follow that have such
words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graftline.agent.edits import PlaceEdit, describe_context, edit_place, replace_block
from graftline.agent.places import Block
from graftline.agent.run import Run, learn_edit
from graftline.agent.terms import Term, edit_by_words
from graftline.codemod.follow import IMPORTS, FollowedEdit, rewrite_accepted
from graftline.codemod.history import FileChange
from graftline.codemod.migration.places import parses
from graftline.core.errors import DataError
from graftline.core.text_diff import pluralize
from graftline.rollouts.state.state import StateUpdate

_DEFINITION = re.compile(
    r"^(?:export +)?(?:default +)?(?:async +)?(?:def|class|function|interface|enum) +([\w$]+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Trial:
    """An edit of a place that is agreed on, and what would follow it."""

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


def try_place(run: Run, terms: Sequence[Term], block: Block, feedback: str) -> Trial | None:
    """Return what follows an edit of a place; None where its attempts do not agree, or it is not about the instruction."""
    place, text = run.locate(block), run.texts[block.path]
    written = None if feedback else edit_by_words(run.instruction, terms, block.text)
    edited = replace_block(text, block, written) if written is not None else text
    if written is not None and parses(edited, block.language):
        edit = PlaceEdit(block, edited, (), run.settings.least_votes, text.count("\n") + 1 - block.end)
    elif run.model is None:
        return None
    else:
        run.report(f"{place}: asking for {pluralize(run.settings.attempts, 'edit')}")
        edit = edit_place(
            run.instruction, block, text, run.model, run.settings.attempts, run.settings.least_votes,
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
    elif name := _find_second_definition(text, edit.after):
        fault = f"the file would define `{name}` twice"
    else:
        change = FileChange("", block.path, block.language, text, edit.after)
        try:
            followed = hold_back(run.follow([change], {block.path: edit.after}), named)
        except DataError:  # comments alone, or more than a few lines
            fault = "no rule can be made of the edit"
    if followed is None:
        run.report(f"{place}: {fault}")
        run.undone.append(f"{place}: {fault}; {advice}")
        issue = f"{block.path}:{block.start + 1}: {fault}"[:256]
        run.state = run.state.apply(StateUpdate(open_issues=[*run.state.open_issues, issue]))
        return None
    return Trial(edit, change, followed, any(term.is_shared and not term.is_qualifier for term in named))


def _find_named(terms: Sequence[Term], edit: PlaceEdit) -> list[Term]:
    """Return the terms of the instruction that are in the lines which an edit changes; none if what is to go stays as
    it was.
    """
    old, new = edit.block.text, edit.after_block
    is_moved = {term: len(re.findall(term.pattern, old)) != len(re.findall(term.pattern, new)) for term in terms}
    is_there = any(term.is_gone and re.search(term.pattern, old) for term in terms)
    if is_there and not any(is_moved[term] for term in terms if term.role != "any"):
        return []
    return [term for term in terms if re.search(term.pattern, edit.changed_lines)]


def _find_second_definition(before: str, after: str) -> str:
    """Return a name of a module that a text has one more definition of, beside one that was there; empty where there is
    none.

    Of `def get` and `def fetch`, where `get` is replaced by `fetch`, only the uses are meant.
    """
    old, new = (Counter(_DEFINITION.findall(side)) for side in (before, after))
    return next((name for name, count in new.items() if count > old[name] > 0), "")


def hold_back(followed: FollowedEdit, named: Sequence[Term]) -> FollowedEdit:
    """Return what follows without places of which neither what goes nor what comes has a word that edit and instruction
    share.

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


def accept_trial(run: Run, trial: Trial) -> None:
    """Make an edit, and have the rest follow."""
    block = trial.edit.block
    run.texts[trial.change.path] = trial.change.after
    count = len(run.rules)
    run.accept(trial.followed)
    if not trial.followed.rules:
        run.rules += learn_edit(trial.change, run.sandbox)
    summaries = [str(rule.id or rule.action)[:200] for rule in run.rules[count:]]
    run.report(f"{run.locate(block)}: {trial.edit.agreement}, {pluralize(len(summaries), 'rule')}")
    run.state = run.state.apply(
        StateUpdate(
            history=[f"edited {block.path}:{block.start + 1}"],
            decisions=summaries or None,
            next_focus="what is like it and unchanged",
        )
    )
