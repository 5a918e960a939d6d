"""
What became of the starts of scheduled rollouts, and which rollout servers are there: `=schedule.*` and `=server.*` in CCM_RUNS.

Operators with `--apply` may write these keys, as those of rollouts.
"""

from __future__ import annotations

import contextlib
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.subjects import SERVERS, STARTS, encode_token, starts_key
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.rollout_records import RolloutServer, ScheduledStart, ScheduleStarts
from ccm_agent.model.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import Fleet

KEPT = 20
"""How many starts of a schedule are remembered."""

SERVER_S = 30.0
"""Seconds after which a server that is not heard of is no longer there."""


class StartsStore:
    """The starts of all scheduled rollouts."""

    def __init__(self, fleet: Fleet) -> None:
        self._bucket = fleet.runs

    async def read(self, name: str) -> ScheduleStarts:
        """
        The starts of a schedule; none if nothing is known.

        Raises:
            ProtocolError: They cannot be read.
        """
        entry = await self._bucket.get(starts_key(name))
        return _decode(entry) if entry is not None else ScheduleStarts(name=name)

    async def all(self) -> dict[str, tuple[ScheduleStarts, int]]:
        """The starts and revision of each schedule, by its name; those that cannot be read are left out."""
        found = {}
        for entry in await self._bucket.matching([f"{STARTS}.*.starts"]):
            with contextlib.suppress(ProtocolError):
                starts = _decode(entry)
                found[starts.name] = starts, entry.revision
        return found

    async def write(self, starts: ScheduleStarts, revision: int) -> int:
        """
        Store the starts of a schedule in place of a revision (0: there is none), and return the new revision.

        Raises:
            RevisionError: Another server stored something meanwhile.
            BusDeniedError: These credentials may not.
        """
        return await self._bucket.update(starts_key(starts.name), msgspec.json.encode(starts), revision)


def add_start(starts: ScheduleStarts, start: ScheduledStart) -> ScheduleStarts:
    """The same with a further start."""
    return replace(starts, starts=(start, *starts.starts)[:KEPT], run=start.run or starts.run)


def place_of(fleet: Fleet) -> str:
    """This operator and host."""
    return f"{fleet.operator}@{socket.gethostname()}"


async def announce(fleet: Fleet, *, is_leaving: bool = False) -> None:
    """
    Say that a rollout server of this operator runs on this host, or does no longer.

    Raises:
        BusError: It cannot be stored.
    """
    until = fleet.clock.now() + timedelta(seconds=0 if is_leaving else SERVER_S)
    server = RolloutServer(operator=fleet.operator, host=socket.gethostname(), until=until)
    await fleet.runs.put(f"{SERVERS}.{encode_token(place_of(fleet))}", msgspec.json.encode(server))


async def read_servers(fleet: Fleet) -> list[RolloutServer]:
    """The rollout servers that are there, by name."""
    now, found = fleet.clock.now(), []
    for entry in await fleet.runs.matching([f"{SERVERS}.*"]):
        with contextlib.suppress(msgspec.MsgspecError):
            server = decode_foreign(entry.value, RolloutServer)
            # the time is the writer's; one that is far in the future would never end
            if now < server.until <= now + timedelta(seconds=2 * SERVER_S):
                found.append(server)
    return sorted(found, key=lambda server: (server.operator, server.host))


def _decode(entry: KeyValueEntry) -> ScheduleStarts:
    try:
        starts = decode_foreign(entry.value, ScheduleStarts)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{entry.key}: not the starts of a schedule: {err}; remove the key") from err
    if starts_key(starts.name) != entry.key:
        raise ProtocolError(f"{entry.key}: the starts of another schedule; remove the key")
    return starts
