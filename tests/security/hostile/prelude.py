"""What stands before every hostile program: words to report with, and system calls by their names.

`{facts}` is replaced by a Python literal of JSON. System calls are numbered for both machines that jails know.
"""

from collections.abc import Mapping

PRELUDE = '''\
import ctypes, errno, json, os, signal, socket, struct, sys, time

FACTS = json.loads({facts})
MARKER, LIMITS, CALLS = FACTS["marker"], FACTS["limits"], FACTS["calls"]
PARENT, VICTIM = os.getppid(), FACTS["victim"]
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
MEGABYTE = 1 << 20
NOT_ALLOWED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOSPC, errno.EUSERS)
TRIED = object()


def say(word, *what):
    """Print one line, at once, whatever became of sys.stdout."""
    text = " ".join(map(str, what)).encode("ascii", "backslashreplace")[:300].replace(b"\\n", b" ")
    os.write(1, word.encode() + b" " + text + b"\\n")


def attempt(what, function, *arguments):
    """Say what became of `function`, run in a child: one that is killed for trying ends alone."""
    child = os.fork()
    if child == 0:
        try:
            found = function(*arguments)
            word = "TRIED" if found is TRIED else "ESCAPE" if found else "BLOCKED"
            say(word, what, "" if found is TRIED else found)
        except (OSError, MemoryError) as error:
            say("BLOCKED", what, repr(error))
        except BaseException as error:
            say("BROKEN", what, repr(error))
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        say("BLOCKED", what, "ended by signal", os.WTERMSIG(status))


def call(name, *arguments):
    """Make a system call and return what it returns; OSError as for those that Python knows."""
    if name not in CALLS:
        raise OSError(errno.ENOSYS, "no such call on this machine")
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(CALLS[name]), *given)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def reached(name, *arguments):
    """Say whether a call got past the question whether it is allowed, even if it failed over its arguments."""
    try:
        return f"returned {call(name, *arguments)}"
    except OSError as error:
        if error.errno in NOT_ALLOWED:
            raise
        return f"failed with {errno.errorcode[error.errno]} only"


def held(path):
    """Return the beginning of a file."""
    with open(path, "rb") as stream:
        return stream.read(1 << 16)


def listed(folder):
    """Return the names in a folder, none where it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def opened(path, flags=os.O_RDONLY):
    """Return that `path` could be opened; OSError where it could not."""
    os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    return "opened"


def runs(*arguments, **more):
    """Start a program, and return its exit code and what it printed."""
    import subprocess
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with subprocess.Popen(arguments, **quiet, **more) as child:
        return child.wait(5), child.stdout.read(1000)


def rename():
    """Have this process known by the marker, for whoever looks for what is left."""
    LIBC.prctl(15, MARKER[:15].encode(), 0, 0, 0)


def marked():
    """Return the processes to be seen that are known by the marker, but for those that have ended."""
    found = []
    for pid in filter(str.isdigit, listed("/proc")):
        try:
            name, _, state = held(f"/proc/{pid}/stat").partition(b") ")
        except OSError:
            continue
        if MARKER[:15].encode() in name and state[:1] not in b"ZX" and int(pid) != os.getpid():
            found.append(pid)
    return found


def is_apart():
    """Return whether this runs in a process namespace of its own, for sure."""
    try:
        return os.readlink("/proc/self/ns/pid") != FACTS["pid_namespace"]
    except OSError:
        return False


open(MARKER, "w").close()
say("RAN")
'''

_CALLS: Mapping[str, tuple[int | None, int | None]] = {
    # on x86_64, on aarch64
    "add_key": (248, 217), "bpf": (321, 280), "capget": (125, 90), "capset": (126, 91), "chroot": (161, 51),
    "clone": (56, 220), "clone3": (435, 435), "delete_module": (176, 106), "fanotify_init": (300, 262),
    "fcntl": (72, 25), "finit_module": (313, 273), "fsopen": (430, 430), "inotify_add_watch": (254, 27),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "io_setup": (206, 0), "io_uring_setup": (425, 425),
    "ioperm": (173, None), "iopl": (172, None), "ioprio_set": (251, 30), "kcmp": (312, 272), "keyctl": (250, 219),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "mlock": (149, 228), "mmap": (9, 222), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239), "mq_open": (240, 180),
    "msgget": (68, 186), "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41), "prctl": (157, 167), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138), "seccomp": (317, 277),
    "semget": (64, 190), "sethostname": (170, 161), "setns": (308, 268), "shmget": (29, 194), "swapoff": (168, 225),
    "sync": (162, 81), "syncfs": (306, 267), "syslog": (103, 116), "timer_create": (222, 107), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "x32_getpid": (0x40000000 | 39, None),
}  # fmt: skip


def calls(machine: str) -> dict[str, int]:
    """Return the numbers of the system calls that `machine` has; none for a machine that jails do not know."""
    column = {"x86_64": 0, "aarch64": 1}.get(machine)
    numbers = {} if column is None else {name: pair[column] for name, pair in _CALLS.items()}
    return {name: number for name, number in numbers.items() if number is not None}
