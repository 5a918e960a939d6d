"""The container type: containers that systemd runs with podman. Each is a quadlet in /etc/containers/systemd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.container.checks import check
from ccm_agent.resources.container.model import RUNNING, STOPPED, ContainerProperties, ContainerState
from ccm_agent.resources.container.resource import decide, reach
from ccm_agent.resources.container.undo import earlier, identify
from ccm_agent.resources.contract import (
    CommandLine,
    Probe,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources

_IMAGE = f"docker.io/library/nginx@sha256:{'0' * 64}"


def _make_podman(context: ResourceContext) -> Any:
    from ccm_agent.resources.container.providers.podman import Podman

    return Podman(
        context.runner,
        context.files,
        context.port("locks"),
        context.clock,
        asks_systemd=context.may_run_commands,
    )


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.container.providers.existing import find_containers

    return await find_containers(context, argument)


def _has_systemd(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.has_program("systemctl")


TYPE: ResourceType[ContainerProperties, ContainerState] = ResourceType(
    name="container",
    summary="Podman containers that systemd runs, each from a quadlet in /etc/containers/systemd.",
    properties=ContainerProperties,
    state=ContainerState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(RUNNING, STOPPED, PRESENT, ABSENT),
    default_ensure=RUNNING,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(
        hidden=frozenset({"enable"}),
        examples=(
            f"web --image {_IMAGE} --ports 8080:80 --diff",
            "web absent",
        ),
    ),
    providers=(
        ProviderSpec(
            name="podman", make=_make_podman, rank=10, is_usable=_has_systemd, find_existing=_find_existing
        ),
    ),
)
