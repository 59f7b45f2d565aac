"""Homes on the Hugging Face hub, at a pinned commit: `hf://datasets/<owner>/<name>`.

Addresses, headers and the shape of a listing are those of huggingface_hub; the requests are our own, for its listing
waits without a limit of time and reads without one of size (2.4). Code that lies in a repository is never run.
https://huggingface.co/docs/hub/api
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from graftline.datasets.catalogue import Dataset, DatasetFile
from graftline.datasets.hub.base import Advance, Fetched, Observation
from graftline.datasets.hub.download import download
from graftline.datasets.hub.http import WebFile
from graftline.datasets.hub.listing import MAX_LISTED, Facts, resolved
from graftline.datasets.hub.retry import Patience, persistently
from graftline.datasets.hub.stream import streamed
from graftline.datasets.hub.web import AnswerError, Web, shown
from graftline.errors import ConfigError, DatasetError
from graftline.hashing import digest
from graftline.secrets import Secrets

_HOME = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)/?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BRANCH = "main"


class HuggingFaceHub:
    """Homes on one server that speaks as the Hugging Face hub does."""

    def __init__(self, patience: Patience, secrets: Secrets, endpoint: str | None = None) -> None:
        """Make the hub; without an `endpoint` it is that of huggingface_hub, which `HF_ENDPOINT` names."""
        self._patience, self._secrets, self._endpoint = patience, secrets, endpoint
        self._followed: dict[str, str] = {}  # by repository: the commit that `revision` found last

    def revision(self, name: str, dataset: Dataset) -> str:
        repository = self._repository(name, dataset)
        if dataset.follow:
            repository.require_token(self._secrets)
            found = persistently(self._patience, lambda: repository.newest(None))
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
        return self._repository(name, dataset).newest(known)

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return True

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        commit, repository = self._commit(name, dataset), self._repository(name, dataset)
        repository.require_token(self._secrets)
        with repository.refusals():
            listed = persistently(self._patience, lambda: repository.listed(commit))
        return resolved(dataset.home or "", dataset, listed)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Fetched:
        with self._source(name, dataset, file) as source:
            return download(source, file, target, advance, self._patience)

    @contextmanager
    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[IO[bytes]]:
        with self._source(name, dataset, file) as source, streamed(source, file, self._patience) as stream:
            yield stream

    @contextmanager
    def _source(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[WebFile]:
        commit, repository = self._commit(name, dataset), self._repository(name, dataset)
        repository.require_token(self._secrets)
        with repository.refusals():
            yield repository.source(commit, file.path)

    def _commit(self, name: str, dataset: Dataset) -> str:
        if dataset.follow:
            return self._followed.get(self._repository(name, dataset).id) or self.revision(name, dataset)
        self.revision(name, dataset)  # refuses a name that is not pinned
        return dataset.version

    def _repository(self, name: str, dataset: Dataset) -> "_Repository":
        from huggingface_hub import constants

        found = _HOME.fullmatch(dataset.home or "")
        if found is None:
            raise ConfigError(
                f"dataset {name!r}: home {dataset.home!r} names no repository;"
                " expected hf://datasets/<owner>/<name>, with its commit as `version`"
            )
        if constants.is_offline_mode():
            raise ConfigError(f"dataset {name!r}: HF_HUB_OFFLINE forbids to ask its home; unset it, or use a mirror")
        token = self._secrets.get("HF_TOKEN")
        if token and not (token.get_secret_value().isascii() and token.get_secret_value().isprintable()):
            raise ConfigError("HF_TOKEN: holds a character that no token has; copy it again")
        endpoint = (self._endpoint or constants.ENDPOINT).rstrip("/")
        return _Repository(found[1], endpoint, name, dataset.terms, Web(self._patience, token))


@dataclass(frozen=True, slots=True)
class _Repository:
    id: str
    endpoint: str
    dataset: str
    terms: str | None
    web: Web

    @property
    def _api(self) -> str:
        return f"{self.endpoint}/api/datasets/{self.id}"

    @property
    def _page(self) -> str:
        return self.terms or f"{self.endpoint}/datasets/{self.id}"

    def newest(self, known: Observation | None) -> Observation:
        """Return the newest commit, `known` where the server says that nothing changed."""
        condition = {"If-None-Match": known.etag} if known and known.etag else {}
        with self.refusals():
            found, etag = self.web.json(f"{self._api}/revision/{_BRANCH}", condition)
        if found is None and known is not None:
            return known
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise DatasetError(f"{self._api}: names no commit as its newest; check HF_ENDPOINT")
        return Observation(commit, etag)

    def listed(self, commit: str) -> dict[str, Facts]:
        """Return what the repository says of all its files."""
        listed: dict[str, Facts] = {}
        url = f"{self._api}/tree/{commit}?recursive=true"
        while url:
            page, url = self._page_of(url)
            listed |= page
            if len(listed) > MAX_LISTED:
                raise DatasetError(f"{self._api}: holds more than {MAX_LISTED} files; expected a dataset")
        return listed

    def source(self, commit: str, path: str) -> WebFile:
        """Return one file; its address leads on to where its bytes lie."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.id, path, repo_type="dataset", revision=commit, endpoint=self.endpoint)
        return WebFile(self.web, url)

    def require_token(self, secrets: Secrets) -> None:
        """Raise ConfigError when terms have to be accepted, and nothing says by whom they were."""
        if self.terms and secrets.get("HF_TOKEN") is None:
            raise ConfigError(f"dataset {self.dataset!r}: HF_TOKEN is not set; {self._how_to_get_in}")

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Say what to do when the server does not let us in."""
        try:
            yield
        except AnswerError as error:
            if error.status not in (401, 403):
                raise
            if self.web.token is None:
                fault = f"is not open to everybody, or does not exist; {self._how_to_get_in}"
            elif error.status == 401:
                fault = f"HF_TOKEN is refused; {self._how_to_get_in}"
            else:
                fault = f"the account of HF_TOKEN has not been let in; accept the terms at {self._page} with it"
            raise ConfigError(f"dataset {self.dataset!r}: {self.endpoint}/datasets/{self.id}: {fault}") from None

    @property
    def _how_to_get_in(self) -> str:
        return (
            f"accept the terms at {self._page}, make a token that may read, and put it into .env or Vault as HF_TOKEN"
        )

    def _page_of(self, url: str) -> tuple[dict[str, Facts], str]:
        from huggingface_hub.hf_api import RepoFile

        items, following = self.web.page(url)
        try:
            # its constructor, which knows the names of the hub, has no types
            files = [RepoFile(**item) for item in items if item["type"] == "file"]  # type: ignore[no-untyped-call]
            page = {str(file.path): Facts(int(file.size), file.lfs.sha256 if file.lfs else None) for file in files}
        except (KeyError, TypeError, ValueError):
            raise DatasetError(f"{self._api}: does not list its files as expected; check HF_ENDPOINT") from None
        # the token goes along
        if following and not following.startswith(f"{self._api}/"):
            raise DatasetError(f"{self._api}: goes on at {shown(following)}, another place; check HF_ENDPOINT")
        return page, following
