"""What a program finds in any jail, whichever implementation it is: its input, its arguments, its files."""

import signal
from contextlib import suppress

import pytest

from graftline.core.errors import DataError
from graftline.sandbox import Case, Verdict
from graftline.sandbox.jail.served import ServedJail
from tests.jails import dedented, how, on_served_ones_only, output, python


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


@on_served_ones_only
def test_megabytes_of_input_need_not_be_read(jail: ServedJail) -> None:
    assert output(jail, python("print(1)", stdin=bytes(7 << 20))) == "1\n"


@on_served_ones_only
def test_input_is_read_from_its_start_to_its_end(jail: ServedJail) -> None:
    assert output(jail, python("print(input() + input()); print(repr(open(0).read()))", stdin=b"a\nb\n")) == "ab\n''\n"


@on_served_ones_only
def test_without_input_there_is_an_end_of_file(jail: ServedJail) -> None:
    assert output(jail, python("import sys; print(repr(sys.stdin.read()))")) == "''\n"


@on_served_ones_only
def test_arguments_are_those_that_were_given(jail: ServedJail) -> None:
    given = ("", "a b", "--flag=ä", "-c", "\n")
    assert output(jail, python("import sys; print(sys.argv)", *given)) == f"{['main.py', *given]}\n"


@pytest.mark.parametrize("program", ["print(7)", "import os; os.write(1, b'7\\n')"])
@on_served_ones_only
def test_output_is_not_lost_however_it_is_written(jail: ServedJail, program: str) -> None:
    assert output(jail, python(program)) == "7\n"


@on_served_ones_only
def test_what_it_prints_before_it_is_ended_at_once_is_kept(jail: ServedJail) -> None:
    end = jail.run(python("import os; print('x', flush=True); os._exit(7)"))
    assert (*how(end), end.stdout) == (Verdict.OK, 7, None, b"x\n")


@on_served_ones_only
def test_half_a_character_of_output_is_no_trouble(jail: ServedJail) -> None:
    assert jail.run(python(r"import os; os.write(1, b'\xe2\x82'); print('\ud800')")).stdout == b"\xe2\x82\\ud800\n"


@on_served_ones_only
def test_a_file_runs_from_a_folder_of_its_own(jail: ServedJail) -> None:
    files = {"package/__init__.py": b"", "package/deep/er/m.py": b"value = 3\n", "data/x.txt": b"y"}
    text = "from package.deep.er import m; print(m.value, open('data/x.txt').read())"
    assert output(jail, python(text, files=files)) == "3 y\n"


@on_served_ones_only
def test_an_empty_file_is_a_file(jail: ServedJail) -> None:
    assert output(jail, python("print(open('e', 'rb').read())", files={"e": b""})) == "b''\n"


@on_served_ones_only
def test_a_program_in_a_sub_folder_runs_in_the_working_folder(jail: ServedJail) -> None:
    case = Case("python", ("sub/run.py",), {"sub/run.py": b"import os; print(sorted(os.listdir()), __name__)"})
    assert output(jail, case) == "['sub'] __main__\n"


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
    assert output(jail, python(dedented(text))) == "[] True True\n[]\n"


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
