"""`ccmctl init --security --server-name HOST`: create a certificate authority for the fleet, and certificates for its servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from ccm_ctl.fleet.keys.certificates import Certificates
from ccm_ctl.fleet.keys.keys import keys_folder
from ccm_ctl.render.record_types.administration import MadeLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_ctl.app import Application

AT_A_NODE = "/etc/choria/ccm/ca.pem"


def server_name_option() -> click.Option:
    """Return the option `--server-name`: the names of the broker's servers, for their certificate."""
    text = "With --security: create certificates for a server with this name or address; repeatable."
    return click.Option(["--server-name"], multiple=True, metavar="HOST", help=text)


def prepare_certificates(application: Application, folder: str, names: Sequence[str]) -> bool:
    """Create certificates for servers with these names, and print the next steps. Return whether the servers still lack them."""
    certificates = Certificates(keys_folder(folder, application.environ))
    is_new = certificates.issue(names)
    if is_new:
        _print_next(application, certificates, names[0])
    elif not application.settings().ca:
        application.reach = msgspec.structs.replace(application.reach, ca=str(certificates.authority))
    return is_new


def _print_next(application: Application, certificates: Certificates, name: str) -> None:
    terminal, folder = application.terminal, certificates.folder
    terminal.record(MadeLine, name=str(folder / "server.pem"), kind="certificate", action="created")
    terminal.show(
        f"Certificates created in {folder}. The holder of ca.key can create more, so keep it safe.\n\n"
        f"1. Copy {certificates.configuration.name}, server.pem and server.key (which is secret) to each server, correct the\n"
        f"   paths in {certificates.configuration.name} there, and add to the server's configuration\n"
        f"       include {certificates.configuration.name}\n"
        "   Restart the servers.\n"
        f"2. Copy ca.pem to each node as {AT_A_NODE}, and name it in the agent's configuration:\n"
        "       nats:\n"
        f"         url: tls://{name}:4222\n"
        f"         tls: {{ca: {AT_A_NODE}}}\n"
        "3. Let ccmctl verify the servers with it:\n"
        f"       export CCM_CA={certificates.authority}\n\n"
    )
