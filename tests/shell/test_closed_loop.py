"""The job of the closed loop over a small root: what it makes on the way is shown as where it is made on its own."""

import json
from pathlib import Path

import dagster as dg
import pytest

from graftline.paths import Paths
from graftline.record import load_record
from orchestration.build import build_definitions
from tests.unit.runtime.conftest import _made, made, reconfigure, run
from tests.unit.runtime.test_closed_loop import looped, tiny_model

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

__all__ = ["_made", "looped", "made", "reconfigure", "run", "tiny_model"]

PORTS = {
    "dataset_hub": {"kind": "homes"},
    "sandbox": {"kind": "memory"},
    "teacher": {"kind": "induction"},
    "training_client": {"kind": "local", "folder": "model", "threads": 1},
}


@pytest.mark.long
def test_adapters_and_evaluations_are_shown_as_those_that_are_made_on_their_own(
    looped: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    (looped.configs / "manifests" / "local.yaml").write_text(json.dumps(PORTS), "utf-8")
    monkeypatch.setenv("GRAFTLINE_ROOT", str(looped.root))
    with dg.DagsterInstance.ephemeral() as instance:
        result = build_definitions().resolve_job_def("closed_loop").execute_in_process(instance=instance)
    made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    shown = {(one.asset_key.to_user_string(), one.partition): one.metadata for one in made}
    assert {*shown} == {
        ("sft_dataset", "first"), ("trained_adapter", "first"), ("sft_dataset", "second"),
        ("trained_adapter", "second"), ("evaluation", "pairs"), ("closed_loop_results", None),
    }  # fmt: skip
    versions = {
        (one.asset_key.to_user_string(), one.partition): (one.tags or {}).get("dagster/data_version") for one in made
    }
    adapter = load_record(looped.adapter("first"))
    assert versions["trained_adapter", "first"] == adapter.identity
    assert None not in versions.values()
    assert "MIT" in str(shown["sft_dataset", "first"]["licences"].value)
    assert str(shown["trained_adapter", "second"]["loss_curve"].value).startswith("![loss](data:image/png;base64,")
    assert "| rival | adapter |" in str(shown["evaluation", "pairs"]["comparisons"].value)
    assert Path(str(shown["evaluation", "pairs"]["report"].value)).exists()
    assert "# The closed loop" in str(shown["closed_loop_results", None]["results"].value)
    assert str(shown["closed_loop_results", None]["plot"].value).startswith("![solved](data:image/png;base64,")
