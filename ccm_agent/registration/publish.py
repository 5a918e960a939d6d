"""Publish and remove entries, and create the stream that stores them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.bus.layout import REGISTRATION, registration_config
from ccm_agent.bus.streams import NoRollupError, NoStreamError, call, read_last, store
from ccm_agent.model.errors import UsageError
from ccm_agent.model.formats.durations import go_duration
from ccm_agent.model.records.registration import encode_entry, ttl_s, ttl_text
from ccm_agent.registration.entries import MARKER, entry_subject

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.model.records.registration import RegistrationEntry

log = logging.getLogger(__name__)

MAX_AGE_S = 60.0
"""In a new stream, entries without a TTL expire after this time."""

MAX_REPLICAS = 5

REMOVED = "Remove"
"""The reason in the mark of a removed entry."""

MARK_S = 3600.0
"""How long the mark is kept: longer than any settle time of a lookup."""


EntrySigner = Callable[[str, bytes, float | None], Mapping[str, str]]
"""Returns the headers with the node's signature for a subject, a body and the entry's lifetime in seconds (None: no end)."""


class Publisher:
    """
    Registers services.

    Args:
        connection: The broker.
        destination: `jetstream` waits until the stream has stored the entry. `nats` publishes it without a TTL and does not
            wait for an acknowledgement, as Choria CCM does.
        stream: The stream of registrations.
        sign: Signs entries; None: they are not signed.
    """

    def __init__(
        self,
        connection: Connection,
        destination: str,
        stream: str = REGISTRATION,
        sign: EntrySigner | None = None,
    ) -> None:
        self._connection = connection
        self._is_stored = destination == "jetstream"
        self._stream = stream
        self._rolls_up = True
        self._sign = sign

    async def publish(self, entry: RegistrationEntry) -> None:
        """
        Register an entry, or renew it.

        Raises:
            BusError: The entry was not registered; the message has the reason.
        """
        subject, body = entry_subject(entry), encode_entry(entry)
        signed = self._sign(subject, body, ttl_s(entry.ttl)) if self._sign is not None else {}
        if not self._is_stored:
            await self._connection.publish(subject, body, signed, confirm=True)
            return
        headers = {"Nats-Expected-Stream": self._stream, **signed}
        if entry.ttl:
            headers["Nats-TTL"] = ttl_text(entry.ttl)
        if self._rolls_up:
            try:
                await store(self._connection, subject, body, {**headers, "Nats-Rollup": "sub"})
            except NoRollupError:
                # The stream belongs to a broker with permissions (ADR 60). It keeps one message per subject, which has the same
                # effect.
                self._rolls_up = False
            else:
                return
        await store(self._connection, subject, body, headers)


async def remove(connection: Connection, entry: RegistrationEntry, stream: str = REGISTRATION) -> bool:
    """
    Remove an entry immediately, and leave a mark of the removal. Returns False if there was no entry.

    The mark is the one that the broker itself leaves for a deleted message (NATS ADR-43), and every reader skips it. Choria CCM
    purges the subject instead, which leaves no mark: a watcher would not see the removal, and a lookup could not distinguish a
    removed entry from one that the broker lost.

    Raises:
        BusError: The entry was not removed; the message has the reason.
    """
    subject = entry_subject(entry)
    stored = await read_last(connection, stream, subject)
    if stored is None or MARKER in stored.headers:
        return False
    headers = {"Nats-Expected-Stream": stream, MARKER: REMOVED, "Nats-TTL": go_duration(MARK_S)}
    await store(connection, subject, b"", headers)
    return True


async def make_stream(
    connection: Connection,
    stream: str = REGISTRATION,
    *,
    replicas: int | None = None,
    max_age_s: float | None = None,
) -> dict[str, Any]:
    """
    Create or update the stream of registrations, and return its configuration in the broker.

    None leaves a setting of an existing stream unchanged. A new stream has one replica, and keeps entries for MAX_AGE_S.

    A stream that was created for a broker with permissions keeps rollup and markers off.

    Raises:
        UsageError: A number is out of range.
        BusError: The broker cannot create it, or refuses.
    """
    if replicas is not None and not 1 <= replicas <= MAX_REPLICAS:
        raise UsageError(f"--replicas {replicas}: must be a number from 1 to {MAX_REPLICAS}")
    if max_age_s is not None and max_age_s < 1:
        raise UsageError("--max-age: must be at least one second")
    age_s = MAX_AGE_S if max_age_s is None else max_age_s
    wanted = registration_config(stream, age_s) | {"num_replicas": replicas or 1}
    try:
        found = (await call(connection, f"STREAM.INFO.{stream}"))["config"]
    except NoStreamError:
        answer = await call(connection, f"STREAM.CREATE.{stream}", wanted)
        created: dict[str, Any] = answer["config"]
        return created
    for field in ("max_bytes", "max_msg_size", "discard"):
        wanted.pop(field)  # keep the operator's setting
    if replicas is None:
        wanted.pop("num_replicas")
    if max_age_s is None:
        wanted.pop("subject_delete_marker_ttl")
        wanted["max_age"] = found.get("max_age", 0)
    if not found.get("allow_rollup_hdrs"):
        wanted |= {"allow_rollup_hdrs": False, "subject_delete_marker_ttl": 0}
    # the broker refuses a duplicate window longer than the maximum age (10052), even its default window
    window = min(found.get("duplicate_window", 0), wanted["max_age"] or found.get("duplicate_window", 0))
    answer = await call(
        connection, f"STREAM.UPDATE.{stream}", {**found, **wanted, "duplicate_window": window}
    )
    made: dict[str, Any] = answer["config"]
    return made
