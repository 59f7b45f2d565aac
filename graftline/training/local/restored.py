"""Checkpoints of the backend of this machine, written again from adapters on disk.

An adapter is kept for as long as its folder is; what it was fetched from may have expired, or been made on another machine.
"""

import json
import shutil
from pathlib import Path

from graftline.core.errors import ConfigError
from graftline.training.local.checkpoints import CheckpointStore
from graftline.training.local.lora import ADAPTER, ADAPTER_CONFIG, FACTS


def restore_checkpoint(store: CheckpointStore, uri: str, adapter: Path) -> None:
    """Write the checkpoint `uri` from the files in `adapter`, without an optimizer, unless it is there; it never expires.

    Raises:
        ConfigError: `adapter` is none of this backend.
        DataError: `uri` is no path of a checkpoint.
    """
    checkpoint = store.parse(uri)
    if store.has(checkpoint):
        return
    if not (adapter / FACTS).is_file():
        raise ConfigError(
            f"{adapter}: was not trained by a backend of this machine (it has no {FACTS}), which cannot go on from it; train"
            " it here, or name a checkpoint by start_from"
        )
    facts = json.loads((adapter / FACTS).read_text("utf-8"))

    def write(folder: Path) -> None:
        for name in (ADAPTER, ADAPTER_CONFIG, FACTS):
            shutil.copyfile(adapter / name, folder / name)

    store.note_run(
        checkpoint.run_id,
        base_model=facts["base_model"],
        model_owner="local",
        is_lora=True,
        lora_rank=facts["rank"],
        user_metadata={"restored_from": adapter.name},
    )
    store.write(checkpoint, write, may_replace=True)
