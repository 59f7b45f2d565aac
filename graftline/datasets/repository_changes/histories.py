"""Candidates from git histories: repositories of this machine, and folders of bare ones."""

import heapq
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from graftline.astgrep.binding import Language
from graftline.codemod.history import CommitChange, History, list_files
from graftline.codemod.source_files import VENDORED, source_of
from graftline.core.errors import BoundaryError, DataError
from graftline.datasets.catalog import NO_LICENSE, license_by_pattern
from graftline.datasets.commit_messages import clean_message
from graftline.datasets.language import language_of_path
from graftline.datasets.readers.base import row_id
from graftline.datasets.repository_changes.candidate import Candidate, Untouched
from graftline.datasets.repository_changes.change import ChangedFile, UntouchedFile
from graftline.datasets.repository_changes.settings import GitRepository, RepositoryChangesConfig

logger = logging.getLogger(__name__)

MAX_INSTRUCTION_CHARACTERS = 2_000
"""Of a longer message, the title is the instruction."""
_FOREIGN = VENDORED | {"_vendor", "_vendored", "external", "externals", "node-modules", "vendors"}


@dataclass(slots=True)
class Repository:
    """A repository that is read, and what of it was left out."""

    settings: GitRepository
    license: str
    """`NOASSERTION` where nobody stated it."""
    aliases: tuple[str, ...]
    history: History


def open_repositories(config: RepositoryChangesConfig, root: Path) -> Iterator[Repository]:
    """Yield the repositories of `config`, whose paths are from `root`, with their newest commits.

    One of a mirror that cannot be read is left out, with a warning. DataError if one that is named, or a mirror, is not there or
    has not what it is said to have. BoundaryError if git cannot read one that is named.
    """
    for settings in config.repositories:
        yield _open(settings, root, config)
    for mirror in config.mirrors:
        for path in find_bare_repositories(root / mirror):
            name = path.relative_to(root / mirror).as_posix().removesuffix(".git")
            try:
                yield _open(GitRepository(path=str(path), name=name), root, config)
            except (DataError, BoundaryError, ValueError) as error:
                logger.warning("%s: is left out: %s", path, error)


def find_bare_repositories(folder: Path) -> list[Path]:
    """Return the bare repositories `owner/name.git` below a folder, in order; DataError if there are none."""
    paths = sorted(path for path in folder.glob("*/*.git") if (path / "HEAD").is_file() and (path / "objects").is_dir())
    if not paths:
        raise DataError(f"{folder}: holds no bare repository; expected folders such as owner/name.git")
    return paths


def _open(settings: GitRepository, root: Path, config: RepositoryChangesConfig) -> Repository:
    folder = root / settings.path
    history = History.read(folder, settings.range, config.max_commits, is_top=True)
    license = settings.license or license_by_pattern(config.licenses, settings.name, NO_LICENSE)
    if license == NO_LICENSE:
        logger.warning(
            "%s: its license is not stated, so no change of it is taken; state it in `license` or `licenses` of"
            " repository_changes",
            settings.name,
        )
    if history.is_shallow:
        logger.warning("%s: is a shallow clone; commits that were never fetched are not looked at", settings.name)
    return Repository(settings, license, config.aliases_of(settings.name), history)


def read_candidates(
    repository: Repository, config: RepositoryChangesConfig, languages: frozenset[Language]
) -> Iterator[Candidate]:
    """Yield the commits of a repository that edit enough files, newest first; `skipped` of its history counts what is left out.

    BoundaryError if git cannot read it.
    """
    history, name = repository.history, repository.settings.name
    for change in history.commit_changes(language_of_path, languages, config.min_files, is_foreign):
        yield Candidate(
            id=row_id("repository_changes", name.lower(), change.commit),
            repo=name,
            parent=change.parent,
            commit=change.commit,
            license=repository.license,
            instruction=make_instruction(change.message),
            instruction_source="commit",
            files=[ChangedFile(path=file.path, before=file.before, after=file.after) for file in change.files],
            origin=f"{name}@{change.commit[:12]}",
            aliases=repository.aliases,
            other_files=change.other_files,
            moved_files=change.moved_files,
            read_untouched=partial(sample_untouched, history, change, config),
        )


def make_instruction(message: str) -> str:
    """Return what a commit message says to do: all of it, or of a long one the title."""
    cleaned = clean_message(message)
    return cleaned if len(cleaned) <= MAX_INSTRUCTION_CHARACTERS else cleaned.partition("\n")[0]


def is_foreign(path: str) -> bool:
    """Return whether a file lies in a folder whose files are made by others or by programs, or is minified by its name."""
    folders = PurePosixPath(path).parts[:-1]
    return not _FOREIGN.isdisjoint(folder.lower() for folder in folders) or ".min." in path


def sample_untouched(history: History, change: CommitChange, config: RepositoryChangesConfig) -> Untouched:
    """Return some files that a commit leaves as they are, in the languages that it edits, and how many there are.

    Which ones follows from commit and path alone.
    """
    changed = {file.path for file in change.files}
    languages = frozenset(file.language for file in change.files)
    try:
        listed = list(list_files(history.folder, change.parent, language_of_path, languages))
    except BoundaryError:
        history.skipped["untouched files of a commit"] += 1
        return (), None
    eligible = [file for file in listed if file[0] not in changed and not is_foreign(file[0])]
    sample = heapq.nsmallest(config.untouched, eligible, key=lambda file: _place(change.commit, file[0]))
    texts = history.read_blobs(dict.fromkeys(blob for _, _, blob in sample))
    files, size = list[UntouchedFile](), 0
    for path, language, blob in sample:
        with suppress(DataError, KeyError, ValueError):  # too large, or no text
            file = UntouchedFile(path=path, text=source_of(texts[blob], Path(path), language).text)
            size += len(file.text)
            if size <= config.max_bytes:
                files.append(file)
    return tuple(files), len(eligible)


def _place(commit: str, path: str) -> bytes:
    return blake2b(f"{commit}\0{path}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def describe_skipped(repositories: Sequence[Repository]) -> dict[str, int]:
    """Return how many files and commits were left out of all, by reason, as counts of a record."""
    total = sum((repository.history.skipped for repository in repositories), Counter[str]())
    return {f"skipped.{reason.replace(' ', '_')}": count for reason, count in sorted(total.items())}
