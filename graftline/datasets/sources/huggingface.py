"""Sources on the Hugging Face hub, at a pinned commit: `hf://datasets/<owner>/<name>`.

The shape of a listing is that of huggingface_hub; the requests are our own, for its listing waits without a limit of
time and reads without one of size (2.4). How a repository lets us in, and where its files are, is in
`graftline.core.huggingface`. https://huggingface.co/docs/hub/api
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from graftline.core.download import Advance, Download
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.hashing import digest
from graftline.core.huggingface import Repository, open_repository
from graftline.core.retry import RetryPolicy, with_retries
from graftline.core.secrets import Secrets
from graftline.core.web import WebFile, public_url
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import MAX_LISTED, Facts, Observation, UpstreamHub, resolve

_URL = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)/?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BRANCH = "main"


class HuggingFaceHub(UpstreamHub):
    """Sources on one server that speaks as the Hugging Face hub does."""

    def __init__(self, patience: RetryPolicy, secrets: Secrets, endpoint: str | None = None) -> None:
        """Make the hub; without an `endpoint` it is that of huggingface_hub, which `HF_ENDPOINT` names."""
        super().__init__(patience)
        self._secrets, self._endpoint = secrets, endpoint
        self._followed: dict[str, str] = {}  # by repository: the commit that `revision` found last

    def revision(self, name: str, dataset: Dataset) -> str:
        repository = self._repository(name, dataset)
        if dataset.follow:
            repository.require_token(self._secrets)
            commit = with_retries(self._patience, lambda: _newest(repository, None)).revision
            self._followed[repository.id] = commit
            return commit
        if not _COMMIT.fullmatch(dataset.version):
            if dataset.files and all(file.sha256 for file in dataset.files):
                # whatever the name comes to mean, other bytes than the pinned ones are refused
                return digest([dataset.version, [file.sha256 for file in dataset.files]])
            raise ConfigError(
                f"dataset {name!r}: version {dataset.version!r} is not a commit, and what it names could change under"
                " us; state the 40 digits of a commit, the sha256 of every file, or `follow: true` for whatever is newest"
            )
        return dataset.version

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        return _newest(self._repository(name, dataset), previous)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        commit, repository = self._commit(name, dataset), self._repository(name, dataset)
        repository.require_token(self._secrets)
        with repository.refusals():
            listing = with_retries(self._patience, lambda: _list(repository, commit))
        return resolve(dataset.url or "", dataset, listing)

    def source(self, name: str, dataset: Dataset, path: str) -> WebFile:
        commit, repository = self._commit(name, dataset), self._repository(name, dataset)
        repository.require_token(self._secrets)
        return repository.file(commit, path)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        with self._repository(name, dataset).refusals():
            return super().fetch(name, dataset, file, target, advance)

    @contextmanager
    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[IO[bytes]]:
        with self._repository(name, dataset).refusals(), super().stream(name, dataset, file) as stream:
            yield stream

    def _commit(self, name: str, dataset: Dataset) -> str:
        if dataset.follow:
            return self._followed.get(self._repository(name, dataset).id) or self.revision(name, dataset)
        self.revision(name, dataset)  # refuses a name that is not pinned
        return dataset.version

    def _repository(self, name: str, dataset: Dataset) -> Repository:
        match = _URL.fullmatch(dataset.url or "")
        if match is None:
            raise ConfigError(
                f"dataset {name!r}: url {dataset.url!r} names no repository;"
                " expected hf://datasets/<owner>/<name>, with its commit as `version`"
            )
        return open_repository(
            "dataset", match[1], f"dataset {name!r}", self._patience, self._secrets, self._endpoint, dataset.terms
        )


def _newest(repository: Repository, previous: Observation | None) -> Observation:
    """Return the newest commit, `previous` where the server says that nothing changed."""
    condition = {"If-None-Match": previous.etag} if previous and previous.etag else {}
    with repository.refusals():
        answer, etag = repository.web.json(f"{repository.api}/revision/{_BRANCH}", condition)
    if answer is None and previous is not None:
        return previous
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise DownloadError(f"{repository.api}: names no commit as its newest; check HF_ENDPOINT")
    return Observation(commit, etag)


def _list(repository: Repository, commit: str) -> dict[str, Facts]:
    """Return what the repository says of all its files."""
    listing: dict[str, Facts] = {}
    url = f"{repository.api}/tree/{commit}?recursive=true"
    while url:
        page, url = _page(repository, url)
        listing |= page
        if len(listing) > MAX_LISTED:
            raise DownloadError(f"{repository.api}: holds more than {MAX_LISTED} files; expected a dataset")
    return listing


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
