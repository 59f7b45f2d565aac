"""Frames on a descriptor: a 4-byte big-endian length, and as many bytes.

Imports the standard library only, for the programs of the jail speak it too. The receiver says how long a frame may be;
who waits says how long one may take (`sandbox.inner_process`).
"""

import os
import struct

_CHUNK_BYTES = 1 << 18


def add_length(data: bytes | bytearray) -> bytes:
    """Return `data` with its length before it."""
    return struct.pack(">I", len(data)) + data


def send(descriptor: int, data: bytes | bytearray) -> None:
    """Write one frame."""
    write(descriptor, add_length(data))


def receive(descriptor: int, most: int | None = None) -> bytes | None:
    """Read one frame; None at the end of the input, OverflowError of one of more than so many bytes."""
    head = read(descriptor, 4)
    if head is None:
        return None
    size = size_of(head)
    if most is not None and size > most:
        raise OverflowError(f"a message of {size} bytes; {most} is the most")
    return read(descriptor, size)


def size_of(head: bytes | bytearray) -> int:
    """Return the length that the first four bytes of a frame tell."""
    return int.from_bytes(head[:4], "big")


def read(descriptor: int, length: int) -> bytes | None:
    """Read as many bytes; None if the input ends before."""
    data = bytearray()
    while len(data) < length:
        chunk = os.read(descriptor, min(length - len(data), _CHUNK_BYTES))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def write(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
