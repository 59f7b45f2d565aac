"""`python -m graftline.rollouts.state dump <task_id>` is `graftline state dump <task_id>`."""

import sys

from graftline.cli.main import main

if __name__ == "__main__":
    main(["state", *sys.argv[1:]], prog_name="graftline")
