"""A real S3 protocol server on loopback: moto's, in threads of the test process.

with S3Server() as server:
    store = open_blob_store(server.config("folder"), root, server.secrets)
"""

from typing import Any, Self

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from graftline.core.blobs import FilesystemBlobsConfig
from graftline.core.secrets import EnvironmentSecrets, Secrets

BUCKET = "graftline-test"
SECRET_KEY = "a-secret/key+of-the-bucket"


class S3Server:
    """One server with one empty bucket."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.secrets = Secrets([EnvironmentSecrets({"STORE_KEY": "AKIAGRAFTLINE", "STORE_SECRET": SECRET_KEY})])

    @property
    def url(self) -> str:
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"

    def config(self, folder: str) -> FilesystemBlobsConfig:
        """What opens a folder of the bucket."""
        return FilesystemBlobsConfig(
            url=f"s3://{BUCKET}/{folder}",
            options={"endpoint_url": self.url},
            secrets={"key": "STORE_KEY", "secret": "STORE_SECRET"},
        )

    def objects(self) -> dict[str, bytes]:
        """Everything that is in the bucket, as the server has it."""
        return {name: key.value for name, key in self._backend().buckets[BUCKET].keys.items()}

    def empty(self) -> None:
        """Take everything out of the bucket."""
        self._backend().reset()
        self._backend().create_bucket(BUCKET, "us-east-1")

    def __enter__(self) -> Self:
        self._server.start()
        self.empty()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def _backend(self) -> Any:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
