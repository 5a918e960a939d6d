"""
Convert `before` and `notify` of a resource to `require` and `subscribe` of the resources to which they refer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ccm_agent.manifest.document import Path
from ccm_agent.model.errors import ManifestError, Place
from ccm_agent.model.resource import parse_reference
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.resources.contract import AnyType, ResolvedResource

Key = tuple[str, str]
"""Type and name, or type and alias."""

_OPPOSITE = {"before": "require", "notify": "subscribe"}


def reverse_references(resources: Sequence[ResolvedResource], place: Callable[[Path], Place]) -> None:
    """
    Add each resource to the `require` and `subscribe` of the resources in its `before` and `notify`.

    The rest of a run does not use `before` and `notify`, so both directions have the same effect.

    Args:
        resources: All resources of a manifest, in order; their lists of references are changed.
        place: Returns the file and line of a path in the document.

    Raises:
        ManifestError: A target is not declared later in this manifest, or cannot be refreshed.
    """
    by_key: dict[Key, list[ResolvedResource]] = {}
    for declared in resources:
        for name in {declared.wanted.name, declared.wanted.alias} - {""}:
            by_key.setdefault((declared.kind.name, name), []).append(declared)
    linker = _Linker(by_key, place)
    for declared in resources:
        for field in _OPPOSITE:
            for number, text in enumerate(getattr(declared.wanted, field)):
                linker.link(declared, field, number, text)


def why_not_refreshed(kind: AnyType) -> str:
    """Return the reason why resources of a type cannot be the target of `notify`; "" if they can."""
    if "subscribe" in kind.properties.__struct_fields__:
        return ""
    return (
        f"cannot be refreshed: the type `{kind.name}` has no `subscribe`; `before` orders without a refresh"
    )


class _Linker:
    """Adds references to targets, without duplicates."""

    def __init__(self, by_key: dict[Key, list[ResolvedResource]], place: Callable[[Path], Place]) -> None:
        self._by_key = by_key
        self._place = place
        self._present: dict[tuple[int, str], set[str]] = {}

    def link(self, declared: ResolvedResource, field: str, number: int, text: str) -> None:
        """Add a resource to the targets of one reference."""
        named = self._named(text)
        targets = [one for one in named if one.index > declared.index]
        why = why_not_refreshed(targets[0].kind) if targets and field == "notify" else ""
        if not targets:
            why = self._why_no_target(text, is_declared=bool(named))
        if why:
            message = f"{declared.reference}: `{text}` in `{field}` {why}"
            raise ManifestError(message, place=self._place((*declared.path, field, number)))
        for target in targets:
            self._add(target, _OPPOSITE[field], declared.reference)

    def _named(self, text: str) -> Sequence[ResolvedResource]:
        found = parse_reference(text)
        return self._by_key.get((found.type, found.name), ()) if found is not None else ()

    def _why_no_target(self, text: str, *, is_declared: bool) -> str:
        if is_declared:
            return "is not declared later: move it down"
        known = [f"{kind}#{name}" for kind, name in self._by_key]
        return f"is not declared in this manifest{did_you_mean(text, known)}"

    def _add(self, target: ResolvedResource, field: str, reference: str) -> None:
        written: list[str] = getattr(target.wanted, field)
        present = self._present.get((target.index, field))
        if present is None:
            present = self._present[target.index, field] = set(written)
        if reference not in present:
            present.add(reference)
            written.append(reference)
