"""`ccmctl operator`: manage the credentials of operators."""

from __future__ import annotations

from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group
from ccm_ctl.commands.keys.credentials import add_operator, revoke_operator


@group(
    "operator",
    no_args_is_help=True,
    examples=["ccmctl operator add ann --apply role=web --data > ann.creds"],
)
def operator(application: Application) -> None:
    """Issue and revoke operators' credentials, for a broker that `ccmctl init --security` set up."""


operator.add_command(add_operator)
operator.add_command(revoke_operator)
