"""Programs that want to stay after their end, or never to come to it."""

from graftline.sandbox.base import Verdict
from tests.security.hostile.cases import BY_THE_WALL_CLOCK, HostileCase, in_group

_STAY = """
def stay():
    # where it finds the time to do so, it ends by itself
    rename()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    time.sleep(20)
    os._exit(0)

"""
_ENDLESS = (Verdict.CPU_TIMEOUT, *BY_THE_WALL_CLOCK)

LIFETIME_CASES = in_group(
    "lifetime",
    {
        "daemon": """
        if os.fork() == 0:
            os.setsid()
            LIBC.prctl(1, 0, 0, 0, 0)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                stay()
            os._exit(0)
        time.sleep(0.3)
        say("TRIED", "left a process that nobody is the parent of")
        """,
        "daemon_of_another_program": """
        if os.fork() == 0:
            try:
                os.setsid()
                sleep = "import time; time.sleep(20)"
                os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", sleep, MARKER])
            finally:
                os._exit(1)
        time.sleep(0.3)
        say("TRIED", "left a process that runs another program")
        """,
        "daemon_that_holds_the_output": HostileCase(
            """
        if os.fork() == 0:
            os.setsid()
            rename()
            time.sleep(20)
            os._exit(0)
        say("TRIED", "left a process that may go on to print")
        """,
            ends=BY_THE_WALL_CLOCK,
        ),
        "stopped_daemon": """
        child = os.fork()
        if child == 0:
            os.setsid()
            rename()
            if os.fork() == 0:
                time.sleep(20)
                os.kill(os.getppid(), signal.SIGCONT)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        time.sleep(0.2)
        say("TRIED", "left a stopped process")
        """,
        # whoever kills one of them finds the next one already there
        "relay": """
        if os.fork() == 0:
            rename()
            for _ in range(300):
                if os.fork():
                    os._exit(0)
                os.setsid()
                time.sleep(0.02)
            os._exit(0)
        time.sleep(0.1)
        say("TRIED", "left a process that becomes another one all the time")
        """,
        "child_of_the_parent": """
        try:
            if call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
                stay()
            say("TRIED", "left a process that is the parent's child")
        except OSError as error:
            say("BLOCKED", error)
        """,
        "timer_after_the_end": """
        def late(number, frame):
            try:
                os.truncate(FACTS["bait"], 0)
            except OSError:
                pass

        if os.fork() == 0:
            os.setsid()
            rename()
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, 0.5, 0.01)
            for _ in range(2_000):
                signal.pause()
            os._exit(0)
        say("TRIED", "left a process that does something later")
        """,
        "two_daemons_and_a_bomb": """
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    stay()
                os._exit(0)
        try:
            for _ in range(200):
                if os.fork() == 0:
                    rename()
                    time.sleep(1)
                    os._exit(0)
        except OSError as error:
            say("BLOCKED", error)
        say("TRIED", "left many processes")
        """,
        "deaf_to_signals": HostileCase(
            """
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        end = time.monotonic() + LIMITS["wall_s"] + 4
        while time.monotonic() < end:
            pass
        say("ESCAPE", "worked on and on")
        """,
            needs="none",
            ends=_ENDLESS,
        ),
        "work_in_turns": HostileCase(
            """
        # each of them stays below the limit of one process
        end = time.monotonic() + LIMITS["wall_s"] + 4
        while time.monotonic() < end:
            if os.fork():
                os.wait()
                continue
            until = min(end, time.monotonic() + LIMITS["cpu_s"] / 2)
            while time.monotonic() < until:
                pass
            os._exit(0)
        say("ESCAPE", "worked on and on")
        """,
            needs="none",
            ends=_ENDLESS,
        ),
        "stop_itself": HostileCase(
            """
        began = time.monotonic()
        if os.fork() == 0:
            rename()
            time.sleep(LIMITS["wall_s"] + 4)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        is_late = time.monotonic() - began > LIMITS["wall_s"] + 3
        say("ESCAPE" if is_late else "BLOCKED", "stopped for", round(time.monotonic() - began), "s")
        """,
            needs="none",
            ends=BY_THE_WALL_CLOCK,
        ),
    },
    shared=_STAY,
)
