"""What a service resource may say, and what is found of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.resource import CommonProperties, CommonState

RUNNING = "running"
STOPPED = "stopped"


class ServiceProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A system service: whether it runs now, and whether it starts at boot; each is managed without the other."""

    name: Annotated[str, Meta(description="Unit name, with or without `.service`.")]
    ensure: Annotated[str, Meta(description="`running` (default) or `stopped`.")] = ""
    enable: Annotated[
        bool | None, Meta(description="Whether the service starts at boot. Not managed by default.")
    ] = None
    subscribe: Annotated[
        list[str],
        Meta(description="Resources (`type#name`) that restart a running service when they change."),
    ] = []


class ServiceMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    What the init system says.

    Attributes:
        name: The service's name.
        provider: The provider that looked.
        enabled, running: Whether it starts at boot, whether it runs now.
        said: What the last command that failed on it said; "" when none did.
    """

    name: str
    provider: str
    enabled: bool
    running: bool
    said: str = ""


class ServiceState(CommonState, kw_only=True):
    """A service as found; `ensure` is "running" or "stopped"."""

    metadata: ServiceMetadata
