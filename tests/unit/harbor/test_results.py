"""Which line of what a program printed is shown."""

import pytest

from graftline.harbor.results import find_message

PYTHON = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n    ~^^\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ""),
        ("\n  one line \n", "one line"),
        ("the message\nmore of it", "the message"),
        (f"{PYTHON}ValueError: no such task\n", "ValueError: no such task"),
        (f"{PYTHON}ValueError: no such task\nof two lines\n", "ValueError: no such task"),
        (f"{PYTHON}KeyError: 1\n\nDuring handling of the above:\n\n{PYTHON}RuntimeError: last", "RuntimeError: last"),
        (f"its last words: {PYTHON}KeyError: 'a'", "KeyError: 'a'"),
        # of which the start was cut off
        ('e 3, in f\n  File "/b/c.py", line 9, in g\n    raise\nOSError: [Errno 28] full', "OSError: [Errno 28] full"),
        (f"{PYTHON}", "~^^"),
    ],
)
def test_of_a_traceback_the_message_is_shown(text: str, message: str) -> None:
    assert find_message(text) == message
