"""A server that speaks the Docker Engine API over a socket file, and does the work with folders and processes.

    with DockerEngine() as engine:
        docker.APIClient(base_url=engine.url)

An image is a folder, a container a folder with a process of it. Of Dockerfiles it knows what `box_images` knows; of limits it keeps the memory. Forms of answers are those of version 1.47:
https://docs.docker.com/reference/api/engine/version/v1.47/
"""

import base64
import gzip
import json
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import TCPServer, ThreadingUnixStreamServer
from typing import Any
from uuid import uuid4

from graftline.harbor.executors.docker import DockerExecutor, DockerExecutorConfig
from tests.container_engine import ContainerEngine, ContainerFiles, EngineHandler, Image, RefusalError

INSTRUCTIONS = ("FROM", "WORKDIR", "ENV", "LABEL", "COPY", "RUN")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Container:
    """A folder, and a process once it is started."""

    id: str
    config: dict[str, Any]
    files: ContainerFiles
    image: Image
    state: dict[str, Any] = field(default_factory=lambda: {"Status": "created", "Running": False, "ExitCode": 0})
    printed: list[tuple[int, bytes]] = field(default_factory=list)
    process: "subprocess.Popen[bytes] | None" = None
    is_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        words = self.files.words([*(self.config.get("Entrypoint") or []), *(self.config.get("Cmd") or [])])
        own = dict(each.partition("=")[::2] for each in self.config.get("Env") or [])
        folder = self.files.path(self.config.get("WorkingDir") or self.image.working_dir)
        try:
            process = self.process = subprocess.Popen(
                words,
                cwd=folder,
                env=self.files.environment({**self.image.env, **own}),
                stdin=subprocess.PIPE if self.config.get("OpenStdin") else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self.state.update(ExitCode=127, Status="created")
            raise RefusalError(400, f'exec: "{words[0]}": {error.strerror}: unknown') from None
        self.state.update(Status="running", Running=True)
        readers = [
            threading.Thread(target=self._read, args=each) for each in ((1, process.stdout), (2, process.stderr))
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._wait, args=(process, readers)).start()

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def feed(self, stream: Any) -> None:
        """Pass on what comes by an attached line, until its end."""
        while self.process is None and not self.is_over.wait(0.005):
            pass
        assert self.process is not None
        with suppress(OSError, ValueError), self.process.stdin as stdin:  # type: ignore[union-attr]
            while chunk := stream.read1(1 << 16):
                stdin.write(chunk)
                stdin.flush()

    def _read(self, kind: int, stream: Any) -> None:
        with stream:
            while chunk := stream.read1(1 << 14):
                self.printed.append((kind, chunk))

    def _wait(self, process: "subprocess.Popen[bytes]", readers: list[threading.Thread]) -> None:
        most = (self.config.get("HostConfig") or {}).get("Memory") or 1 << 62
        while process.poll() is None:
            with suppress(OSError, IndexError):
                if int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE > most:
                    self.state["OOMKilled"] = True
                    self.kill()
            time.sleep(0.005)
        self.kill()  # a container's processes end with its first one
        for reader in readers:
            reader.join()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        self.state.update(Status="exited", Running=False, ExitCode=code)
        self.is_over.set()


@dataclass
class Exec:
    """A command of a container that runs."""

    container: Container
    config: dict[str, Any]
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        own = dict(each.partition("=")[::2] for each in self.config.get("Env") or [])
        files, image = self.container.files, self.container.image
        folder = files.path(self.config.get("WorkingDir") or image.working_dir or "/")
        self.process = subprocess.Popen(
            files.words(self.config["Cmd"]),
            cwd=folder,
            env=files.environment({**image.env, **own}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


class DockerEngine(ContainerEngine):
    """The server; `url` is where it is."""

    build_path, create_path, write_path, read_path = "POST build", "/create", "/archive", "/logs"

    def __init__(self, has_disk_limits: bool = False) -> None:
        super().__init__()
        self.has_disk_limits = has_disk_limits
        self.images: dict[str, Image] = {}
        self.execs: dict[str, Exec] = {}
        self.networks: list[tuple[str, str]] = []

    def listen(self) -> TCPServer:
        path = f"{self._folder}/s"
        self.url = f"unix://{path}"
        return _Server(path, type("Handler", (_Handler,), {"engine": self}))

    def open_executor(self, **changes: Any) -> DockerExecutor:
        return DockerExecutor(DockerExecutorConfig(base_url=self.url, **changes))

    def forget_images(self) -> None:
        self.images.clear()

    def leave_container(self, name: str, snapshot_id: str, labels: dict[str, str]) -> None:
        container = self.create({"Image": snapshot_id, "Labels": labels})
        self.containers[name] = self.containers.pop(container.id)
        container.id = name
        self.created.pop()

    def container(self, name: str) -> Container:
        if name not in self.containers:
            raise RefusalError(404, f"No such container: {name}")
        return self.containers[name]

    def image(self, name: str) -> Image:
        if name not in self.images:
            raise RefusalError(404, f"No such image: {name}")
        return self.images[name]

    def create(self, config: dict[str, Any]) -> Container:
        host = config.get("HostConfig") or {}
        if host.get("StorageOpt") and not self.has_disk_limits:
            message = "--storage-opt is supported only for overlay over xfs with 'pquota' mount option"
            raise RefusalError(500, message)
        self.created.append(config)
        image = self.image(config["Image"])
        files = ContainerFiles(self.folder())
        files.copy_of(image.files)
        container = Container(uuid4().hex * 2, config, files, image)
        self.containers[container.id] = container
        return container

    def remove(self, container: Container) -> None:
        container.kill()
        for each in self.execs.values():
            if each.container is container and each.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(each.process.pid, signal.SIGKILL)
                each.process.wait()
        if container.process is not None:
            container.is_over.wait()
        shutil.rmtree(container.files.folder, ignore_errors=True)
        self.containers.pop(container.id, None)

    def build(self, context: bytes, name: str, tag: str, labels: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield what is printed; the image is there after the last line."""
        source = self.unpacked(context)
        dockerfile = (source / name).read_text()
        for number, line in enumerate(dockerfile.splitlines(), start=1):
            if line.strip() and line.split()[0].upper() not in INSTRUCTIONS:
                raise RefusalError(400, f"dockerfile parse error line {number}: unknown instruction: {line.split()[0]}")
        return self._built(source, dockerfile, tag, labels)

    def _built(self, source: Path, dockerfile: str, tag: str, labels: dict[str, str]) -> Iterator[dict[str, Any]]:
        image = Image(ContainerFiles(self.folder()), labels=labels)
        for text, fault in image.steps(source, dockerfile, self.images):
            yield {"stream": text}
            if fault:
                yield {"errorDetail": {"message": fault}, "error": fault}
                return
        self.images[tag] = image
        yield {"aux": {"ID": image.id}}
        yield {"stream": f"Successfully tagged {tag}\n"}


class _Server(ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(EngineHandler):
    engine: DockerEngine

    def route(self, parts: list[str]) -> None:
        match [self.command, *parts]:
            case ["GET", "version"]:
                self.send_json({"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "27.3.1"})
            case ["POST", "build"]:
                self._build()
            case ["GET", "images", *name, "json"]:
                image = self.engine.image("/".join(name))
                config = {
                    "WorkingDir": image.working_dir,
                    "Labels": image.labels,
                    "Env": [f"{name}={value}" for name, value in image.env.items()],
                }
                self.send_json({"Id": image.id, "RepoTags": ["/".join(name)], "Config": config})
            case ["GET", "containers", "json"]:
                self.send_json(self._listed())
            case ["POST", "exec", name, "start"]:
                self.engine.execs[name].start()
                self.send_content(b"")
            case ["GET", "exec", name, "json"]:
                process = self.engine.execs[name].process
                code = process.poll() if process else None
                self.send_json({"Running": code is None, "ExitCode": code if code is None or code >= 0 else 128 - code})
            case ["POST", "networks", name, ("connect" | "disconnect") as change]:
                self.engine.networks.append((change, name))
                self.send_content(b"")
            case ["POST", "containers", "create"]:
                self.send_json({"Id": self.engine.create(json.loads(self.body)).id, "Warnings": []}, 201)
            case [_, "containers", name, *rest]:
                self._of_container(self.engine.container(name), rest)
            case _:
                raise RefusalError(404, "page not found")

    def _of_container(self, container: Container, rest: list[str]) -> None:
        match [self.command, *rest]:
            case ["GET", "json"]:
                config = {**container.config, "Tty": False}
                self.send_json({"Id": container.id, "State": container.state, "Config": config})
            case ["POST", "exec"]:
                name = uuid4().hex
                self.engine.execs[name] = Exec(container, json.loads(self.body))
                self.send_json({"Id": name}, 201)
            case ["POST", "start"]:
                container.start()
                self.send_content(b"", status=204)
            case ["POST", "kill"]:
                if not container.state["Running"]:
                    raise RefusalError(409, f"container {container.id} is not running")
                container.kill()
                self.send_content(b"", status=204)
            case ["POST", "attach"]:
                self._attach(container)
            case ["GET", "logs"]:
                kinds = {kind for kind, name in ((1, "stdout"), (2, "stderr")) if self.query.get(name) == "1"}
                frames = [
                    struct.pack(">BxxxL", kind, len(each)) + each for kind, each in container.printed if kind in kinds
                ]
                self.send_content(b"".join(frames), "application/vnd.docker.multiplexed-stream")
            case ["GET", "archive"]:
                self._pack(container)
            case ["PUT", "archive"]:
                if not container.files.path(self.query["path"]).is_dir():
                    raise RefusalError(404, f"Could not find the file {self.query['path']} in container")
                container.files.unpack(self.body, self.query["path"])
                self.send_content(b"")
            case ["DELETE"]:
                self.engine.remove(container)
                self.send_content(b"", status=204)
            case _:
                raise RefusalError(404, "page not found")

    def _listed(self) -> list[dict[str, Any]]:
        wanted = json.loads(self.query.get("filters", "{}")).get("label", [])
        pairs = [label.partition("=")[::2] for label in wanted]
        found = []
        for container in list(self.engine.containers.values()):
            labels = container.config.get("Labels") or {}
            if all(labels.get(name) == value for name, value in pairs):
                found.append({"Id": container.id, "Labels": labels, "State": container.state["Status"]})
        return found

    def _build(self) -> None:
        context = gzip.decompress(self.body) if self.headers.get("Content-Encoding") == "gzip" else self.body
        labels = json.loads(self.query.get("labels", "{}"))
        lines = self.engine.build(context, self.query["dockerfile"], self.query["t"], labels)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            text = json.dumps(line).encode() + b"\r\n"
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _attach(self, container: Container) -> None:
        self.send_response(101, "UPGRADED")
        self.send_header("Content-Type", "application/vnd.docker.raw-stream")
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "tcp")
        self.end_headers()
        container.feed(self.rfile)
        self.close_connection = True

    def _pack(self, container: Container) -> None:
        path = container.files.path(self.query["path"])
        if not os.path.lexists(path):
            raise RefusalError(404, f"Could not find the file {self.query['path']} in container {container.id}")
        found = path.lstat()
        link = str(path.readlink()) if path.is_symlink() else ""
        stat = {"name": path.name, "size": found.st_size, "mode": found.st_mode, "mtime": "", "linkTarget": link}
        header = {"X-Docker-Container-Path-Stat": base64.b64encode(json.dumps(stat).encode()).decode()}
        self.send_content(container.files.pack(self.query["path"]), "application/x-tar", headers=header)
