"""Properties and state of a service resource."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.resource import CommonProperties, CommonState

RUNNING = "running"
STOPPED = "stopped"


class ServiceProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A system service: whether it runs now, and whether it starts at boot. Each is managed independently."""

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
    The state of a service in the init system.

    Attributes:
        name: The service's name.
        provider: The provider that read the state.
        enabled, running: Whether the service starts at boot, and whether it is running now.
        said: The output of the last failed command for this service; "" if no command failed.
    """

    name: str
    provider: str
    enabled: bool
    running: bool
    said: str = ""


class ServiceState(CommonState, kw_only=True):
    """The current state of a service. `ensure` is "running" or "stopped"."""

    metadata: ServiceMetadata
