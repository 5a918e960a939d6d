"""Finds the services whose state differs from the distribution's presets, for `ccm import service`."""

from __future__ import annotations

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command
from ccm_agent.model.records.host_import import LeftOutResource
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import (
    ExistingResource,
    ExistingResources,
    refuse_argument,
)
from ccm_agent.resources.service.model import ServiceProperties
from ccm_agent.resources.service.providers.systemd import LOOK_LIMIT_S, Systemd

LIST = (
    "systemctl",
    "list-unit-files",
    "--system",
    "--type=service",
    "--no-legend",
    "--no-pager",
    "--plain",
    "--full",
)


async def find_with_systemd(context: ResourceContext, argument: str) -> ExistingResources:
    """Return the services that are enabled or disabled differently from the distribution's presets."""
    refuse_argument("service", argument)
    listed = await context.runner.run(Command(argv=LIST, time_limit_s=LOOK_LIMIT_S))
    if listed.code:
        raise CommandError(f"could not list the services: {listed.stderr.decode(errors='replace').strip()}")
    names = parse_changed(listed.stdout.decode(errors="replace"))
    if not names:
        return ExistingResources()
    systemd = Systemd(context.runner, context.port("locks"))
    states = await systemd.look_ahead([ServiceProperties(name=name) for name in names])
    resources, left_out = [], []
    for name, state in zip(names, states, strict=True):
        if state is None:
            left_out.append(LeftOutResource(type="service", name=name, reason="has an unreadable state"))
        elif state.metadata.enabled and not state.metadata.running:
            left_out.append(
                LeftOutResource(type="service", name=name, reason="is enabled, but is not running")
            )
        else:
            properties = {"ensure": state.ensure, "enable": state.metadata.enabled}
            resources.append(ExistingResource(name=name, properties=properties))
    return ExistingResources(resources=tuple(resources), left_out=tuple(left_out))


def parse_changed(output: str) -> list[str]:
    """
    Return the names, without `.service`, of the services whose state in `systemctl list-unit-files` differs from their preset.
    """
    rows = [line.split() for line in output.splitlines()]
    return sorted(
        row[0].removesuffix(".service")
        for row in rows
        if len(row) == 3 and {row[1], row[2]} == {"enabled", "disabled"} and "@." not in row[0]
    )
