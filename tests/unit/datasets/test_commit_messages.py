"""Commit messages to instructions."""

import pytest

from graftline.datasets.commit_messages import clean_message

CASES = [
    ("Sort imports\n", "Sort imports"),
    ("\n\n  Sort imports\n\nThey were not.\n", "Sort imports\n\nThey were not."),
    ("Sort\r\n\r\nimports\rhere", "Sort\n\nimports\nhere"),
    ("Sort\n\nSigned-off-by: A. Author <author@example.com>\n", "Sort"),
    ("Sort\n\nCO-AUTHORED-BY: A. Author\nReviewed-by: B\nAcked-by: C\nTested-by: D\nCc: E\nChange-Id: I1", "Sort"),
    ("Sort\n\ngit-svn-id: https://example.com/trunk@1405 13f79535-47bb\n", "Sort"),
    ("One\n\nCo-authored-by: A\n\nTwo\n\nSigned-off-by: B\n", "One\n\nTwo"),
    ("Sort\n\nSigned-off-by: A. Author\n  <author@example.com>\nEnd", "Sort\n\nEnd"),
    (
        "Sort\n\n🤖 Generated with [Claude Code](https://example.com/code)\n\nCo-Authored-By: Claude <a@example.com>",
        "Sort",
    ),
    ("Sort\n\nGenerated with Claude Code", "Sort"),
    ("Sort\n\nMade with [Cursor](https://example.com)\nMade-with: Cursor", "Sort"),
    ("Sort\n\nClaude-Session: https://example.com/s", "Sort"),
    ("Tell author@example.com, then sort", "Tell, then sort"),
    ("Sort (author@example.com)", "Sort"),
    ("Sort, as A. Author <a.b+c@mail.example.com> said", "Sort, as A. Author said"),
    ("Sort<author@example.com>imports", "Sort imports"),
    ("author@example.com", ""),
    ("Sort imports (#123)", "Sort imports"),
    ("Sort imports (#12) (#345)\n\nThey were not (owner/name#6).", "Sort imports\n\nThey were not."),
    ("Sort imports\n\nFixes #12\ncloses: #3, #4.", "Sort imports"),
    ("Fixes: #5\nCloses: #6", ""),
    ("fix(core): sort imports", "Sort imports"),
    ("feat!: revert: sort imports", "Sort imports"),
    ("[core][docs] fix: sort imports", "Sort imports"),
    ("Sort imports (closes #12)\n\nSee [fixes owner/name#3].", "Sort imports\n\nSee."),
    ("Sort\n\n(cherry picked from commit 0123456789abcdef)\nThis reverts commit 0123456789abcdef.", "Sort"),
    ("Sort imports (#12)\n\n* sort\n\n* tests\n\n---------\n\nMore", "Sort imports"),
    ("Sort\n\n---------\n\nWhy not", "Sort\n\n\nWhy not"),
    ("Signed-off-by: A. Author", ""),
    ("", ""),
]

UNTOUCHED = [
    ("Handle #5 in a color like #123456", "a number within a sentence"),
    ("Sort\n\n* imports\n* exports", "a list of what was done"),
    ("#define is sorted", "a directive"),
    ("Sort (2 of 3) [4] #5", "numbers of something else"),
    ("fix:sort", "no kind of commit, without a blank"),
    ("[Sort](https://example.com) imports", "a link"),
    ("Take names from commit 0123456789abcdef on", "a sentence about a commit"),
    ("Fix: sort imports", "a prefix of the message, not a trailer"),
    ("Use https://example.com/@scope/name", "a path of an address on the web"),
    ("Raise lodash@4.17.21 to 5", "a version of a package"),
    ("Add @property and @pytest.mark.slow", "decorators"),
    ("Take out\n+@pytest.mark.slow", "a line of a patch"),
    ("Multiply a@b", "an operator"),
    ("Written with cursor-based paging", "what was done, not what did it"),
    ("Explain how Claude Code is called", "the agent is the subject"),
    ("Sort\n\n\n\nimports", "blank lines that nothing was taken out of"),
]


@pytest.mark.parametrize(("message", "instruction"), CASES)
def test_only_what_was_done_is_left(message: str, instruction: str) -> None:
    assert clean_message(message) == instruction


@pytest.mark.parametrize(("message", "reason"), UNTOUCHED)
def test_what_only_looks_like_it_stays(message: str, reason: str) -> None:
    assert clean_message(message) == message, reason


@pytest.mark.parametrize("message", [message for message, _ in CASES + UNTOUCHED])
def test_twice_is_the_same_as_once(message: str) -> None:
    assert clean_message(clean_message(message)) == clean_message(message)


@pytest.mark.parametrize("message", ["x@a.bc@d.ef y", "a<b@c.de>@f.gh", "Cc b@c.de: x", "a@b.cd a@b.cd@e.fg"])
def test_what_is_taken_out_leaves_no_new_address_or_trailer(message: str) -> None:
    assert clean_message(clean_message(message)) == clean_message(message)


@pytest.mark.parametrize(
    "text",
    [
        "@" * 1_000_000,
        "a" * 1_000_000,
        "<" * 1_000_000,
        "a" * 1_000_000 + "@",
        "a@" * 500_000,
        "@" + "a." * 500_000,
        "@a.bc" * 200_000,
        ("a" * 255 + "@") * 4_000,
        " " * 500_000 + "\nCc: x\n" + "\n" * 500_000,
        "claude " * 140_000,
    ],
    ids=lambda text: f"{text[:6]!r}…{text[-4:]!r}",
)
def test_hostile_text_of_a_megabyte_is_cleaned_in_the_time_of_a_test(text: str) -> None:
    # what looks at the whole text again for each sign takes longer than a test may
    assert len(clean_message(text)) <= len(text)
