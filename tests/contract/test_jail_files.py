"""What a program finds in any jail, whichever implementation it is: its input, its arguments, its files."""

import errno
import signal
from contextlib import closing, suppress

import pytest

from graftline.core.errors import DataError
from graftline.sandbox import Case, Verdict
from graftline.sandbox.jail.served import ServedJail
from tests.jails import LIMITS, dedent, how, new_jail, on_served_ones_only, on_walled_ones_only, output, python


def test_output_errors_and_exit_code_come_back(jail: ServedJail) -> None:
    end = jail.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 3, None, b"out\n", b"err\n")
    assert (end.is_truncated, end.report) == (False, b"")


def test_the_signal_that_ended_it_comes_back(jail: ServedJail) -> None:
    end = jail.run(python("import os; print('before', flush=True); os.kill(os.getpid(), 15)"))
    assert (*how(end), end.stdout) == (Verdict.CRASH, None, signal.SIGTERM, b"before\n")


@on_served_ones_only
def test_every_byte_comes_through_unchanged(jail: ServedJail) -> None:
    every = bytes(range(256)) * 8
    text = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data + open('f', 'rb').read())"
    assert jail.run(python(text, stdin=every, files={"f": every[::-1]})).stdout == every + every[::-1]


PACKAGE = {"package/__init__.py": b"", "package/deep/er/m.py": b"value = 3\n", "data/x.txt": b"y"}
ARGUMENTS = ("", "a b", "--flag=ä", "-c", "\n")
CASES = {
    "input that is not read": (python("print(1)", stdin=bytes(7 << 20)), "1\n"),
    "input, from its start to its end": (
        python("print(input() + input()); print(repr(open(0).read()))", stdin=b"a\nb\n"),
        "ab\n''\n",
    ),
    "no input": (python("import sys; print(repr(sys.stdin.read()))"), "''\n"),
    "arguments": (python("import sys; print(sys.argv)", *ARGUMENTS), f"{['main.py', *ARGUMENTS]}\n"),
    "output": (python("print(7)"), "7\n"),
    "output by its descriptor": (python("import os; os.write(1, b'7\\n')"), "7\n"),
    "files in folders": (
        python("from package.deep.er import m; print(m.value, open('data/x.txt').read())", files=PACKAGE),
        "3 y\n",
    ),
    "an empty file": (python("print(open('e', 'rb').read())", files={"e": b""}), "b''\n"),
    "a program in a folder": (
        Case("python", ("sub/run.py",), {"sub/run.py": b"import os; print(sorted(os.listdir()), __name__)"}),
        "['sub'] __main__\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
@on_served_ones_only
def test_a_program_finds_what_its_case_has(jail: ServedJail, name: str) -> None:
    case, expected = CASES[name]
    assert output(jail, case) == expected


@on_served_ones_only
def test_what_it_prints_before_it_is_ended_at_once_is_kept(jail: ServedJail) -> None:
    end = jail.run(python("import os; print('x', flush=True); os._exit(7)"))
    assert (*how(end), end.stdout) == (Verdict.OK, 7, None, b"x\n")


@on_served_ones_only
def test_half_a_character_of_output_is_no_trouble(jail: ServedJail) -> None:
    assert jail.run(python(r"import os; os.write(1, b'\xe2\x82'); print('\ud800')")).stdout == b"\xe2\x82\\ud800\n"


def test_trusted_files_take_the_place_of_others_of_their_name(jail: ServedJail) -> None:
    case = python("print(open('t/a').read(), open('t/b').read())", files={"t/a": b"foreign", "t/b": b"foreign"})
    assert output(jail, Case(case.program, case.arguments, case.files, {"t/a": b"ours"})) == "ours foreign\n"


@on_served_ones_only
def test_names_that_are_spelled_otherwise_are_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError, match="write it as 't/a'"):
        jail.run(python("print(1)", files={"./t//a": b"foreign"}))


@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
@pytest.mark.parametrize(
    "way",
    [
        "open('t/a', 'w')",
        "os.chmod('t/a', 0o666)",
        "os.unlink('t/a')",
        "os.rename('t/a', 'b')",
        "os.rename('t', 'u')",
        "shutil.rmtree('t')",
        "os.truncate('t/a', 0)",
        "os.utime('t/a', (0, 0))",
        "os.replace('main.py', 't/a')",
    ],
)
def test_a_trusted_file_cannot_be_changed(jail: ServedJail, way: str) -> None:
    text = f"import os, shutil\ntry:\n    {way}\nexcept OSError:\n    print(open('t/a').read())"
    case = python(text)
    assert output(jail, Case(case.program, case.arguments, case.files, {"t/a": b"ours"})) == "ours\n"


@pytest.mark.parametrize("name", ["statistics", "random", "json", "this"])
@on_served_ones_only
def test_modules_of_a_case_come_before_those_of_the_library(jail: ServedJail, name: str) -> None:
    # as in any interpreter, whatever the server has loaded in advance
    files = {f"{name}.py": b"value = 3\n"}
    assert output(jail, python(f"import {name}; print({name}.value)", files=files)) == "3\n"


@on_served_ones_only
def test_temporary_files_have_a_place(jail: ServedJail) -> None:
    text = """
        import os, tempfile
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w+") as named:
            named.write("x")
            print(os.listdir(folder), folder.startswith(os.environ["TMPDIR"]), os.environ["HOME"] == os.environ["TMPDIR"])
        print(os.listdir(tempfile.gettempdir()))
    """
    assert output(jail, python(dedent(text))) == "[] True True\n[]\n"


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "", "a\\b", "C:x", "nul", "a\0b", "x" * 300])
@pytest.mark.parametrize("where", ["files", "trusted"])
@on_served_ones_only
def test_a_name_that_leads_elsewhere_is_refused(jail: ServedJail, name: str, where: str) -> None:
    with pytest.raises(DataError, match="file name"):
        jail.run(Case("python", ("main.py",), **{where: {name: b""}}))


