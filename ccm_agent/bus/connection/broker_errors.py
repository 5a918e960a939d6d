"""
Errors of the broker in terms that operators know: subjects of JetStream's API are replaced by the name of their stream or bucket.
"""

from __future__ import annotations

import os
import re
import socket

from ccm_agent.model.errors import BusSetupError, BusUnavailableError

_STORE = re.compile(
    r"\$JS\.API\.(?:DIRECT\.GET|STREAM\.MSG\.GET|STREAM\.\w+|CONSUMER\.(?:MSG\.NEXT|\w+))\.(?:(KV|OBJ)_)?([\w-]+)"
    r"|\$(KV|O)\.([\w-]+)"
)
"""A subject on which a stream, a bucket or an object store is read or written."""

_KINDS = {"KV": "bucket", "OBJ": "object store", "O": "object store"}
_PREFIXES = {"bucket": "KV_", "object store": "OBJ_"}
_CREATED_BY = {"bucket": "nats kv add", "object store": "nats object add", "stream": "nats stream add"}


class NoRespondersError(BusUnavailableError):
    """
    No program answers on a subject: no stream stores the subject, or JetStream is off for the account.

    Attributes:
        stream: The name of the stream that should store the subject. "": unknown.
    """

    def __init__(self, message: str, stream: str = "") -> None:
        self.stream = stream
        super().__init__(message)


def place_of(subject: str) -> str:
    """
    Return the name of a subject for operators: `bucket CCM_DATA, key common`, `stream CCM_EVENTS`, `JetStream`.

    Most operators do not know the subjects of JetStream's API. Other subjects belong to the protocol and are returned unchanged.
    """
    kind, name = _store_of(subject)
    if name:
        key = subject.partition(f"$KV.{name}.")[2]
        return f"{kind} {name}, key {key}" if key else f"{kind} {name}"
    return "JetStream" if subject.startswith("$JS.") else subject


def jetstream_is_off(address: str) -> str:
    """Return the message for a server without streams."""
    return f"{address}: JetStream is off; start nats-server with `jetstream {{}}`"


def no_responders(subject: str) -> str:
    """Return why no stream answers on a subject, and the remedy: `ccmctl init` creates only the project's own streams."""
    kind, name = _store_of(subject)
    if not name:
        return f"{subject}: no stream stores this subject, or it has no leader now; create missing streams with `ccmctl init`"
    create = "ccmctl init" if is_ours(subject) or name == "REGISTRATION" else f"{_CREATED_BY[kind]} {name}"
    return f"the broker has no {kind} {name} (create it with `{create}`), or it has no leader now"


def stream_of(subject: str) -> str:
    """Return the name of the stream that stores a subject of a bucket or of JetStream's API; "" for others."""
    kind, name = _store_of(subject)
    return f"{_PREFIXES.get(kind, '')}{name}"


def read_only(stream: str, *, is_write: bool = True) -> BusSetupError:
    """Return the error for a write to a mirror, or for a removal there."""
    place = place_of(f"$JS.API.STREAM.INFO.{stream}")
    more = (
        "; a directory is stored there: assign it at the center, or use a single file here"
        if is_write and stream.startswith("OBJ_")
        else ""
    )
    return BusSetupError(
        f"{place}: read-only, because this broker is that of a site; run this at the center{more}"
    )


def is_ours(subject: str) -> bool:
    """Whether a subject belongs to a stream, bucket or object store that only `ccmctl init` creates."""
    return _store_of(subject)[1].startswith("CCM_")


def is_not_direct(subject: str) -> NoRespondersError:
    """Return the error for a stream that did not answer a direct get and that this user may not read in another way."""
    kind, name = _store_of(subject)
    stream = stream_of(subject)
    return NoRespondersError(
        f"the broker has no {kind} {name}, or it does not allow direct reads, and this user may not read it otherwise; "
        f"allow them with `nats stream edit {stream} --allow-direct`"
    )


def plain_reason(err: Exception) -> str:
    """Return why a connection failed, without the addresses that asyncio adds; "" if there is no useful text."""
    if isinstance(err, ConnectionRefusedError):
        return "connection refused"
    if isinstance(err, socket.gaierror):
        return f"its name has no address ({err.strerror})"
    return os.strerror(err.errno) if isinstance(err, OSError) and err.errno else ""


def _store_of(subject: str) -> tuple[str, str]:
    """Return kind and name of the stream, bucket or object store of a subject; two empty texts if there is none."""
    found = _STORE.match(subject)
    if found is None:
        return "", ""
    return _KINDS.get(found[1] or found[3] or "", "stream"), found[2] or found[4]
