"""The model card of an adapter: `README.md` beside its weights."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.core.markdown import table
from graftline.llm.weights.catalog import HubPlace, Weights
from graftline.training.runs import StepMetrics, TrainingRun

CARD = "README.md"
_SHOWN_STEPS = 20


def card(
    run: TrainingRun,
    steps: Sequence[StepMetrics],
    weights: Weights | None,
    name: str,
    licenses: Mapping[str, int] | None = None,
    solved: str = "",
    prompt: str = "",
    teachers: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the model card of the adapter in the folder `name`: what it is, what it was made of, how it went, what it is not.

    `weights` are what it was trained on, where that is of `configs/models.yaml`; `licenses` are those of its rows, with how many
    there are of each, None where that is not known; `solved` is a table of the tasks that were solved without it and with it;
    `prompt`, of `configs/teacher_prompts.yaml`, is how it is to be asked; `teachers` are those whose answers it was trained on,
    with rows and terms.
    """
    repo_id, revision = _base_of(run, weights)
    every = max(1, len(steps) // _SHOWN_STEPS)
    curve = [
        {"step": step.step + 1, "loss": round(step.loss, 4), "held-out loss": _round(step.held_out_loss)}
        for step in steps
        if (step.step + 1) % every == 0 or step.held_out_loss is not None
    ]
    facts = [
        {"": "base model", "is": f"{repo_id}{f' at {revision}' if revision else ''}"},
        {"": "trained as", "is": run.config["model"]},
        {"": "recipe", "is": run.recipe},
        {"": "run", "is": run.run_id},
        {"": "LoRA rank", "is": run.config["lora"]["rank"]},
        *({"": name, "is": value} for name, value in run.computed_with.items()),
        {"": "optimizer steps", "is": run.next_step},
        {"": "examples", "is": run.examples},
        {"": "trained tokens", "is": run.trained_tokens},
        {"": "held-out loss before", "is": _round(run.base_held_out_loss)},
        {"": "held-out loss after", "is": _round(run.held_out_loss)},
        *({"": f"dropped, {reason}", "is": count} for reason, count in sorted(run.dropped.items())),
        *({"": f"sha256 of {kind}", "is": value} for kind, value in sorted(run.dataset.items())),
        *({"": package, "is": version} for package, version in sorted(run.versions.items())),
    ]
    parts = [
        f"---\nbase_model: {repo_id}\nbase_model_relation: adapter\nlibrary_name: peft\npipeline_tag: text-generation\n"
        "tags: [lora, ast-grep]\n---\n",
        f"# {name}\n",
        "A LoRA adapter that proposes ast-grep rewrites, trained by Graftline on verified steps.\n",
        table(facts),
    ]
    prompt = prompt or run.config.get("prompt", "")
    question = f"by the prompt `{prompt}`" if prompt else "as the chats that it was trained on are"
    parts += [
        f"It is to be asked {question}, with the renderer `{run.config['renderer']}`.\n",
        usage(run, weights, name),
    ]
    if solved:
        parts += [
            "## Tasks of packages and repositories held out\n",
            "One answer to each, the most probable one.\n",
            solved,
        ]
    parts += ["## Loss\n", "Mean over trained tokens, in nats.\n", table(curve), "## Licenses\n"]
    if licenses is None:
        parts.append("Those of the base model, and of the rows it was trained on, which the digests above name.\n")
    else:
        parts += [
            "Besides that of the base model:\n",
            table([{"license": license, "rows": count} for license, count in licenses.items()]),
        ]
    if teachers:
        parts += ["Whose answers the rows hold:\n", table(teachers)]
    parts += [
        "## Limits\n",
        "Trained on short edits of single files. What it proposes is to be verified in the sandbox before it is used.\n",
    ]
    return "\n".join(parts)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


_QUESTION = "Rewrite `old(x)` to `new(x)`."
_RENDERED = {
    "role_colon": "User: {question}\n\nAssistant:",  # after the first token of the tokenizer, where it has one
    "qwen3_instruct": "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
    "qwen3_disable_thinking": (
        "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    ),
}
"""A question as renderers write it. The chat template of a base may write another text, such as a system message."""
_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def _base_of(run: TrainingRun, weights: Weights | None) -> tuple[str, str]:
    """Return the repository that an adapter is loaded on and its revision; what the backend calls the model without weights."""
    return (weights.card, weights.card_revision) if weights else (str(run.config["model"]), "")


def write_base(config: Path, run: TrainingRun, weights: Weights | None) -> None:
    """Say in the PEFT `config` of the adapter of `run` what it is loaded on, and as what."""
    values = json.loads(config.read_text("utf-8"))
    if weights is not None or not values.get("base_model_name_or_path"):
        repo_id, revision = _base_of(run, weights)
        values |= {"base_model_name_or_path": repo_id, "revision": revision or None}
    # without it, `AutoPeftModelForCausalLM` does not load the adapter
    values["task_type"] = values.get("task_type") or "CAUSAL_LM"
    config.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", "utf-8")


_PEFT = """```python
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo_id}"{revision})
model = AutoPeftModelForCausalLM.from_pretrained(".")
prompt = {prompt}
tokens = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
answer = model.generate(**tokens, max_new_tokens={answer_tokens}, do_sample=False)
print(tokenizer.decode(answer[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))
```
"""
_VLLM = """```sh
vllm serve {repo_id}{revision} --enable-lora --max-lora-rank {rank} --lora-modules {name}=.
```

It answers as the model `{name}`: the prompt above at `/v1/completions`.
"""
_LLAMA_CPP = """```sh
graftline model convert-adapter . --base {base} --output gguf
llama-server --model {file} --lora gguf/{name}.gguf
```
"""
_UNPACKED = """It was trained on `{file}`, unpacked from {quantization} to 16 bits, and its figures are those on that base. The weights of\
 `{repo_id}` are the ones that were packed: close to these, and not the same. On them the adapter answers slightly otherwise,\
 as a rule somewhat different in the last places of logprobs, now and then in a token. Where figures are to be repeated, use\
 the packed weights: with llama.cpp as they are, elsewhere by `graftline model convert`.
"""


def usage(run: TrainingRun, weights: Weights | None, name: str) -> str:
    """Return the section of the card of the adapter in a folder called `name`."""
    (repo_id, revision), renderer = _base_of(run, weights), str(run.config["renderer"])
    rendered = _RENDERED.get(renderer)
    parts = ["## Use\n", "Run these in the folder of this file.\n"]
    if rendered is None:
        parts.append("The chat template of the base stands for the renderer, which may write another text.\n")
        chat = f'[{{"role": "user", "content": "{_QUESTION}"}}]'
        prompt = f"tokenizer.apply_chat_template({chat}, tokenize=False, add_generation_prompt=True)"
    else:
        prompt = repr(rendered.format(question=_QUESTION))
    if renderer == "role_colon":
        prompt = f'(tokenizer.bos_token or "") + {prompt}'
    if weights is not None and weights.quantization:
        parts.append(_UNPACKED.format(file=weights.file, quantization=weights.quantization, repo_id=repo_id))
    rank = next((rank for rank in _VLLM_RANKS if rank >= int(run.config["lora"]["rank"])), _VLLM_RANKS[-1])
    parts += [
        "### PEFT\n",
        _PEFT.format(
            repo_id=repo_id,
            revision=f', revision="{revision}"' if revision else "",
            prompt=prompt,
            answer_tokens=int(run.config.get("answer_tokens") or 96),
        ),
        "### vLLM\n",
        _VLLM.format(repo_id=repo_id, revision=f" --revision {revision}" if revision else "", rank=rank, name=name),
    ]
    if weights is not None:
        hub = next((place for place in weights.places if isinstance(place, HubPlace)), None)
        source = f", which is `{hub.file}` of `{hub.repository}` at `{hub.revision}`" if hub else ""
        llama_cpp = _LLAMA_CPP.format(base=run.config["model"], file=weights.file, name=name)
        parts += ["### llama.cpp\n", f"With `{weights.file}`{source}:\n", llama_cpp]
    return "\n".join(parts)
