"""`ccmctl dashboard`: show the fleet in a browser."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.command_tree import verb

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.dashboard.access import Access, DashboardUser
    from ccm_ctl.dashboard.oidc_pages import OidcPages
    from ccm_ctl.dashboard.oidc_provider import OidcProvider
    from ccm_ctl.fleet.ports import Fleet

PORT = 7480


@verb(
    "dashboard",
    examples=[
        "ccmctl dashboard                      # prints a one-time URL",
        "ccmctl dashboard --allow-actions",
        "ccmctl dashboard --listen 0.0.0.0 --host ops.example.net --tls-cert c.pem --tls-key k.pem --tokens tokens",
        "ccmctl dashboard --listen 0.0.0.0 --host ops.example.net --tls-cert c.pem --tls-key k.pem --oidc oidc.yaml",
    ],
    options=[
        click.Option(
            ["--listen"],
            metavar="ADDRESS",
            default="127.0.0.1",
            show_default=True,
            help="Listen on this address.",
        ),
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            default=PORT,
            show_default=True,
            help="Listen on this port; 0 selects a free one.",
        ),
        click.Option(
            ["--host", "names"],
            multiple=True,
            metavar="NAME",
            help="Also accept requests for this host name. May be repeated.",
        ),
        click.Option(["--tls-cert"], metavar="FILE", default="", help="Serve with this certificate."),
        click.Option(["--tls-key"], metavar="FILE", default="", help="Private key of the certificate."),
        click.Option(
            ["--tokens"],
            metavar="FILE",
            default="",
            help="File of users who may sign in. A line contains a name, `read` or `act`, and a token.",
        ),
        click.Option(
            ["--oidc"],
            metavar="FILE",
            default="",
            help="Let users sign in with an OpenID Connect provider. FILE defines it and the rights of its groups.",
        ),
        click.Option(
            ["--allow-actions"],
            is_flag=True,
            help="Let users with the right `act` control runs. Without this option, no user can change anything.",
        ),
    ],
)
def dashboard(
    application: Application,
    listen: str,
    port: int,
    names: tuple[str, ...],
    tls_cert: str,
    tls_key: str,
    tokens: str,
    oidc: str,
    allow_actions: bool,
) -> Exit:
    """
    Serve a web page with the nodes, assignments, runs and events of the fleet, until interrupted.

    On this host, it needs no setup: the printed URL works once, within 15 minutes. On other addresses, it requires a
    certificate, and a file of tokens or an OpenID Connect provider. Every user who signs in sees all that your
    credentials can read.
    """
    from ccm_agent.model.formats.safe_urls import is_loopback

    if listen.count(":") == 1:
        raise UsageError(f"--listen {listen}: an address without a port is expected; use --port for the port")
    is_local = is_loopback(listen)
    if bool(tls_cert) != bool(tls_key):
        raise UsageError("--tls-cert and --tls-key must be used together")
    if not is_local and not (tls_cert and (tokens or oidc)):
        raise UsageError(
            f"--listen {listen}: other hosts can reach it, so it requires --tls-cert, --tls-key and --tokens or --oidc"
        )
    context = _tls(tls_cert, tls_key) if tls_cert else None
    from ccm_ctl.dashboard.access import read_tokens

    users = read_tokens(Path(tokens)) if tokens else {}
    provider = _provider(Path(oidc)) if oidc else None
    application.goes_on_for_ever = True

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.nodes.why import describe
        from ccm_ctl.dashboard.server import Dashboard, DashboardOptions
        from ccm_ctl.studio.fleet_pages import StudioFleetPages
        from ccm_ctl.studio.studio_pages import StudioPages

        await fleet.nodes.revision()  # this fails if the broker has no streams
        digest = provider.settings.digest if provider else ""
        access = await asyncio.to_thread(_access, fleet, users, digest, may_act=allow_actions)
        terminal, printed = application.terminal, [""]

        def print_address() -> None:
            terminal.secret(f"{printed[0]}/#token={access.new_address_token()}\n")
            terminal.flush()

        def on_sign_in() -> None:
            terminal.note("a browser has signed in; the next one signs in at:")
            print_address()

        options = DashboardOptions(
            listen=listen,
            port=port,
            names=names,
            tls=context,
            access=access,
            explain=lambda evidence: describe(evidence, fleet.clock.now()),
            on_sign_in=on_sign_in if is_local else lambda: None,
            pages=(
                StudioPages(None),
                StudioFleetPages(fleet, application.render_worker()),
                *_oidc_pages(provider),
            ),
        )
        async with Dashboard(fleet, options).serving() as address:
            printed[0] = address
            if is_local:
                print_address()
            else:
                terminal.show(f"{address}/\n")
                terminal.flush()
            if terminal.is_live:
                terminal.note("press Ctrl-C to stop")
            await asyncio.Event().wait()
        return Exit.OK

    return application.run(work)


def _provider(path: Path) -> OidcProvider:
    from importlib.util import find_spec

    from ccm_ctl.dashboard.oidc_provider import OidcProvider
    from ccm_ctl.dashboard.oidc_settings import read_settings

    if find_spec("joserfc") is None:
        raise InputError(
            "--oidc needs the Python package joserfc, which the .deb and .rpm do not contain; "
            "`pip install 'ccm-fleet[oidc]'` installs ccmctl with it"
        )
    return OidcProvider(*read_settings(path))


def _oidc_pages(provider: OidcProvider | None) -> list[OidcPages]:
    from ccm_ctl.dashboard.oidc_pages import OidcPages

    return [OidcPages(provider)] if provider else []


def _access(fleet: Fleet, users: dict[str, DashboardUser], provider: str, *, may_act: bool) -> Access:
    from ccm_agent.model.state_directory import state_directory
    from ccm_ctl.dashboard.access import Access, read_or_make_key

    key = read_or_make_key(Path(state_directory()))
    return Access(key, fleet.operator, users, time.time, may_act=may_act, provider=provider)


def _tls(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        try:
            with Path(path).open("rb"):
                pass
        except OSError as err:
            raise InputError(f"{path}: cannot be read: {err.strerror}") from err
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as err:
        raise InputError(
            f"{certificate}, {key}: these are not a certificate and its key in PEM; "
            "`ccmctl init --security --server-name HOST` makes server.pem and server.key"
        ) from err
    return context
