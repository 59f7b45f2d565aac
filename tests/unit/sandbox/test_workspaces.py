"""Workspaces: what is put into one, what is read and written, who may use it, and when it is gone."""

import re
import stat
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.workspaces import Workspaces, safe_name

LIMITS = WorkspaceLimits()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where workspaces are made."""
    return tmp_path / "workspaces"


@pytest.fixture
def workspaces(folder: Path) -> Iterator[Workspaces]:
    with Workspaces(folder, LIMITS) as opened:
        yield opened


def held(folder: Path) -> list[str]:
    """Return what there is below `folder` but the files of owners."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".owner-"))


def test_files_are_read_as_bytes_in_the_order_of_their_paths(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"b.py": "x = 'é'\r\n", "a/b/c.bin": b"\x00\xff", "a/e": ""})
    contents = [("a/b/c.bin", b"\x00\xff"), ("a/e", b""), ("b.py", b"x = '\xc3\xa9'\r\n")]
    assert list(workspaces.read(workspace).items()) == contents
    files = {path for path in workspace.rglob("*") if path.is_file()}
    assert {path.relative_to(workspace).as_posix(): path.read_bytes() for path in files} == dict(contents)


def test_what_was_made_changed_and_removed_since_is_seen(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "1", "b.py": "2", "c.py": "3"})
    (workspace / "a.py").write_text("4")
    (workspace / "b.py").unlink()
    (workspace / "new").mkdir()
    (workspace / "new" / "d.py").write_text("5")
    assert workspaces.read(workspace) == {"a.py": b"4", "c.py": b"3", "new/d.py": b"5"}


def test_a_folder_without_files_is_not_read(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "1"})
    (workspace / "empty" / "within").mkdir(parents=True)
    assert workspaces.read(workspace) == {"a.py": b"1"}


def test_the_path_is_absolute_and_right_below_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    with Workspaces(Path("workspaces"), LIMITS) as workspaces:
        workspace = workspaces.prepare("task-1", {})
        assert workspace.parent == folder
        assert re.fullmatch(r"task-1-[0-9a-f]{12}-[0-9a-f]{32}", workspace.name)


def test_nobody_else_can_look_into_the_folder(workspaces: Workspaces, folder: Path) -> None:
    workspace = workspaces.prepare("t", {"a/b.py": ""})
    modes = [
        stat.S_IMODE(path.stat().st_mode) for path in (folder, workspace, workspace / "a", workspace / "a" / "b.py")
    ]
    assert modes == [0o700, 0o700, 0o700, 0o600]


def test_an_empty_folder_that_is_open_to_others_is_closed_to_them(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with Workspaces(folder, LIMITS):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_with_other_things_is_not_closed_to_others(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    (folder / "letter.txt").touch()
    with pytest.raises(SandboxError, match=r"is open to others and holds 'letter\.txt'"):
        Workspaces(folder, LIMITS)
    assert (stat.S_IMODE(folder.stat().st_mode), held(folder)) == (0o755, ["letter.txt"])


def test_a_folder_that_cannot_be_made_is_an_error_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match=r"cannot be used for workspaces \(Not a directory\)"):
        Workspaces(tmp_path / "file" / "workspaces", LIMITS)


def test_changed_files_take_the_place_of_those_before(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "long before", "b.py": "2"})
    workspaces.write(workspace, {"a.py": b"1", "new/deep/c.py": b"3"})
    assert workspaces.read(workspace) == {"a.py": b"1", "b.py": b"2", "new/deep/c.py": b"3"}
    assert sorted(path.name for path in workspace.rglob("*")) == ["a.py", "b.py", "c.py", "deep", "new"]


def test_a_reader_of_a_changed_file_sees_all_of_the_old_or_all_of_the_new(workspaces: Workspaces) -> None:
    before, after = b"a" * 100_000, b"b" * 100_000
    workspace = workspaces.prepare("t", {"a.py": before})
    contents, is_done = set(), threading.Event()

    def look() -> None:
        while not is_done.is_set():
            contents.add((workspace / "a.py").read_bytes())

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        for content in (after, before) * 20:
            workspaces.write(workspace, {"a.py": content})
        is_done.set()
        looking.result()
    assert contents <= {before, after}


