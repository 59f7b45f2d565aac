"""The agent at the files of a change, which are texts by their paths and lie in no folder."""

from collections.abc import Sequence
from pathlib import Path

from graftline.agent.model import AgentModel
from graftline.agent.proposal import Proposal, Settings
from graftline.agent.refactor import refactor_files
from graftline.astgrep.action import Action
from graftline.codemod.change_places import MultiFileChange, ShownPlace
from graftline.codemod.source_files import SourceFile
from graftline.sandbox.base import Sandbox
from graftline.sandbox.runner import language_of

_FOLDER = Path("/repository")


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


def texts_of(proposal: Proposal) -> dict[str, str]:
    """Return the texts that a proposal of `propose_change` changes."""
    return {file.file.path.relative_to(_FOLDER).as_posix(): file.text for file in proposal.files}


def actions_of(proposal: Proposal) -> tuple[Action, ...]:
    """Return the rules of a proposal."""
    return tuple(rule.action for rule in proposal.rules)
