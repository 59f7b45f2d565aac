"""Programs that want to read, alter or leave behind files that are not theirs."""

from tests.security.hostile.cases import HostileCase, in_group

FILE_CASES = in_group(
    "files",
    {
        "read_a_secret": """
        for path in (FACTS["secret"], "/etc/shadow", "/root/.bash_history", "/root/.ssh/id_rsa"):
            attempt(path, lambda: len(held(path)))
        """,
        "read_what_everybody_may": """
        attempt("a file of mode 644", lambda: MARKER.encode() in held(FACTS["open_secret"]))
        attempt("by its folder", lambda: "open_secret" in os.listdir(os.path.dirname(FACTS["open_secret"])))
        """,
        # path rules hide what is in a file, not that there is one
        "see_files_of_the_machine": HostileCase(
            'attempt("stat", lambda: os.stat(FACTS["open_secret"]).st_size)',
            needs="namespaces",
        ),
        "climb_out_of_the_folder": """
        up = "../" * 24
        here = os.open(".", os.O_RDONLY)

        def change():
            os.chdir(up)
            return MARKER.encode() in held(FACTS["open_secret"][1:])

        def descend():
            return os.read(os.open(up + FACTS["open_secret"][1:], os.O_RDONLY, dir_fd=here), 100)

        attempt("by name", lambda: MARKER.encode() in held(up + FACTS["open_secret"][1:]))
        attempt("by folder", change)
        attempt("by descriptor", descend)
        """,
        "roots_of_other_processes": """
        for pid in sorted({"self", "1", str(PARENT), str(VICTIM)}):
            attempt(f"root of {pid}", lambda: MARKER.encode() in held(f"/proc/{pid}/root{FACTS['open_secret']}"))
        for pid in {PARENT, VICTIM}:
            attempt(f"folder of {pid}", lambda: "open_secret" in os.listdir(f"/proc/{pid}/cwd/"))
        """,
        "inherited_descriptors": """
        import stat

        def leads_outside(descriptor):
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
                return stat.filemode(mode)
            return stat.S_ISREG(mode) and os.fstat(descriptor).st_nlink and stat.filemode(mode)

        for descriptor in range(3, 1024):
            try:
                os.fstat(descriptor)
            except OSError:
                continue
            attempt(f"descriptor {descriptor}", leads_outside, descriptor)
        say("BLOCKED", "no other descriptor is open")
        """,
        "own_environment": HostileCase(
            """
        attempt("a variable", lambda: FACTS["canary_variable"] in os.environ)
        attempt("as it was at the start", lambda: FACTS["canary_variable"].encode() in held("/proc/self/environ"))
        """,
            needs="none",
        ),
        "environments_of_others": """
        def told(pid):
            text = held(f"/proc/{pid}/environ")
            return any(canary.encode() in text for canary in FACTS["canaries"])

        for pid in {VICTIM, PARENT, *([1] if is_apart() else [])}:
            attempt(f"of {pid}", told, pid)
        """,
        "write_outside": """
        for folder in FACTS["folders"]:
            try:
                open(f"{folder}/{MARKER}", "x").close()
                say("TRIED", "made a file in", folder)
            except OSError as error:
                say("BLOCKED", folder, error.errno)
        attempt("a file that anybody may write", opened, FACTS["bait"], os.O_WRONLY)
        """,
        "cut_a_file_of_the_machine": """
        attempt("truncate", lambda: os.truncate(FACTS["bait"], 0) or "cut")
        attempt("rename", lambda: os.rename(FACTS["bait"], FACTS["bait"] + "2") or "renamed")
        attempt("remove", lambda: os.unlink(FACTS["bait"]) or "removed")
        """,
        # path rules know of no right to change times, owners and modes
        "touch_a_file_of_the_machine": HostileCase(
            """
        attempt("time", lambda: os.utime(FACTS["bait"]) or "touched")
        attempt("mode", lambda: os.chmod(FACTS["bait"], 0o600) or "changed")
        """,
            needs="namespaces",
        ),
        "alter_the_standard_library": """
        import sysconfig
        compiled = f"{os.path.dirname(os.__file__)}/__pycache__/os.{sys.implementation.cache_tag}.pyc"
        for path in (os.__file__, json.__file__, compiled, sys.executable, os.path.realpath(sys.executable)):
            attempt(path, opened, path, os.O_WRONLY | os.O_APPEND)
        for folder in {os.path.dirname(os.__file__), os.path.dirname(compiled), sysconfig.get_path("purelib")}:
            for name in (MARKER + ".pyc", MARKER + ".pth"):
                attempt(folder, lambda: open(f"{folder}/{name}", "x").close() or "wrote")
        attempt("the running interpreter", opened, "/proc/self/exe", os.O_WRONLY)
        """,
        "hard_links_to_the_machine": """
        for number, path in enumerate((FACTS["bait"], FACTS["open_secret"], os.__file__)):
            attempt(path, lambda: os.link(path, f"hard{number}") or "linked")
        """,
        "next_case_through_a_link": """
        os.unlink("case.py")
        os.symlink(FACTS["bait"], "case.py")
        os.symlink(FACTS["open_folder"], "__pycache__")
        end = time.monotonic() + 3
        if os.fork() == 0:
            rename()
            while time.monotonic() < end:
                for name in ("case.py", "other"):
                    try:
                        os.symlink(FACTS["bait"], name + "2")
                        os.replace(name + "2", name)
                    except OSError:
                        pass
            os._exit(0)
        say("TRIED", "the next case is written over a link")
        """,
        "special_files_as_output": HostileCase(
            """
        os.mkfifo("fifo")
        os.symlink(FACTS["secret"], "link")
        os.symlink("/", "root")
        os.symlink("loop", "loop")
        os.symlink("/dev/zero", "endless")
        attempt("a socket", lambda: os.mknod("socket", 0o140600) or TRIED)
        say("TRIED", "left them for whoever collects outputs")
        """,
            needs="none",
        ),
        "deep_folders": HostileCase(
            """
        depth = 0
        try:
            while depth < 3000:
                os.mkdir("d")
                os.chdir("d")
                depth += 1
        except OSError as error:
            say("BLOCKED", error)
        say("TRIED", depth, "levels are left behind")
        """,
            needs="none",
        ),
        "folders_nobody_may_enter": HostileCase(
            """
        os.makedirs("a/b/c")
        open("a/b/c/f", "w").close()
        os.chmod("a/b/c", 0)
        os.chmod("a", 0)
        say("TRIED", "left a folder of mode 0")
        """,
            needs="none",
        ),
        "odd_names": HostileCase(
            """
        for name in (b"new\\nline", b"esc\\x1b[31m", b"bad\\xff\\xfe", b"-rf", b"--", b"a" * 255, b" ", b"..x", b"con",
                     b"a:b", b"*?", b"$(id)", "\\u202e".encode()):
            try:
                open(name, "w").close()
            except OSError as error:
                say("BLOCKED", error)
        say("TRIED", "left files of odd names")
        """,
            needs="none",
        ),
    },
)
