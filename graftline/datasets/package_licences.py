"""Under which licence a release of a package says it is, as an SPDX identifier.

Python: `License-Expression`, else `License`, else the trove classifiers of METADATA or PKG-INFO
(https://packaging.python.org/en/latest/specifications/core-metadata/). npm: `license` or `licenses` of package.json.
A name that fits several licences ("BSD", the classifier "Apache Software License") says as little as none; a name that
is not known is passed on, so that the drop of its rows says what it was.
"""

import json
from collections.abc import Mapping
from email.parser import BytesHeaderParser
from typing import Any

from graftline.datasets.catalog import NO_LICENCE
from graftline.datasets.licences import spdx

_MAX_CHARACTERS = 100
_CLASSIFIER = "License :: "
_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("mit license", "the mit license", "the mit license (mit)", "expat", "mit/expat"), "MIT"),
    **dict.fromkeys(("apache 2", "apache 2.0", "apache2", "apache-2", "apache v2", "apache license 2.0"), "Apache-2.0"),
    **dict.fromkeys(("apache license version 2.0", "apache license v2.0", "apache software license 2.0"), "Apache-2.0"),
    **dict.fromkeys(("bsd 3-clause", "bsd 3-clause license", "3-clause bsd", "3-clause bsd license"), "BSD-3-Clause"),
    **dict.fromkeys(("new bsd", "new bsd license", "modified bsd", "modified bsd license"), "BSD-3-Clause"),
    **dict.fromkeys(("bsd 2-clause", "bsd 2-clause license", "2-clause bsd", "2-clause bsd license"), "BSD-2-Clause"),
    **dict.fromkeys(("simplified bsd", "simplified bsd license"), "BSD-2-Clause"),
    **dict.fromkeys(("isc license", "isc license (iscl)"), "ISC"),
    **dict.fromkeys(("mozilla public license 2.0 (mpl 2.0)", "mpl 2.0", "mpl2"), "MPL-2.0"),
    **dict.fromkeys(("gnu general public license v3 (gplv3)", "gplv3", "gpl v3"), "GPL-3.0-only"),
    **dict.fromkeys(("gnu general public license v3 or later (gplv3+)", "gplv3+"), "GPL-3.0-or-later"),
    **dict.fromkeys(("gnu general public license v2 (gplv2)", "gplv2", "gpl v2"), "GPL-2.0-only"),
    "mit no attribution license (mit-0)": "MIT-0",
    "the unlicense (unlicense)": "Unlicense",
    "zlib/libpng license": "Zlib",
    # each of these fits more than one
    **dict.fromkeys(("bsd", "bsd license", "bsd-like", "bsd style", "bsd-style", "bsd licence"), NO_LICENCE),
    **dict.fromkeys(("apache", "apache license", "apache software license", "dual license"), NO_LICENCE),
    **dict.fromkeys(("osi approved", "gpl", "lgpl", "see license", "see license file"), NO_LICENCE),
}


def licence_in_core_metadata(content: bytes) -> str:
    """Return the licence that a METADATA or PKG-INFO file states."""
    fields = BytesHeaderParser().parsebytes(content)
    if expression := str(fields.get("License-Expression", "")).strip():
        return _named(expression)
    stated = _named(str(fields.get("License", "")))
    if stated != NO_LICENCE and " " not in stated:
        return stated
    classifiers = [str(value) for value in fields.get_all("Classifier", []) if str(value).startswith(_CLASSIFIER)]
    classified = {_named(value.rpartition(" :: ")[2]) for value in classifiers} - {NO_LICENCE}
    # whether one may choose among several, or has to keep to all, is not said
    return stated if not classified else classified.pop() if len(classified) == 1 else NO_LICENCE


def licence_in_package_json(content: bytes) -> str:
    """Return the licence that a package.json states."""
    try:
        package = json.loads(content)
    except (ValueError, RecursionError):
        return NO_LICENCE
    if not isinstance(package, dict):
        return NO_LICENCE
    stated = package.get("license", package.get("licenses"))
    # the forms of old: an object, or a list of them to choose from
    names = [_typed(entry) for entry in (stated if isinstance(stated, list) else [stated])]
    return names[0] if len(names) == 1 else " OR ".join(names) or NO_LICENCE


def both(old: str, new: str) -> str:
    """Return the licence of a row that holds text under `old` and text under `new`."""
    if NO_LICENCE in (old, new):
        return NO_LICENCE
    return old if old == new else f"{old} AND {new}"


def _typed(entry: Any) -> str:
    value = entry.get("type") if isinstance(entry, dict) else entry
    return _named(value) if isinstance(value, str) else NO_LICENCE


def _named(text: str) -> str:
    # some paste the whole text of the licence, whose first line may be its name
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    known = _NAMES.get(" ".join(lines[0].replace(",", " ").split()).lower())
    return known or (spdx(lines[0][:_MAX_CHARACTERS]) if len(lines) == 1 else NO_LICENCE)
