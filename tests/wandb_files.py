"""What runs of W&B leave on disk."""

import struct
from pathlib import Path
from typing import Any


def records_of(folder: Path) -> list[Any]:
    """Return what an offline run holds, as `wandb sync` would send it."""
    from wandb.proto import wandb_internal_pb2

    # a log in the format of LevelDB after a head of 7 bytes: blocks of 32 KiB, pieces with checksum, length and type
    [file] = folder.glob("*.wandb")
    content, at, rest, records = file.read_bytes(), 7, b"", []
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        rest += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its end
            record = wandb_internal_pb2.Record()
            record.ParseFromString(rest)
            records.append(record)
            rest = b""
    return records
