"""LoRA adapters by name: which ones the actors are to have, and what a request for one needs.

The folder of an adapter has to be where the server sees it. vLLM loads one when it is asked to, and forgets it when it is
started again, so what an actor has is looked up before every request that needs one. An embedded server has those that it
was started with; it knows them by number, and answers with the bare model where a number is none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any

import orjson

from graftline.actors.fault import Fault, FaultKind
from graftline.actors.member import Member
from graftline.errors import ActorError

_LOAD_S = 120.0
_KNOWN_S = 1.0
"""For which the numbers of an embedded server hold: it takes longer to end, to be started again and to load a model."""


class Adapters:
    """The adapters of a fleet; `are_fixed` where its servers are embedded ones."""

    def __init__(self, folders: Mapping[str, str], are_fixed: bool = False) -> None:
        self._folders = dict(folders)
        self._are_fixed = are_fixed

    def require(self, name: str) -> None:
        """Check that `name` is an adapter: llama.cpp would answer with the bare model.

        Raises:
            ActorError: it is none.
        """
        if name not in self._folders:
            known = ", ".join(sorted(self._folders)) or "none"
            raise ActorError(f"adapter {name!r} is unknown; known: {known}; load it, or name it in the fleet")

    def base_fields(self) -> Mapping[str, Any]:
        """Return what a request for the bare model says beside its name."""
        return _lora(0, 0.0) if self._are_fixed and self._folders else {}

    async def ensure(self, member: Member, name: str) -> Mapping[str, Any]:
        """Load the adapter at `member` unless it has it; return what a request for it says beside its name.

        Raises:
            Fault: `member` does not load it.
        """
        folder = self._folders.get(name)
        if folder is None:
            raise Fault(FaultKind.REFUSED, f"has no adapter {name!r} any more")
        if self._are_fixed:
            return _lora(await _id_of(member, name, folder), 1.0)
        await self._loaded(member, name, folder)
        return {}

    async def _loaded(self, member: Member, name: str, folder: str) -> None:
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
            ActorError: one of them does not load it, or is embedded and was started without it.
        """
        self._folders[name] = folder
        for member in members:
            # the folder may be the same, and hold other weights
            member.adapters.pop(name, None)
        await _at_all(
            [member for member in members if member.health.is_in_service], lambda member: self.ensure(member, name)
        )

    async def unload(self, name: str, members: Sequence[Member]) -> None:
        """Forget `name`, here and at all `members` that have it; embedded ones keep it until they end.

        Raises:
            ActorError: one of them does not do it.
        """
        self._folders.pop(name, None)
        await _at_all([member for member in members if name in member.adapters], lambda member: _unload(member, name))


async def _id_of(member: Member, name: str, folder: str) -> int:
    """Return what the embedded server of `member` calls the adapter in `folder`.

    Raises:
        Fault: it was started without.
    """
    clock = asyncio.get_running_loop().time
    async with member.adapter_lock:
        asked_at = clock()
        if asked_at >= member.adapter_ids_until:
            member.adapter_ids = _ids(await member.client.get("/lora-adapters", _LOAD_S))
            member.adapter_ids_until = asked_at + _KNOWN_S
        wanted = PurePosixPath(folder)
        parts = wanted.relative_to(wanted.anchor).parts
        for file, number in member.adapter_ids.items():
            if PurePosixPath(file).with_suffix("").parts[-len(parts) :] == parts:
                return number
        had = ", ".join(sorted(PurePosixPath(file).stem for file in member.adapter_ids)) or "none"
    said = f"was started without adapter {name!r} from {folder!r} (it has: {had})"
    raise Fault(FaultKind.REFUSED, f"{said}; name the folder in its fleet, and start it again")


def _lora(number: int, scale: float) -> dict[str, Any]:
    # adapters that are not named have a scale of 0. The server looks whether a slot has read a prompt for another one
    # where any is named, and only there may it use what the slot has read
    return {"lora": [{"id": number, "scale": scale}], "cache_prompt": True}


def _ids(content: bytes) -> dict[str, int]:
    try:
        return {str(adapter["path"]): int(adapter["id"]) for adapter in orjson.loads(content)}
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise Fault(FaultKind.MALFORMED, "answers /lora-adapters with something else than its adapters") from None


async def _unload(member: Member, name: str) -> None:
    async with member.adapter_lock:
        try:
            await member.client.post("/unload_lora_adapter", orjson.dumps({"lora_name": name}), _LOAD_S)
        except Fault as fault:
            if fault.status != HTTPStatus.NOT_FOUND:
                raise Fault(fault.kind, f"does not unload adapter {name!r}: {fault.said}") from None
        member.adapters.pop(name, None)


async def _at_all(members: Sequence[Member], call: Callable[[Member], Awaitable[object]]) -> None:
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
