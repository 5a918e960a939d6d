"""Write the site of an import: its manifests, and the contents of files next to the manifest of their layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ccm_agent.clikit.site_writer import FOLDERS, SiteWriter, list_resources, write_private
from ccm_agent.model.records.host_import import FoundResource
from ccm_ctl.fleet.content import MANIFEST_FILE
from ccm_ctl.fleet.imports.site_layers import SiteLayer


def save_site(
    writer: SiteWriter,
    layers: Sequence[SiteLayer],
    contents: Mapping[str, bytes],
    manifest: Mapping[str, Any],
    comment: str,
) -> None:
    """
    Write a site. Blocking.

    Args:
        writer: Writes the folder of the site.
        layers: The layers of the site. Their resources were accepted.
        contents: The contents of the resources' files, by digest.
        manifest: The main manifest of the site.
        comment: The comment in the first line of the main manifest.

    Raises:
        UsageError: The site cannot be written. Its folder then does not appear.
    """
    with writer:
        for layer in layers:
            for kind, found in groupby(layer.resources, key=lambda one: one.section):
                resources = [
                    (one.type, one.name, _stored(writer, layer.path, one, contents)) for one in found
                ]
                writer.write_manifest(f"{layer.path}/{kind}.yaml", list_resources(resources))
        writer.write_manifest(MANIFEST_FILE, manifest, comment)
        writer.finish()


def _stored(
    writer: SiteWriter, layer: str, one: FoundResource, contents: Mapping[str, bytes]
) -> dict[str, Any]:
    """Write the files of a resource, and return its properties with the path of the files as `source`."""
    if not one.contents:
        return one.properties
    source = f"{FOLDERS[one.type]}/{one.name.removeprefix('/')}"
    top = writer.draft / layer / source
    try:
        for each in one.contents:
            target = top / each.path if each.path else top
            _make_folder(target.parent if each.sha256 else target)
            if each.sha256:
                write_private(target, contents[each.sha256], is_program=each.is_program)
    except OSError as err:
        raise writer.error(err) from err
    return {**one.properties, "source": source}


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
