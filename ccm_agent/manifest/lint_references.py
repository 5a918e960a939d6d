"""Checks references between the resources of one document without the facts and data of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ccm_agent.manifest.expressions import has_markers
from ccm_agent.manifest.reverse_references import Key, why_not_refreshed
from ccm_agent.model.resource import CommonProperties, Reference, parse_reference
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import AnyType

_EARLIER = ("require", "rescue", "subscribe")
_LATER = ("before", "notify")


class ReferenceChecks:
    """
    Checks the references of resources; resources are declared in order.

    Args:
        catalog: The known types.
        ahead: The number of declarations of each name and alias in the document.
    """

    def __init__(self, catalog: Catalog, ahead: Counter[Key]) -> None:
        self._catalog = catalog
        self._ahead = ahead
        self._known: set[Key] = set()
        self._templated: set[str] = set()
        self._templated_somewhere = {kind for kind, name in ahead if has_markers(name)}
        self._has_children = False

    def declare(self, kind: AnyType, wanted: CommonProperties) -> Iterator[tuple[str, int, str]]:
        """
        Declare the next resource. Yields the property, the position in it and the problem of each wrong reference.
        """
        own = {(kind.name, one) for one in (wanted.name, wanted.alias) if one}
        yield from self._wrong(kind, wanted, _EARLIER)
        self._ahead.subtract(own)
        yield from self._wrong(kind, wanted, _LATER)
        self._known |= own
        if has_markers(wanted.name) or has_markers(wanted.alias):
            self._templated.add(kind.name)
        self._has_children = self._has_children or kind.contains_manifest

    def _wrong(
        self, kind: AnyType, wanted: CommonProperties, fields: tuple[str, ...]
    ) -> Iterator[tuple[str, int, str]]:
        for field in fields:
            for number, text in enumerate(getattr(wanted, field, ())):
                found = parse_reference(text)
                why = self._why_wrong(field, text, found) if found is not None else ""
                if why:
                    yield field, number, f"{kind.name}#{wanted.name}: `{text}` in `{field}` {why}"

    def _why_wrong(self, field: str, text: str, found: Reference) -> str:
        """Return the reason why a reference is wrong; "" if it may be right, or if only a node can determine it."""
        if field in _EARLIER:
            return self._why_not_earlier(text, (found.type, found.name))
        return self._why_no_target(field, text, (found.type, found.name))

    def _why_not_earlier(self, text: str, key: Key) -> str:
        if self._has_children or key in self._known:
            return ""
        if self._ahead[key] > 0:
            # an earlier template may render to this literal name, but equal templates render to the same name
            is_certain = has_markers(text) or key[0] not in self._templated
            return "is declared later: move it up" if is_certain else ""
        return "" if has_markers(text) or key[0] in self._templated else "is not declared"

    def _why_no_target(self, field: str, text: str, key: Key) -> str:
        if self._ahead[key] > 0:
            return why_not_refreshed(self._catalog.find(key[0])) if field == "notify" else ""
        if has_markers(text) or key[0] in self._templated_somewhere:
            return ""
        is_earlier = key in self._known or key in self._ahead
        return "is not declared later: move it down" if is_earlier else "is not declared"
