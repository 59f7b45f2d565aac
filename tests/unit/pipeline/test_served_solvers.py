"""Solvers that are asked at servers of this machine: who starts them, and when they stop."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.training.conftest import EXTRA

# which needs torch, transformers and gguf
pytest.importorskip("peft", reason=EXTRA)
pytest.importorskip("xllamacpp", reason="pip install xllamacpp")

from graftline.core.paths import Paths
from graftline.llm.fleet import load_fleet
from graftline.llm.servers.processes import fleet_status
from graftline.llm.servers.supervisor import read_state, state_path
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.solvers import Solvers
from graftline.pipeline.stages.model_evaluation import evaluate_models, read_attempts
from graftline.training.local.engine import Engine, EngineSettings
from graftline.training.local.lora import LoraShape
from tests.kept_fleet import free_port
from tests.tiny_gguf import make_model, random_adapter, write_gguf
from tests.unit.pipeline.test_contests import root, write
from tests.unit.training.tiny_model import make_tiny_model

__all__ = ["root"]

SERVED = {"model": {"kind": "actors", "fleet": "tiny", "prompt": "brief", "max_tokens": 8}}


@pytest.fixture
def fleet_root(root: Path, tmp_path: Path) -> Path:
    """A root with a fleet `tiny` of one server, and two evaluations of its model."""
    write_gguf(make_model(tmp_path / "model", "llama"), "llama", root / "data" / "tiny.gguf")
    actor = {"name": "tiny", "url": f"http://127.0.0.1:{free_port()}", "slots": 2, "threads": 1}
    configure(root, engine="embedded", model="data/tiny.gguf", context_tokens=512, actors=[actor])
    for name in ("first", "second"):
        write(root, SERVED, name=name)
    return root


def configure(root: Path, **said: Any) -> None:
    """Say so of the fleet `tiny`."""
    path = root / "configs" / "vllm_actors.yaml"
    known: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    known["fleets"].setdefault("tiny", {}).update(said)
    path.write_text(yaml.safe_dump(known), "utf-8")


def opened(root: Path, stack: ExitStack) -> Lineage:
    manifest = load_manifest(Paths(root), "test", {"chat_model": {"kind": "actors", "fleet": "tiny"}})
    return stack.enter_context(open_lineage(Paths(root), manifest, "a-run"))


def server(paths: Paths) -> int | None:
    """Return the process of the server; None where none runs."""
    [status] = fleet_status(paths, "tiny", load_fleet(paths.configs, "tiny"))
    state = read_state(state_path(paths, "tiny", "tiny"))
    return state.server if state and status.phase == "up" else None


def test_evaluations_that_share_it_ask_one_server_which_stops_after_the_last(fleet_root: Path) -> None:
    paths = Paths(fleet_root)
    with ExitStack() as stack:
        lineage = opened(fleet_root, stack)
        entrants = Solvers(lineage, stack.enter_context(ExitStack()))

        first = evaluate_models(lineage, "first", entrants)
        process = server(paths)
        second = evaluate_models(lineage, "second", entrants)

        assert process is not None
        assert server(paths) == process
    assert server(paths) is None
    for built in (first, second):
        assert (built.record.counts["rows"], built.record.counts["infra"]) == (4, 0)


def test_servers_start_anew_for_an_adapter_that_they_do_not_have(fleet_root: Path, tmp_path: Path) -> None:
    paths = Paths(fleet_root)
    engine = Engine(tmp_path / "model", "tiny", EngineSettings(threads=1))
    random_adapter(engine, fleet_root / "data" / "style", 1, 0.12, LoraShape(rank=4, seed=0))
    write(fleet_root, {"model": {**SERVED["model"], "adapter": "style"}}, name="second")
    with ExitStack() as stack:
        lineage = opened(fleet_root, stack)
        entrants = Solvers(lineage, stack.enter_context(ExitStack()))
        bare = evaluate_models(lineage, "first", entrants)
        before = server(paths)
        configure(fleet_root, adapters=["data/style"])

        adapted = evaluate_models(lineage, "second", entrants)

        assert server(paths) not in (None, before)
    assert server(paths) is None
    said = [[one.text for one in read_attempts(built.folder)] for built in (bare, adapted)]
    assert (len(said[1]), said[0] != said[1], adapted.record.counts["infra"]) == (4, True, 0)


@pytest.mark.long  # in make test the next ones start and stop the same servers
def test_models_of_this_machine_are_asked_one_after_the_other(root: Path) -> None:
    make_tiny_model(root / "model")
    recipe = {"recipe": "sl_basic", "renderer": "qwen3_instruct", "answer_tokens": 4, "data": {"kind": "synthetic"}}
    (root / "configs" / "recipes").mkdir(exist_ok=True)
    for name in ("one", "two"):
        (root / "configs" / "recipes" / f"{name}.yaml").write_text(json.dumps({**recipe, "model": name}), "utf-8")
    bare = {"kind": "trained", "is_bare": True}
    # a backend that another one of the same checkpoints runs beside does not start
    write(root, {"first": {**bare, "recipe": "one"}, "second": {**bare, "recipe": "two"}})
    chosen = {"training_client": {"kind": "local", "folder": "model", "threads": 1}}
    with open_lineage(Paths(root), load_manifest(Paths(root), "test", chosen), "a-run") as lineage:
        built = evaluate_models(lineage, "mine")

    assert (built.record.counts["rows"], built.record.counts["infra"]) == (8, 0)
    assert {one.solver for one in read_attempts(built.folder)} == {"first", "second"}


def test_an_evaluation_on_its_own_leaves_no_server(fleet_root: Path) -> None:
    with ExitStack() as stack:
        built = evaluate_models(opened(fleet_root, stack), "first")

        assert built.record.counts["infra"] == 0
        assert server(Paths(fleet_root)) is None
