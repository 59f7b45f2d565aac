"""A server that speaks Daytona's REST API on loopback, as its SDK asks for it, and does the work with folders and processes.

    with DaytonaServer() as server:
        Daytona(DaytonaConfig(api_key=server.key, api_url=server.url))

A snapshot is a folder made by a Dockerfile, a sandbox a folder whose commands run in a shell of this machine. Contexts come
by an object store of its own, as far as the SDK's client needs one. Forms of answers are those of the SDK 0.226.
"""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from email import policy
from email.parser import BytesParser
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from graftline.harbor.executors.daytona import DaytonaExecutor, DaytonaExecutorConfig
from tests.container_engine import ContainerEngine, ContainerFiles, EngineHandler, Image, RefusalError

_WHEN = "2026-11-01T00:00:00.000Z"


@dataclass
class Snapshot:
    """An image with a name."""

    name: str
    image: Image
    asked: dict[str, Any] = field(default_factory=dict)
    state: str = "active"
    error_reason: str | None = None
    log: str = ""
    id: str = field(default_factory=lambda: str(uuid4()))

    looks: int = 0
    """After so many it is there."""

    def seen(self) -> dict[str, Any]:
        if self.looks:
            self.looks -= 1
            self.state = self.state if self.looks else "active"
        return {
            "id": self.id,
            "general": False,
            "name": self.name,
            "state": self.state,
            "size": None,
            "entrypoint": None,
            "cpu": self.asked.get("cpu", 1),
            "gpu": 0,
            "mem": self.asked.get("memory", 1),
            "disk": self.asked.get("disk", 3),
            "errorReason": self.error_reason,
            "createdAt": _WHEN,
            "updatedAt": _WHEN,
            "lastUsedAt": None,
            "sourceSandboxId": None,
        }


@dataclass
class Sandbox:
    """A folder, and what runs in it."""

    asked: dict[str, Any]
    files: ContainerFiles
    snapshot: Snapshot
    state: str = "started"
    id: str = field(default_factory=lambda: str(uuid4()))
    commands: list[dict[str, Any]] = field(default_factory=list)

    def seen(self, url: str) -> dict[str, Any]:
        size = self.snapshot.seen()
        return {
            "id": self.id,
            "organizationId": "organization",
            "name": self.id,
            "snapshot": self.snapshot.name,
            "user": "root",
            "env": self.asked.get("env") or {},
            "labels": self.asked.get("labels") or {},
            "public": False,
            "networkBlockAll": bool(self.asked.get("networkBlockAll")),
            "kvm": False,
            "target": "us",
            "cpu": size["cpu"],
            "gpu": 0,
            "memory": size["mem"],
            "disk": size["disk"],
            "state": self.state,
            "toolboxProxyUrl": f"{url}/toolbox",
        }

    def execute(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.commands.append(asked)
        marked = {"CONTAINER_FOLDER": str(self.files.folder), **self.snapshot.image.env, **(asked.get("envs") or {})}
        done = subprocess.run(
            ["sh", "-c", self.files.mapped(asked["command"])],
            cwd=self.files.path(self.snapshot.image.working_dir),
            env=self.files.environment(marked),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
        )
        return {"exitCode": done.returncode, "result": self.files.unmapped(done.stdout).decode("utf-8", "replace")}

    def end(self) -> None:
        """Kill what runs in it, and take its files away."""
        mark = f"CONTAINER_FOLDER={self.files.folder}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
        shutil.rmtree(self.files.folder, ignore_errors=True)
        self.state = "destroyed"


class DaytonaServer(ContainerEngine):
    """The server; `url` is that of its API."""

    build_path, create_path, write_path, read_path = (
        "POST api/snapshots",
        "POST api/sandbox",
        "bulk-upload",
        "bulk-download",
    )

    def __init__(self) -> None:
        super().__init__()
        self.key = "dtn_0123456789"
        self.snapshots: dict[str, Snapshot] = {}
        self.commands: list[dict[str, Any]] = []
        """Of all sandboxes, those that are gone included."""
        self.objects: dict[str, bytes] = {}
        self.is_slow_to_build = False
        """Whether a build is seen on its way."""
        self._patch = pytest.MonkeyPatch()

    def listen(self) -> TCPServer:
        allow_http(self._patch)
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"engine": self}))
        server.daemon_threads = True
        self.base = f"http://127.0.0.1:{server.server_port}"
        self.url = f"{self.base}/api"
        return server

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._patch.undo()

    def open_executor(self, **changes: Any) -> DaytonaExecutor:
        config = DaytonaExecutorConfig(api_url=self.url, target="us", poll_s=0.01, **changes)
        return DaytonaExecutor(config, SecretStr(self.key))

    def forget_images(self) -> None:
        self.snapshots.clear()

    def leave_container(self, name: str, snapshot_id: str, labels: dict[str, str]) -> None:
        files = ContainerFiles(self.folder())
        self.containers[name] = Sandbox({"labels": labels}, files, self.snapshots[snapshot_id], id=name)

    def remove(self, container: Sandbox) -> None:
        container.end()
        del self.containers[container.id]

    def snapshot(self, name: str) -> Snapshot:
        for snapshot in self.snapshots.values():
            if name in (snapshot.id, snapshot.name):
                return snapshot
        raise RefusalError(404, f"Snapshot {name} not found")

    def sandbox(self, name: str) -> Sandbox:
        if name not in self.containers:
            raise RefusalError(404, f"Sandbox with ID or name {name} not found")
        return self.containers[name]

    def build(self, asked: dict[str, Any]) -> Snapshot:
        contexts = asked["buildInfo"].get("contextHashes") or []
        source = self.unpacked(*(self.objects[f"organization/{each}/context.tar"] for each in contexts))
        image = Image(ContainerFiles(self.folder()))
        images = {name: each.image for name, each in self.snapshots.items()}
        snapshot = self.snapshots[asked["name"]] = Snapshot(asked["name"], image, asked)
        for text, fault in image.steps(source, asked["buildInfo"]["dockerfileContent"], images):
            snapshot.log += text
            if fault:
                snapshot.state, snapshot.error_reason = "build_failed", fault
        return snapshot


