"""The model card of an adapter: `README.md` beside its weights."""

from collections.abc import Mapping, Sequence

from graftline.core.markdown import table
from graftline.training.runs import StepMetrics, TrainingRun
from graftline.training.usage import Base, usage

CARD = "README.md"
_SHOWN_STEPS = 20


def card(
    run: TrainingRun,
    steps: Sequence[StepMetrics],
    base: Base,
    name: str,
    licences: Mapping[str, int] | None = None,
    solved: str = "",
    prompt: str = "",
) -> str:
    """Return the model card of an adapter: what it is, what it was made of, how it went, what it is not.

    Args:
        run: What it ends.
        steps: Of the run.
        base: What it is loaded on.
        name: Of the folder that it is in.
        licences: Of the rows it was trained on, with how many there are of each; None where they are not known.
        solved: A table of the tasks that were solved without it and with it; empty where it was not tried.
        prompt: By which it is to be asked, of `configs/teacher_prompts.yaml`; empty where it may be any.
    """
    every = max(1, len(steps) // _SHOWN_STEPS)
    curve = [
        {"step": step.step + 1, "loss": round(step.loss, 4), "held-out loss": _rounded(step.held_out_loss)}
        for step in steps
        if (step.step + 1) % every == 0 or step.held_out_loss is not None
    ]
    facts = [
        {"": "base model", "is": f"{base.repo_id}{f' at {base.revision}' if base.revision else ''}"},
        {"": "trained as", "is": base.name},
        {"": "recipe", "is": run.recipe},
        {"": "LoRA rank", "is": run.config["lora"]["rank"]},
        *({"": name, "is": value} for name, value in run.computed_with.items()),
        {"": "optimizer steps", "is": run.next_step},
        {"": "examples", "is": run.examples},
        {"": "trained tokens", "is": run.trained_tokens},
        {"": "held-out loss before", "is": _rounded(run.base_held_out_loss)},
        {"": "held-out loss after", "is": _rounded(run.held_out_loss)},
        *({"": f"dropped, {reason}", "is": count} for reason, count in sorted(run.dropped.items())),
        *({"": f"sha256 of {what}", "is": value} for what, value in sorted(run.dataset.items())),
        *({"": package, "is": version} for package, version in sorted(run.versions.items())),
    ]
    parts = [
        f"---\nbase_model: {base.repo_id}\nbase_model_relation: adapter\nlibrary_name: peft\npipeline_tag: text-generation\n"
        "tags: [lora, ast-grep]\n---\n",
        f"# {run.run_id}\n",
        "A LoRA adapter that proposes ast-grep rewrites, trained by Graftline on verified steps.\n",
        table(facts),
    ]
    prompt = prompt or run.config.get("prompt", "")
    question = f"by the prompt `{prompt}`" if prompt else "as the chats that it was trained on are"
    parts += [
        f"It is to be asked {question}, with the renderer `{run.config['renderer']}`.\n",
        usage(run, base, name),
    ]
    if solved:
        parts += ["## Tasks of other repositories\n", "One answer to each, the most probable one.\n", solved]
    parts += ["## Loss\n", "Mean over trained tokens, in nats.\n", table(curve), "## Licences\n"]
    if licences is None:
        parts.append("Those of the base model, and of the rows it was trained on, which the digests above name.\n")
    else:
        parts += [
            "Besides that of the base model:\n",
            table([{"licence": licence, "rows": count} for licence, count in licences.items()]),
        ]
    parts += [
        "## Limits\n",
        "Trained on short edits of single files. What it proposes is to be verified in the sandbox before it is used.\n",
    ]
    return "\n".join(parts)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
