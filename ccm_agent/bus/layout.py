"""
All streams, buckets and object stores of the project on a broker, as `ccmctl init` creates them.

`LayoutOptions` defines the wanted streams and their size limits. `make` compares them with the broker, and creates or updates
those that differ. A second run changes nothing. `make` never lowers a limit that an operator raised, and never deletes anything.

A bucket is a stream named `KV_<bucket>`, and an object store is a stream named `OBJ_<name>` (ADR-8, ADR-20), so the `nats`
program can also read and write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.bus.access.audit import audit_configs
from ccm_agent.bus.connection.broker_errors import jetstream_is_off
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.signatures.sealing import SECRETS as SECRETS_BUCKET
from ccm_agent.bus.signatures.trust import TRUST_BUCKET
from ccm_agent.bus.stream_creation import CopyCount, LayoutAction, LayoutChange, make_one
from ccm_agent.bus.stream_settings import WantedStream
from ccm_agent.bus.streams import call
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    NOTIFICATION_PREFIX,
    REGISTRATION_PREFIX,
    SCHEDULE_PREFIX,
    stored_patterns,
)
from ccm_agent.model.errors import BusSetupError, BusUnavailableError
from ccm_agent.model.records.join import JOINS_BUCKET
from ccm_agent.model.records.slots import BUCKET, LEASE_S
from ccm_agent.model.wire import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import ServerInfo

NODES = "CCM_NODES"
FACTS = "CCM_FACTS"
DATA = "CCM_DATA"
NODE_DATA = "CCM_NODE_DATA"
MANIFESTS = "CCM_MANIFESTS"
ASSIGNMENTS = "CCM_ASSIGNMENTS"
RUNS = "CCM_RUNS"
SECRETS = SECRETS_BUCKET
SLOTS = BUCKET
TRUST = TRUST_BUCKET
JOINS = JOINS_BUCKET
REGISTRATION = "REGISTRATION"

NOTIFYING = (FACTS, DATA, ASSIGNMENTS, MANIFESTS, TRUST)
"""
Buckets and object stores whose changes are announced to agents. Do not enable republish for buckets that nodes write to.
"""

READS_VERSION = (2, 11, 0)
"""The first version with batched direct gets and keys with a TTL."""

SCHEDULES_VERSION = (2, 14, 0)
"""The first version with cron and interval schedules (ADR-51); 2.12 has only `@at`."""

_NANOSECONDS = 1_000_000_000
_DAY_S = 86_400
_MIB = 1 << 20
REGISTRATION_BYTES = 256 * _MIB
"""Space for half a million entries."""
SECURE_REGISTRATION_BYTES = 8 << 10
"""The largest entry on a broker with security."""
EVENT_BYTES = 80 << 10
"""An event of 64 KiB with its headers."""
RUNS_BYTES = 128 * _MIB
"""Space for the records of about ten thousand runs. Every operator can write them, and the oldest are removed first."""
SLOT_BYTES = 4 << 10
"""An entry contains the names of a resource and a run."""
SLOTS_BYTES = 64 * _MIB
"""Space for sixteen thousand of the largest entries."""
TRUST_HISTORY = 20
TRUST_BYTES = 512 << 10
"""Space for a list of two thousand operators."""
JOIN_BYTES = 256 << 10
"""The maximum size of the list of nodes that have used one token."""
_REGISTRATION_SETTLED = ("allow_rollup_hdrs", "subject_delete_marker_ttl", "max_msg_size", "discard")
"""Settings that depend on whether the broker has security."""


class LayoutOptions(Struct, frozen=True, kw_only=True):
    """
    Options that an operator or a test sets.

    Attributes:
        replicas: Copies of each stream; 0 means three if the cluster has three servers, otherwise one.
        history: The number of revisions to keep of facts, data and assignments.
        events_age_s, events_bytes: Age and size limits of events; the oldest are removed first.
        duplicate_window_s: How long the broker recognizes an event by its id; the ids are kept in memory.
        runs_age_s: How long the record of a run is kept.
        slots_s: How long a slot is held after the last renewal by its holder.
        audit_age_s: How long audit entries are kept.
        registration: The name of the stream of registrations.
        registration_age_s: Maximum age of a registration without its own TTL.
        secure: Whether each user of the broker has its own permissions. If so, rollup of registrations, data and bundles is off,
            because one user could erase all of them with it. None keeps the current setting; new streams allow rollup.
        schedules: Whether to create the stream of schedules; None creates it if the server supports schedules.
    """

    replicas: int = 0
    history: int = 20
    events_age_s: int = 30 * _DAY_S
    events_bytes: int = 2048 * _MIB
    duplicate_window_s: int = 3600
    runs_age_s: int = 90 * _DAY_S
    slots_s: float = LEASE_S
    audit_age_s: int = 400 * _DAY_S
    registration: str = REGISTRATION
    registration_age_s: int = 365 * _DAY_S
    secure: bool | None = None
    schedules: bool | None = None


def plan(layout: LayoutOptions, *, with_schedules: bool) -> list[WantedStream]:
    """Return the wanted streams as configurations of the broker's API, without replicas, which depend on the broker."""
    rollup = ("allow_rollup_hdrs",) if layout.secure is None else ()
    may_roll_up = not layout.secure
    things = [
        WantedStream(NODES, "bucket", _nodes()),
        WantedStream(FACTS, "bucket", _bucket(FACTS, layout.history)),
        WantedStream(DATA, "bucket", _bucket(DATA, layout.history, allow_rollup_hdrs=may_roll_up), rollup),
        WantedStream(NODE_DATA, "bucket", _bucket(NODE_DATA, 1)),
        WantedStream(ASSIGNMENTS, "bucket", _bucket(ASSIGNMENTS, layout.history)),
        WantedStream(RUNS, "bucket", _runs(layout), formerly={"max_bytes": -1}),
        WantedStream(SLOTS, "bucket", _slots(layout)),
        # One revision: purged or replaced secrets must be removed from the broker.
        WantedStream(SECRETS, "bucket", _bucket(SECRETS, 1)),
        WantedStream(TRUST, "bucket", _trust()),
        WantedStream(JOINS, "bucket", _bucket(JOINS, 1, max_msg_size=JOIN_BYTES)),
        WantedStream(MANIFESTS, "objects", _objects(MANIFESTS, may_roll_up=may_roll_up), rollup),
        WantedStream(EVENTS_STREAM, "stream", _events(layout), formerly={"max_msg_size": _MIB}),
        WantedStream(
            layout.registration,
            "stream",
            registration_config(layout.registration, layout.registration_age_s, secure=bool(layout.secure)),
            _REGISTRATION_SETTLED if layout.secure is None else (),
            {"max_msg_size": _MIB},
        ),
    ]
    if with_schedules:
        things.append(WantedStream(SCHEDULES_STREAM, "stream", _schedules()))
    return things


