"""What a jail shows of this machine."""

import sys
from pathlib import Path

import graftline
from graftline.sandbox.jail.visible import Interpreter, visible


def test_a_folder_below_another_is_not_shown_for_itself_whatever_stands_between_them(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "a-b", "a/c", "a/c/d")]
    for folder in folders:
        folder.mkdir()
    view = visible((), Interpreter(sys.executable, tuple(map(str, folders))))
    # by their characters, "a-b" stands between "a" and "a/c"
    assert [path for path in view.paths if Path(path).is_relative_to(tmp_path)] == [
        str(folder) for folder in folders[:2]
    ]


def test_of_a_checkout_the_package_is_shown_and_nothing_that_lies_beside_it() -> None:
    checkout = Path(graftline.__file__).resolve().parents[1]
    beside = {path for path in visible((), Interpreter(sys.executable)).paths if Path(path).is_relative_to(checkout)}
    interpreters = {path for path in beside if Path(path).is_relative_to(sys.prefix)}
    assert beside - interpreters == {str(checkout / "graftline"), str(checkout / "editable")}
    assert [path.name for path in (checkout / "editable").iterdir()] == ["graftline"]
    # nor where the checkout is named as a folder of modules
    named = visible((), Interpreter(sys.executable, (str(checkout),))).paths
    assert str(checkout) not in named


def test_a_shell_sees_the_programs_of_the_virtual_environment_and_nothing_else_does() -> None:
    scripts = str(Path(sys.executable).parent)
    assert sys.prefix != sys.base_prefix
    shell, alone = (visible(programs, Interpreter(sys.executable)) for programs in (("shell",), ("python",)))
    assert (scripts in shell.paths, scripts in shell.runnable) == (True, True)
    assert (scripts in alone.paths, scripts in alone.runnable) == (False, False)
    # a link that is there already cannot be made
    assert not [path for path in shell.links if Path(path).is_relative_to(scripts)]
    assert sys.executable in alone.links
