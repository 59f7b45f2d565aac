"""Programs that want more memory than they were given, or memory that outlives them."""

from graftline.sandbox.base import Verdict
from tests.security.hostile.cases import HostileCase, in_group

MEMORY_CASES = in_group(
    "memory",
    {
        "memory_of_one_process": HostileCase(
            """
        def grow():
            pieces = []
            while len(pieces) * 32 < 2.2 * LIMITS["memory_mb"]:
                pieces.append(b"x" * (32 * MEGABYTE))
            return f"{len(pieces) * 32} MB"

        attempt("fill memory", grow)
        """,
            ends=(Verdict.OUT_OF_MEMORY,),
        ),
        "memory_of_many_processes": HostileCase(
            """
        each, ends = LIMITS["memory_mb"] * 2 // 5, []
        for _ in range(6):
            reader, writer = os.pipe()
            if os.fork() == 0:
                try:
                    held_by_this = b"x" * (each * MEGABYTE)
                    os.write(writer, b"1")
                    time.sleep(2)
                finally:
                    os._exit(0)
            os.close(writer)
            ends.append(reader)
        total = each * sum(os.read(reader, 1) == b"1" for reader in ends)
        say("ESCAPE" if total > 1.5 * LIMITS["memory_mb"] else "BLOCKED", total, "MB at a time")
        """,
            needs="full",
            ends=(Verdict.OUT_OF_MEMORY,),
        ),
        "memory_that_is_a_file": HostileCase(
            """
        def grow(name):
            written = 0
            while written < 1.5 * LIMITS["memory_mb"]:
                descriptor = call(name, MARKER.encode(), 0) if name == "memfd_create" else call(name, 0)
                os.ftruncate(descriptor, 8 * MEGABYTE)
                if name == "memfd_create":
                    written += os.write(descriptor, b"x" * (8 * MEGABYTE)) // MEGABYTE
                else:
                    return "made"
            return f"{written} MB"

        attempt("memfd_create", grow, "memfd_create")
        attempt("memfd_secret", grow, "memfd_secret")
        """,
            ends=(Verdict.OUT_OF_MEMORY,),
        ),
        "shared_memory_left_behind": """
        LIBC.shmat.restype = ctypes.c_void_p

        def leave():
            number = call("shmget", FACTS["shared_key"], 16 * MEGABYTE, 0o1600)
            address = LIBC.shmat(number, None, 0)
            ctypes.memset(address, 1, 16 * MEGABYTE)
            return TRIED

        attempt("a segment", leave)
        attempt("semaphores", lambda: call("semget", FACTS["shared_key"], 1, 0o1600) >= 0 and TRIED)
        attempt("a queue", lambda: call("msgget", FACTS["shared_key"], 0o1600) >= 0 and TRIED)
        """,
        "mapped_and_never_touched": HostileCase(
            """
        import mmap

        def map_much():
            mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
            return "64 GB"

        attempt("map", map_much)
        """,
            needs="none",
        ),
        "locked_memory": """
        def lock():
            block = ctypes.create_string_buffer(64 * MEGABYTE)
            return call("mlock", block, 64 * MEGABYTE) == 0 and "64 MB"

        attempt("lock", lock)
        """,
        "stack_overflow": HostileCase(
            """
        def descend(depth):
            # through C code, whose frames are not counted in every version
            return max([depth + 1], key=descend) if depth < 300_000 else depth

        def overflow():
            sys.setrecursionlimit(1 << 30)
            try:
                return descend(0) < 0
            except RecursionError as error:
                say("BLOCKED", error)

        attempt("descend", overflow)
        """,
            needs="none",
            ends=(Verdict.CRASH, Verdict.OUT_OF_MEMORY),
        ),
        "spared_when_memory_is_short": """
        def ask():
            before = int(held("/proc/self/oom_score_adj"))
            with open("/proc/self/oom_score_adj", "w") as stream:
                stream.write("-1000")
            return int(held("/proc/self/oom_score_adj")) < before

        attempt("be spared", ask)
        """,
        "deep_data": HostileCase(
            """
        def nest():
            try:
                json.loads("[" * 1_000_000)
            except RecursionError:
                pass
            nested = []
            for _ in range(1_000_000):
                nested = [nested]
            del nested  # frees a million levels, one within the other

        attempt("nest", nest)
        """,
            needs="none",
        ),
    },
)
