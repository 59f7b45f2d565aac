"""What the cookbook's recipes load from the hub, a few rows of each, in folders of the same names.

A path of the hub that is a folder here is taken from here by `datasets` and `transformers`: the recipes stay as they are.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.training.tiny_model import make_tiny_model

MODEL = "Qwen/Qwen3.6-35B-A3B"
"""The name under which the tiny model is served: the one that recipes name themselves, as a grader and as a teacher."""
CONTEXT = 8192
_SUMS = [(first, second) for first in range(2, 9) for second in range(3, 7)]
_WORDS = (
    "a teacher",
    "the pilot",
    "our gardener",
    "every student",
    "one engineer",
    "the doctor",
    "a painter",
    "my neighbor",
)


def write_mirror(folder: Path) -> Path:
    """Write datasets below `folder`, and the tiny model as `MODEL`, for a longer context; return the folder of the model."""
    chats = [_chat(f"Who answers question {number}?", f"{word} answers.") for number, word in enumerate(_WORDS * 4)]
    problems = [
        {"question": f"What is {first} + {second}?", "answer": f"We add them. #### {first + second}"}
        for first, second in _SUMS
    ]
    pairs = [
        {
            "chosen": f"\n\nHuman: Who weighs apple {number}?\n\nAssistant: {word} weighs it.",
            "rejected": f"\n\nHuman: Who weighs apple {number}?\n\nAssistant: Nobody.",
        }
        for number, word in enumerate(_WORDS * 2)
    ]
    # as many as two batches of 128, for the recipe `sl_basic` has no other size
    _dataset(folder / "HuggingFaceH4/no_robots", {"train": chats * 8, "test": chats[:4]})
    # the first 1,024 rows are left out, to be looked at
    _dataset(folder / "allenai/tulu-3-sft-mixture", {"train": [*chats * 32, *chats]})
    _dataset(folder / "openai/gsm8k", {"train": problems, "test": problems[:4]}, config="main")
    _dataset(folder / "Anthropic/hh-rlhf", {"train": pairs, "test": pairs[:4]})
    _dataset(folder / "zwhe99/DeepMath-103K", {"train": [_deep_math(first, second) for first, second in _SUMS]})
    _dataset(folder / "open-thoughts/OpenThoughts3-1.2M", {"train": [_thoughts(word) for word in _WORDS * 2]})
    _dataset(folder / "hicai-zju/SciKnowEval", {"test": [_choice(number) for number in range(20)]})
    _lines(folder / "rubric" / "train.jsonl", [_rubric(word) for word in _WORDS])
    _lines(folder / "rubric" / "test.jsonl", [_rubric(word) for word in _WORDS[:2]])
    _lines(folder / "languages.jsonl", [_chat(f"Hello {word}", "en") for word in _WORDS])
    sentences = folder / "tinker_cookbook/example_data/multilingual.txt"
    sentences.parent.mkdir(parents=True)
    sentences.write_text("The letter is here.\n", "utf-8")
    model = make_tiny_model(folder / MODEL)
    config = json.loads((model / "config.json").read_text("utf-8")) | {"max_position_embeddings": CONTEXT}
    (model / "config.json").write_text(json.dumps(config), "utf-8")
    return model


def _chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def _deep_math(first: int, second: int) -> dict[str, Any]:
    return {"question": f"What is {first} times {second}?", "final_answer": str(first * second)}


def _thoughts(word: str) -> dict[str, Any]:
    answer = {"from": "gpt", "value": f"<think>{word} knows.</think>It is {word}."}
    return {"conversations": [{"from": "human", "value": "Who repairs the window?"}, answer]}


def _choice(number: int) -> dict[str, Any]:
    return {
        "question": f"Which of these is metal {number}?",
        "choices": {"text": ["iron", "water"], "label": ["A", "B"]},
        "answerKey": "A",
        "answer": "A",
        "domain": "Chemistry",
        "details": {"level": "L3"},
        "type": "mcq-2-choices",
    }


def _rubric(word: str) -> dict[str, Any]:
    item = {
        "rubric_str": f"Does the answer name {word}?",
        "extraction_regex": r"(\d)",
        "grader_output_format_instruction": "Answer by a digit.",
    }
    return {"convo": [{"role": "user", "content": "Who carries the machine?"}], "rubric_items": [item]}


def _dataset(folder: Path, splits: Mapping[str, Sequence[Mapping[str, Any]]], config: str = "default") -> None:
    for split, rows in splits.items():
        _lines(folder / f"{split}.jsonl", rows)
    files = "".join(f"\n  - split: {split}\n    path: {split}.jsonl" for split in splits)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:{files}\n---\n", "utf-8")


def _lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
