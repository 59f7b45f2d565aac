"""Whether a candidate becomes a change of a repository: the same questions for every source, cheapest first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.binding import Language
from graftline.codemod.equality import differ_in_words_alone
from graftline.codemod.token_changes import measure_mechanics
from graftline.core.errors import DataError
from graftline.core.text_diff import pluralize
from graftline.datasets.catalog import Cleaning, Decontamination
from graftline.datasets.decontaminate import Evaluations
from graftline.datasets.fingerprints import strip_whitespace
from graftline.datasets.language import confirm_language, language_of_path
from graftline.datasets.repository_changes.candidate import Candidate, ChangeRejection, make_change
from graftline.datasets.repository_changes.change import ChangedFile, ChangeRejectReason, RepositoryChange
from graftline.datasets.repository_changes.settings import RepositoryChangesConfig

MAX_MOVED_SHARE = 0.5
"""Of the files that are edited: where more than so many as these are added, deleted or renamed, code moves rather than changes."""


@dataclass(frozen=True, slots=True)
class Judge:
    """What candidates are judged by."""

    config: RepositoryChangesConfig
    cleaning: Cleaning
    decontamination: Decontamination
    evaluations: Evaluations

    def judge(self, candidate: Candidate) -> RepositoryChange | ChangeRejection:
        """Return the change that a candidate is, or why it is none."""
        if rejected := self._reject_unread(candidate):
            return rejected
        is_file = candidate.unit == "file"
        mechanics = measure_mechanics(
            ((file.before, file.after) for file in candidate.files), self.config.min_files if is_file else 1
        )
        if not mechanics.places:
            return candidate.reject(
                ChangeRejectReason.FORMATTING, "only white space, commas, quotes and parentheses change"
            )
        if mechanics.score < self.config.min_score:
            detail = f"{mechanics.score:.2f} of {mechanics.places} token changes are shared by files"
            return candidate.reject(ChangeRejectReason.NOT_MECHANICAL, detail)
        parsed = _parse(candidate) if self.cleaning.check_syntax else _trust(candidate)
        if (is_file and len(parsed) < self.config.min_files) or not parsed:
            return candidate.reject(
                ChangeRejectReason.UNPARSABLE, f"{len(parsed)} of {len(candidate.files)} files parse"
            )
        if all(_differ_in_words(file, language) for file, language in parsed):
            return candidate.reject(ChangeRejectReason.COMMENTS, "only comments or docstrings change")
        files = [file for file, _ in parsed]
        if near := self._find_near(files):
            return candidate.reject(ChangeRejectReason.CONTAMINATED, near)
        language = Counter(language for _, language in parsed).most_common(1)[0][0]
        change = make_change(candidate, files, language, mechanics)
        untouched = tuple(file for file in change.untouched if not any(self._nearest([file.text])))
        return change if untouched == change.untouched else change.model_copy(update={"untouched": untouched})

    def _reject_unread(self, candidate: Candidate) -> ChangeRejection | None:
        """Return why a candidate need not be looked into."""
        if candidate.license not in self.cleaning.licenses:
            allowed = ", ".join(self.cleaning.licenses)
            return candidate.reject(
                ChangeRejectReason.LICENSE, f"{candidate.license!r} is not allowed; allowed: {allowed}"
            )
        if candidate.unit == "file" and len(candidate.files) < self.config.min_files:
            return candidate.reject(
                ChangeRejectReason.FEW_FILES, f"edits {pluralize(len(candidate.files), 'file')} that can be read"
            )
        if candidate.moved_files > MAX_MOVED_SHARE * len(candidate.files):
            detail = (
                f"edits {pluralize(len(candidate.files), 'file')}, and adds, deletes or renames {candidate.moved_files}"
            )
            return candidate.reject(ChangeRejectReason.FILES_MOVED, detail)
        size = sum(len(file.before) + len(file.after) for file in candidate.files)
        if size > self.config.max_bytes:
            return candidate.reject(ChangeRejectReason.TOO_LARGE, f"{size} characters; at most {self.config.max_bytes}")
        if not candidate.instruction.strip():
            return candidate.reject(ChangeRejectReason.EMPTY_INSTRUCTION, "nothing says what to do")
        texts = [candidate.instruction, *(text for file in candidate.files for text in (file.before, file.after))]
        if any("\0" in text or not _is_unicode(text) for text in texts):
            return candidate.reject(ChangeRejectReason.NOT_TEXT, "holds a NUL character or half a surrogate pair")
        return None

    def _find_near(self, files: Sequence[ChangedFile]) -> str:
        texts = [text for file in files for text in (file.before, file.after)]
        shares = [share for share in self._nearest(texts) if share]
        return f"shares {max(shares)[0]:.0%} with evaluation {max(shares)[1]}" if shares else ""

    def _nearest(self, texts: Sequence[str]) -> Sequence[tuple[float, str] | None]:
        folded = [strip_whitespace(text).lower() for text in texts]
        return self.evaluations.nearest(folded, self.decontamination.shared)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse(candidate: Candidate) -> list[tuple[ChangedFile, Language]]:
    """Return the files whose sides both parse, each with its language."""
    named = _trust(candidate)
    pairs = ((file, confirm_language(file.before, file.after, language)) for file, language in named)
    return [(file, language) for file, language in pairs if language is not None]


def _trust(candidate: Candidate) -> list[tuple[ChangedFile, Language]]:
    pairs = ((file, language_of_path(file.path)) for file in candidate.files)
    return [(file, language) for file, language in pairs if language is not None]


def _differ_in_words(file: ChangedFile, language: Language) -> bool:
    try:
        return differ_in_words_alone(file.before, file.after, language)
    except DataError:  # it is too deep to be read, and is none of ours to judge
        return False
