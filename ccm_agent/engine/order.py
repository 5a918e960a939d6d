"""Checks the order of a manifest's resources: a required resource must be declared first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ccm_agent.engine.load import ResolvedManifest
from ccm_agent.model.errors import ManifestError
from ccm_agent.model.resource import parse_reference
from ccm_agent.resources.contract import ResolvedResource

Key = tuple[str, str]
"""Type and name, or type and alias."""


def check_order(loaded: ResolvedManifest) -> None:
    """
    Refuse a manifest in which a resource requires or rescues one that is not declared before it, before anything is changed.

    Not checked here: `require` of a resource with `control`, which may be skipped, and of resources after a child manifest, which
    may declare what they require. They are checked when they are applied.

    Raises:
        ManifestError: With the place of the requirement.
    """
    declared_at_all = {key for declared in loaded.resources for key in keys_of(declared)}
    check_rescue(loaded)
    earlier: set[Key] = set()
    for declared in _before_children(loaded.resources):
        for number, text in enumerate(declared.wanted.require if declared.wanted.control is None else ()):
            found = parse_reference(text)
            key = (found.type, found.name) if found is not None else ("", "")
            if key in declared_at_all and key not in earlier:
                raise ManifestError(
                    f"{declared.reference} requires `{text}`, which is declared later: move it up",
                    place=loaded.place((*declared.path, "require", number)),
                )
        earlier.update(keys_of(declared))


def check_rescue(loaded: ResolvedManifest) -> None:
    """Refuse `rescue` of a resource that is not declared before; ManifestError with its place."""
    if not any(declared.wanted.rescue for declared in loaded.resources):
        return
    earlier: set[Key] = set()
    for declared in loaded.resources:
        for number, text in enumerate(declared.wanted.rescue):
            found = parse_reference(text)
            if found is None or (found.type, found.name) not in earlier:
                raise ManifestError(
                    f"{declared.reference} rescues `{text}`, which is not declared before it in this manifest",
                    place=loaded.place((*declared.path, "rescue", number)),
                )
        earlier.update(keys_of(declared))


def _before_children(resources: Sequence[ResolvedResource]) -> Iterator[ResolvedResource]:
    for declared in resources:
        if declared.kind.contains_manifest:
            return
        yield declared


def keys_of(declared: ResolvedResource) -> Iterator[Key]:
    """Yield what references find a resource by."""
    for name in (declared.wanted.name, declared.wanted.alias):
        if name:
            yield declared.kind.name, name
