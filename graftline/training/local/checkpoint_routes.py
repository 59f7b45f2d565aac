"""What is asked about runs and checkpoints that are on disk, and the files of those that leave the machine."""

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from graftline.core.errors import DataError
from graftline.core.record import RECORD_NAME
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore
from graftline.training.local.lora import read_facts
from graftline.training.local.wire import detail, json_of, page

Handler = Callable[[Request], Awaitable[Response]]


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


class Listing:
    """Answers from the store alone, which no model has to be waited for."""

    def __init__(self, store: CheckpointStore, signer: Signer) -> None:
        self._store, self._signer = store, signer

    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Return method, path and handler of what is answered to who has the key."""
        checkpoint = "training_runs/{run}/checkpoints/{kind}/{name}"
        return [
            ("POST", "weights_info", self._weights_info),
            ("GET", "training_runs", self._list_runs),
            ("GET", "training_runs/{run}", self._get_run),
            ("GET", "training_runs/{run}/checkpoints", self._list_of_run),
            ("GET", "checkpoints", self._list_checkpoints),
            ("DELETE", checkpoint, self._delete),
            ("GET", f"{checkpoint}/external_weights_urls", self._urls),
            ("PUT", f"{checkpoint}/ttl", self._set_ttl),
            ("POST", f"{checkpoint}/publish", partial(self._publish, True)),
            ("DELETE", f"{checkpoint}/publish", partial(self._publish, False)),
        ]

    async def file(self, request: Request) -> Response:
        """Answer who has a signed address: the key is not asked for."""
        named, query = request.path_params, request.query_params
        file = f"{named['run']}/{named['kind']}/{named['name']}/{named['file']}"
        if fault := self._signer.fault(file, query.get("expires", ""), query.get("signature", "")):
            return detail(fault, 403)
        try:
            checkpoint = self._store.existing(self._named(request))
        except DataError as error:
            return detail(str(error), 404)
        # its name was signed, so it is one of ours
        return FileResponse(checkpoint.folder / named["file"])

    async def _weights_info(self, request: Request) -> Response:
        checkpoint = self._store.parse((await json_of(request))["tinker_path"])
        facts = read_facts(self._store.files(checkpoint))
        kept = {key: facts[key] for key in ("base_model", "train_mlp", "train_attn", "train_unembed")}
        return JSONResponse({**kept, "is_lora": True, "lora_rank": facts["rank"]})

    async def _list_runs(self, request: Request) -> Response:
        return page(request, "training_runs", self._store.runs())

    async def _get_run(self, request: Request) -> Response:
        return JSONResponse(self._store.run(request.path_params["run"]))

    async def _list_of_run(self, request: Request) -> Response:
        self._store.run(request.path_params["run"])
        return JSONResponse({"checkpoints": self._store.described(request.path_params["run"])})

    async def _list_checkpoints(self, request: Request) -> Response:
        return page(request, "checkpoints", self._store.described()[::-1])

    async def _delete(self, request: Request) -> Response:
        self._store.delete(self._named(request))
        return Response(status_code=204)

    async def _set_ttl(self, request: Request) -> Response:
        self._store.set_ttl(self._named(request), (await json_of(request)).get("ttl_seconds"))
        return Response(status_code=204)

    async def _publish(self, is_public: bool, request: Request) -> Response:
        self._store.set_public(self._named(request), is_public)
        return Response(status_code=204)

    def _named(self, request: Request) -> Checkpoint:
        named = request.path_params
        return self._store.at(named["run"], named["kind"], named["name"])

    async def _urls(self, request: Request) -> Response:
        checkpoint = self._named(request)
        self._store.files(checkpoint)
        urls, expires = self._signer.addresses(f"{str(request.base_url).rstrip('/')}/files", checkpoint)
        return JSONResponse({"urls": urls, "expires": expires.isoformat()})


URL_TTL_S = 900


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
