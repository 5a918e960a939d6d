"""`ccm agent`: run the node's agent in the foreground. It is also the group of commands for the local agent."""

from __future__ import annotations

import importlib
import sys

import click

from ccm_agent.cli.options import CcmGroup
from ccm_agent.clikit.commands import examples
from ccm_agent.model.errors import DocumentError
from ccm_agent.model.exits import Exit

CONFIG = "/etc/choria/ccm/config.yaml"
"""The configuration file that the agent's systemd unit uses."""

VERBS = ("status", "run-once", "disable", "enable", "policy")
"""The commands in `agent_local.py` and `agent_policy.py`, in the order in which help lists them."""


class LocalVerbs(CcmGroup):
    """Loads the commands from modules that the agent itself does not need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        if cmd_name == "policy":
            policy: click.Command = importlib.import_module("ccm_agent.cli.agent.agent_policy").command
            return policy
        verbs: dict[str, click.Command] = importlib.import_module("ccm_agent.cli.agent.agent_local").COMMANDS
        return verbs[cmd_name]


@click.group(
    "agent",
    cls=LocalVerbs,
    invoke_without_command=True,
    help="Run the agent in the foreground until SIGTERM. SIGHUP reloads its configuration.",
    epilog=examples(f"ccm agent --config {CONFIG}", "ccm agent --check-config", "ccm agent status"),
)
@click.option(
    "--config",
    default="",
    metavar="FILE",
    help=f"Configuration file; required to run the agent. [{CONFIG}]",
)
@click.option("--context", default="", help="NATS context to use instead of the configured broker.")
@click.option("--check-config", is_flag=True, help="Check the configuration and exit.")
@click.pass_context
def command(ctx: click.Context, config: str, context: str, check_config: bool) -> int:
    """Run the agent, or check its configuration."""
    ctx.obj = (config, context)
    if ctx.invoked_subcommand is not None:
        return Exit.OK
    if not config and not check_config:
        raise click.MissingParameter(
            ctx=ctx, param=next(one for one in command.params if one.name == "config")
        )
    from ccm_agent import app_agent

    try:
        if check_config:
            path = config or CONFIG
            app_agent.check_agent(path)
            sys.stdout.write(f"{path}: the configuration is valid\n")
            return Exit.OK
        app_agent.run_agent(config, context)
    except DocumentError as err:
        from ccm_agent.cli.error_report import report_document

        raise report_document(err) from err
    return Exit.OK
