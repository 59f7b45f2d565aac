"""What a deployment is to be made of, as its author writes it: a context, how to run it, and what it may use.

A spec is sound once it is constructed: whatever is wrong with it is told at once, in one `ValueError` that shows no value
of a variable. Secrets are refused, by name and by shape; executors put them in when a rollout runs.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from graftline.core.errors import ConfigError, DataError
from graftline.core.hashing import canonical_json
from graftline.core.secret_finds import find_in_file, finds_in, is_secret_name, kind_of
from graftline.harbor.context_tree import read_plain_file
from graftline.harbor.contract import MAX_TASKS, DeploymentName, HarborLimits, TaskSeed, Text, VerifierSettings
from graftline.harbor.ignore_rules import DEFAULT_EXCLUDES, DEFAULT_INCLUDES
from graftline.sandbox.file_names import path_of

DEFAULT_ENTRYPOINT = "run_rollout --input /tmp/rollout.json --output /tmp/result.json"
MAX_VARIABLES = 256
MAX_TEXT_CHARACTERS = 1 << 20
"""Of a Dockerfile, a description, a variable, and of all metadata as JSON."""
_ZERO_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_FOLDER = "expected a folder; name one that is there"


class HarborVerifier(VerifierSettings):
    """A verifier, and the folder it runs in: packed on its own, as a whole but for what is always left out."""

    model_config = ConfigDict(hide_input_in_errors=True)

    context_dir: Path


class HarborBuildSpec(BaseModel):
    """A deployment, before it is packed and sent.

    Raises:
        ValueError: something is wrong with it; the message has all of it, a line each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    name: DeploymentName
    """What its versions are kept under; it may stand in an address."""
    dockerfile_path: Path | None = None
    """Looked for in the context, then as it is. None for executors that build no images."""
    context_dir: Path
    entrypoint: Text = Field(default=DEFAULT_ENTRYPOINT, min_length=1, max_length=4096)
    entrypoint_mode: Literal["file", "stdio"] = "file"
    """`command` is taken as another name of `stdio`."""
    description: Text | None = Field(default=None, max_length=MAX_TEXT_CHARACTERS)
    env_vars: dict[str, str] = {}
    limits: HarborLimits = HarborLimits()
    metadata: dict[str, Any] = {}
    include_globs: list[str] = [*DEFAULT_INCLUDES]
    exclude_globs: list[str] = [*DEFAULT_EXCLUDES]
    """Instead of the default ones. What `ignore_rules.DENIED` names is left out in any case."""
    verifier: HarborVerifier | None = None
    tasks: list[TaskSeed] = Field(default=[], max_length=MAX_TASKS)
    """Which task every seed stands for. Without it every seed is its own task."""
    allow_secrets_in: tuple[str, ...] = ()
    """Paths of files, in either context, that may hold what looks like a secret: a test's, or an example."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_said([_line(fault["loc"], fault["msg"]) for fault in error.errors()])) from None
        if faults := list(self._faults()):
            raise ValueError(_said(faults))

    @field_validator("dockerfile_path", "context_dir", mode="before")
    @classmethod
    def _is_no_empty_path(cls, path: Any) -> Any:
        if path == "":
            # an empty path is the folder of the process
            raise ValueError("is empty; name a path")
        return path

    @field_validator("entrypoint_mode", mode="before")
    @classmethod
    def _without_alias(cls, mode: Any) -> Any:
        return "stdio" if mode == "command" else mode

    def validate_paths(self) -> None:
        """Look whether what the spec names is there. Raises ConfigError where it is not, or is of another kind."""
        folders = {"context_dir": self.context_dir}
        if self.verifier is not None:
            folders["verifier.context_dir"] = self.verifier.context_dir
        for field, folder in folders.items():
            if not folder.is_dir():
                raise ConfigError(
                    f"{field}: {str(folder)!r} is {'no folder' if folder.exists() else 'not there'}; {_FOLDER}"
                )
        self.get_dockerfile_content()

    def get_dockerfile_content(self) -> str | None:
        """Return the text of the Dockerfile, None where the spec has none.

        Raises:
            ConfigError: it is not there, or is no text of a bounded size.
            DataError: it holds what looks like a secret.
        """
        if self.dockerfile_path is None:
            return None
        inside = self.context_dir / self.dockerfile_path
        path = inside if inside.exists() else self.dockerfile_path
        place = f"dockerfile_path: {str(path)!r}"
        try:
            content = read_plain_file(path, MAX_TEXT_CHARACTERS, follows_link=True)
            text = content.decode()
        except OSError as error:
            raise ConfigError(f"{place}: cannot be read ({error.strerror}); expected a Dockerfile") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{place}: is not UTF-8; expected a Dockerfile") from None
        if len(content) > MAX_TEXT_CHARACTERS or "\0" in text:
            raise ConfigError(f"{place}: is no text of at most {MAX_TEXT_CHARACTERS} bytes; expected a Dockerfile")
        names = {str(self.dockerfile_path), os.path.relpath(path, self.context_dir)}
        if names.isdisjoint(self.allow_secrets_in) and (find := find_in_file(content, place)):
            raise DataError(f"{find}; have it put in when a rollout runs, or allow it by allow_secrets_in")
        return text

    def to_api_request(self, context_tar_base64: str, verifier_tar_base64: str | None = None) -> dict[str, Any]:
        """Return the body of the request that makes this deployment.

        Raises:
            ConfigError, DataError: as `get_dockerfile_content`.
            ValueError: one of the spec and the arguments has a verifier, and the other has none.
        """
        if (self.verifier is None) != (verifier_tar_base64 is None):
            raise ValueError("verifier_tar_base64: is the packed context of the spec's verifier; give both or neither")
        own = {"name", "description", "entrypoint", "entrypoint_mode", "limits", "env_vars", "metadata", "tasks"}
        request = self.model_dump(mode="json", include=own)
        if (dockerfile := self.get_dockerfile_content()) is not None:
            request["dockerfile"] = dockerfile
        if self.verifier is not None:
            settings = self.verifier.model_dump(mode="json", exclude={"context_dir"})
            request["verifier"] = {**settings, "context_tar_base64": verifier_tar_base64}
        return {**request, "context_tar_base64": context_tar_base64}

    def _faults(self) -> Iterator[str]:
        texts = {"name": self.name, "description": self.description or "", "entrypoint": self.entrypoint}
        if self.verifier is not None:
            texts["verifier.entrypoint"] = self.verifier.entrypoint
        return (fault for _, fault in find_faults(self.env_vars, self.metadata, self.tasks, texts))


def find_faults(
    variables: Mapping[str, str], metadata: Mapping[str, Any], tasks: Sequence[TaskSeed], texts: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a deployment whose fields fit, each with a word for programs before it.

    No value is shown, for it may be a secret. Both sides look for it, who sends a deployment and who keeps it.
    """
    yield from _faults_of_variables(variables)
    seeds = [task.seed for task in tasks]
    if twice := [seed for seed, times in Counter(seeds).items() if times > 1]:
        yield "tasks", f"tasks: seed {twice[0]} stands for two tasks"
    for task in tasks:
        for path in (*task.agent_files, *task.verifier_files):
            try:
                path_of(path)
            except (DataError, ConfigError) as error:
                yield "tasks", f"task {task.task_id!r}: {error}"
    own = {f"tasks[{task.seed}].metadata": task.metadata for task in tasks}
    for place, value in {"metadata": metadata, **own}.items():
        yield from _faults_of_json(value, place)
    for field, text in texts.items():
        if kind := kind_of(text):
            yield "secret", f"{field}: holds {kind}"


