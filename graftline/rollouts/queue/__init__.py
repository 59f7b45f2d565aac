"""From configuration to a queue of jobs."""

from typing import assert_never

from graftline.core.errors import ConfigError, install_command
from graftline.core.secrets import Secrets
from graftline.rollouts.queue.base import JobQueue, MemoryQueueConfig, QueueConfig, RedisQueueConfig
from graftline.rollouts.queue.memory import MemoryJobQueue


def open_queue(config: QueueConfig, secrets: Secrets) -> JobQueue:
    """Return the queue of `config`, reached and found fit.

    Raises:
        ConfigError: the address of the server is missing or none.
        QueueError: the server cannot be reached, or would lose jobs.
    """
    match config:
        case MemoryQueueConfig():
            return MemoryJobQueue(config)
        case RedisQueueConfig():
            try:
                from graftline.rollouts.queue.redis import RedisJobQueue
            except ImportError:
                raise ConfigError(f"queue redis: redis is missing; {install_command('redis')}") from None
            return RedisJobQueue(secrets.require(config.url, "the job queue"), config)
        case _:
            assert_never(config)
