"""The scripts of `examples/engine_bench`: they load, and stage what the service is to get."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from graftline.harbor.in_box.agents import NAMES

SCRIPTS = (
    "create_deployment",
    "create_harbor_instances",
    "localapi_engine_bench",
    "run_harbor_eval",
    "run_harbor_eval_simple",
    "run_harbor_gepa",
    "upload_harbor_deployment",
)


def loaded(folder: Path, name: str) -> ModuleType:
    """Return a script as a module; nothing of it is run."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the scripts, from which they import each other."""
    folder = checkout / "examples" / "engine_bench"
    monkeypatch.syspath_prepend(str(folder))
    for name in ("context", "localapi_engine_bench"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_loads(example: Path, name: str) -> None:
    assert callable(loaded(example, name).main)


@pytest.mark.parametrize("agent", NAMES)
def test_the_contexts_hold_five_cards(example: Path, tmp_path: Path, agent: str) -> None:
    staged = loaded(example, "context").stage(tmp_path, agent)
    assert [(seed.seed, seed.task_id) for seed in staged.seeds] == [
        (0, "df-001-emberfox"),
        (1, "df-002-tidecrab"),
        (2, "df-003-mosswyrm"),
        (3, "df-004-voltmoth"),
        (4, "df-005-stonecub"),
    ]
    assert (staged.context / "common" / "run_rollout.py").is_file()
    assert not list(staged.context.rglob("*_eval.rs"))
    assert staged.verifier.entrypoint.endswith("--answer solution") == (agent == "oracle")


def test_the_old_way_packs_the_same_files(example: Path, tmp_path: Path) -> None:
    module = loaded(example, "create_deployment")
    (tmp_path / "a").write_text("x")
    assert module.packed(tmp_path).startswith("H4sI")
