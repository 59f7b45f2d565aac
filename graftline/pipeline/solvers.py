"""From the solvers of a file to open ones: fleets that are started, models of the training service, teachers."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, assert_never

from graftline.agent.model import AgentModel, Limits, find_edit_prompt
from graftline.agent.proposal import Settings
from graftline.core.errors import ConfigError
from graftline.core.hashing import digest, sha256_file
from graftline.evals.change_solvers import AgentSolver, DemonstrationSolver, WordsSolver
from graftline.evals.evaluation_file import (
    ActorsEntry,
    AgentEntry,
    DemonstrationsEntry,
    Entry,
    SedEntry,
    TeacherEntry,
    TrainedEntry,
)
from graftline.evals.solvers import ChatSolver, Sampling, Solver, TeacherSolver
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Fleet, dialect_settings, load_fleet
from graftline.llm.open import MemoryChatModelConfig, open_chat_model
from graftline.llm.pool import ActorPool
from graftline.llm.servers.commands import weights_of
from graftline.llm.servers.processes import down, fleet_status, local_actors, up
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.ports import MEMORY_CONTEXT_TOKENS
from graftline.pipeline.recipe_models import context_tokens, fetch_served_weights, model_digest, model_name
from graftline.pipeline.sampled_solver import SampledSolver
from graftline.pipeline.stages.trained_adapter import output_of
from graftline.rollouts.teachers.open import open_teacher
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.training.answers import Questions
from graftline.training.open import TrainingClientConfig, tokenizer_of
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import Runs
from graftline.training.settings import TinkerTrainingConfig
from graftline.training.tinker import TinkerSDKClient

logger = logging.getLogger(__name__)

_OF_ACTORS, _OF_TRAINED = "small", "brief"
"""Prompts where neither the file nor the recipe names one."""
_MEMORY_AT_ONCE = 8
_SAMPLED_AT_ONCE = 64


class Solvers:
    """Opens solvers one after the other; what several of them share stays open until `stack` ends."""

    def __init__(self, lineage: Lineage, stack: ExitStack) -> None:
        self._lineage, self._paths, self._stack = lineage, lineage.paths, stack
        self._services: dict[tuple[str, float], TinkerSDKClient] = {}
        """Of training, by model and deadline."""
        self._of_services = stack.enter_context(ExitStack())
        self._fleets: dict[str, tuple[tuple[str, ...], ExitStack]] = {}
        """Those that were started, with their adapters, and what stops them."""
        self._computed_with: dict[str, dict[str, str]] = {}
        """Precision and device, by solver."""

    def inputs(self, entries: Mapping[str, Entry]) -> dict[str, str]:
        """Return the identities of the adapters that are asked, by artifact."""
        names = {name for entry in entries.values() if (name := self._adapter(entry))}
        folders = {name: self._paths.adapter(name) for name in sorted(names)}
        return {
            f"trained_adapter.{name}": self._lineage.read_input(folder, "trained_adapter").identity
            for name, folder in folders.items()
        }

    def settings(self, entry: Entry) -> dict[str, Any]:
        """Return what the attempts of a solver depend on, beside the tasks."""
        config_of_entry = entry.model_dump(mode="json", exclude={"at_once", "deadline_s"})
        match entry:
            case TeacherEntry() | DemonstrationsEntry() | SedEntry():
                return config_of_entry
            case ActorsEntry() | AgentEntry():
                fleet = load_fleet(self._paths.configs, entry.fleet)
                by_fleet = fleet.model_dump(
                    mode="json", include={"engine", "model", "quantization", "context_tokens", "takes_seed"}
                )
                by = dialect_settings(fleet)
                if isinstance(entry, ActorsEntry):
                    by = {"prompt_digest": self._prompt(entry.prompt or _OF_ACTORS).digest(), **by}
                else:
                    by = {**asdict(settings_of(entry)), **by}
                    if own_prompt := self._edit_prompt(entry):
                        by["prompt_digest"] = own_prompt.digest()
                if own := fleet.adapter_folders.get(entry.adapter):
                    by["adapter_digest"] = _folder_digest(self._paths.root / own)
                return {**config_of_entry, **by, "served": by_fleet, "model": model_digest(fleet.model, self._paths)}
            case TrainedEntry():
                config, port = load_recipe(self._paths, entry.recipe), self._lineage.manifest.training_client
                return {
                    **config_of_entry,
                    "prompt_digest": self._prompt(_prompt_of(entry, config)).digest(),
                    "model": model_digest(model_name(port, config), self._paths),
                    "renderer": config.renderer,
                    "answer_tokens": config.answer_tokens,
                    "backend": port.kind,
                }
            case _:
                assert_never(entry)

    def facts(self, entries: Mapping[str, Entry]) -> dict[str, str]:
        """Return what the services tell that answered for solvers: `precision` and `device`, by solver."""
        return {
            f"{name}.{fact}": value for name in entries for fact, value in self._computed_with.get(name, {}).items()
        }

    @contextmanager
    def open(self, name: str, entry: Entry, attempts: int) -> Iterator[Solver]:
        """Give a solver that makes so many attempts at a task, and let go of it at the end."""
        match entry:
            case TeacherEntry():
                sandbox = self._lineage.ports.sandbox
                yield TeacherSolver(open_teacher(entry.teacher, sandbox), sandbox, entry.most_steps)
            case ActorsEntry():
                with self._chat(entry, attempts) as solver:
                    yield solver
            case AgentEntry():
                with self._model(entry) as (model, context, _):
                    limits, prompt = Limits(entry.tokens, entry.seconds), self._edit_prompt(entry)
                    agent = AgentModel(
                        model, context, limits=limits, adapter=entry.adapter, name=entry.fleet, prompt=prompt
                    )
                    settings, shown = settings_of(entry), entry.demonstrations
                    yield AgentSolver(agent, self._lineage.ports.sandbox, settings, shown, entry.shows)
            case DemonstrationsEntry():
                yield DemonstrationSolver(self._lineage.ports.sandbox, entry.count, entry.seed)
            case SedEntry():
                yield WordsSolver()
            case TrainedEntry():
                yield self._open_sampled(name, entry, attempts)
            case _:
                assert_never(entry)

    @contextmanager
    def _chat(self, entry: ActorsEntry, attempts: int) -> Iterator[Solver]:
        prompt, sampling = self._asking(entry, attempts, entry.prompt or _OF_ACTORS, None)
        with self._model(entry) as (model, context, slots):
            at_once = entry.at_once or slots
            yield ChatSolver(model, prompt, sampling, context, entry.adapter, at_once, entry.deadline_s)

    @contextmanager
    def _model(self, entry: ActorsEntry | AgentEntry) -> Iterator[tuple[BlockingChatModel, int, int]]:
        """Give the model of a fleet, the tokens of question and answer that it takes, and how many questions it takes at once."""
        fleet = self._fleet(entry)
        config, secrets = self._lineage.manifest.chat_model, self._lineage.ports.secrets
        if isinstance(config, MemoryChatModelConfig):
            # a manifest says what stands for models, and this one that none is asked
            context, slots = MEMORY_CONTEXT_TOKENS, _MEMORY_AT_ONCE
            model = BlockingChatModel(open_chat_model(config, self._paths.configs, secrets))
        else:
            context, slots = fleet.prompt_and_answer_tokens, sum(actor.slots for actor in fleet.actors)
            key = secrets.require(fleet.api_key, f"fleet {entry.fleet!r}") if fleet.api_key else None
            self._start(entry.fleet, fleet)
            model = BlockingChatModel(ActorPool(fleet, key, config.pool))
        with model:
            yield model, context, slots

    def _start(self, name: str, fleet: Fleet) -> None:
        """Start the actors of a fleet that are on this machine, unless it runs; those that are of other adapters stop.

        They stay until the stack ends: whoever asks the next question finds the weights loaded, and its prompt begun.
        """
        if name in self._fleets:
            adapters, running = self._fleets[name]
            if adapters == fleet.adapters:
                return
            del self._fleets[name]
            running.close()
        secrets = self._lineage.ports.secrets
        key = secrets.get(fleet.api_key) if fleet.api_key else None
        is_running = any(status.phase != "down" for status in fleet_status(self._paths, name, fleet, key))
        if fleet.engine == "service" or is_running or not _is_here(name, fleet):
            return
        weights = weights_of(fleet, self._paths, os.environ)
        running = self._stack.enter_context(ExitStack())
        running.callback(down, self._paths, name)
        up(self._paths, name, fleet, weights, os.environ, secrets)
        self._fleets[name] = fleet.adapters, running

    def _fleet(self, entry: ActorsEntry | AgentEntry) -> Fleet:
        """Return the fleet of an entry, with the adapter it names."""
        fleet = load_fleet(self._paths.configs, entry.fleet)
        adapter = self._adapter(entry)
        if not adapter:
            return fleet
        return fleet.model_copy(update={"adapters": (*fleet.adapters, str(self._paths.adapter(adapter)))})

    def _open_sampled(self, name: str, entry: TrainedEntry, attempts: int) -> Solver:
        config = load_recipe(self._paths, entry.recipe)
        prompt, sampling = self._asking(entry, attempts, _prompt_of(entry, config), config.answer_tokens)
        path = "" if entry.is_bare else self._weights(name, entry)
        service = self._service(config)
        tokenizer = tokenizer_of(service, self._port, config, self._paths, os.environ)
        sampler = service.sampling_client(model_path=path) if path else service.sampling_client(base_model=config.model)
        self._computed_with[name] = service.computed_with()
        questions, context = Questions(config.renderer, tokenizer), context_tokens(service, config.model)
        return SampledSolver(
            service, sampler, questions, prompt, sampling, context, at_once=entry.at_once or _SAMPLED_AT_ONCE
        )

    def _weights(self, name: str, entry: TrainedEntry) -> str:
        """Return where the weights of an adapter are, as the service that trained it calls them."""
        if self._port.kind == "memory":
            raise ConfigError(
                f"solver {name!r}: weights of the training_client 'memory' end with the process that trained them;"
                " use a manifest with another one, or is_bare"
            )
        run_id = entry.run
        if not run_id:
            record = self._lineage.read_input(self._paths.adapter(entry.recipe), "trained_adapter")
            run_id = str(record.config["run_id"])
        run = Runs(self._paths.root / output_of(self._lineage.manifest)).find(run_id)
        if run is None or not run.sampler_path:
            raise ConfigError(
                f"solver {name!r}: run {run_id!r} has no weights to be sampled from; train it to its end first"
            )
        return run.sampler_path

    def _service(self, config: TinkerTrainingConfig) -> TinkerSDKClient:
        """Return what samples the model of a recipe; two solvers of one model share it.

        A backend of this machine has one model, and its checkpoints for itself: the one of another model is closed first.
        """
        key = config.model, config.deadline_s
        if key not in self._services:
            port, paths = self._port, self._paths
            if port.kind == "local":
                self._of_services.close()
                self._services.clear()
            fetch_served_weights(port, config, paths)
            opened = self._lineage.ports.open_training(config.model, config.deadline_s)
            self._services[key] = self._of_services.enter_context(opened)
        return self._services[key]

    def _asking(
        self, entry: ActorsEntry | TrainedEntry, attempts: int, name: str, answer_tokens: int | None
    ) -> tuple[Prompt, Sampling]:
        prompt = self._prompt(name)
        tokens = entry.max_tokens or answer_tokens or prompt.settings.sampling.max_tokens
        return prompt, Sampling(entry.temperature_of(attempts), tokens, entry.seed)

    def _prompt(self, name: str) -> Prompt:
        return load_prompt(self._paths.configs, name)

    def _edit_prompt(self, entry: AgentEntry) -> Prompt | None:
        return find_edit_prompt(self._paths.configs, self._fleet(entry), entry.adapter)

    def _adapter(self, entry: Entry) -> str:
        """Return the recipe whose stored adapter a solver asks; empty where it asks none of those."""
        match entry:
            case TrainedEntry(recipe=recipe):
                return "" if entry.is_bare or entry.run else recipe
            case ActorsEntry(adapter=adapter) | AgentEntry(adapter=adapter):
                fleet = load_fleet(self._paths.configs, entry.fleet)
                return "" if adapter in fleet.adapter_folders else adapter
            case TeacherEntry() | DemonstrationsEntry() | SedEntry():
                return ""
            case _:
                assert_never(entry)

    @property
    def _port(self) -> TrainingClientConfig:
        return self._lineage.manifest.training_client


def settings_of(entry: AgentEntry) -> Settings:
    """Return how the agent is set; what the entry leaves open is as in `graftline refactor`."""
    named = {"attempts": entry.answers, "places": entry.places, "questions": entry.questions}
    return Settings(**{name: value for name, value in named.items() if value is not None})


def _prompt_of(entry: TrainedEntry, config: TinkerTrainingConfig) -> str:
    return entry.prompt or (config.data.prompt if config.data else _OF_TRAINED)


def _folder_digest(folder: Path) -> str:
    """Return what changes when the files of a folder do; empty where it is on the machine of the servers alone."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return digest({path.relative_to(folder).as_posix(): sha256_file(path) for path in files}) if files else ""


def _is_here(name: str, fleet: Fleet) -> bool:
    try:
        return bool(local_actors(name, fleet))
    except ConfigError:
        return False
