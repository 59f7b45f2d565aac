#!/usr/bin/env python3
"""One rollout inside a box: lay a card, run the agent, leave what it wrote in `submission/`.

    python3 run_rollout.py --input /tmp/rollout.json --output /tmp/result.json

`in_box` comes with the context that `context.py` stages. Grading is not done here: the hidden tests are in another box.
"""

import sys

from in_box.run_rollout import main

if __name__ == "__main__":
    sys.exit(main())
