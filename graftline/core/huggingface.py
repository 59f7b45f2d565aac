"""Repositories of the Hugging Face hub, and of servers that speak as it does.

Addresses and settings are those of huggingface_hub; the requests are our own, resumed and counted as all others.
Code that lies in a repository is never run. https://huggingface.co/docs/hub
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from graftline.core.errors import ConfigError
from graftline.core.retry import RetryPolicy
from graftline.core.secrets import Secrets
from graftline.core.web import AnswerError, Web, WebFile


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository, of datasets or of a model."""

    kind: Literal["dataset", "model"]
    id: str
    endpoint: str
    asker: str
    """Whom messages name: `dataset 'commits'`."""
    terms: str | None
    """Page on which its terms are accepted; None where it is the repository itself, if there are any."""
    web: Web

    @property
    def api(self) -> str:
        """Where its listings are."""
        return f"{self.endpoint}/api/{self.kind}s/{self.id}"

    @property
    def page(self) -> str:
        """Where people read of it."""
        return f"{self.endpoint}/datasets/{self.id}" if self.kind == "dataset" else f"{self.endpoint}/{self.id}"

    def file(self, revision: str, path: str) -> WebFile:
        """Return one file; its address leads on to where its bytes lie."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.id, path, repo_type=self.kind, revision=revision, endpoint=self.endpoint)
        return WebFile(self.web, url)

    def require_token(self, secrets: Secrets) -> None:
        """Raise ConfigError when terms have to be accepted, and nothing says by whom they were."""
        if self.terms and secrets.get("HF_TOKEN") is None:
            raise ConfigError(f"{self.asker}: HF_TOKEN is not set; {self._how_to_get_in}")

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
                fault = f"the account of HF_TOKEN has not been let in; accept the terms at {self.terms or self.page} with it"
            raise ConfigError(f"{self.asker}: {self.page}: {fault}") from None

    @property
    def _how_to_get_in(self) -> str:
        terms = self.terms or self.page
        return f"accept the terms at {terms}, make a token that may read, and put it into .env or Vault as HF_TOKEN"


def open_repository(
    kind: Literal["dataset", "model"],
    id: str,
    asker: str,
    policy: RetryPolicy,
    secrets: Secrets,
    endpoint: str | None = None,
    terms: str | None = None,
) -> Repository:
    """Return the repository `id`; without an `endpoint` it is that of huggingface_hub, which `HF_ENDPOINT` names.

    Raises:
        ConfigError: the hub may not be asked, or the token cannot be one.
    """
    from huggingface_hub import constants

    if constants.is_offline_mode():
        raise ConfigError(f"{asker}: HF_HUB_OFFLINE forbids to ask its source; unset it, or use a mirror")
    token = secrets.get("HF_TOKEN")
    if token and not (token.get_secret_value().isascii() and token.get_secret_value().isprintable()):
        raise ConfigError("HF_TOKEN: holds a character that no token has; copy it again")
    return Repository(kind, id, (endpoint or constants.ENDPOINT).rstrip("/"), asker, terms, Web(policy, token))
