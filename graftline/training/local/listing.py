"""What is asked about runs and checkpoints that are on disk, and the files of those that leave the machine."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from graftline.core.errors import DataError
from graftline.training.local.answers import detail, json_of, page
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore
from graftline.training.local.exports import Signer
from graftline.training.local.lora import read_facts

Handler = Callable[[Request], Awaitable[Response]]


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
