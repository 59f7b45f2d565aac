"""What is told of each ancestor of an adapter: of records, runs, base models and prompts.

Drift, where it is returned, says in words that what a name stands for now is not what was used.
"""

from collections.abc import Mapping
from typing import Any

from graftline.core.errors import GraftlineError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, DatasetRecord, NormalizedRecord
from graftline.datasets.catalog import NO_LICENCE
from graftline.llm.weights.catalog import load_models
from graftline.pipeline.settings import stage_code
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.training.runs import TrainingRun

_TEACHING = ("teacher", "isolation", "ast_grep")


def facts_of(record: ArtifactRecord) -> dict[str, Any]:
    """Return what a person wants to know of an artifact: counts, licences, versions, and whether its code is ours."""
    told: dict[str, Any] = {"rows": record.counts.get("rows", record.counts.get("trained_tokens", 0))}
    if isinstance(record, DatasetRecord):
        told |= {"source": record.source, "version": record.version, "licence": record.license, "sha256": record.sha256}
    if isinstance(record, NormalizedRecord):
        told |= {"licences": dict(record.licences), "tokenizer": record.tokenizer}
    if "home" in record.config:
        told["home"] = record.config["home"]
    told |= {key: record.config[key] for key in _TEACHING if key in record.config}
    told |= {key: record.counts[key] for key in ("verified", "steps", "examples", "solved_before", "solved_after") if key in record.counts}  # fmt: skip
    dropped = {name: count for name, count in record.counts.items() if name.startswith(("dropped.", "unsound.", "not_kept."))}  # fmt: skip
    if dropped:
        told["left_out"] = dropped
    told["code"] = record.code_version
    if (now := _code_now(record)) and now != record.code_version:
        told["code_now"] = now
    return {**told, "written_at": record.written_at}


def run_facts(run: TrainingRun) -> dict[str, Any]:
    """Return what a person wants to know of a run of training."""
    return {
        "recipe": run.recipe,
        "status": run.status,
        "steps": run.next_step,
        "examples": run.examples,
        "trained_tokens": run.trained_tokens,
        "first_loss": run.first_loss,
        "last_loss": run.last_loss,
        "held_out_loss": run.held_out_loss,
        "backend": run.backend,
        "config_digest": run.config_digest,
        "dropped": dict(run.dropped),
        "versions": dict(run.versions),
        **({"start_from": start} if (start := run.config.get("start_from")) else {}),
        **{key: run.config[key] for key in ("teacher_model", "teacher_path", "teacher_fleet") if run.config.get(key)},
    }


def base_model_facts(paths: Paths, record: ArtifactRecord, run: TrainingRun | None) -> tuple[str, dict[str, Any], str]:
    """Return what the adapter is one of: its name, what is known of it, and why that is not what was used."""
    recorded = record.config.get("model") or record.config.get("config", {}).get("model", "")
    name = run.config["model"] if run is not None else recorded
    known = load_models(paths).models
    by_digest = next((of for of, weights in known.items() if weights.sha256 == recorded), None)
    facts = model_facts(paths, by_digest or name)
    is_as_recorded = by_digest or recorded == name or record.kind != "trained_adapter"
    drift = "" if is_as_recorded else f"was {recorded[:12]}, but configs/models.yaml pins other weights now"
    return by_digest or name, facts, drift


def model_facts(paths: Paths, name: str) -> dict[str, Any]:
    """Return what is known of the weights of a language model."""
    weights = load_models(paths).models.get(name)
    if weights is None:
        return {"licence": NO_LICENCE, "why": "it is not in configs/models.yaml"}
    return {"digest": weights.sha256, "licence": weights.licence, "card": weights.card, "file": weights.file}


def prompt_facts(paths: Paths, record: ArtifactRecord) -> tuple[str, dict[str, Any], str] | None:
    """Return by which prompt rows or attempts were made, and why it is not what was used; None where there was none."""
    told = record.config.get("prompt")
    if told is None or record.kind == "trained_adapter":  # that of its training data, which tells its name
        return None
    named = told if isinstance(told, Mapping) else {"digest": told}
    name = str(named.get("name") or record.config.get("data", {}).get("prompt") or "")
    digest = str(named["digest"])
    if not name:
        # attempts know the digest alone
        return digest[:12], {"digest": digest}, ""
    try:
        now = load_prompt(paths.configs, name).digest()
    except GraftlineError as error:
        return name, {"digest": digest}, f"cannot be read any more: {error}"
    drift = "" if now == digest else "was changed since in configs/teacher_prompts.yaml"
    return name, {"digest": digest}, drift


def _code_now(record: ArtifactRecord) -> str:
    try:
        reader = record.config.get("reader")
        return stage_code(record.kind, reader) if record.kind != "raw" else ""
    except KeyError:
        return ""  # of exports and of adapters of runs, whose code is no stage
