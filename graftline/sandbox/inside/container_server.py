"""The first process of a container: a root of its own made of the layers of an image, in which it runs commands.

It is started by root, and speaks frames over its standard input and output:

    in   settings as JSON, once (see `_enter`)
    out  {} once everything stands, or {"error": "..."} and the end
    in   {"op": "run", "words", "env", "folder", "user", "timeout_s", "output"}
    out  {"status", "seconds"} and the end of what was printed; `status` is null where its time was up
    in   {"op": "put", "folder"} and a tar, which is unpacked there
    in   {"op": "unpack"}: the same at / of the archive that the settings name, with the whiteouts of a layer
    in   {"op": "get", "path", "limit"}
    out  {"size"} and a tar of the regular files that are, or are below, the path
    in   {"op": "save"}: the end, after which what was changed is copied to where the settings say

What runs in a container has the user 0 of a user namespace, with the capabilities and calls that container engines leave by
default. It has processes, mounts, names and memory objects of its own, and a network of its own unless the settings share
that of the machine. What a command leaves running goes on until the container ends. Imports the standard library only, and
nothing after the root was changed: what lies in the container is nobody's to believe.
"""

import bz2
import fcntl
import gzip
import io
import json
import lzma
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from graftline.sandbox.inside import kernel
from graftline.sandbox.inside.case_jail import DEVICES, PROCESSES
from graftline.sandbox.inside.files import remove_path
from graftline.sandbox.inside.frames import receive, send
from graftline.sandbox.inside.seccomp import HARMFUL, NEW_NAMESPACE, NO_CORE, Filter

FIRST_USER, USERS = 1 << 20, 1 << 16
"""Users of a container as the machine sees them; those of all containers, for they share the layers of images."""
CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
"""What engines leave by default: owners and modes of files, users, signals, low ports, `chroot`; none over the machine."""
KEPT_BYTES = 1 << 20
"""Of what a command printed; of more, the end."""
_OF_CONTAINERS = frozenset(
    {
        *(
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "kcmp",
            "chroot",
            "sync",
            "syncfs",
            "sethostname",
            "seccomp",
        ),
        *("memfd_create", "shmget", "shmat", "semget", "msgget", "mq_open", "mbind", "set_mempolicy", "migrate_pages"),
        *("move_pages", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "ioprio_set"),
        *("personality", "process_madvise", "pidfd_getfd", "remap_file_pages", "name_to_handle_at", "modify_ldt"),
    }
)
"""Calls that a container may make and the code of a jail may not: they reach no further than its namespaces."""
_DESCRIPTORS = 65536
_LOOK_S = 0.02
_LOADED = (bz2, gzip, lzma)
"""What `tarfile` would look for when the modules of this machine are no longer seen."""
_SIOCSIFFLAGS, _IS_UP = 0x8914, 0x41
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MEMORY_FILES = 1 << 16
_SAVES = 3
"""The status of the process that serves, where what was changed is to be kept."""
_SHOWN_ERRORS = 500


def main() -> None:
    """Make the container as the settings say, then serve until the other side closes."""
    settings = json.loads(receive(0) or b"{}")
    # looking for names would load libraries of the container
    tarfile.pwd = tarfile.grp = None  # type: ignore[attr-defined]
    try:
        archive = open(settings["archive"], "rb") if settings.get("archive") else None  # noqa: PTH123, SIM115
        _enter(settings)
        send(1, b"{}")
        Server(archive).serve()
    except Exception as error:
        send(1, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())


def _enter(settings: Mapping[str, Any]) -> None:
    """Return as the first process of the container; the processes before wait for its end.

    `root` is where its root is mounted, `layers` are folders below `layers_folder`, the topmost first, `upper` is the folder that
    takes what is changed, on the file system in the file `disk` where one is named, `saved` is the new folder that this is
    copied to in the end, and `shares_network` says the rest.
    """
    kernel.end_with_parent()
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    upper = Path(settings["upper"])
    if settings.get("disk"):
        subprocess.run(["mount", "-o", "loop,noatime", settings["disk"], upper.parent], check=True, capture_output=True)
    for folder in (upper, work := upper.with_name("work")):
        folder.mkdir(exist_ok=True)
        os.chown(folder, FIRST_USER, FIRST_USER)
        folder.chmod(0o755)
    os.chdir(settings["layers_folder"])
    options = f"lowerdir={':'.join(settings['layers'])},upperdir={upper},workdir={work}"
    root = settings["root"]
    kernel.mount("overlay", root, "overlay", kernel.NO_DEVICES, options)
    names = Path("/etc/resolv.conf").read_bytes() if settings["shares_network"] else b""
    os.chdir("/")
    is_apart, says_apart = os.pipe()
    is_mapped, says_mapped = os.pipe()
    if child := os.fork():
        os.close(says_apart)
        if os.read(is_apart, 1):
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{child}/{name}").write_text(f"0 {FIRST_USER} {USERS}", "utf-8")
            os.write(says_mapped, b"1")
        status = _wait(child)
        if status == _SAVES:
            # nothing of the container runs any more, and what it changed is seen from outside of its root
            send(1, json.dumps(_save(upper, settings["saved"])).encode())
            send(1, b"")
        os._exit(status)
    kernel.end_with_parent()
    kernel.unshare(kernel.NEW_USER)
    os.write(says_apart, b"1")
    os.read(is_mapped, 1)
    for descriptor in (is_apart, says_apart, is_mapped, says_mapped):
        os.close(descriptor)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    namespaces = kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC | kernel.NEW_UTS | kernel.NEW_CGROUP
    kernel.unshare(namespaces | (0 if settings["shares_network"] else kernel.NEW_NETWORK))
    kernel.end_with_parent()
    if child := os.fork():
        os._exit(_wait(child))
    kernel.end_with_parent()
    kernel.set_host_name(b"container")
    if not settings["shares_network"]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IS_UP))
    _build_root(root, names)
    kernel.set_dumpable(False)


