"""Tell an operator which rollout servers are there; shared by `schedule add`, `--detach` and `run resume --detach`."""

from __future__ import annotations

from ccm_agent.clikit.text import plural
from ccm_ctl.app import Application
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.starts import read_servers


async def tell_servers(application: Application, fleet: Fleet, does: str) -> list[str]:
    """
    Say which rollout servers run, and warn if none does.

    Args:
        application: Shows it.
        fleet: The bus.
        does: What a server is needed for: "starts" or "drives".

    Returns:
        `operator@host` of each.
    """
    servers = await read_servers(fleet)
    if servers:
        names = ", ".join(f"{server.operator} on {server.host}" for server in servers)
        application.terminal.note(f"{plural(len(servers), 'rollout server')}: {names}")
    else:
        application.terminal.warn(
            f"no rollout server runs, so nothing {does} this; `ccmctl rollout serve` is one "
            "(deploy/systemd/ccm-rollout.service)"
        )
    return [f"{server.operator}@{server.host}" for server in servers]
