"""What a jail does that has a snapshot: copies of it, files of `/tmp`, variables, and files that come back."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError, DataError, SandboxError
from graftline.sandbox import Case, CaseEnd, JailConfig, Verdict, open_jail
from graftline.sandbox.jail import Returned, Snapshot
from graftline.sandbox.jail.served import ServedJail
from tests.jails import LIMITS, MODES, dedent, how, on_served_ones_only, on_walled_ones_only, output, python

FILES = {"own/a.txt": "a", "own/deep/b.txt": "b", "over/a.txt": "over", "hidden/secret": "secret", "own/run.sh": "echo"}

PARTS = ("own", "over")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("snapshot")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder.chmod(0o755)
    (folder / "own/run.sh").chmod(0o755)
    (folder / "own/link").symlink_to("deep/b.txt")
    (folder / "own/folder").symlink_to("deep")
    return Snapshot(folder)


@pytest.fixture(scope="module")
def open_boxes(kind: str, snapshot: Snapshot) -> Callable[..., ServedJail]:
    def open_jail_of(**more: object) -> ServedJail:
        limits = more.pop("limits", LIMITS)
        return ServedJail(
            kind, MODES.get(kind, "confined"), limits, ("python", "shell", "pytest"), None, snapshot, **more
        )

    return open_jail_of


@pytest.fixture(scope="module")
def boxes(open_boxes: Callable[..., ServedJail]) -> Iterator[ServedJail]:
    with closing(open_boxes()) as jail:
        yield jail


def left(boxes: ServedJail, text: str, *paths: str, **bounds: int) -> CaseEnd:
    """Return the end of a program after which `paths` come back."""
    case = python(dedent(text))
    end = boxes.run(replace(case, parts=PARTS, returned=Returned(paths, **bounds)))
    assert (how(end), end.stderr) == ((Verdict.OK, 0, None), b"")
    return end


@on_served_ones_only
def test_every_case_starts_with_a_copy_of_the_parts(boxes: ServedJail) -> None:
    text = """
        import os
        print(sorted(os.listdir()), open("a.txt").read(), open("link").read(), os.readlink("folder"),
              oct(os.stat("run.sh").st_mode & 0o777), os.path.exists("secret"))
        open("a.txt", "w").write("changed"); os.remove("deep/b.txt")
    """
    expected = "['a.txt', 'deep', 'folder', 'link', 'main.py', 'run.sh'] over b deep 0o755 False\n"
    assert [output(boxes, replace(python(dedent(text)), parts=PARTS)) for _ in range(3)] == [expected] * 3


OVERLAID = {"a.txt": b"1", "link": b"2", "folder/c": b"3", "deep": b"4"}
MODULE = {
    "package/__init__.py": b"",
    "package/__main__.py": b"import sys; from . import a; print(a.value, __name__, sys.argv[1:])",
    "package/a.py": b"value = 3",
}
BESIDE = {
    "sub/run.py": b"import beside, named; print(beside.value, named.value)",
    "sub/beside.py": b"value = 1",
    "lib/named.py": b"value = 2",
}
FOUND = {
    "without a part all of them": (
        python("import os; print(sorted(os.listdir()))"),
        "['hidden', 'main.py', 'over', 'own']\n",
    ),
    "files of the case in place of files, links and folders": (
        replace(
            python(
                "import os; print(*[open(n).read() for n in ('a.txt', 'link', 'folder/c', 'deep')], os.path.islink('folder'))",
                files=OVERLAID,
            ),
            parts=PARTS,
        ),
        "1 2 3 4 False\n",
    ),
    "files of the temporary folder, by the name that arguments say": (
        replace(
            python(
                "import sys; print(open(sys.argv[1]).read(), open(sys.argv[2].partition('=')[2]).read(), sys.argv[3])",
                *("/tmp/in.json", "--input=/tmp/in.json", "/tmp/other"),
            ),
            temporary={"in.json": b"{}"},
        ),
        "{} {} /tmp/other\n",
    ),
    "a module, by its name": (Case("python", ("-m", "package", "x"), MODULE), "3 __main__ ['x']\n"),
    "what lies beside it and in the Python path": (
        Case("python", ("sub/run.py",), BESIDE, environment={"PYTHONPATH": "lib"}),
        "1 2\n",
    ),
}


@pytest.mark.parametrize("name", FOUND)
@on_served_ones_only
def test_a_program_finds(boxes: ServedJail, name: str) -> None:
    case, expected = FOUND[name]
    assert output(boxes, case) == expected


@pytest.mark.parametrize("part", ["../x", "/etc", "own/../hidden", ""])
@on_served_ones_only
def test_a_part_that_leads_elsewhere_is_refused(boxes: ServedJail, part: str) -> None:
    with pytest.raises(DataError, match="file name"):
        boxes.run(replace(python(""), parts=(part,)))


@on_served_ones_only
def test_the_snapshot_is_not_changed_by_what_runs(boxes: ServedJail, snapshot: Snapshot) -> None:
    output(boxes, python("open('own/a.txt', 'a').write('more')"))
    found = {
        str(path.relative_to(snapshot.folder)): path.read_text()
        for path in snapshot.folder.rglob("*")
        if path.is_file()
    }
    assert found == {**FILES, "own/link": "b"}


@on_served_ones_only
def test_variables_are_those_of_the_case(boxes: ServedJail) -> None:
    text = "import os, subprocess, sys; print(subprocess.check_output([sys.executable, '-c', 'import os; print(os.environ[\"A\"])']), os.environ['A'])"
    case = python(text)
    assert output(boxes, replace(case, environment={"A": "ä b"})).endswith(" ä b\n")
    assert output(boxes, python("import os; print('A' in os.environ)")) == "False\n"


@pytest.mark.parametrize(
    "variables",
    [
        {"PATH": ""},
        {"LD_PRELOAD": ""},
        {"HOME": ""},
        {"BASH_ENV": ""},
        {"PYTHONSTARTUP": ""},
        {"a=b": ""},
        {"": ""},
        {"A": "\0"},
        {"A": "\ud800"},
        {f"A{number}": "" for number in range(300)},
        {f"A{number}": "x" * 90_000 for number in range(20)},
    ],
    ids=lambda variables: next(iter(variables)) + str(len(variables)),
)
@on_served_ones_only
def test_variables_that_no_case_may_have_are_refused(boxes: ServedJail, variables: dict[str, str]) -> None:
    with pytest.raises(DataError, match=r"^variables?\b"):
        boxes.run(Case("python", ("main.py",), environment=variables))


@on_served_ones_only
def test_a_shell_finds_the_programs_of_the_system_and_the_interpreter(boxes: ServedJail) -> None:
    end = boxes.run(Case("shell", ("-c", "echo a | tr a b; python3 -c 'print(1)'; exit 4")))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 4, None, b"b\n1\n", b"")


@on_served_ones_only
def test_what_was_left_comes_back_and_what_is_not_there_does_not(boxes: ServedJail) -> None:
    text = """
        import os, tempfile
        os.makedirs("made/deep"); open("made/deep/a", "wb").write(bytes(range(256))); open("made/e", "w")
        open(os.path.join(tempfile.gettempdir(), "t"), "w").write("t")
        open(os.path.join(os.environ["LOGS_DIR"], "verifier", "reward.txt"), "w").write("1")
    """
    end = left(boxes, text, "work/made", "work/a.txt", "tmp/t", "logs/verifier", "work/absent", "tmp/absent/x")
    every = bytes(range(256))
    expected = {"work/made/deep/a": every, "work/made/e": b"", "work/a.txt": b"over", "tmp/t": b"t"}
    assert (end.files, end.left_out) == ({**expected, "logs/verifier/reward.txt": b"1"}, {})


@on_served_ones_only
def test_nothing_but_regular_files_comes_back(boxes: ServedJail) -> None:
    text = """
        import os
        os.makedirs("made"); os.symlink("/etc/passwd", "made/link"); os.mkfifo("made/pipe"); os.symlink("/etc", "etc")
        os.makedirs("folder2"); open("made/a", "w").write("a"); os.symlink("made", "also")
    """
    end = left(boxes, text, "work/made", "work/made/link", "work/etc/passwd", "work/also/a", "work/folder2")
    link = "is a symbolic link, and links are not followed"
    assert end.files == {"work/made/a": b"a"}
    assert end.left_out == {
        "work/made/link": link,
        "work/made/pipe": "is a pipe",
        "work/etc/passwd": link,
        "work/also/a": link,
    }


@on_served_ones_only
def test_as_much_comes_back_as_may(boxes: ServedJail) -> None:
    text = "import os; os.mkdir('made'); [open(f'made/{n}', 'w').write('x' * 100) for n in range(20)]; open('big', 'w').truncate(1 << 20)"
    end = left(boxes, text, "work/big", "work/made", size_bytes=1000, files=30)
    assert len(end.files) == 10
    assert {*end.left_out.values()} == {"is more than may come back"}
    few = left(boxes, text, "work/made", files=5)
    # the folder counts as well
    assert (len(few.files), few.left_out) == (4, {"work/made": "is or holds more files than may come back"})


@on_walled_ones_only
def test_a_folder_without_an_end_does_not_keep_anybody(boxes: ServedJail) -> None:
    text = """
        import os
        for number in range(70):
            os.mkdir("d"); os.chdir("d")
            if number in (63, 64): open("f", "w")
    """
    end = left(boxes, text, "work/d")
    assert len(end.files) == 1
    assert [*end.left_out.values()] == ["is deeper than 64 folders"]


@on_served_ones_only
def test_files_are_read_when_nothing_writes_to_them_any_more(boxes: ServedJail) -> None:
    text = """
        import os, time
        open("result", "w").write("0")
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                number = 0
                while True:
                    number += 1
                    with open("partial", "w") as stream: stream.write(str(number) * 1000)
                    os.replace("partial", "result")
            os._exit(0)
        os.wait()
        while open("result").read() == "0": time.sleep(0.01)
    """
    end = left(boxes, text, "work/result")
    number = end.files["work/result"].decode()
    assert number == number[: len(number) // 1000] * 1000


@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
def test_files_come_back_after_the_time_is_up(open_boxes: Callable[..., ServedJail]) -> None:
    with closing(open_boxes(limits=LIMITS.model_copy(update={"wall_s": 2.0}))) as jail:
        case = python("import time; open('kept', 'w').write('k'); time.sleep(60)")
        end = jail.run(replace(case, returned=Returned(("work/kept",))))
    assert (how(end), end.files) == ((Verdict.TIMED_OUT, None, None), {"work/kept": b"k"})


@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
def test_a_glance_that_raises_ends_the_case_and_not_the_jail(open_boxes: Callable[..., ServedJail]) -> None:
    class EnoughError(Exception):
        pass

    def glance() -> None:
        raise EnoughError

    with closing(open_boxes()) as jail:
        with pytest.raises(EnoughError):
            jail.run(python("import time; time.sleep(60)"), glance)
        assert output(jail, python("print(1)")) == "1\n"


@pytest.mark.parametrize("path", ["", "a", "/etc/passwd", "work/../../etc/passwd", "etc/passwd", "tmp/\0"])
@on_served_ones_only
def test_a_path_that_leads_elsewhere_does_not_come_back(boxes: ServedJail, path: str) -> None:
    with pytest.raises(DataError, match="does not come back; expected one below 'work', 'tmp' or 'logs'"):
        boxes.run(Case("python", ("main.py",), returned=Returned((path,))))


@on_served_ones_only
def test_nothing_comes_back_of_a_jail_without_a_snapshot_nor_of_programs_that_report(
    jail: ServedJail, boxes: ServedJail
) -> None:
    with pytest.raises(DataError, match="files come back of a jail that has a snapshot only"):
        jail.run(Case("python", ("main.py",), returned=Returned(("work/a",))))
    with pytest.raises(DataError, match="part 'own': this jail has no snapshot that it could be of"):
        jail.run(replace(python(""), parts=("own",)))
    with pytest.raises(DataError, match="program 'pytest': reports by itself"):
        boxes.run(Case("pytest", ("a.py",), returned=Returned(("work/a",))))


@pytest.mark.parametrize("runs_own", [False, True])
@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
def test_programs_of_the_working_folder_run_only_where_they_may(
    open_boxes: Callable[..., ServedJail], runs_own: bool
) -> None:
    with closing(open_boxes(runs_own=runs_own)) as jail:
        case = Case("shell", ("-c", "cp /usr/bin/true own; ./own && cp /usr/bin/true /tmp/own && /tmp/own; echo $?"))
        said = jail.run(case).stdout
        features = jail.isolation.features
    # 126: found, and not to be run; of the temporary folder nothing ever is
    assert (said, "no_exec" in features) == (b"126\n", not runs_own)


def test_a_wrapper_takes_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bubblewrap jail: takes no snapshot; take kind 'namespaces'"):
        open_jail(JailConfig(kind="bubblewrap"), Snapshot(tmp_path))


@on_walled_ones_only
def test_a_snapshot_that_others_may_not_read_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    jail = ServedJail(kind, MODES.get(kind, "confined"), LIMITS, ("python",), None, Snapshot(tmp_path / "own"))
    if os.getuid() == 0:
        with pytest.raises(SandboxError, match=r"own: cannot be read by everybody; give it mode 755"):
            jail.run(python("print(1)"))
    else:
        assert output(jail, python("print(1)")) == "1\n"
    jail.close()


@on_served_ones_only
def test_a_snapshot_that_is_gone_is_said(kind: str, tmp_path: Path) -> None:
    jail = ServedJail(kind, MODES.get(kind, "confined"), LIMITS, ("python",), None, Snapshot(tmp_path / "gone"))
    with pytest.raises(SandboxError, match=r"gone: is no folder; make the snapshot again"):
        jail.run(python("print(1)"))
