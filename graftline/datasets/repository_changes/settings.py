"""Where changes of repositories are read from, and which are taken: `repository_changes` of `configs/datasets.yaml`."""

from typing import Annotated

from pydantic import Field

from graftline.core.config import Config

RepositoryName = Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)+$")]
"""`owner/name`, as edits of the repository name it."""


class GitRepository(Config):
    """A git repository on this machine."""

    path: str = Field(min_length=1)
    """Its working tree or bare folder, from the root of the checkout."""
    name: RepositoryName
    range: str = ""
    """`A..B`, or a commit for all up to it; the current one if empty."""
    license: str | None = None
    """SPDX identifier; unset: what `licenses` has for its name."""


class RepositoryChangesConfig(Config):
    """Sources of changes, and what a change must be."""

    releases: bool = True
    """Whether functions of two releases, of the datasets in use that hold some, are put together again."""
    repositories: tuple[GitRepository, ...] = ()
    mirrors: tuple[str, ...] = ()
    """Folders of bare repositories, `owner/name.git`, each read from its current commit."""
    records: tuple[str, ...] = ()
    """Files of changes, or folders of them: `.jsonl`, `.jsonl.gz` or `.jsonl.xz`."""
    licenses: dict[str, str] = Field(default_factory=dict)
    """SPDX identifier by repository (`owner/name`, or `owner/*`); without one, no change of it is taken."""
    aliases: dict[RepositoryName, tuple[str, ...]] = Field(default_factory=dict)
    """Other names that edits have for a repository, such as `pypi:celery` for `celery/celery`."""
    min_files: int = Field(default=3, ge=2)
    """That a change edits, and that have to share a token change."""
    min_score: float = Field(default=0.6, gt=0, le=1)
    """See `codemod.token_changes`."""
    max_commits: int = Field(default=2000, ge=1)
    """Looked at in one repository, the newest first."""
    max_bytes: int = Field(default=8 << 20, ge=1024)
    """Of the texts of one change, both sides; untouched files may take as much again."""
    per_repository: int = Field(default=50, ge=1)
    """Changes taken of one repository, the first ones: newest commits first, releases by name, records as they stand."""
    untouched: int = Field(default=20, ge=0)
    """Files that a change leaves as they are, at most."""

    def aliases_of(self, repository: str) -> tuple[str, ...]:
        """Return the other names of a repository, however its letters are written."""
        return next((names for name, names in self.aliases.items() if name.lower() == repository.lower()), ())
