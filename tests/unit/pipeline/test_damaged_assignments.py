"""A run that cannot tell what was held out before ends, and does not deal anew."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import RecordError

DAMAGES: dict[str, Callable[[Path], object]] = {
    "altered": lambda path: path.write_bytes(b"no file of Parquet"),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_says_what_is_damaged_and_leaves_it(made: Path, run: Any, damage: str) -> None:
    path = made / "data" / "division" / "assigned.parquet"
    others = {other: other.read_bytes() for other in path.parent.iterdir() if other != path}
    DAMAGES[damage](path)
    with pytest.raises(
        RecordError, match=rf"assigned\.parquet: is {damage}; it says what was held out before\. Restore"
    ):
        run(made)
    assert {other: other.read_bytes() for other in others} == others


def test_another_file_of_the_division_is_made_again_with_the_same_splits(made: Path, run: Any) -> None:
    path = made / "data" / "division" / "python.parquet"
    content = path.read_bytes()
    path.unlink()
    run(made)
    assert path.read_bytes() == content
