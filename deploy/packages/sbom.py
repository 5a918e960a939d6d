"""The software bill of materials of a package, in the form of CycloneDX 1.6."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name

SCRIPTS = "ccm_ctl/dashboard/static/vendor/VERSIONS.json"
LICENSE = "Apache-2.0"


def bill(
    project: Path, distributions: list[metadata.Distribution], told: dict[str, str], made_at: int
) -> str:
    """
    The JSON document: our programs, the distributions beside them, and the packages of npm in the dashboard.

    Its number and time follow from `told`, the content of `package.json`, and `made_at`: the same package has the
    same document.
    """
    ours = _component("pypi", "ccm-fleet", told["version"], LICENSE, ComponentType.APPLICATION)
    parts = [
        _component("pypi", canonicalize_name(one.name), one.version, _license(one)) for one in distributions
    ]
    parts += [_component("npm", name, version) for name, version in _scripts(project)]
    made = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(told, sort_keys=True)),
        metadata=BomMetaData(component=ours, timestamp=datetime.fromtimestamp(made_at, UTC)),
        components=parts,
    )
    made.register_dependency(ours, parts)
    return JsonV1Dot6(made).output_as_string(indent=2) + "\n"


def _component(
    kind: str, name: str, version: str, license: str = "", role: ComponentType = ComponentType.LIBRARY
) -> Component:
    group, _, last = name.rpartition("/")
    url = PackageURL(kind, group or None, last, version)
    return Component(
        type=role,
        name=name,
        version=version,
        purl=url,
        bom_ref=url.to_string(),
        licenses=[LicenseFactory().make_from_string(license)] if license else [],
    )


def _license(distribution: metadata.Distribution) -> str:
    """The license as its metadata has it, "" if that has the whole text or none."""
    told = distribution.metadata.get("License-Expression") or distribution.metadata.get("License") or ""
    return "" if "\n" in told else told


def _scripts(project: Path) -> Iterator[tuple[str, str]]:
    """Name and version of each package of npm whose code is in the dashboard's pages."""
    for record in json.loads((project / SCRIPTS).read_text()):
        for package in record.get("packages") or [record["package"]]:
            name, _, version = package.rpartition("@")
            yield name, version
