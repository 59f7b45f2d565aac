"""`task.toml` of a Harbor task, formats 1.0 to 1.4: read into strict models, and written.

What no executor here can give is refused by its name, all of it in one message. Values such as `${VAR:-default}` stay texts here. Older names (`version`, `memory = "4G"`, `storage`,
`allow_internet`) become the present ones, as the format has it.
"""

import datetime
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from graftline.core.errors import DataError

MAX_TOML_BYTES = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
"""Of a package: `organization/name`."""
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([GMK])", re.IGNORECASE)
_MB = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_UNSUPPORTED = ("steps", "multi_step_reward_strategy")
"""Keys that no executor here has anything for; empty, zero or false they say nothing."""

Network = Literal["public", "no-network", "allowlist"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Author(_Section):
    """Who wrote a task."""

    name: str
    email: str | None = None


class Package(_Section):
    """What a task is called in a registry."""

    name: str = Field(pattern=f"^{NAME.pattern}$")
    version: str | None = Field(default=None, min_length=1)
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


User = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
"""A name or a number; empty for that of the image."""


class AgentSection(_Section):
    """Bounds of the agent."""

    timeout_sec: Seconds | None = None
    user: User = ""
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] | None = None


class Healthcheck(_Section):
    """What shows that a box is ready for the agent."""

    command: str
    interval_sec: float = Field(default=5.0, ge=0, allow_inf_nan=False)
    timeout_sec: Seconds = 30.0
    start_period_sec: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    start_interval_sec: float = Field(default=5.0, ge=0, allow_inf_nan=False)
    retries: int = Field(default=3, ge=1, le=1000)


class Collect(_Section):
    """What is run after the agent, to have something to grade."""

    command: str
    service: Literal["main"] = "main"
    timeout_sec: Seconds = 60.0
    user: User = ""


class EnvironmentSection(_Section):
    """The box; a resource that is None is for the provider to say."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = Field(default=None, min_length=1)
    os: Annotated[
        Literal["linux"], BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
    ] = "linux"
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_mb: int | None = Field(default=None, gt=0)
    storage_mb: int | None = Field(default=None, gt=0)
    gpus: int | None = Field(default=None, ge=0)
    gpu_types: tuple[str, ...] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: tuple[dict[str, Any], ...] = ()
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = Field(default=None, min_length=1)
    network_mode: Network = "public"
    allowed_hosts: tuple[str, ...] | None = None


class VerifierSection(_Section):
    """Bounds of what grades."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: User = ""
    network_mode: Network | None = None
    allowed_hosts: tuple[str, ...] | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentSection | None = None
    """Of a box of its own; that of the agent where it is not given."""
    collect: tuple[Collect, ...] = ()


class Artifact(_Section):
    """A file or a folder of the agent's box that is kept, and that a verifier with a box of its own gets at the same place."""

    source: str = Field(min_length=1)
    destination: str | None = None
    """Where it is kept; it says nothing of the boxes."""
    exclude: tuple[str, ...] = ()
    service: Literal["main"] | None = None

    @field_validator("source")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if ".." in path.split("/"):
            raise ValueError("leads out by '..'; name it by its path")
        return path

    @model_serializer(mode="wrap")
    def _as_short_as_can_be(self, dump: SerializerFunctionWrapHandler) -> Any:
        return self.source if self.model_fields_set == {"source"} else dump(self)


class SolutionSection(_Section):
    """Of the reference solution."""

    env: dict[str, str] = {}


class TaskToml(_Section):
    """The whole file."""

    schema_version: str = Field(default="1.4", pattern=r"^(0\.\d+|1\.[0-4])$")
    task: Package | None = None
    metadata: dict[str, Any] = {}
    """Free; dates of TOML stay dates."""
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    environment: EnvironmentSection = EnvironmentSection()
    solution: SolutionSection = SolutionSection()
    source: str | None = None
    artifacts: tuple[
        Annotated[Artifact, BeforeValidator(lambda value: {"source": value} if isinstance(value, str) else value)], ...
    ] = ()
    ignored: tuple[str, ...] = Field(default=(), exclude=True)
    """Keys that the format does not know, each with the one it looks like; as everywhere, they say nothing."""

    @property
    def is_separate(self) -> bool:
        """Whether what grades has a box of its own."""
        mode = self.verifier.environment_mode
        return mode == "separate" or (mode is None and self.verifier.environment is not None)


def task_toml(text: str, source: str, also_unsupported: tuple[str, ...] = ()) -> TaskToml:
    """Return what a `task.toml` says; what else the task uses that is refused is said in the same message.

    Raises:
        DataError: it is no TOML, uses what is not supported, or does not fit; one line per fault, with `source` before it.
    """
    if len(text.encode()) > MAX_TOML_BYTES:
        raise DataError(f"{source}: is larger than {MAX_TOML_BYTES} bytes; expected a hand-written file")
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise DataError(f"{source}: not valid TOML: {str(error) or type(error).__name__}") from None
    faults = list(_update_keys(tree))
    if unsupported := [*also_unsupported, *_remove_unsupported(tree)]:
        names = ", ".join(sorted(set(unsupported)))
        faults.insert(0, f"uses what is not supported here: {names}; take it out of the task, or run it with harbor")
    ignored: list[str] = []
    task = TaskToml()
    try:
        task = _read(tree, ignored)
    except ValidationError as error:
        faults += [f"{'.'.join(map(str, fault['loc']))}: {_reason(fault)}" for fault in error.errors(include_url=False)]
    if faults:
        raise DataError("\n".join(f"{source}: {fault}" for fault in faults))
    return task.model_copy(update={"ignored": tuple(ignored)})


