"""The isolation of a case: a root folder with nothing but interpreters and libraries, and what a program gives up.

There are three modes. `namespaces`: users, processes, mounts, network, names and memory objects of its own, a read-only
root, and per case a working folder that lives in memory and is gone with it. `confined`: the file system of the
machine behind path rules, for containers in which no namespace can be had. `bare`: limits only, for those who asked for
it. Imports the standard library only.
"""

import os
import resource
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from graftline.sandbox.inside import kernel
from graftline.sandbox.inside.seccomp import NO_CORE, Filter

WORK, TEMPORARY = "/case/work", "/case/tmp"  # of nobody: the interpreter itself may be below any folder people use
LOGS = "/case/logs"  # of cases that start with a snapshot
LOG_FOLDERS = ("agent", "verifier", "artifacts")
CONTAINER_LINKS = {"/logs": LOGS, "/app": WORK, "/workspace": WORK}
"""Where containers have these folders."""
SHARED_MEMORY, PROCESSES = "/dev/shm", "/proc"
DEVICES = ("null", "zero", "full", "random", "urandom")
SPARE_FILES = 64  # of a folder that a wrapper makes: the folders of cases are in it
_USER = 1000  # inside; outside it is that of the jail, or of whoever runs graftline
_NO_FAMILY, _UNIX = 0xFFFF, 1
_FAKE_TYPING = 0x5412  # TIOCSTI: puts characters into a terminal as if they had been typed
_MEGABYTE = 1 << 20
_PENDING_SIGNALS = 1024  # of the user; timers count
_PROCESS_FLAGS = kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC


def enter_namespaces(settings: Mapping[str, Any]) -> None:
    """Return in the first process of new namespaces, with a root of its own; the processes before wait for its end."""
    user = settings["user"] if settings["user"] is not None else os.getuid()
    group = settings["user"] if settings["user"] is not None else os.getgid()
    if os.getuid() == 0:
        os.setgroups([])
    is_apart, says_apart = os.pipe()
    is_mapped, says_mapped = os.pipe()
    if child := os.fork():
        os.close(says_apart)  # or the child's death would not end what is read
        os.close(is_mapped)
        if not os.read(is_apart, 1):
            _exit_as(child)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{_USER} {user} 1"), ("gid_map", f"{_USER} {group} 1")):
            Path(f"/proc/{child}/{name}").write_text(text, "utf-8")
        os.write(says_mapped, b"1")
        _exit_as(child)
    os.close(is_apart)
    os.close(says_mapped)
    kernel.end_with_parent()
    kernel.unshare(kernel.NEW_USER)
    os.write(says_apart, b"1")
    os.read(is_mapped, 1)
    os.close(says_apart)
    os.close(is_mapped)
    namespaces = kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC | kernel.NEW_UTS | kernel.NEW_NETWORK
    kernel.unshare(namespaces | kernel.NEW_CGROUP)
    # opened as whoever started this: the user of the jail may not be able to walk to an interpreter in somebody's home
    visible = [(path, os.open(path, os.O_PATH)) for path in settings["visible"] if os.path.exists(path)]  # noqa: PTH110
    os.setresgid(_USER, _USER, _USER)
    os.setresuid(_USER, _USER, _USER)
    kernel.end_with_parent()  # a change of user forgets it
    if child := os.fork():
        _exit_as(child)
    kernel.end_with_parent()
    kernel.set_host_name(b"jail")
    _build_root(visible, settings["links"])


def _exit_as(child: int) -> NoReturn:
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _build_root(visible: Sequence[tuple[str, int]], links: Mapping[str, str]) -> None:
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    root = "/tmp"  # it is replaced in these namespaces only
    kernel.mount_memory(root, _MEGABYTE, 4096, flags=0)
    for path, descriptor in visible:
        inside = Path(root + path)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        kernel.bind(f"/proc/self/fd/{descriptor}", str(inside))
        os.close(descriptor)
    for path, target in links.items():
        inside = Path(root + path)
        inside.parent.mkdir(parents=True, exist_ok=True)
        if not inside.is_symlink() and not inside.exists():
            inside.symlink_to(target)
    for name in DEVICES:
        inside = Path(root, "dev", name)
        inside.parent.mkdir(exist_ok=True)
        inside.touch()
        kernel.mount(f"/dev/{name}", str(inside), None, kernel.BIND)
    for folder in (WORK, TEMPORARY, LOGS, SHARED_MEMORY, PROCESSES, "/etc"):
        Path(root + folder).mkdir(parents=True, exist_ok=True)
    if not Path(root, "tmp").exists():
        Path(root, "tmp").symlink_to(TEMPORARY)
    Path(root, "etc", "passwd").write_text(f"user:x:{_USER}:{_USER}::{TEMPORARY}:\n", "utf-8")
    Path(root, "etc", "group").write_text(f"user:x:{_USER}:\n", "utf-8")
    # for the server, which looks at the processes of cases; they have one of their own on top
    kernel.mount("proc", root + PROCESSES, "proc", _PROCESS_FLAGS)
    kernel.enter_root(root)
    kernel.protect("/", kernel.READ_ONLY)
    kernel.mount_memory(TEMPORARY, _MEGABYTE, 64)  # for the server itself; cases mount their own on top


