"""Programs that want more disk, files or descriptors than they were given."""

from tests.security.hostile.cases import HostileCase, in_group

_FILL = """
def fill(folder):
    # three times the limit at most, and gone afterwards
    names, written = [], 0
    try:
        while written < 3 * LIMITS["disk_mb"]:
            names.append(f"{folder}/{MARKER}-{len(names)}")
            with open(names[-1], "wb", buffering=0) as stream:
                for _ in range(8):
                    if stream.write(b"x" * MEGABYTE) < MEGABYTE:
                        raise OSError("a part was written")
                    written += 1
    except OSError as error:
        say("BLOCKED", folder, error)
    finally:
        for name in names:
            if os.path.exists(name):
                os.unlink(name)
    return written > 2 * LIMITS["disk_mb"] and f"{written} MB"

"""

DISK_CASES = in_group(
    "disk",
    {
        "fill_the_working_folder": HostileCase(
            'attempt("fill it", fill, ".")',
            needs="namespaces",
        ),
        "fill_temporary_folders": HostileCase(
            """
        for folder in sorted({"/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", os.environ.get("TMPDIR", "/tmp")}):
            attempt("fill it", fill, folder)
        """,
            needs="namespaces",
        ),
        "one_large_file": """
        def grow():
            with open("large", "wb", buffering=0) as stream:
                while stream.tell() < 3 * LIMITS["file_mb"] * MEGABYTE:
                    stream.write(b"x" * MEGABYTE)
            return "written"

        attempt("write it", grow)
        """,
        "sparse_file": """
        attempt("cut to 100 GB", lambda: os.truncate(MARKER, 100 << 30) or "there it is")
        attempt("reserve 100 GB", lambda: os.posix_fallocate(os.open(MARKER, os.O_RDWR), 99 << 30, MEGABYTE) or "reserved")
        """,
        "many_files": HostileCase(
            """
        made = 0
        try:
            while made < 4 * LIMITS["files"]:
                open(f"f{made}", "w").close()
                made += 1
        except OSError as error:
            say("BLOCKED", made, error)
        if made > 2 * LIMITS["files"]:
            say("ESCAPE", made, "files")
        """,
            needs="namespaces",
            feature="file_limits",
        ),
        "many_descriptors": """
        def open_all():
            for number in range(5000):
                try:
                    os.open(MARKER, os.O_RDONLY)
                except OSError as error:
                    say("BLOCKED", number, error)
                    return number > 2 * LIMITS["descriptors"]
            return "5000 descriptors"

        attempt("open them", open_all)
        """,
        # a descriptor that was sent and not received is open, and counts for nobody
        "descriptors_on_their_way": """
        def send_all():
            one, other = socket.socketpair()
            one.setblocking(False)
            for number in range(5000):
                try:
                    socket.send_fds(one, [b"x"], [0] * 8)
                except OSError as error:
                    say("BLOCKED", 8 * number, error)
                    return 8 * number > 16 * LIMITS["descriptors"] and f"{8 * number} on their way"
            return "40000 descriptors"

        attempt("send them", send_all)
        """,
    },
    shared=_FILL,
)