def _faults_of_variables(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if len(variables) > MAX_VARIABLES:
        yield "env_vars", f"env_vars: has {len(variables)} variables; at most {MAX_VARIABLES} are accepted"
    for index, (name, value) in enumerate(variables.items()):
        if kind_of(name):
            yield "secret", f"env_vars: the name of variable {index + 1} looks like a secret itself"
        elif not (name.isascii() and name.isidentifier() and len(name) <= 128):
            yield "env_vars", f"env_vars: {name[:60]!r} is no name of a variable; use letters, digits and underscores"
        elif is_secret_name(name):
            yield "secret", f"env_vars: {name!r} names a secret; leave it out, it is put in when a rollout runs"
        elif kind := kind_of(value):
            yield "secret", f"env_vars: {name!r} holds {kind}; leave it out, it is put in when a rollout runs"
        elif fault := _fault_of_text(value):
            yield "env_vars", f"env_vars: {name!r} {fault}"


def _faults_of_json(value: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    try:
        text = canonical_json(value)
        finds = list(finds_in(value, place))
    except (TypeError, ValueError, RecursionError):
        yield (
            "not_json",
            f"{place}: holds what JSON cannot say, or is nested too deeply; use texts, numbers, lists and objects",
        )
        return
    for find in finds:
        yield "secret", find
    if fault := _fault_of_text(text) or ("holds a zero byte" if _ZERO_IN_JSON.search(text) else ""):
        yield "not_json", f"{place}: {fault}"


def _fault_of_text(text: str) -> str:
    """Return why a database would not take a text, without showing it."""
    if len(text) > MAX_TEXT_CHARACTERS:
        return f"has more than {MAX_TEXT_CHARACTERS} characters"
    if "\0" in text:
        return "holds a zero byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return ""


def _line(location: tuple[str | int, ...], message: str) -> str:
    place = ".".join("…" if kind_of(str(part)) else str(part) for part in location)
    return f"{place}: {message.removeprefix('Value error, ')}"


def _said(faults: list[str]) -> str:
    return "the build spec is refused:\n" + "\n".join(f"- {fault}" for fault in faults)
