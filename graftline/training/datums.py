"""What a model is trained on: chats as tokens with weights, by the renderers of the Tinker cookbook.

A datum holds the tokens of a chat but the last, the same tokens but the first as targets, and a weight for every target: 1
for what the model is to say, 0 for what it is told. Nothing is cut short: a chat that is too long is left out and counted.
Weights are not divided by anything; that is up to who adds them up. Importing this module imports no tokenizer, SDK or torch.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from graftline.core.errors import ConfigError, DataError, ModelError, install_command
from graftline.rollouts.exports.chats import Chat, sft_rows
from graftline.rollouts.teachers.prompt import Prompt
from graftline.rollouts.trajectory import Trajectory

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
    message: str
    tokens: int = 0


def load_tokenizer(name_or_folder: str | Path) -> Tokenizer:
    """Return a tokenizer from a folder, or by its name from the cache of the Hugging Face hub; nothing is fetched.

    Raises:
        ConfigError: transformers is missing.
        ModelError: there is none, or it cannot be read.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(f"tokenizers need {error.name}; {install_command('training')}") from None
    name = str(name_or_folder)
    is_folder = Path(name).is_dir()
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception as error:  # what a broken file makes it raise is not said anywhere
        if not is_folder:
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


def render_chat_example(
    messages: Sequence[Mapping[str, str]],
    tokenizer: Tokenizer,
    renderer: str = "role_colon",
    train_on: TrainOn = "all_assistant_messages",
    max_tokens: int | None = None,
) -> "Datum":
    """Return one chat as one datum.

    Renderers that leave the thoughts of earlier answers out (`qwen3` is one) show all but the last as history has them, not
    as a model would say them. Where all answers of such chats are to be trained on, use `render_all`.

    Args:
        messages: each with a `role` of system, user or assistant, and a `content` of text.
        max_tokens: of the whole chat, targets included; None for no limit.

    Raises:
        ConfigError: the renderer is unknown, or needs tokens that the tokenizer lacks.
        DataError: the chat is none, teaches nothing, or is too long.
    """
    rendering = open_renderer(renderer, tokenizer)
    if fault := fault_of(messages):
        raise DataError(fault)
    found = _example(rendering, messages, train_on, max_tokens)
    if isinstance(found, _Dropped):
        raise DataError(found.message)
    return found


def render_all(
    chats: Iterable[Sequence[Mapping[str, str]]],
    tokenizer: Tokenizer,
    renderer: str = "role_colon",
    train_on: TrainOn = "all_assistant_messages",
    max_tokens: int | None = None,
) -> Rendered:
    """Return `chats` as datums; what cannot be trained on is left out and counted.

    A chat is one datum, unless all of its answers are trained on and the renderer shows earlier ones otherwise than a model
    would say them: then every answer is one, with what came before it.

    Raises:
        ConfigError: as of `render_chat_example`.
    """
    rendering = open_renderer(renderer, tokenizer)
    is_split = train_on == "all_assistant_messages" and not rendering.has_extension_property
    datums: list[Datum] = []
    dropped: Counter[str] = Counter()
    too_long: list[int] = []
    tokens = trained = 0
    for chat in chats:
        if fault_of(chat):
            dropped["bad_chat"] += 1
            continue
        for part in _parts(chat) if is_split else [chat]:
            found = _example(rendering, part, "last_assistant_message" if is_split else train_on, max_tokens)
            if isinstance(found, _Dropped):
                dropped[found.reason] += 1
                too_long += [found.tokens] if found.reason == "too_long" else []
                continue
            datums.append(found)
            tokens += found.model_input.length
            trained += trained_tokens(found)
    return Rendered(tuple(datums), tokens, trained, dropped, tuple(too_long))


def trajectory_messages(trajectories: Iterable[Trajectory], prompt: Prompt) -> Iterator[Chat]:
    """Yield the chat of every verified step, the answer last: those of the export `sft`."""
    for row in sft_rows(trajectories, prompt):
        yield row["messages"]


def trajectory_datums(
    trajectories: Iterable[Trajectory],
    prompt: Prompt,
    tokenizer: Tokenizer,
    renderer: str = "role_colon",
    max_tokens: int | None = None,
) -> Rendered:
    """Return the verified steps of `trajectories` as datums, of which the last answer alone is trained on.

    The answers before it are the shots, what was tried and was wrong, and steps that have a chat of their own.

    Raises:
        ConfigError: as of `render_chat_example`.
    """
    chats = trajectory_messages(trajectories, prompt)
    return render_all(chats, tokenizer, renderer, "last_assistant_message", max_tokens)