def _read(tree: dict[str, Any], ignored: list[str]) -> TaskToml:
    """Return what `tree` says, without the keys that the format does not know; these are added to `ignored`."""
    while True:
        try:
            return TaskToml.model_validate(_with_tuples(tree))
        except ValidationError as error:
            unknown = [fault for fault in error.errors(include_url=False) if fault["type"] == "extra_forbidden"]
            if not unknown:
                raise
            for fault in unknown:
                *way, key = fault["loc"]
                section: Any = tree
                for step in way:
                    section = section[step]
                del section[key]
                ignored.append(f"{'.'.join(map(str, fault['loc']))}: {_reason(fault)}")


def toml_text(toml: TaskToml) -> str:
    """Return `toml` as a file that reads back as the same; defaults are left out."""
    tree = {"schema_version": toml.schema_version, **toml.model_dump(exclude_defaults=True)}
    return "\n".join(_table(tree, ())).strip() + "\n"


def _update_keys(tree: dict[str, Any]) -> Iterator[str]:
    """Give the keys of older formats their present names, in place; yield what contradicts itself."""
    if "version" in tree:
        tree.setdefault("schema_version", tree.pop("version"))
    sections = [tree.get("environment")]
    if isinstance(tree.get("verifier"), dict):
        sections.append(tree["verifier"].get("environment"))
    for section in sections:
        if not isinstance(section, dict):
            continue
        allowed = section.pop("allow_internet", None)
        if isinstance(allowed, bool) and "allowed_hosts" not in section:
            section.setdefault("network_mode", "public" if allowed else "no-network")
        for old in ("memory", "storage"):
            if old not in section:
                continue
            size, present = section.pop(old), section.get(f"{old}_mb")
            match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
            if match is None:
                yield f"environment.{old}: {size!r} is no size; write it as {old}_mb, a number of megabytes"
                continue
            megabytes = int(float(match[1]) * _MB[match[2].upper()])
            if present not in (None, megabytes):
                yield f"environment.{old}: {size!r} is {megabytes} MB, but {old}_mb is {present!r}; keep one of them"
            section.setdefault(f"{old}_mb", megabytes)


def _remove_unsupported(tree: dict[str, Any]) -> Iterator[str]:
    """Take what is not supported out of `tree`, and yield its names."""
    for name in _UNSUPPORTED:
        *way, key = name.split(".")
        section: Any = tree
        for part in way:
            section = section.get(part) if isinstance(section, dict) else None
        if isinstance(section, dict) and section.pop(key, None) not in (None, 0, "", [], {}):
            yield name
    environment = tree.get("environment")
    if isinstance(environment, dict) and str(environment.get("os", "")).lower() == "windows":
        del environment["os"]
        yield "environment.os = windows"
    services = [entry.get("service") for entry in tree.get("artifacts") or () if isinstance(entry, dict)]
    hooks = (tree.get("verifier") or {}).get("collect") if isinstance(tree.get("verifier"), dict) else None
    services += [entry.get("service") for entry in hooks or () if isinstance(entry, dict)]
    if any(service not in (None, "main") for service in services):
        yield "services of Compose"


def _with_tuples(value: Any) -> Any:
    """Return `value` with tuples for the lists outside of `metadata`: strict models convert nothing."""
    if isinstance(value, dict):
        return {key: item if key == "metadata" else _with_tuples(item) for key, item in value.items()}
    return tuple(_with_tuples(item) for item in value) if isinstance(value, list) else value


def _reason(fault: Any) -> str:
    if fault["type"] == "extra_forbidden":
        model: type[BaseModel] = TaskToml
        for step in fault["loc"][:-1]:
            annotation = model.model_fields[step].annotation if step in model.model_fields else None
            model = next(_models_of(annotation), model)
        keys = sorted(model.model_fields)
        [like] = get_close_matches(str(fault["loc"][-1]), keys, n=1) or [""]
        hint = f"did you mean {like!r}? " if like else ""
        return f"unknown key; {hint}known here: {', '.join(keys)}"
    return f"{fault['msg'][0].lower()}{fault['msg'][1:]} (got {str(fault['input'])[:80]!r})"


def _models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_of(inner)


def _table(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table: its values first, then the tables below it."""
    below = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    if path and (len(below) < len(tree) or not tree):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in tree.items():
        if key not in below:
            yield f"{_key(key)} = {_value(value)}"
    for key, inner in below.items():
        yield from _table(inner, (*path, key))


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items() if item is not None)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, str | bool | int | float):
        raise DataError(
            f"metadata holds {value!r}, which TOML cannot say; expected texts, numbers, dates, lists and tables"
        )
    return _text(value)


def _text(value: str | float) -> str:
    # the scalars of JSON are those of TOML; 0x7f is the one character that only TOML wants escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
