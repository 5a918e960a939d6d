"""
The schedule of a rollout: its stored definition and its due starts.

Nodes do not receive it. The broker stores a start when it is due, and a rollout server reads the start (`starter`). The
definition and the start have the same body and the signature of the operator who added the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import DUE_PREFIX, rollout_schedule_subject, scheduled_rollout
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.wire import ManifestRequest
from ccm_ctl.fleet.rollout.plan import RolloutDefinition

START_WITHIN_S = 3600.0
"""Default time in seconds after which a start is skipped if no server has begun it."""


class ScheduledRollout(Struct, frozen=True, kw_only=True):
    """
    The content of a scheduled rollout, signed by the operator.

    Attributes:
        request: The request that is sent to each node. Its run and times are set at each start.
        scope: The scope of the target nodes when the schedule was added. It is only displayed.
        definition: The waves and limits. They are applied to the nodes that match when the start is due.
        start_within_s: Seconds after which a start is skipped if no server has begun it.
        deadline_s: Seconds after its request until which a node may start.
    """

    request: ManifestRequest
    scope: str
    definition: RolloutDefinition
    start_within_s: float = START_WITHIN_S
    deadline_s: float = 3600.0


class DueRollout(Struct, frozen=True, kw_only=True):
    """
    A due start.

    Attributes:
        name: The name of the schedule.
        due: When the broker stored the start.
        body: The signed bytes.
        signature: The signature, or "".
        rollout: The decoded body.
    """

    name: str
    due: datetime
    body: bytes
    signature: str
    rollout: ScheduledRollout


def find_due(stored: Iterable[Stored]) -> list[DueRollout]:
    """
    Return the newest due start of each schedule, unless the schedule has changed since then. A schedule with `@at` no longer
    exists after it was due.

    Args:
        stored: The newest message on each subject of `ROLLOUT_STARTS`.
    """
    messages = {one.subject: one for one in stored}
    found = []
    for message in messages.values():
        name = scheduled_rollout(message.subject)
        if not name or not message.subject.startswith(f"{DUE_PREFIX}.") or message.copied or not message.body:
            continue
        schedule = messages.get(rollout_schedule_subject(name))
        if schedule is not None and (schedule.body != message.body or schedule.time > message.time):
            continue
        headers = {key.lower(): value for key, value in message.headers.items()}
        if headers.get("nats-scheduler") != rollout_schedule_subject(name):
            continue
        try:
            rollout = decode_foreign(message.body, ScheduledRollout)
        except msgspec.MsgspecError:
            continue
        found.append(
            DueRollout(
                name=name,
                due=message.time,
                body=message.body,
                signature=headers.get(SIGNATURE_HEADER.lower(), ""),
                rollout=rollout,
            )
        )
    return found
