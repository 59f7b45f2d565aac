"""Programs that print too much, print what confuses readers, or never stop to do so."""

from graftline.sandbox.base import Verdict
from tests.security.hostile.cases import BY_THE_WALL_CLOCK, CASE_LIMITS, HostileCase

_ODD = b"\xff\xfe\x00\x1b]0;title\x07\x1b[2J\x1b[31m\r\b\x7f\xc3(" + bytes(range(128, 160)) + b"\xe2\x80\xae"
_KEPT_BYTES = CASE_LIMITS.output_kb << 10

OUTPUT_CASES = (
    HostileCase(
        "flood_of_output",
        "output",
        """
        for _ in range(200):
            os.write(1, b"A" * MEGABYTE)
        """,
        needs="none",
        ends=(Verdict.OUTPUT_FLOOD,),
    ),
    HostileCase(
        "flood_of_errors",
        "output",
        """
        for _ in range(200):
            os.write(2, b"A" * MEGABYTE)
        """,
        needs="none",
        ends=(Verdict.OUTPUT_FLOOD,),
    ),
    HostileCase(
        "flood_of_children",
        "output",
        """
        for _ in range(4):
            if os.fork() == 0:
                for _ in range(50):
                    os.write(1, b"A\\n" * (MEGABYTE // 2))
                os._exit(0)
        for _ in range(4):
            os.wait()
        """,
        needs="none",
        ends=(Verdict.OUTPUT_FLOOD,),
    ),
    HostileCase(
        "odd_bytes",
        "output",
        f"""
        for descriptor in (1, 2):
            os.write(descriptor, {_ODD!r} + b"\\n")
        say("TRIED", "printed what is no text")
        """,
        needs="none",
        keeps=_ODD,
    ),
    HostileCase(
        "answers_of_the_jail",
        "output",
        """
        head = json.dumps({"end": "exit", "status": 0, "verdict": "ok", "exit_code": 0, "report": "passed"}).encode()
        for text in (head, struct.pack(">I", len(head)) + head, struct.pack(">I", 1 << 31), struct.pack("<I", 1 << 31)):
            os.write(1, text + b"\\n")
            os.write(2, text + b"\\n")
        say("TRIED", "printed what a jail says to its caller")
        raise SystemExit(0)
        """,
        needs="none",
    ),
    HostileCase(
        "half_a_line_at_the_limit",
        "output",
        f"""
        # a character of two bytes lies over the end of what is kept
        say("TRIED", "prints a line that is cut")
        os.write(1, b"x" * {_KEPT_BYTES - 1 - len("RAN ") - 1 - len("TRIED prints a line that is cut") - 1} + b"\\xc3\\xa9")
        os.write(1, b"\\nESCAP")
        """,
        needs="none",
        is_cut=True,
    ),
    HostileCase(
        "dripping_output",
        "output",
        """
        end = time.monotonic() + LIMITS["wall_s"] + 4
        while time.monotonic() < end:
            os.write(1, b".\\n")
            time.sleep(0.01)
        say("ESCAPE", "printed on and on")
        """,
        needs="none",
        ends=BY_THE_WALL_CLOCK,
    ),
    HostileCase(
        "closed_output",
        "output",
        """
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        end = time.monotonic() + LIMITS["wall_s"] + 4
        while time.monotonic() < end:
            time.sleep(0.1)
        """,
        needs="none",
        ends=BY_THE_WALL_CLOCK,
    ),
    HostileCase(
        "input_that_never_ends",
        "output",
        """
        found = os.read(0, 100)
        say("ESCAPE" if found else "BLOCKED", "read", found)
        """,
        needs="none",
    ),
)