def _stream(name: str, subjects: list[str], **others: Any) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": subjects,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "allow_direct": True,
        **others,
    }


def _bucket(bucket: str, history: int, **others: Any) -> dict[str, Any]:
    """
    Return the configuration of a bucket.

    Rollup is off: one message with `Nats-Rollup: all` would erase every key, and permission to write one key includes permission
    to send it. Removing a key does not require rollup.
    """
    fields: dict[str, Any] = {
        "max_msgs_per_subject": history,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": False,
        "republish": _notification(f"$KV.{bucket}.>", bucket) if bucket in NOTIFYING else None,
    }
    return _stream(f"KV_{bucket}", [f"$KV.{bucket}.>"], **(fields | others))


def _notification(source: str, name: str) -> dict[str, Any]:
    return {"src": source, "dest": f"{NOTIFICATION_PREFIX}.{name}.>", "headers_only": True}


def _nodes() -> dict[str, Any]:
    """
    Return the configuration of the inventory. Each node writes its own three keys.

    There is no limit marker, because it would enable rollup. An expired presence is therefore not announced.
    """
    return _bucket(NODES, 1, allow_msg_ttl=True, max_msg_size=_MIB)


def _runs(layout: LayoutOptions) -> dict[str, Any]:
    """Return the configuration of the bucket with records of runs, which agents do not read."""
    return _bucket(
        RUNS,
        1,
        max_age=layout.runs_age_s * _NANOSECONDS,
        max_bytes=RUNS_BYTES,
        discard="old",
    )


def _slots(layout: LayoutOptions) -> dict[str, Any]:
    """
    Return the configuration of the bucket with holders of slots and waiting nodes. Each node writes its own key of a slot.

    Entries expire by age, not by a TTL that their writer chooses, so a node loses a slot when it stops renewing its entry.
    """
    return _bucket(
        SLOTS,
        1,
        max_age=round(layout.slots_s * _NANOSECONDS),
        max_msg_size=SLOT_BYTES,
        max_bytes=SLOTS_BYTES,
        duplicate_window=min(round(layout.slots_s), 120) * _NANOSECONDS,
    )


def _trust() -> dict[str, Any]:
    """
    Return the configuration of the signers list and its history. Operators with `--admin` write it, and all other users read it.
    """
    return _bucket(TRUST, TRUST_HISTORY, deny_purge=True, max_msg_size=TRUST_BYTES)


def _objects(name: str, *, may_roll_up: bool) -> dict[str, Any]:
    """
    Return the configuration of an object store. Only descriptions are announced, because chunks are stored before their
    description.

    Other programs use rollup to replace a description, so with security they cannot store objects here.
    """
    notification = _notification(f"$O.{name}.M.>", name)
    subjects = [f"$O.{name}.C.>", f"$O.{name}.M.>"]
    return _stream(
        f"OBJ_{name}", subjects, discard="new", allow_rollup_hdrs=may_roll_up, republish=notification
    )


