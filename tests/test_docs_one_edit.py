"""`docs/one-edit.md`, typed as it stands: what each command prints, and a package that can still be imported."""

from pathlib import Path

from tests.page_walk import Walk


def test_the_walk_comes_to_what_the_page_shows(tmp_path: Path) -> None:
    walk = Walk("docs/one-edit.md", tmp_path)
    for fence in walk.type_all():
        if "--write" in fence.body:
            assert walk.run("git -C flask grep 'Optional\\['").stdout == ""
    assert (tmp_path / "review.html").stat().st_size > 10_000
    assert walk.run("git -C flask diff --stat").stdout.splitlines()[-1].split() == [
        *("1", "file", "changed,", "1", "insertion(+),", "1", "deletion(-)")
    ]
