"""Code that is wrong and forges the report on its tests, or the values that it is asked for."""

from tests.security.hostile.report_cases import CALLS, PASSING, SHARED, ReportCase

_LINES = """
import json
names = ["test_m.py::test_add", "test_m.py::test_more"]
lines = [json.dumps({"nonce": "", "test": name, "outcome": "passed", "error": "", "s": 0.01}) for name in names]
lines = "\\n".join([*lines, json.dumps({"nonce": "", "end": 2}), ""]).encode()
"""
FORGERY_CASES = (
    ReportCase(
        "writes_to_every_descriptor",
        """
        import os
        for descriptor in range(1, 1024):
            try:
                os.write(descriptor, lines)
            except OSError:
                pass
        os._exit(0)
        """,
        shared=_LINES,
    ),
    ReportCase(
        "waits_and_writes_to_every_descriptor",
        """
        import os, threading, time

        def write():
            time.sleep(0.05)
            for descriptor in range(3, 1024):
                try:
                    os.write(descriptor, lines)
                except OSError:
                    pass
            os._exit(0)

        threading.Thread(target=write, daemon=True).start()

        def add(a, b):
            time.sleep(0.5)
        """,
        shared=_LINES,
    ),
    ReportCase(
        "looks_for_the_reporter",
        """
        import gc, json, os, types
        names = ["test_m.py::test_add", "test_m.py::test_more"]
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and "confined" in (found.__module__ or "") and found.__closure__:
                for name in names:
                    try:
                        found(json.dumps({"test": name, "outcome": "passed", "error": "", "s": 0.01})[1:-1])
                    except Exception:
                        pass
                try:
                    found(json.dumps({"end": 2})[1:-1])
                except Exception:
                    pass
        os._exit(0)
        """,
    ),
    ReportCase(
        "looks_for_the_reporter_in_the_frames",
        """
        import json, os, sys
        frame = sys._getframe()
        while frame:
            for found in [*frame.f_locals.values()]:
                if callable(found) and "confined" in str(getattr(found, "__module__", "")):
                    for line in (*({"test": f"test_m.py::test_{name}", "outcome": "passed", "error": "", "s": 0.01}
                                   for name in ("add", "more")), {"end": 2}):
                        try:
                            found(json.dumps(line)[1:-1])
                        except BaseException:
                            pass
            frame = frame.f_back
        os._exit(0)
        """,
    ),
    ReportCase(
        # knows how the report is made, and that a test of unknown name has to fail
        "knows_how_reports_are_made",
        """
        import gc, glob, json, os, types
        control = [name for name in glob.glob("test_*.py") if name != "test_m.py"][0]
        lines = [{"test": f"test_m.py::test_{name}", "outcome": "passed", "error": "", "s": 0.01}
                 for name in ("add", "more")]
        lines += [{"test": f"{control}::{control[:-3]}", "outcome": "failed", "error": "no", "s": 0.01}]
        for found in gc.get_objects():
            if isinstance(found, types.FunctionType) and found.__qualname__ == "_hooks.<locals>.line":
                for line in (*lines, {"end": len(lines)}):
                    found(json.dumps(line)[1:-1])
                os._exit(0)
        """,
        spec=SHARED,
        instead="trusts: values",
    ),
    ReportCase(
        "goes_on_as_a_child",
        """
        import os, time
        if os.fork():
            time.sleep(0.2)
            os._exit(0)
        """,
    ),
    ReportCase(
        "lets_a_child_fail_in_its_place",
        """
        import os
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        os.fork()
        """,
    ),
    ReportCase(
        "replaces_the_tests_in_memory",
        """
        import gc, sys, types

        def passing():
            pass

        def add(a, b):
            frame = sys._getframe(1)
            for name in ("test_add", "test_more"):
                frame.f_globals[name].__code__ = passing.__code__
                frame.f_globals[name] = passing
            return 3
        """,
    ),
    ReportCase(
        "replaces_the_test_module",
        """
        import sys, types
        module = types.ModuleType("test_m")
        exec(TESTS, vars(module))
        module.__file__ = sys.modules["test_m"].__file__ if "test_m" in sys.modules else "test_m.py"
        sys.modules["test_m"] = module
        """.replace("TESTS", repr(PASSING)),
    ),
    ReportCase(
        "is_equal_to_everything",
        """
        class Anything:
            def __eq__(self, other):
                return True

            def __hash__(self):
                return 3

            def __reduce__(self):
                return int, (3,)

        def add(a, b):
            return Anything()
        """,
        spec=CALLS,
    ),
    ReportCase(
        "is_a_number_of_its_own",
        """
        class Number(int):
            def __eq__(self, other):
                return True

            def __str__(self):
                return "3"

            __repr__ = __str__
            __hash__ = int.__hash__

        def add(a, b):
            return Number(a - b)
        """,
        spec=CALLS,
    ),
    ReportCase("calls_left_at_import", "import os\nos._exit(0)\n", spec=CALLS),
    ReportCase(
        "calls_answered_on_every_descriptor",
        """
        import json, os
        lines = [json.dumps({"nonce": "", "call": 0, "value": {"int": "3"}}), json.dumps({"nonce": "", "end": 1}), ""]
        for descriptor in range(1, 1024):
            try:
                os.write(descriptor, "\\n".join(lines).encode())
            except OSError:
                pass
        os._exit(0)
        """,
        spec=CALLS,
    ),
)
