"""Checks of `ccmctl doctor` for the signers list: whether it is published, whether it is the newest one, and its content."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from ccm_agent.bus.signatures.timestamp import Timestamp
from ccm_agent.bus.signatures.trust import SignersList, Trust, read_signers
from ccm_agent.model.errors import NotFoundError, ProtocolError
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.moments import format_moment
from ccm_ctl.fleet.doctor.renewal import replace_command
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
from ccm_ctl.fleet.keys.signers import published
from ccm_ctl.fleet.keys.signers_timestamp import read_confirmed

IDS = (
    "signers.list",
    "signers.published",
    "signers.timestamp",
    "signers.unsigned",
    "signers.expiry",
    "credentials.signer",
)
PUBLISH = "ccmctl signers publish"
RENEW = "ccmctl signers renew"


async def check_signers(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the list that nodes read, verified with the known root key."""
    if context.trust_bucket is None:
        raise MissingError("there is no connection to the broker")
    trust, own, why = await asyncio.to_thread(_known, context)
    fix = f"{PUBLISH}{context.keys_option}"
    if trust is None and not context.is_secured:
        sentence = "The fleet has no root key: nodes cannot verify who sends requests."
        return [problem("signers.list", sentence, "ccmctl init --security")]
    if trust is None:
        raise MissingError(
            "the root key is unknown: your credentials contain none, and the fleet's keys are not here"
        )
    there = await published(context.trust_bucket)
    if there is None:
        return [
            problem(
                "signers.list",
                "No signers list is published: new operators and revocations do not reach the nodes.",
                fix,
            )
        ]
    try:
        newest = read_signers(there.body.encode(), there.signature, trust.root, now_ms=context.now_ms)
    except ProtocolError as err:
        return [problem("signers.list", f"Nodes refuse the published signers list: {err.message}.", fix)]
    results = [ok("signers.list", f"The published signers list {newest.number} is signed by the root key.")]
    results.append(
        judge_published(newest, own, fix) if own is not None else unknown("signers.published", why)
    )
    results.append(await check_timestamp(newest, context))
    results += [judge_unsigned(newest, context), judge_expiry(newest, context)]
    signatory = context.fleet.signatory if context.fleet is not None else None
    return (
        [*results, judge_own_key(newest, signatory.public_key, context)] if signatory is not None else results
    )


def _known(context: DoctorContext) -> tuple[Trust | None, SignersList | None, str]:
    """Return the known root key, the list in the folder, and the reason if that list is missing. Blocking."""
    try:
        signers = context.fleet_keys().signers
        return context.trust or signers.trust(), signers.read(), ""
    except NotFoundError as err:
        return context.trust, None, err.message


def judge_published(newest: SignersList, own: SignersList, fix: str) -> CheckResult:
    """Compare the published list with the list in the folder."""
    if newest.number == own.number:
        return ok("signers.published", "The nodes have the newest signers list.")
    if newest.number > own.number:
        sentence = "The published signers list is newer than the one in this folder; copy trust.json from where it was made."
        return warning("signers.published", sentence)
    sentence = "The published signers list is older than the one in this folder: nodes do not have the latest changes."
    return problem("signers.published", sentence, fix)


async def check_timestamp(newest: SignersList, context: DoctorContext) -> CheckResult:
    """Check who last confirmed the list, and when."""
    assert context.trust_bucket is not None
    if not newest.max_age_s:
        sentence = (
            "The signers list has no maximum age: if the broker withholds a new list from a node, the node obeys revoked "
            "operators until it reads that list."
        )
        fix = f"ccmctl signers max-age 3d{context.keys_option} && {PUBLISH}{context.keys_option}"
        return warning("signers.timestamp", sentence, fix)
    try:
        confirmed = await read_confirmed(context.trust_bucket, newest, now_ms=context.now_ms)
    except ProtocolError as err:
        return problem("signers.timestamp", f"Nodes refuse the published timestamp: {err.message}.", RENEW)
    return judge_timestamp(newest, confirmed, context.now_ms)


def judge_timestamp(newest: SignersList, confirmed: Timestamp | None, now_ms: int) -> CheckResult:
    """Compare a timestamp with the list that it should confirm."""
    issued = confirmed.issued if confirmed is not None and confirmed.signers == newest.number else 0
    moment = max(newest.issued, issued)
    said = f"The signers list was last confirmed {format_moment(datetime.fromtimestamp(moment / 1000, UTC))}"
    age_s = (now_ms - moment) / 1000
    if age_s > newest.max_age_s:
        sentence = (
            f"{said}, and its maximum age is {format_duration(newest.max_age_s)}: nodes accept only plans."
        )
        return problem("signers.timestamp", sentence, RENEW)
    if age_s > newest.max_age_s * 3 / 4:
        sentence = f"{said}; {format_duration(newest.max_age_s)} after that, nodes accept only plans."
        return warning("signers.timestamp", sentence, RENEW)
    return ok("signers.timestamp", f"{said}, which is recent enough.")


def judge_unsigned(newest: SignersList, context: DoctorContext) -> CheckResult:
    """Check whether nodes currently accept unsigned messages."""
    if not newest.allows_unsigned(context.now_ms):
        return ok("signers.unsigned", "Nodes accept nothing unsigned.")
    until = datetime.fromtimestamp(newest.allow_unsigned_until / 1000, UTC)
    sentence = f"Nodes accept unsigned requests and documents until {format_moment(until)}."
    option = context.keys_option
    fix = f"ccmctl signers allow-unsigned --end{option} && {PUBLISH}{option}"
    return warning("signers.unsigned", sentence, fix)


def judge_expiry(newest: SignersList, context: DoctorContext) -> CheckResult:
    """Check whether operators' keys expire."""
    lasting = [one for one in newest.signers if not one.expires]
    if not lasting:
        return ok("signers.expiry", "Every operator's key expires.")
    names = sorted({one.name for one in lasting})
    sentence = f"Keys that never expire: {len(lasting)} of {len(newest.signers)} ({listed(names)})."
    first = min(lasting, key=lambda one: one.name)
    return warning("signers.expiry", sentence, replace_command(first, context.keys_option), names)


def judge_own_key(newest: SignersList, key: str, context: DoctorContext) -> CheckResult:
    """Check whether nodes accept the key in the operator's credentials."""
    found = newest.by_key(key, context.now_ms)
    if found is not None:
        return ok("credentials.signer", f"Nodes accept requests that you sign as {found.name}.")
    sentence = (
        "The signers list does not contain your key, or its entry has expired: nodes refuse your requests."
    )
    return problem("credentials.signer", sentence, f"{PUBLISH}{context.keys_option}")


def signer_checks() -> list[Check]:
    """Return the checks for the signers list."""
    return [Check(ids=IDS, look=check_signers)]