def known_renderers() -> list[str]:
    """Return the names of renderers: those of the documentation of the cookbook, those registered with it, those of ours.

    Raises:
        ConfigError: the cookbook is missing.
    """
    _require_cookbook()
    from tinker_cookbook.renderers import get_registered_renderer_names, get_renderer

    # where it lists them; one that needs a tokenizer of its own is left out there
    return sorted(
        {*_NAME_IN_DOCSTRING.findall(get_renderer.__doc__ or ""), *get_registered_renderer_names(), *_ALIASES}
    )


def _require_cookbook() -> None:
    try:
        import tinker_cookbook.renderers  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConfigError(f"renderers need {error.name}; {install_command('training')}") from None


def open_renderer(name: str, tokenizer: Tokenizer) -> Any:
    """Return a renderer of the cookbook, which has been seen to work with `tokenizer`.

    Raises:
        ConfigError: it is unknown, or `tokenizer` lacks what it writes.
    """
    _require_cookbook()
    from tinker_cookbook.renderers import get_renderer

    which = f"renderer {name!r} does not suit tokenizer {tokenizer.name_or_path!r}"
    remedy = "use the renderer of the model's family, or role_colon"
    try:
        renderer = get_renderer(_ALIASES.get(name, name), tokenizer)
        text = tokenizer.decode(renderer.build_supervised_example(_PROBE)[0].to_ints())
    except Exception as error:  # each of them fails in its own way
        if str(error).startswith("Unknown renderer"):
            raise ConfigError(f"renderer {name!r} is unknown; known: {', '.join(known_renderers())}") from None
        raise ConfigError(f"{which} ({' '.join(str(error).split())[:200]}); {remedy}") from None
    # the rest write the names of tokens that are not there letter by letter, and say nothing
    lacking = [
        token
        for token in sorted({*_CONTROL_TOKEN.findall(text)})
        if len(tokenizer.encode(token, add_special_tokens=False)) != 1
    ]
    if lacking:
        raise ConfigError(f"{which}, which has no token {', '.join(lacking)}; {remedy}")
    return renderer


def fault_of(messages: Sequence[Mapping[str, str]]) -> str:
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
        if not _is_unicode(content):
            return f"message {number} holds half a surrogate pair, which is no text; mend its encoding"
    return ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(chat: Sequence[Mapping[str, str]]) -> list[Sequence[Mapping[str, str]]]:
    """Return the beginnings of `chat` that end with an answer; itself where it has none."""
    ends = [end for end, message in enumerate(chat, start=1) if message["role"] == "assistant"]
    return [chat[:end] for end in ends] or [chat]


def _example(
    renderer: Any, messages: Sequence[Mapping[str, str]], train_on: TrainOn, max_tokens: int | None
) -> "Datum | _Dropped":
    from tinker_cookbook.exceptions import RendererError
    from tinker_cookbook.renderers import TrainOnWhat
    from tinker_cookbook.supervised.common import datum_from_model_input_weights

    if not any(message["role"] == "assistant" for message in messages):
        return _Dropped(
            "no_target", "the chat has no message of the assistant, so there is nothing to learn; leave it out"
        )
    try:
        tokens, weights = renderer.build_supervised_example(
            [dict(message) for message in messages], TrainOnWhat(train_on)
        )
    except RendererError as error:
        return _Dropped("refused", f"the renderer refuses the chat ({error}); mend it, or use another renderer")
    if max_tokens is not None and tokens.length > max_tokens:
        said = f"the chat has {tokens.length} tokens, but at most {max_tokens} are allowed"
        return _Dropped("too_long", said, tokens.length)
    datum: Datum = datum_from_model_input_weights(tokens, weights)
    if not trained_tokens(datum):
        return _Dropped(
            "no_target", f"no token of the chat has a weight with train_on={train_on!r}; end it with an answer"
        )
    return datum


def trained_tokens(datum: "Datum") -> int:
    """Return how many targets of `datum` have a weight above 0."""
    return sum(weight > 0 for weight in datum.loss_fn_inputs["weights"].data)