@pytest.mark.parametrize(
    "changed",
    [
        {"a.py": b"9", "../b.py": b"9"},
        {"a.py": b"9", "/etc/passwd": b"9"},
        {"a.py": b"9", "B.py": b"9"},
        {"a.py": b"9", "b.py/c": b"9"},
        {"a.py": b"9", "sgconfig.yml": b"9"},
        {"a.py": b"9", "c.py": b"9" * (1 << 20) + b"9"},
    ],
)
def test_where_one_file_is_refused_none_is_written(workspaces: Workspaces, changed: Mapping[str, bytes]) -> None:
    workspace = workspaces.prepare("t", {"a.py": "1", "b.py": "2"})
    with pytest.raises(DataError):
        workspaces.write(workspace, changed)
    assert workspaces.read(workspace) == {"a.py": b"1", "b.py": b"2"}


@pytest.mark.parametrize(
    ("limits", "accepted", "refused"),
    [
        (WorkspaceLimits(files=2), {"a": "", "b": ""}, {"a": "", "b": "", "c": ""}),
        (WorkspaceLimits(files=2), {"x/y/c": ""}, {"x/y/z/c": ""}),
        (WorkspaceLimits(file_kb=1), {"a": b"x" * 1024}, {"a": b"x" * 1025}),
        (WorkspaceLimits(file_kb=1), {"a": "é" * 512}, {"a": "é" * 513}),
        (
            WorkspaceLimits(total_mb=1),
            {"a": b"x" * (1 << 19), "b": b"x" * (1 << 19)},
            {"a": b"x" * (1 << 19), "b": b"x" * (1 << 19) + b"x"},
        ),
        (WorkspaceLimits(depth=3), {"a/b/c": ""}, {"a/b/c/d": ""}),
    ],
    ids=["files", "folders", "file", "file of text", "total", "depth"],
)
def test_the_limits_hold_for_what_is_prepared_and_for_what_is_read(
    folder: Path, limits: WorkspaceLimits, accepted: dict[str, str | bytes], refused: dict[str, str | bytes]
) -> None:
    with Workspaces(folder, LIMITS) as wide, Workspaces(folder, limits) as narrow:
        assert narrow.read(narrow.prepare("t", accepted)).keys() == accepted.keys()
        remaining = held(folder)
        with pytest.raises(DataError):
            narrow.prepare("t", refused)
        assert held(folder) == remaining
        # what grew too large by itself
        workspace = narrow.prepare("t", {})
        for path, content in wide.read(wide.prepare("t", refused)).items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_bytes(content)
        with pytest.raises(DataError):
            narrow.read(workspace)


def test_what_is_there_counts_when_more_is_written(folder: Path) -> None:
    with Workspaces(folder, WorkspaceLimits(files=2)) as workspaces:
        workspace = workspaces.prepare("t", {"a": "", "b": ""})
        workspaces.write(workspace, {"a": b"1", "b": b"2"})
        with pytest.raises(DataError, match=r"^workspace of 3 files; at most 2 are accepted$"):
            workspaces.write(workspace, {"c": b""})


@pytest.mark.parametrize("field", ["files", "file_kb", "total_mb", "depth"])
def test_a_limit_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValidationError):
        WorkspaceLimits.model_validate({field: 0})


def test_a_removed_workspace_is_gone(workspaces: Workspaces, folder: Path) -> None:
    first, second = workspaces.prepare("t", {"a/b.py": "1"}), workspaces.prepare("t", {"a/b.py": "1"})
    workspaces.cleanup(first)
    assert held(folder) == [second.name]


def test_a_workspace_that_somebody_else_removed_is_removed_and_a_second_time_nothing_is(
    workspaces: Workspaces, folder: Path
) -> None:
    workspace = workspaces.prepare("t", {})
    workspace.rmdir()
    workspaces.cleanup(workspace)
    workspaces.cleanup(workspace)
    assert held(folder) == []


def test_a_removed_workspace_is_neither_read_nor_written(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "1"})
    workspaces.cleanup(workspace)
    with pytest.raises(DataError, match="is no longer in use"):
        workspaces.read(workspace)
    with pytest.raises(DataError, match="is no longer in use"):
        workspaces.write(workspace, {"a.py": b"1"})
    assert not workspace.exists()


def test_what_is_no_workspace_of_ones_own_is_left_alone(workspaces: Workspaces, folder: Path, tmp_path: Path) -> None:
    with Workspaces(folder, LIMITS) as neighbor:
        own, foreign = workspaces.prepare("t", {"a.py": "1"}), neighbor.prepare("t", {"a.py": "1"})
        paths = [tmp_path, folder, own / "a.py", own / "..", folder / "." / ".." / folder.name]
        for path in (*paths, tmp_path / own.name, Path(own.name), folder / own.name[:-1], foreign):
            for use in (workspaces.cleanup, workspaces.read, lambda path: workspaces.write(path, {"a.py": b"2"})):
                with pytest.raises(DataError, match="is no workspace that was prepared here"):
                    use(path)
        assert (own / "a.py").read_text() + (foreign / "a.py").read_text() == "11"


