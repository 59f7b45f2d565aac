"""Landlock: path rules that a process puts on itself and its children (https://docs.kernel.org/userspace-api/landlock.html).

Imports the standard library only, for a process that confines itself starts with nothing else.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # of every machine
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_MAKE_DEVICES = 64 | 2048
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_ALL_NETWORK, _ALL_SCOPES = 3, 3

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def version() -> int:
    """Return the version of the interface that the kernel has, 0 for none.

    From 4 on TCP is covered, from 6 on signals and abstract sockets.
    """
    return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def restrict(readable: Iterable[str] = (), runnable: Iterable[str] = (), writable: Iterable[str] = ()) -> int:
    """Leave this process only what is below the paths given, no TCP, and no signals to others; return the version.

    What is `runnable` may be read as well, what is `writable` may be read but not run. Paths that are not there are
    left out.

    Raises:
        OSError: the kernel has no Landlock, or refuses.
    """
    known = version()
    if known == 0:
        raise OSError("landlock: the kernel has none")
    handled = (1 << 13) - 1
    handled |= (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0) | (_DEVICE_CONTROL if known >= 5 else 0)
    fields = [handled, *([_ALL_NETWORK] if known >= 4 else []), *([_ALL_SCOPES] if known >= 6 else [])]
    rules = struct.pack(f"<{len(fields)}Q", *fields)
    ruleset = _checked(_libc.syscall(_CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0)), "create")
    read = _READ_FILE | _READ_FOLDER
    write = handled & ~(_EXECUTE | _MAKE_DEVICES | _DEVICE_CONTROL)
    for paths, access in ((readable, read), (runnable, read | _EXECUTE), (writable, write)):
        for path in paths:
            _allow(ruleset, path, access & handled)
    _checked(_libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "restrict")
    os.close(ruleset)
    return known


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        access &= _OF_FILES
    rule = struct.pack("<Qi", access, descriptor)
    _checked(_libc.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)), "add")
    os.close(descriptor)


def _checked(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"landlock {what}: {os.strerror(error)}")
    return result
