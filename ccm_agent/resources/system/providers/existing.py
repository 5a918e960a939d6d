"""Finds the host name, time zone and locale, for `ccm import system`."""

from __future__ import annotations

from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.system.model import HOSTNAME, LOCALE, SETTINGS, TIMEZONE, SystemProperties
from ccm_agent.resources.system.providers.etc import Etc
from ccm_agent.resources.system.resource import check

INSTALLED = {
    HOSTNAME: {"", "(none)", "localhost", "localhost.localdomain"},
    TIMEZONE: {"", "UTC", "Etc/UTC"},
    LOCALE: {"", "C", "POSIX", "C.UTF-8", "C.utf8"},
}
"""The default values of distributions, which are not imported."""


async def find_settings(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the settings that differ from the defaults of distributions.

    Raises:
        UsageError: An argument was given.
        HostError: A setting cannot be read.
    """
    refuse_argument("system", argument)
    provider = Etc(context.runner, context.files, context.port("kernel"), context.port("locks"))
    states = await provider.look_ahead([SystemProperties(name=name) for name in SETTINGS])
    builder = ExistingBuilder("system", SystemProperties, check)
    for state in states:
        values = set(state.values.values())
        if values <= INSTALLED[state.name]:
            continue
        if state.differing:
            builder.leave_out(state.name, f"has different values: {state.differing}")
        else:
            builder.add(state.name, {"value": values.pop()})
    return builder.result()
