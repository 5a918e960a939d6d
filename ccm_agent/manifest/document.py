"""A manifest's document, before its data and templates are resolved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from msgspec import Struct

from ccm_agent.model import codec
from ccm_agent.model.data import Hierarchy, Merge
from ccm_agent.model.errors import DocumentError, ExpressionError, InputError, ManifestError, Place
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.scalars import key_text
from ccm_agent.model.manifest import Manifest
from ccm_agent.model.suggestions import did_you_mean, nearest

Path = tuple[str | int, ...]
"""Keys and indexes from a document's root to a value in it."""

_STEP = lazy_pattern(r'\.([\w-]+)|\[(\d+)\]|\["(.{0,256}?)"\](?=[.\[]|$)')

EMPTY = "the manifest is empty: it needs a `ccm` section with `resources`"


class ManifestDocument(Struct, frozen=True, kw_only=True):
    """
    A manifest as read.

    Attributes:
        text: The text of the manifest.
        name: Its name in errors, log lines and events.
        directory: The base of relative paths; absolute.
        digest: SHA-256 (hex) of the manifest, or of the bundle that contained it.
    """

    text: str
    name: str
    directory: str
    digest: str


ReadDocument = Callable[[str, str], object]
"""A function that decodes a document from its text and its name for errors."""


def make_document(data: bytes, name: str, directory: str, digest: str = "") -> ManifestDocument:
    """
    Create a document from its bytes.

    Raises:
        DocumentError: The bytes are not UTF-8.
    """
    return ManifestDocument(
        text=codec.as_text(data, name),
        name=name,
        directory=directory,
        digest=digest or hashlib.sha256(data).hexdigest(),
    )


def build_manifest(
    document: ManifestDocument, read: ReadDocument = codec.decode_manifest
) -> tuple[Manifest, Mapping[str, Any]]:
    """
    Return a manifest's sections, and the values of the whole document.

    Raises:
        InputError: The document cannot be decoded, or is not a manifest.
    """
    root = read_root(document, read)
    if root.get("ccm") is None:
        raise no_section(root, document)
    manifest = codec.convert_as(as_written(root), Manifest, document.name, document.text)
    for err in hierarchy_errors(root, document):
        raise err
    return manifest, root


def read_root(document: ManifestDocument, read: ReadDocument = codec.decode_manifest) -> Mapping[str, Any]:
    """
    Return the values of a manifest's document.

    Raises:
        InputError: The document cannot be decoded, or is not a mapping.
    """
    root = read(document.text, document.name)
    if root is None:
        raise ManifestError(EMPTY, place=Place(document.name))
    if not isinstance(root, dict):
        raise ManifestError(
            "a manifest must be a mapping with a `ccm` section, not a list or text",
            place=Place(document.name, 1),
        )
    return root


def no_section(root: Mapping[str, Any], document: ManifestDocument) -> ManifestError:
    """Build the error for a manifest without a `ccm` section, with the most similar key."""
    if "resources" in root:
        place = codec.locate(document.text, ("resources",), document.name)
        return ManifestError(
            "`resources` belongs under `ccm:`: write `ccm:` above it and indent it", place=place
        )
    near = nearest("ccm", [key for key in root if key not in Manifest.__struct_fields__])
    hint = f"; did you mean `ccm` instead of `{near}`?" if near else ""
    return ManifestError(
        f"the manifest has no `ccm` section with `resources`{hint}", place=Place(document.name)
    )


def as_written(root: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the document with its `ccm` section as in the reference: keys without a value are omitted, and
    messages are text.
    """
    section = root["ccm"]
    if not isinstance(section, dict):
        return dict(root)
    read = {
        key: key_text(value) if key.endswith("_message") and isinstance(value, (bool, int, float)) else value
        for key, value in section.items()
        if value is not None
    }
    return {**root, "ccm": read}


def hierarchy_errors(root: Mapping[str, Any], document: ManifestDocument) -> Iterator[DocumentError]:
    """
    Yield the errors in `hierarchy` and `overrides`, including errors that hiera ignores while no override
    matches.
    """
    hierarchy, overrides = root.get("hierarchy"), root.get("overrides")
    if isinstance(hierarchy, dict):
        for key in hierarchy:
            if key not in Hierarchy.__struct_fields__:
                place = codec.locate(document.text, ("hierarchy", key), document.name)
                hint = did_you_mean(key, Hierarchy.__struct_fields__)
                yield DocumentError(f"unknown key `{key}`{hint}", place=place)
        word = hierarchy.get("merge")
        if isinstance(word, str) and word not in tuple(Merge):
            place = codec.locate(document.text, ("hierarchy", "merge"), document.name)
            yield DocumentError(f"unknown merge `{word}`: write `first` or `deep`", place=place)
    if isinstance(overrides, dict):
        for name, layer in overrides.items():
            if not isinstance(layer, dict):
                place = codec.locate(document.text, ("overrides", name), document.name)
                yield DocumentError(
                    f"the override `{name}` must be a mapping; fill it or remove it", place=place
                )


def place_error(err: InputError, document: ManifestDocument, path: Path) -> NoReturn:
    """Raise an error again with its place in the manifest, unless it already has a place."""
    if err.place is not None and (err.place.source or err.place.line):
        raise err
    place = codec.locate(document.text, path, document.name)
    if isinstance(err, ExpressionError):
        raise type(err)(err.message, expression=err.expression, offset=err.offset, place=place) from err
    raise type(err)(err.message, place=place) from err


def top_level_warnings(root: Mapping[str, Any], document: ManifestDocument) -> list[tuple[Place, str]]:
    """Return a place and a warning for each unknown key at the top of a manifest."""
    known = Manifest.__struct_fields__
    found = []
    for key in root:
        if key not in known and not key.startswith("x-"):
            place = codec.locate(document.text, (key,), document.name)
            hint = did_you_mean(key, known) or "; for your own keys, use the prefix `x-`"
            found.append((place, f"unknown key `{key}`{hint}"))
    return found


def parse_path(path: str) -> Path:
    """Return the steps of a path that is written as text, such as `$.require[0]`."""
    return tuple(int(found[2]) if found[2] else found[1] or found[3] for found in _STEP.finditer(path))
