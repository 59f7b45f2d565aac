"""What the model card of an adapter tells people to type, typed, with a hub that is a folder in the layout of its cache."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from graftline.core.config import validate
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import Weights
from graftline.training.adapter import download_adapter
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import Runs, TrainingRun
from tests.training_root import write_root
from tests.unit.training.conftest import EXTRA, StartedServer

pytest.importorskip("tinker", reason=EXTRA)

from graftline.training.answers import Questions
from graftline.training.card import usage
from graftline.training.open import load_tokenizer
from graftline.training.tinker import TinkerSDKClient
from graftline.training.train import OUTPUT, train_on_tinker

REVISION = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = validate(
    {
        "file": "tiny.Q4_1.gguf", "format": "gguf", "size_bytes": 1, "sha256": "0" * 64, "license": "MIT",
        "card": "owner/tiny", "card_revision": REVISION, "quantization": "Q4_1",
        "places": [{"kind": "folder", "path": "weights"}],
    },
    Weights,
    "models.yaml",
)  # fmt: skip
QUESTION = [{"role": "user", "content": "Rewrite `old(x)` to `new(x)`."}]
ANSWER_TOKENS = 12


@dataclass
class Trained:
    """An adapter as `graftline train run` leaves it, and what its backend answers to the question of its card."""

    folder: Path
    run: TrainingRun
    answer: str
    tokens: list[int]
    model: Path

    @property
    def card(self) -> str:
        return (self.folder / "README.md").read_text("utf-8")

    def snippet(self, heading: str, language: str = "python") -> str:
        body = self.card.split(f"### {heading}\n")[1].split("\n### ")[0]
        return re.findall(rf"```{language}\n(.*?)```", body, re.DOTALL)[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, tinker_server: StartedServer) -> Trained:
    root = tmp_path_factory.mktemp("snippets") / "root"
    write_root(
        root, tiny_model, renderer="qwen3_instruct", max_steps=4, answer_tokens=ANSWER_TOKENS, learning_rate=0.03
    )
    config = load_recipe(Paths(root), "tiny", {})
    run = train_on_tinker(config, tinker_server.api_key, root=root, base_url=tinker_server.url).run
    tokenizer = load_tokenizer(tiny_model)
    tokens = Questions(config.renderer, tokenizer).tokens(QUESTION)
    with TinkerSDKClient(tinker_server.api_key, tinker_server.url) as client:
        folder = download_adapter(Runs(root / OUTPUT), run, client, WEIGHTS)
        from tinker import types

        parameters = types.SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0.0, seed=0)
        answers = []
        for sampler in (
            client.sampling_client(model_path=run.sampler_path),
            client.sampling_client(base_model=config.model),
        ):
            sampled = sampler.sample(types.ModelInput.from_ints(tokens), 1, parameters)
            [sequence] = client.result(sampled, "answers").sequences
            answers.append(tokenizer.decode(sequence.tokens, skip_special_tokens=True))
    assert answers[0] != answers[1], "the adapter is no small matter"
    return Trained(folder, run, answers[0], tokens, tiny_model)


def run_python(snippets: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", snippets],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_transformers_and_peft_load_the_adapter_by_its_folder_and_answer_as_the_backend_does(
    trained: Trained, tmp_path: Path
) -> None:
    repository = tmp_path / "hub" / "models--owner--tiny"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "snapshots" / REVISION).symlink_to(trained.model)
    # where nothing names a revision, as in `AutoModelForCausalLM.from_pretrained(folder)`, it is that of `main`
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION, "utf-8")
    bare = (
        "from transformers import AutoModelForCausalLM\nprint(AutoModelForCausalLM.from_pretrained('.').peft_config)\n"
    )
    said = run_python(
        f"{trained.snippet('PEFT')}\nprint('--')\n{bare}",
        trained.folder,
        {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
    )
    by_peft, config = said.split("--\n")
    assert by_peft == f"{trained.answer}\n"
    assert f"revision='{REVISION}'" in config
    assert "TaskType.CAUSAL_LM" in config or "task_type='CAUSAL_LM'" in config


@pytest.mark.parametrize("renderer", ["qwen3_instruct", "role_colon", "qwen3_disable_thinking"])
def test_a_prompt_of_the_card_is_what_the_renderer_writes(trained: Trained, renderer: str) -> None:
    tokenizer = load_tokenizer(trained.model)
    run = trained.run.model_copy(update={"config": {**trained.run.config, "renderer": renderer}})
    first, *_ = re.findall(r"^prompt = .*$", usage(run, WEIGHTS, "tiny"), re.MULTILINE)
    exec(first, namespace := {"tokenizer": tokenizer})
    written = tokenizer.encode(namespace["prompt"], add_special_tokens=False)
    assert written == Questions(renderer, tokenizer).tokens(QUESTION)


def test_vllm_is_told_to_serve_the_adapter_at_its_revision(trained: Trained) -> None:
    words = trained.snippet("vLLM", "sh").split()
    words.remove("--enable-lora")
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert (words[:3], options) == (
        ["vllm", "serve", "owner/tiny"],
        {"--revision": REVISION, "--max-lora-rank": "8", "--lora-modules": f"{trained.folder.name}=."},
    )


def test_the_card_says_what_it_was_trained_on_and_what_that_means(trained: Trained) -> None:
    card = " ".join(trained.card.split())
    assert "base_model: owner/tiny base_model_relation: adapter" in card
    assert "unpacked from Q4_1 to 16 bits" in card
    assert f"with the renderer `{trained.run.config['renderer']}`" in card
    assert (
        f"graftline model convert-adapter . --base tiny-qwen3 --output gguf llama-server --model tiny.Q4_1.gguf --lora gguf/{trained.folder.name}.gguf"
        in card
    )
