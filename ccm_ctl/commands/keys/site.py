"""`ccmctl init --site NAME`: a site whose broker works while its line to the center is cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ccm_agent.model.errors import BusDeniedError, BusError, BusSetupError, UsageError
from ccm_ctl.commands.keys.credentials import apply_accounts, format_effect, prepare_security
from ccm_ctl.commands.keys.keys_folder import keys_in
from ccm_ctl.render.record_types.administration import MadeLine

if TYPE_CHECKING:
    from ccm_agent.bus.layout import LayoutOptions
    from ccm_agent.bus.stream_creation import LayoutChange
    from ccm_ctl.app import Application, Broker
    from ccm_ctl.fleet.keys.keys import Keys


def site_options() -> list[click.Option]:
    """Return the options for sites."""
    return [
        click.Option(
            ["--site"],
            metavar="NAME",
            default="",
            help="Set up a site: at the center its account and mirrors, at the site's broker its streams.",
        ),
        click.Option(
            ["--leaf"],
            metavar="URLS",
            default="",
            help="With a new --site: where the center's servers accept leaf nodes, separated by commas.",
        ),
        click.Option(
            ["--new-leaf"],
            is_flag=True,
            help="With --site: revoke the credentials of its leaf node, and create new ones.",
        ),
    ]


def renew_leaf_credentials(application: Application, folder: str, site: str) -> None:
    """
    Revoke the credentials of the leaf node of a site, create new ones, and tell what to copy.

    Raises:
        UsageError: The folder has no such site.
        InputError: A file cannot be read or written.
    """
    from ccm_agent.bus.access.sites import check_site
    from ccm_ctl.fleet.keys.sites import AT_THE_SITE, SITE_PREFIX, renew_leaf

    keys = keys_in(application, folder)
    _require_site(keys, check_site(site))
    path = renew_leaf(keys.folder, site, keys.seed(f"{SITE_PREFIX}{site}"))
    keys.configure()
    servers = apply_accounts(application, keys, {f"{SITE_PREFIX}{site}"})
    application.terminal.record(MadeLine, name=site, kind="site", action="revoked", servers=servers)
    effect = format_effect(servers, f"copy {keys.configuration} to each server of the center")
    application.terminal.show(
        f"{site}: the credentials of its leaf node were revoked. {effect}\n"
        f"Copy {path} to {AT_THE_SITE} on the site's server, and restart that.\n"
    )


def _require_site(keys: Keys, site: str) -> None:
    from ccm_ctl.fleet.keys.sites import sites_in

    if site not in sites_in(keys.folder):
        raise UsageError(
            f"{keys.folder}: has no site {site}; run this where the fleet's keys are, or name them with --keys"
        )


def prepare_site(application: Application, folder: str, site: str, leaf: str) -> bool:
    """
    Create the account of a site, and the folder for its broker. Return whether there was nothing to do.

    Without keys, as at a site, nothing is done.

    Raises:
        UsageError: The name or an address is not valid.
        InputError: A file cannot be written.
    """
    from ccm_agent.bus.access.sites import check_site
    from ccm_ctl.fleet.keys.sites import (
        SITE_PREFIX,
        checked_leaves,
        new_site_account,
        require_leaves,
        site_accounts,
        sites_in,
        write_site,
    )

    check_site(site)
    leaves = checked_leaves(leaf)
    keys = keys_in(application, folder)
    if not keys.exist():
        if leaves:
            raise UsageError(f"--leaf requires the fleet's keys, and {keys.folder} has none")
        return True
    prepare_security(application, folder)
    is_new = site not in sites_in(keys.folder)
    require_leaves(keys.folder, site, leaves)
    if is_new:
        keys.write_seed(f"{SITE_PREFIX}{site}", new_site_account())
    if is_new or not site_accounts(keys.folder, site).exists():
        is_new = True
        keys.configure()
    account = keys.seed(f"{SITE_PREFIX}{site}")
    text = keys.configuration.read_text(encoding="utf-8")
    is_changed = write_site(keys.folder, site, account, text, leaves)
    if not is_new and not is_changed:
        return True
    application.terminal.record(MadeLine, name=site, kind="site", action="created" if is_new else "updated")
    _print_next(application, keys, site)
    return False


def _print_next(application: Application, keys: Keys, site: str) -> None:
    from ccm_ctl.fleet.keys.sites import AT_THE_SITE, site_folder

    application.terminal.show(
        f"The account of the site {site} is in {keys.configuration}.\n\n"
        "1. Configure each server of the center as in deploy/nats/hub-1.conf (`domain: center`, `leafnodes`, `feature_flags`),\n"
        f"   copy {keys.configuration} to it, and restart it. If it was configured so before, reload it:\n"
        "       nats-server --signal reload\n"
        "2. Create the mirrors for the site at the center:\n"
        f"       ccmctl init --site {site}\n"
        f"3. Copy {site_folder(keys.folder, site)} to {AT_THE_SITE} on the site's server, configure it as in\n"
        "   deploy/nats/site.conf, and start it. leaf.creds is secret.\n"
        "4. Create the streams at the site, with credentials of an operator with --admin:\n"
        f"       ccmctl init --site {site} --server nats://SITE:4222\n"
    )


async def make_site_streams(
    application: Application, broker: Broker, layout: LayoutOptions, folder: str, site: str
) -> list[LayoutChange]:
    """
    Create what this broker has for a site: at the center mirrors and sources, at the site all streams.

    Raises:
        BusSetupError: The broker is neither the center's nor that of this site, or its configuration lacks settings.
    """
    from ccm_agent.bus.access.sites import CENTER
    from ccm_agent.bus.site_streams import make_site, require_domain

    assert broker.connection is not None
    if require_domain(broker.connection, CENTER, site) == CENTER:
        return await _make_at_center(application, broker, layout, folder, site)
    return await make_site(broker.connection, layout, site)


async def make_streams(
    application: Application, broker: Broker, layout: LayoutOptions, folder: str
) -> list[LayoutChange]:
    """
    Create the streams of a broker that is not that of a site.

    Raises:
        BusSetupError: It is that of a site. See also `make`.
    """
    from ccm_agent.bus.layout import make
    from ccm_agent.bus.site_streams import refuse_site, sources_lock
    from ccm_ctl.fleet.keys.sites import sites_in

    assert broker.connection is not None
    known = await asyncio.to_thread(sites_in, keys_in(application, folder).folder)
    await refuse_site(broker.connection, known)
    async with sources_lock(broker.connection) as renew:
        return await make(broker.connection, layout, renew)


async def _make_at_center(
    application: Application, broker: Broker, layout: LayoutOptions, folder: str, site: str
) -> list[LayoutChange]:
    from ccm_agent.bus.site_streams import add_sources, make_mirrors
    from ccm_ctl.fleet.keys.system_account import lacking_flag, site_connection

    assert broker.connection is not None
    keys, settings = keys_in(application, folder), application.settings()
    await asyncio.to_thread(_require_site, keys, site)
    if lacking := await lacking_flag(settings, keys):
        raise BusSetupError(
            f"{', '.join(lacking)}: `feature_flags {{ js_ack_fc_v2: true }}` is missing in the configuration, so the center "
            "would stop collecting events after a backlog; see deploy/nats/hub-1.conf, restart, and run this again"
        )
    try:
        async with site_connection(settings, keys, site) as connection:
            made = await make_mirrors(connection, broker.connection, layout, site)
    except BusSetupError:
        raise
    except BusDeniedError as err:
        raise BusSetupError(
            f"the center does not know the site {site} yet; copy {keys.configuration} to each of its servers, "
            "run `nats-server --signal reload`, and run this again"
        ) from err
    except BusError as err:
        raise BusSetupError(
            f"the account of the site {site} does not answer: {err}; copy {keys.configuration} to each server of the center, "
            "run `nats-server --signal reload`, and run this again"
        ) from err
    return made + await add_sources(broker.connection, site)
