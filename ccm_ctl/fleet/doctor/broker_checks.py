"""Checks of `ccmctl doctor` for the broker: authentication, TLS, accounts, servers, clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ccm_agent.bus.access.credentials import account_subject
from ccm_agent.bus.connection.messages import ServerInfo
from ccm_agent.bus.layout import NODES, READS_VERSION, SCHEDULES_VERSION
from ccm_agent.bus.streams import call, parse_time
from ccm_agent.model.errors import BusError, ProtocolError
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.fleet.doctor.results import (
    Check,
    CheckResult,
    DoctorContext,
    MissingError,
    days_until,
    listed,
    ok,
    problem,
    unknown,
    warning,
)
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.moving import Left, connected_users, who_is_left
from ccm_ctl.fleet.keys.sites import site_accounts, site_tokens
from ccm_ctl.fleet.keys.system_account import ask_servers, system_connection
from ccm_ctl.fleet.nodes.node_clock import CLOCK_PROBLEM_S, CLOCK_WARNING_S

SECURE = "ccmctl init --security"
RELOAD = "nats-server --signal reload"

CERTIFICATE_DAYS = 30
"""A certificate that expires in fewer days causes a warning."""

_GLOBAL_ACCOUNT = "$G"
"""The account of all users if a server's configuration has no accounts."""


