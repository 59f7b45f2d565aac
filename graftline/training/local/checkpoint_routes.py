"""Requests about runs and checkpoints on disk, which no model has to be waited for, and the files that leave the machine.

Addresses of files are signed and expire.
"""

import hashlib
import hmac
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from graftline.core.errors import DataError
from graftline.core.record import RECORD_NAME
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore
from graftline.training.local.lora import read_facts
from graftline.training.local.wire import Route, error_response, json_route, page, read_json

URL_TTL_S = 900


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs addresses of files with a secret that outlives the server."""

    secret: bytes

    def sign(self, base: str, checkpoint: Checkpoint) -> tuple[dict[str, str], datetime]:
        """Return an address for every file of `checkpoint` below `base`, and when they expire."""
        expires = int(time.time()) + URL_TTL_S
        path = f"{checkpoint.run_id}/{checkpoint.kind}/{checkpoint.name}"
        names = sorted(file.name for file in checkpoint.folder.iterdir() if file.name != RECORD_NAME)
        urls = {
            name: f"{base}/{path}/{name}?expires={expires}&signature={self._signature(f'{path}/{name}', expires)}"
            for name in names
        }
        return urls, datetime.fromtimestamp(expires, UTC)

    def refusal(self, file: str, expires: str, signature: str) -> str:
        """Return why `file`, a path of three folders and a name, may not be had; empty where it may."""
        right = self._signature(file, int(expires)) if expires.isdecimal() else ""
        if not right or not hmac.compare_digest(right.encode(), signature.encode()):
            return "the address is not signed by this server; ask for new ones"
        return "the address has expired; ask for new ones" if int(expires) < time.time() else ""

    def _signature(self, file: str, expires: int) -> str:
        return hmac.new(self.secret, f"{file}|{expires}".encode(), hashlib.sha256).hexdigest()


class CheckpointRoutes:
    """Answers from the store alone."""

    def __init__(self, store: CheckpointStore, signer: Signer) -> None:
        self._store, self._signer = store, signer

    def routes(self) -> list[Route]:
        """Return what is answered to who has the key."""
        checkpoint = "training_runs/{run}/checkpoints/{kind}/{name}"
        return [
            json_route("weights_info", self._weights_info),
            ("GET", "training_runs", self._list_runs),
            ("GET", "training_runs/{run}", self._get_run),
            ("GET", "training_runs/{run}/checkpoints", self._list_checkpoints_of_run),
            ("GET", "checkpoints", self._list_checkpoints),
            ("DELETE", checkpoint, self._delete),
            ("GET", f"{checkpoint}/external_weights_urls", self._sign_urls),
            ("PUT", f"{checkpoint}/ttl", self._set_ttl),
        ]

    async def send_file(self, request: Request) -> Response:
        """Answer who has a signed address: the key is not asked for."""
        named, query = request.path_params, request.query_params
        file = f"{named['run']}/{named['kind']}/{named['name']}/{named['file']}"
        if refusal := self._signer.refusal(file, query.get("expires", ""), query.get("signature", "")):
            return error_response(refusal, 403)
        try:
            checkpoint = self._store.existing(self._checkpoint(request))
        except DataError as error:
            return error_response(str(error), 404)
        # its name was signed, so it is one of ours
        return FileResponse(checkpoint.folder / named["file"])

    async def _weights_info(self, body: dict[str, Any]) -> Response:
        facts = read_facts(self._store.files(self._store.parse(body["tinker_path"])))
        info = {key: facts[key] for key in ("base_model", "train_mlp", "train_attn", "train_unembed")}
        return JSONResponse({**info, "is_lora": True, "lora_rank": facts["rank"]})

    async def _list_runs(self, request: Request) -> Response:
        return page(request, "training_runs", self._store.runs())

    async def _get_run(self, request: Request) -> Response:
        return JSONResponse(self._store.run(request.path_params["run"]))

    async def _list_checkpoints_of_run(self, request: Request) -> Response:
        self._store.run(request.path_params["run"])
        return JSONResponse({"checkpoints": self._store.list_checkpoints(request.path_params["run"])})

    async def _list_checkpoints(self, request: Request) -> Response:
        return page(request, "checkpoints", self._store.list_checkpoints()[::-1])

    async def _delete(self, request: Request) -> Response:
        self._store.delete(self._checkpoint(request))
        return Response(status_code=204)

    async def _set_ttl(self, request: Request) -> Response:
        self._store.set_ttl(self._checkpoint(request), (await read_json(request)).get("ttl_seconds"))
        return Response(status_code=204)

    async def _sign_urls(self, request: Request) -> Response:
        checkpoint = self._checkpoint(request)
        self._store.files(checkpoint)
        urls, expires = self._signer.sign(f"{str(request.base_url).rstrip('/')}/files", checkpoint)
        return JSONResponse({"urls": urls, "expires": expires.isoformat()})

    def _checkpoint(self, request: Request) -> Checkpoint:
        named = request.path_params
        return self._store.at(named["run"], named["kind"], named["name"])
