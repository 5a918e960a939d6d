"""The changes in a revision of a data document, value by value and without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.model import codec
from ccm_agent.model.formats.json_text import json_safe
from ccm_agent.model.secret import MASK
from ccm_ctl.fleet.data.hiera_explain import mask_data, masker_of

VALUE_CHARACTERS = 2000
"""The maximum number of characters shown of one value."""
_MISSING = object()


class DocumentChange(Struct, frozen=True, kw_only=True):
    """
    A value that differs between two revisions.

    Attributes:
        path: The path of the value in the document, such as `data.db.port`.
        kind: `added`, `removed` or `changed`.
        before, after: The values, with secrets masked. None: there is no value.
    """

    path: str
    kind: str
    before: Any = None
    after: Any = None


def find_changes(before: str | None, after: str | None, *, is_protected: bool) -> list[DocumentChange]:
    """
    Return the values that differ between two texts of a document, in the order of the document. Blocking.

    Args:
        before, after: The texts. None: there is no document.
        is_protected: Whether all values are masked.

    Raises:
        DocumentError: A text cannot be parsed.
    """
    old, new = _read(before), _read(after)
    secret = tuple({*_secret_keys(old), *_secret_keys(new)})
    # use one masker for both texts, because a value may have become a secret later
    masker = masker_of([*_layers(old), *_layers(new)], secret)
    shown_old, shown_new = masker.value(_masked(old, secret)), masker.value(_masked(new, secret))
    found = []
    for path in dict.fromkeys((*_paths(old, ()), *_paths(new, ()))):
        was, now = _at(old, path), _at(new, path)
        if was is not _MISSING and now is not _MISSING and was == now and type(was) is type(now):
            continue
        found.append(
            DocumentChange(
                path=json_safe(".".join(map(masker.text, path))),
                kind="added" if was is _MISSING else "removed" if now is _MISSING else "changed",
                before=None if was is _MISSING else MASK if is_protected else _shown(_at(shown_old, path)),
                after=None if now is _MISSING else MASK if is_protected else _shown(_at(shown_new, path)),
            )
        )
    return found


def _read(text: str | None) -> dict[str, Any]:
    root = codec.decode_document(text, "the document") if text and text.strip() else {}
    return root if isinstance(root, dict) else {"": root}


def _secret_keys(root: Mapping[str, Any]) -> list[str]:
    hierarchy = root.get("hierarchy")
    keys = hierarchy.get("secret") if isinstance(hierarchy, dict) else None
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def _layers(root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a document that contain keys of data."""
    for name, value in root.items():
        if name == "data" and isinstance(value, dict):
            yield value
        elif name == "overrides" and isinstance(value, dict):
            yield from (layer for layer in value.values() if isinstance(layer, dict))
        elif name != "hierarchy":
            yield {name: value}


def _masked(root: Mapping[str, Any], secret: tuple[str, ...]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in root.items():
        if name == "data" and isinstance(value, dict):
            shown[name] = mask_data(value, secret)
        elif name == "overrides" and isinstance(value, dict):
            shown[name] = {
                one: mask_data(layer, secret) if isinstance(layer, dict) else layer
                for one, layer in value.items()
            }
        else:
            shown |= {name: value} if name == "hierarchy" else mask_data({name: value}, secret)
    return shown


def _paths(value: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value, except of mappings that are not empty."""
    for name, inner in value.items():
        path = (*above, str(name))
        if isinstance(inner, dict) and inner:
            yield from _paths(inner, path)
        else:
            yield path


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if value == MASK:
            return MASK
        if not isinstance(value, dict) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _shown(value: Any) -> Any:
    if value is _MISSING:  # the key itself is a secret
        return MASK
    text = value if isinstance(value, str) else ""
    return f"{text[:VALUE_CHARACTERS]} …" if len(text) > VALUE_CHARACTERS else value
