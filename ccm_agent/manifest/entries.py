"""
The entries of a list of resources, in both of their YAML forms, with defaults merged in.

    - package: {name: zsh, ensure: present}          one resource
    - package:                                       several, by name, with defaults for all of this list
        - defaults: {ensure: present}
        - zsh: {}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ccm_agent.manifest.document import Path
from ccm_agent.manifest.properties import may_be_none
from ccm_agent.model import codec
from ccm_agent.model.errors import DocumentError, InputError, ManifestError, Place
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import AnyType

DEFAULTS = "defaults"


class EntryReader:
    """
    Reads the entries of one document's list.

    Args:
        catalog: The known types.
        text, source: The document, for the place of errors. Without a document, there is no text.
    """

    def __init__(self, catalog: Catalog, text: str | None, source: str) -> None:
        self._catalog = catalog
        self._source = source
        self._text = text

    def instances(self, entry: Any, path: Path) -> Iterator[tuple[AnyType, dict[str, Any], Path]]:
        """
        Yield the type, raw properties (with `name`) and path of each resource in one entry of the list.

        Raises:
            InputError: The entry has another form, or its type is unknown.
        """
        if entry is None:
            return
        if not isinstance(entry, dict):
            self._fail("a resource must be a mapping of its type to its properties, such as `file: …`", path)
        for type_name, body in entry.items():
            try:
                kind = self._kind(type_name, (*path, type_name))
                self._check_body(kind, body, (*path, type_name))
            except InputError as err:
                self.refuse(err)
                continue
            for properties, place in self._instances(kind, body, (*path, type_name)):
                yield kind, properties, place

    def refuse(self, err: InputError) -> None:
        """
        Handle an error in a part of an entry; reading continues if this method returns.

        Raises:
            InputError: The same error.
        """
        raise err

    def _kind(self, name: str, path: Path) -> AnyType:
        try:
            return self._catalog.find(name)
        except ManifestError as err:
            self._fail(err.message, path, ManifestError)

    def _check_body(self, kind: AnyType, body: Any, path: Path) -> None:
        if isinstance(body, dict):
            self._check_single(kind, body, path)
        elif not isinstance(body, list) or not body:
            what = "nothing" if body is None or body == [] else "this"
            self._fail(
                f"`{kind.name}` needs properties, or a list of names with properties, not {what}", path
            )

    def _instances(
        self, kind: AnyType, body: dict[str, Any] | list[Any], path: Path
    ) -> Iterator[tuple[dict[str, Any], Path]]:
        """Yield the raw properties of each resource under a type, including its name, and the path to them."""
        if isinstance(body, dict):
            yield body, path
            return
        defaults = self._defaults(body, path)
        for number, item in enumerate(body):
            try:
                name, own = self._named(item, (*path, number))
            except InputError as err:
                self.refuse(err)
                continue
            if name != DEFAULTS:
                yield _merged(kind, defaults, own, name), (*path, number, name)

    def _check_single(self, kind: AnyType, body: dict[str, Any], path: Path) -> None:
        """
        Refuse several named resources without a list. Their names would otherwise be reported as unknown
        properties.
        """
        known = {*kind.properties.__struct_encode_fields__, *kind.rules.aliases}
        if body and all(key not in known and isinstance(own, dict | None) for key, own in body.items()):
            first = next(iter(body))
            self._fail(f"names under `{kind.name}` must be a list: write `- {first}:`", (*path, first))

    def _defaults(self, body: list[Any], path: Path) -> dict[str, Any]:
        found = [n for n, item in enumerate(body) if isinstance(item, dict) and DEFAULTS in item]
        try:
            if len(found) > 1:
                self._fail("`defaults` appears twice in this list; merge them", (*path, found[1]))
            return self._named(body[found[0]], (*path, found[0]))[1] if found else {}
        except InputError as err:
            self.refuse(err)
            return {}

    def _named(self, item: Any, path: Path) -> tuple[str, dict[str, Any]]:
        if not isinstance(item, dict) or len(item) != 1:
            self._fail(
                "each item of this list must be one name with its properties, as in `- zsh: {ensure: present}`",
                path,
            )
        name, own = next(iter(item.items()))
        if own is not None and not isinstance(own, dict):
            self._fail(f"`{name}` needs a mapping of properties, not a list or text", (*path, name))
        return name, own or {}

    def _fail(self, message: str, path: Path, kind: type[InputError] = DocumentError) -> NoReturn:
        raise kind(message, place=self._place(path))

    def _place(self, path: Path) -> Place:
        if self._text is None:
            return Place(self._source, path=codec.path_text(path) if path else "")
        return codec.locate(self._text, path, self._source)


def _merged(kind: AnyType, defaults: dict[str, Any], own: dict[str, Any], name: str) -> dict[str, Any]:
    """
    Merge a resource's properties over the defaults. Each property replaces the default; `control` is merged.

    A key without a value keeps the default. For a property that may be None, such as a file's `content`, it
    removes the default.
    """
    merged = {**defaults, **own}
    control = defaults.get("control")
    if isinstance(control, dict) and isinstance(own.get("control"), dict):
        merged["control"] = {**control, **_with_value(own["control"])}
    for key, value in defaults.items():
        if key in own and own[key] is None and not may_be_none(kind, key):
            merged[key] = value
    merged["name"] = name
    return merged


def _with_value(written: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in written.items() if value is not None}
