"""The report of a soak: Markdown with tables, and plots beside it of what happened when, and of what processes held."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.soak_parts.faults import Inflicted
from benchmarks.soak_parts.programs import Ended
from benchmarks.soak_parts.samples import Growth, Sample, table
from graftline.core.markdown import table as markdown_table

_MB = 1 << 20
_WIDTH_INCHES, _DPI = 9, 110
_BINS = 60


def write(
    folder: Path,
    figures: Mapping[str, Any],
    wrong: Sequence[str],
    inflicted: Sequence[Inflicted],
    ended: Sequence[Ended],
    samples: Sequence[Sample],
    disk: Sequence[tuple[float, int]],
    grown: Mapping[str, Growth],
    done_at: Mapping[str, Sequence[float]],
    began: float,
) -> Path:
    """Write `soak.md` and its plots into `folder`, and return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    faults = [(one.at - began, one.kind) for one in inflicted]
    _timeline(folder / "timeline.png", faults, [(one.at - began, one.role) for one in ended if not one.was_killed])
    _rates(folder / "rates.png", {name: [at - began for at in of] for name, of in done_at.items()}, faults)
    _memory(folder / "memory.png", samples, began)
    _disk(folder / "disk.png", [(at - began, used) for at, used in disk])
    rows = [
        {"minute": f"{(one.at - began) / 60:.1f}", "fault": one.kind, "what": one.detail, "seconds": one.seconds}
        for one in inflicted
    ]
    by_itself = Counter((one.role, one.status, one.last_words[-120:]) for one in ended if not one.was_killed)
    alone = [
        {"program": role, "exit status": status, "times": times, "last words": words.replace("\n", " ")}
        for (role, status, words), times in by_itself.most_common()
    ]
    lines = [
        "# Soak",
        f"{figures['minutes']} minutes, seed {figures['seed']}, {len(inflicted)} faults, and {sum(figures['missed'].values())}"
        " that were planned and did not happen.",
        "Nothing was wrong." if not wrong else f"**{len(wrong)} things are not as they have to be:**",
        "\n".join(f"* {one}" for one in wrong),
        *(f"## {name.capitalize()}\n\n{_facts(figures[name])}" for name in ("rollouts", "attempts", "versions")),
        "![rates](rates.png)",
        "## Faults",
        "![timeline](timeline.png)",
        markdown_table(rows) if rows else "There were none.",
        "## Programs that ended by themselves",
        markdown_table(alone) if alone else "There were none.",
        "## Memory and descriptors",
        f"Growth is the median of the slopes between samples of the same process, after {figures['warm_up_s']} s; a run is"
        f" judged by {figures['bounds']}.",
        markdown_table(table(grown)) if grown else "Nothing was sampled.",
        "![memory](memory.png)",
        "## Disk",
        f"{figures['disk_mb']} MB at the end.",
        "![disk](disk.png)",
    ]
    path = folder / "soak.md"
    path.write_text("\n\n".join(line for line in lines if line) + "\n", "utf-8")
    return path


def _facts(facts: Mapping[str, Any]) -> str:
    return markdown_table([{"figure": name.replace("_", " "), "value": str(value)} for name, value in facts.items()])


def _timeline(path: Path, faults: Sequence[tuple[float, str]], ended: Sequence[tuple[float, str]]) -> None:
    kinds = sorted({kind for _, kind in faults})
    programs = sorted({role for _, role in ended})
    names = [*kinds, *(f"{role} ends" for role in programs)]
    with _plot(path, 1.2 + 0.28 * len(names)) as axes:
        axes.scatter([at / 60 for at, _ in faults], [kinds.index(kind) for _, kind in faults], marker="|", s=160)
        places = [len(kinds) + programs.index(role) for _, role in ended]
        axes.scatter([at / 60 for at, _ in ended], places, marker="x", s=20, color="#c98a5b")
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_xlabel("minutes")


def _rates(path: Path, done: Mapping[str, Sequence[float]], faults: Sequence[tuple[float, str]]) -> None:
    with _plot(path, 3.2) as axes:
        for name, moments in done.items():
            axes.hist([at / 60 for at in moments], bins=_BINS, histtype="step", label=name)
        for at, _ in faults:
            axes.axvline(at / 60, color="#bbbbbb", linewidth=0.4, zorder=0)
        axes.set_xlabel("minutes; grey lines are faults")
        axes.set_ylabel("ended")
        axes.legend(fontsize=8)


def _memory(path: Path, samples: Sequence[Sample], began: float) -> None:
    with _plot(path, 4.5) as axes:
        lives: dict[str, dict[int, list[Sample]]] = {}
        for one in samples:
            lives.setdefault(one.role, {}).setdefault(one.pid, []).append(one)
        for number, (role, of) in enumerate(sorted(lives.items())):
            for place, life in enumerate(of.values()):
                moments, sizes = [(one.at - began) / 60 for one in life], [one.memory_bytes / _MB for one in life]
                axes.plot(moments, sizes, color=f"C{number % 10}", linewidth=1, label=role if not place else None)
        axes.set_yscale("log")
        axes.set_xlabel("minutes; a line ends where its process does")
        axes.set_ylabel("MB")
        if lives:
            axes.legend(fontsize=7, ncols=2)


def _disk(path: Path, used: Sequence[tuple[float, int]]) -> None:
    with _plot(path, 2.6) as axes:
        axes.plot([at / 60 for at, _ in used], [size / _MB for _, size in used])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes")
        axes.set_ylabel("MB")


@contextmanager
def _plot(path: Path, height_inches: float) -> Iterator[Any]:
    """Yield axes, and write what was drawn on them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    yield figure.add_subplot()
    figure.savefig(path, dpi=_DPI)
