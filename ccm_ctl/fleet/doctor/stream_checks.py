"""Checks of `ccmctl doctor` for streams and buckets: whether their settings match those of `ccmctl init`, and their replicas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import ServerInfo
from ccm_agent.bus.layout import SCHEDULES_VERSION, LayoutOptions, plan
from ccm_agent.bus.site_streams import for_site
from ccm_agent.bus.stream_settings import Difference, WantedStream, differences
from ccm_agent.bus.streams import NoStreamError, call
from ccm_agent.model.errors import BusError
from ccm_ctl.fleet.doctor.results import (
    Check,
    CheckResult,
    DoctorContext,
    MissingError,
    listed,
    ok,
    problem,
    unknown,
    warning,
)

COPIES = "stream.copies"

CHOSEN = {
    "CCM_EVENTS": {"max_age", "max_bytes", "duplicate_window"},
    "CCM_RUNS": {"max_age"},
    "CCM_FACTS": {"max_msgs_per_subject"},
    "CCM_DATA": {"max_msgs_per_subject"},
    "CCM_ASSIGNMENTS": {"max_msgs_per_subject"},
}
"""Settings that depend on options of `ccmctl init`. A different value may be intended."""


def wanted_streams(server: ServerInfo | None) -> list[WantedStream]:
    """Return the streams that `ccmctl init` would create on this broker, with `--security` if the broker requires credentials."""
    is_secured = server is not None and server.asks_credentials
    with_schedules = server is None or server.version >= SCHEDULES_VERSION
    return plan(LayoutOptions(secure=True if is_secured else None), with_schedules=with_schedules)


async def check_stream(wanted: WantedStream, context: DoctorContext) -> Sequence[CheckResult]:
    """Check one stream or bucket."""
    if context.connection is None:
        raise MissingError("there is no connection to the broker")
    id_, init = f"stream.{wanted.name}", init_command(context)
    try:
        info = await call(context.connection, f"STREAM.INFO.{wanted.config['name']}")
    except NoStreamError:
        return [problem(id_, f"{wanted.name} is missing.", init)]
    return [judge_stream(wanted, info, init)]


async def check_copies(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the replicas of all streams in a cluster. Returns nothing if there is only one server."""
    if context.connection is None or context.server is None:
        raise MissingError("there is no connection to the broker")
    if not context.server.cluster:
        return []
    found: dict[str, Mapping[str, Any]] = {}

    async def ask(connection: Connection, wanted: WantedStream) -> None:
        # another check reports a stream that is missing or does not answer
        with contextlib.suppress(BusError):
            found[wanted.name] = await call(connection, f"STREAM.INFO.{wanted.config['name']}")

    async with asyncio.TaskGroup() as group:
        for wanted in wanted_streams(context.server):
            group.create_task(ask(context.connection, wanted), name=f"doctor:copies:{wanted.name}")
    return [judge_copies(found, init_command(context))]


def judge_copies(infos: Mapping[str, Mapping[str, Any]], init: str) -> CheckResult:
    """
    Judge the replicas of streams in a cluster.

    Args:
        infos: Answers to STREAM.INFO, by the stream's name.
        init: The command that creates the replicas.
    """
    if not infos:
        return unknown(COPIES, "no stream could be read")
    servers = sorted({server for info in infos.values() for server in _behind(info)})
    single = [name for name, info in sorted(infos.items()) if info["config"].get("num_replicas", 1) < 2]
    if servers:
        sentence = f"Replicas are not up to date on {listed(servers)}: the server is down or catching up."
        return warning(COPIES, sentence, f"systemctl status nats-server   # on {servers[0]}", servers)
    if single:
        sentence = f"Only one replica in this cluster, which is lost with its server: {listed(single)}."
        return warning(COPIES, sentence, init, single)
    return ok(COPIES, "Every stream has several replicas, and all are up to date.")


def _behind(info: Mapping[str, Any]) -> list[str]:
    """Return the servers whose replica is offline or not up to date."""
    replicas = (info.get("cluster") or {}).get("replicas") or []
    return [str(one.get("name", "")) for one in replicas if one.get("offline") or not one.get("current")]


def init_command(context: DoctorContext) -> str:
    """Return the command that restores the settings."""
    return f"ccmctl init --security{context.keys_option}" if context.is_secured else "ccmctl init"


def judge_stream(wanted: WantedStream, info: Mapping[str, Any], init: str) -> CheckResult:
    """
    Compare a stream with the expected settings. If there are several findings, the worst comes first.

    Args:
        wanted: The expected settings.
        info: The answer to STREAM.INFO.
        init: The command that restores its settings.
    """
    id_, name, config = f"stream.{wanted.name}", wanted.name, info["config"]
    found = differences(config, for_site(wanted, config))
    altered = [one for one in found if not _is_choice(name, one) and not one.is_kept]
    if altered:
        return problem(
            id_, f"{name} differs from the settings of `ccmctl init`: {_format_differences(altered)}.", init
        )
    if raised := [one for one in found if one.is_kept and not _is_choice(name, one)]:
        sentence = f"{name} has higher limits than `ccmctl init` sets, and it does not lower them: {_format_differences(raised)}."
        return warning(id_, sentence, f"nats stream edit {wanted.config['name']}")
    if lowered := [one for one in found if not one.is_kept]:
        sentence = f"{name} has lower limits than the default: {_format_differences(lowered)}. The command restores them."
        return warning(id_, sentence, init)
    return ok(id_, f"{name} has the settings of `ccmctl init`.")


def _is_choice(name: str, difference: Difference) -> bool:
    return difference.field in CHOSEN.get(name, ())


def _format_differences(found: Sequence[Difference]) -> str:
    return ", ".join(f"{one.field} is {one.has} instead of {one.wanted}" for one in found)


def stream_checks(server: ServerInfo | None) -> list[Check]:
    """Return a separate check for each stream. A stream that does not answer then does not affect the others."""
    settings = [
        Check(ids=(f"stream.{wanted.name}",), look=partial(check_stream, wanted))
        for wanted in wanted_streams(server)
    ]
    return [*settings, Check(ids=(COPIES,), look=check_copies)]
