"""What the tools take and return, with the schemas that clients are shown."""

from pydantic import BaseModel, ConfigDict, Field

from graftline.agent.proposal import Outcome
from graftline.astgrep.binding import Language


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ExampleInput(_Model):
    """One example: two texts, or two files."""

    before: str = Field(default="", max_length=400_000)
    """The code before, as text."""
    after: str = Field(default="", max_length=400_000)
    """The same code after."""
    before_file: str = Field(default="", max_length=4096)
    """Instead of texts: the file before, below the root."""
    after_file: str = Field(default="", max_length=4096)
    """The file after, below the root."""


class RuleInWords(_Model):
    """A rule as words."""

    id: str
    language: Language
    summary: str
    """What it does, in one sentence."""
    lines: list[str]
    """What it matches, what its variables stand for, what it writes."""
    facts: dict[str, str]
    """What else is known of it: whether it is general, its support, its confidence."""


class LearnedResult(_Model):
    """Rules that were learned."""

    solved: bool
    """Whether the rules make every example."""
    reason: str
    """Why not, if not."""
    rules: list[RuleInWords]
    yaml: str
    """The rules as a rule file, to be given to preview_rule and apply_rule."""


class PlaceResult(_Model):
    """A place that would change."""

    path: str
    line: int
    diff: str


class GroupResult(_Model):
    """Places of one rule that look alike."""

    id: str
    """To be given to `reject`."""
    rule: str
    shape: str
    """The edit of a typical place, in short."""
    places: int
    rare: bool
    """Whether it looks like hardly another place of the rule: look at it first."""
    typical: list[PlaceResult]


class PreviewResult(_Model):
    """What rules would change; nothing was written."""

    places: int
    files: int
    groups: list[GroupResult]
    groups_not_shown: int
    skipped: str
    """What was not looked at."""
    faults: list[str]
    """Files that cannot be rewritten, and why."""


class FileResult(_Model):
    """A file that changes."""

    path: str
    places: int
    diff: str
    """Unified; empty if it is not shown, for the result would be too long."""


class AppliedResult(_Model):
    """What rules make of files."""

    written: bool
    """Whether the files were changed; undo takes it back."""
    places: int
    files: list[FileResult]
    files_not_shown: int
    """Files that change and are not listed, and those whose difference is left out."""
    groups: list[GroupResult]
    groups_not_shown: int
    skipped: str
    faults: list[str]


class QuestionResult(_Model):
    """A place where it is not clear what is meant."""

    path: str
    line: int
    before: str
    after: str


class FollowedResult(AppliedResult):
    """What a repository becomes if it follows an edit."""

    rules: list[RuleInWords]
    yaml: str
    unsure: bool
    """Whether the edit may mean something else: answer the question, or edit one more place."""
    question: QuestionResult | None
    """Is this to be changed so? Call again with one more letter in `answers`: y, n, or d for do not know."""
    contradictions: list[str]
    undone: list[str]
    """What was not done, and why, and where the rules of `yaml` by themselves do another thing."""


class RefactoredResult(AppliedResult):
    """What a repository becomes if an instruction is done."""

    outcome: Outcome
    meaning: str
    """Of the outcome, and what to do."""
    rules: list[RuleInWords]
    yaml: str
    undone: list[str]
    contradictions: list[str]
    tests_passed: bool | None
    """Whether the tests of the server pass with the change; None where it has none, or they could not run."""
    model_tokens: int
    """That the language model took."""


class MinedResult(_Model):
    """Rules that a history repeats."""

    commits: int
    changes: int
    """Small changes in them."""
    rules: list[RuleInWords]
    rules_not_shown: int
    yaml: str


class ExplainedResult(_Model):
    """Rules in words."""

    rules: list[RuleInWords]


class UndoneResult(_Model):
    """What undoing came to."""

    at: str
    """When the write began that was taken back, in UTC."""
    restored: list[str]
    changed_since: list[str]
    """Files that somebody changed after the write; left alone."""
