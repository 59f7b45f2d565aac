"""Rows in the shape of CommitPackFT's Python, made up: ten text columns, 2.3 kB, edits of programs that parse. And of AgentPack's.

A program is put together of statements whose names are drawn anew for every row, so that unrelated rows are not near
one another. Row `n` is the same in every run and whatever rows are made beside it. Of a hundred rows, about

* 5 say what an earlier row said (other commit, or the same one, or other words), 5 are near an earlier one;
* 8 are new files, 8 under a license that is not allowed, 1 changes blanks only, 1 is no Python, 1 has CRLF.

The shares of rows that fall out are less than in the real dataset, so that more is left to do per row.

Rows of AgentPack are the same edits as patches: as 900 commits of coding agents have it (of 33 repositories under permissive
licenses, same columns and selection), 19 % are of one file, the others of four on average, and a description has 1 kB.
"""

import difflib
import gzip
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_VERBS = (  # noqa: SIM905 - one word per line would take three hundred
    "apply build cache check collect compare compute convert create decode dispatch encode ensure expand export fetch"
    " filter find flush format gather handle import index insert join list load lookup make match merge move normalize"
    " open pack parse patch prepare process publish query read record reduce refresh register release remove render"
    " replace report request reset resolve restore save scan select send serialize split start store submit sync track"
    " trim unpack update upload validate verify visit wait wrap write"
).split()
_NOUNS = (  # noqa: SIM905 - as above
    "account action address agent archive asset backend batch block bucket buffer build bundle button cache campaign"
    " cell channel chart chunk client cluster column command comment commit config contact container context cookie"
    " course credential cursor customer dataset deadline delta deploy device digest document domain driver edge element"
    " endpoint engine entity entry event export factory feature feed field filter flag folder form frame gateway graph"
    " grid group handler header history host image index inventory invoice issue item job journal kernel label layer"
    " layout lease ledger level limit link locale location lock manager manifest marker matrix member message metric"
    " migration module monitor network node notice object offset option order origin outcome output owner package page"
    " panel parcel parser partition password patch payload payment peer period permission pixel plan player plugin"
    " point policy pool port position price profile project prompt proxy query queue quota range ratio reader reason"
    " receipt region registry relation release report request resource result revision role route router rule sample"
    " scene schedule schema scope score screen section segment sensor series server session setting shard shape sheet"
    " signal slot snapshot socket source span stage state station status step storage stream string style subject"
    " summary surface switch symbol table tag target task team template tenant term theme thread ticket tile timer"
    " token topic trace track trigger tuple user value variant vector vendor version view volume warning widget window"
    " worker workflow zone"
).split()

# $0 to $3: names in scope, $4: an attribute, $5: a word, $6: a number
_STATEMENTS = (
    "$0 = $1.get('$5', $6)\n",
    "$0 = self.$4($1, $2)\n",
    "if $0 is None:\n    $0 = $1.$4\n",
    'if not $0:\n    raise ValueError("$5 of %s is missing" % $1)\n',
    "for $0 in $1.$4:\n    $2.append($0.$5)\n",
    "$0 = [$1.$4 for $1 in $2 if $1.$5 > $6]\n",
    "$0['$5'] = $1 + $6\n",
    "with open($0) as $1:\n    $2 = $1.read().split('$5')\n",
    "try:\n    $0 = $1.$4()\nexcept KeyError:\n    $0 = $6\n",
    'logger.debug("$5 $4: %s", $0)\n',
    "$0, $1 = $2.$4($3, $5=$6)\n",
    "$0 = '%s/$5/%d' % ($1, $6)\n",
    "while $0 < $6:\n    $0 += $1.$4($2)\n",
    "assert $0.$4 == $1, '$5'\n",
    "$0 = dict($5=$1, $4=$2 or $6)\n",
    "$0.$4 = sorted($1, key=lambda $3: $3.$5)\n",
    "if isinstance($0, $3) and $1.$4 != $6:\n    return $2\n",
    "$0 = $1.$4('$5').filter($3=$2).first()\n",
    "# the $5 of a $4 comes after its $3, and not before it\n$0 = $1\n",
    "# $5 of $0 for $4: see $1\n",
    '$0.update({"$5": $1, "$4": $6})\n',
    "$0 = {'$5': $1, '$4': [$2, $3]}\n",
)
_SLOTS = 20
_IMPORTS = ("import {0}\n", "from {0} import {1}\n", "from .{0} import {1}, {2}\n", "import {0}.{1} as {2}\n")
_LICENSES = ("mit",) * 5 + ("apache-2.0",) * 4 + ("bsd-3-clause",) * 3 + ("bsd-2-clause", "isc")
_OTHER_LICENSES = ("agpl-3.0", "lgpl-2.1", "unknown", "mpl-2.0", "epl-1.0")
_PEOPLE = ("Ada Grey", "Bo Lind", "Cy Moss", "Di Park", "Ed Roth", "Flo Tran")
_START_WORDS = ("Add", "Change", "Fix", "Make", "Move", "Remove", "Rename", "Replace", "Simplify", "Update", "Use")


