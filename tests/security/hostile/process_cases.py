"""Programs that want to multiply, to reach other processes, or to have more of the processors."""

from tests.security.hostile.cases import HostileCase, in_group

PROCESS_CASES = in_group(
    "processes",
    {
        "fork_bomb": """
        children = 0
        try:
            while children < 250:
                if os.fork() == 0:
                    time.sleep(1)
                    os._exit(0)
                children += 1
        except OSError as error:
            say("BLOCKED", children, error)
        if children > 2 * LIMITS["processes"]:
            say("ESCAPE", children, "children")
        """,
        "thread_bomb": """
        import threading
        threading.stack_size(1 << 16)
        threads = 0
        try:
            while threads < 250:
                threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
                threads += 1
        except RuntimeError as error:
            say("BLOCKED", threads, error)
        if threads > 2 * LIMITS["processes"]:
            say("ESCAPE", threads, "threads")
        os._exit(0)
        """,
        "kill_everything": """
        if is_apart():
            try:
                os.kill(-1, signal.SIGKILL)
            except OSError as error:
                say("BLOCKED", error)
            time.sleep(0.2)
            say("BLOCKED", "nothing but this was to be reached")
        else:
            # never into a machine: whether it could is seen on the victim
            attempt("a process of the machine", lambda: os.kill(VICTIM, 0) or "may be killed")
        """,
        "kill_the_parent": """
        if PARENT == 0:
            say("BLOCKED", "the parent is outside")
        elif is_apart():
            try:
                os.kill(PARENT, signal.SIGKILL)
            except OSError as error:
                say("BLOCKED", error)
            time.sleep(0.2)
            say("BLOCKED", "it lives, or is nothing but this one's own")
        else:
            attempt("the parent", lambda: os.kill(PARENT, 0) or "may be killed")
        """,
        "signal_a_stranger": """
        def by_descriptor():
            return call("pidfd_send_signal", call("pidfd_open", VICTIM, 0), signal.SIGUSR1, None, 0) == 0

        for number in (0, signal.SIGUSR2, signal.SIGSTOP):
            attempt(f"signal {int(number)}", lambda: os.kill(VICTIM, number) or "sent")
        attempt("by descriptor", by_descriptor)
        attempt("its group", lambda: os.killpg(VICTIM, signal.SIGUSR2) or "sent")
        """,
        "trace_others": """
        def seize(pid):
            # attached, not stopped; it is let go when this process ends
            return call("ptrace", 0x4206, pid, 0, 0) == 0 and "attached"

        for pid in {VICTIM, PARENT} - {0}:
            attempt(f"trace {pid}", seize, pid)
        attempt("be traced", lambda: call("ptrace", 0, 0, 0, 0) == 0)
        """,
        "memory_of_others": """
        def touched(name, pid):
            local = ctypes.create_string_buffer(8)
            here, there = struct.pack("PN", ctypes.addressof(local), 8), struct.pack("PN", 4096, 8)
            # nothing lies at that address: whether reading is allowed shows in the error alone
            return reached(name, pid, here, 1, there, 1, 0)

        for pid in {VICTIM, PARENT} - {0}:
            for name in ("process_vm_readv", "process_vm_writev"):
                attempt(f"{name} {pid}", touched, name, pid)
            attempt(f"memory of {pid} as a file", opened, f"/proc/{pid}/mem", os.O_RDWR)
        """,
        "descriptors_of_others": """
        def take(pid):
            descriptor = call("pidfd_open", pid, 0)
            return [number for number in range(3) if call("pidfd_getfd", descriptor, number, 0) >= 0]

        for pid in {VICTIM, PARENT} - {0}:
            attempt(f"take those of {pid}", take, pid)
            attempt(f"open those of {pid}", lambda: listed(f"/proc/{pid}/fd")[:3])
        """,
        "see_others": HostileCase(
            """
        def seen():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                if FACTS["victim_word"].encode() in held(f"/proc/{pid}/cmdline"):
                    return f"process {pid}"

        attempt("its command line", lambda: FACTS["victim_word"].encode() in held(f"/proc/{VICTIM}/cmdline"))
        attempt("the list of processes", seen)
        """,
            needs="namespaces",
        ),
        "higher_priority": """
        def nicer():
            os.setpriority(os.PRIO_PROCESS, 0, -5)
            return os.getpriority(os.PRIO_PROCESS, 0) < 0

        def real_time():
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            return os.sched_getscheduler(0) == os.SCHED_FIFO

        attempt("priority", nicer)
        attempt("real time", real_time)
        attempt("real time at the disk", lambda: call("ioprio_set", 1, 0, 1 << 13 | 4) == 0)
        """,
        "more_cores": """
        import resource
        began = time.monotonic()
        for _ in range(LIMITS["cores"] + 1):
            if os.fork() == 0:
                try:
                    os.sched_setaffinity(0, range(FACTS["host_cores"]))
                except OSError as error:
                    say("BLOCKED", error)
                while time.monotonic() < began + 1:
                    pass
                os._exit(0)
        for _ in range(LIMITS["cores"] + 1):
            os.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cores = (used.ru_utime + used.ru_stime) / (time.monotonic() - began)
        say("ESCAPE" if cores > 1.3 * LIMITS["cores"] else "BLOCKED", f"{cores:.2f} cores at a time")
        """,
    },
)
