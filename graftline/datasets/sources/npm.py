"""Releases from the registry that npm is configured for, by npm itself.

`npm pack` of a published release downloads it, checks it against the registry's checksum, and runs nothing of it.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graftline.core.errors import ConfigError, DownloadError
from graftline.core.processes import run_program
from graftline.core.retry import SourceBusyError

_UNKNOWN = ("E404", "ETARGET")
_REFUSED = ("E401", "E403", "ENEEDAUTH")


def fetch_npm(name: str, version: str, folder: Path, environment: Mapping[str, str]) -> Path:
    """Bring a release into the empty `folder`, and return its file.

    Raises:
        ConfigError: npm is missing, or the registry wants to know who asks.
        DownloadError: there is no such release.
        SourceBusyError: the registry does not answer.
    """
    label = f"npm:{name} {version}"
    npm = shutil.which("npm", path=environment.get("PATH"))
    if npm is None:
        raise ConfigError(f"{label}: npm is not installed, but brings it; install Node.js, of which npm is a part")
    # our own attempts are counted and spaced; npm's would only make each of them longer
    command = [npm, "pack", "--json", "--ignore-scripts", "--fetch-retries=0", "--", f"{name}@{version}"]
    ran = run_program(command, folder, environment)
    answer = _answer(ran.output)
    if ran.status != 0:
        raise _fault(label, answer, ran.last_error())
    found = sorted(folder.glob("*.tgz"))
    packed = answer[0] if isinstance(answer, list) and answer and isinstance(answer[0], dict) else {}
    # "latest" is a version to npm, but another one tomorrow
    if len(found) != 1 or (packed.get("name"), packed.get("version")) != (name, version):
        given = f"{packed.get('name')} {packed.get('version')}"
        raise DownloadError(f"{label}: npm gives {given} instead; name a published version in `packages`")
    return found[0]


def _answer(output: str) -> Any:
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return None


def _fault(label: str, answer: Any, said: str) -> Exception:
    error = answer.get("error") if isinstance(answer, dict) else None
    code, summary = (str(error.get("code")), str(error.get("summary"))) if isinstance(error, dict) else ("", said)
    if code in _UNKNOWN:
        return DownloadError(f"{label}: no such release in npm's registry; mend `packages` of the dataset")
    if code in _REFUSED:
        return ConfigError(f"{label}: npm's registry refuses us ({code}); log in with `npm login`, or mend .npmrc")
    return SourceBusyError(f"{label}: npm cannot bring it ({code or 'no code'}: {summary}); check npm's configuration")
