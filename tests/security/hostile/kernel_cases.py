"""Programs that want system calls no test needs: ways round the walls, or holes in the kernel behind them."""

from tests.security.hostile.cases import in_group

KERNEL_CASES = in_group(
    "kernel",
    {
        "io_uring": 'attempt("set up", reached, "io_uring_setup", 4, ctypes.create_string_buffer(120))',
        "keyrings": """
        attempt("add_key", reached, "add_key", b"user", MARKER.encode(), b"x", 1, -2)
        attempt("keyctl", reached, "keyctl", 0, -3, 0)
        """,
        "programs_in_the_kernel": """
        attempt("bpf", reached, "bpf", 0, None, 0)
        attempt("perf_event_open", reached, "perf_event_open", None, 0, -1, -1, 0)
        """,
        "faults_in_user_space": """
        attempt("userfaultfd", reached, "userfaultfd", 0x80000)
        attempt("of user space only", reached, "userfaultfd", 0x80001)
        """,
        "compare_processes": 'attempt("kcmp", reached, "kcmp", os.getpid(), os.getpid(), 0, 0, 0)',
        "predictable_addresses": """
        def ask(bits):
            call("personality", bits)
            return call("personality", 0xFFFFFFFF) & bits == bits

        attempt("no random addresses", ask, 0x40000)
        attempt("all that is readable can be run", ask, 0x400000)
        """,
        "files_by_handle": """
        # the root folder of the file system that the working folder lies on
        handle = struct.pack("<IiII", 8, 1, 2, 0)
        attempt("open", reached, "open_by_handle_at", os.open(".", os.O_RDONLY), handle, os.O_RDONLY)
        """,
        "watch_file_systems": """
        for flags in (0, 0x200):
            attempt(f"fanotify {flags:#x}", reached, "fanotify_init", flags, 0)
        """,
        "rights_of_an_administrator": """
        # each fails over its arguments where it is allowed, and changes nothing
        attempt("the name of the machine", reached, "sethostname", None, -1)
        attempt("modules", reached, "finit_module", -1, b"", 0)
        attempt("removal of modules", reached, "delete_module", MARKER.encode(), os.O_NONBLOCK)
        attempt("swap", reached, "swapoff", f"/{MARKER}".encode())
        attempt("ports", reached, "iopl", 3)
        attempt("some ports", reached, "ioperm", 0x80, 1, 1)
        """,
        "log_of_the_kernel": 'attempt("its size", reached, "syslog", 10, None, 0)',
        "typing_into_a_terminal": """
        import fcntl
        for descriptor in (0, 1, 2):
            attempt(f"descriptor {descriptor}", lambda: fcntl.ioctl(descriptor, 0x5412, b" ") is not None)
        """,
        "calls_of_x32": 'attempt("x32", reached, "x32_getpid")',
        "calls_of_32_bits": """
        import mmap

        def enter():
            # mov eax, 20 (getpid); int 0x80; ret
            code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            code.write(bytes.fromhex("b814000000cd80c3"))
            address = ctypes.addressof(ctypes.c_char.from_buffer(code))
            return ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0

        if FACTS["machine"] == "x86_64":
            attempt("getpid", enter)
        else:
            say("TRIED", "nothing: this machine has no such calls")
        """,
        "where_memory_lies": 'attempt("move_pages", reached, "move_pages", 0, 0, None, None, None, 0)',
    },
)
