"""Commit messages and descriptions of pull requests to instructions: what was done, without who did it.

Taken out are the trailers that git and its hosts add, the lines by which coding agents sign, e-mail addresses, numbers of issues, and
what only says of which kind a commit is (`fix(core): `, `[docs]`) or from where it was copied. Of a pull request that was merged as
one commit the title is left: what follows lists the commits it was made of. The time taken grows with the length of the text and with
nothing else in it.
"""

import re

_TRAILERS = frozenset(
    {
        *("acked-by", "approved-by", "authored-by", "cc", "co-authored-by", "co-committed-by", "co-developed-by"),
        *("commit-queue", "committed-by", "helped-by", "reported-by", "reviewed-by", "signed-off-by", "suggested-by"),
        *("tested-by", "agent-logs-url", "amp-thread-id", "change-id", "claude-session", "former-commit-id"),
        *("bug", "differential revision", "on-behalf-of", "pr-url", "reviewers"),
        *("generated-by", "git-svn-id", "gitorigin-revid", "made-with", "piperorigin-revid", "reviewed-on"),
    }
)
_LONGEST_TRAILER = max(map(len, _TRAILERS))

# whole lines only: "Written with cursor-based paging" is about the change
_SIGNATURE = re.compile(
    r"\W{0,8}(?:generated|created|made|written)(?: by| with| using) \[?"
    r"(?:claude(?: code)?|cursor(?: agent)?|(?:openai )?codex(?: cli)?|(?:github )?copilot)\]?(?:\(\S{0,200}\))?\W{0,8}"
    r"|https://claude\.ai/code/session_\w{1,80}"
    r"|<!-- /?cursor_summary -->",
    re.IGNORECASE,
)
_LONGEST_SIGNATURE = 280

_AGENTS = ("claude", "cursor", "codex", "copilot")

# https://www.conventionalcommits.org/
_KIND = re.compile(
    r"(?:build|chore|ci|docs|feat|fix|perf|refactor|revert|style|test)(?:\([^()\n]{1,60}\))?!?: +|\[[\w ./:-]{1,40}\](?:[ \t]+|(?=\[))"
)
_ISSUE = re.compile(
    r"[ \t]{0,8}[(\[](?:(?:close[sd]?|fix(?:e[sd])?|refs?|resolve[sd]?|see) )?(?:\w[\w.-]{0,60}/[\w.-]{1,60})?#\d{1,7}[)\]]",
    re.IGNORECASE,
)
_ONLY_ISSUES = re.compile(
    r"(?:(?:close[sd]?|fix(?:e[sd])?|refs?|references|resolve[sd]?|see)?[:, ]{0,4}(?:issue |pr |gh-)?#\d{1,7}[., ]{0,4}){1,9}",
    re.IGNORECASE,
)
_COPY = re.compile(
    r"\(?(?:cherry[- ]picked|transplanted|grafted) from (?:commit )?[0-9a-f]{7,40}\)?\.?|This reverts commit [0-9a-f]{7,40}\.?"
)
_RULE = re.compile(r"[ \t]*-{9,}[ \t]*")
_SQUASHED = "\n* "

_LOCAL_CHARACTERS = 64
_LOCAL = re.compile(r"[.%+-]{0,2}\w[\w.%+'&-]*")  # read from the @ backwards; "+@pytest.mark" is a line of a patch
_DOMAIN = re.compile(r"(?!\d+\.\d)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")  # `package@1.2.3` is no address
_CLOSING = {"<": ">", "(": ")"}


def clean_message(message: str) -> str:
    """Return `message` without trailers, signatures of agents, e-mail addresses and blank lines round it.

    Twice is the same as once.
    """
    if not message:
        return ""
    folded = message.lower()
    may_be_signed = any([agent in folded for agent in _AGENTS])
    if "@" in message:
        message = _remove_addresses(message)
    # after the addresses: a line without its address may be a trailer, but no address comes of a line taken out
    if ":" in message or "\r" in message or may_be_signed:
        message = _remove_trailers(message.replace("\r\n", "\n").replace("\r", "\n"), may_be_signed)
    message = message.strip()
    if any(sign in message for sign in ("#", "---------", _SQUASHED, " from ", "This reverts")):
        message = _remove_issues(message)
    return _remove_kind(message)


def _remove_kind(message: str) -> str:
    """Return `message` without the words that say of which kind of commit it is, with a capital letter in their place."""
    start = 0
    while kind := _KIND.match(message, start):
        start = kind.end()
    return message[start : start + 1].upper() + message[start + 1 :] if start else message


def _remove_issues(message: str) -> str:
    """Return `message` without numbers of issues, and of a squashed pull request the title."""
    title, _, body = message.partition("\n")
    is_squashed = body.count(_SQUASHED) + body.startswith("* ") > 1 and bool(_ISSUE.search(title) or _RULE.search(body))
    lines = [title] if is_squashed else [line for line in message.split("\n") if not _is_of_git(line)]
    cleaned = (_ISSUE.sub("", line) if "#" in line else line for line in lines)
    return "\n".join(line for line in cleaned if not ("#" in line and _ONLY_ISSUES.fullmatch(line.strip()))).strip()


def _is_of_git(line: str) -> bool:
    return _RULE.fullmatch(line) is not None or _COPY.fullmatch(line.strip()) is not None


def _remove_trailers(message: str, may_be_signed: bool) -> str:
    lines: list[str] = []
    ends_blank = is_after_trailer = is_in_gap = False
    for line in message.split("\n"):
        is_blank = not line or line.isspace()
        goes_on = is_after_trailer and not is_blank and line[0] in " \t"
        if goes_on or (":" in line and _is_trailer(line)) or (may_be_signed and _is_signature(line)):
            is_after_trailer = is_in_gap = True
            continue
        is_after_trailer = False
        # blank lines stood on both sides of what was taken out; those before it stay
        if is_blank and is_in_gap and ends_blank:
            continue
        is_in_gap = is_in_gap and is_blank
        ends_blank = is_blank
        lines.append(line)
    return "\n".join(lines)


def _is_trailer(line: str) -> bool:
    start, colon, _ = line.strip()[: _LONGEST_TRAILER + 1].partition(":")
    return bool(colon) and start.lower() in _TRAILERS


def _is_signature(line: str) -> bool:
    return len(line) <= _LONGEST_SIGNATURE and _SIGNATURE.fullmatch(line.strip()) is not None


def _remove_addresses(text: str) -> str:
    pieces, done, at = list[str](), 0, text.find("@")
    while at >= 0:
        local = _LOCAL.match(text[max(done, at - _LOCAL_CHARACTERS) : at][::-1])
        domain = _DOMAIN.match(text, at + 1)
        if local and domain:
            start, end = at - local.end(), domain.end()
            if start > done and text[end : end + 1] == _CLOSING.get(text[start - 1]):
                start, end = start - 1, end + 1
            follows = text[end : end + 1]
            if start > done and text[start - 1] in " \t" and (not follows or follows in " \t\r\n,;)]"):
                start -= 1
                pieces.append(text[done:start])
            else:
                # what stood on both sides must not grow together, or it may be an address again
                pieces += [text[done:start], " " if follows.strip() and text[start - 1 : start].strip() else ""]
            done = end
            at = text.find("@", done)
        else:
            at = text.find("@", at + 1)
    return "".join(pieces) + text[done:]
