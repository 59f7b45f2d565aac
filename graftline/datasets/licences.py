"""Names of licences, as datasets write them, to SPDX identifiers; which of them are allowed is not judged here."""

from graftline.datasets.catalog import NO_LICENCE

_IDENTIFIERS = (
    *("0BSD", "AFL-3.0", "AGPL-3.0-only", "AGPL-3.0-or-later", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause"),
    *("BSD-3-Clause", "BSD-3-Clause-Clear", "BSD-4-Clause", "BSL-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0"),
    *("ECL-2.0", "EPL-1.0", "EPL-2.0", "EUPL-1.2", "GPL-2.0-only", "GPL-2.0-or-later", "GPL-3.0-only"),
    *("GPL-3.0-or-later", "ISC", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only", "LGPL-3.0-or-later", "MIT"),
    *("MIT-0", "MPL-2.0", "MS-PL", "NCSA", "OFL-1.1", "PostgreSQL", "Python-2.0", "Unlicense", "UPL-1.0", "WTFPL"),
    *("Zlib", NO_LICENCE),
)

# GitHub's keys of the GNU licences do not say whether a later version may be chosen; "only" claims no more than is known
_WITHOUT_VERSIONS = ("AGPL-3.0", "GPL-2.0", "GPL-3.0", "LGPL-2.1", "LGPL-3.0")

_SPDX = {
    **{identifier.lower(): identifier for identifier in _IDENTIFIERS},
    **{bare.lower(): f"{bare}-only" for bare in _WITHOUT_VERSIONS},
    **{f"{bare.lower()}+": f"{bare}-or-later" for bare in _WITHOUT_VERSIONS},
    **dict.fromkeys(("", "unknown", "other", "none"), NO_LICENCE),
}


def spdx(text: str) -> str:
    """Return the SPDX identifier of a licence named by GitHub's key, or by its identifier in any case of letters.

    A name that is not known comes back as it is, so that the drop of its row says what it was.
    """
    name = text.strip()
    return _SPDX.get(name.lower(), name)
