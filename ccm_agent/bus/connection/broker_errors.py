"""
Errors of the broker in the words of an operator: subjects of JetStream's API become the stream or bucket that they belong to.
"""

from __future__ import annotations

import re

from ccm_agent.model.errors import BusUnavailableError

_STORE = re.compile(
    r"\$JS\.API\.(?:DIRECT\.GET|STREAM\.MSG\.GET|STREAM\.\w+|CONSUMER\.(?:MSG\.NEXT|\w+))\.(?:(KV|OBJ)_)?([\w-]+)"
    r"|\$(KV|O)\.([\w-]+)"
)
"""A subject on which a stream, a bucket or an object store is read or written."""

_KINDS = {"KV": "bucket", "OBJ": "object store", "O": "object store"}
_PREFIXES = {"bucket": "KV_", "object store": "OBJ_"}
_CREATED_BY = {"bucket": "nats kv add", "object store": "nats object add", "stream": "nats stream add"}


class NoRespondersError(BusUnavailableError):
    """No program answers on a subject: no stream stores it, or JetStream is off for the account."""


def place_of(subject: str) -> str:
    """
    A subject in the words of an operator: `bucket CCM_DATA, key common`, `stream CCM_EVENTS`, `JetStream`.

    Subjects of JetStream's API mean nothing to most operators. Other subjects are the protocol's, and are returned unchanged.
    """
    kind, name = _store_of(subject)
    if name:
        key = subject.partition(f"$KV.{name}.")[2]
        return f"{kind} {name}, key {key}" if key else f"{kind} {name}"
    return "JetStream" if subject.startswith("$JS.") else subject


def jetstream_is_off(address: str) -> str:
    """The message for a server without streams."""
    return f"{address}: JetStream is off; start nats-server with `jetstream {{}}`"


def no_responders(subject: str) -> str:
    """Why no stream answers on a subject, and what an operator can do: `ccmctl init` creates only the project's own ones."""
    kind, name = _store_of(subject)
    if not name:
        return f"{subject}: no stream stores this subject, or it has no leader now; create missing streams with `ccmctl init`"
    create = "ccmctl init" if is_ours(subject) or name == "REGISTRATION" else f"{_CREATED_BY[kind]} {name}"
    return f"the broker has no {kind} {name} (create it with `{create}`), or it has no leader now"


def is_ours(subject: str) -> bool:
    """Whether a subject belongs to a stream, bucket or object store that only `ccmctl init` creates."""
    return _store_of(subject)[1].startswith("CCM_")


def is_not_direct(subject: str) -> NoRespondersError:
    """The error for a stream that did not answer a direct get, and that this user may not read in another way."""
    kind, name = _store_of(subject)
    stream = f"{_PREFIXES.get(kind, '')}{name}"
    return NoRespondersError(
        f"the broker has no {kind} {name}, or it does not allow direct reads, and this user may not read it otherwise; "
        f"allow them with `nats stream edit {stream} --allow-direct`"
    )


def _store_of(subject: str) -> tuple[str, str]:
    """Kind and name of the stream, bucket or object store that a subject belongs to; two empty texts if there is none."""
    found = _STORE.match(subject)
    if found is None:
        return "", ""
    return _KINDS.get(found[1] or found[3] or "", "stream"), found[2] or found[4]
