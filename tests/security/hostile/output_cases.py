"""Programs that print too much, print what confuses readers, or never stop to do so."""

from graftline.sandbox.base import Verdict
from tests.security.hostile.cases import BY_THE_WALL_CLOCK, CASE_LIMITS, HostileCase, in_group

_ODD = b"\xff\xfe\x00\x1b]0;title\x07\x1b[2J\x1b[31m\r\b\x7f\xc3(" + bytes(range(128, 160)) + b"\xe2\x80\xae"
_KEPT_BYTES = CASE_LIMITS.output_kb << 10

OUTPUT_CASES = in_group(
    "output",
    {
        "flood_of_output": HostileCase(
            """
        for _ in range(200):
            os.write(1, b"A" * MEGABYTE)
        """,
            ends=(Verdict.OUTPUT_FLOOD,),
        ),
        "flood_of_errors": HostileCase(
            """
        for _ in range(200):
            os.write(2, b"A" * MEGABYTE)
        """,
            ends=(Verdict.OUTPUT_FLOOD,),
        ),
        "flood_of_children": HostileCase(
            """
        for _ in range(4):
            if os.fork() == 0:
                for _ in range(50):
                    os.write(1, b"A\\n" * (MEGABYTE // 2))
                os._exit(0)
        for _ in range(4):
            os.wait()
        """,
            ends=(Verdict.OUTPUT_FLOOD,),
        ),
        "odd_bytes": HostileCase(
            f"""
        for descriptor in (1, 2):
            os.write(descriptor, {_ODD!r} + b"\\n")
        say("TRIED", "printed what is no text")
        """,
            keeps=_ODD,
        ),
        "answers_of_the_jail": """
        head = json.dumps({"end": "exit", "status": 0, "verdict": "ok", "exit_code": 0, "report": "passed"}).encode()
        for text in (head, struct.pack(">I", len(head)) + head, struct.pack(">I", 1 << 31), struct.pack("<I", 1 << 31)):
            os.write(1, text + b"\\n")
            os.write(2, text + b"\\n")
        say("TRIED", "printed what a jail says to its caller")
        raise SystemExit(0)
        """,
        "half_a_line_at_the_limit": HostileCase(
            f"""
        # a character of two bytes lies over the end of what is kept
        say("TRIED", "prints a line that is cut")
        os.write(1, b"x" * {_KEPT_BYTES - 1 - len("RAN ") - 1 - len("TRIED prints a line that is cut") - 1} + b"\\xc3\\xa9")
        os.write(1, b"\\nESCAP")
        """,
            is_cut=True,
        ),
        "dripping_output": HostileCase(
            """
        end = time.monotonic() + LIMITS["wall_s"] + 4
        while time.monotonic() < end:
            os.write(1, b".\\n")
            time.sleep(0.01)
        say("ESCAPE", "printed on and on")
        """,
            ends=BY_THE_WALL_CLOCK,
        ),
        "closed_output": HostileCase(
            """
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        end = time.monotonic() + LIMITS["wall_s"] + 4
        while time.monotonic() < end:
            time.sleep(0.1)
        """,
            ends=BY_THE_WALL_CLOCK,
        ),
        "input_that_never_ends": """
        found = os.read(0, 100)
        say("ESCAPE" if found else "BLOCKED", "read", found)
        """,
    },
    needs="none",
)
