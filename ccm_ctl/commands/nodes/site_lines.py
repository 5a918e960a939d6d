"""Print the sites with brokers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccm_agent.clikit.text import ago, span
from ccm_ctl.render.record_types.nodes import SiteLine

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_agent.clikit.terminal import Terminal
    from ccm_ctl.fleet.nodes.sites import SiteSource


def show_sites(terminal: Terminal, sites: Sequence[SiteSource]) -> None:
    """Print a line for each site, for people and as a record."""
    for one in sites:
        state = "cut" if one.is_cut else "connected"
        terminal.record(
            SiteLine, site=one.site, state=state, contact=one.contact, lag=one.lag, reason=one.error or None
        )
        effect = "; its nodes are shown as they last reported, or as offline" if one.is_cut else ""
        terminal.show(f"site {one.site}: {format_contact(one)}{effect}\n")


def format_contact(site: SiteSource) -> str:
    """Return when a site was last in contact, with the broker's error: `last contact 2s ago, 5 not copied yet`."""
    error = f" ({site.error})" if site.error else ""
    if site.silent_s is None:
        return f"no contact since the broker has started{error}"
    if site.is_cut:
        return f"no contact for {span(site.silent_s)}{error}"
    behind = f", {site.lag} not copied yet" if site.lag else ""
    return f"last contact {span(site.silent_s)} ago{behind}{error}"


def format_behind(node: str, site: SiteSource, heard: datetime | None, now: datetime) -> str:
    """Explain that a node is away or late here, although it may be well at its site. `heard` is its last heartbeat here."""
    last = f"; its last heartbeat arrived here {ago(heard, now)}" if heard is not None else ""
    return f"{node} is behind the site {site.site}: {format_contact(site)}{last}. It may be well there."
