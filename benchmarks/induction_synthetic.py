"""Tasks whose rule is known: whether the induced rules do in other files what that rule does."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.induction_pairs import File, Pair
from benchmarks.induction_solving import Way, percent, solved
from benchmarks.induction_text import learned, replaced
from benchmarks.induction_unseen import PER_LANGUAGE, UnseenFiles, edits
from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import LANGUAGES, Language
from graftline.core.progress import Progress
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.sandbox import Sandbox

FILES = 120
"""Of each language, that templates are filled in on."""
SEED = 5

Changed = Mapping[File, str]


@dataclass(frozen=True)
class Synthetic:
    """A synthetic edit, and the file it was made in."""

    edit: Edit
    family: str
    file: File

    @property
    def pair(self) -> Pair:
        """The edit as a pair to be solved."""
        edit = self.edit
        return Pair(edit.id, "commits", "synthetic", edit.group, self.family, edit.language, edit.pre, edit.post)


def synthetic_tasks(
    files: Mapping[Language, Sequence[File]], count: int, sandbox: Sandbox, progress: Progress
) -> tuple[list[Synthetic], float]:
    """Return at most `count` tasks for each language, and the seconds that it took to make them.

    Raises:
        SandboxError: the sandbox failed.
    """
    found: list[Synthetic] = []
    started = time.perf_counter()
    for language in LANGUAGES:
        of_path = {(file.repository, file.path): file for file in files[language]}
        progress.start("induction", f"synthetic {language}")
        texts = [_seed_edit(file) for file in files[language]]
        # families that are held out from training are measured too
        for number, edit in enumerate(synthesize(texts, language, count, SEED, sandbox, split="test"), 1):
            found.append(Synthetic(edit, family_of(edit), of_path[edit.group, edit.commit]))
            progress.advance(number, count)
        progress.finish(f"{len(found)} tasks")
    return found, time.perf_counter() - started


def _seed_edit(file: File) -> Edit:
    # only the text before counts where templates are filled in
    return Edit(
        instruction="-",
        pre=file.text,
        post=file.text + "\n",
        language=file.language,
        id=f"file:{file.repository}/{file.path}",
        dataset="commitpackft",
        license="MIT",
        group=file.repository,
        commit=file.path,  # so that the file is found again, of an inverse too, whose text before is another
        origin=file.path,
    )


def family_of(edit: Edit) -> str:
    """Return the template that `edit` was made with."""
    return next(tag.partition(":")[2] for tag in edit.tags if tag.startswith("template:"))


def compared(
    tasks: Sequence[Synthetic], way: Way, files: Mapping[Language, Sequence[File]], sandbox: Sandbox, progress: Progress
) -> dict[str, Any]:
    """Return the figures of `way` on `tasks`, in whole, by language and by family.

    Raises:
        SandboxError: the sandbox failed.
    """
    unseen = UnseenFiles([file for of_language in files.values() for file in of_language])
    counts: dict[str, Counter[str]] = {}
    progress.start("induction", "gold known")
    for number, task in enumerate(tasks, 1):
        induction = solved(task.pair, way, sandbox).induction
        others = other_files(task, files)
        found = Counter(
            tasks=1,
            solved=induction.is_verified,
            exact=induction.level == "exact",
            one_step=induction.is_verified and len(induction.steps) == 1,
            all_general=induction.is_verified and induction.is_all_general,
        )
        if induction.is_verified:
            induced = unseen.edited([step.action for step in induction.steps], others, sandbox)
            found += agreement(unseen.edited(gold_actions(task.edit), others, sandbox), induced)
        for name in _names(task):
            counts.setdefault(name, Counter()).update(found)
        progress.advance(number, len(tasks))
    progress.finish(f"{len(tasks)} tasks")
    return _figures(counts, _solving)


def text_baseline(
    tasks: Sequence[Synthetic], files: Mapping[Language, Sequence[File]], sandbox: Sandbox
) -> dict[str, Any]:
    """Return the figures of literal search and replace on `tasks`, in whole.

    Raises:
        SandboxError: the sandbox failed.
    """
    unseen = UnseenFiles([file for of_language in files.values() for file in of_language])
    counts: dict[str, Counter[str]] = {}
    for task in tasks:
        replacements = learned(task.edit.pre, task.edit.post)
        found = Counter(tasks=1, solved=replacements is not None, exact=replacements is not None)
        if replacements is not None:
            others = other_files(task, files)
            induced = {file: text for file in others if (text := replaced(file.text, replacements)) != file.text}
            found += agreement(unseen.edited(gold_actions(task.edit), others, sandbox), induced)
        counts.setdefault("all", Counter()).update(found)
    return _figures(counts, _shares)["all"] if counts else {}


def other_files(task: Synthetic, files: Mapping[Language, Sequence[File]]) -> list[File]:
    """Return files in the language of `task` that it was not made in."""
    return [file for file in files[task.edit.language] if file != task.file][:PER_LANGUAGE]


def gold_actions(edit: Edit) -> list[PatternAction | RuleAction]:
    """Return the actions that make the edit, in their order."""
    return [edit.gold_action, *edit.gold_next] if edit.gold_action is not None else []


def agreement(gold: Changed, induced: Changed) -> Counter[str]:
    """Return how many edits the known rule makes in other files, how many the induced ones, and how many are the same."""
    found: Counter[str] = Counter()
    for file in gold.keys() | induced.keys():
        wanted = edits(file.text, gold.get(file, file.text), file.language)
        made = edits(file.text, induced.get(file, file.text), file.language)
        found.update(wanted=len(wanted), made=len(made), both=len(wanted & made))
    # a rule that nothing elsewhere asks for can be neither equal nor different
    has_others = found["wanted"] > 0
    is_equal = found["wanted"] == found["made"] == found["both"]
    found.update(compared=has_others, equivalent=has_others and is_equal)
    return found


def _names(task: Synthetic) -> Iterator[str]:
    yield "all"
    yield f"language {task.edit.language}"
    yield f"family {task.family}"


def _figures(counts: Mapping[str, Counter[str]], of: Callable[[Counter[str]], dict[str, Any]]) -> dict[str, Any]:
    return {name: of(counts[name]) for name in sorted(counts)}


def _solving(found: Counter[str]) -> dict[str, Any]:
    kept = ("solved", "exact", "one_step", "all_general")
    return {"tasks": found["tasks"], **{f"{name}_percent": percent(found[name], found["tasks"]) for name in kept}} | (
        _elsewhere(found)
    )


def _shares(found: Counter[str]) -> dict[str, Any]:
    return {"tasks": found["tasks"], "solved_percent": percent(found["solved"], found["tasks"])} | _elsewhere(found)


def _elsewhere(found: Counter[str]) -> dict[str, Any]:
    return {
        "precision_percent": percent(found["both"], found["made"]),
        "recall_percent": percent(found["both"], found["wanted"]),
        "edits_wanted": found["wanted"],
        "edits_made": found["made"],
        "equivalent_percent": percent(found["equivalent"], found["compared"]),
    }
