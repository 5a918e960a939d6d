"""The folder of an imported site. The complete folder appears, or none at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ccm_agent.model.codec import encode_yaml
from ccm_agent.model.errors import UsageError
from ccm_agent.model.records.host_import import printable

FOLDERS = {"file": "files", "directory": "directories", "systemd_unit": "units"}
"""The folders with the contents of resources, by type. For all other types, the folder is named after the type."""


class SiteWriter:
    """
    A new folder. It is written as a draft in the same parent directory and then renamed. Blocking.

    Args:
        out: The path of the folder, which must not exist or must be empty.

    Raises:
        UsageError: The path exists and is not an empty folder, or cannot be read.
    """

    def __init__(self, out: str) -> None:
        check_free(out)
        self.path = Path(os.path.normpath(out)).absolute()
        self.draft = Path()

    def __enter__(self) -> SiteWriter:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.draft = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        except OSError as err:
            raise self.error(err) from err
        return self

    def __exit__(self, _kind: type[BaseException] | None, _err: object, _trace: TracebackType | None) -> None:
        shutil.rmtree(self.draft, ignore_errors=True)

    def write_manifest(self, name: str, manifest: Mapping[str, Any], comment: str = "") -> None:
        """
        Write a manifest that only its owner can read. Replaces an earlier one.

        Args:
            name: The path within the folder.
            manifest: The document.
            comment: The comment in the first line.

        Raises:
            UsageError: The manifest cannot be written.
        """
        # a path in the arguments may contain a line break, so it is made printable
        text = f"# {printable(comment)}\n" if comment else ""
        try:
            target = self.draft / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(target, f"{text}{encode_yaml(manifest)}".encode())
        except OSError as err:
            raise self.error(err) from err

    def finish(self) -> None:
        """
        Move the draft to its final name.

        Raises:
            UsageError: The folder is no longer empty, or cannot be written.
        """
        try:
            self.draft.rename(self.path)
        except OSError as err:
            raise self.error(err) from err

    def error(self, err: OSError) -> UsageError:
        """Return the error for a folder that cannot be written."""
        return UsageError(f"--out {self.path}: {err.strerror}")


def check_free(out: str) -> None:
    """
    Check that a folder does not exist, or is empty. Blocking.

    Raises:
        UsageError: The path exists and is not an empty folder, or cannot be read.
    """
    path = Path(os.path.normpath(out))
    try:
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise UsageError(f"--out {out}: exists and is not an empty folder; name another one")
    except OSError as err:
        raise UsageError(f"--out {out}: {err.strerror}") from err


def write_private(path: Path, content: bytes, *, is_program: bool = False) -> None:
    """Write a file that only its owner can read, because a host's files may be private."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700 if is_program else 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def list_resources(resources: Iterable[tuple[str, str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Build the manifest of resources. Consecutive resources of the same type share a list."""
    listed: list[dict[str, list[dict[str, Any]]]] = []
    for kind, name, properties in resources:
        if not listed or kind not in listed[-1]:
            listed.append({kind: []})
        listed[-1][kind].append({name: dict(properties)})
    return {"ccm": {"resources": listed}}
