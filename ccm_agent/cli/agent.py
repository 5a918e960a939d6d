"""`ccm agent`: the node's agent, in the foreground."""

from __future__ import annotations

import sys

import click

from ccm_agent.model.exits import Exit


@click.command(
    "agent",
    help="Run the agent that this node converges by, until SIGTERM; SIGHUP reads its configuration again.",
)
@click.option("--config", required=True, metavar="FILE", help="Configuration file.")
@click.option("--context", default="", help="Context of the nats program instead of the configured broker.")
@click.option("--check-config", is_flag=True, help="Say whether the configuration is right, and end.")
def command(config: str, context: str, check_config: bool) -> int:
    """Run the agent, or look at its configuration."""
    from ccm_agent import app_agent

    if check_config:
        app_agent.check_agent(config)
        sys.stdout.write(f"{config}: the configuration is right\n")
        return Exit.OK
    app_agent.run_agent(config, context)
    return Exit.OK
