"""A program that runs recipes of the cookbook as `python -m` would, each in a process of its own.

What all of them import is imported once, before the first: it takes longer than a recipe over a tiny model. Requests are
lines of JSON on the standard input, `[module, [argument, …], log]`; each is answered by a line with the exit status.
"""

import json
import os
import runpy
import sys
import traceback

# before any of their threads are started, which a child would not have
import datasets
import tinker
import torch
import transformers
from tinker_cookbook import renderers
from tinker_cookbook.distillation import train_on_policy
from tinker_cookbook.rl import train

IMPORTED = datasets, tinker, torch, transformers, renderers, train_on_policy, train


def run(module: str, arguments: list[str], log: str) -> int:
    """Run one recipe in this process, with what it says in the file `log`."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0) if end.code is None or isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = run(*json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
