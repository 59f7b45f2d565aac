"""What a model is trained on: chats as tokens with weights, by the renderers of the Tinker cookbook.

A datum holds the tokens of a chat but the last, the same tokens but the first as targets, and a weight for every target: 1
for what the model is to say, 0 for the question. Nothing is cut short: a chat that is too long is left out and counted.
Weights are not divided by anything; that is up to who adds them up. Importing this module imports no tokenizer, SDK or torch.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from graftline.core.errors import ConfigError, ModelError, install_command
from graftline.rollouts.exports.chats import Chat

if TYPE_CHECKING:
    from tinker import Datum

TrainOn = Literal["all_assistant_messages", "last_assistant_message"]
_ALIASES: Mapping[str, str] = {"deepseek_v3": "deepseekv3"}
"""Names of ours for renderers of the cookbook."""
_ROLES = ("system", "user", "assistant")
_CONTROL_TOKEN = re.compile("<[|\uff5c][^<>|\uff5c\\s]+[|\uff5c]>")
_NAME_IN_DOCSTRING = re.compile(r'^ *- ``"(\w+)"``', re.MULTILINE)
_PROBE: Chat = [{"role": role, "content": "a"} for role in _ROLES]

Drop = Literal["bad_chat", "no_target", "refused", "too_long"]
"""`bad_chat`: no list of texts with known roles. `no_target`: nothing that the model would have to say. `refused`: by the
renderer, as thoughts are by one that is told not to think."""


class Tokenizer(Protocol):
    """What is needed of the tokenizers of `transformers`."""

    name_or_path: str

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """Chats as datums, and what became of those that are none."""

    datums: tuple["Datum", ...]
    tokens: int
    """That go through the model once."""
    trained_tokens: int
    """Targets with a weight above 0."""
    dropped: Counter[str]
    """How many were left out, by `Drop`."""
    too_long: tuple[int, ...] = ()
    """Tokens of those that were left out for their length."""


@dataclass(frozen=True, slots=True)
class _Dropped:
    reason: Drop
    tokens: int = 0


def load_tokenizer(name_or_folder: str | Path) -> Tokenizer:
    """Return a tokenizer from a folder, or by its name from the cache of the Hugging Face hub; ModelError where there is none."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(f"tokenizers need {error.name}; {install_command('training')}") from None
    name = str(name_or_folder)
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception as error:  # what a broken file makes it raise is not said anywhere
        if not Path(name).is_dir():
            raise ModelError(
                f"tokenizer {name!r}: is no folder, and not in the cache of the Hugging Face hub; name the folder of the"
                " model, or fetch it first"
            ) from None
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ModelError(f"{name}: holds no tokenizer that can be read ({why}); name the folder of a model") from None
    # of a folder with a config.json alone it makes a tokenizer without any token
    if not tokenizer.encode("a = 1", add_special_tokens=False):
        raise ModelError(f"{name}: holds no tokenizer.json, or an empty one; name the folder of a whole model")
    return tokenizer


def render_all(
    chats: Iterable[Sequence[Mapping[str, str]]],
    tokenizer: Tokenizer,
    renderer: str = "role_colon",
    train_on: TrainOn = "all_assistant_messages",
    max_tokens: int | None = None,
) -> Rendered:
    """Return `chats` as datums; what cannot be trained on, or is longer than `max_tokens`, is left out and counted.

    A chat is one datum, unless all of its answers are trained on and the renderer shows earlier ones otherwise than a model
    would say them, as `qwen3` leaves their thoughts out: then every answer is one, with what came before it.
    """
    rendering = open_renderer(renderer, tokenizer)
    is_split = train_on == "all_assistant_messages" and not rendering.has_extension_property
    datums: list[Datum] = []
    dropped: Counter[str] = Counter()
    too_long: list[int] = []
    tokens = trained = 0
    for chat in chats:
        if chat_fault(chat):
            dropped["bad_chat"] += 1
            continue
        for part in _parts(chat) if is_split else [chat]:
            datum = _render(rendering, part, "last_assistant_message" if is_split else train_on, max_tokens)
            if isinstance(datum, _Dropped):
                dropped[datum.reason] += 1
                too_long += [datum.tokens] if datum.reason == "too_long" else []
                continue
            datums.append(datum)
            tokens += datum.model_input.length
            trained += count_trained_tokens(datum)
    return Rendered(tuple(datums), tokens, trained, dropped, tuple(too_long))


