"""Build the declared resources from the raw list: render templates, convert properties, and check them."""

from __future__ import annotations

from typing import Any, NoReturn

from msgspec import UNSET

from ccm_agent.manifest.document import Path, parse_path
from ccm_agent.manifest.entries import EntryReader
from ccm_agent.manifest.expressions import (
    Expressions,
    bus_error_behind,
    has_markers,
    holds_markers,
    render,
    render_checks,
    render_entries,
    render_keys,
    render_retry,
    render_typed,
)
from ccm_agent.manifest.properties import keeps_type, make_properties, read_unquoted
from ccm_agent.manifest.validate import check_outside_manifest, check_properties, late_checks
from ccm_agent.model.errors import ExpressionError, InputError, PropertyError, SecretNotSealedError
from ccm_agent.model.resource import FOR_EACH, CommonProperties
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.checks import check_each
from ccm_agent.resources.contract import AnyType, ResolvedResource

_RENDER = {"health_checks": render_checks, "register_when_stable": render_entries, "retry": render_retry}


class ResourceBuilder(EntryReader):
    """
    Builds the resources of one document.

    Args:
        catalog: The available types.
        expressions: Renders properties that are not deferred.
        text, source: The document, for the place of errors; text is None without a document.
        is_literal: Whether to keep text that looks like a template unchanged.
    """

    def __init__(
        self,
        catalog: Catalog,
        expressions: Expressions,
        text: str | None,
        source: str,
        *,
        is_literal: bool = False,
    ) -> None:
        super().__init__(catalog, text, source)
        self._expressions = expressions
        # an escape could hide an opening delimiter from this scan, so a backslash is treated like a
        # delimiter
        self._is_templated = not is_literal and (text is None or has_markers(text) or "\\" in text)

    def expand(self, raw: list[Any], path: Path) -> list[ResolvedResource]:
        """
        Build the resources of a list, in order.

        Raises:
            InputError: A resource is not valid; the error includes its place.
        """
        declared: list[ResolvedResource] = []
        for number, entry in enumerate(raw):
            for kind, properties, place in self.instances(entry, (*path, number)):
                if FOR_EACH in properties:
                    self._each(kind, properties, place, declared)
                else:
                    declared.append(self.declare(kind, properties, place, len(declared)))
        if any(one.wanted.before or one.wanted.notify for one in declared):
            from ccm_agent.manifest.reverse_references import reverse_references

            reverse_references(declared, self._place)
        return declared

    def _each(self, kind: AnyType, raw: dict[str, Any], path: Path, declared: list[ResolvedResource]) -> None:
        """Add the resources of an entry with `for_each`."""
        from ccm_agent.manifest.for_each import Expansion

        template = {key: value for key, value in raw.items() if key != FOR_EACH}
        try:
            expansion = Expansion(
                raw[FOR_EACH], self._expressions, sum(one.item is not UNSET for one in declared)
            )
        except InputError as err:
            self._replace(err, f"{kind.name}#{raw.get('name') or '?'}", (*path, FOR_EACH))
        for item in expansion.items:
            try:
                with self._expressions.environment.with_variable("item", item):
                    one = self.declare(kind, template, path, len(declared))
                one.item = item
                expansion.check(one)
            except InputError as err:
                raise expansion.named(err, self._place((*path, FOR_EACH))) from err
            declared.append(one)

    def declare(self, kind: AnyType, raw: dict[str, Any], path: Path, index: int = 0) -> ResolvedResource:
        """
        Build one resource from its raw properties.

        Raises:
            InputError: A resource is not valid; the error includes its place.
        """
        pending: tuple[str, ...] = ()
        refused: PropertyError | None = None
        if self._is_templated:
            raw, pending = self._rendered(kind, raw, path)
        try:
            read = raw if self._text is None else read_unquoted(kind, raw)
            wanted = make_properties(kind, read, self._source, self._text, path)
            check_properties(kind, wanted)
            if self._text is None:
                check_each(wanted, *late_checks(kind, raw), check_outside_manifest)
            else:
                if kind.check_in_manifest is not None:
                    kind.check_in_manifest(wanted)
                refused = _refusal(kind, wanted, raw)
            if kind.finalize is not None and not pending:
                kind.finalize(wanted)
        except InputError as err:
            self._replace(err, f"{kind.name}#{raw.get('name') or '?'}", path)
        return ResolvedResource(
            kind=kind, wanted=wanted, pending=pending, index=index, path=path, refused=refused
        )

    def _rendered(
        self, kind: AnyType, raw: dict[str, Any], path: Path
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the properties with rendered templates, and the names of deferred properties."""
        rendered, pending, rules = raw, [], kind.rules
        for written, value in raw.items():
            if isinstance(value, str) and not has_markers(value):
                continue
            key = rules.aliases.get(written, written)
            if key in rules.untemplated or not isinstance(value, (str, list, dict)):
                continue
            if key in rules.deferred:
                if holds_markers(value):
                    pending.append(key)
                continue
            try:
                make = render_keys if key in rules.templated_keys else _RENDER.get(key, render)
                if make is render and isinstance(value, str) and keeps_type(kind, key):
                    make = render_typed
                new = make(value, self._expressions)
            except InputError as err:
                if isinstance(bus_error_behind(err), SecretNotSealedError):
                    # the resource fails when it is applied, like a resource with a deferred property
                    pending.append(key)
                    continue
                self._replace(err, f"{kind.name}#{raw.get('name') or '?'}", (*path, written))
            if new is not value and new != value:
                if rendered is raw:
                    rendered = dict(raw)
                rendered[written] = new
        return rendered, tuple(pending)

    def _replace(self, err: InputError, resource: str, path: Path) -> NoReturn:
        """Raise the same error with the resource's name and its place in the document."""
        place = err.place
        if place is None or not place.line:
            inner = parse_path(place.path) if place is not None else ()
            place = self._place((*path, *inner))
        message = f"{resource}: {err.message}"
        if isinstance(err, ExpressionError):
            raise type(err)(message, expression=err.expression, offset=err.offset, place=place) from err
        raise type(err)(message, place=place) from err


def _refusal(kind: AnyType, wanted: CommonProperties, raw: dict[str, Any]) -> PropertyError | None:
    """Return the reason why the resource will fail when it is applied; None if no reason is known yet."""
    if kind.check_when_applied is not None:
        try:
            kind.check_when_applied(wanted, raw)
        except PropertyError as err:
            return PropertyError(err.message)
    return None
