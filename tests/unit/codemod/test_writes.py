"""Writes to many files: all or none, and taken back."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from graftline.codemod import writes
from graftline.codemod.writes import MAX_JOURNALS, FileWrite, undo_write, write_files
from graftline.core.errors import DataError


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "state"


def files(folder: Path, count: int) -> list[FileWrite]:
    folder.mkdir(exist_ok=True)
    made = [FileWrite(folder / f"{number}.py", b"old %d\n" % number, b"new %d\n" % number) for number in range(count)]
    for write in made:
        write.path.write_bytes(write.before)
    return made


def texts(made: list[FileWrite]) -> list[bytes]:
    return [write.path.read_bytes() for write in made]


def test_writes_are_taken_back_one_after_the_other(tmp_path: Path, journals: Path) -> None:
    first, second = files(tmp_path / "a", 3), files(tmp_path / "b", 2)
    write_files(first, journals)
    write_files(second, journals)
    assert undo_write(tmp_path, journals).restored == tuple(write.path for write in second)
    assert texts(first) == [write.after for write in first]
    assert len(undo_write(tmp_path / "a" / "1.py", journals).restored) == 3
    assert texts(first + second) == [write.before for write in first + second]
    with pytest.raises(DataError, match="nothing was written there"):
        undo_write(tmp_path, journals)


def test_an_undo_that_is_interrupted_before_it_is_marked_is_done_again(tmp_path: Path, journals: Path) -> None:
    def interrupt(journal: Path) -> None:
        raise KeyboardInterrupt

    made, marked = files(tmp_path / "a", 2), list[Path | None]()
    journal = write_files(made, journals)
    with pytest.raises(KeyboardInterrupt):
        undo_write(tmp_path, journals, mark=interrupt)
    assert texts(made) == [write.before for write in made]
    assert undo_write(tmp_path, journals, mark=marked.append).restored == ()
    assert marked == [journal]


def test_where_one_file_cannot_be_written_none_is(tmp_path: Path, journals: Path) -> None:
    made = files(tmp_path / "a", 3)
    made[2].path.write_bytes(b"mine\n")
    with pytest.raises(DataError, match=r"2\.py: was changed by somebody else meanwhile"):
        write_files(made, journals)
    assert texts(made) == [b"old 0\n", b"old 1\n", b"mine\n"]


def test_an_interruption_leaves_all_as_it_was(tmp_path: Path, journals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, replace = files(tmp_path / "a", 3), writes.replace_file

    def interrupted(path: Path, content: bytes, expected: bytes | None = None) -> None:
        if path == made[1].path and content == made[1].after:
            raise KeyboardInterrupt
        replace(path, content, expected)

    monkeypatch.setattr(writes, "replace_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files(made, journals)
    assert texts(made) == [write.before for write in made]


def test_what_a_killed_process_wrote_can_be_taken_back(tmp_path: Path, journals: Path) -> None:
    made = files(tmp_path / "a", 3)
    program = f"""
import os, signal
from pathlib import Path
from graftline.codemod import writes
replace = writes.replace_file
def killed(path, content, expected=None):
    if path.name == "2.py":
        writes.partial_path(path, str(os.getpid())).write_bytes(b"ne")
        os.kill(os.getpid(), signal.SIGKILL)
    replace(path, content, expected)
writes.replace_file = killed
folder = Path({str(tmp_path / "a")!r})
made = [writes.FileWrite(folder / f"{{n}}.py", b"old %d\\n" % n, b"new %d\\n" % n) for n in range(3)]
writes.write_files(made, Path({str(journals)!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert (done.returncode, texts(made)) == (-signal.SIGKILL, [b"new 0\n", b"new 1\n", b"old 2\n"])
    assert len(undo_write(tmp_path, journals).restored) == 2
    assert texts(made) == [write.before for write in made]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["0.py", "1.py", "2.py"]


def test_of_two_who_write_at_once_one_writes_all_and_the_other_nothing(tmp_path: Path, journals: Path) -> None:
    made = files(tmp_path / "a", 40)
    program = f"""
import sys
from pathlib import Path
from graftline.codemod.writes import FileWrite, write_files
from graftline.core.errors import DataError
folder, who = Path({str(tmp_path / "a")!r}), sys.argv[1]
made = [FileWrite(folder / f"{{n}}.py", b"old %d\\n" % n, f"{{who}} {{n}}\\n".encode()) for n in range(40)]
print("ready", flush=True)
try:
    write_files(made, Path({str(journals)!r}))
except DataError as error:
    sys.exit(3 if "changed by somebody else meanwhile" in str(error) else str(error))
"""
    with ExitStack() as stack, writes._lock(journals):  # all of them wait for it
        processes = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", program, who], stdout=subprocess.PIPE, text=True)
            )
            for who in ("first", "second", "third")
        ]
        assert [process.stdout and process.stdout.readline() for process in processes] == ["ready\n"] * 3
    assert sorted(process.returncode for process in processes) == [0, 3, 3]
    assert len({text.split()[0] for text in texts(made)}) == 1
    assert len(undo_write(tmp_path, journals).restored) == 40


@pytest.mark.parametrize("suffix", [".jsonl", ".left"])
def test_only_so_many_journals_stay_and_nobody_else_reads_them(tmp_path: Path, journals: Path, suffix: str) -> None:
    for _ in range(MAX_JOURNALS + 3):
        made = files(tmp_path / "a", 1)
        write_files(made, journals)
        if suffix == ".left":
            made[0].path.write_bytes(b"mine\n")
            undo_write(tmp_path, journals)
    write_files(files(tmp_path / "a", 1), journals)
    stored = [path for path in journals.iterdir() if path.suffix == suffix]
    # each write makes room for one journal, and none of the last is undone
    assert len(stored) == MAX_JOURNALS - (suffix == ".left")
    assert {path.stat().st_mode & 0o077 for path in stored} == {0}


def test_without_a_place_for_the_journal_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    made = files(tmp_path / "a", 1)
    with pytest.raises(DataError, match="name another state folder in XDG_STATE_HOME"):
        write_files(made, tmp_path / "file" / "state")
    assert texts(made) == [b"old 0\n"]
