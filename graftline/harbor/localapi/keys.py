"""The keys a task app takes, and whether a request has one of them.

A key comes in `X-API-Key`, as one of several in `X-API-Keys` (commas between them), or as a bearer token.
"""

import secrets
from collections.abc import Mapping

from pydantic import SecretStr

from graftline.harbor.refusal import RequestError

KEY_VARIABLE = "ENVIRONMENT_API_KEY"
ALIASES_VARIABLE = "ENVIRONMENT_API_KEY_ALIASES"
"""Further keys, commas between them: while a key is changed, the old and the new one count."""
_MOST_GIVEN = 16


class Keys:
    """The keys of one task app: its own, and those of the environment, as they are when a request comes."""

    def __init__(self, own: SecretStr | None, environment: Mapping[str, str]) -> None:
        self._own, self._environment = own, environment

    def check(self, headers: Mapping[str, str]) -> None:
        """Return if one of the keys is in `headers`.

        Raises:
            RequestError: it is not, or there is no key at all; what was sent is not said back.
        """
        accepted = self._accepted()
        if not accepted:
            raise RequestError(
                "no_key",
                f"this task app needs a key and has none; set {KEY_VARIABLE} where it runs, give LocalAPIConfig an"
                " api_key, or, where nobody else can reach it, require_api_key=False",
            )
        given = _given(headers)
        # all of them, so that the time taken says nothing about which one was nearly right
        matches = [secrets.compare_digest(one, key) for one in given for key in accepted]
        if not any(matches):
            raise RequestError(
                "unauthorized",
                "the key is missing or wrong; send the one of this task app as X-API-Key or as a bearer token",
            )

    def _accepted(self) -> list[bytes]:
        aliases = self._environment.get(ALIASES_VARIABLE, "").split(",")
        texts = [self._own.get_secret_value() if self._own else "", self._environment.get(KEY_VARIABLE, ""), *aliases]
        return [text.strip().encode() for text in texts if text.strip()]


def _given(headers: Mapping[str, str]) -> list[bytes]:
    kind, _, token = headers.get("authorization", "").partition(" ")
    texts = [
        headers.get("x-api-key", ""),
        token if kind.lower() == "bearer" else "",
        *headers.get("x-api-keys", "").split(",", _MOST_GIVEN)[:_MOST_GIVEN],
    ]
    # the bytes as they came: servers hand headers over as Latin-1
    return [text.strip().encode("latin-1", "replace") for text in texts if text.strip()]
