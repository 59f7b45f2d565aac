"""The systems that stages use, as resources: what a manifest says of each of them, to be set in the launchpad and
replaced.

A resource is the configuration of a system and opens nothing: what it stands for is opened in the body of the first
asset of a run that uses it, and closed with the run (`resources.artifacts`). So a run needs no more than its assets do,
and no server holds its memory while others are at work. Anything else that is given under the name of a resource stands
in for what would be opened.

Not here: how a system is opened (`graftline.pipeline.ports`), and the files that say so for a deployment
(`configs/manifests/`). https://docs.dagster.io/guides/build/external-resources
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import dagster as dg
from pydantic import Field

from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.core.secrets import EnvironmentSecrets
from graftline.llm.fleet import load_fleet
from graftline.pipeline.manifests import Manifest
from resources.forms import fill_form, form_of

_SETTINGS = "What stands behind it, and its settings."


class System(dg.ConfigurableResource):
    """The configuration of one system."""

    port: ClassVar[str]
    """Its key in a manifest."""
    used_through_it: ClassVar[tuple[str, ...]] = ()
    """Further keys, of what nothing else uses."""

    def in_manifest(self) -> dict[str, Any]:
        """Return what a manifest would say of it, by key."""
        return {self.port: self.settings.model_dump(mode="json")}  # type: ignore[attr-defined]

    def secrets(self, paths: Paths) -> dict[str, str]:
        """Return the secrets that it was given, by the names of their variables."""
        return {}


class SandboxResource(System):
    """The jail in which actions are applied: its kind, the isolation that is required of it, and its limits."""

    port = "sandbox"
    settings: form_of("sandbox") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]


class ActorsResource(System):
    """The servers of language models: a fleet of vLLM or embedded actors, and how patient their pool is."""

    port = "chat_model"
    settings: form_of("chat_model") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]
    api_key: str | None = Field(
        default=None, description="Of the servers; otherwise it is looked up in .env and Vault."
    )

    def secrets(self, paths: Paths) -> dict[str, str]:
        return _as_variable(_key_of_fleet(self.settings, paths), self.api_key)


class TeacherResource(System):
    """What attempts tasks; it works in the sandbox, and may ask the actors."""

    port = "teacher"
    used_through_it = ("embedder", "vector_store")
    sandbox: dg.ResourceDependency[SandboxResource]
    actors: dg.ResourceDependency[ActorsResource]
    settings: form_of("teacher") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]


class TinkerResource(System):
    """The Tinker client: the hosted service, whatever else speaks its wire, or a backend of this machine."""

    port = "training_client"
    settings: form_of("training_client") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]
    api_key: str | None = Field(
        default=None, description="Of the service; otherwise it is looked up in .env and Vault."
    )

    def secrets(self, paths: Paths) -> dict[str, str]:
        return _as_variable(getattr(self.settings, "api_key", ""), self.api_key)


class HarborResource(System):
    """The Harbor service, which keeps deployments and runs their rollouts: one that runs already, or one of this
    process.
    """

    port = "harbor"
    settings: form_of("harbor") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]
    api_key: str | None = Field(
        default=None, description="Of the service; otherwise it is looked up in .env and Vault."
    )

    def secrets(self, paths: Paths) -> dict[str, str]:
        return _as_variable(getattr(self.settings, "api_key", ""), self.api_key)


class QueueResource(System):
    """The queue from which workers take the attempts that are to be made."""

    port = "queue"
    settings: form_of("queue") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]
    address: str | None = Field(
        default=None,
        description="Of the server, which may hold its password; otherwise it is looked up in .env and Vault.",
    )

    def secrets(self, paths: Paths) -> dict[str, str]:
        return _as_variable(getattr(self.settings, "url", ""), self.address)


class DatasetSourcesResource(System):
    """Where the files of datasets come from: each from its own source, or folders of this machine alone."""

    port = "dataset_hub"
    settings: form_of("dataset_hub") = Field(discriminator="kind", description=_SETTINGS)  # type: ignore[valid-type]


def systems_of(manifest: Manifest, paths: Paths, variables: Mapping[str, str]) -> dict[str, System]:
    """Return the systems that `manifest` wires, by the names under which assets ask for them.

    A secret is shown by the name of its variable, unless `.env` or Vault has it, where it is looked up when it is used.

    Args:
        manifest: Of the deployment.
        paths: Of the checkout.
        variables: Those of this process.
    """
    dotenv = EnvironmentSecrets({}, paths.root / ".env")
    has_vault = "VAULT_ADDR" in variables or dotenv.get("VAULT_ADDR") is not None

    def shown(name: str) -> Any:
        is_elsewhere = has_vault or dotenv.get(name) is not None
        return dg.EnvVar(name) if name and (name in variables or not is_elsewhere) else None

    sandbox = SandboxResource(settings=fill_form(manifest.sandbox))
    actors = ActorsResource(
        settings=fill_form(manifest.chat_model), api_key=shown(_key_of_fleet(manifest.chat_model, paths))
    )
    training, harbor, queue = manifest.training_client, manifest.harbor, manifest.queue
    return {
        "sandbox": sandbox,
        "actors": actors,
        "teacher": TeacherResource(settings=fill_form(manifest.teacher), sandbox=sandbox, actors=actors),
        "tinker": TinkerResource(settings=fill_form(training), api_key=shown(getattr(training, "api_key", ""))),
        "harbor": HarborResource(settings=fill_form(harbor), api_key=shown(getattr(harbor, "api_key", ""))),
        "queue": QueueResource(settings=fill_form(queue), address=shown(getattr(queue, "url", ""))),
        "dataset_sources": DatasetSourcesResource(settings=fill_form(manifest.dataset_hub)),
    }


SYSTEMS: Mapping[str, type[System]] = {
    "sandbox": SandboxResource,
    "actors": ActorsResource,
    "teacher": TeacherResource,
    "tinker": TinkerResource,
    "harbor": HarborResource,
    "queue": QueueResource,
    "dataset_sources": DatasetSourcesResource,
}


def _key_of_fleet(settings: Any, paths: Paths) -> str:
    """Return the variable with the key of the servers that are asked; empty where there is none."""
    try:
        return load_fleet(paths.configs, settings.fleet).api_key if hasattr(settings, "fleet") else ""
    except ConfigError:
        return ""  # who asks them is told what is wrong with the file


def _as_variable(variable: str, value: str | None) -> dict[str, str]:
    return {variable: value} if variable and value else {}
