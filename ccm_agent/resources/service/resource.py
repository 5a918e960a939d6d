"""Decides the steps of a service resource. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.service.model import RUNNING, STOPPED, ServiceProperties, ServiceState

NAME = re.compile(r"[A-Za-z0-9._+:~-]+")
DANGEROUS = re.compile(r"""[;&|$`()\[\]{}<>*?'"\\!\s]""")


def check(wanted: ServiceProperties) -> None:
    """Refuse names that are not unit names, or that systemctl could misinterpret."""
    if DANGEROUS.search(wanted.name):
        raise PropertyError(
            f"service name contains dangerous characters: {wanted.name!r}", place=Place(path="$.name")
        )
    if not NAME.fullmatch(wanted.name):
        raise PropertyError(
            f"service name contains invalid characters: {wanted.name!r} (allowed: alphanumeric, ._+:~-)",
            place=Place(path="$.name"),
        )


def check_when_applied(wanted: ServiceProperties, written: Mapping[str, Any]) -> None:
    """Refuse a name that systemctl would interpret as an option; see `ResourceType`."""
    if wanted.name.startswith("-"):
        raise PropertyError(
            f"service name {wanted.name!r} begins with a hyphen, so systemctl would treat it as an option",
            place=Place(path="$.name"),
        )


def reach(wanted: ServiceProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(services=(wanted.name,))


def decide(wanted: ServiceProperties, found: ServiceState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision tables of the service type; see docs/resources/service.md."""
    steps: list[Step] = []
    reasons: list[str] = []
    name = wanted.name
    is_running = found.ensure == RUNNING
    # do not restart a service that must be stopped, or that is stopped and will be started
    refreshed = (
        bool(context.triggered_by) and wanted.ensure == RUNNING and is_running and not context.verifying
    )
    if refreshed:
        steps.append(Step(noop="Would have restarted via subscribe", action=lambda p: p.restart(name)))
    elif wanted.ensure == RUNNING and not is_running:
        steps.append(Step(noop="Would have started", action=lambda p: p.start(name)))
        reasons.append("service is stopped, expected running")
    elif wanted.ensure == STOPPED and is_running:
        steps.append(Step(noop="Would have stopped", action=lambda p: p.stop(name)))
        reasons.append("service is running, expected stopped")
    if wanted.enable is True and not found.metadata.enabled:
        steps.append(Step(noop="Would have enabled", action=lambda p: p.enable(name)))
        reasons.append("service is disabled, expected enabled")
    elif wanted.enable is False and found.metadata.enabled:
        steps.append(Step(noop="Would have disabled", action=lambda p: p.disable(name)))
        reasons.append("service is enabled, expected disabled")
    if reasons and found.metadata.said:
        reasons.append(found.metadata.said)
    changes = tuple(_changes(wanted, found)) if steps else ()
    return Decision(steps=tuple(steps), reason="; ".join(reasons), refreshed=refreshed, changes=changes)


def _changes(wanted: ServiceProperties, found: ServiceState) -> Iterator[PropertyChange]:
    if found.ensure != wanted.ensure:
        yield PropertyChange(property="ensure", before=found.ensure, after=wanted.ensure)
    if wanted.enable is not None and wanted.enable != found.metadata.enabled:
        before, after = (str(one).lower() for one in (found.metadata.enabled, wanted.enable))
        yield PropertyChange(property="enable", before=before, after=after)