def _events(layout: LayoutOptions) -> dict[str, Any]:
    window = min(layout.duplicate_window_s, layout.events_age_s)
    return _stream(
        EVENTS_STREAM,
        stored_patterns(),
        max_age=layout.events_age_s * _NANOSECONDS,
        max_bytes=layout.events_bytes,
        duplicate_window=window * _NANOSECONDS,
        max_msg_size=EVENT_BYTES,
        deny_delete=True,
    )


def registration_config(name: str, age_s: float, *, secure: bool = False) -> dict[str, Any]:
    """
    Return the configuration of the stream of registrations for the broker's API.

    It has the settings that CCM uses, and a size limit: otherwise, any node that may register could fill the disk with events
    and data. Agents of CCM send `Nats-Rollup: sub`; one message per subject has the same effect. With security, entries are
    small, and a full stream keeps its entries and their renewals: a node cannot displace the registrations of other nodes.
    """
    age = round(age_s * _NANOSECONDS)
    fields: dict[str, Any] = {
        "max_bytes": REGISTRATION_BYTES,
        "max_msg_size": SECURE_REGISTRATION_BYTES if secure else _MIB,
        "discard": "new" if secure else "old",
        "max_msgs_per_subject": 1,
        "max_age": age,
        "allow_msg_ttl": True,
        "deny_delete": True,
    }
    fields["allow_rollup_hdrs"] = not secure
    fields["subject_delete_marker_ttl"] = 0 if secure else age
    return _stream(name, [f"{REGISTRATION_PREFIX}.>"], **fields)


def _schedules() -> dict[str, Any]:
    """
    Return the configuration of the stream of schedules. It stores schedules and, for each subject, the last due request, which
    is republished.
    """
    return _stream(
        SCHEDULES_STREAM,
        [f"{SCHEDULE_PREFIX}.>", f"{DUE_PREFIX}.>"],
        max_msgs_per_subject=1,
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        republish={"src": f"{DUE_PREFIX}.>", "dest": f"{PROTOCOL}.>"},
    )


async def make(
    connection: Connection,
    layout: LayoutOptions | None = None,
    before_update: Callable[[], Awaitable[None]] | None = None,
) -> list[LayoutChange]:
    """
    Create or update all streams, buckets and object stores, and return the changes in that order.

    Args:
        connection: The connection to the broker.
        layout: The options.
        before_update: Called after a stream is read and before it is updated. If it raises an error, the rest stays as it is.

    Raises:
        BusSetupError: The server is too old, has no JetStream, or does not have enough storage. Streams created before the error
            remain.
        BusDeniedError: The credentials do not allow creating streams.
    """
    layout = layout or LayoutOptions()
    server = connection.server
    if server is None:
        raise connection.disconnect_error()
    await _require_jetstream(connection, server)
    require_version(connection, READS_VERSION, "the project's buckets")
    can_schedule = server.version >= SCHEDULES_VERSION
    if layout.schedules:
        require_schedules(connection)
    with_schedules = can_schedule and layout.schedules is not False
    copies = CopyCount(connection, layout.replicas)
    things = plan(layout, with_schedules=with_schedules)
    done = [await make_one(connection, copies, wanted, before_update) for wanted in things]
    if not with_schedules:
        why = "not requested" if can_schedule else _too_old(connection, SCHEDULES_VERSION)
        done.append(
            LayoutChange(name=SCHEDULES_STREAM, kind="stream", action=LayoutAction.SKIPPED, details=(why,))
        )
    return done


async def make_audit(connection: Connection, layout: LayoutOptions) -> list[LayoutChange]:
    """
    Create or update the audit streams, over a connection in their account.

    Raises:
        BusSetupError, BusDeniedError: See `make`.
    """
    copies = CopyCount(connection, layout.replicas)
    configs = audit_configs(layout.audit_age_s, layout.duplicate_window_s)
    return [
        await make_one(connection, copies, WantedStream(config["name"], "stream", config))
        for config in configs
    ]


async def _require_jetstream(connection: Connection, server: ServerInfo) -> None:
    """Check that a server of the cluster has JetStream; it need not be the connected one."""
    if server.has_jetstream:
        return
    try:
        await call(connection, "INFO")
    except BusUnavailableError as err:
        raise BusSetupError(jetstream_is_off(server.url)) from err


def require_schedules(connection: Connection) -> None:
    """
    Check that the broker supports schedules.

    Raises:
        BusSetupError: Its version has no cron and interval schedules.
    """
    require_version(connection, SCHEDULES_VERSION, "schedules with --cron and --every")


def require_version(connection: Connection, version: tuple[int, int, int], what: str) -> None:
    """Check that the server has at least a version; BusSetupError names the feature that needs it."""
    if connection.server is None:
        raise connection.disconnect_error()
    if connection.server.version < version:
        raise BusSetupError(f"{what}: {_too_old(connection, version)}")


def _too_old(connection: Connection, version: tuple[int, int, int]) -> str:
    assert connection.server is not None
    has = ".".join(map(str, connection.server.version))
    needs = ".".join(map(str, version[:2]))
    return f"nats-server {needs} or newer is required, but this is {has}; upgrade the broker"