def _build_root(root: str, names: bytes) -> None:
    # a mount of these namespaces, for one that was there before is nobody's to move
    kernel.mount(root, root, None, kernel.BIND)
    os.chdir(root)
    for name in ("proc", "dev", "sys", "tmp", "etc"):
        with suppress(FileExistsError):
            os.mkdir(name)  # noqa: PTH102
            os.chmod(name, 0o1777 if name == "tmp" else 0o755)  # noqa: PTH101
    _mount_devices(f"{root}/dev")
    kernel.mount("proc", f"{root}/proc", "proc", kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC)
    kernel.enter_root(root)
    for path, content in (("/etc/resolv.conf", names), ("/etc/hosts", b"127.0.0.1\tlocalhost container\n")):
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        with suppress(OSError):
            Path(path).write_bytes(content)


def _mount_devices(folder: str) -> None:
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise OSError("/dev of the image is no folder")
    kernel.mount_memory(folder, 1 << 20, 1024, flags=0)
    for name in (*DEVICES, "tty"):
        place = f"{folder}/{name}"
        Path(place).touch()
        kernel.mount(f"/dev/{name}", place, None, kernel.BIND)
    for name, target in (("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2")):
        Path(folder, name).symlink_to(f"{PROCESSES}/{target}")
    for name in ("shm", "pts"):
        Path(folder, name).mkdir()
    kernel.mount_memory(f"{folder}/shm", 1 << 30, _MEMORY_FILES, "1777")
    kernel.mount(
        "devpts", f"{folder}/pts", "devpts", kernel.NO_SETUID | kernel.NO_EXEC, "newinstance,ptmxmode=0666,mode=620"
    )
    Path(folder, "ptmx").symlink_to("pts/ptmx")


