"""Which actors there are: `configs/vllm_actors.yaml`.

A fleet is the actors that are used together, all of them with the same model. The manifest names one.
"""

import logging
from pathlib import Path, PurePath
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.llm.base import OutputTerms

logger = logging.getLogger(__name__)

VLLM_VARIABLE = "GRAFTLINE_VLLM_ENV"
"""The folder of the environment that holds `bin/vllm`, where the fleet names none."""
Engine = Literal["vllm", "vllm-cpu", "embedded", "service"]


class Price(Config):
    """What tokens cost, in US dollars for a million."""

    prompt_usd: float = Field(ge=0)
    cached_usd: float | None = Field(default=None, ge=0)
    """Of tokens that the server had read before; as `prompt_usd` where it is not given."""
    completion_usd: float = Field(ge=0)
    source: str = ""
    """The page that says so."""
    date: str = Field(default="", pattern=r"^(\d{4}-\d{2}-\d{2})?$")
    """When that was read, `2026-11-26`."""


_OUR_KEYS = frozenset(("model", "messages", "max_tokens", "temperature", "stop", "response_format", "seed", "stream"))


class Dialect(Config):
    """How requests to a server differ from those to vLLM; answers are read alike from all servers."""

    json_mode: Literal["schema", "object", "none"] = "schema"
    """How an answer in JSON is asked for: `response_format` with the schema, with `json_object` alone, or by the prompt
    alone."""
    least_temperature: float = Field(default=0.0, ge=0, le=2)
    """Lowest temperature that the server takes; lower ones are raised to it."""
    most_temperature: float = Field(default=2.0, ge=0, le=2)
    """Highest temperature that the server takes; higher ones are lowered to it."""
    thinking_tokens: int = Field(default=0, ge=0, le=131_072)
    """Tokens that the model may think before it answers. The server counts them as part of the answer, so they are added to
    `max_tokens` of every request."""
    more: dict[str, Any] = Field(default_factory=dict)
    """Further keys that every request is sent with, and their values."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.least_temperature > self.most_temperature:
            raise ValueError("least_temperature is higher than most_temperature")
        if ours := sorted(_OUR_KEYS & self.more.keys()):
            raise ValueError(f"more: {ours[0]} is set by each request; take it out")
        return self

    def temperature(self, requested: float) -> float:
        """Return the temperature nearest to `requested` that the server takes."""
        return min(max(requested, self.least_temperature), self.most_temperature)


class Actor(Config):
    """One server, and how it is started where it is ours."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    url: str
    """Without `/v1`, e.g. `http://127.0.0.1:8001`."""
    gpu_ids: tuple[int, ...] = ()
    tensor_parallel_size: int = Field(default=1, ge=1)
    slots: int = Field(default=64, ge=1, le=4096)
    """Requests at a time at most; the pool finds out how many of them pay."""
    threads: int | None = Field(default=None, ge=1)
    """Of a server on CPU cores; all there are where it is not given."""

    @property
    def host(self) -> str:
        """The host of the address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port of the address."""
        return urlsplit(self.url).port or (443 if self.url.startswith("https:") else 80)

    @model_validator(mode="after")
    def _is_an_address(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"url {self.url!r}: expected http(s)://host:port without a path")
        if self.gpu_ids and len(self.gpu_ids) % self.tensor_parallel_size:
            raise ValueError(f"{len(self.gpu_ids)} gpu_ids cannot be shared by tensor_parallel_size")
        return self


