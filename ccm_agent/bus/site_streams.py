"""The streams of a site, and what the center needs for it: mirrors in the site's account, and sources. See `bus.access.sites`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.bus.access.sites import ASKED, CENTER, MIRRORED, SOURCED, down, up
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import JOINS, NODES, SCHEDULES_VERSION, LayoutOptions, plan
from ccm_agent.bus.stream_creation import CopyCount, LayoutAction, LayoutChange, make_one, stream_config
from ccm_agent.bus.stream_settings import WantedStream
from ccm_agent.bus.streams import call, read_first
from ccm_agent.model.errors import BusError, BusSetupError, ProtocolError, RevisionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

    from ccm_agent.bus.connection.connection import Connection

    Renewal = Callable[[], Awaitable[None]]

LOCK_S = 120.0
"""
After this many seconds without renewal, the lock on the sources is assumed to be left by a program that was killed.
"""

SOURCE_HEADER_BYTES = 4 << 10
"""
How much larger messages the center's streams accept than those of a site. The center adds a header to each message of a site. One
message that is too large with it would stop the source, so a node could hide all later events of its site.
"""

NODES_BYTES = 2 << 30
"""
The size of CCM_NODES at the center, which is unlimited without sites. The holder of a site's broker could otherwise fill the disk
of the center. Nodes can replace their entries in a full bucket. It has space for 50,000 nodes with 40 KiB each.
"""

_LOCK = "sources.lock"
_PAUSE_S = 0.1
_TRIES = 50


def domain_of(connection: Connection) -> str:
    """Return the JetStream domain of the servers; "" if they have none."""
    return connection.server.domain if connection.server is not None else ""


def require_domain(connection: Connection, *domains: str) -> str:
    """
    Return the JetStream domain of the servers. It must be one of these.

    Raises:
        BusSetupError: They have another one, or none.
    """
    has = domain_of(connection)
    if has in domains:
        return has
    found = f"the JetStream domain {has}" if has else "no JetStream domain"
    needed = " or ".join(
        f"`domain: {one}` (deploy/nats/{'hub-1.conf' if one == CENTER else 'site.conf'})" for one in domains
    )
    raise BusSetupError(
        f"this broker has {found}; use --server for another one, or set {needed} in `jetstream` of each of its servers, "
        "restart them, and run this again"
    )


async def refuse_site(connection: Connection, known: Collection[str]) -> None:
    """
    Check that this broker is not that of a site, by its mirrors or by the names of the known sites.

    Raises:
        BusSetupError: It is.
    """
    site = domain_of(connection)
    if site in ("", CENTER):
        return
    found = await stream_config(connection, MIRRORED[0])
    if site in known or (found is not None and found.get("mirror")):
        raise BusSetupError(
            f"this broker is that of the site {site}, whose buckets are mirrors of those at the center; "
            f"run `ccmctl init --site {site}` here, or run this at the center"
        )


async def make_site(connection: Connection, layout: LayoutOptions, site: str) -> list[LayoutChange]:
    """
    Create or update the streams of a site on its own broker.

    Raises:
        BusSetupError: A stream exists and is not a mirror.
        BusDeniedError: The credentials do not allow creating streams.
    """
    return await _make(connection, layout, f"$JS.{CENTER}.API", site)


async def make_mirrors(
    connection: Connection, center: Connection, layout: LayoutOptions, site: str
) -> list[LayoutChange]:
    """
    Create or update the mirrors of the center's buckets.

    A mirror does not copy purges, so messages that were purged at the center are purged here. If a bucket was restored from a
    backup or created again, its mirror ignores new messages until their sequences are larger than its own. It is then created
    again.

    Args:
        connection: A connection in the account of the site at the center.
        center: A connection in the account of the streams.
        layout, site: The options, and the name of the site.

    Raises:
        BusSetupError, BusDeniedError: See `make_site`.
    """
    return await _make(connection, layout, ASKED, site, center)


async def _make(
    connection: Connection, layout: LayoutOptions, api: str, site: str, center: Connection | None = None
) -> list[LayoutChange]:
    """Create or update the mirrors, and at the site, where `center` is None, also the other streams."""
    assert connection.server is not None
    copies = CopyCount(connection, layout.replicas)
    done = []
    for wanted in plan(layout, with_schedules=connection.server.version >= SCHEDULES_VERSION):
        if wanted.config["name"] in MIRRORED:
            mirror = _mirror(wanted, api, site, notifies=center is None)
            await _require_mirror(connection, mirror)
            made = await make_one(connection, copies, mirror)
            if center is not None and (detail := await _follow(connection, center, copies, mirror)):
                made = msgspec.structs.replace(
                    made, action=LayoutAction.UPDATED, details=(*made.details, detail)
                )
            done.append(made)
        elif center is None:
            done.append(await make_one(connection, copies, wanted))
    return done


async def _follow(connection: Connection, center: Connection, copies: CopyCount, mirror: WantedStream) -> str:
    """Let a mirror follow what it does not copy. Returns what was done, or ""."""
    name, done = mirror.config["name"], ""
    # a server sometimes restores the messages of a stream that is deleted and created at once
    for _ in range(_TRIES):
        if await _last_sequence(connection, name) <= await _last_sequence(center, name):
            break
        await call(connection, f"STREAM.DELETE.{name}")
        await make_one(connection, copies, mirror)
        done = "created again, like the bucket; the mirror at the site must be created again, too"
    else:
        raise BusSetupError(f"{name}: the mirror has later messages than the bucket; run this again")
    was_purged = await _purge_like(connection, center, name)
    return done or ("removed what was purged at the center" if was_purged else "")


async def _last_sequence(connection: Connection, name: str) -> int:
    return int((await call(connection, f"STREAM.INFO.{name}"))["state"]["last_seq"])


async def _purge_like(mirror: Connection, center: Connection, name: str) -> bool:
    """
    Purge the messages of a mirror that were purged at the center. Returns whether there were any.

    Purges remove the oldest messages of a subject. A message has the same sequence in both, so what the center has stays, even if
    operators write meanwhile.
    """
    has, may = await _counts(mirror, name), await _counts(center, name)
    purged = 0
    for subject, count in has.items():
        # the broker takes a sequence of 1 for none, and would purge all
        if count > may.get(subject, 0) and (oldest := await _oldest(center, name, subject)) > 1:
            answer = await call(mirror, f"STREAM.PURGE.{name}", {"filter": subject, "seq": oldest})
            purged += answer["purged"]
    return purged > 0


async def _oldest(connection: Connection, name: str, subject: str) -> int:
    """Return the sequence before which a stream has no message on a subject; 0 if it is unknown."""
    state = (await call(connection, f"STREAM.INFO.{name}", {"subjects_filter": subject}))["state"]
    if not state.get("subjects"):
        return int(state["last_seq"]) + 1
    first = await read_first(connection, name, subject)
    return first.sequence if first is not None else 0


async def _counts(connection: Connection, name: str) -> dict[str, int]:
    """Return the number of messages on each subject of a stream."""
    found: dict[str, int] = {}
    offset = 0
    while True:
        # a subject that is written meanwhile moves others to the next page
        info = await call(connection, f"STREAM.INFO.{name}", {"subjects_filter": ">", "offset": offset})
        page = info["state"].get("subjects") or {}
        found |= page
        offset += len(page)
        if not page or offset >= info.get("total", 0):
            return found


def _mirror(wanted: WantedStream, api: str, site: str, *, notifies: bool) -> WantedStream:
    left_out = {"subjects"} if notifies else {"subjects", "republish"}
    config = {name: value for name, value in wanted.config.items() if name not in left_out}
    mirror = {"name": config["name"], "external": {"api": api, "deliver": down(site)}}
    return msgspec.structs.replace(wanted, config={**config, "mirror": mirror})


async def _require_mirror(connection: Connection, wanted: WantedStream) -> None:
    found = await stream_config(connection, wanted.config["name"])
    if found is not None and found.get("mirror") != wanted.config["mirror"]:
        name = wanted.config["name"]
        raise BusSetupError(
            f"{name}: exists, and is not a mirror of the center; remove it with `nats stream rm {name}` "
            "if nothing in it is needed, and run this again"
        )


async def add_sources(connection: Connection, site: str) -> list[LayoutChange]:
    """
    Add the streams of a site to the sources of the center's streams. Sources of other sites are kept.

    Raises:
        BusSetupError: The center's streams do not exist yet, or another program is changing them.
    """
    async with sources_lock(connection) as renew:
        return [await _change_sources(connection, name, site, source(name, site), renew) for name in SOURCED]


@contextlib.asynccontextmanager
async def sources_lock(connection: Connection) -> AsyncIterator[Renewal]:
    """
    Let only one program at a time read and write the configuration of the center's streams.

    JetStream has no compare-and-set for that, so a second writer would remove the source that the first one added. The lock is a
    key of CCM_JOINS: only operators and the service for joins write there, and no site has a copy. Other brokers have no sources,
    and need no lock.

    Yields:
        A function that renews the lock. Call it after a configuration is read and before it is written. It raises
        BusSetupError if another program took the lock meanwhile, so what was read may be old.

    Raises:
        BusSetupError: Another program holds the lock.
    """
    if domain_of(connection) != CENTER or await stream_config(connection, f"KV_{JOINS}") is None:
        yield _renew_nothing
        return
    bucket = NatsKeyValue(connection, JOINS)
    revision = await _take_lock(bucket)

    async def renew() -> None:
        nonlocal revision
        try:
            revision = await bucket.store_signed(_LOCK, b"held", revision, "")
        except RevisionError as err:
            raise BusSetupError(
                f"this took longer than {LOCK_S:g} s, and another `ccmctl init` has begun to change the streams of the center; "
                "run this again when it has ended"
            ) from err

    try:
        yield renew
    finally:
        # if this fails, the lock expires
        with contextlib.suppress(BusError):
            await bucket.store_signed(_LOCK, b"", revision, "")


async def _renew_nothing() -> None:
    """Renew the lock of a broker that needs none."""


async def _take_lock(bucket: NatsKeyValue) -> int:
    """Write the lock, and return its revision."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 2 * LOCK_S
    while loop.time() < deadline:
        try:
            held = await bucket.newest(_LOCK)
        except ProtocolError:  # not written by a client of ours
            await bucket.delete(_LOCK)
            continue
        # the age is negative if the clock of the broker was set back
        if (
            held is None
            or not held.value
            or abs((await bucket.now() - held.created).total_seconds()) > LOCK_S
        ):
            with contextlib.suppress(RevisionError):  # another program was faster
                return await bucket.store_signed(_LOCK, b"held", held.revision if held else 0, "")
        await asyncio.sleep(_PAUSE_S)
    raise BusSetupError(
        "another `ccmctl init` is changing the streams of the center; run this again when it has ended. If none runs, remove "
        f"its lock with `nats kv del {JOINS} {_LOCK}`"
    )


