"""What the examples of `docs/rules.md` need: the files that the page shows, and a repository with a history."""

import os
import re
import subprocess
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "rules.md"
_STATES = (
    {"load.py": "def load(url):\n    return client.get(url, timeout=5)\n", "ping.py": "client.get(HOME, timeout=1)\n"},
    {"load.py": "def load(url):\n    return client.fetch(url, timeout=5)\n"},
    {"ping.py": "client.fetch(HOME, timeout=1)\n"},
)


def write_rules_examples(root: Path) -> None:
    """Write what the page names below `root`."""
    for name, text in re.findall(r"`([\w./]+)`:\n\n```py\n(.*?)```$", PAGE.read_text("utf-8"), re.M | re.S):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "Ann", f"GIT_{who}_EMAIL": "ann@example.org"}
        environment |= {f"GIT_{who}_DATE": "2024-05-01T12:00:00Z"}
    (root / "shop").mkdir()
    calls = [("init", "-q", "-b", "main"), ("add", "--all"), ("commit", "-q", "-m", "Change")]
    for number, state in enumerate(_STATES):
        for name, text in state.items():
            (root / "shop" / name).write_text(text, "utf-8")
        for call in calls[bool(number) :]:
            subprocess.run(["git", "-C", str(root / "shop"), *call], env=environment, check=True)
