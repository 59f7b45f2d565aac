"""The files of `docs/rules.md` as `examples/rules` ships them, in a folder where commands may write."""

import shutil
import subprocess
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "rules"


def write_rules_examples(root: Path) -> None:
    """Copy the files to `root`, and make the repository with a history there."""
    shutil.copytree(EXAMPLES, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("shop"))
    subprocess.run(["sh", str(root / "make_history.sh")], check=True)
