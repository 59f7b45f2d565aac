"""Folders into DVC's layout, without DVC: what is written, what is left alone, and what is refused."""

import hashlib
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.errors import BoundaryError, ConfigError, RecordError
from graftline.core.paths import Paths
from graftline.datasets.dvc import DvcExport, Exported, export_dvc
from graftline.datasets.governance import Dvc, Governance, Wandb, load_governance

SPLIT = "data/processed/python/train"
ROOM = 1 << 16


def store(folder: Path, kind: str, name: str, files: Mapping[str, str], version: int = 1) -> None:
    """Make an artifact of `files`."""

    def make(partial: Path) -> Contents:
        for file, text in files.items():
            (partial / file).parent.mkdir(parents=True, exist_ok=True)
            (partial / file).write_text(text, "utf-8")
        return Contents({"rows": len(files)})

    build(folder, Request(kind, name, "code", {}, {"version": version}), make)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A root with two artifacts."""
    paths = Paths(tmp_path / "root")
    store(paths.division, "division", "all", {"python.parquet": "rows"})
    store(paths.root / SPLIT, "splits", "python/train", {"edits.jsonl": "{}\n", "edits.parquet": "columns"})
    return paths


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def misnamed(remote: Path) -> list[str]:
    """Return the objects whose names are not those of their content."""
    objects = tree(remote / "files" / "md5").items()
    return [name for name, content in objects if name.replace("/", "").removesuffix(".dir") != md5(content)]


def outcome(export: DvcExport) -> list[tuple[str, int, bool]]:
    return [(artifact.folder, artifact.copied, artifact.is_changed) for artifact in export.artifacts]


def test_a_dvc_file_and_the_objects_are_what_dvc_writes_for_a_folder(paths: Paths) -> None:
    # taken from `dvc add` of DVC 3.67 over these two files: a name that is not ASCII, and one in a folder
    store(paths.normalized("small"), "division", "x", {})  # another kind than the place is for: left out
    folder = paths.raw("small")
    record = {
        "source": "small", "version": "1", "license": "MIT", "downloaded_at": "2024-01-01T00:00:00+00:00",
        "sha256": "0" * 64, "num_records": 2,
    }  # fmt: skip

    def make(partial: Path) -> Contents:
        (partial / "sub").mkdir()
        (partial / "a").write_bytes(b"hi\n")
        (partial / "sub" / "ü b").write_bytes(b"yo\n")
        return Contents({"rows": 2}, record)

    build(folder, Request("raw", "small", "code"), make)
    meta = (folder / "_meta.json").read_bytes()
    export = export_dvc(paths, "storage")
    objects = tree(paths.root / "storage" / "files" / "md5")
    listing = (
        f'[{{"md5": "{md5(meta)}", "relpath": "_meta.json"}},'
        ' {"md5": "764efa883dda1e11db47671c4a3bbd9e", "relpath": "a"},'
        ' {"md5": "f6255bb01c648fe967714d52a89e8e9c", "relpath": "sub/\\u00fc b"}]'
    ).encode()
    name = md5(listing)
    assert objects["76/4efa883dda1e11db47671c4a3bbd9e"] == b"hi\n"
    assert objects["f6/255bb01c648fe967714d52a89e8e9c"] == b"yo\n"
    assert objects[f"{name[:2]}/{name[2:]}.dir"] == listing
    size = len(meta) + 6
    assert (folder.parent / "source.dvc").read_text("utf-8") == (
        f"outs:\n- md5: {name}.dir\n  size: {size}\n  nfiles: 3\n  hash: md5\n  path: source\n"
    )
    assert export.artifacts[0] == Exported("data/raw/small/source", f"{name}.dir", 3, size, 4, True)
    assert export.refused == (f"{folder.parent}/normalized: holds 'division', but 'normalized' was asked for",)


def test_a_second_export_copies_nothing_and_leaves_every_byte(paths: Paths) -> None:
    first = export_dvc(paths, "storage")
    before = tree(paths.root)
    second = export_dvc(paths, "storage")
    assert outcome(first) == [("data/division", 3, True), (SPLIT, 4, True)]
    assert outcome(second) == [("data/division", 0, False), (SPLIT, 0, False)]
    assert tree(paths.root) == before


def test_equal_artifacts_give_equal_bytes_in_any_remote(paths: Paths, tmp_path: Path) -> None:
    export_dvc(paths, "storage")
    written = (paths.data / "division.dvc").read_bytes()
    export_dvc(paths, (tmp_path / "elsewhere").as_uri())
    assert tree(tmp_path / "elsewhere") == tree(paths.root / "storage")
    assert (paths.data / "division.dvc").read_bytes() == written


def test_a_changed_artifact_gets_another_dvc_file_and_the_others_keep_theirs(paths: Paths) -> None:
    export_dvc(paths, "storage")
    before = tree(paths.data)
    store(paths.root / SPLIT, "splits", "python/train", {"edits.jsonl": "{}\n", "edits.parquet": "other"}, version=2)
    export = export_dvc(paths, "storage")
    # the file that stayed as it was is not copied: another table, another record, another list
    assert outcome(export) == [("data/division", 0, False), (SPLIT, 3, True)]
    after = tree(paths.data)
    assert [name for name in after if name.endswith(".dvc") and after[name] != before[name]] == [
        "processed/python/train.dvc"
    ]


def test_an_object_that_was_cut_short_is_copied_again(paths: Paths) -> None:
    export_dvc(paths, "storage")
    whole = tree(paths.root / "storage")
    [object] = [name for name, content in whole.items() if content == b"columns"]
    (paths.root / "storage" / object).write_bytes(b"col")
    assert outcome(export_dvc(paths, "storage"))[1] == (SPLIT, 1, False)
    assert tree(paths.root / "storage") == whole


@pytest.fixture
def large(paths: Paths) -> bytes:
    """The content of a file that is larger than `ROOM`, in the artifact that is exported last."""
    content = "0123456789abcdef" * (ROOM // 8)
    store(paths.root / SPLIT, "splits", "python/train", {"edits.jsonl": "{}\n", "edits.parquet": content}, version=2)
    return content.encode()


def test_a_full_remote_is_told_and_leaves_no_half_object(paths: Paths, large: bytes) -> None:
    objects, limits = paths.root / "storage" / "files" / "md5", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, limits[1]))
    try:
        with pytest.raises(BoundaryError) as caught:
            export_dvc(paths, "storage")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    name = f"{md5(large)[:2]}/{md5(large)[2:]}"
    assert str(caught.value).startswith(f"{objects}/{name}: OSError: [Errno 27] File too large")
    # all of the division, and of the split what comes before the large file
    assert misnamed(paths.root / "storage") == []
    assert len(tree(paths.root / "storage")) == 5
    assert sorted(path.name for path in paths.data.rglob("*.dvc")) == ["division.dvc"]


def test_an_export_that_was_killed_leaves_no_half_object_and_the_next_one_completes_it(
    paths: Paths, large: bytes
) -> None:
    # the kernel kills a process that writes beyond the limit, in the middle of the write
    program = f"""