def mount_folders(settings: Mapping[str, Any]) -> None:
    """Give this mount namespace folders of a case that live in memory, and processes of its own."""
    limits = settings["limits"]
    size = limits["disk_mb"] * _MEGABYTE
    kernel.mount_memory(WORK, size, limits["files"], flags=0 if settings["runs_own"] else kernel.NO_EXEC)
    kernel.mount_memory(TEMPORARY, size, limits["files"], "1777")
    if settings["snapshot"] is not None:
        kernel.mount_memory(LOGS, size, limits["files"])
    kernel.mount(TEMPORARY, SHARED_MEMORY, None, kernel.BIND)
    kernel.mount("proc", PROCESSES, "proc", _PROCESS_FLAGS, "hidepid=2,subset=pid")


def mount_code_folders(settings: Mapping[str, Any]) -> None:
    """Give this mount namespace, that of the code under test, another working folder, and its own processes only."""
    limits = settings["limits"]
    kernel.mount_memory(WORK, limits["disk_mb"] * _MEGABYTE, limits["files"])
    kernel.mount("proc", PROCESSES, "proc", _PROCESS_FLAGS, "hidepid=2,subset=pid")


def folder_features(folder: str, limits: Mapping[str, Any]) -> list[str]:
    """Return what the file system of a working folder gives, as names of features."""
    status = os.statvfs(folder)
    features = {
        "no_exec": status.f_flag & os.ST_NOEXEC,
        "disk_limits": status.f_blocks * status.f_frsize <= 2 * (limits["disk_mb"] + 1) * _MEGABYTE,
        "file_limits": 0 < status.f_files <= limits["files"] + SPARE_FILES,
    }
    return [name for name, has_it in features.items() if has_it]


def protect_files(paths: Sequence[str], folder: str) -> None:
    """Have nobody change the files at `paths`, nor move or remove them or the folders between them and `folder`."""
    above = set()
    for path in paths:
        parent = os.path.dirname(path)  # noqa: PTH120
        while parent != folder:
            above.add(parent)
            parent = os.path.dirname(parent)  # noqa: PTH120
    # what something is mounted at stays in place; each once and before what is in it, or mounts double with every file
    for path in sorted(above):
        kernel.mount(path, path, None, kernel.BIND)
    for path in paths:
        kernel.mount(path, path, None, kernel.BIND)
        kernel.protect(path, kernel.READ_ONLY | kernel.NO_EXEC)


def limit(limits: Mapping[str, Any]) -> None:
    """Put the limits of one process on this one, but for memory; those of cores, too."""
    for name, most in (
        (resource.RLIMIT_FSIZE, limits["file_mb"] * _MEGABYTE),
        (resource.RLIMIT_NOFILE, limits["descriptors"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_CORE, NO_CORE),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS),
    ):
        least = _least(most, name)
        resource.setrlimit(name, (least, least))
    most_s = _least(limits["cpu_s"] + 1, resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(limits["cpu_s"], most_s), most_s))
    cores = sorted(os.sched_getaffinity(0))
    first = limits["first_core"] % len(cores)
    os.sched_setaffinity(0, (cores[first:] + cores[:first])[: limits["cores"]])


def _least(most: int, name: int) -> int:
    """Return `most`, or the limit that this process has already, which nobody may raise, where that is less."""
    hard = resource.getrlimit(name)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def limit_memory(limits: Mapping[str, Any], is_interpreter: bool) -> None:
    """Limit the memory of this process."""
    most = limits["memory_mb"] * _MEGABYTE
    # virtual machines reserve far more than they use; what they can write to is what counts
    resource.setrlimit(resource.RLIMIT_AS if is_interpreter else resource.RLIMIT_DATA, (most, most))


def give_up(settings: Mapping[str, Any], folders: Sequence[str], calls: Filter) -> list[str]:
    """Give up privileges, paths and system calls for good; return the names of what took hold.

    `folders` may be written to, the first is the working folder. The order matters: each step needs a right that a
    later one takes.
    """
    kernel.refuse_new_privileges()
    features = ["no_new_privs"]
    if kernel.landlock_version() > 0:
        devices = [f"/dev/{name}" for name in DEVICES]
        # what is runnable is readable, and every path takes its time
        readable = [path for path in settings["visible"] if path not in settings["runnable"]]
        readable += [*devices, "/etc/passwd", "/etc/group"]
        if settings["mode"] == "namespaces":
            readable.append(PROCESSES)
        runnable = [*settings["runnable"], *(folders[:1] if settings["runs_own"] else ())]
        version = kernel.restrict_paths(readable, runnable, [*folders, *devices[:3]])
        features += ["landlock"] + (["signals_kept_in"] if version >= 6 else [])
    with suppress(OSError):
        kernel.drop_capabilities()  # after the paths are open: what root may run can lie below the private folder of another
    if calls.install("allow"):
        features.append("seccomp")
    return features


def foreign_code_filter() -> Filter:
    """Return the system calls that foreign code may make: all but those that reach beyond its processes."""
    calls = Filter().refuse_harm().refuse_unknown()
    calls.refuse_unless("socket", 0, _NO_FAMILY).refuse_unless("socketpair", 0, _UNIX)
    return calls.refuse_value("ioctl", 1, _FAKE_TYPING)
