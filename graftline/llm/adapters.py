"""LoRA adapters by name: which ones the actors are to have. A request names one as its model.

The folder of an adapter has to be where the server sees it. vLLM loads one when it is asked to, and forgets it when it is
started again. An embedded server has those that it was started with.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePosixPath

import orjson

from graftline.core.errors import ActorError
from graftline.llm.client import Fault, FaultKind
from graftline.llm.member import Member

_LOAD_S = 120.0


class Adapters:
    """The adapters of a fleet; `are_fixed` where its servers are embedded ones."""

    def __init__(self, folders: Mapping[str, str], are_fixed: bool = False) -> None:
        self._folders = dict(folders)
        self._are_fixed = are_fixed

    def require(self, name: str) -> None:
        """Raise ActorError where `name` is no adapter: an actor has others under names that it was started with."""
        if name not in self._folders:
            names = ", ".join(sorted(self._folders)) or "none"
            raise ActorError(f"adapter {name!r} is unknown; known: {names}; load it, or name it in the fleet")

    async def ensure(self, member: Member, name: str) -> None:
        """See to it that `member` has the adapter; Fault where it does not load it, or was started without it."""
        folder = self._folders.get(name)
        if folder is None:
            raise Fault(FaultKind.REFUSED, f"has no adapter {name!r} any more")
        if member.adapters.get(name) == folder:
            return
        async with member.adapter_lock:
            if member.adapters.get(name) != folder:
                await (_check_has if self._are_fixed else _load)(member, name, folder)
                member.adapters[name] = folder

    async def load(self, name: str, folder: str, members: Sequence[Member]) -> None:
        """Load `name` at all `members` that are in service; the others get it when a request needs it there."""
        self._folders[name] = folder
        for member in members:
            # the folder may be the same, and hold other weights
            member.adapters.pop(name, None)
        await _at_all(
            [member for member in members if member.health.is_in_service], lambda member: self.ensure(member, name)
        )

    async def unload(self, name: str, members: Sequence[Member]) -> None:
        """Forget `name`, here and at all `members` that have it; embedded ones keep it until they end."""
        self._folders.pop(name, None)
        await _at_all([member for member in members if name in member.adapters], lambda member: _unload(member, name))


async def _load(member: Member, name: str, folder: str) -> None:
    # in place: an actor that has it already reads it again rather than refuse
    body = {"lora_name": name, "lora_path": folder, "load_inplace": True}
    try:
        await member.client.post("/load_lora_adapter", orjson.dumps(body), _LOAD_S)
    except Fault as fault:
        message = f"does not load adapter {name!r} from {folder!r}: {fault.message}"
        raise Fault(fault.kind, message, fault.retry_after_s, fault.status) from None


async def _check_has(member: Member, name: str, folder: str) -> None:
    """Check that the embedded server of `member` was started with the adapter in `folder`, which may be relative."""
    content = await member.client.get("/v1/models", _LOAD_S)
    try:
        roots = {
            model["id"]: PurePosixPath(model["root"]) for model in orjson.loads(content)["data"] if model["parent"]
        }
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise Fault(FaultKind.MALFORMED, "answers /v1/models with something else than its models") from None
    target = PurePosixPath(folder)
    parts = target.relative_to(target.anchor).parts
    if name not in roots or roots[name].parts[-len(parts) :] != parts:
        message = f"was started without adapter {name!r} from {folder!r} (it has: {', '.join(sorted(roots)) or 'none'})"
        raise Fault(FaultKind.REFUSED, f"{message}; name the folder in its fleet, and start it again")


async def _unload(member: Member, name: str) -> None:
    async with member.adapter_lock:
        try:
            await member.client.post("/unload_lora_adapter", orjson.dumps({"lora_name": name}), _LOAD_S)
        except Fault as fault:
            if fault.status != HTTPStatus.NOT_FOUND:
                raise Fault(fault.kind, f"does not unload adapter {name!r}: {fault.message}") from None
        member.adapters.pop(name, None)


async def _at_all(members: Sequence[Member], call: Callable[[Member], Awaitable[object]]) -> None:
    """Raises ActorError: a call failed at one of them; the others are made all the same."""
    results = await asyncio.gather(*(call(member) for member in members), return_exceptions=True)
    faults = []
    for member, result in zip(members, results, strict=True):
        if isinstance(result, Fault):
            faults.append(f"actor {member.name!r} {result.message}")
        elif isinstance(result, BaseException):
            raise result
    if faults:
        raise ActorError("; ".join(faults))