class Fleet(Config):
    """Actors with the same model."""

    engine: Engine
    """`vllm` and `vllm-cpu` are programs of an environment of their own, `embedded` is llama.cpp inside a process of
    ours, `service` is run by somebody else and never started."""
    model: str = Field(min_length=1)
    """`vllm`: a repository of the model hub or a folder; `vllm-cpu`, `embedded`: a name in `configs/models.yaml`, or a
    path; `service`: as the service calls it."""
    served_name: str = ""
    """As requests call the model; `model` where it is empty."""
    quantization: str = ""
    """vLLM's `--quantization`; empty where the weights say it themselves, as AWQ and GPTQ ones do."""
    context_tokens: int = Field(default=8192, ge=512)
    """Of one request: prompt and answer."""
    adapters: tuple[str, ...] = ()
    """Folders of LoRA adapters, each under the name of its folder. `vllm`, `vllm-cpu`: loaded where a request needs it;
    `embedded`: loaded when an actor is started, relative to the root folder."""
    arguments: tuple[str, ...] = ()
    """Further arguments of `vllm serve`."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of the servers; never secrets."""
    python_environment: str = ""
    """Folder of the Python environment that holds `bin/vllm`; `GRAFTLINE_VLLM_ENV` where it is empty."""
    shutdown_s: int = Field(default=30, ge=0, le=3600)
    """How long the requests in flight may take when an actor is stopped."""
    api_path: str = Field(default="/v1", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    """What stands before `/chat/completions`; with some services it is not `/v1`."""
    api_key: str = ""
    """Name of the environment variable that holds the key; empty where none is needed."""
    takes_seed: bool = True
    """Whether requests may carry a seed: vLLM's CPU build dies of one."""
    dialect: Dialect = Dialect()
    price: Price | None = None
    """None where it is not known: then nothing is known of costs."""
    license: str = ""
    """Of the weights: an SPDX identifier, or what the license is called; empty where it is not known."""
    outputs: OutputTerms | None = None
    """On what terms the answers may be used."""
    prompt: str = Field(default="small", min_length=1)
    """Of `configs/teacher_prompts.yaml`: by which the model is asked where a manifest names the fleet as its teacher,
    and by the agent where it asks for code."""
    actors: tuple[Actor, ...] = Field(min_length=1, max_length=256)

    @property
    def called(self) -> str:
        """The model as requests call it."""
        return self.served_name or self.model

    @property
    def adapter_folders(self) -> dict[str, str]:
        """The folders of the adapters, by their names as requests call them."""
        return {PurePath(folder).name: folder for folder in self.adapters}

    @property
    def prompt_and_answer_tokens(self) -> int:
        """Of one request, without the room for what the model thinks."""
        return self.context_tokens - self.dialect.thinking_tokens

    @model_validator(mode="after")
    def _is_one_of_each(self) -> Self:
        for attribute, values in (("name", [a.name for a in self.actors]), ("url", [a.url for a in self.actors])):
            if len(set(values)) < len(values):
                raise ValueError(f"two actors have the same {attribute}")
        names = [PurePath(folder).name for folder in self.adapters]
        if len({*names, "", self.called}) < len(names) + 2:
            raise ValueError("adapters: each needs a folder whose name is its own, and not that of the model")
        if self.engine == "vllm-cpu" and self.takes_seed:
            raise ValueError("takes_seed: vLLM's CPU build dies of a request with a seed; set it to false")
        if self.prompt_and_answer_tokens < 512:
            raise ValueError("dialect.thinking_tokens leaves no room in context_tokens for prompt and answer")
        if self.engine == "embedded" and (self.arguments or self.quantization):
            raise ValueError("arguments and quantization are vLLM's; take them out of an embedded fleet")
        return self


class Fleets(Config):
    """The file."""

    fleets: dict[str, Fleet]


def warn_of_terms(name: str, fleet: Fleet) -> None:
    """Say in the log where answers of the fleet `name` may not be trained on, or nobody has verified that they may."""
    if fleet.outputs is None or fleet.outputs.may_train:
        return
    if fleet.outputs.may_train is None:
        logger.warning(
            "fleet %r: it is NOT VERIFIED that models may be trained on its answers (%s); read the terms, and write"
            " `outputs.may_train` of the fleet", name, fleet.outputs.terms,
        )  # fmt: skip
    else:
        logger.warning(
            "fleet %r: models may NOT be trained on its answers (%s): no training row is made of them",
            name,
            fleet.outputs.terms,
        )


def dialect_settings(fleet: Fleet) -> dict[str, Any]:
    """Return the settings of the dialect of `fleet` that differ from those of vLLM, on which its answers depend."""
    dialect = fleet.dialect.model_dump(mode="json", exclude_defaults=True)
    return {"dialect": dialect} if dialect else {}


def load_fleets(configs: Path) -> dict[str, Fleet]:
    """Return the fleets of `vllm_actors.yaml` in the folder `configs`, by name."""
    return load_yaml(configs / "vllm_actors.yaml", Fleets).fleets


def load_fleet(configs: Path, name: str) -> Fleet:
    """Return the fleet called `name` of `vllm_actors.yaml` in the folder `configs`; ConfigError where it has no such fleet."""
    path = configs / "vllm_actors.yaml"
    fleets = load_fleets(configs)
    if name not in fleets:
        raise ConfigError(f"{path}: fleet {name!r} is unknown; known: {', '.join(sorted(fleets))}")
    return fleets[name]


class PoolSettings(Config):
    """The defaults are for servers that take seconds to minutes for an answer."""

    max_tries: int = Field(default=3, ge=1, le=10)
    """Of one request, by actors that may have worked on it: there are requests that end servers. Tries that were not
    taken up, for lack of a connection or of room, are bounded by the deadline alone."""
    first_backoff_s: float = Field(default=0.5, ge=0)
    """Full jitter up to so much before a request is tried again where there is no other actor; doubled every time."""
    longest_backoff_s: float = Field(default=30.0, ge=0)
    patience_s: float = Field(default=120.0, ge=0)
    """How long requests wait while no actor is in service: as long as a server takes to be started again."""
    connect_s: float = Field(default=5.0, gt=0)
    """Until there is a connection. Reading has no limit of its own: answers wait in the queues of servers."""
    max_failures: int = Field(default=3, ge=1)
    """In a row; then the actor is out of service."""
    first_pause_s: float = Field(default=1.0, gt=0)
    """From there to the first probe; doubled with every probe until the actor answers requests again."""
    longest_pause_s: float = Field(default=30.0, gt=0)
    probe_s: float = Field(default=30.0, gt=0)
    """How long an answer of one token may take."""
    health_s: float = Field(default=15.0, gt=0)
    """Between two looks at `/health`."""
    load_s: float = Field(default=5.0, gt=0)
    """Between two looks at `/metrics`."""
    look_s: float = Field(default=10.0, gt=0)
    """How long a look may take; a server that is full answers late."""
    stall_s: float = Field(default=120.0, gt=0)
    """Work, and no token for so long: the engine hangs. A long prompt on a CPU is read for a minute."""
