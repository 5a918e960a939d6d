"""The files that `ccm import` writes: a manifest, and the contents of files in folders next to it."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ccm_agent.clikit.site_writer import FOLDERS, SiteWriter, list_resources, write_private
from ccm_agent.resources.existing import ExistingResource

MANIFEST = "manifest.yaml"


class HostSiteWriter:
    """
    Writes a site; see `SiteWriter`.

    Args:
        out: The folder. It must not exist, or must be empty.
        comment: The first line of the manifest.
    """

    def __init__(self, out: str, comment: str) -> None:
        self._writer = SiteWriter(out)
        self._comment = comment
        self._stored: set[str] = set()

    @property
    def manifest(self) -> str:
        """The path of the manifest before `finish` moves the folder."""
        return str(self._writer.draft / MANIFEST)

    def __enter__(self) -> HostSiteWriter:
        self._writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: object, trace: TracebackType | None) -> None:
        self._writer.__exit__(kind, err, trace)

    def write(self, resources: Mapping[tuple[str, str], ExistingResource]) -> None:
        """Write the manifest and the contents. Replaces the files of an earlier call."""
        for folder in self._stored:
            shutil.rmtree(self._writer.draft / folder, ignore_errors=True)
        try:
            listed = [(kind, name, self._properties(kind, one)) for (kind, name), one in resources.items()]
        except OSError as err:
            raise self._writer.error(err) from err
        self._writer.write_manifest(MANIFEST, list_resources(listed), self._comment)

    def finish(self) -> None:
        """Move the folder to its final name."""
        self._writer.finish()

    def _properties(self, kind: str, resource: ExistingResource) -> Mapping[str, Any]:
        if not resource.has_source:
            return resource.properties
        return {**resource.properties, "source": self._store(kind, resource)}

    def _store(self, kind: str, resource: ExistingResource) -> str:
        folder = FOLDERS.get(kind, kind)
        self._stored.add(folder)
        source = f"{folder}/{resource.name.lstrip('/')}"
        target = self._writer.draft / source
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if resource.content is not None:
            write_private(target, resource.content)
            return source
        target.mkdir(mode=0o700, exist_ok=True)
        for entry in resource.tree:
            if entry.kind == "directory":
                (target / entry.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                write_private(target / entry.path, entry.content, is_program=bool(entry.mode & stat.S_IXUSR))
        return source