def lines(rows: int, first: int = 0) -> Iterator[bytes]:
    """Yield `rows` rows from number `first` on, as lines of JSON in the way the dataset writes them."""
    for number in range(first, first + rows):
        text = json.dumps(row(number), separators=(",", ":"))
        yield text.replace("/", "\\/").encode() + b"\n"


def write_agent_rows(path: Path, rows: int) -> int:
    """Write so many rows in the shape of AgentPack to `path`, gzipped, and return its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb", compresslevel=6) as stream:
        for number in range(rows):
            stream.write(json.dumps(agent_row(number), separators=(",", ":")).encode() + b"\n")
    return path.stat().st_size


def agent_row(number: int) -> dict[str, Any]:
    """Return row `number` in the shape of AgentPack: a commit, as a patch."""
    draw = random.Random(2 << 32 | number)
    files = 1 if draw.random() < 0.19 else 2 + int(draw.random() * 5)
    edits = [row(number), *(_original(number + 1 + extra) for extra in range(files - 1))]
    said = " ".join(_message(draw)[0] for _ in range(16))
    return {
        "event_id": f"{number}",
        "agent": _pick(draw, ("claude", "codex", "cursor")),
        "repo": edits[0]["repos"].partition(",")[0],
        "sha": edits[0]["commit"],
        "description": f"{edits[0]['message']}\n{said}",
        "patch": "".join(_patch(edit) for edit in edits),
    }


def _patch(edit: Mapping[str, Any]) -> str:
    pre, post = (edit[name].splitlines(keepends=True) for name in ("old_contents", "new_contents"))
    path = edit["new_file"]
    old = f"a/{path}" if pre else "/dev/null"
    return f"diff --git a/{path} b/{path}\n{''.join(difflib.unified_diff(pre, post, old, f'b/{path}'))}"


def write_rows(path: Path, rows: int, first: int = 0) -> int:
    """Write `rows` rows from number `first` on to `path`, and return its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=1 << 20) as stream:
        stream.writelines(lines(rows, first))
    return path.stat().st_size


def row(number: int) -> dict[str, Any]:
    """Return row `number`."""
    draw = random.Random(number)
    share = draw.random()
    if number and share < 0.10:
        return _again(draw, number, share)
    return _original(number)


def _original(number: int) -> dict[str, Any]:
    draw = random.Random(1 << 32 | number)  # not the draws which says whether the row is made at all
    fate = draw.random()
    pre = _program(draw)
    post = _edited(draw, pre)
    if fate < 0.08:
        pre = ""
    elif fate < 0.09:
        post = pre.replace("\n\n", "\n\n\n").replace(")\n", ") \n", 3)
    elif fate < 0.10:
        post = post.replace("):", ") -> (:", 1)
    elif fate < 0.11:
        pre, post = pre.replace("\n", "\r\n"), post.replace("\n", "\r\n")
    repository = _repository(draw, number)
    path = f"{_pick(draw, _NOUNS)}/{_pick(draw, _NOUNS)}/{_name(draw)}.py"
    subject, message = _message(draw)
    return {
        "commit": f"{draw.getrandbits(160):040x}",
        "old_file": path,
        "new_file": path,
        "old_contents": pre,
        "new_contents": post,
        "subject": subject,
        "message": message,
        "lang": "Python",
        "license": _pick(draw, _OTHER_LICENSES if draw.random() < 0.08 else _LICENSES),
        "repos": ",".join((repository, *_forks(draw, repository))),
    }


def _again(draw: random.Random, number: int, share: float) -> dict[str, Any]:
    """Return an earlier row, with something changed that does not make it another edit."""
    earlier = _original(draw.randrange(number))
    commit = f"{draw.getrandbits(160):040x}"
    if share < 0.03:
        return {**earlier, "commit": commit}
    if share < 0.04:
        return {**earlier, "subject": "Again: " + earlier["subject"], "message": "Again: " + earlier["message"]}
    subject, message = _message(draw)
    said = {**earlier, "commit": commit, "subject": subject, "message": message}
    if share < 0.05:
        return said
    note = f"# {_pick(draw, _NOUNS)} {_pick(draw, _NOUNS)} {_pick(draw, _VERBS)}\n"
    pre = earlier["old_contents"]
    return {**said, "old_contents": note + pre if pre else pre, "new_contents": note + earlier["new_contents"]}


