"""What rules would change as one static HTML page: groups of places with their differences, and what to type to leave
some out.

The page loads nothing and sends nothing. Code in it is text: nothing of a repository is markup.
"""

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from graftline.codemod.review import ChangedPlace, PlaceGroup
from graftline.core.text_diff import escape_controls, pluralize

MAX_PLACES, MAX_OF_GROUP = 1_000, 200
"""Places that the page has; where there are more, it has at most so many of each group, and the others are counted."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328; }
h2 { border-top: 1px solid #d0d7de; padding-top: 1rem; } pre { margin: .3rem 0 1rem; overflow-x: auto; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } summary { cursor: pointer; }
.place { color: #57606a; } .del { background: #ffebe9; } .ins { background: #dafbe1; } .rare { color: #9a6700; white-space: pre-line; }
#command { position: sticky; bottom: 0; background: #f6f8fa; border: 1px solid #d0d7de; padding: .7rem; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } .del { background: #67060c; } .ins { background: #033a16; }
  .rare { color: #d29922; } .place { color: #8d96a0; } #command { background: #161b22; }
}
"""
_SCRIPT = """
const boxes = [...document.querySelectorAll("input[data-id]")], line = document.querySelector("#command code");
const start = line.textContent;
const show = () => {
  for (const box of boxes) if (box.dataset.of) box.disabled = !boxes.find(group => group.dataset.id === box.dataset.of).checked;
  const left = boxes.filter(box => !box.checked && !box.disabled).map(box => ` --reject ${box.dataset.id}`);
  line.textContent = start + left.join("");
};
boxes.forEach(box => box.addEventListener("change", show));
"""


def format_review(
    groups: Sequence[PlaceGroup], words: Mapping[str, Sequence[str]], command: Sequence[str], notes: Sequence[str] = ()
) -> str:
    """Return the page.

    `words` are lines that say what a rule does, by its id, in short first; `command` is what writes all of it, to which
    the page adds what is left out; `notes` are what there is to know before that, a line each.
    """
    places, noun = sum(len(group.places) for group in groups), groups[0].noun if groups else "place"
    files = len({place.path for group in groups for place in group.places})
    most = MAX_PLACES if places <= MAX_PLACES else MAX_OF_GROUP
    sections = [
        _section(rule, words[rule], list(own), most) for rule, own in groupby(groups, key=lambda group: group.rule)
    ]
    command_line = f'<p id="command">To write what is checked: <code>{escape(shlex.join(command))}</code></p>\n'
    guide = (
        "<p>The places of each rule are grouped by what they look like; those that are unlike the others come first, marked as "
        "rare. To leave a group or a part of it out, uncheck it: the command at the end of this page says so then.</p>\n"
    )
    return "".join((
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Review of a change</title>\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<style>{_STYLE}</style>\n<h1>{pluralize(places, noun)} in {pluralize(files, 'file')}</h1>\n",
        guide if groups else "<p>Nothing would change.</p>\n",
        *(f'<p class="rare">{escape(escape_controls(note))}</p>\n' for note in notes),
        *sections,
        f"{command_line}<script>{_SCRIPT}</script>\n" if groups else "",
        "</html>\n",
    ))  # fmt: skip


def _section(rule: str, words: Sequence[str], groups: Sequence[PlaceGroup], most: int) -> str:
    count = sum(len(group.places) for group in groups)
    summary, *details = (escape(escape_controls(line)) for line in words)
    return "".join((
        f"<h2>{escape(rule)}: {pluralize(count, groups[0].noun)}</h2>\n",
        f"<details><summary>{summary}</summary><pre>{chr(10).join(details)}</pre></details>\n",
        *(_group(group, most) for group in groups),
    ))  # fmt: skip


def _group(group: PlaceGroup, most: int) -> str:
    rare = ' <span class="rare">rare</span>' if group.is_rare else ""
    title = f"<h3>{_box(group.id)}: {_summarize(group)}{rare}</h3>\n"
    parts = group.parts
    if not parts:
        return title + _list_places(group, "the others", most)
    count = most if most == MAX_PLACES else most // len(parts)
    divided = "".join(
        f"<h4>{_box(part.id, group.id)}: {_summarize(part)}</h4>\n{_list_places(part, 'the others', count)}"
        for part in parts
    )
    shown = "".join(map(_place, group.typical))
    return f"{title}{shown}<details><summary>all of them, those that look alike together</summary>{divided}</details>\n"


def _box(id: str, group: str = "") -> str:
    """Return the box of a group, or of a part of `group`, with its name."""
    within = f' data-of="{escape(shlex.quote(group))}"' if group else ""
    return f'<label><input type="checkbox" checked data-id="{escape(shlex.quote(id))}"{within}> {escape(id)}</label>'


def _summarize(group: PlaceGroup) -> str:
    return f"{group.count} such as <code>{escape(escape_controls(group.edit))}</code>"


def _list_places(group: PlaceGroup, title: str, count: int) -> str:
    first, later = group.typical, [place for place in group.places[:count] if place not in group.typical]
    if not later:
        return "".join(map(_place, first))
    unseen = len(group.places) - len(first) - len(later)
    note = f"<p>{unseen} more are not on this page.</p>" if unseen else ""
    shown = "".join(map(_place, later))
    return f"{''.join(map(_place, first))}<details><summary>{title}</summary>{shown}{note}</details>\n"


def _place(place: ChangedPlace) -> str:
    classes = {"-": "del", "+": "ins"}
    shown = "".join(
        f'<span class="{classes.get(line[:1], "")}">{escape(escape_controls(line.rstrip(chr(10))))}</span>\n'
        for line in place.diff
    )
    return f'<div class="place">{escape(str(place.path))}:{place.line}</div><pre>{shown}</pre>\n'
