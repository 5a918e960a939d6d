"""`ccm join`: make this host a node of a fleet, with a token from `ccmctl token create`."""

from __future__ import annotations

import json
import sys

import click

from ccm_agent.cli import options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit

_STDIN = "-"
_TOKEN_BYTES = 20_000


@click.command(
    "join",
    cls=options.CcmCommand,
    epilog=examples("ccm join ccm1-...", "ccm join ccm1-... --name web1", "ccm join - < token"),
)
@click.argument("token", metavar="TOKEN|-")
@click.option(
    "--name", default="", metavar="NODE", help="Name of this node. [the configured one, or the FQDN]"
)
@click.option(
    "--state",
    default="",
    metavar="DIR",
    help="Directory for configuration, credentials and state. [/etc/choria/ccm and /var/lib/ccm]",
)
@click.option(
    "--wait",
    type=Duration(),
    default="10m",
    show_default=True,
    help="How long to wait for an operator, if the token requires approval.",
)
@click.option("--insecure", is_flag=True, help="Accept a broker without authentication or TLS.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(token: str, name: str, state: str, wait: int, insecure: bool, as_json: bool) -> Exit:
    """
    Join a fleet with a TOKEN from `ccmctl token create`; - reads the token from standard input.

    The node creates its own key, which never leaves the node. Writes credentials and configuration, and does not start the
    agent. If the command is interrupted, run it again.
    """
    from ccm_agent.joining.join import join_fleet
    from ccm_agent.joining.membership import JoinPlaces, is_root

    terminal = Terminal(PROGRAM)
    if not state and not is_root():
        raise UsageError("only root can write /etc/choria/ccm; use sudo, or name a directory with --state")
    text = sys.stdin.read(_TOKEN_BYTES) if token == _STDIN else token
    places = JoinPlaces.below(state) if state else JoinPlaces()

    def tell(mark: str) -> None:
        terminal.note(f"waiting for an operator's approval; the fingerprint of this node's key is {mark}")

    joined = join_fleet(text, name, places, tell, insecure=insecure, wait_s=wait)
    start = f"ccm agent --config {joined.config}" if state else "systemctl enable --now ccm-agent"
    if as_json:
        found = {
            "node": joined.name,
            "joined": joined.is_new,
            "expires": joined.expires or None,
            "config": joined.config,
            "next": start,
        }
        terminal.raw(f"{json.dumps(found)}\n")
        return Exit.OK
    done = "joined" if joined.is_new else "has already joined; nothing was requested"
    terminal.show(f"{joined.name}: {done}\nnext: {start}\n")
    return Exit.OK
