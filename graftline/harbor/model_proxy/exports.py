"""Rollouts whose model was asked by the proxy, from a service to a folder: a trial of each, and rows to train on of all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from graftline.harbor.client import HarborClient
from graftline.harbor.execution import ROLLOUTS
from graftline.harbor.messages import OPEN_ROLLOUTS
from graftline.harbor.model_proxy.calls import read_calls
from graftline.harbor.model_proxy.trajectories import training_rows
from graftline.harbor.task_format.exporting import write_trial

ROWS = "rows.jsonl"
_JOBS, _JOB = "/api/eval/jobs", "job_"


def export_rollouts(client: HarborClient, source: str, folder: Path) -> list[Path]:
    """Write the rollout, or those of the evaluation, that `source` is the id of; return the folders of the trials.

    What their models were asked is added to `rows.jsonl` in `folder`, where a proxy has recorded it.

    Raises:
        HarborAPIError: there is none of that id.
        DataError: one has not ended, or its folder is there already.
    """
    ids = [source]
    if source.startswith(_JOB):
        results = client.request("GET", f"{_JOBS}/{quote(source, safe='')}/results")["results"]
        ids = [row["rollout_id"] for row in results if row["status"] not in OPEN_ROLLOUTS]
    return [_export_rollout(client, rollout_id, folder) for rollout_id in ids]


def _export_rollout(client: HarborClient, rollout_id: str, folder: Path) -> Path:
    path = f"{ROLLOUTS}/{quote(rollout_id, safe='')}"
    view: Mapping[str, Any] = client.request("GET", path)
    calls = read_calls(client.request("GET", f"{path}/calls")["calls"], rollout_id)
    # before anything is written: a trial that is there is not asked for again
    rows = [*training_rows(calls, view)]
    place = write_trial(view, folder)
    if rows:
        with (folder / ROWS).open("ab") as stream:
            stream.writelines(orjson.dumps(row) + b"\n" for row in rows)
    return place
