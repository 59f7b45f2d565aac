"""Actions made of the nodes of real texts, and what ast-grep itself makes of them."""

import random
import subprocess

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, Tree, executable, rules_document


def generated(tree: Tree, chance: random.Random) -> PatternAction | RuleAction | None:
    """Return an action whose pattern is a node of `tree` with some of what is below it left free."""
    nodes = [node for node in tree.root.walk() if node.is_named and node.children and 3 < node.end - node.start < 300]
    if not nodes:
        return None
    node = chance.choice(nodes)
    below = [inner for inner in node.walk() if inner is not node and inner.is_named]
    chance.shuffle(below)
    holes: list[tuple[int, int, str]] = []
    for inner in below[: chance.randint(0, 4)]:
        start, end, sigil = inner.start, inner.end, "$"
        siblings = inner.parent.children if inner.parent else []
        if chance.random() < 0.25 and inner.index < len(siblings) - 1:
            end, sigil = siblings[-2 if len(siblings) > inner.index + 2 else -1].end, "$$$"
        if all(end <= other[0] or other[1] <= start for other in holes):
            holes.append((start, end, sigil + "ABCDE"[len(holes)]))
    old, position = "", node.start
    for start, end, name in sorted(holes):
        old, position = old + tree.text[position:start] + name, end
    old += tree.text[position : node.end]
    names = [name for _, _, name in holes]
    style = chance.randrange(7)
    new = [
        "renamed(" + ", ".join(names) + ")",
        "if ok:\n    " + "\n    ".join(names or ["pass"]) + "\nelse:\n    é",
        " ".join(reversed(names)),
        names[0] if names else "",
        old + "\n" + old,
        "$MISSING",
        "  " + old.replace("\n", "\n\t"),
    ][style]
    if chance.random() < 0.3:
        single = [name for name in names if not name.startswith("$$$")]
        if single and chance.random() < 0.5:
            transform = {"T": {"replace": {"source": single[0], "replace": "[aeiou]", "by": "$$"}}}
            return RuleAction(rule={"pattern": old}, fix=new + " $T", transform=transform)
        return RuleAction(rule={"pattern": old, "kind": node.kind}, fix={"template": new})
    return PatternAction(pattern=old, rewrite=new, strictness=chance.choice([None, "cst", "ast", "relaxed"]))


def directly(source: str, language: Language, action: PatternAction | RuleAction) -> str | None:
    """Return what `ast-grep scan -U` itself makes of `source`; None where it changes nothing."""
    done = subprocess.run(
        [executable(), "scan", f"--inline-rules={rules_document([action], language)}", "--stdin", "-U"],
        input=source.encode(),
        capture_output=True,
        check=False,
    )
    # what is printed ends with one newline more than the new text
    return done.stdout.decode()[:-1] if done.stdout else None
