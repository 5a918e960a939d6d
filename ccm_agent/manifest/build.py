"""
The raw list of resources to declared ones: both YAML forms, defaults, templates, properties, checks.

    - package: {name: zsh, ensure: present}          one resource
    - package:                                       several, by name, with defaults for all of this list
        - defaults: {ensure: present}
        - zsh: {}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from ccm_agent.manifest.document import Path
from ccm_agent.manifest.expressions import (
    Expressions,
    has_markers,
    holds_markers,
    render,
    render_checks,
    render_entries,
    render_keys,
)
from ccm_agent.manifest.properties import make_properties, may_be_none
from ccm_agent.manifest.validate import check_properties
from ccm_agent.model import codec
from ccm_agent.model.errors import DocumentError, ExpressionError, InputError, ManifestError, Place
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import AnyType
from ccm_agent.resources.converge import ResolvedResource

DEFAULTS = "defaults"

_RENDER = {"health_checks": render_checks, "register_when_stable": render_entries}

_STEP = re.compile(r'\.([A-Za-z_]\w*)|\[(\d+)\]|\["(.*?)"\]')


class ResourceBuilder:
    """
    Makes the resources of one document.

    Args:
        catalog: The types there are.
        expressions: Renders what is not deferred.
        text, source: The document, for the place of errors; no text where there is no document.
    """

    def __init__(self, catalog: Catalog, expressions: Expressions, text: str | None, source: str) -> None:
        self._catalog = catalog
        self._expressions = expressions
        self._text = text
        self._source = source
        # an escape could hide an opener from this look at the whole, so it counts as one
        self._is_templated = text is None or has_markers(text) or "\\" in text

    def expand(self, raw: list[Any], path: Path) -> list[ResolvedResource]:
        """
        The resources of a list, in order.

        Raises:
            InputError: With the place of what is wrong.
        """
        declared: list[ResolvedResource] = []
        for number, entry in enumerate(raw):
            for kind, properties, place in self.instances(entry, (*path, number)):
                declared.append(self.declare(kind, properties, place, len(declared)))
        return declared

    def instances(self, entry: Any, path: Path) -> Iterator[tuple[AnyType, dict[str, Any], Path]]:
        """
        Type and raw properties of each resource in one entry of the list, `name` among them, and the way to them.

        Raises:
            InputError: The entry has neither of the two forms, or its type is unknown.
        """
        if entry is None:
            return
        if not isinstance(entry, dict):
            self._fail("a resource is a mapping from its type to its properties, such as `file: …`", path)
        for type_name, body in entry.items():
            kind = self._kind(type_name, (*path, type_name))
            for properties, place in self._instances(kind, body, (*path, type_name)):
                yield kind, properties, place

    def declare(self, kind: AnyType, raw: dict[str, Any], path: Path, index: int = 0) -> ResolvedResource:
        """
        One resource from its raw properties.

        Raises:
            InputError: With the place of what is wrong.
        """
        pending: tuple[str, ...] = ()
        if self._is_templated:
            raw, pending = self._rendered(kind, raw, path)
        try:
            wanted = make_properties(kind, raw, self._source, self._text, path)
            check_properties(kind, wanted)
            if kind.check_in_manifest is not None and self._text is not None:
                kind.check_in_manifest(wanted)
            if kind.finalize is not None and not pending:
                kind.finalize(wanted)
        except InputError as err:
            self._replace(err, f"{kind.name}#{raw.get('name') or '?'}", path)
        return ResolvedResource(kind=kind, wanted=wanted, pending=pending, index=index, path=path)

    def _kind(self, name: str, path: Path) -> AnyType:
        try:
            return self._catalog.find(name)
        except ManifestError as err:
            self._fail(err.message, path, ManifestError)

    def _instances(self, kind: AnyType, body: Any, path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
        """The raw properties of each resource under a type, name among them, and the way to them."""
        if isinstance(body, dict):
            self._check_single(kind, body, path)
            yield body, path
            return
        if not isinstance(body, list) or not body:
            what = "nothing" if body is None or body == [] else "this"
            self._fail(f"`{kind.name}` needs properties, or a list of names with theirs, not {what}", path)
        defaults = self._defaults(body, path)
        for number, item in enumerate(body):
            name, own = self._named(item, (*path, number))
            if name != DEFAULTS:
                yield _merged(kind, defaults, own, name), (*path, number, name)

    def _check_single(self, kind: AnyType, body: dict[str, Any], path: Path) -> None:
        """Names with properties below them belong into a list; without this they would be taken for unknown properties."""
        known = {*kind.properties.__struct_encode_fields__, *kind.rules.aliases}
        if body and all(key not in known and isinstance(own, dict | None) for key, own in body.items()):
            first = next(iter(body))
            self._fail(f"names under `{kind.name}` stand in a list: write `- {first}:`", (*path, first))

    def _defaults(self, body: list[Any], path: Path) -> dict[str, Any]:
        found = [n for n, item in enumerate(body) if isinstance(item, dict) and DEFAULTS in item]
        if len(found) > 1:
            self._fail("`defaults` stands twice in one list: make them one", (*path, found[1]))
        return self._named(body[found[0]], (*path, found[0]))[1] if found else {}

    def _named(self, item: Any, path: Path) -> tuple[str, dict[str, Any]]:
        if not isinstance(item, dict) or len(item) != 1:
            self._fail(
                "each item of this list is one name with its properties, as in `- zsh: {ensure: present}`",
                path,
            )
        name, own = next(iter(item.items()))
        if own is not None and not isinstance(own, dict):
            self._fail(f"`{name}` needs a mapping of properties, not a list or a text", (*path, name))
        return name, own or {}

    def _rendered(
        self, kind: AnyType, raw: dict[str, Any], path: Path
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Properties with their templates rendered, and the names of those that wait."""
        rendered, pending, rules = raw, [], kind.rules
        for written, value in raw.items():
            key = rules.aliases.get(written, written)
            if key in rules.untemplated or not isinstance(value, (str, list, dict)):
                continue
            if key in rules.deferred:
                if holds_markers(value):
                    pending.append(key)
                continue
            try:
                make = render_keys if key in rules.templated_keys else _RENDER.get(key, render)
                new = make(value, self._expressions)
            except InputError as err:
                self._replace(err, f"{kind.name}#{raw.get('name') or '?'}", (*path, written))
            if new is not value and new != value:
                if rendered is raw:
                    rendered = dict(raw)
                rendered[written] = new
        return rendered, tuple(pending)

    def _fail(self, message: str, path: Path, kind: type[InputError] = DocumentError) -> NoReturn:
        raise kind(message, place=self._place(path))

    def _place(self, path: Path) -> Place:
        if self._text is None:
            return Place(self._source, path=codec.path_text(path) if path else "")
        return codec.locate(self._text, path, self._source)

    def _replace(self, err: InputError, resource: str, path: Path) -> NoReturn:
        """The same error, with the resource's name and its place in the document."""
        place = err.place
        if place is None or not place.line:
            inner = _steps(place.path) if place is not None else ()
            place = self._place((*path, *inner))
        message = f"{resource}: {err.message}"
        if isinstance(err, ExpressionError):
            raise type(err)(message, expression=err.expression, offset=err.offset, place=place) from err
        raise type(err)(message, place=place) from err


def _merged(kind: AnyType, defaults: dict[str, Any], own: dict[str, Any], name: str) -> dict[str, Any]:
    """
    A resource's properties over the defaults: all are replaced, but for `control`, which is merged.

    A key without a value says nothing, so its default holds; but of a property that may be None, as a file's `content`, it
    takes the default away.
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


def _steps(path: str) -> Path:
    """The steps of a path in writing, `$.require[0]`."""
    return tuple(int(found[2]) if found[2] else found[1] or found[3] for found in _STEP.finditer(path))
