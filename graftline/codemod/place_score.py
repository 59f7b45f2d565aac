"""How many places of a change of many files a text reproduces. It imports the standard library alone, for it is run in
boxes, too.

A place is a region of lines that the change, or whoever attempts it, makes another. Regions that touch are compared as
one: they are right if their text is that of the change. A file that the change leaves alone has no place that is right.

    python3 place_score.py WORK TESTS LOGS

grades the files below WORK by TESTS/places.json and leaves LOGS/reward.json. The exit code is 3, and nothing is left,
where the machine lacks what the tests need.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

NOTHING_KNOWN = 3
_MAX_WORK = 40_000_000
"""Pairs of lines that are compared in one file; beyond, all of it counts as one place that is wrong."""
_MAX_EXACT_LINES = 3_000
_MAX_BYTES = 4 << 20
_TESTS_S = 600.0


class LineChange(NamedTuple):
    """Lines `start` to `end`, from 0, become lines `new_start` to `new_end`."""

    start: int
    end: int
    new_start: int
    new_end: int


class Area(NamedTuple):
    """Lines `start` to `end` of a text, in which a change and an attempt at it have places."""

    start: int
    end: int
    gold: int
    """Places of the change."""
    edited: int
    """Places of the attempt."""
    target: Sequence[str]
    """What the change makes of the lines."""
    text: Sequence[str]
    """What the attempt makes of them."""


@dataclass(frozen=True)
class PlaceScore:
    """What an attempt at a change came to."""

    gold: int
    """Places of the change."""
    reproduced: int
    """Those of them that are as in the change."""
    edited: int
    """Places that the attempt changed."""
    right: int
    """Those of them that are as in the change."""
    false: int = 0
    """Those of them in files that the change leaves alone."""
    untouched: int = 0
    """Files that the change leaves alone, as far as they are here."""

    @property
    def recall(self) -> "float | None":
        """Share of the places of the change that are right; None where it has none, or all of them were shown."""
        return self.reproduced / self.gold if self.gold else None

    @property
    def precision(self) -> "float | None":
        """Share of the places that were changed that are right; None where nothing was changed."""
        return self.right / self.edited if self.edited else None

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where there is nothing to bring about, or nothing was changed."""
        precision, recall = self.precision or 0.0, self.recall or 0.0
        return 2 * precision * recall / (precision + recall) if precision and recall else 0.0


Compare = Callable[[str, str], "Sequence[LineChange] | None"]


def score_places(
    changed: Mapping[str, tuple[str, str]],
    untouched: Mapping[str, str],
    produced: Mapping[str, str],
    shown: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    compare: Compare | None = None,
) -> PlaceScore:
    """Return what the texts in `produced`, by their paths, are worth; a file that is not in it stays as it was.

    Args:
        changed: Of each file of the change, the text before and after. untouched: Texts of files that the change leaves
        alone. produced: Texts that the attempt came to. shown: Lines of the texts before, start and end, that the
        attempt was shown as they are after; they do not count. compare: `compare_texts`, or what keeps its results.
    """
    compare = compare or compare_texts
    gold = reproduced = edited = right = false = 0
    for path, (before, after) in changed.items():
        ranges = (shown or {}).get(path, ())
        for area in list_areas(before, after, produced.get(path, before), compare):
            if any(start <= area.start and area.end <= end for start, end in ranges):
                continue
            is_same = area.target == area.text
            gold, reproduced = gold + area.gold, reproduced + area.gold * is_same
            edited, right = edited + area.edited, right + area.edited * is_same
    for path, text in untouched.items():
        if (new := produced.get(path, text)) != text:
            changes = compare(text, new)
            false += 1 if changes is None else len(changes)
    return PlaceScore(gold, reproduced, edited + false, right, false, len(untouched))


def list_areas(before: str, after: str, text: str, compare: Compare | None = None) -> Iterator[Area]:
    """Yield the regions of the lines of `before` in which the change to `after`, or the attempt `text`, has another
    text.
    """
    compare = compare or compare_texts
    lines, target, attempt = before.split("\n"), after.split("\n"), text.split("\n")
    own = compare(before, after)
    other = own if text == after else compare(before, text)
    if own is None or other is None:
        # an attempt that takes too long to compare is one wrong place, beside those of the change
        yield Area(0, len(lines), 1 if own is None else len(own), int(text != before), target, attempt)
        return
    groups: list[tuple[int, int, list[LineChange], list[LineChange]]] = []
    events = sorted([(*item[:2], 0, item) for item in own] + [(*item[:2], 1, item) for item in other])
    for start, end, side, item in events:
        first, last = groups[-1][:2] if groups else (-1, -1)
        if groups and (start < last or (start == last and (start == end or first == last))):
            groups[-1] = (first, max(last, end), *groups[-1][2:])
        else:
            groups.append((start, end, [], []))
        groups[-1][2 + side].append(item)  # type: ignore[union-attr]
    for start, end, ours, theirs in groups:
        images = (_image(lines, start, end, ours, target), _image(lines, start, end, theirs, attempt))
        yield Area(start, end, len(ours), len(theirs), *images)


