"""Calls of the kernel that Python has no function for: namespaces, mounts, capabilities, and path rules (Landlock).

Imports the standard library only, for a process that confines itself starts with nothing else. What fails is an
`OSError` that names the call. Landlock: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import platform
import signal
import stat
import struct
from collections.abc import Iterable

NEW_MOUNTS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_CAPABILITIES_VERSION = 0x20080522
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the calls of Landlock, of every machine
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_MAKE_DEVICES = 64 | 2048
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_ALL_NETWORK, _ALL_SCOPES = 3, 3
_NUMBERS = {"x86_64": {"clone": 56, "pivot_root": 155}, "aarch64": {"clone": 220, "pivot_root": 41}}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_NOTHING = ctypes.c_long(0)


def end_with_parent() -> None:
    """Have this process killed when its parent ends; a change of user forgets it."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def set_dumpable(is_dumpable: bool) -> None:
    """Say whether others of the same user may look into this process; a change of user says no."""
    _call("prctl", _PR_SET_DUMPABLE, int(is_dumpable), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def refuse_new_privileges() -> None:
    """Give up for good what set-uid programs would bring."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up every capability, and the right to get one back."""
    capability = 0
    # until one that this kernel does not have, or without the right to drop what is not there; not by _call, for each
    # exception takes as long as ten of these
    while _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_long(capability), _NOTHING, _NOTHING, _NOTHING) == 0:
        capability += 1
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def drop_capabilities_but(allowed: frozenset[int]) -> None:
    """Have no program that is started from here get a capability but those that are kept."""
    capability = 0
    while _libc.prctl(_PR_CAPBSET_READ, ctypes.c_long(capability), _NOTHING, _NOTHING, _NOTHING) >= 0:
        if capability not in allowed:
            _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        capability += 1


def unshare(namespaces: int) -> None:
    """Move this process into namespaces of its own; that of processes holds for its children."""
    _call("unshare", namespaces)


def set_host_name(name: bytes) -> None:
    """Name the machine, as this namespace sees it."""
    _call("sethostname", name, len(name))


def fork_into(namespaces: int) -> int:
    """Fork a child that is in new namespaces, the first process of its own where that of processes is among them.

    The C library does not know of this fork: the child should do little but fork again.
    """
    ctypes.pythonapi.PyOS_BeforeFork()
    child = int(_libc.syscall(_number("clone"), ctypes.c_ulong(namespaces | signal.SIGCHLD), None, None, None, None))
    error = ctypes.get_errno()
    if child == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if child < 0:
        raise OSError(error, f"clone: {os.strerror(error)}")
    return child


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mount `source`, or change how it is mounted."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _call("mount", encoded[0], encoded[1], encoded[2], flags, encoded[3])


def mount_memory(target: str, size_bytes: int, files: int, mode: str = "755", flags: int = NO_EXEC) -> None:
    """Mount an empty file system that lives in memory, and holds so much and no more."""
    options = f"size={size_bytes},nr_inodes={files},mode={mode}"
    mount("tmpfs", target, "tmpfs", NO_SETUID | NO_DEVICES | flags, options)


def bind(source: str, target: str, flags: int = READ_ONLY) -> None:
    """Show `source` at `target` as well, with what is mounted below it."""
    mount(source, target, None, BIND | RECURSIVE)
    protect(target, flags)


def protect(target: str, flags: int = READ_ONLY) -> None:
    """Change how `target` is mounted here."""
    change = BIND | REMOUNT | NO_SETUID | flags
    try:
        mount("none", target, None, change | NO_DEVICES)
    except OSError:  # flags that the original has may not be taken away, and one with devices keeps them
        mount("none", target, None, change)


def enter_root(folder: str) -> None:
    """Make `folder`, which must be a mount, the root of this process and of all it can see."""
    os.chdir(folder)
    # old and new root may be the same place; the old one then lies on top of the new one
    # (https://man7.org/linux/man-pages/man2/pivot_root.2.html, "pivot_root(".", ".")")
    _check(_libc.syscall(_number("pivot_root"), b".", b"."), "pivot_root")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has, 0 for none.

    From 4 on TCP is covered, from 6 on signals and abstract sockets.
    """
    return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def restrict_paths(readable: Iterable[str] = (), runnable: Iterable[str] = (), writable: Iterable[str] = ()) -> int:
    """Leave this process only what is below the given paths, no TCP, and no signals to others; return the version.

    What is `runnable` may be read as well, what is `writable` may be read but not run. Paths that do not exist are
    left out. OSError if the kernel has no Landlock, or refuses.
    """
    version = landlock_version()
    if version == 0:
        raise OSError("landlock: the kernel has none")
    handled = (1 << 13) - 1
    handled |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled |= _DEVICE_CONTROL if version >= 5 else 0
    fields = [handled, *([_ALL_NETWORK] if version >= 4 else []), *([_ALL_SCOPES] if version >= 6 else [])]
    rules = struct.pack(f"<{len(fields)}Q", *fields)
    ruleset = _libc.syscall(_CREATE, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint32(0))
    _check(ruleset, "landlock create")
    read = _READ_FILE | _READ_FOLDER
    write = handled & ~(_EXECUTE | _MAKE_DEVICES | _DEVICE_CONTROL)
    for paths, access in ((readable, read), (runnable, read | _EXECUTE), (writable, write)):
        for path in paths:
            _allow_path(ruleset, path, access & handled)
    _check(_libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock restrict")
    os.close(ruleset)
    return version


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        access &= _OF_FILES
    rule = struct.pack("<Qi", access, descriptor)
    _check(_libc.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)), "landlock add")
    os.close(descriptor)


def _number(name: str) -> int:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(f"{name}: the number of the call on {platform.machine()} is not known")
    return numbers[name]


def _call(name: str, *arguments: object) -> None:
    # whole registers: some calls look at all of an argument that is only an int here
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    _check(getattr(_libc, name)(*words), name)


def _check(result: int, name: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
