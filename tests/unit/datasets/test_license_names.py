"""Names of licenses to SPDX identifiers."""

import pytest

from graftline.datasets.licenses import spdx


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("mit", "MIT"),
        ("MIT", "MIT"),
        (" Mit\n", "MIT"),
        ("apache-2.0", "Apache-2.0"),
        ("APACHE-2.0", "Apache-2.0"),
        ("bsd-2-clause", "BSD-2-Clause"),
        ("bsd-3-clause", "BSD-3-Clause"),
        ("isc", "ISC"),
        ("mpl-2.0", "MPL-2.0"),
        ("epl-1.0", "EPL-1.0"),
        ("epl-2.0", "EPL-2.0"),
        ("unlicense", "Unlicense"),
        ("cc0-1.0", "CC0-1.0"),
        ("wtfpl", "WTFPL"),
        ("artistic-2.0", "Artistic-2.0"),
        ("0bsd", "0BSD"),
        ("zlib", "Zlib"),
    ],
)
def test_a_key_of_github_in_any_letters_becomes_the_identifier(text: str, identifier: str) -> None:
    assert spdx(text) == identifier
    assert spdx(identifier) == identifier


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("agpl-3.0", "AGPL-3.0-only"),
        ("lgpl-2.1", "LGPL-2.1-only"),
        ("gpl-2.0+", "GPL-2.0-or-later"),
        ("gpl-3.0-or-later", "GPL-3.0-or-later"),
    ],
)
def test_a_later_version_may_be_chosen_only_where_that_is_said(text: str, identifier: str) -> None:
    assert spdx(text) == identifier


@pytest.mark.parametrize("text", ["", "  ", "unknown", "Other", "none", "NOASSERTION"])
def test_a_license_that_nobody_stated_is_said_to_be_none(text: str) -> None:
    assert spdx(text) == "NOASSERTION"


@pytest.mark.parametrize("text", ["apache-2.0+mit", "Proprietary", "MIT OR Apache-2.0"])
def test_a_name_that_is_not_known_stays_as_it_is(text: str) -> None:
    assert spdx(text) == text