def open_renderer(name: str, tokenizer: Tokenizer) -> Any:
    """Return a renderer of the cookbook; ConfigError where it is unknown, or `tokenizer` lacks what it writes."""
    try:
        from tinker_cookbook.renderers import get_registered_renderer_names, get_renderer
    except ImportError as error:
        raise ConfigError(f"renderers need {error.name}; {install_command('training')}") from None
    subject = f"renderer {name!r} does not suit tokenizer {tokenizer.name_or_path!r}"
    remedy = "use the renderer of the model's family, or role_colon"
    try:
        renderer = get_renderer(_ALIASES.get(name, name), tokenizer)
        text = tokenizer.decode(renderer.build_supervised_example(_PROBE)[0].to_ints())
    except Exception as error:  # each of them fails in its own way
        if str(error).startswith("Unknown renderer"):
            # its docstring lists them; one that needs a tokenizer of its own is left out there
            documented = _NAME_IN_DOCSTRING.findall(get_renderer.__doc__ or "")
            names = sorted({*documented, *get_registered_renderer_names(), *_ALIASES})
            raise ConfigError(f"renderer {name!r} is unknown; known: {', '.join(names)}") from None
        raise ConfigError(f"{subject} ({' '.join(str(error).split())[:200]}); {remedy}") from None
    # the others write the names of tokens that are not there letter by letter, without an error
    lacking = [
        token
        for token in sorted({*_CONTROL_TOKEN.findall(text)})
        if len(tokenizer.encode(token, add_special_tokens=False)) != 1
    ]
    if lacking:
        raise ConfigError(f"{subject}, which has no token {', '.join(lacking)}; {remedy}")
    return renderer


def chat_fault(messages: Sequence[Mapping[str, str]]) -> str:
    """Return why `messages` are no chat; empty where they are one."""
    if not isinstance(messages, Sequence) or not messages:
        return "the chat is no list of messages; leave it out"
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            return f"message {number} is no object; expected role and content"
        if unknown := sorted({*message} - {"role", "content"}):
            return f"message {number} has {unknown[0]!r}, of which nothing would be learned; expected role and content"
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            return f"message {number} has role {role!r}; known: {', '.join(_ROLES)}"
        if not isinstance(content, str):
            return f"message {number} has content of {type(content).__name__}; expected text"
        try:
            content.encode()
        except UnicodeEncodeError:
            return f"message {number} holds half a surrogate pair, which is no text; mend its encoding"
    return ""


def _parts(chat: Sequence[Mapping[str, str]]) -> list[Sequence[Mapping[str, str]]]:
    """Return the beginnings of `chat` that end with an answer; itself where it has none."""
    ends = [end for end, message in enumerate(chat, start=1) if message["role"] == "assistant"]
    return [chat[:end] for end in ends] or [chat]


def _render(
    renderer: Any, messages: Sequence[Mapping[str, str]], train_on: TrainOn, max_tokens: int | None
) -> "Datum | _Dropped":
    from tinker_cookbook.exceptions import RendererError
    from tinker_cookbook.renderers import TrainOnWhat
    from tinker_cookbook.supervised.common import datum_from_model_input_weights

    if not any(message["role"] == "assistant" for message in messages):
        return _Dropped("no_target")
    try:
        tokens, weights = renderer.build_supervised_example(
            [dict(message) for message in messages], TrainOnWhat(train_on)
        )
    except RendererError:
        return _Dropped("refused")
    if max_tokens is not None and tokens.length > max_tokens:
        return _Dropped("too_long", tokens.length)
    datum: Datum = datum_from_model_input_weights(tokens, weights)
    return datum if count_trained_tokens(datum) else _Dropped("no_target")


def count_trained_tokens(datum: "Datum") -> int:
    """Return how many targets of `datum` have a weight above 0."""
    return sum(weight > 0 for weight in datum.loss_fn_inputs["weights"].data)
