"""Service registration: the entry that a stable resource publishes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class RegistrationEntry(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One instance of a service, as others find it."""

    cluster: Annotated[str, Meta(description="Cluster the service belongs to.")]
    service: Annotated[str, Meta(description="Service name.")]
    protocol: Annotated[str, Meta(description="Protocol the service speaks.")]
    address: Annotated[str, Meta(description="Address it is reached at.")]
    port: Annotated[int | str | None, Meta(description="Port, a number or a template that gives one.")] = None
    priority: Annotated[int, Meta(description="Priority among instances; 1 to 255, lower is preferred.")] = 0
    annotations: Annotated[dict[str, str], Meta(description="Further words about the instance.")] = {}
    ttl: Annotated[
        str | None, Meta(description="How long the entry lives without being renewed, or `never`.")
    ] = None
