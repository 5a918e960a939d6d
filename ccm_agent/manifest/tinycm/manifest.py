"""
TinyCM's manifests: the first YAML document contains constants, and each further document is a definition.

    global: {domain: example.com}
    hosts:
      - filter: .*\\.office\\.example\\.com
        constants: {domain: office.example.com}
    ---
    file: {name: /etc/resolv.conf, contents: "search {domain}", interpolate: true}

A header without `global` and `hosts` contains only constants. A file may be defined at the top of its document,
without `file:`.

Source: pythonhosted.org/tinycm, "The manifest and module format".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model import codec
from ccm_agent.model.errors import DocumentError, InputError, ManifestError, Place
from ccm_agent.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from ccm_agent.manifest.document import ManifestDocument

KEYS = {
    "file": (
        "name",
        "ensure",
        "type",
        "contents",
        "interpolate",
        "encoding",
        "owner",
        "group",
        "permission-mask",
        "after",
    ),
    "package": ("name", "ensure", "packagemanager", "after"),
}
"""The keys of each supported type of definition."""

_HEADER_KEYS = ("global", "host", "hosts", "plugins", "arguments")
_DEFINITION_KEYS = ("file", "package", "user", "git", "link", "import")
_SEPARATOR = re.compile(r"^---(?=\s|$)[^\S\n]*", re.MULTILINE)


class ManifestPart(Struct, frozen=True, kw_only=True):
    """
    One document of a manifest.

    Attributes:
        value: The decoded document.
        text: Its text, padded with empty lines at the start, so line numbers match the manifest.
        line: The first line of the document.
        source: The manifest's name.
        is_flat: Whether the document has the keys of a file at its top level. In `value` they are below `file`.
    """

    value: Mapping[str, Any]
    text: str
    line: int
    source: str
    is_flat: bool = False

    def fail(self, message: str, *path: str | int, kind: type[InputError] = DocumentError) -> NoReturn:
        """Raise an error at the place of a value in this document."""
        if self.is_flat:
            path = path[1:]
        place = codec.locate(self.text, path, self.source) if path else Place(self.source, self.line)
        raise kind(message, place=place)


def read_parts(document: ManifestDocument) -> tuple[ManifestPart | None, list[ManifestPart]]:
    """
    Return the header, or None if there is no header, and the definitions.

    Raises:
        DocumentError: The manifest is not YAML, or a document is not a mapping.
    """
    parts = list(filter(None, (_read(text, line, document.name) for text, line in _split(document.text))))
    if not parts:
        raise ManifestError("the manifest is empty: it needs a definition", place=Place(document.name))
    first = parts[0]
    if "name" in first.value:
        header, parts[0] = _divided(first)
    elif any(key in _DEFINITION_KEYS for key in first.value):
        header = None
    else:
        header = parts.pop(0)
    return header, [_flat(part) for part in parts]


def _divided(first: ManifestPart) -> tuple[ManifestPart | None, ManifestPart]:
    """
    Return the constants above a flat definition in the same document, or None without constants, and the
    definition.
    """
    constants: dict[str, Any] = {}
    for key, value in first.value.items():
        if key == "name":
            break
        if key.replace("_", "-") not in KEYS["file"] and key != "if":
            constants[key] = value
    if not constants:
        return None, first
    body = {key: value for key, value in first.value.items() if key not in constants}
    return replace(first, value=constants), replace(first, value=body)


def _flat(part: ManifestPart) -> ManifestPart:
    """
    Convert a document with the keys of a file at its top level to a definition of type `file`; other
    documents are unchanged.
    """
    kind = part.value.get("type")
    if "name" not in part.value or (isinstance(kind, str) and kind in _DEFINITION_KEYS):
        return part
    return replace(part, value={"file": part.value}, is_flat=True)


def _split(text: str) -> list[tuple[str, int]]:
    """Return the text of each document, padded with empty lines, and its first line."""
    marks = [0, *(found.end() for found in _SEPARATOR.finditer(text))]
    ends = [*(found.start() for found in _SEPARATOR.finditer(text)), len(text)]
    found = []
    for begin, end in zip(marks, ends, strict=True):
        before = text.count("\n", 0, begin)
        body = text[begin:end]
        empty = len(body) - len(body.lstrip())
        found.append(("\n" * before + body, before + 1 + body.count("\n", 0, empty)))
    return found


def _read(text: str, line: int, source: str) -> ManifestPart | None:
    value = codec.decode_yaml(text, source)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise DocumentError(
            "each document of a TinyCM manifest must be a mapping, not a list or text",
            place=Place(source, line),
        )
    return ManifestPart(value=value, text=text, line=line, source=source)


def collect_constants(header: ManifestPart | None, hostname: Callable[[], str]) -> dict[str, Any]:
    """
    Return the constants that apply on this host.

    Args:
        header: The first document.
        hostname: Returns the name of this host; called only if there are filters.

    Raises:
        InputError: The header is invalid.
    """
    if header is None:
        return {}
    if not any(key in _HEADER_KEYS for key in header.value):
        for key, value in header.value.items():
            if isinstance(value, (dict, list)) and (hint := did_you_mean(key, _HEADER_KEYS)):
                header.fail(f"unknown key `{key}` in the header{hint}", key)
        return dict(header.value)
    for key in header.value:
        if key not in _HEADER_KEYS:
            hint = did_you_mean(key, (*_HEADER_KEYS, *_DEFINITION_KEYS))
            header.fail(f"unknown key `{key}` in the header{hint}", key)
    if "arguments" in header.value:
        header.fail("this is a TinyCM module, not a manifest", "arguments", kind=ManifestError)
    if header.value.get("plugins"):
        header.fail("TinyCM's plugins are not supported: remove `plugins`", "plugins", kind=ManifestError)
    if "host" in header.value and "hosts" in header.value:
        header.fail("`host` and `hosts` are aliases; merge them", "hosts")
    constants = dict(_mapping(header, header.value.get("global"), "global"))
    key = "hosts" if "hosts" in header.value else "host"
    filters = header.value.get(key)
    if filters is None:
        return constants
    if not isinstance(filters, list):
        header.fail(f"`{key}` must be a list: begin each filter with `- `", key)
    name = hostname() if filters else ""
    for number, one in enumerate(filters):
        if not isinstance(one, dict) or set(one) != {"filter", "constants"}:
            header.fail(f"each item of `{key}` must be a mapping with `filter` and `constants`", key, number)
        if _matches(header, one["filter"], name, (key, number, "filter")):
            constants.update(_mapping(header, one["constants"], key, number, "constants"))
    return constants


def _mapping(header: ManifestPart, value: Any, *path: str | int) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        header.fail(f"`{path[-1]}` must be a mapping of constants", *path)
    return value


def _matches(header: ManifestPart, pattern: Any, name: str, path: tuple[str | int, ...]) -> bool:
    """Whether a filter matches at the beginning of the name, as in TinyCM."""
    from ccm_agent.templates.regex import PatternError, compile_pattern

    if not isinstance(pattern, str):
        header.fail("`filter` must be text: put it in quotes", *path)
    try:
        return compile_pattern(rf"^(?:{pattern})").matches(name)
    except PatternError as err:
        header.fail(f"the filter `{pattern}` is not a regular expression: {err}", *path)
