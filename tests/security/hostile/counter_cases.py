"""Programs that want all there is of what the kernel counts for the whole machine, or for all processes of a user.

Not here: what other modules have cases of anyhow, such as processes, memory, descriptors, keys and namespaces;
`docs/sandbox.md` names the case of every counter.
"""

from graftline.sandbox.base import Verdict
from tests.security.hostile.cases import HostileCase, in_group

_SHARED = """
def count_until_refused(make):
    number = 0
    try:
        while number < 5000:
            make()
            number += 1
    except OSError as error:
        say("BLOCKED", number, error)
    return number

FILTER = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000))
PROGRAM = struct.pack("HxxxxxxP", 1, ctypes.addressof(FILTER))

"""

COUNTER_CASES = in_group(
    "counters",
    {
        "events_of_asynchronous_io": 'attempt("room for one", reached, "io_setup", 1, ctypes.byref(ctypes.c_ulong(0)))',
        "watches_of_files": """
        attempt("inotify", reached, "inotify_init1", 0)
        attempt("inotify of old", reached, "inotify_init")
        attempt("a watch", reached, "inotify_add_watch", -1, b".", 2)
        """,
        "leases_and_notices": """
        import fcntl
        attempt("a lease", lambda: fcntl.fcntl(os.open(MARKER, os.O_RDONLY), 1024, fcntl.F_RDLCK) == 0)
        attempt("notices of a folder", lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), 1026, 2) == 0)
        """,
        # each takes memory of the kernel that counts for nobody
        "locks_of_parts_of_files": HostileCase(
            """
        import fcntl
        files = [os.open(f"{MARKER}-{number}", os.O_RDWR | os.O_CREAT) for number in range(40)]
        attempt("of nobody", lambda: fcntl.fcntl(files[0], 37, struct.pack("hhqqi4x", 1, 0, 0, 1, 0)) is not None)
        for number in range(1000):
            for file in files:
                fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * number)
        time.sleep(2)
        say("ESCAPE", "has 40,000 locks")
        """,
            ends=(Verdict.VIOLATION, Verdict.CPU_TIMEOUT),
        ),
        "large_pipes": """
        import fcntl

        def grow():
            size = fcntl.fcntl(os.pipe()[1], 1031, MEGABYTE)
            return size > 1 << 16 and f"{size} bytes"

        def many():
            pipes = count_until_refused(os.pipe)
            return 2 * pipes > LIMITS["descriptors"] and f"{pipes} pipes"

        attempt("grow one", grow)
        attempt("many of them", many)
        """,
        "timers": """
        def make():
            number = count_until_refused(lambda: call("timer_create", 0, None, ctypes.byref(ctypes.c_int())))
            return number > 1024 and f"{number} timers"

        attempt("make them", make)
        """,
        "pending_signals": """
        def send():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
            note = ctypes.create_string_buffer(struct.pack("3i", signal.SIGRTMIN, 0, -1), 128)
            number = count_until_refused(lambda: call("rt_sigqueueinfo", os.getpid(), signal.SIGRTMIN, note))
            return number > 1024 and f"{number} wait"

        attempt("send them", send)
        """,
        "watches_of_descriptors": """
        import select

        def watch():
            half, watches = LIMITS["descriptors"] // 2, 0
            polls = [select.epoll() for _ in range(half - 8)]
            try:
                for _ in range(5000):
                    event = os.eventfd(0)
                    for poll in polls:
                        poll.register(event, select.EPOLLIN)
                        watches += 1
            except OSError as error:
                say("BLOCKED", watches, error)
            return watches > half**2 and f"{watches} watches"

        attempt("watch", watch)
        """,
        "terminals": """
        attempt("a pair", lambda: os.openpty())
        for path in ("/dev/ptmx", "/dev/pts/ptmx"):
            attempt(path, opened, path, os.O_RDWR)
        """,
        "message_queues": """
        # flags of a file that is made to be read and written
        attempt("of POSIX", reached, "mq_open", MARKER.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
        attempt("of System V", reached, "msgget", 0, 0o1600)
        """,
        "keys_on_request": 'attempt("request_key", reached, "request_key", b"user", MARKER.encode(), None, -2)',
        "huge_pages": """
        import mmap
        # there may be none at all, which is another error
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000
        attempt("one", reached, "mmap", 0, 2 * MEGABYTE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        """,
        "compiled_filters": """
        def of_calls():
            LIBC.prctl(38, 1, 0, 0, 0)
            return LIBC.prctl(22, 2, ctypes.c_char_p(PROGRAM), 0, 0) == 0

        def of_a_socket():
            socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 26, PROGRAM)
            return "attached"

        attempt("of calls", of_calls)
        attempt("of calls, by the newer call", lambda: call("seccomp", 1, 0, PROGRAM) == 0)
        attempt("of a socket", of_a_socket)
        """,
        "handler_of_core_files": """
        import resource

        def lowered():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            return "a pipe of the machine would be given it" if resource.getrlimit(resource.RLIMIT_CORE)[0] != 1 else False

        attempt("as it is", lambda: resource.getrlimit(resource.RLIMIT_CORE) != (1, 1) and "a handler is started")
        attempt("lowered", lowered)
        """,
        "table_of_futexes": """
        # a megabyte of the kernel's own; no limit of a process counts it
        attempt("grow it", lambda: LIBC.prctl(78, 1, ctypes.c_ulong(1 << 14), 0, 0) == 0)
        """,
        "flush_of_all_disks": """
        attempt("all", reached, "sync")
        attempt("one", reached, "syncfs", os.open(MARKER, os.O_RDONLY))
        """,
        "limits_that_are_in_place": HostileCase(
            """
        import resource
        most = {"CORE": 1, "FSIZE": LIMITS["file_mb"] * MEGABYTE, "NOFILE": LIMITS["descriptors"], "MEMLOCK": 0,
                "MSGQUEUE": 0, "NICE": 0, "RTPRIO": 0, "SIGPENDING": 1024, "CPU": LIMITS["cpu_s"] + 1,
                "NPROC": 2 * LIMITS["processes"], "AS": LIMITS["memory_mb"] * MEGABYTE}

        def has_more(name):
            hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
            return (hard == resource.RLIM_INFINITY or hard > most[name]) and f"{hard}"

        for name in most:
            attempt(name, has_more, name)
        """,
            needs="none",
        ),
    },
    shared=_SHARED,
)
