"""Types of command-line arguments that are several values with commas between; a wrong one is named with what is expected."""

import argparse
from collections.abc import Callable, Iterable


def some_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what reads some of `names`."""
    known = list(names)

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)!r}: is none of {', '.join(known)}")
        return chosen

    return read


def numbers(text: str) -> list[int]:
    """Return whole numbers from 1."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected whole numbers from 1 with commas between, such as 1,3")
    return [int(part) for part in parts]
