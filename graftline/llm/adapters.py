"""LoRA adapters of a fleet: a request names one as its model, and the actor that it goes to is to have it.

The folder of an adapter has to be where the server sees it. vLLM loads one when it is asked to, and forgets it when it is
started again. An embedded server has those that it was started with.
"""

from pathlib import PurePosixPath

import orjson

from graftline.llm.client import Fault, FaultKind
from graftline.llm.member import Member

_LOAD_S = 120.0


async def ensure_adapter(member: Member, name: str, folder: str, is_embedded: bool) -> None:
    """See to it that `member` has the adapter `name`; Fault where it does not load it, or was started without it."""
    if name in member.adapters:
        return
    async with member.adapter_lock:
        if name not in member.adapters:
            await (_check_has if is_embedded else _load)(member, name, folder)
            member.adapters.add(name)


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