def _wait(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _save(upper: Path, target: str | None) -> dict[str, str]:
    """Copy a folder with the owners, links, holes and attributes that make it a layer."""
    if target is None:
        return {}
    copied = subprocess.run(["cp", "-a", upper, target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if copied.returncode == 0:
        return {}
    return {"error": f"what it changed cannot be kept: {copied.stderr.decode('utf-8', 'replace')[-_SHOWN_ERRORS:]}"}


class Server:
    """Answers, one request after the other, from inside the container."""

    def __init__(self, archive: IO[bytes] | None) -> None:
        self._archive = archive
        self._ends: dict[int, int] = {}
        self._calls = _container_filter()
        self._calls.compile("allow")
        signal.signal(signal.SIGCHLD, self._reap)

    def serve(self) -> None:
        """Serve until the other side closes."""
        while (head := receive(0)) is not None:
            request = json.loads(head)
            if request["op"] == "save":
                os._exit(_SAVES)
            body: bytes | None = None
            try:
                match request["op"]:
                    case "run":
                        answer, body = self._run(request)
                    case "put":
                        answer = _unpack(io.BytesIO(receive(0) or b""), request["folder"])
                    case "unpack":
                        answer = _unpack(self._archive or io.BytesIO(), "/")
                    case _:
                        body = _pack(request["path"], request["limit"])
                        answer = {}
            except (OSError, ValueError, OverflowError, RecursionError, tarfile.TarError) as error:
                answer = {"error": str(error) or type(error).__name__}
            send(1, json.dumps(answer).encode())
            send(1, body or b"")

    def _reap(self, *_: object) -> None:
        with suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == 0:
                    return
                self._ends[child] = status

    def _run(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        output = _open_output(request["output"])
        self._ends.clear()
        started = time.monotonic()
        try:
            child = os.fork()
            if child == 0:
                self._become(request, output)
            deadline = started + request["timeout_s"]
            while child not in self._ends and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            is_over = child in self._ends
            if not is_over:
                with suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(self._ends[child]) if is_over else None
            seconds = time.monotonic() - started
            size = os.fstat(output).st_size
            return {"status": status, "seconds": seconds}, os.pread(output, KEPT_BYTES, max(0, size - KEPT_BYTES))
        finally:
            os.close(output)

    def _become(self, request: Mapping[str, Any], output: int) -> NoReturn:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            nothing = os.open("/dev/null", os.O_RDONLY)
            for target, descriptor in enumerate((nothing, output, output)):
                os.dup2(descriptor, target)
            os.closerange(3, 4096)
            environment = {str(name): str(value) for name, value in request["env"].items()}
            user, group, groups, home = _user_of(request["user"])
            environment.setdefault("HOME", home)
            with suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("500", "ascii")
            for name, most in ((resource.RLIMIT_CORE, NO_CORE), (resource.RLIMIT_NOFILE, _DESCRIPTORS)):
                with suppress(ValueError, OSError):
                    resource.setrlimit(name, (most, most))
            kernel.drop_capabilities_but(CAPABILITIES)
            # while there is the right to do so without giving up what set-uid programs bring
            self._calls.install("allow", is_privileged=True)
            os.setgroups(groups)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            os.chdir(request["folder"])
            os.umask(0o022)
            os.execvpe(request["words"][0], request["words"], environment)
        except BaseException as error:
            os.write(2, f"{request['words'][0]}: cannot be started: {error}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _container_filter() -> Filter:
    calls = Filter().refuse(name for name in HARMFUL if name not in _OF_CONTAINERS)
    # its flags lie in memory, where a filter cannot look; without it the C library takes clone
    return calls.refuse(("clone3",), error=38).refuse_bits("clone", 0, NEW_NAMESPACE).refuse_unknown()


def _open_output(path: str) -> int:
    """Return a new file that is at `path`, whatever was there before; one without a name where none is given."""
    if not path:
        return os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_APPEND, 0o666)


def _user_of(name: str) -> tuple[int, int, list[int], str]:
    """Return user, group, further groups and home of `user`, `user:group` or their numbers, by the container's own files."""
    named, _, named_group = name.partition(":")
    user, group, login, home = 0, 0, "root", "/root"
    rows = _rows("/etc/passwd", 6)
    if named:
        row = next((row for row in rows if named in (row[0], row[2])), None)
        if row is None and not named.isdigit():
            raise OSError(f"user {named!r} is not in /etc/passwd of the image")
        user, group, login, home = (int(row[2]), int(row[3]), row[0], row[5]) if row else (int(named), 0, "", "/")
    else:
        home = next((row[5] for row in rows if row[2] == "0"), home)
    groups = _rows("/etc/group", 3)
    if named_group:
        row = next((row for row in groups if named_group in (row[0], row[2])), None)
        group = int(row[2]) if row else int(named_group)
    more = [int(row[2]) for row in groups if len(row) > 3 and login in row[3].split(",")]
    return user, group, more, home or "/"


def _rows(path: str, fields: int) -> list[list[str]]:
    try:
        lines = Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [row for line in lines if len(row := line.split(":")) >= fields]


def _unpack(archive: IO[bytes], folder: str) -> dict[str, Any]:
    """Unpack a tar into a folder of the container; whiteouts of the layers of images remove what they name."""
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    count = 0
    with tarfile.open(fileobj=archive, mode="r:*") as tar:
        for member in tar:
            place = Path(folder, member.name.lstrip("/"))
            if place.name == _OPAQUE:
                for entry in place.parent.iterdir() if place.parent.is_dir() else ():
                    _remove(entry)
            elif place.name.startswith(_WHITEOUT):
                _remove(place.with_name(place.name.removeprefix(_WHITEOUT)))
            elif member.isreg() or member.isdir() or member.issym() or member.islnk():
                if not member.isdir() and (place.is_symlink() or place.exists()):
                    _remove(place)
                elif member.isdir() and place.is_symlink() and not place.is_dir():
                    place.unlink()
                tar.extract(member, folder, numeric_owner=True, filter=_as_it_is)
                count += 1
    return {"count": count}


def _as_it_is(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    # nothing can lead out of the container; set-uid bits are part of an image
    if ".." in Path(member.name).parts:
        raise tarfile.TarError(f"{member.name!r} leads out of its folder")
    member.name = member.name.lstrip("/")
    return member


def _remove(path: Path) -> None:
    # what is mounted, as /dev and /proc are, is not of the image
    if not path.is_mount():
        with suppress(FileNotFoundError, NotADirectoryError):
            remove_path(str(path))


def _pack(path: str, limit: int) -> bytes:
    """Return a tar of the regular files and the folders that are at, or below, `path`, named relative to it."""
    archive, remaining = io.BytesIO(), limit
    top = Path(path)
    if not top.exists() or top.is_symlink():
        return b""
    # a file of several names is one under each of them
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        for file in paths:
            if file.is_symlink() or not (file.is_file() or file.is_dir()):
                continue
            member = tar.gettarinfo(file, arcname=file.name if file == top else str(file.relative_to(top)))
            if member.isdir():
                tar.addfile(member)
            if not member.isreg():
                continue
            remaining -= member.size
            if remaining < 0:
                raise OverflowError(f"{path}: more than {limit} bytes")
            with file.open("rb") as stream:
                tar.addfile(member, stream)
    return archive.getvalue()
