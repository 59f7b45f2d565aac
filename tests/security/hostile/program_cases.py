"""Programs that want to run other programs: those of the machine, or some that they have written themselves."""

from tests.security.hostile.cases import HostileCase, in_group

_TINY = """
def tiny_program():
    # ends with code 42
    code = {"x86_64": "bf2a000000b83c0000000f05", "aarch64": "400580d2a80b80d2010000d4"}[FACTS["machine"]]
    size, start = 120 + len(code) // 2, 0x400000
    machine = {"x86_64": 62, "aarch64": 183}[FACTS["machine"]]
    head = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\\x7fELF", 2, 1, 1, 2, machine, 1, start + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 4096)
    return head + segment + bytes.fromhex(code)

"""
_LIBRARY = """
def copied_library():
    # one that Python loads by itself has no other name under which it might be loaded already
    import _ctypes
    source = _ctypes.__file__
    with open(source, "rb") as stream, open("own.so", "wb") as copy:
        copy.write(stream.read())
    return os.path.abspath("own.so")

"""

PROGRAM_CASES = in_group(
    "programs",
    {
        "programs_of_the_machine": """
        for name in ("sh", "bash", "busybox", "perl", "env", "ls", "cat", "gcc", "cc", "git", "curl", "wget", "ssh", "su",
                     "sudo", "mount", "unshare", "bwrap", "docker", "systemd-run", "gdb"):
            for folder in ("/bin", "/usr/local/bin"):
                attempt(f"{folder}/{name}", lambda: f"ran, {runs(f'{folder}/{name}', '--version')}")
        """,
        "shell_of_the_standard_library": """
        def shell():
            with os.popen("echo $((20 + 3))") as stream:
                return "23" in stream.read()

        attempt("os.system", lambda: os.system("exit 42") == 42 << 8)
        attempt("os.popen", shell)
        """,
        "own_program": """
        for folder in (".", "/tmp", "/dev/shm", "/var/tmp"):
            path = f"{folder}/{MARKER}-program"

            def start():
                with open(path, "wb") as stream:
                    stream.write(tiny_program())
                os.chmod(path, 0o755)
                return runs(path)[0] == 42

            attempt(folder, start)
            if os.path.exists(path):
                os.unlink(path)
        """,
        "own_program_in_memory": """
        def start():
            descriptor = call("memfd_create", MARKER.encode(), 0)
            os.write(descriptor, tiny_program())
            return runs(f"/proc/self/fd/{descriptor}", pass_fds=[descriptor])[0] == 42

        attempt("start it", start)
        """,
        "own_script": """
        def start():
            with open("script", "w") as stream:
                stream.write(f"#!{sys.executable} -IS\\nraise SystemExit(42)\\n")
            os.chmod("script", 0o755)
            return runs("./script")[0] == 42

        attempt("start it", start)
        """,
        # the loader reads a program and is itself what may be run
        "own_program_by_the_loader": HostileCase(
            """
        def start(loader):
            for source in (os.path.realpath(sys.executable), "/usr/bin/true", "/usr/bin/env"):
                if os.path.exists(source) and os.path.getsize(source) < 8 * MEGABYTE:
                    with open(source, "rb") as stream, open("evil", "wb") as copy:
                        copy.write(stream.read())
                    os.chmod("evil", 0o755)
                    # the loader ends with 127 where it cannot
                    code, _ = runs(loader, "./evil", "--version")
                    return code != 127 and f"ran, exit {code}"
            raise OSError("nothing small enough to copy")

        for loader in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux.so.2"):
            attempt(loader, start, loader)
        """,
            needs="namespaces",
            feature="no_exec",
        ),
        "own_library": HostileCase(
            'attempt("load it", lambda: ctypes.CDLL(copied_library()) is not None)',
            needs="namespaces",
            feature="no_exec",
        ),
        "own_library_before_others": HostileCase(
            """
        def start():
            path = copied_library()
            # the loader leaves what it could not finish: what counts is a part that can be run
            look = "print([line.split()[1] for line in open('/proc/self/maps') if 'own.so' in line])"
            code, said = runs(sys.executable, "-I", "-S", "-c", look, env={"LD_PRELOAD": path})
            return code == 0 and b"x" in said

        attempt("start a program with it", start)
        """,
            needs="namespaces",
            feature="no_exec",
        ),
        "written_and_mapped_to_be_run": HostileCase(
            """
        import mmap

        def map_it():
            with open("code", "wb+") as stream:
                stream.write(b"\\xc3" * 4096)
                stream.flush()
                mmap.mmap(stream.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
            return "mapped"

        attempt("map", map_it)
        """,
            needs="namespaces",
            feature="no_exec",
        ),
        "program_with_the_rights_of_its_owner": HostileCase(
            """
        for path in ("/bin/su", "/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/sudo", "/usr/bin/chsh"):
            attempt(path, lambda: os.stat(path).st_mode & 0o6000 and os.access(path, os.X_OK) and "may be started")
        """,
            needs="namespaces",
        ),
    },
    shared=_TINY + _LIBRARY,
)
