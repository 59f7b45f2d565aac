"""A language model of two layers that knows nothing, with a tokenizer of its own: real in all but size.

The architecture, the special tokens and the template are Qwen3's, so that the renderers `qwen3`, `qwen3_instruct` and
`role_colon` of the cookbook work. The same call writes the same weights and the same tokens.
"""

import itertools
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTEXT = 2048
VOCABULARY = 1088
"""Of the model: as with Qwen3, more than its tokenizer has."""
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_WHO = "a teacher;the pilot;our gardener;every student;one engineer;the doctor;a painter;their captain;my neighbor"
_DOES = "answers;carries;describes;finishes;measures;remembers;repairs;translates;understands;watches;weighs;writes"
_WHAT = (
    "the question;an engine;this letter;a bridge;the number;some apples;that story;a window;the machine;an island;"
    "the lighthouse;a thousand stones;the archive;a blue flag;the code;another mountain;the weather;a silver ring"
)
_WHEN = "before noon;in the morning;on Tuesday;after supper;without help;for 12 hours;every winter;at 3 o'clock"
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tiny_model(folder: Path, is_tied: bool = False) -> Path:
    """Write the model into `folder`, and return it; where it is tied, its output layer is its embedding."""
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        # five times the usual, so that the most probable tokens stand apart from the others
        initializer_range=0.1,
        tie_word_embeddings=is_tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[*_SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=_TEMPLATE,
    )


def _text() -> list[str]:
    parts = [part.split(";") for part in (_WHO, _DOES, _WHAT, _WHEN)]
    sentences = [f"{' '.join(words).capitalize()}.\n" for words in itertools.product(*parts)]
    # words of no language, for sentences alone have too few tokens in them
    syllables = ["".join(pair) for pair in itertools.product("bdfghklmnprstvwz", "aeiou")]
    return [*sentences, *(f" {first}{second}" for first, second in itertools.product(syllables, syllables))]