def test_all_workspaces_go_when_they_are_closed(folder: Path) -> None:
    with Workspaces(folder, LIMITS) as workspaces, Workspaces(folder, LIMITS) as neighbor:
        for number in range(3):
            workspaces.prepare(f"t{number}", {"a/b.py": "1"})
        remaining = neighbor.prepare("t", {})
        workspaces.close()
        assert held(folder) == [remaining.name]
    assert list(folder.iterdir()) == []


def test_a_second_close_does_nothing_and_nothing_is_prepared_after_the_first(folder: Path) -> None:
    workspaces = Workspaces(folder, LIMITS)
    workspace = workspaces.prepare("t", {})
    workspaces.close()
    workspaces.close()
    workspaces.cleanup(workspace)
    with pytest.raises(SandboxError, match="are closed here"):
        workspaces.prepare("t", {})
    with pytest.raises(DataError, match="is no longer in use"):
        workspaces.read(workspace)


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_closed_one_leaves_no_descriptors_open(folder: Path) -> None:
    before = descriptors()
    with Workspaces(folder, LIMITS) as workspaces:
        workspace = workspaces.prepare("t", {"a/b/c.py": "1"})
        (workspace / "a" / "link").symlink_to("/etc")
        with pytest.raises(DataError):
            workspaces.read(workspace)
        with pytest.raises(DataError):
            workspaces.write(workspace, {"a/link/x": b""})
    # what other tests left open may be closed meanwhile
    assert descriptors() <= before


def test_threads_share_a_folder_and_a_task_id(folder: Path) -> None:
    def work(workspaces: Workspaces, number: int) -> dict[str, bytes]:
        workspace = workspaces.prepare("same", {"a.py": str(number), "b/c.py": "x"})
        workspaces.write(workspace, {"d/e.py": str(number).encode()})
        results = workspaces.read(workspace)
        workspaces.cleanup(workspace)
        return results

    with Workspaces(folder, LIMITS) as first, Workspaces(folder, LIMITS) as second, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(work, [first, second] * 20, range(40)))
        remaining = held(folder)
    assert results == [
        {"a.py": str(number).encode(), "b/c.py": b"x", "d/e.py": str(number).encode()} for number in range(40)
    ]
    assert remaining == []


def test_a_workspace_is_kept_to_one_thread_at_a_time(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "0"})

    def write(number: int) -> None:
        workspaces.write(workspace, {f"{number}.py": b"x"})

    def read(_: int) -> set[str]:
        return {path for path in workspaces.read(workspace) if ".partial-" in path}

    with ThreadPoolExecutor(4) as threads:
        written = threads.map(write, range(30))
        partials = list(threads.map(read, range(30)))
        list(written)
    assert partials == [set()] * 30
    assert len(workspaces.read(workspace)) == 31


def test_workspaces_may_be_closed_while_others_work_in_them(folder: Path) -> None:
    workspaces = Workspaces(folder, LIMITS)

    def work(number: int) -> None:
        for _ in range(100):
            workspace = workspaces.prepare(f"t{number}", {"a/b.py": "1"})
            workspaces.write(workspace, {"a/c.py": b"2"})
            workspaces.read(workspace)

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, number) for number in range(4)]
        while len(held(folder)) < 20:
            pass
        workspaces.close()
        # each ends at what it finds closed or removed
        assert {type(done.exception()) for done in working} <= {SandboxError, DataError}
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("task_id", ["t", "release-1.2_x", "0", "a" * 80])
def test_a_harmless_task_id_is_its_own_name(task_id: str) -> None:
    assert safe_name(task_id) == task_id


@pytest.mark.parametrize(
    "task_id",
    ["", ".", "..", "../../x", "/etc/passwd", "a\0b", "a\n", "x" * 10_000, "\ud800", "release:1", "é", "-x", "a" * 81],
)
def test_any_other_task_id_becomes_a_harmless_name(task_id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}-[0-9a-f]{16}", safe_name(task_id))


def test_different_task_ids_have_different_names() -> None:
    ids = ["release:1", "release/1", "release_1", "RELEASE_1", "a", "A", "", " ", "task", "é", "e\u0301", "\ud800"]
    ids += [safe_name(task_id) for task_id in ids if safe_name(task_id) != task_id]
    names = {safe_name(task_id).lower() for task_id in ids}
    assert len(names) == len(ids)
