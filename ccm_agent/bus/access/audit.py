"""
The audit streams: their subjects and writers.

Both are in an account of their own (`bus.access.accounts`). An operator publishes entries to `CCM_AUDIT`, below a token with the
operator's name. `CCM_AUDIT_NODES` stores events that nodes publish anyway: their decisions about requests, and the events with
their certificates. It is a separate stream, so a node cannot displace entries of operators.
"""

from __future__ import annotations

from typing import Any

from ccm_agent.bus.subjects import encode_token
from ccm_agent.model.wire import AGENT_DECISION, AGENT_KEY, AGENT_STARTUP

AUDIT_STREAM = "CCM_AUDIT"
AUDIT_NODES_STREAM = "CCM_AUDIT_NODES"
AUDIT_STREAMS = (AUDIT_STREAM, AUDIT_NODES_STREAM)
AUDIT_PREFIX = "choria.ccm.audit"
AUDITED = (AGENT_DECISION, AGENT_STARTUP, AGENT_KEY)
"""The events of nodes that both streams store: CCM_EVENTS and the audit stream."""

OPERATORS = f"{AUDIT_PREFIX}.operator.*"

_BYTES = 1 << 30
_ENTRY_BYTES = 8 << 10
_ENTRIES = 10_000
"""The maximum number of entries per subject. A stolen key of a node can fill 240 MiB, and displaces only entries of that node."""

_NANOSECONDS = 1_000_000_000


def operator_subject(name: str) -> str:
    """Return the subject on which an operator publishes audit entries."""
    return f"{AUDIT_PREFIX}.operator.{encode_token(name)}"


def audited_patterns() -> list[str]:
    """Return the subjects of nodes' events that the audit stream stores."""
    return [f"{protocol}.>" for protocol in AUDITED]


def audit_configs(age_s: int, duplicate_window_s: int) -> list[dict[str, Any]]:
    """
    Return the configurations of the streams. Entries are removed only by age and by the limits.

    The broker does not allow `deny_delete` and `deny_purge` to be removed from a stream.
    """
    fields: dict[str, Any] = {
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        "deny_delete": True,
        "deny_purge": True,
        "max_age": age_s * _NANOSECONDS,
        "max_bytes": _BYTES,
        "max_msg_size": _ENTRY_BYTES,
        "max_msgs_per_subject": _ENTRIES,
        "duplicate_window": duplicate_window_s * _NANOSECONDS,
    }
    return [
        {"name": AUDIT_STREAM, "subjects": [OPERATORS], "no_ack": False, **fields},
        # A node waits for the acknowledgement of the stream of events, which stores the same message.
        {"name": AUDIT_NODES_STREAM, "subjects": audited_patterns(), "no_ack": True, **fields},
    ]
