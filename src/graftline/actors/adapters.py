"""LoRA adapters by name: which ones the actors are to have, and loading them where one is missing.

vLLM forgets them when it is started again, so what an actor has is looked up before every request that needs one. The
folder of an adapter has to be where the server sees it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

import orjson

from graftline.actors.fault import Fault, FaultKind
from graftline.actors.member import Member
from graftline.errors import ActorError

_LOAD_S = 120.0


class Adapters:
    """The adapters of a fleet."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = dict(folders)

    def require(self, name: str) -> None:
        """Check that `name` is an adapter: llama.cpp would answer with the bare model.

        Raises:
            ActorError: it is none.
        """
        if name not in self._folders:
            known = ", ".join(sorted(self._folders)) or "none"
            raise ActorError(f"adapter {name!r} is unknown; known: {known}; load it, or name it in the fleet")

    async def ensure(self, member: Member, name: str) -> None:
        """Load the adapter at `member` unless it has it.

        Raises:
            Fault: `member` does not load it.
        """
        folder = self._folders.get(name)
        if folder is None:
            raise Fault(FaultKind.REFUSED, f"has no adapter {name!r} any more")
        if member.adapters.get(name) == folder:
            return
        async with member.adapter_lock:
            if member.adapters.get(name) == folder:
                return
            # in place: an actor that has it already reads it again rather than refuse
            asked = {"lora_name": name, "lora_path": folder, "load_inplace": True}
            try:
                await member.client.post("/load_lora_adapter", orjson.dumps(asked), _LOAD_S)
            except Fault as fault:
                said = f"does not load adapter {name!r} from {folder!r}: {fault.said}"
                raise Fault(fault.kind, said, fault.retry_after_s, fault.status) from None
            member.adapters[name] = folder

    async def load(self, name: str, folder: str, members: Sequence[Member]) -> None:
        """Load `name` at all `members` that are in service; the others get it when a request needs it there.

        Raises:
            ActorError: one of them does not load it.
        """
        self._folders[name] = folder
        for member in members:
            # the folder may be the same, and hold other weights
            member.adapters.pop(name, None)
        await _at_all(
            [member for member in members if member.health.is_in_service], lambda member: self.ensure(member, name)
        )

    async def unload(self, name: str, members: Sequence[Member]) -> None:
        """Forget `name`, here and at all `members` that have it.

        Raises:
            ActorError: one of them does not do it.
        """
        self._folders.pop(name, None)
        await _at_all([member for member in members if name in member.adapters], lambda member: _unload(member, name))


async def _unload(member: Member, name: str) -> None:
    async with member.adapter_lock:
        try:
            await member.client.post("/unload_lora_adapter", orjson.dumps({"lora_name": name}), _LOAD_S)
        except Fault as fault:
            if fault.status != HTTPStatus.NOT_FOUND:
                raise Fault(fault.kind, f"does not unload adapter {name!r}: {fault.said}") from None
        member.adapters.pop(name, None)


async def _at_all(members: Sequence[Member], call: Callable[[Member], Awaitable[None]]) -> None:
    """Raises ActorError: a call failed at one of them; the others are made all the same."""
    results = await asyncio.gather(*(call(member) for member in members), return_exceptions=True)
    said = []
    for member, result in zip(members, results, strict=True):
        if isinstance(result, Fault):
            said.append(f"actor {member.name!r} {result.said}")
        elif isinstance(result, BaseException):
            raise result
    if said:
        raise ActorError("; ".join(said))
