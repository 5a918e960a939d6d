"""Replace the `gossfile` entries of goss rules with the rules of the named files."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import Any

from ccm_agent.model.errors import DocumentError, FileError, PropertyError

GOSSFILE = "gossfile"
"""The key that lists files with more rules."""
FILE_LIMIT_BYTES = 1 << 20
"""Rules files larger than this are not read."""
FILES_LIMIT = 200
"""The maximum number of files that one check reads, including nested files. The limit also ends inclusion loops."""
_PATTERN = frozenset("*?[")

ReadFile = Callable[[str], Awaitable[bytes]]
"""Reads a file by its absolute path. Raises FileError, or PolicyError if the node's policy forbids reading it."""


def names_files(rules: Any) -> bool:
    """Whether the rules refer to other rules files."""
    if isinstance(rules, str):
        return GOSSFILE in rules
    return isinstance(rules, dict) and GOSSFILE in rules


async def with_files(rules: Any, read: ReadFile) -> dict[str, Any]:
    """
    Return the rules merged with those of the referenced files. A rule of a file replaces one of the same kind and name.

    Raises:
        PropertyError: A file cannot be read, or is not a rules file.
    """
    return await _Reader(read).merged(read_mapping(rules), "")


class _Reader:
    def __init__(self, read: ReadFile) -> None:
        self._read = read
        self._count = 0

    async def merged(self, rules: dict[str, Any], directory: str) -> dict[str, Any]:
        """Merge rules with those of the files that they reference. `directory` is "" for the rules of a manifest."""
        merged = {kind: dict(own) if isinstance(own, dict) else own for kind, own in rules.items()}
        files = merged.pop(GOSSFILE, None)
        for path in gossfiles(files, directory):
            inner = await self._rules_of(path)
            for kind, own in inner.items():
                before = merged.get(kind)
                both = isinstance(own, dict) and isinstance(before, dict)
                merged[kind] = {**before, **own} if both and before is not None else own
        return merged

    async def _rules_of(self, path: str) -> dict[str, Any]:
        self._count += 1
        if self._count > FILES_LIMIT:
            raise PropertyError(
                f"`{GOSSFILE}`: more than {FILES_LIMIT} files; does one of them include itself?"
            )
        try:
            text = (await self._read(path)).decode()
        except FileError as err:
            raise PropertyError(f"no matched files were found: {path}: {err.message}") from err
        except UnicodeDecodeError as err:
            raise PropertyError(f"`{GOSSFILE}` {path} is not UTF-8") from err
        if "{{" in text:
            raise PropertyError(f"`{GOSSFILE}` {path} contains a goss template, which is not rendered here")
        try:
            rules = read_mapping(text)
        except (PropertyError, DocumentError) as err:
            raise PropertyError(f"could not read json data in {path}: {err.message}") from err
        return await self.merged(rules, posixpath.dirname(path))


def gossfiles(files: Any, directory: str) -> list[str]:
    """
    Return the sorted absolute paths in the value of a `gossfile` key, without entries that have `skip: true`.

    Args:
        files: The value.
        directory: The base of relative paths; "" to refuse them.

    Raises:
        PropertyError: The value is not valid.
    """
    if files is None:
        return []
    if not isinstance(files, dict):
        raise PropertyError(
            f"`{GOSSFILE}` must be a mapping from paths to options, such as {{/etc/goss.yaml: {{}}}}"
        )
    return [
        _path(str(name), options, directory)
        for name, options in sorted(files.items())
        if not (isinstance(options, dict) and options.get("skip") is True)
    ]


def _path(name: str, options: Any, directory: str) -> str:
    if not isinstance(options, dict):
        raise PropertyError(f"`{GOSSFILE}` `{name}`: the options must be a mapping, such as {{}}")
    for key in options:
        if key not in ("file", "skip", "title", "meta"):
            raise PropertyError(f"`{GOSSFILE}` `{name}`: there is no `{key}`")
    path = str(options.get("file") or name)
    if not path.startswith("/") and not directory:
        # Choria CCM resolves relative paths in the directory for temporary files
        raise PropertyError(f"no matched files were found: `{GOSSFILE}` {path} must be an absolute path")
    if not _PATTERN.isdisjoint(path):
        raise PropertyError(f"`{GOSSFILE}` {path}: patterns are not supported; name each file")
    return posixpath.normpath(posixpath.join(directory, path))


def read_mapping(raw: Any) -> dict[str, Any]:
    """
    Return rules as a mapping from kinds to rules.

    Args:
        raw: The mapping, or its text in YAML or JSON.

    Raises:
        PropertyError: The value is not a mapping.
    """
    if isinstance(raw, str):
        from ccm_agent.model import codec

        try:
            raw = codec.decode_document(raw)
        except DocumentError as err:
            raise PropertyError(f"`goss_rules` cannot be read: {err.message}") from err
    if not isinstance(raw, dict):
        raise PropertyError("`goss_rules` must be a mapping from kinds such as `file` to expectations")
    return raw
