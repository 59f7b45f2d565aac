"""What a jail shows of this machine."""

import sys
from pathlib import Path

from graftline.sandbox.visible import Interpreter, visible


def test_a_folder_below_another_is_not_shown_for_itself_whatever_stands_between_them(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "a-b", "a/c", "a/c/d")]
    for folder in folders:
        folder.mkdir()
    seen = visible((), Interpreter(sys.executable, tuple(map(str, folders))))
    # by their characters, "a-b" stands between "a" and "a/c"
    assert [path for path in seen.paths if Path(path).is_relative_to(tmp_path)] == [
        str(folder) for folder in folders[:2]
    ]
