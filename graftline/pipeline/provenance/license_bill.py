"""The bill of materials of an adapter by license: whose code its rows stand on, on what terms, and what those ask for.

Covered: what is recorded or configured of rows, datasets, the base model and teachers. Not covered: whether an adapter
is a derived work of what it was trained on, which nobody here can say. A license that is not known is told as such,
never left out. Not here: the document for other programs (`pipeline.provenance.license_document`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graftline.core.paths import Paths
from graftline.core.text_diff import pluralize
from graftline.datasets.catalog import NO_LICENSE
from graftline.llm.weights.catalog import load_models
from graftline.pipeline.provenance.rows import TrainingRow, training_rows
from graftline.pipeline.provenance.trace import Provenance, ProvenanceNode
from graftline.pipeline.teacher_terms import describe_teacher, describe_terms, fleets_of_teachers

Asks = Literal["nothing", "notice", "notice and changes", "share alike", "unknown"]

ASKS: Mapping[str, Asks] = {
    **dict.fromkeys(("0BSD", "CC0-1.0", "MIT-0", "Unlicense", "WTFPL"), "nothing"),
    **dict.fromkeys(("BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "NCSA", "PostgreSQL", "Python-2.0", "UPL-1.0", "Zlib"), "notice"),
    **dict.fromkeys(("Apache-2.0", "Artistic-2.0", "CC-BY-4.0", "OFL-1.1"), "notice and changes"),
    **dict.fromkeys(("CC-BY-SA-4.0", "EPL-2.0", "EUPL-1.2", "MPL-2.0"), "share alike"),
    **dict.fromkeys((f"{name}-{which}" for name in ("AGPL-3.0", "GPL-2.0", "GPL-3.0", "LGPL-2.1", "LGPL-3.0") for which in ("only", "or-later")), "share alike"),
}  # fmt: skip
"""What a license asks of who hands on a part of a work, in a word: to keep copyright notice and text (`notice`), to say
as well what was changed, and to keep a NOTICE file where there is one (`notice and changes`), to hand on by the same
license (`share alike`)."""
_NOTICES = ("notice", "notice and changes", "share alike")


@dataclass(frozen=True, slots=True)
class Package:
    """A package or repository that rows were made of."""

    name: str
    """As the edits call it, `pypi:attrs` or `owner/name`."""
    license: str
    rows: int
    datasets: tuple[str, ...]
    places: tuple[str, ...]
    """Where in it, a few of them: releases, commits, files."""

    @property
    def asks(self) -> Asks:
        """Return what its license asks for."""
        return ASKS.get(self.license, "unknown")

    @property
    def notice(self) -> str:
        """Return the line that a NOTICE of the adapter needs of it; empty where none is asked for."""
        if self.asks not in _NOTICES:
            return ""
        also = " its NOTICE file if it has one," if self.license == "Apache-2.0" else ""
        place = self.places[0] if self.places else "release unknown"
        more = f" and {len(self.places) - 1} more" if len(self.places) > 1 else ""
        return (
            f"{self.name} ({place}{more}): {self.license}; copyright of its authors, whose notice,{also} and the text of the"
            " license are there"
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A dataset, a base model or a teacher."""

    kind: Literal["dataset", "base model", "teacher"]
    name: str
    license: str
    detail: str
    """Version or digest, and where it is from."""
    rows: int = 0
    """That stand on it; 0 for a base model."""


