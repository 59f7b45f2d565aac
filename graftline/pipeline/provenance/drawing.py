"""An ancestry as a drawing: a graph for Graphviz, or for Mermaid, which pages of Markdown show."""

from collections.abc import Iterator

from graftline.pipeline.provenance.trace import Ancestor, Ancestry, State

_BROKEN = (State.ALTERED, State.MISSING, State.UNRECORDED)


def dot(of: Ancestry) -> str:
    """Return the graph in the language of Graphviz; what is not as it was is red."""
    lines = ["digraph lineage {", "  rankdir=RL;", '  node [shape=box, fontname="sans-serif", fontsize=10];']
    for number, one in enumerate(of.ancestors.values()):
        color = ", color=red" if one.state in _BROKEN else ""
        lines.append(f'  n{number} [label="{_dot_text(_label(one, chr(10)))}"{color}];')
    for child, parent, drift in _edges(of):
        told = ' [color=red, label="replaced"]' if drift else ""
        lines.append(f"  n{child} -> n{parent}{told};")
    return "\n".join((*lines, "}", ""))


def mermaid(of: Ancestry) -> str:
    """Return the graph in the language of Mermaid; what is not as it was is red."""
    lines = ["flowchart RL"]
    for number, one in enumerate(of.ancestors.values()):
        lines.append(
            f'    n{number}["{_mermaid_text(_label(one, chr(10)))}"]{":::broken" if one.state in _BROKEN else ""}'
        )
    for child, parent, drift in _edges(of):
        lines.append(f"    n{child} -->{'|replaced|' if drift else ''} n{parent}")
    return "\n".join((*lines, "    classDef broken stroke:red,color:red", ""))


def _edges(of: Ancestry) -> Iterator[tuple[int, int, str]]:
    numbers = {key: number for number, key in enumerate(of.ancestors)}
    for key, one in of.ancestors.items():
        drifts: dict[int, str] = {}
        for parent in one.parents:
            number = numbers[parent.key]
            drifts[number] = drifts.get(number) or parent.drift
        yield from ((numbers[key], number, drift) for number, drift in drifts.items())


def _label(one: Ancestor, between: str) -> str:
    rows = one.facts.get("rows")
    counted = f"{rows:,} rows" if isinstance(rows, int) and rows else ""
    return between.join(part for part in (one.kind, one.name, counted) if part)


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _mermaid_text(text: str) -> str:
    for plain, written in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", "<br>")):
        text = text.replace(plain, written)
    return text