@pytest.mark.parametrize(
    ("files", "trusted"),
    [
        ({"a": b"", "a/b": b""}, {}),
        ({"a/b": b"", "a": b""}, {}),
        ({"a": b""}, {"a/b": b""}),
        ({"a/b": b""}, {"a": b""}),
    ],
    ids=["files", "files the other way", "trusted below a file", "trusted where a folder is"],
)
@on_served_ones_only
def test_a_name_that_is_a_file_and_a_folder_is_refused(
    jail: ServedJail, files: dict[str, bytes], trusted: dict[str, bytes]
) -> None:
    # whoever made the files has to mend them: the jail has not failed
    with pytest.raises(DataError):
        jail.run(Case("python", ("main.py",), {"main.py": b"", **files}, trusted))


@on_served_ones_only
def test_more_bytes_than_the_disk_holds_are_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError, match=r"files of a case: 2 in 1 folders, 8236 KB; "):
        jail.run(python("", files={"x": bytes((8 << 20) + 1)}))


@on_served_ones_only
def test_more_files_than_the_disk_holds_are_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError, match=r"files of a case: 101 in 1 folders, 436 KB; "):
        jail.run(python("", files={f"f{number}": b"" for number in range(100)}))


@pytest.mark.parametrize(
    "files",
    [
        {f"f{number}": b"" for number in range(99)},
        {f"{number}/f": b"" for number in range(60)},
        {f"f{number}": bytes(88_000) for number in range(95)},
        {"a/" * 200 + "f": b""},
    ],
    ids=["as many as allowed", "each in a folder", "rounded up to pages", "deep"],
)
@on_served_ones_only
def test_what_is_just_within_the_limits_fits_or_is_refused(jail: ServedJail, files: dict[str, bytes]) -> None:
    # never a SandboxError: nothing is wrong with the machine
    with suppress(DataError):
        assert output(jail, python("print(1)", files=files)) == "1\n"


@on_walled_ones_only
def test_where_files_may_have_no_size_nothing_can_be_written(kind: str) -> None:
    with closing(new_jail(kind, LIMITS.model_copy(update={"file_mb": 0}))) as jail:
        text = "import os\ntry: os.write(os.open('a', os.O_CREAT | os.O_WRONLY), b'x')\nexcept OSError as error: print(error.errno)"
        assert output(jail, python(text)) == f"{errno.EFBIG}\n"
