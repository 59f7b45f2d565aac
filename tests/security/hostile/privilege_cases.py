"""Programs that want more rights than they were given, or a view of the machine of their own making."""

from tests.security.hostile.cases import in_group

_NAMESPACES = """
NAMESPACES = {"users": 1 << 28, "mounts": 1 << 17, "processes": 1 << 29, "network": 1 << 30, "ipc": 1 << 27,
              "names": 1 << 26, "groups": 1 << 25, "time": 1 << 7}

"""
_CAPABILITIES = """
def capabilities():
    sets = ctypes.create_string_buffer(24)
    call("capget", struct.pack("<Ii", 0x20080522, 0), sets)
    effective, permitted = struct.unpack("<6I", sets.raw)[0::3], struct.unpack("<6I", sets.raw)[1::3]
    return any((*effective, *permitted)) and f"effective {effective}, permitted {permitted}"

"""

PRIVILEGE_CASES = in_group(
    "privileges",
    {
        "new_namespaces": """
        for name, flag in NAMESPACES.items():
            attempt(f"unshare {name}", reached, "unshare", flag)
        """,
        "child_in_a_new_namespace": """
        def clone(flag):
            if call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0) == 0:
                os._exit(0)
            return "made"

        def clone3(flag):
            # flags, descriptor, two addresses, signal, and seven that are not needed
            if call("clone3", struct.pack("11Q", flag, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0), 88) == 0:
                os._exit(0)
            return "made"

        for name in ("users", "mounts", "processes", "network"):
            attempt(f"clone {name}", clone, NAMESPACES[name])
            attempt(f"clone3 {name}", clone3, NAMESPACES[name])
        """,
        "namespaces_of_others": """
        def enter(pid, name):
            return reached("setns", os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), 0)

        for pid in (VICTIM, *([1, PARENT] if is_apart() and PARENT else [])):
            for name in ("user", "mnt", "pid", "net"):
                attempt(f"{name} of {pid}", enter, pid, name)
        """,
        "mount": """
        os.mkdir("m")

        def mount():
            call("mount", MARKER.encode(), b"m", b"tmpfs", 0, None)
            call("umount2", b"m", 2)
            return "mounted"

        attempt("a file system", mount)
        attempt("a new one", reached, "fsopen", b"tmpfs", 0)
        attempt("a copy of the tree", reached, "open_tree", -100, b"/", 1)
        attempt("move one", reached, "move_mount", -100, b"/", -100, b"m", 0)
        attempt("change one", reached, "mount_setattr", -100, b"/", 0, None, 0)
        attempt("take one away", reached, "umount2", f"/{MARKER}".encode(), 0)
        """,
        "another_root": """
        os.mkdir("m")
        attempt("chroot", reached, "chroot", b"m")
        attempt("pivot_root", reached, "pivot_root", f"/{MARKER}".encode(), f"/{MARKER}".encode())
        """,
        "make_devices": """
        # memory of zeros, and what is no device at all
        attempt("character", lambda: os.mknod("zero", 0o20600, os.makedev(1, 5)) or "made")
        attempt("block", lambda: os.mknod("block", 0o60600, os.makedev(1, 5)) or "made")
        """,
        "open_devices": """
        for name in ("vda", "sda", "nvme0n1", "dm-0", "loop0", "loop-control", "kvm", "mem", "port", "kmsg", "fuse",
                     "net/tun", "ptmx", "tty", "tty0", "console", "vsock", "vhost-vsock", "vhost-net", "userfaultfd",
                     "btrfs-control", "dri/card0", "nvidiactl", "input/event0", "hugepages", "cuse", "uinput"):
            attempt(name, opened, f"/dev/{name}")
        """,
        "become_root": """
        def become():
            os.setresuid(0, 0, 0)
            return capabilities()

        def raised():
            call("capset", struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", *[0xFFFFFFFF] * 6))
            return capabilities()

        attempt("as it is", capabilities)
        attempt("as user 0", become)
        attempt("by asking for them", raised)
        attempt("other groups", lambda: os.setgroups([0]) or "set")
        """,
        # a new program of user 0 gets back what its bounding set holds, "no new privileges" or not
        "capabilities_by_starting_a_program": """
        look = '''if True:
            lines = open("/proc/self/status").read().splitlines()
            rights = [line.split()[1] for line in lines if line.startswith(("CapEff", "CapPrm"))]
            raise SystemExit(42 if any(int(bits, 16) for bits in rights) else 0)
        '''

        def start():
            return runs(sys.executable, "-I", "-S", "-c", look)[0] == 42 and "it has some"

        attempt("start one", start)
        """,
        "raise_limits": """
        import resource

        def raised(number):
            before = resource.getrlimit(number)[1]
            if before == resource.RLIM_INFINITY:
                return TRIED
            try:
                resource.setrlimit(number, (before + 1, before + 1))
            except ValueError as error:
                raise OSError(str(error))
            return resource.getrlimit(number)[1] > before

        for name in ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "NOFILE", "NPROC"):
            attempt(name, raised, getattr(resource, f"RLIMIT_{name}"))
        """,
        "confinement_is_for_good": """
        def prctl(*arguments):
            return LIBC.prctl(*arguments, *[0] * (5 - len(arguments)))

        attempt("new privileges were given up", lambda: prctl(39) != 1 and "they were not")
        attempt("system calls are filtered", lambda: prctl(21) != 2 and "they are not")
        attempt("take it back", lambda: prctl(38, 0) == 0 or prctl(22, 0) == 0)
        attempt("keep rights over a change of user", lambda: prctl(47, 2, 21) == 0 and "ambient")
        """,
        "settings_of_the_kernel": """
        # opened, never written
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
                     "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory",
                     "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger", "/proc/irq/0/smp_affinity",
                     "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/kernel/uevent_helper", "/sys/module"):
            attempt(path, opened, path, os.O_WRONLY)
        """,
        "control_groups": """
        top = "/sys/fs/cgroup"
        places = {top}
        try:
            for line in held("/proc/self/cgroup").decode().splitlines():
                _, controllers, path = line.split(":", 2)
                places |= {f"{top}/{controllers}{path}".rstrip("/"), f"{top}{path}".rstrip("/"), f"{top}/{controllers}"}
        except OSError as error:
            say("BLOCKED", error)
        for place in sorted(places):
            for name in ("cgroup.procs", "memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "release_agent"):
                attempt(f"{place}/{name}", opened, f"{place}/{name}", os.O_WRONLY)
            attempt(place, lambda: os.mkdir(f"{place}/{MARKER}") or "made")
        """,
        "memory_of_the_kernel": """
        def addresses():
            return any(int(line.split()[0], 16) for line in held("/proc/kallsyms").splitlines()[:50])

        for path in ("/proc/kcore", "/proc/kmsg", "/sys/kernel/debug", "/sys/kernel/tracing/trace", "/sys/firmware"):
            attempt(path, opened, path)
        attempt("addresses", addresses)
        """,
        "core_file": """
        import resource
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        if os.fork() == 0:
            os.abort()
        status = os.wait()[1]
        found = [name for name in os.listdir(".") if "core" in name]
        say("ESCAPE" if found or os.WCOREDUMP(status) else "BLOCKED", "core files", found)
        for name in found:
            os.unlink(name)
        """,
    },
    shared=_NAMESPACES + _CAPABILITIES,
)