def _image(lines: Sequence[str], start: int, end: int, changes: Sequence[LineChange], new: Sequence[str]) -> list[str]:
    """Return what becomes of the lines `start` to `end`."""
    image, position = list[str](), start
    for change in changes:
        image += [*lines[position : change.start], *new[change.new_start : change.new_end]]
        position = change.end
    return [*image, *lines[position:end]]


def compare_texts(old: str, new: str) -> list[LineChange] | None:
    """Return the regions of lines in which two texts differ; None where that takes too long to find out."""
    return compare_lines(old.split("\n"), new.split("\n")) if old != new else []


def compare_lines(old: Sequence[str], new: Sequence[str]) -> list[LineChange] | None:
    """As `compare_texts`, of lists of lines."""
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    middle, new_middle = old[front : len(old) - back], new[front : len(new) - back]
    if len(middle) * len(new_middle) > _MAX_WORK:
        return None
    matcher = SequenceMatcher(None, middle, new_middle, autojunk=len(middle) > _MAX_EXACT_LINES)
    return [LineChange(*(front + number for number in span)) for tag, *span in matcher.get_opcodes() if tag != "equal"]


def total_reward(score: PlaceScore | None, passes: bool | None) -> dict[str, float]:
    """Return what is reported: `reward`, and what it is made of.

    It is the F1 of the places; where there are tests, too, it is that only if they pass, for a change of many places
    that breaks its program is none. Where there are only tests, it is whether they pass.
    """
    parts: dict[str, float] = {}
    if score is not None:
        # a report holds numbers alone: of nothing, nothing is right
        parts |= {"places_f1": score.f1, "precision": score.precision or 0.0, "recall": score.recall or 0.0}
        parts |= {"places": score.gold, "places_right": score.reproduced, "places_edited": score.edited}
    if passes is not None:
        parts["tests"] = float(passes)
    f1 = 1.0 if score is None else score.f1
    return {"reward": f1 * (1.0 if passes is None else float(passes)), **parts}


def main(arguments: Sequence[str]) -> int:
    """Grade a folder."""
    work, tests, logs = map(Path, arguments)
    task = json.loads((tests / "places.json").read_text("utf-8"))
    changed = {path: (before, after) for path, (before, after) in task["changed"].items()}
    originals = {**{path: before for path, (before, _) in changed.items()}, **task["untouched"]}
    produced = {path: _read(work, path) for path in originals}
    score = score_places(changed, task["untouched"], produced) if changed else None
    passes = None
    if task.get("tests"):
        passes = _run_tests(work, task["tests"])
        if passes is None:
            return NOTHING_KNOWN
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "reward.json").write_text(json.dumps(total_reward(score, passes)), "utf-8")
    return 0


def _read(work: Path, name: str) -> str:
    """Return the text of a file; that of nothing where it is no plain file below `work`, or too large."""
    path = work / name
    try:
        is_plain = path.is_file() and path.resolve().is_relative_to(work.resolve())
        if not is_plain or path.stat().st_size > _MAX_BYTES:
            return ""
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _run_tests(work: Path, tests: Mapping[str, object]) -> bool | None:
    """Return whether the tests pass; None where the machine lacks what they need."""
    needs, command, files = tests["needs"], tests["command"], tests["files"]
    assert isinstance(needs, list)
    assert isinstance(command, list)
    assert isinstance(files, dict)
    try:
        ready = subprocess.run(needs, capture_output=True, check=False).returncode == 0
    except OSError:
        ready = False
    if not ready:
        print(f"nothing can be graded: {' '.join(needs)} fails on this machine", file=sys.stderr)
        return None
    for name, text in files.items():
        path = work / name
        for place in [path, *path.parents][: len(Path(name).parts)]:
            if place.is_symlink() or (place == path and place.is_dir()):
                _remove(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    process = subprocess.Popen(
        command, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, encoding="utf-8",
        errors="replace",
    )  # fmt: skip
    try:
        output, _ = process.communicate(str(tests["stdin"]), timeout=_TESTS_S)
    except subprocess.TimeoutExpired:
        return False
    finally:
        # what the tests started would run on, and could write over the reward
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    print(output[-4000:])
    return process.returncode == tests["exit_code"] and tests["output"] in (None, output)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