async def check_server(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the information that the server sent when connecting."""
    server = context.server
    if server is None:
        raise MissingError("the server's description is missing")
    results = [ok("broker.connection", f"Connected to {server.url}."), _authentication(server), _tls(server)]
    if server.certificate_ends is not None:
        results.append(_certificate(server.certificate_ends, context.now))
    return [*results, _version(server)]


def _authentication(server: ServerInfo) -> CheckResult:
    if server.asks_credentials:
        return ok("broker.authentication", "The broker requires credentials.")
    reach = "every user of this host" if server.is_loopback else "every host that can reach it"
    sentence = f"The broker requires no credentials: {reach} can command the nodes."
    return problem("broker.authentication", sentence, SECURE)


def _tls(server: ServerInfo) -> CheckResult:
    if server.is_encrypted:
        return ok("broker.tls", "The connection uses TLS.")
    if server.is_loopback:
        return ok("broker.tls", "The connection has no TLS and does not leave this host.")
    sentence = "The connection has no TLS: others on the network can read and change the traffic."
    return problem("broker.tls", sentence, f"{SECURE} --server-name HOST")


def _certificate(ends: datetime, now: datetime) -> CheckResult:
    days = days_until(ends, now)
    sentence = f"The broker's certificate expires on {ends:%Y-%m-%d}, in {days}d."
    if days >= CERTIFICATE_DAYS:
        return ok("broker.certificate", sentence)
    return warning("broker.certificate", sentence, f"{SECURE} --server-name HOST")


def _version(server: ServerInfo) -> CheckResult:
    has = _dotted(server.version)
    if server.version < READS_VERSION:
        sentence = f"nats-server {has} is too old: version {_dotted(READS_VERSION)} or newer is required."
        return problem("broker.version", sentence)
    if server.version < SCHEDULES_VERSION:
        sentence = f"nats-server {has} does not support schedules: version {_dotted(SCHEDULES_VERSION)} or newer is required."
        return warning("broker.version", sentence)
    return ok("broker.version", f"nats-server {has} is supported.")


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


async def check_clock(context: DoctorContext) -> Sequence[CheckResult]:
    """Compare the clocks of this host and the broker, because nodes refuse requests with a wrong time."""
    if context.connection is None or context.fleet is None:
        raise MissingError("there is no connection to the broker")
    answer = await call(context.connection, f"STREAM.INFO.KV_{NODES}")
    try:
        there = parse_time(str(answer["ts"]))
    except (KeyError, ValueError) as err:
        raise ProtocolError("the broker does not report its time") from err
    off_s = (there - context.fleet.clock.now()).total_seconds()
    return [judge_clock(off_s)]


def judge_clock(off_s: float) -> CheckResult:
    """Judge a clock difference: the seconds by which the broker's clock is ahead of this host's."""
    off = abs(off_s)
    if off < CLOCK_WARNING_S:
        return ok("broker.clock", "The clocks of this host and of the broker agree.")
    sentence = f"The clocks of this host and of the broker differ by {format_duration(round(off))}."
    if off < CLOCK_PROBLEM_S:
        return warning("broker.clock", sentence, "timedatectl set-ntp true")
    sentence += " Nodes refuse requests that are signed with a wrong time."
    return problem("broker.clock", sentence, "timedatectl set-ntp true")


async def check_accounts(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that nodes and operators have their own accounts, separate from the account of the streams."""
    if not context.is_secured:
        return []
    if not context.settings.creds and not context.settings.nkey:
        return [await _configured_accounts(context)]
    keys = await asyncio.to_thread(context.fleet_keys)
    return [await asyncio.to_thread(judge_accounts, keys, context)]


def judge_accounts(keys: Keys, context: DoctorContext) -> CheckResult:
    """Check the accounts in the folder with the keys. Blocking."""
    migrate = f"{SECURE} --migrate{context.keys_option}"
    if keys.has_one_account:
        sentence = "All users share one account: a node can reach every stream."
        return problem("broker.accounts", sentence, migrate)
    moving = keys.moving
    if moving is not None:
        until = datetime.fromtimestamp(moving.until, context.now.tzinfo)
        sentence = f"The migration to separate accounts is not complete; old credentials work until {until:%Y-%m-%d}."
        return warning("broker.accounts", sentence, migrate)
    return ok("broker.accounts", "Streams, operators and nodes have separate accounts.")


async def _configured_accounts(context: DoctorContext) -> CheckResult:
    """Check the accounts of a broker whose users are in its configuration file. Such a broker reports the user's own account."""
    assert context.connection is not None
    answer = msgspec.json.decode((await context.connection.request("$SYS.REQ.USER.INFO")).body)
    if answer.get("data", {}).get("account") != _GLOBAL_ACCOUNT:
        return unknown(
            "broker.accounts", "the accounts are in the server's configuration, which cannot be read here"
        )
    sentence = "The broker has no accounts: all users share the account of the streams."
    return problem("broker.accounts", sentence, SECURE)


async def check_configuration(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that each server uses the newest `nats-security.conf`, because an older one accepts revoked credentials."""
    if not context.is_secured:
        return []
    keys = await asyncio.to_thread(context.fleet_keys)
    if await asyncio.to_thread(_is_outdated, keys):
        return [_outdated(keys, context)]
    # the account of the streams has other limits at a site
    site = context.server.domain if context.server is not None else ""
    wanted, path = await asyncio.to_thread(site_tokens, keys.folder, site), site_accounts(keys.folder, site)
    if not wanted:
        wanted, path = await asyncio.to_thread(keys.account_tokens), keys.configuration
    if not wanted:
        raise MissingError(f"{keys.configuration} defines no accounts")
    subjects = {key: account_subject(key) for key in wanted}
    answers: list[bytes] = []
    async with system_connection(context.settings, keys, list(subjects.values())) as connection:
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(ask_servers(connection, one), name="doctor:account")
                for one in subjects.values()
            ]
        answers = [body for task in asked for body in task.result()]
    return [judge_configuration(wanted, answers, path)]


def _is_outdated(keys: Keys) -> bool:
    return not keys.has_one_account and not keys.is_configuration_current


def _outdated(keys: Keys, context: DoctorContext) -> CheckResult:
    sentence = (
        f"{keys.configuration} was written by an earlier version and lacks settings that this version needs."
    )
    return problem("broker.configuration", sentence, f"{SECURE}{context.keys_option}")


def judge_configuration(wanted: dict[str, str], answers: Sequence[bytes], path: Path) -> CheckResult:
    """
    Judge the servers' answers about the accounts.

    Args:
        wanted: The accounts' JWTs in the file, by public key.
        answers: The servers' answers, one for each account.
        path: The file with the accounts.
    """
    answered = [msgspec.json.decode(body) for body in answers]
    outdated = {
        str(one.get("server", {}).get("name", ""))
        for one in answered
        if (data := one.get("data") or {}).get("jwt") != wanted.get(data.get("account_name", ""))
    }
    if not outdated:
        return ok("broker.configuration", f"Every server has the newest {path.name}.")
    names = sorted(outdated)
    sentence = f"An older {path.name} is in force on {listed(names)}: revoked credentials may still work."
    return problem(
        "broker.configuration",
        sentence,
        f"scp {path} SERVER: && {RELOAD}   # on each server",
        names,
    )


async def check_old_credentials(context: DoctorContext) -> Sequence[CheckResult]:
    """Check for users that are connected to the account of the streams with credentials of the old layout."""
    if not context.is_secured:
        return []
    keys = await asyncio.to_thread(context.fleet_keys)
    connected = await connected_users(context.settings, keys)
    return [await asyncio.to_thread(_old_credentials, keys, connected, context)]


def _old_credentials(keys: Keys, connected: Mapping[str, str], context: DoctorContext) -> CheckResult:
    left = who_is_left(keys.of_one_account(), keys.moved(), connected)
    return judge_old_credentials(left, context, is_moving=keys.moving is not None)


def judge_old_credentials(left: Sequence[Left], context: DoctorContext, *, is_moving: bool) -> CheckResult:
    """Judge the users with credentials of the old layout. During a migration they are expected."""
    id_, fix = "broker.old-credentials", f"{SECURE} --migrate{context.keys_option}"
    if not left:
        return ok(id_, "No user has credentials of the old one-account layout.")
    names = [one.name or "(unknown)" for one in left]
    sentence = f"Credentials of the old one-account layout still work for {listed(names)}."
    return (warning if is_moving else problem)(id_, sentence, fix, names)


def broker_checks() -> list[Check]:
    """Return the checks for the broker."""
    return [
        Check(
            ids=("broker.authentication", "broker.tls", "broker.certificate", "broker.version"),
            look=check_server,
        ),
        Check(ids=("broker.clock",), look=check_clock),
        Check(ids=("broker.accounts",), look=check_accounts),
        Check(ids=("broker.configuration",), look=check_configuration),
        Check(ids=("broker.old-credentials",), look=check_old_credentials, limit_s=60),
    ]


def no_connection(err: BusError) -> CheckResult:
    """Return the result for a failed connection."""
    return problem("broker.connection", err.message)
