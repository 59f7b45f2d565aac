"""System call filters: a program in the language of the kernel's packet filter, checked at every call.

Imports the standard library only, for a process that confines itself starts with nothing else. Numbers are those of
x86_64 and of aarch64; on any other machine there is no filter. https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import platform
import struct
from collections.abc import Iterable, Mapping

EPERM, ENOSYS = 1, 38
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in what the filter looks at
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
        "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
        "rt_sigreturn": 15, "ioctl": 16, "access": 21, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28,
        "shmget": 29, "shmat": 30, "shmctl": 31, "dup2": 33, "setitimer": 38, "getpid": 39, "socket": 41, "connect": 42,
        "accept": 43, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53, "setsockopt": 54,
        "clone": 56, "exit": 60, "wait4": 61, "semget": 64, "msgget": 68, "fcntl": 72, "getcwd": 79, "readlink": 89,
        "getrusage": 98, "ptrace": 101, "syslog": 103, "sigaltstack": 131, "uselib": 134, "personality": 135,
        "sched_setparam": 142, "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
        "prctl": 157, "adjtimex": 159, "setrlimit": 160, "chroot": 161, "sync": 162, "acct": 163, "settimeofday": 164,
        "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
        "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179,
        "nfsservctl": 180, "gettid": 186, "futex": 202, "sched_setaffinity": 203, "sched_getaffinity": 204,
        "io_setup": 206, "io_destroy": 207, "io_getevents": 208, "io_submit": 209, "io_cancel": 210,
        "lookup_dcookie": 212, "remap_file_pages": 216, "clock_settime": 227, "clock_gettime": 228, "exit_group": 231,
        "tgkill": 234, "mbind": 237, "set_mempolicy": 238, "mq_open": 240, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "ioprio_set": 251, "inotify_init": 253, "inotify_add_watch": 254,
        "inotify_rm_watch": 255, "migrate_pages": 256, "openat": 257, "newfstatat": 262, "pselect6": 270, "ppoll": 271,
        "unshare": 272, "set_robust_list": 273, "move_pages": 279, "accept4": 288, "dup3": 292, "pipe2": 293,
        "inotify_init1": 294, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "syncfs": 306, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "seccomp": 317,
        "getrandom": 318, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "statx": 332,
        "io_pgetevents": 333, "rseq": 334,
    },
    "aarch64": {
        "io_setup": 0, "io_destroy": 1, "io_submit": 2, "io_cancel": 3, "io_getevents": 4, "getcwd": 17,
        "lookup_dcookie": 18, "dup3": 24, "fcntl": 25, "inotify_init1": 26, "inotify_add_watch": 27,
        "inotify_rm_watch": 28, "ioctl": 29, "ioprio_set": 30, "umount2": 39, "mount": 40, "pivot_root": 41,
        "faccessat": 48, "chroot": 51, "openat": 56, "close": 57, "vhangup": 58, "pipe2": 59, "quotactl": 60,
        "lseek": 62, "read": 63, "write": 64, "pselect6": 72, "ppoll": 73, "readlinkat": 78, "newfstatat": 79,
        "fstat": 80, "sync": 81, "acct": 89, "personality": 92, "exit": 93, "exit_group": 94, "unshare": 97,
        "futex": 98, "set_robust_list": 99, "setitimer": 103, "kexec_load": 104, "init_module": 105,
        "delete_module": 106, "clock_settime": 112, "clock_gettime": 113, "syslog": 116, "ptrace": 117,
        "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_getaffinity": 123,
        "sched_yield": 124, "tgkill": 131, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
        "rt_sigreturn": 139, "reboot": 142, "sethostname": 161, "setdomainname": 162, "setrlimit": 164,
        "getrusage": 165, "prctl": 167, "settimeofday": 170, "adjtimex": 171, "getpid": 172, "gettid": 178,
        "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "shmctl": 195, "shmat": 196, "socket": 198,
        "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203, "sendto": 206, "setsockopt": 208,
        "sendmsg": 211, "brk": 214, "munmap": 215, "mremap": 216, "add_key": 217, "request_key": 218, "keyctl": 219,
        "clone": 220, "mmap": 222, "swapon": 224, "swapoff": 225, "mprotect": 226, "madvise": 233, "mbind": 235,
        "set_mempolicy": 237, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "accept4": 242,
        "wait4": 260, "prlimit64": 261, "fanotify_init": 262, "clock_adjtime": 266, "syncfs": 267, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "sched_setattr": 274,
        "seccomp": 277, "getrandom": 278, "memfd_create": 279, "bpf": 280, "userfaultfd": 282, "statx": 291,
        "io_pgetevents": 292, "rseq": 293, "kexec_file_load": 294,
    },
}  # fmt: skip
# newer calls have one number everywhere
NEW_CALLS: Mapping[str, int] = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "process_mrelease": 448,
    "set_mempolicy_home_node": 450,
}  # fmt: skip
_LAST_KNOWN = 462
"""Of Linux 6.10. What is newer may do anything, and no program needs it."""
HARMFUL = (
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise", "process_mrelease"),
    # namespaces and mounts
    *("mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "move_mount", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr"),
    # what the kernel keeps for all: keys, programs, modules, clocks, names, logs, accounts
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module"),
    *("delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl"),
    *("quotactl_fd", "syslog", "clock_settime", "settimeofday", "adjtimex", "clock_adjtime", "sethostname"),
    *("setdomainname", "fanotify_init", "vhangup", "lookup_dcookie", "nfsservctl", "uselib", "sync", "syncfs"),
    "seccomp",
    # files by handle, past all path rules
    *("name_to_handle_at", "open_by_handle_at"),
    # ways round the refusal of sockets and of files
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # memory that outlives its process or that no limit counts, and where memory and time come from
    *("shmget", "shmat", "semget", "msgget", "mq_open", "memfd_create", "memfd_secret", "migrate_pages", "move_pages"),
    *("mbind", "set_mempolicy", "set_mempolicy_home_node", "sched_setaffinity", "sched_setattr", "sched_setparam"),
    *("sched_setscheduler", "ioprio_set"),
    # what only old programs and attacks ask for
    *("personality", "modify_ldt", "iopl", "ioperm", "remap_file_pages"),
)
"""Calls that no test needs, and that reach beyond a process."""
MISSING = (
    *("io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents"),
    *("inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch"),
    # its flags lie in memory, where a filter cannot look; without it the C library takes clone
    "clone3",
)
"""Calls that a program is told the kernel does not have, for it does without then. Of events of asynchronous input and
output there are so many for the whole machine, of watches of files so many for a user."""
NEW_NAMESPACE = 0x7E020000
"""Every CLONE_NEW… flag that `clone` takes."""
PROT_EXEC, HUGE_PAGES = 4, 0x40000  # of `mprotect` and `mmap`
NO_CORE = 1
"""Bytes of a core file. With 0 the kernel starts the handler that the machine has for them, with 1 it does not
(https://man7.org/linux/man-pages/man5/core.5.html, `fs/coredump.c`)."""
_RLIMIT_CORE = 4
_LEASE, _NOTICE_OF_FOLDERS, _PIPE_SIZE = 1024, 1026, 1031  # F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ
_LOCKS_OF_NOBODY = (37, 38)  # F_OFD_SETLK, F_OFD_SETLKW: the kernel does not say whose they are
_PR_FUTEX_HASH = 78
_SOCKET_FILTERS = (26, 50, 51, 52)  # SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF


_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class Filter:
    """Rules in the order they are added; the first that fits a call decides."""

    def __init__(self) -> None:
        self._machine = platform.machine()
        self._numbers = {**CALLS.get(self._machine, {}), **NEW_CALLS}
        self._program = [
            _instruction(_LOAD, _ARCHITECTURE),
            _instruction(_EQUAL, _ARCHITECTURES.get(self._machine, 0), 1, 0),
            _instruction(_RETURN, _KILL_PROCESS),
            _instruction(_LOAD, _NUMBER),
        ]
        self._compiled: dict[str, tuple[_Program, ctypes.Array[ctypes.c_char]]] = {}
        if self._machine == "x86_64":  # the x32 calls are the same calls under other numbers
            self._program += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _KILL_PROCESS)]

    def allow(self, names: Iterable[str]) -> "Filter":
        """Let calls through; names that the machine does not have are skipped."""
        return self._decide(names, _ALLOW)

    def refuse(self, names: Iterable[str], error: int = EPERM) -> "Filter":
        """Let calls fail with `error`, which the caller may survive."""
        return self._decide(names, _ERRNO | error)

    def refuse_harm(self) -> "Filter":
        """Refuse what reaches beyond a process, and what the kernel has only so much of for all."""
        self.refuse(HARMFUL).refuse(MISSING, ENOSYS).refuse_bits("clone", 0, NEW_NAMESPACE)
        self.refuse_bits("mmap", 3, HUGE_PAGES)
        for command in (_LEASE, _NOTICE_OF_FOLDERS, _PIPE_SIZE, *_LOCKS_OF_NOBODY):
            self.refuse_value("fcntl", 1, command)
        # filters are compiled into memory that the whole machine has so much of, the table of futexes counts for nobody
        for command in (_PR_SET_SECCOMP, _PR_FUTEX_HASH):
            self.refuse_value("prctl", 0, command)
        for option in _SOCKET_FILTERS:
            self.refuse_value("setsockopt", 2, option)
        return self.ignore_limit_of_core_files()

    def ignore_limit_of_core_files(self) -> "Filter":
        """Have the limit of core files stay as it is, though whoever sets it hears of no error: many set it to 0."""
        if "prlimit64" in self._numbers:
            self._program += [
                _instruction(_EQUAL, self._numbers["prlimit64"], 0, 8),
                _instruction(_LOAD, _argument(1)),
                _instruction(_EQUAL, _RLIMIT_CORE, 0, 5),
                _instruction(_LOAD, _argument(2)),  # the address of the new limit; without one it is only read
                _instruction(_EQUAL, 0, 0, 2),
                _instruction(_LOAD, _argument(2) + 4),
                _instruction(_EQUAL, 0, 1, 0),
                _instruction(_RETURN, _ERRNO),
                _instruction(_LOAD, _NUMBER),
            ]
        return self._refuse_if("setrlimit", 0, _instruction(_EQUAL, _RLIMIT_CORE, 0, 1), error=0)

    def refuse_bits(self, name: str, argument: int, bits: int) -> "Filter":
        """Refuse a call when any of `bits` is set in the low half of an argument, counted from 0."""
        return self._refuse_if(name, argument, _instruction(_ANY_BIT, bits, 0, 1))

    def refuse_value(self, name: str, argument: int, value: int) -> "Filter":
        """Refuse a call when an argument, counted from 0, has `value` in its low half."""
        return self._refuse_if(name, argument, _instruction(_EQUAL, value, 0, 1))

    def refuse_unless(self, name: str, argument: int, value: int) -> "Filter":
        """Refuse a call when an argument, counted from 0, has not `value` in its low half."""
        return self._refuse_if(name, argument, _instruction(_EQUAL, value, 1, 0))

    def refuse_unknown(self) -> "Filter":
        """Let calls that are newer than this list fail as if the kernel did not have them."""
        self._program += [_instruction(_AT_LEAST, _LAST_KNOWN + 1, 0, 1), _instruction(_RETURN, _ERRNO | ENOSYS)]
        return self

    def install(self, default_action: str, is_privileged: bool = False) -> bool:
        """Put the filter on this process and all its children for good, and return whether it took hold.

        `default_action` is what becomes of calls that no rule fits: `allow`, or `kill` for the end of the process. A process
        that `is_privileged` over its namespace need not give up for it what set-uid programs bring.
        """
        if self._machine not in CALLS:
            return False
        if not is_privileged and _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        structure, _ = self.compile(default_action)
        status: int = _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(structure), 0, 0)
        return status == 0

    def compile(self, default_action: str) -> tuple["_Program", "ctypes.Array[ctypes.c_char]"]:
        """Return what the kernel takes, made once: whoever forks can have it made before. No rule is added afterwards."""
        if default_action not in self._compiled:
            default = _instruction(_RETURN, _ALLOW if default_action == "allow" else _KILL_PROCESS)
            code = ctypes.create_string_buffer(b"".join([*self._program, default]))
            self._compiled[default_action] = _Program(len(self._program) + 1, ctypes.addressof(code)), code
        return self._compiled[default_action]

    def _refuse_if(self, name: str, argument: int, test: bytes, error: int = EPERM) -> "Filter":
        """Refuse a call if `test`, which looks at an argument, does not jump over what comes next."""
        if name in self._numbers:
            self._program += [
                _instruction(_EQUAL, self._numbers[name], 0, 4),
                _instruction(_LOAD, _argument(argument)),
                test,
                _instruction(_RETURN, _ERRNO | error),
                _instruction(_LOAD, _NUMBER),
            ]
        return self

    def _decide(self, names: Iterable[str], action: int) -> "Filter":
        for number in sorted(self._numbers[name] for name in names if name in self._numbers):
            self._program += [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, action)]
        return self


def _argument(number: int) -> int:
    """Return where the filter finds the low half of an argument, counted from 0; the high one comes after it."""
    return 16 + 8 * number


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)
