"""Names of licenses, as datasets and packages write them, to SPDX identifiers; which of them are allowed is not judged here.

A release of a Python package states its license as `License-Expression`, else `License`, else by the trove classifiers of
METADATA or PKG-INFO (https://packaging.python.org/en/latest/specifications/core-metadata/), one of npm as `license` or
`licenses` of package.json. A name that fits several licenses ("BSD", the classifier "Apache Software License") says as
little as none; an unknown name is passed on as it is, so that the rejection of its rows says what it was.
"""

import json
from collections.abc import Mapping
from email.parser import BytesHeaderParser
from typing import Any

from graftline.datasets.catalog import NO_LICENSE

_IDENTIFIERS = (
    *("0BSD", "AFL-3.0", "AGPL-3.0-only", "AGPL-3.0-or-later", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause"),
    *("BSD-3-Clause", "BSD-3-Clause-Clear", "BSD-4-Clause", "BSL-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0"),
    *("ECL-2.0", "EPL-1.0", "EPL-2.0", "EUPL-1.2", "GPL-2.0-only", "GPL-2.0-or-later", "GPL-3.0-only"),
    *("GPL-3.0-or-later", "ISC", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "MIT"),
    *("MIT-0", "MPL-2.0", "MS-PL", "NCSA", "OFL-1.1", "PostgreSQL", "Python-2.0", "Unlicense", "UPL-1.0", "WTFPL"),
    *("Zlib", NO_LICENSE),
)

# GitHub's keys of the GNU licenses do not say whether a later version may be chosen; "only" claims no more than is known
_WITHOUT_VERSIONS = ("AGPL-3.0", "GPL-2.0", "GPL-3.0", "LGPL-2.1", "LGPL-3.0")

_SPDX = {
    **{identifier.lower(): identifier for identifier in _IDENTIFIERS},
    **{bare.lower(): f"{bare}-only" for bare in _WITHOUT_VERSIONS},
    **{f"{bare.lower()}+": f"{bare}-or-later" for bare in _WITHOUT_VERSIONS},
    **dict.fromkeys(("", "unknown", "other", "none"), NO_LICENSE),
}

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
    **dict.fromkeys(("bsd", "bsd license", "bsd-like", "bsd style", "bsd-style", "bsd licence"), NO_LICENSE),
    **dict.fromkeys(("apache", "apache license", "apache software license", "dual license"), NO_LICENSE),
    **dict.fromkeys(("osi approved", "gpl", "lgpl", "see license", "see license file"), NO_LICENSE),
}


def spdx(text: str) -> str:
    """Return the SPDX identifier of a license named by GitHub's key, or by its identifier in any case of letters."""
    name = text.strip()
    return _SPDX.get(name.lower(), name)


def license_in_core_metadata(content: bytes) -> str:
    """Return the license that a METADATA or PKG-INFO file states."""
    fields = BytesHeaderParser().parsebytes(content)
    if expression := str(fields.get("License-Expression", "")).strip():
        return _identify(expression)
    stated = _identify(str(fields.get("License", "")))
    if stated != NO_LICENSE and " " not in stated:
        return stated
    classifiers = [str(value) for value in fields.get_all("Classifier", []) if str(value).startswith(_CLASSIFIER)]
    classified = {_identify(value.rpartition(" :: ")[2]) for value in classifiers} - {NO_LICENSE}
    # whether one may choose among several, or has to keep to all, is not said
    return stated if not classified else classified.pop() if len(classified) == 1 else NO_LICENSE


def license_in_package_json(content: bytes) -> str:
    """Return the license that a package.json states."""
    try:
        package = json.loads(content)
    except (ValueError, RecursionError):
        return NO_LICENSE
    if not isinstance(package, dict):
        return NO_LICENSE
    stated = package.get("license", package.get("licenses"))
    # the forms of old: an object, or a list of them to choose from
    names = [_license_of_entry(entry) for entry in (stated if isinstance(stated, list) else [stated])]
    return names[0] if len(names) == 1 else " OR ".join(names) or NO_LICENSE


def combine_licenses(old: str, new: str) -> str:
    """Return the license of a row that holds text under `old` and text under `new`."""
    if NO_LICENSE in (old, new):
        return NO_LICENSE
    return old if old == new else f"{old} AND {new}"


def _license_of_entry(entry: Any) -> str:
    value = entry.get("type") if isinstance(entry, dict) else entry
    return _identify(value) if isinstance(value, str) else NO_LICENSE


def _identify(text: str) -> str:
    # some paste the whole text of the license, whose first line may be its name
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    identifier = _NAMES.get(" ".join(lines[0].replace(",", " ").split()).lower())
    return identifier or (spdx(lines[0][:_MAX_CHARACTERS]) if len(lines) == 1 else NO_LICENSE)