@dataclass(frozen=True)
class LicenseBill:
    """The bill of one adapter."""

    adapter: str
    identity: str
    written_at: str
    rows: int
    packages: Sequence[Package]
    """By license, those with the most rows first."""
    parts: Sequence[Part]

    def by_license(self) -> list[dict[str, Any]]:
        """Return for each license: what it asks for, rows, packages, datasets."""
        licenses = dict.fromkeys(package.license for package in self.packages)
        return [
            {
                "license": license,
                "asks": ASKS.get(license, "unknown"),
                "rows": sum(package.rows for package in self.packages if package.license == license),
                "packages": sum(package.license == license for package in self.packages),
                "datasets": sorted(
                    {name for package in self.packages if package.license == license for name in package.datasets}
                ),
            }
            for license in licenses
        ]

    @property
    def unknown(self) -> list[str]:
        """Return what has no license that is known, one sentence each."""
        packages = [
            f"{package.name}: {package.license}, {pluralize(package.rows, 'row')}; find out its license, or leave its rows out"
            for package in self.packages
            if package.asks == "unknown"
        ]
        parts = [part for part in self.parts if part.license in ("", NO_LICENSE)]
        return packages + [f"{part.kind} {part.name}: license unknown; find out on what terms it is" for part in parts]

    def notices(self) -> list[str]:
        """Return the lines that a NOTICE of the adapter needs."""
        models = [
            f"{part.name} ({part.detail}): {part.license}"
            for part in self.parts
            if part.kind == "base model" and part.license not in ("", NO_LICENSE)
        ]
        return models + [package.notice for package in self.packages if package.notice]

    def as_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        return {
            "adapter": self.adapter,
            "identity": self.identity,
            "rows": self.rows,
            "licenses": self.by_license(),
            "packages": [{**asdict(package), "asks": package.asks} for package in self.packages],
            "parts": [asdict(part) for part in self.parts],
            "unknown": self.unknown,
            "notices": self.notices(),
        }


def license_bill(paths: Paths, provenance: Provenance) -> LicenseBill:
    """Return the bill of the adapter that `of` is about."""
    rows = training_rows(paths, provenance)
    of_datasets, of_teachers = Counter(row.dataset for row in rows), Counter(row.teacher for row in rows)
    parts = [part for node in provenance.nodes.values() if (part := _part(node, of_datasets)) is not None]
    parts += [_teacher(paths, name, count) for name, count in of_teachers.most_common() if name]
    record = provenance.record
    return LicenseBill(record.name, record.identity, record.written_at, len(rows), _packages(rows), parts)


def _packages(rows: Iterable[TrainingRow]) -> list[Package]:
    counts = Counter[tuple[str, str]]()
    datasets: dict[tuple[str, str], set[str]] = {}
    places: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        key = row.license, row.group or "unknown package"
        counts[key] += 1
        datasets.setdefault(key, set()).add(row.dataset or "unknown dataset")
        if row.origin:
            places.setdefault(key, {})[_release(row)] = None
    totals = Counter[str]()
    for (license, _), count in counts.items():
        totals[license] += count
    order = sorted(counts, key=lambda key: (-totals[key[0]], key[0], -counts[key], key[1]))
    return [
        Package(group, license, counts[license, group], tuple(sorted(datasets[license, group])), tuple(places.get((license, group), ())))
        for license, group in order
    ]  # fmt: skip


def _release(row: TrainingRow) -> str:
    """Return which release or commit of its package a row is of: of `template on id, pypi:a 1->2 a.py`, `1->2`."""
    place = row.origin.rpartition(", ")[2] if row.template else row.origin
    words = place.removeprefix(row.group).split()
    return words[0] if words and row.group and place.startswith(row.group) else place


def _part(node: ProvenanceNode, rows: Mapping[str, int]) -> Part | None:
    license = str(node.facts.get("license", NO_LICENSE))
    if node.kind == "raw":
        # an evaluation has no rows: edits were only kept away from it
        count = rows.get(node.name, 0)
        url = node.facts.get("url") or "no source is known"
        return Part("dataset", node.name, license, f"{node.facts.get('version', '')}, {url}", count) if count else None
    if node.kind == "base_model":
        digest = str(node.facts.get("digest", ""))
        detail = f"{node.facts.get('card', node.name)}, sha256 {digest}" if digest else str(node.facts.get("why", ""))
        return Part("base model", node.name, license, detail)
    return None


def _teacher(paths: Paths, name: str, rows: int) -> Part:
    """Return a teacher, whose answers were trained on: of one that is no model of ours the terms are not known."""
    if name in ("induction", "memory"):
        return Part("teacher", name, "Apache-2.0", describe_teacher(name, {}), rows)
    fleet = fleets_of_teachers(paths.configs).get(name)
    if fleet is not None and fleet.outputs is not None:
        license, terms = describe_terms(fleet)
        return Part("teacher", name, license or NO_LICENSE, terms, rows)
    for model, weights in load_models(paths).models.items():
        if model in name or weights.card.rpartition("/")[2].lower() in name.lower():
            return Part("teacher", name, weights.license, f"{weights.card}, sha256 {weights.sha256}", rows)
    return Part("teacher", name, NO_LICENSE, describe_teacher(name, {}), rows)
