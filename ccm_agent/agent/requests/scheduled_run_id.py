"""
Scheduled requests: the broker repeats one fixed body, so its run id and time come from the headers it adds.

The id is a KSUID of the time at which the message was stored and of the digest of its place, so every node that gets it, now
or when it catches up, knows the run by the same id.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import derive_id
from ccm_agent.model.ports import IncomingRequest

_HEADERS = ("nats-stream", "nats-sequence", "nats-time-stamp")


def scheduled_run_id(incoming: IncomingRequest) -> tuple[str, datetime]:
    """
    Run id and due time of a scheduled request.

    Raises:
        ProtocolError: The broker's headers are not there.
    """
    lowered = {name.lower(): value for name, value in incoming.headers.items()}
    try:
        stream, sequence, stamp = (lowered[name] for name in _HEADERS)
        # nanoseconds, as the broker writes them, are more than Python reads
        due = datetime.fromisoformat(f"{stamp[:19]}+00:00").astimezone(UTC)
        digest = hashlib.sha256(f"{stream}\n{sequence}\n{stamp}".encode()).digest()
        return derive_id(int(due.timestamp()), digest[:16]), due
    except (KeyError, ValueError) as err:
        raise ProtocolError(
            f"{incoming.subject}: a scheduled request without the broker's headers: {err}"
        ) from err
