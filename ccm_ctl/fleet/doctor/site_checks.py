"""Checks of `ccmctl doctor` for sites: whether this broker is in contact with the brokers whose streams it copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import ASSIGNMENTS, NODES
from ccm_agent.bus.streams import NoStreamError, call
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.fleet.doctor.results import Check, CheckResult, DoctorContext, MissingError, listed, ok, warning
from ccm_ctl.fleet.nodes.sites import SILENT_S, SiteSource, site_sources

CONTACT = "sites.contact"

STREAMS = (f"KV_{NODES}", EVENTS_STREAM, f"KV_{ASSIGNMENTS}")
"""The center sources the first two from its sites. A site mirrors the third from the center."""


async def check_sites(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the contact with other brokers. Returns nothing if this broker copies no streams of others."""
    if context.connection is None:
        raise MissingError("there is no connection to the broker")
    found: dict[str, list[SiteSource]] = {}
    for stream in STREAMS:
        try:
            found[stream] = site_sources(await call(context.connection, f"STREAM.INFO.{stream}"))
        except NoStreamError:
            continue  # another check reports it
    return [judge_sites(found)] if any(found.values()) else []


def judge_sites(found: Mapping[str, Sequence[SiteSource]]) -> CheckResult:
    """Judge the sources of streams, by the stream's name."""
    sources = [(stream, one) for stream, several in found.items() for one in several]
    cut = sorted({one.site for _, one in sources if one.is_cut})
    if cut:
        names = set(cut)
        silent = [one.silent_s for _, one in sources if one.is_cut and one.silent_s is not None]
        since = f" for {format_duration(round(max(silent)))}" if silent else ""
        sentence = f"No contact with the broker of {listed(cut)}{since}: what it has stored since then is missing here."
        sentence += _format_errors([(stream, one) for stream, one in sources if one.site in names])
        return warning(
            CONTACT, sentence, f"systemctl status nats-server   # at {cut[0]}, then check its line", cut
        )
    if failing := [(stream, one) for stream, one in sources if one.error]:
        names_ = sorted({one.site for _, one in failing})
        sentence = f"Copying from the broker of {listed(names_)} fails.{_format_errors(failing)}"
        return warning(CONTACT, sentence, f"journalctl -u nats-server   # here and at {names_[0]}", names_)
    return ok(CONTACT, f"Every broker whose streams are copied here was in contact within {SILENT_S:g}s.")


def _format_errors(sources: Sequence[tuple[str, SiteSource]]) -> str:
    """Format the first error, with a leading space, or return ""."""
    return next((f" {stream} reports: {one.error}." for stream, one in sources if one.error), "")


def site_checks() -> list[Check]:
    """Return the checks for sites."""
    return [Check(ids=(CONTACT,), look=check_sites)]