class _Handler(EngineHandler):
    disable_nagle_algorithm = True
    engine: DaytonaServer

    def route(self, parts: list[str]) -> None:
        if parts[0] == "s3":
            self._store("/".join(parts[2:]))
        elif self.headers.get("Authorization") != f"Bearer {self.engine.key}":
            raise RefusalError(401, "Unauthorized")
        elif parts[0] == "toolbox":
            self._of_sandbox(self.engine.sandbox(parts[1]), parts[2:])
        else:
            self._route(parts[1:])

    def _route(self, parts: list[str]) -> None:
        daytona = self.engine
        match [self.command, *parts]:
            case ["GET", "object-storage", "push-access"]:
                access = {name: name for name in ("accessKey", "secret", "sessionToken", "bucket")}
                place = {"storageUrl": f"{daytona.base}/s3", "organizationId": "organization", "region": "us-east-1"}
                self.send_json({**access, **place})
            case ["POST", "snapshots"]:
                snapshot = daytona.build(json.loads(self.body))
                self.send_json({**snapshot.seen(), **({"state": "building"} if daytona.is_slow_to_build else {})})
            case ["GET", "snapshots", name, "build-logs-url"]:
                self.send_json({"url": f"{daytona.url}/snapshots/{name}/build-logs"})
            case ["GET", "snapshots", name, "build-logs"]:
                self.send_content(daytona.snapshot(name).log.encode(), "text/plain")
            case ["GET", "snapshots", name]:
                self.send_json(daytona.snapshot(name).seen())
            case ["POST", "snapshots", name, "activate"]:
                daytona.snapshot(name).state = "active"
                self.send_json(daytona.snapshot(name).seen())
            case ["DELETE", "snapshots", name]:
                del daytona.snapshots[daytona.snapshot(name).name]
                self.send_content(b"")
            case ["POST", "sandbox"]:
                asked = json.loads(self.body)
                daytona.created.append(asked)
                snapshot = daytona.snapshot(asked["snapshot"])
                files = ContainerFiles(daytona.folder())
                files.copy_of(snapshot.image.files)
                sandbox = Sandbox(asked, files, snapshot, commands=daytona.commands)
                daytona.containers[sandbox.id] = sandbox
                self.send_json(sandbox.seen(daytona.base))
            case ["GET", "sandbox"]:
                wanted = json.loads(self.query.get("labels", "{}")).items()
                found = [
                    each for each in daytona.containers.values() if wanted <= (each.asked.get("labels") or {}).items()
                ]
                self.send_json({"items": [each.seen(daytona.base) for each in found], "nextCursor": None})
            case ["GET", "sandbox", name]:
                self.send_json(daytona.sandbox(name).seen(daytona.base))
            case ["DELETE", "sandbox", name]:
                sandbox = daytona.sandbox(name)
                daytona.remove(sandbox)
                self.send_json(sandbox.seen(daytona.base))
            case _:
                raise RefusalError(404, f"Cannot {self.command} {self.path}")

    def _of_sandbox(self, sandbox: Sandbox, parts: list[str]) -> None:
        match [self.command, *parts]:
            case ["GET", "work-dir"]:
                self.send_json({"dir": sandbox.snapshot.image.working_dir or "/root"})
            case ["POST", "process", "execute"]:
                self.send_json(sandbox.execute(json.loads(self.body)))
            case ["POST", "files", "bulk-upload"]:
                self._upload(sandbox)
            case ["POST", "files", "bulk-download"]:
                self._download(sandbox, json.loads(self.body)["paths"])
            case _:
                raise RefusalError(404, f"Cannot {self.command} {self.path}")

    def _upload(self, sandbox: Sandbox) -> None:
        header = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = BytesParser(policy=policy.HTTP).parsebytes(header + self.body)
        contents = {
            str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
            for part in message.iter_parts()  # type: ignore[attr-defined]
        }
        for name in [name for name in contents if name.endswith(".path")]:
            path = sandbox.files.path(contents[name].decode())
            path.write_bytes(contents[f"{name.removesuffix('path')}file"])
            sandbox.files.map_script(path)
        self.send_content(b"")

    def _download(self, sandbox: Sandbox, paths: list[str]) -> None:
        pieces = []
        for name in paths:
            path = sandbox.files.path(name)
            if path.is_file():
                kind, content = "application/octet-stream", sandbox.files.unmapped(path.read_bytes())
            else:
                fault = {"message": "file not found", "statusCode": 404, "code": "FILE_NOT_FOUND", "source": "DAEMON"}
                kind, content = "application/json", json.dumps(fault).encode()
            field_name = "file" if path.is_file() else "error"
            head = (
                f'--edge\r\nContent-Disposition: form-data; name="{field_name}"; filename="{name}"\r\n'
                f"Content-Type: {kind}\r\n\r\n"
            )
            pieces += [head.encode(), content, b"\r\n"]
        self.send_content(b"".join([*pieces, b"--edge--\r\n"]), "multipart/form-data; boundary=edge")

    def _store(self, name: str) -> None:
        """Answer as an object store: one object at a time, or in parts."""
        objects = self.engine.objects
        match self.command:
            case "HEAD":
                if name not in objects:
                    self.send_content(b"", status=404)
                else:
                    modified = {"Last-Modified": "Sun, 01 Nov 2026 00:00:00 GMT", "ETag": '"1"'}
                    self.send_content(objects[name], headers=modified)
            case "POST" if "uploads" in self.query:
                text = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                self.send_content(text.encode(), "application/xml")
            case "POST":
                parts = sorted(
                    (key for key in objects if key.startswith(f"{name}#")), key=lambda key: int(key.rpartition("#")[2])
                )
                objects[name] = b"".join(objects.pop(part) for part in parts)
                text = "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"
                self.send_content(text.encode(), "application/xml")
            case "PUT":
                part = self.query.get("partNumber")
                objects[f"{name}#{part}" if part else name] = self.body
                self.send_content(b"", headers={"ETag": '"1"'})
            case _:
                raise RefusalError(404, f"Cannot {self.command} {self.path}")


def allow_http(patch: pytest.MonkeyPatch) -> None:
    """Let the SDK's store, which speaks TLS alone, talk to a server without a certificate."""
    from daytona._sync import object_storage

    store = object_storage.S3Store

    def plain(**arguments: Any) -> Any:
        return store(**{**arguments, "client_options": {**arguments["client_options"], "allow_http": True}})

    patch.setattr(object_storage, "S3Store", plain)
