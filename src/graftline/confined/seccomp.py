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
        "dup2": 33, "setitimer": 38, "getpid": 39, "socket": 41, "connect": 42, "accept": 43, "sendto": 44,
        "sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53, "clone": 56, "exit": 60, "wait4": 61, "fcntl": 72,
        "getcwd": 79, "readlink": 89, "getrusage": 98, "ptrace": 101, "sigaltstack": 131, "pivot_root": 155,
        "prctl": 157, "chroot": 161, "mount": 165, "umount2": 166, "gettid": 186, "futex": 202,
        "sched_getaffinity": 204, "clock_gettime": 228, "exit_group": 231, "tgkill": 234, "add_key": 248,
        "request_key": 249, "keyctl": 250, "openat": 257, "newfstatat": 262, "pselect6": 270, "ppoll": 271,
        "unshare": 272, "set_robust_list": 273, "accept4": 288, "dup3": 292, "pipe2": 293, "perf_event_open": 298,
        "prlimit64": 302, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "getrandom": 318,
        "bpf": 321, "userfaultfd": 323, "statx": 332, "rseq": 334,
    },
    "aarch64": {
        "getcwd": 17, "dup3": 24, "fcntl": 25, "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41,
        "faccessat": 48, "chroot": 51, "openat": 56, "close": 57, "pipe2": 59, "lseek": 62, "read": 63, "write": 64,
        "pselect6": 72, "ppoll": 73, "readlinkat": 78, "newfstatat": 79, "fstat": 80, "exit": 93, "exit_group": 94,
        "unshare": 97, "futex": 98, "set_robust_list": 99, "setitimer": 103, "clock_gettime": 113, "ptrace": 117,
        "sched_getaffinity": 123, "sched_yield": 124, "tgkill": 131, "sigaltstack": 132, "rt_sigaction": 134,
        "rt_sigprocmask": 135, "rt_sigreturn": 139, "getrusage": 165, "prctl": 167, "getpid": 172, "gettid": 178,
        "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203, "sendto": 206,
        "sendmsg": 211, "brk": 214, "munmap": 215, "mremap": 216, "add_key": 217, "request_key": 218, "keyctl": 219,
        "clone": 220, "mmap": 222, "mprotect": 226, "madvise": 233, "perf_event_open": 241, "accept4": 242,
        "wait4": 260, "prlimit64": 261, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
        "getrandom": 278, "bpf": 280, "userfaultfd": 282, "statx": 291, "rseq": 293,
    },
}  # fmt: skip
# newer calls have one number everywhere
NEW_CALLS: Mapping[str, int] = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "mount_setattr": 442,
}  # fmt: skip
NEW_NAMESPACE = 0x7E020000
"""Every CLONE_NEW… flag that `clone` takes."""
PROT_EXEC = 4


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
        if self._machine == "x86_64":  # the x32 calls are the same calls under other numbers
            self._program += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _KILL_PROCESS)]

    def allow(self, names: Iterable[str]) -> "Filter":
        """Let calls through; names that the machine does not have are skipped."""
        return self._decide(names, _ALLOW)

    def refuse(self, names: Iterable[str], error: int = EPERM) -> "Filter":
        """Let calls fail with `error`, which the caller may survive."""
        return self._decide(names, _ERRNO | error)

    def refuse_bits(self, name: str, argument: int, bits: int) -> "Filter":
        """Refuse a call when any of `bits` is set in the low half of an argument, counted from 0."""
        if name in self._numbers:
            self._program += [
                _instruction(_EQUAL, self._numbers[name], 0, 4),
                _instruction(_LOAD, 16 + 8 * argument),
                _instruction(_ANY_BIT, bits, 0, 1),
                _instruction(_RETURN, _ERRNO | EPERM),
                _instruction(_LOAD, _NUMBER),
            ]
        return self

    def install(self, others: str) -> bool:
        """Put the filter on this process and all its children for good, and return whether it took hold.

        `others` is what becomes of calls that no rule fits: `allow`, or `kill` for the end of the process.
        """
        if self._machine not in CALLS:
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        default = _instruction(_RETURN, _ALLOW if others == "allow" else _KILL_PROCESS)
        code = ctypes.create_string_buffer(b"".join([*self._program, default]))

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

        structure = Program(len(self._program) + 1, ctypes.addressof(code))
        status: int = libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(structure), 0, 0)
        return status == 0

    def _decide(self, names: Iterable[str], action: int) -> "Filter":
        for number in sorted(self._numbers[name] for name in names if name in self._numbers):
            self._program += [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, action)]
        return self


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)
