"""The license bill as a CycloneDX 1.6 document, an ML-BOM that other programs read: the door to cyclonedx.

The adapter is what the document is about; its base model, the datasets, and the packages that rows were made of are its
components, each with its license, the packages with their notice as well. Equal bills give equal documents.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from graftline import __version__
from graftline.datasets.catalog import NO_LICENSE
from graftline.pipeline.provenance.license_bill import LicenseBill, Package, Part

_TYPES = {
    "dataset": ComponentType.DATA,
    "base model": ComponentType.MACHINE_LEARNING_MODEL,
    "teacher": ComponentType.MACHINE_LEARNING_MODEL,
}
_REGISTRIES = {"pypi": ("pypi", None), "npm": ("npm", None), "debian": ("deb", "debian")}


def cyclonedx(bill: LicenseBill) -> str:
    """Return the document of `bill` as JSON."""
    adapter = Component(
        name=bill.adapter,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"adapter/{bill.adapter}",
        version=bill.identity[:12],
        description="A LoRA adapter trained by Graftline",
        properties=[_property("rows", bill.rows), _property("identity", bill.identity)],
    )
    tool = Component(name="graftline", version=__version__, type=ComponentType.APPLICATION)
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"urn:graftline:{bill.identity}"),
        metadata=BomMetaData(component=adapter, timestamp=datetime.fromisoformat(bill.written_at)),
    )
    bom.metadata.tools.components.add(tool)
    parts = {part.name: _part(part) for part in bill.parts}
    packages = [_package(package) for package in bill.packages]
    bom.components.update((*parts.values(), *packages))
    bom.register_dependency(adapter, [*parts.values(), *packages])
    for name, component in parts.items():
        own = [item for item, package in zip(packages, bill.packages, strict=True) if name in package.datasets]
        bom.register_dependency(component, own)
    return json.dumps(json.loads(JsonV1Dot6(bom).output_as_string()), indent=2, ensure_ascii=False) + "\n"


def _part(part: Part) -> Component:
    return Component(
        name=part.name,
        type=_TYPES[part.kind],
        bom_ref=f"{part.kind.replace(' ', '-')}/{part.name}",
        description=part.detail or None,
        licenses=_licenses(part.license),
        properties=[_property("kind", part.kind), _property("rows", part.rows)],
    )


def _package(package: Package) -> Component:
    properties = [_property("asks", package.asks), *([_property("notice", package.notice)] if package.notice else [])]
    return Component(
        name=package.name,
        type=ComponentType.LIBRARY,
        bom_ref=f"package/{package.license}/{package.name}",
        purl=_purl(package.name),
        licenses=_licenses(package.license),
        properties=[
            _property("rows", package.rows),
            *properties,
            *(_property("place", place) for place in package.places),
        ],
    )


def _licenses(license: str) -> Sequence[License]:
    # no license that is known is said by none at all
    return [] if license in ("", NO_LICENSE) else [LicenseFactory().make_from_string(license)]


def _purl(group: str) -> PackageURL | None:
    """Return the package URL of what the edits call `pypi:attrs` or `owner/name`; None for anything else."""
    registry, _, name = group.partition(":")
    if registry in _REGISTRIES and name:
        kind, space = _REGISTRIES[registry]
        scope, _, bare = name.rpartition("/")
        return PackageURL(kind, scope or space, bare)
    owner, _, repository = group.partition("/")
    return PackageURL("github", owner, repository) if owner and repository and ":" not in group else None


def _property(name: str, value: Any) -> Property:
    return Property(name=f"graftline:{name}", value=str(value))
