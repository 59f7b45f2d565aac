"""Images of the executor `local`: archives of unknown origin, the layout of OCI, and layers that are made once."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError, HarborError, SandboxError
from graftline.harbor.executors.images import Image, ImageStore
from graftline.sandbox import containers
from graftline.sandbox.containers import LinuxContainer
from tests.small_root import has_containers, small_root

pytestmark = pytest.mark.skipif(not has_containers, reason="root and namespaces are needed")

PATHS = {"PATH": "/usr/bin:/bin"}
Entry = str | tarfile.TarInfo


def a_tar(entries: Mapping[str, Entry]) -> bytes:
    """Return a tar of texts by their names, and of members that are no files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, entry in entries.items():
            member = entry if isinstance(entry, tarfile.TarInfo) else tarfile.TarInfo()
            member.name = name
            content = entry.encode() if isinstance(entry, str) else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def a_member(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


def a_layout(folder: Path, layers: list[bytes], config: Mapping[str, Any]) -> Path:
    """Write an image in the layout of OCI."""

    def blob(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        path = folder / "blobs" / "sha256" / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    rows = [blob(gzip.compress(layer)) for layer in layers]
    manifest = {"config": blob(json.dumps({"config": config}).encode()), "layers": rows}
    index = {"manifests": [blob(json.dumps(manifest).encode())]}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def printed_in(store: ImageStore, image: Image, script: str) -> str:
    container = LinuxContainer(store.layers_folder, image.layers)
    try:
        return container.run(["sh", "-c", script], env=image.env, timeout_s=30).output.decode().strip()
    finally:
        container.close()


def a_store(folder: Path, **roots: Path) -> ImageStore:
    return ImageStore(folder / "images", {f"{name}:*": path for name, path in roots.items()}, "none", 60.0, 256)


def test_a_layout_of_oci_has_its_layers_with_whiteouts_and_its_configuration(tmp_path: Path) -> None:
    base = small_root(tmp_path / "tiny.tar").read_bytes()
    layers = [
        base,
        a_tar({"data/a": "1", "data/b": "2", "more/c": "3"}),
        a_tar({"data/.wh.a": "", "more/.wh..wh..opq": "", "more/d": "4"}),
    ]
    config = {"Env": ["WHO=oci", "PATH=/usr/bin:/bin"], "WorkingDir": "/data", "User": "1000"}
    store = a_store(tmp_path, oci=a_layout(tmp_path / "oci", layers, config))
    image = store.build("FROM oci:1\nRUN id -u > /tmp/who\n", {})
    assert (image.workdir, image.user, image.env["WHO"]) == ("/data", "1000", "oci")
    assert printed_in(store, image, "ls /data /more | tr '\\n' ' '; cat /tmp/who") == "/data: b  /more: d 1000"


def test_devices_are_left_out_and_links_lead_no_further_than_the_container(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the machine")
    hostile = {
        "dev/mem": a_member(tarfile.CHRTYPE),
        "data/link": a_member(tarfile.SYMTYPE, str(tmp_path)),
        "data/up": a_member(tarfile.SYMTYPE, "../../../../../../etc"),
        "data/up/mark": "inside",
    }
    layers = [small_root(tmp_path / "tiny.tar").read_bytes(), a_tar(hostile)]
    store = a_store(tmp_path, bad=a_layout(tmp_path / "bad", layers, {}))
    image = store.build("FROM bad:1\n", {})
    assert secret.read_text() == "of the machine"
    assert not Path("/etc/mark").exists()
    assert printed_in(store, image, "cat /etc/mark; [ -e /dev/mem ] || echo ' no memory'; cat /data/link/secret") == (
        "inside no memory\ncat: /data/link/secret: No such file or directory"
    )


def test_a_whiteout_removes_a_tree_of_any_depth_and_nothing_that_is_mounted(tmp_path: Path) -> None:
    # a folder more at a time: of one name the missing folders are made by recursion
    folders = {f"deep/{'a/' * depth}": a_member(tarfile.DIRTYPE) for depth in range(1600)}
    layers = [
        small_root(tmp_path / "tiny.tar").read_bytes(),
        a_tar(folders),
        a_tar(
            {".wh.deep": "", ".wh.proc": "", ".wh.none": "", "none/.wh.none": "", "etc/passwd/.wh.none": "", "new": "1"}
        ),
    ]
    store = a_store(tmp_path, deep=a_layout(tmp_path / "deep", layers, {}))
    image = store.build("FROM deep:1\n", {})
    assert (
        printed_in(store, image, "[ -e /deep ] || echo gone; cat /new; [ -e /proc/self ] && echo proc") == "gone\n1proc"
    )


def test_a_tree_too_deep_to_be_packed_or_unpacked_ends_no_container(tmp_path: Path) -> None:
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    container = LinuxContainer(store.layers_folder, store.build("FROM tiny:1\n", {}).layers)
    try:
        with pytest.raises(DataError):
            container.put("/in", a_tar({"a/" * 1600: a_member(tarfile.DIRTYPE)}))
        container.put("/out", a_tar({"a/" * depth: a_member(tarfile.DIRTYPE) for depth in range(1, 1600)}))
        with pytest.raises(DataError):
            container.get("/out", 1 << 20)
        assert container.run(["id", "-u"], env=PATHS, timeout_s=30).output == b"0\n"
    finally:
        container.close()


@pytest.mark.parametrize("name", ["../outside", "data/../../outside"])
def test_a_member_that_leads_out_is_refused_and_leaves_no_layer(tmp_path: Path, name: str) -> None:
    (tmp_path / "bad.tar").write_bytes(a_tar({name: "x"}))
    store = a_store(tmp_path, bad=tmp_path / "bad.tar")
    with pytest.raises(DataError, match="leads out of its folder"):
        store.build("FROM bad:1\n", {})
    assert [path.name for path in store.layers_folder.iterdir() if path.name.startswith("root-")] == []


def test_what_is_no_image_says_so(tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_text("no tar")
    with pytest.raises(DataError, match="file could not be opened"):
        a_store(tmp_path, no=tmp_path / "no.tar").build("FROM no:1\n", {})
    with pytest.raises(HarborError, match="is not there; name a tar, or a folder in the layout of OCI"):
        a_store(tmp_path, no=tmp_path / "none.tar").build("FROM no:1\n", {})
    broken = a_layout(tmp_path / "broken", [b"x"], {})
    for path in (broken / "blobs" / "sha256").iterdir():
        path.unlink()
    with pytest.raises(HarborError, match=r"blob '[0-9a-f]{20}' is not there; copy the image again"):
        a_store(tmp_path, no=broken).build("FROM no:1\n", {})


def test_a_file_of_two_names_travels_under_both(tmp_path: Path) -> None:
    linked = a_tar({"data/a": "1", "data/b": a_member(tarfile.LNKTYPE, "data/a")})
    layers = [small_root(tmp_path / "tiny.tar").read_bytes(), linked]
    store = a_store(tmp_path, oci=a_layout(tmp_path / "oci", layers, {}))
    image = store.build("FROM oci:1 AS made\nFROM oci:1\nCOPY --from=made /data /got/\n", {})
    assert printed_in(store, image, "cat /got/a /got/b") == "11"


def test_what_a_killed_build_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    (store.layers_folder / ".partial-killed" / "upper").mkdir(parents=True)
    store.build("FROM tiny:1\n", {})
    assert [path.name for path in store.layers_folder.iterdir() if path.name.startswith(".partial")] == []


def test_what_a_killed_container_has_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    # the users of a container get no further than here below the folders of a test
    temporary = Path(tempfile.mkdtemp())
    temporary.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    opens = f"c = LinuxContainer(Path({str(store.layers_folder)!r}), {store.build('FROM tiny:1', {}).layers!r})"
    program = f"import os; from pathlib import Path; from {LinuxContainer.__module__} import *; {opens}; os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(temporary)})
    assert (killed.returncode, len(list(temporary.iterdir()))) == (-9, 1)
    LinuxContainer(store.layers_folder, store.build("FROM tiny:1", {}).layers).close()
    temporary.rmdir()  # where nothing is in it


def test_a_container_that_the_machine_has_no_place_for_says_so(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"a container of an image does not start .*No such file or directory"):
        LinuxContainer(tmp_path / "none", ())


def test_an_equal_beginning_is_built_once(tmp_path: Path) -> None:
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    beginning = "FROM tiny:1\nRUN head -c 16 /dev/urandom > /drawn\n"
    first = store.build(f"{beginning}RUN echo 1 > /n\n", {})
    second = store.build(f"{beginning}RUN echo 2 > /n\n", {})
    assert first.layers[:2] == second.layers[:2]
    assert printed_in(store, second, "cat /n") == "2"


@pytest.mark.parametrize("has_disks", [True, False])
def test_a_command_that_fills_the_disk_ends_with_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_disks: bool
) -> None:
    if has_disks and not Path("/dev/loop-control").exists():
        pytest.skip("loop devices are needed")
    if not has_disks:
        monkeypatch.setattr(containers, "_make_disk", lambda *_: None)
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    with pytest.raises(DataError, match=r"an instruction may add 256 MB; raise executor\.build_disk_mb"):
        store.build("FROM tiny:1\nRUN head -c 600M /dev/zero > /large && sleep 20\n", {})
    assert [path.name for path in store.layers_folder.iterdir() if path.name.startswith(".partial")] == []


def test_what_a_command_changed_is_kept_as_it_was(tmp_path: Path) -> None:
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    script = (
        "mkdir -p /d/in && touch /d/in/old && echo 1 > /a && chmod 4750 /a && cp -s /a /link && cp -l /a /b && touch /c",
        "rm -r /d && mkdir /d && rm /c && head -c 1 /dev/zero > /d/new",
    )
    image = store.build("FROM tiny:1\n" + "".join(f"RUN {line}\n" for line in script), {})
    look = "ls /d; find /a -printf '%m %U %n %s '; find /link -printf '%l '; [ -e /c ] || echo gone"
    assert printed_in(store, image, look) == "new\n4750 0 2 2 /a gone"


def test_what_cannot_be_copied_to_a_layer_is_no_layer(tmp_path: Path) -> None:
    if not Path("/dev/loop-control").exists():
        pytest.skip("loop devices are needed")
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    deeper = 'n=$(head -c 200 /dev/zero | tr "\\0" a); for i in 1 2 3 4 5; do for k in 1 2 3 4 5; do mkdir $n; cd -P $n; done; done'
    with pytest.raises(DataError, match=r"what it changed cannot be kept: .*File name too long"):
        store.build(f"FROM tiny:1\nRUN {deeper}\n", {})


def test_a_machine_without_room_for_a_build_says_so(tmp_path: Path) -> None:
    store = ImageStore(
        tmp_path / "images", {"tiny:*": small_root(tmp_path / "tiny.tar")}, "none", 60.0, disk_mb=1 << 40
    )
    with pytest.raises(HarborError, match=r"MB \(executor\.build_disk_mb\).* MB are free; make room, or lower it"):
        store.build("FROM tiny:1\nRUN true\n", {})


def test_a_copy_of_other_content_is_another_layer(tmp_path: Path) -> None:
    store = a_store(tmp_path, tiny=small_root(tmp_path / "tiny.tar"))
    images = [store.build("FROM tiny:1\nCOPY . /got/\n", {"sub/a.sh": (text, 0o755)}) for text in (b"1", b"2")]
    assert [printed_in(store, image, "cat /got/sub/a.sh; [ -x /got/sub/a.sh ] && echo x") for image in images] == [
        "1x",
        "2x",
    ]
