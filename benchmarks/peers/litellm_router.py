"""The same chats through the router of `litellm`, as its documentation advises for many requests.

    .venv-peers/bin/python benchmarks/peers/litellm_router.py REQUESTS SLOTS MESSAGES URL...

MESSAGES is a file with the messages of the chat as JSON. Prints one line of JSON: seconds, processor seconds, and how many
answers there were. `simple-shuffle` is the quickest of its strategies; tokens are not counted and nothing is logged.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

# else it asks the network for prices when it is imported
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm


async def main() -> None:
    """Ask, and print one line of JSON."""
    requests, slots, path, *urls = sys.argv[1:]
    messages = json.loads(Path(path).read_text("utf-8"))
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    router = litellm.Router(
        model_list=[
            {
                "model_name": "model",
                "litellm_params": {"model": "openai/model", "api_base": f"{url}/v1", "api_key": "none"},
            }
            for url in urls
        ],
        routing_strategy="simple-shuffle",
        num_retries=3,
        timeout=600,
    )
    # its own limit of a deployment refuses what is beyond it
    places = asyncio.Semaphore(int(slots) * len(urls))

    async def ask() -> int:
        async with places:
            answer = await router.acompletion(model="model", messages=messages, max_tokens=512, temperature=0.0)
            return len(answer.choices[0].message.content)

    await asyncio.gather(*(ask() for _ in range(50)))  # a warm-up
    began, processor_s = time.perf_counter(), time.process_time()
    sizes = await asyncio.gather(*(ask() for _ in range(int(requests))))
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - began,
                "processor_seconds": time.process_time() - processor_s,
                "answers": sum(size > 0 for size in sizes),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