def source(name: str, site: str) -> dict[str, Any]:
    """Return the entry for a site in the sources of a stream of the center."""
    return {"name": name, "external": {"api": f"$JS.{site}.API", "deliver": up(site)}}


async def _change_sources(
    connection: Connection, name: str, site: str, added: dict[str, Any], renew: Renewal
) -> LayoutChange:
    config = (await call(connection, f"STREAM.INFO.{name}"))["config"]
    has = config.get("sources") or []
    changes = _limits(name, config)
    details = [f"{field} {config.get(field, 0)} → {value}" for field, value in changes.items()]
    if all((one.get("external") or {}).get("deliver") != up(site) for one in has):
        changes["sources"] = [*has, added]
    if changes:
        await renew()
        await call(connection, f"STREAM.UPDATE.{name}", {**config, **changes})
    return LayoutChange(
        name=name.removeprefix("KV_"),
        kind="bucket" if name.startswith("KV_") else "stream",
        action=LayoutAction.UPDATED if changes else LayoutAction.UNCHANGED,
        replicas=config["num_replicas"],
        details=(f"source {site}", *details),
    )


def for_site(wanted: WantedStream, config: Mapping[str, Any]) -> WantedStream:
    """Return the wanted settings of a stream for its configuration: as a mirror at a site, or with sources at the center."""
    fields = dict(wanted.config)
    if config.get("mirror"):
        del fields["subjects"]
    elif config.get("sources") and fields.get("max_msg_size"):
        fields["max_msg_size"] += SOURCE_HEADER_BYTES
    return msgspec.structs.replace(wanted, config=fields)


def _limits(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the limits of a stream of the center that must change, because sites write to it."""
    [wanted] = [one for one in plan(LayoutOptions(), with_schedules=False) if one.config["name"] == name]
    changes, least = {}, for_site(wanted, {"sources": True}).config["max_msg_size"]
    if 0 < config["max_msg_size"] < least:
        changes["max_msg_size"] = least
    if name == f"KV_{NODES}" and config["max_bytes"] <= 0:
        changes["max_bytes"] = NODES_BYTES
    return changes