import resource, signal, sys
from pathlib import Path
from graftline.datasets.dvc import export_dvc
from graftline.core.paths import Paths
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
export_dvc(Paths(Path(sys.argv[1])), "storage")
"""
    killed = subprocess.run([sys.executable, "-c", program, str(paths.root)], capture_output=True)
    assert (killed.returncode, killed.stderr) == (-signal.SIGXFSZ, b"")
    remote = paths.root / "storage"
    [partial] = remote.rglob(".*.partial-*")
    assert (partial.stat().st_size, len(tree(remote))) == (ROOM, 6)
    partial.unlink()
    assert misnamed(remote) == []
    export = export_dvc(paths, "storage")
    assert outcome(export) == [("data/division", 0, False), (SPLIT, 2, True)]
    assert (misnamed(remote), large in tree(remote / "files").values()) == ([], True)


def test_an_altered_artifact_is_left_out_with_the_reason_and_keeps_its_old_dvc_file(paths: Paths) -> None:
    export_dvc(paths, "storage")
    before = tree(paths.data)["processed/python/train.dvc"]
    (paths.root / SPLIT / "edits.jsonl").write_text("{} \n", "utf-8")
    export = export_dvc(paths, "storage")
    assert outcome(export) == [("data/division", 0, False)]
    assert export.refused == (
        f"{paths.root / SPLIT}: file 'edits.jsonl' was altered after it was written; materialize its asset again",
    )
    assert tree(paths.data)["processed/python/train.dvc"] == before


def test_folders_in_the_making_are_passed_over(paths: Paths) -> None:
    (paths.data / "processed" / "python" / ".dev.partial-0123").mkdir()
    (paths.data / "processed" / ".java" / "dev").mkdir(parents=True)
    assert export_dvc(paths, "storage").refused == ()


def test_a_root_without_artifacts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as caught:
        export_dvc(Paths(tmp_path), "storage")
    assert str(caught.value) == (
        f"{tmp_path}/data: holds no artifact of a dataset; make some first, with 'graftline run'"
    )


@pytest.mark.parametrize(
    ("remote", "message"),
    [
        (None, "configs/governance.yaml: dvc.remote is not set; name a folder or a URL there or by --remote"),
        (
            "ftp://me:hunter2@example.invalid/x",
            "dvc.remote: url: holds a password; name the variable that has it under `secrets` instead",
        ),
        (
            "cloud://bucket",
            "dvc.remote: url: 'cloud://bucket' cannot be opened (Protocol not known: cloud); install its client or mend its"
            " entry",
        ),
    ],
)
def test_a_remote_that_cannot_be_one_is_refused(paths: Paths, remote: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        export_dvc(paths, remote)
    assert str(caught.value) == message


def test_a_remote_that_is_a_file_fails_with_one_sentence(paths: Paths) -> None:
    (paths.root / "storage").write_text("", "utf-8")
    with pytest.raises(BoundaryError, match=r"/storage/files/md5/.*: NotADirectoryError: .*; check the store"):
        export_dvc(paths, "storage")


def test_nothing_leaves_a_checkout_unless_its_configuration_says_so(checkout: Path) -> None:
    off = Governance(dvc=Dvc(remote=None), wandb=Wandb(mode="disabled"))
    assert load_governance(Paths(checkout)) == off == Governance()
