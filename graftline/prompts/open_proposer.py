"""From the table `gepa` to what proposes changes of a prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from graftline.core.errors import ConfigError
from graftline.core.secrets import Secrets
from graftline.harbor.address import checked_url
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Actor, Fleet, Price
from graftline.llm.pool import ActorPool
from graftline.llm.settings import PoolSettings
from graftline.prompts.model_proposer import ModelProposer
from graftline.prompts.offline_proposer import OfflineProposer
from graftline.prompts.proposals import Proposer
from graftline.prompts.settings import GepaTable, ProposerTable

_CONTEXT_TOKENS = 131_072


@contextmanager
def open_proposer(
    gepa: GepaTable, secrets: Secrets, model: BlockingChatModel | None = None, allow_http: bool = False
) -> Iterator[Proposer]:
    """Give the proposer of a configuration, and let go of it at the end of the block.

    Args:
        gepa: Which one, and the model it names, if it names one.
        secrets: Where the key of that model is looked up.
        model: Is asked where the configuration names none; the caller closes it.
        allow_http: Whether the key may go to another machine unencrypted.

    Raises:
        ConfigError: there is no model, or its key is not set.
    """
    if gepa.proposer_type == "offline":
        yield OfflineProposer()
    elif gepa.proposer is not None:
        with BlockingChatModel(_served(gepa.proposer, secrets, allow_http)) as own:
            yield ModelProposer(own, gepa, gepa.proposer.temperature)
    elif model is not None:
        yield ModelProposer(model, gepa)
    elif gepa.proposer_type == "gepa":
        raise ConfigError(
            "prompt_learning.gepa.proposer_type: 'gepa' asks a language model, and there is none; name one under"
            " gepa.proposer, or take 'offline'"
        )
    else:
        yield OfflineProposer()


def _served(table: ProposerTable, secrets: Secrets, allow_http: bool) -> ActorPool:
    address = urlsplit(checked_url(table.base_url, allow_http or not table.api_key))
    key = secrets.require(table.api_key, "prompt_learning.gepa.proposer") if table.api_key else None
    return ActorPool(
        _fleet(table, f"{address.scheme}://{address.netloc}", address.path.rstrip("/")), key, PoolSettings()
    )


def _fleet(table: ProposerTable, url: str, path: str) -> Fleet:
    price = None
    if table.prompt_usd is not None and table.completion_usd is not None:
        price = Price(prompt_usd=table.prompt_usd, completion_usd=table.completion_usd)
    return Fleet(
        engine="service",
        model=table.model,
        context_tokens=_CONTEXT_TOKENS,
        api_path=path,
        price=price,
        actors=(Actor(name="proposer", url=url, slots=4),),
    )