def _program(draw: random.Random) -> str:
    names = draw.choices(_NOUNS, k=6)
    pieces = [_pick(draw, _IMPORTS).format(*names[at : at + 3]) for at in range(1 + int(draw.random() * 3))]
    indent = ""
    if draw.random() < 0.4:
        pieces.append(f"\n\nclass {names[4].title()}{names[5].title()}(object):\n")
        indent = "    "
    wanted, size = 310 + int(draw.random() * 600), sum(map(len, pieces))
    while size < wanted:
        piece = _pick(draw, _functions(indent)).format(*draw.choices(_names(), k=_SLOTS))
        pieces.append(piece)
        size += len(piece)
    return "".join(pieces)


@cache
def _functions(indent: str) -> list[str]:
    """Return functions with places to fill in: 6 names, 6 attributes, 8 words."""
    draw = random.Random(len(indent))
    return [_function(draw, indent) for _ in range(400)]


def _function(draw: random.Random, indent: str) -> str:
    names, attributes, words = ([f"{{{at}}}" for at in range(*of)] for of in ((0, 6), (6, 12), (12, _SLOTS)))
    inner = indent + "    "
    given = ", ".join([*(["self"] if indent else []), *names[: draw.randint(1, 3)]])
    pieces = [f"\n{indent}def {draw.choice(_VERBS)}_{attributes[0]}({given}):\n"]
    if draw.random() < 0.4:
        quoted = f" “{words[2]}”" if draw.random() < 0.05 else ""
        pieces.append(f'{inner}"""{draw.choice(_VERBS).title()} the {words[0]} of its {words[1]}{quoted}."""\n')
    for _ in range(draw.randint(3, 8)):
        text = draw.choice(_STATEMENTS).replace("{", "{{").replace("}", "}}")
        filled = (*draw.sample(names, 4), draw.choice(attributes), draw.choice(words), str(draw.randint(0, 999)))
        for slot, filling in enumerate(filled):
            text = text.replace(f"${slot}", filling)
        pieces += [inner + line + "\n" for line in text.splitlines()]
        if draw.random() < 0.15:
            pieces.append("\n")
    pieces.append(f"{inner}return {draw.choice(names)}\n")
    return "".join(pieces)


def _edited(draw: random.Random, pre: str) -> str:
    """Return `pre` after what a small commit does: rename a name, change, add or take out lines."""
    rows = pre.split("\n")
    returns = [index for index, line in enumerate(rows) if line.lstrip().startswith("return ")]
    at = _pick(draw, returns)
    indent = rows[at][: len(rows[at]) - len(rows[at].lstrip())]
    kind = draw.random()
    if kind < 0.4:
        name = rows[at].split()[1]
        return pre.replace(name, _name(draw))
    if kind < 0.7:
        rows[at] = f"{indent}return {_name(draw)}({rows[at].split()[1]}, {int(draw.random() * 99)})"
    elif kind < 0.9:
        rows[at:at] = [f"{indent}if {_name(draw)} is None:", f"{indent}    {_name(draw)}({int(draw.random() * 99)})"]
    else:
        rows[at] = f"{indent}return None"
    return "\n".join(rows)


def _message(draw: random.Random) -> tuple[str, str]:
    subject = f"{_pick(draw, _START_WORDS)} {_name(draw)} when {_pick(draw, _NOUNS)} {_pick(draw, _VERBS)}s its {_pick(draw, _NOUNS)}"
    body = ""
    if draw.random() < 0.3:
        body = f"\n\nThe {_pick(draw, _NOUNS)} of a {_pick(draw, _NOUNS)} was {_pick(draw, _VERBS)}ed twice, see #{draw.randint(1, 9999)}."
    if draw.random() < 0.2:
        person = _pick(draw, _PEOPLE)
        body += f"\n\nSigned-off-by: {person} <{person.lower().replace(' ', '.')}@example.org>"
    return subject, f"{subject}{body}\n"


def _repository(draw: random.Random, number: int) -> str:
    # three rows of each on the whole, and of some a great many
    which = int(number / 3 * draw.random() ** 1.5)
    return f"{_NOUNS[which % len(_NOUNS)]}{which}/{_VERBS[which % len(_VERBS)]}-{_NOUNS[which * 7 % len(_NOUNS)]}"


def _forks(draw: random.Random, repository: str) -> list[str]:
    count = min(int(draw.paretovariate(1.5)) - 1, 100)
    name = repository.partition("/")[2]
    return [f"{_pick(draw, _VERBS)}{draw.randint(0, 99999)}/{name}" for _ in range(count)]


def _name(draw: random.Random) -> str:
    return _pick(draw, _names())


@cache
def _names() -> list[str]:
    return [f"{first}_{second}" for first in _NOUNS for second in _NOUNS if first != second]


def _pick(draw: random.Random, among: Sequence[str]) -> str:
    return among[int(draw.random() * len(among))]  # a third of the time of `choice`
