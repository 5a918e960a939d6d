"""Checks of `ccmctl doctor` on streams and buckets: their settings beside those that `ccmctl init` makes, and their copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ccm_agent.bus.layout import SCHEDULES_VERSION, Layout, plan
from ccm_agent.bus.messages import ServerInfo
from ccm_agent.bus.stream_settings import Difference, WantedStream, differences
from ccm_agent.bus.streams import NoStreamError, call
from ccm_ctl.fleet.doctor.results import (
    Check,
    CheckResult,
    DoctorContext,
    MissingError,
    listed,
    ok,
    problem,
    warning,
)

CHOSEN = {
    "CCM_EVENTS": {"max_age", "max_bytes", "duplicate_window"},
    "CCM_RUNS": {"max_age"},
    "CCM_FACTS": {"max_msgs_per_subject"},
    "CCM_DATA": {"max_msgs_per_subject"},
    "CCM_ASSIGNMENTS": {"max_msgs_per_subject"},
}
"""Settings that options of `ccmctl init` choose: another value may be wanted."""


def wanted_streams(server: ServerInfo | None) -> list[WantedStream]:
    """What `ccmctl init` would make on this broker; with `--security` where the broker asks for credentials."""
    is_secured = server is not None and server.asks_credentials
    with_schedules = server is None or server.version >= SCHEDULES_VERSION
    return plan(Layout(secure=True if is_secured else None), with_schedules=with_schedules)


async def check_stream(wanted: WantedStream, context: DoctorContext) -> Sequence[CheckResult]:
    """One stream or bucket."""
    if context.connection is None:
        raise MissingError("there is no connection to the broker")
    id_, init = f"stream.{wanted.name}", init_command(context)
    try:
        info = await call(context.connection, f"STREAM.INFO.{wanted.config['name']}")
    except NoStreamError:
        return [problem(id_, f"{wanted.name} is missing.", init)]
    is_clustered = context.server is not None and bool(context.server.cluster)
    return [judge_stream(wanted, info, init, is_clustered=is_clustered)]


def init_command(context: DoctorContext) -> str:
    """The command that restores the settings."""
    return f"ccmctl init --security{context.keys_option}" if context.is_secured else "ccmctl init"


def judge_stream(
    wanted: WantedStream, info: Mapping[str, Any], init: str, *, is_clustered: bool
) -> CheckResult:
    """
    Judge a stream by what the broker says about it; of several findings the worst comes first.

    Args:
        wanted: What it should be.
        info: The answer to STREAM.INFO.
        init: The command that restores its settings.
        is_clustered: The broker is a cluster.
    """
    id_, name, config = f"stream.{wanted.name}", wanted.name, info["config"]
    found = differences(config, wanted)
    altered = [one for one in found if not _is_choice(name, one) and not one.is_kept]
    if altered:
        return problem(id_, f"{name} has other settings than `ccmctl init` makes: {_words(altered)}.", init)
    if raised := [one for one in found if one.is_kept and not _is_choice(name, one)]:
        sentence = (
            f"{name} has higher limits than `ccmctl init` makes, which it does not lower: {_words(raised)}."
        )
        return warning(id_, sentence, f"nats stream edit {wanted.config['name']}")
    if lowered := [one for one in found if not one.is_kept]:
        sentence = f"{name} keeps less than by default: {_words(lowered)}. The command restores it."
        return warning(id_, sentence, init)
    if away := _missing_copies(info):
        return warning(id_, f"Copies of {name} are not up to date on {listed(away)}.", names=away)
    if is_clustered and config.get("num_replicas", 1) < 2:
        return warning(id_, f"{name} has a single copy in this cluster: it is lost with its server.", init)
    return ok(id_, f"{name} has the settings that `ccmctl init` makes.")


def _is_choice(name: str, difference: Difference) -> bool:
    return difference.field in CHOSEN.get(name, ())


def _words(found: Sequence[Difference]) -> str:
    return ", ".join(f"{one.field} is {one.has} instead of {one.wanted}" for one in found)


def _missing_copies(info: Mapping[str, Any]) -> list[str]:
    """The servers whose copy lags or that are offline."""
    replicas = (info.get("cluster") or {}).get("replicas") or []
    return sorted(
        str(one.get("name", "")) for one in replicas if one.get("offline") or not one.get("current")
    )


def stream_checks(server: ServerInfo | None) -> list[Check]:
    """A check for each stream, so that one that does not answer leaves the others."""
    return [
        Check(ids=(f"stream.{wanted.name}",), look=partial(check_stream, wanted))
        for wanted in wanted_streams(server)
    ]
