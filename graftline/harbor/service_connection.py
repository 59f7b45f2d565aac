"""The service that commands talk to, and its key: of the environment, `.env` or Vault, or the file that the service made.

A key is never an argument of a command, where other users of the machine could read it.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from graftline.core.errors import ConfigError
from graftline.core.secrets import Secrets
from graftline.harbor.address import KEY_VARIABLES, HarborDeploymentRef, check_url, is_loopback, sendable_key
from graftline.harbor.client import HarborClient
from graftline.harbor.uploader import HarborDeploymentUploader

KEY_FILE = "api_key"


class ServiceConnection(NamedTuple):
    """Where a service is, and its key."""

    url: str
    key: SecretStr

    @property
    def client(self) -> HarborClient:
        """What asks it."""
        return HarborClient(self.url, self.key)

    @property
    def uploader(self) -> HarborDeploymentUploader:
        """What makes its deployments."""
        return HarborDeploymentUploader(self.url, self.key.get_secret_value())

    def deployment(self, id_or_name: str) -> HarborDeploymentRef:
        """Return a deployment of it. Raises ConfigError where that is no name."""
        try:
            return HarborDeploymentRef(id_or_name, self.url, self.key.get_secret_value())
        except ValueError as error:
            raise ConfigError(f"{error}; `graftline env list` shows them") from None


def find_service(url: str, secrets: Secrets, folder: Path) -> ServiceConnection:
    """Return the service at `url`; only one at a loopback address gets the key that a service of this machine left in `folder`.

    Raises:
        ConfigError: the address is none that a key may go to, or there is no key.
    """
    url = check_url(url)
    is_here = is_loopback(urlsplit(url).hostname or "")
    key = next((value for name in KEY_VARIABLES if (value := secrets.get(name))), None)
    path = folder / KEY_FILE
    if key is None and is_here:
        try:
            key = SecretStr(path.read_text("utf-8").strip())
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error}); it is the key that the service made") from None
    if key is None:
        raise ConfigError(
            f"{KEY_VARIABLES[0]}: is not set, and no service of this machine has left its key in {path}; start"
            " `graftline env serve`, or put the key of the service into .env"
        )
    try:
        return ServiceConnection(url, sendable_key(key.get_secret_value()))
    except ValueError as error:
        raise ConfigError(f"{KEY_VARIABLES[0]}: {error}") from None
