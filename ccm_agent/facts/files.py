"""
Read custom facts, which administrators write.

The facts are in `facts.json`, `facts.yaml` and `facts.d/*.json|*.yaml`, in the directories of the system and of
the user. Later files are deep-merged over earlier ones, and lists are joined. A file that does not parse, or is
not a regular file, is skipped with a warning in the log, because a typo in one fact must not prevent a node
from converging. Files that end in `.yml` are ignored, as in Choria CCM.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccm_agent.model import merge
from ccm_agent.model.codec import decode_document, decode_json, decode_yaml
from ccm_agent.model.errors import DocumentError, FileError, Place

log = logging.getLogger(__name__)

SYSTEM_DIRECTORY = "/etc/choria/ccm"
USER_SUBDIRECTORY = "choria/ccm"

LIMIT_BYTES = 16 << 20
"""The maximum size of a fact file; hand-written files are far smaller."""


def directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of custom facts: the system's, then the user's, which takes precedence."""
    home = environ.get("HOME", "")
    config = environ.get("XDG_CONFIG_HOME", "") or (f"{home}/.config" if home else "")
    return (SYSTEM_DIRECTORY, f"{config}/{USER_SUBDIRECTORY}") if config else (SYSTEM_DIRECTORY,)


def gather(places: Sequence[str]) -> dict[str, Any]:
    """Return the facts of all files in these directories; {} if there are none. The paths must be absolute."""
    facts: dict[str, Any] = {}
    for place in places:
        if not place.startswith("/"):
            log.error("skipping a facts directory that is not absolute", extra={"directory": place})
            continue
        directory = Path(os.path.normpath(place))
        for path in (directory / "facts.json", directory / "facts.yaml", *_listed(directory / "facts.d")):
            if found := _read(path):
                facts = merge.deep(facts, found)
    return facts


def read_file(path: str) -> dict[str, Any]:
    """
    Read the facts of one file, as for `--facts`; JSON or YAML is detected from its content.

    Raises:
        FileError: The file cannot be read.
        DocumentError: The file does not parse, or is not a mapping.
    """
    facts = decode_document(_content(Path(path), follow=True), path)
    if facts is None:
        return {}
    if not isinstance(facts, dict):
        raise DocumentError("facts must be a mapping of names to values", place=Place(path, 1))
    return facts


def _listed(directory: Path) -> list[Path]:
    if directory.is_symlink():
        log.error("skipping a facts directory that is a symlink", extra={"directory": str(directory)})
        return []
    try:
        paths = sorted(directory.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.suffix.lower() in (".json", ".yaml")]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = _content(path, follow=False)
    except FileNotFoundError:
        return None
    except (OSError, FileError) as err:
        if not path.is_dir() or path.is_symlink():
            log.error(
                "skipping a facts file that cannot be read", extra={"file": str(path), "error": str(err)}
            )
        return None
    decode = decode_json if path.suffix.lower() == ".json" else decode_yaml
    try:
        facts = decode(content, str(path))
    except DocumentError as err:
        log.error("skipping a broken facts file", extra={"file": str(path), "error": str(err)})
        return None
    if facts is None:
        return None
    if not isinstance(facts, dict):
        log.error("skipping a facts file that does not contain a mapping", extra={"file": str(path)})
        return None
    return facts


def _content(path: Path, *, follow: bool) -> bytes:
    # O_NONBLOCK: opening a FIFO must not wait for a writer
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        if follow:
            raise FileError(f"{path}: there is no such file", errno=2) from None
        raise
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", errno=err.errno or 0) from err
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileError(f"{path}: not a regular file")
        with os.fdopen(file, "rb", closefd=False) as stream:
            content = stream.read(LIMIT_BYTES + 1)
    finally:
        os.close(file)
    if len(content) > LIMIT_BYTES:
        raise FileError(f"{path}: more than {LIMIT_BYTES >> 20} MiB of facts")
    return content
