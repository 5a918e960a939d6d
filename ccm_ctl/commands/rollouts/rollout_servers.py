"""Show an operator the running rollout servers, for `schedule add`, `--detach` and `run resume --detach`."""

from __future__ import annotations

from ccm_agent.clikit.text import plural
from ccm_ctl.app import Application
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.starts import read_servers


async def tell_servers(application: Application, fleet: Fleet, does: str) -> list[str]:
    """
    Print the running rollout servers, or a warning if there are none.

    Args:
        application: Prints the servers.
        fleet: The bus.
        does: The verb for the action that requires a server: "starts" or "drives".

    Returns:
        The servers, as `operator@host`.
    """
    servers = await read_servers(fleet)
    if servers:
        names = ", ".join(f"{server.operator} on {server.host}" for server in servers)
        application.terminal.note(f"{plural(len(servers), 'rollout server')}: {names}")
    else:
        application.terminal.warn(
            f"no rollout server is running, so nothing {does} this; start one with `ccmctl rollout serve` "
            "(deploy/systemd/ccm-rollout.service)"
        )
    return [f"{server.operator}@{server.host}" for server in servers]
