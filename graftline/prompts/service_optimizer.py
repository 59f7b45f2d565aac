"""How the service carries out prompt optimizations: those on its own deployments, by a model of its own or without one."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from graftline.core.errors import ConfigError
from graftline.core.secrets import Secrets
from graftline.harbor.address import DEPLOYMENTS
from graftline.harbor.service.prompt_jobs import Optimized
from graftline.harbor.task_app_client import TaskAppClient
from graftline.llm.blocking import BlockingChatModel
from graftline.prompts.journal import Journal
from graftline.prompts.optimize import check, optimize
from graftline.prompts.proposers import open_proposer
from graftline.prompts.settings import PromptLearningConfig

Tell = Callable[[str, Mapping[str, Any]], None]


class ServiceOptimizer:
    """Stateless; `model` is what it asks for changes, and belongs to the caller.

    A client may not name a model by its address: the service would send requests, and its secrets, wherever it is told to.
    """

    def __init__(self, secrets: Secrets, model: BlockingChatModel | None = None) -> None:
        self._secrets, self._model = secrets, model

    def deployment(self, config: Mapping[str, Any]) -> str:
        settings = PromptLearningConfig.from_mapping(config)
        check(settings)
        if settings.gepa.proposer is not None:
            raise ConfigError(
                "prompt_learning.gepa.proposer: names a model by its address, and the service asks its own alone; leave it"
                " out"
            )
        if settings.gepa.proposer_type == "gepa" and self._model is None:
            raise ConfigError(
                "prompt_learning.gepa.proposer_type: 'gepa' asks a language model, and the service has none; take 'offline',"
                " or serve with --proposer"
            )
        if settings.harbor is not None:
            return settings.harbor.deployment_id
        _, _, name = (settings.task_app_url or "").partition(f"{DEPLOYMENTS}/")
        name = name.strip("/")
        if not name or "/" in name:
            raise ConfigError(
                f"prompt_learning.task_app_url: names no deployment of this service (…{DEPLOYMENTS}/<id>); prompts of other"
                " task apps are made better by the SDK itself"
            )
        return name

    def run(
        self,
        config: Mapping[str, Any],
        task_app: TaskAppClient,
        journal: Journal,
        job_id: str,
        stop: threading.Event,
        tell: Tell,
    ) -> Optimized:
        settings = PromptLearningConfig.from_mapping(config)
        with open_proposer(settings.gepa, self._secrets, self._model) as proposer:
            outcome = optimize(settings, task_app, proposer, journal, job_id, stop, tell)
        fields = {**outcome.result_fields(), "outcome": outcome.model_dump(mode="json")}
        return Optimized(fields, outcome.error, outcome.remark)
