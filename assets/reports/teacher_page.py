"""The page of the teachers."""

from collections.abc import Mapping

from assets.reports.markdown import Rows, picture
from graftline.markdown import table


def teacher_page(marts: Mapping[str, Rows]) -> str:
    """Return the page of the teachers."""
    return "\n".join(
        [
            "# Teachers",
            "",
            "Precision is verified over valid attempts. An attempt is verified when the text it reaches is the wanted"
            " one: in bytes (exact), but for blanks, or as a tree. An attempt without a reward says nothing about the"
            " teacher (the machine was at fault) and is not valid. General are verified attempts in which every"
            " action leaves something free.",
            "",
            table(marts["teacher_precision"]),
            picture("precision.png", "precision by language and dataset"),
            "## What single actions look like",
            "",
            "By form of the action (`pattern` with its rewrite, or a whole `rule`) and verdict of the sandbox.",
            "",
            table(marts["teacher_steps"]),
            "## How attempts end that are not verified",
            "",
            table(marts["teacher_failures"]),
        ]
    )
