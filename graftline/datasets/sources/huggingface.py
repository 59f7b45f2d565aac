"""Homes on the Hugging Face hub, at a pinned commit: `hf://datasets/<owner>/<name>`.

The shape of a listing is that of huggingface_hub; the requests are our own, for its listing waits without a limit of
time and reads without one of size (2.4). How a repository lets us in, and where its files are, is in
`graftline.core.huggingface`. https://huggingface.co/docs/hub/api
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from graftline.core.download import Advance, Download, download, open_stream
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.hashing import digest
from graftline.core.huggingface import Repository, open_repository
from graftline.core.retry import RetryPolicy, with_retries
from graftline.core.secrets import Secrets
from graftline.core.web import WebFile, public_url
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation
from graftline.datasets.sources.listing import MAX_LISTED, Facts, resolved

_HOME = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)/?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BRANCH = "main"


class HuggingFaceHub:
    """Homes on one server that speaks as the Hugging Face hub does."""

    def __init__(self, patience: RetryPolicy, secrets: Secrets, endpoint: str | None = None) -> None:
        """Make the hub; without an `endpoint` it is that of huggingface_hub, which `HF_ENDPOINT` names."""
        self._patience, self._secrets, self._endpoint = patience, secrets, endpoint
        self._followed: dict[str, str] = {}  # by repository: the commit that `revision` found last

    def revision(self, name: str, dataset: Dataset) -> str:
        repository = self._repository(name, dataset)
        if dataset.follow:
            repository.require_token(self._secrets)
            found = with_retries(self._patience, lambda: _newest(repository, None))
            self._followed[repository.id] = found.revision
            return found.revision
        if not _COMMIT.fullmatch(dataset.version):
            if dataset.files and all(file.sha256 for file in dataset.files):
                # whatever the name comes to mean, other bytes than the pinned ones are refused
                return digest([dataset.version, [file.sha256 for file in dataset.files]])
            raise ConfigError(
                f"dataset {name!r}: version {dataset.version!r} is not a commit, and what it names could change under"
                " us; state the 40 digits of a commit, the sha256 of every file, or `follow: true` for whatever is newest"
            )
        return dataset.version

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        return _newest(self._repository(name, dataset), known)

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return True

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        commit, repository = self._commit(name, dataset), self._repository(name, dataset)
        repository.require_token(self._secrets)
        with repository.refusals():
            listed = with_retries(self._patience, lambda: _listed(repository, commit))
        return resolved(dataset.home or "", dataset, listed)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        with self._source(name, dataset, file) as source:
            return download(source, file, target, advance, self._patience)

    @contextmanager
    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[IO[bytes]]:
        with self._source(name, dataset, file) as source, open_stream(source, file, self._patience) as stream:
            yield stream

    @contextmanager
    def _source(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[WebFile]:
        commit, repository = self._commit(name, dataset), self._repository(name, dataset)
        repository.require_token(self._secrets)
        with repository.refusals():
            yield repository.file(commit, file.path)

    def _commit(self, name: str, dataset: Dataset) -> str:
        if dataset.follow:
            return self._followed.get(self._repository(name, dataset).id) or self.revision(name, dataset)
        self.revision(name, dataset)  # refuses a name that is not pinned
        return dataset.version

    def _repository(self, name: str, dataset: Dataset) -> Repository:
        found = _HOME.fullmatch(dataset.home or "")
        if found is None:
            raise ConfigError(
                f"dataset {name!r}: home {dataset.home!r} names no repository;"
                " expected hf://datasets/<owner>/<name>, with its commit as `version`"
            )
        return open_repository(
            "dataset", found[1], f"dataset {name!r}", self._patience, self._secrets, self._endpoint, dataset.terms
        )


def _newest(repository: Repository, known: Observation | None) -> Observation:
    """Return the newest commit, `known` where the server says that nothing changed."""
    condition = {"If-None-Match": known.etag} if known and known.etag else {}
    with repository.refusals():
        found, etag = repository.web.json(f"{repository.api}/revision/{_BRANCH}", condition)
    if found is None and known is not None:
        return known
    commit = found.get("sha") if isinstance(found, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise DownloadError(f"{repository.api}: names no commit as its newest; check HF_ENDPOINT")
    return Observation(commit, etag)


def _listed(repository: Repository, commit: str) -> dict[str, Facts]:
    """Return what the repository says of all its files."""
    listed: dict[str, Facts] = {}
    url = f"{repository.api}/tree/{commit}?recursive=true"
    while url:
        page, url = _page(repository, url)
        listed |= page
        if len(listed) > MAX_LISTED:
            raise DownloadError(f"{repository.api}: holds more than {MAX_LISTED} files; expected a dataset")
    return listed


def _page(repository: Repository, url: str) -> tuple[dict[str, Facts], str]:
    from huggingface_hub.hf_api import RepoFile

    items, following = repository.web.page(url)
    try:
        # its constructor, which knows the names of the hub, has no types
        files = [RepoFile(**item) for item in items if item["type"] == "file"]  # type: ignore[no-untyped-call]
        page = {str(file.path): Facts(int(file.size), file.lfs.sha256 if file.lfs else None) for file in files}
    except (KeyError, TypeError, ValueError):
        raise DownloadError(f"{repository.api}: does not list its files as expected; check HF_ENDPOINT") from None
    # the token goes along
    if following and not following.startswith(f"{repository.api}/"):
        raise DownloadError(f"{repository.api}: goes on at {public_url(following)}, another place; check HF_ENDPOINT")
    return page, following
