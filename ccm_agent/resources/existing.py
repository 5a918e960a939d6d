"""
What a host has of a type, for `ccm import`: what `ProviderSpec.find_existing` returns.

That function leaves out what the distribution installs by itself, returns no secret, and raises UsageError for an argument that
it cannot use. The argument is "" for `ccm import TYPE`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


class ExistingResource(Struct, frozen=True, kw_only=True):
    """
    A resource as it is on this host.

    Attributes:
        name: Its name.
        properties: Its properties as a manifest has them, without the name.
        kind: Its type; "" for the type that was asked for.
        content: The content of a file. `ccm import` stores it beside the manifest, and sets `source`. None: there is none.
    """

    name: str
    properties: dict[str, Any]
    kind: str = ""
    content: bytes | None = None


class LeftOutResource(Struct, frozen=True, kw_only=True):
    """Something that an import does not write."""

    type: Annotated[str, Meta(description="The type of the resource.")]
    name: Annotated[str, Meta(description="Its name.")]
    reason: Annotated[str, Meta(description="Why, such as `contains what looks like a private key`.")]


class ExistingResources(Struct, frozen=True, kw_only=True):
    """
    The resources of a type on this host, without what the distribution installs by itself.

    Attributes:
        resources: In the order in which a manifest should manage them.
        left_out: What the type cannot describe, and what contains a secret.
    """

    resources: tuple[ExistingResource, ...] = ()
    left_out: tuple[LeftOutResource, ...] = ()
