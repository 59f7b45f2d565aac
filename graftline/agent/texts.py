"""The agent at the files of a change, which are texts by their paths and lie in no folder."""

from collections.abc import Sequence
from pathlib import Path

from graftline.agent.edits import replace_block
from graftline.agent.model import AgentModel
from graftline.agent.proposal import Proposal, Settings
from graftline.agent.refactor import refactor_files
from graftline.agent.single_places import SinglePlace
from graftline.astgrep.action import Action
from graftline.codemod.change_places import MultiFileChange, ShownPlace
from graftline.codemod.migration.generalize import generalize
from graftline.codemod.migration.units import Demonstration
from graftline.codemod.source_files import SourceFile
from graftline.core.errors import DataError
from graftline.rollouts.repository_task import RepositoryTask
from graftline.sandbox.base import Sandbox
from graftline.sandbox.runner import language_of

_FOLDER = Path()


def propose_change(
    change: MultiFileChange,
    instruction: str,
    shown: Sequence[ShownPlace],
    model: AgentModel | None,
    sandbox: Sandbox,
    settings: Settings,
) -> Proposal:
    """Return what the agent makes of the files of a change; places that are `shown` lead it as examples.

    ActorError where the model does not answer, DataError where the agent refuses the instruction.
    """
    texts = change.texts(shown)
    files = {
        path: SourceFile(_FOLDER / path, language, text)
        for path, text in texts.items()
        if (language := language_of(path))
    }
    examples = []
    for place in shown:
        file = change.by_path[place.path]
        assert file.language is not None  # or it could not be shown
        before, after = (SourceFile(Path(place.path), file.language, side) for side in (file.before, place.text))
        examples.append((before, after))
    return refactor_files(instruction, files, _FOLDER, sandbox, model, examples, settings=settings)


def follow_place_edit(task: RepositoryTask, place: SinglePlace, code: str, sandbox: Sandbox) -> dict[str, str]:
    """Return the texts that change, by path, where the lines of a place become `code` and the rest of the repository follows.

    Nobody is asked. Code that changes nothing, or of which no rule can be made, changes its place at most.
    """
    path = place.block.path
    edited = replace_block(place.before, place.block, code)
    if edited == place.before:
        return {}
    files = {name: text for name, text in task.texts.items() if language_of(name) is not None} | {path: edited}
    demonstration = Demonstration(path, place.before, edited)
    try:
        proposal = generalize([demonstration], files, sandbox, instruction=task.instruction)
    except DataError:  # comments alone, or more than a few lines
        return {path: edited}
    return {path: edited, **proposal.texts}


def texts_of(proposal: Proposal) -> dict[str, str]:
    """Return the texts that a proposal of `propose_change` changes."""
    return {file.file.path.relative_to(_FOLDER).as_posix(): file.text for file in proposal.files}


def actions_of(proposal: Proposal) -> tuple[Action, ...]:
    """Return the rules of a proposal."""
    return tuple(rule.action for rule in proposal.rules)
