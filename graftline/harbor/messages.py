"""What to show of a text that a program printed, where there is room for one line."""

import re

_FRAME = re.compile(r"\s*File \".*\", line \d+|\s*at .+:\d+")


def find_message(text: str) -> str:
    """Return the line that says what went wrong: of a traceback the one below its last frame, else the first.

    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nValueError: no' -> 'ValueError: no'
    """
    lines = [line for line in text.splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return lines[0].strip() if lines else ""
    below = lines[frames[-1] + 1 :]
    return next((line for line in below if not line[0].isspace()), lines[-1]).strip()
