"""How an extra of this installation is added to it; Graftline is on no package index."""

import json
from importlib.metadata import PackageNotFoundError, distribution


def install_command(extra: str) -> str:
    """Return the command that installs `extra`: in the checkout, or from the file that Graftline was installed from."""
    try:
        text = distribution("graftline").read_text("direct_url.json")  # https://peps.python.org/pep-0610/
    except PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    if origin.get("dir_info", {}).get("editable"):
        return f".venv/bin/pip install -c constraints.txt -e '.[{extra}]'"
    # who copied the files by hand has the wheel they came from, or a checkout that builds one
    return f"pip install 'graftline[{extra}] @ {origin.get('url') or 'file:///path/of/the/wheel'}'"
