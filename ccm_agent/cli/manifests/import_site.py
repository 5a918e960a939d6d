"""The folder that `ccm import` writes: a manifest, and the contents of files beside it. It appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ccm_agent.model import codec
from ccm_agent.model.errors import UsageError
from ccm_agent.resources.existing import ExistingResource

MANIFEST = "manifest.yaml"
FOLDERS = {"file": "files", "directory": "directories", "systemd_unit": "units"}
"""Where the contents of a type are; those of another type are in a folder with its name."""


class SiteWriter:
    """
    Writes into a temporary folder, which gets its name at the end.

    Args:
        out: The folder; it must not exist, or be empty.
        comment: The first line of the manifest.
    """

    def __init__(self, out: str, comment: str) -> None:
        self._out = Path(os.path.normpath(out)).absolute()
        # a path among the arguments may contain a line break
        self._comment = "".join(one if one.isprintable() else "\ufffd" for one in comment)
        self._draft = Path()
        self._folders: set[str] = set()
        try:
            if self._out.is_symlink() or (self._out.exists() and any(self._out.iterdir())):
                raise UsageError(f"--out {out}: exists and is not an empty folder; name another one")
        except OSError as err:
            raise UsageError(f"--out {out}: {err.strerror}") from err

    @property
    def manifest(self) -> str:
        """The path of the manifest until the end."""
        return str(self._draft / MANIFEST)

    def __enter__(self) -> SiteWriter:
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            self._draft = Path(tempfile.mkdtemp(prefix=f".{self._out.name}.", dir=self._out.parent))
        except OSError as err:
            raise UsageError(f"--out {self._out}: {err.strerror}") from err
        return self

    def __exit__(self, _kind: type[BaseException] | None, _err: object, _trace: TracebackType | None) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)

    def write(self, resources: Mapping[tuple[str, str], ExistingResource]) -> None:
        """Write the manifest and the contents; what an earlier call wrote is replaced."""
        try:
            for folder in self._folders:
                shutil.rmtree(self._draft / folder, ignore_errors=True)
            listed: list[dict[str, list[dict[str, Any]]]] = []
            for (kind, name), resource in resources.items():
                properties = dict(resource.properties)
                if resource.has_source:
                    properties["source"] = self._store(kind, resource)
                if not listed or kind not in listed[-1]:
                    listed.append({kind: []})
                listed[-1][kind].append({name: properties})
            text = codec.encode_yaml({"ccm": {"resources": listed}})
            _write(self._draft / MANIFEST, f"# {self._comment}\n{text}".encode())
        except OSError as err:
            raise UsageError(f"--out {self._out}: {err.strerror}") from err

    def finish(self) -> None:
        """Move the folder to its final name."""
        try:
            self._draft.rename(self._out)
        except OSError as err:
            raise UsageError(f"--out {self._out}: {err.strerror}") from err

    def _store(self, kind: str, resource: ExistingResource) -> str:
        folder = FOLDERS.get(kind, kind)
        self._folders.add(folder)
        source = f"{folder}/{resource.name.lstrip('/')}"
        target = self._draft / source
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if resource.content is not None:
            _write(target, resource.content)
            return source
        target.mkdir(mode=0o700, exist_ok=True)
        for entry in resource.tree:
            if entry.kind == "directory":
                (target / entry.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                _write(target / entry.path, entry.content, is_program=bool(entry.mode & stat.S_IXUSR))
        return source


def _write(path: Path, content: bytes, *, is_program: bool = False) -> None:
    """Write a file that only its owner can read, because the host's files may be private."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700 if is_program else 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
