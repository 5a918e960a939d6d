"""The check of `ccmctl doctor` for the audit trail: whether the fleet has one, and whether this operator can write to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from ccm_agent.bus.access.audit import AUDIT_STREAM, operator_subject
from ccm_agent.bus.access.credentials import forbids_publishing
from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.bus.streams import read_newest
from ccm_ctl.fleet.doctor.results import Check, CheckResult, DoctorContext, MissingError, ok, warning
from ccm_ctl.fleet.doctor.stream_checks import init_command

TRAIL = "audit.trail"


async def check_trail(context: DoctorContext) -> Sequence[CheckResult]:
    """
    Check that the audit streams exist and these credentials may write to them. A fleet without credentials has no audit trail.
    """
    if context.trust is None and not context.is_secured and context.connection is not None:
        sentence = "The fleet has no audit trail: without credentials, nothing proves who did what."
        return [warning(TRAIL, sentence, "ccmctl init --security")]
    if context.trust is None:
        return []
    if context.connection is None:
        raise MissingError("there is no connection to the broker")
    name = context.settings.identity
    subject = operator_subject(name)
    try:
        await read_newest(context.connection, AUDIT_STREAM, [subject])
    except NoRespondersError:
        sentence = "Nothing is audited: the broker has no audit streams."
        return [warning(TRAIL, sentence, init_command(context))]
    if await asyncio.to_thread(_is_forbidden, context.settings.creds, subject):
        sentence = "Your signed requests are not audited: your credentials are older than the audit trail."
        return [
            warning(
                TRAIL,
                sentence,
                f"ccmctl operator add {quote(name)} --apply SCOPE{context.keys_option} > {quote(name)}.creds",
            )
        ]
    return [ok(TRAIL, "Signed requests of operators and the decisions of nodes are audited.")]


def _is_forbidden(creds: str, subject: str) -> bool:
    return bool(creds) and forbids_publishing(Path(creds).read_text(encoding="utf-8"), subject)


def audit_checks() -> list[Check]:
    """Return the check."""
    return [Check(ids=(TRAIL,), look=check_trail)]
