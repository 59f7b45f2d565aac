"""Checkpoints that leave the machine: addresses that are signed and expire, and files that only their owner can read."""

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graftline.core.errors import DataError
from graftline.core.record import RECORD_NAME
from graftline.training.local.checkpoints import Checkpoint

URL_TTL_S = 900


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs addresses of files with a secret that outlives the server."""

    secret: bytes

    def addresses(self, base: str, checkpoint: Checkpoint) -> tuple[dict[str, str], datetime]:
        """Return an address for every file of `checkpoint` below `base`, and when they expire."""
        expires = int(time.time()) + URL_TTL_S
        where = f"{checkpoint.run_id}/{checkpoint.kind}/{checkpoint.name}"
        names = sorted(path.name for path in checkpoint.folder.iterdir() if path.name != RECORD_NAME)
        urls = {
            name: f"{base}/{where}/{name}?expires={expires}&signature={self._signature(f'{where}/{name}', expires)}"
            for name in names
        }
        return urls, datetime.fromtimestamp(expires, UTC)

    def fault(self, file: str, expires: str, signature: str) -> str:
        """Return why `file`, a path of three folders and a name, may not be had; empty where it may."""
        right = self._signature(file, int(expires)) if expires.isdecimal() else ""
        if not right or not hmac.compare_digest(right.encode(), signature.encode()):
            return "the address is not signed by this server; ask for new ones"
        return "the address has expired; ask for new ones" if int(expires) < time.time() else ""

    def _signature(self, file: str, expires: int) -> str:
        return hmac.new(self.secret, f"{file}|{expires}".encode(), hashlib.sha256).hexdigest()


def recipients_of(keys: Sequence[str]) -> list[Any]:
    """Return whom an export is encrypted for.

    Raises:
        DataError: a key is none of age.
    """
    if not keys:
        return []
    import pyrage

    try:
        return [
            pyrage.x25519.Recipient.from_str(key) if key.startswith("age1") else pyrage.ssh.Recipient.from_str(key)
            for key in keys
        ]
    except (pyrage.RecipientError, ValueError) as error:
        raise DataError(f"age_encryption_recipients holds a key that age cannot use ({error})") from None


def encrypt(folder: Path, recipients: Sequence[Any]) -> None:
    """Put in place of every file in `folder` one that only `recipients` can read."""
    import pyrage

    for path in [*folder.iterdir()]:
        pyrage.encrypt_file(str(path), str(path.with_name(f"{path.name}.age")), recipients)
        path.unlink()
