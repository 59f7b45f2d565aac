"""Calls of the kernel that Python has no function for: namespaces, mounts, capabilities.

Imports the standard library only, for a process that confines itself starts with nothing else. What fails is an
`OSError` that names the call.
"""

import ctypes
import os
import platform
import signal

NEW_MOUNTS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 38, 36
_CAPABILITIES_VERSION = 0x20080522
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
    if _libc.syscall(_number("pivot_root"), b".", b".") != 0:
        _fail("pivot_root")
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def _number(name: str) -> int:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(f"{name}: the number of the call on {platform.machine()} is not known")
    return numbers[name]


def _call(name: str, *arguments: object) -> None:
    # whole registers: some calls look at all of an argument that is only an int here
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    if getattr(_libc, name)(*words) < 0:
        _fail(name)


def _fail(name: str) -> None:
    error = ctypes.get_errno()
    raise OSError(error, f"{name}: {os.strerror(error)}")
