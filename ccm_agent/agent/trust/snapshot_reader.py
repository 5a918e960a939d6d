"""
The lowest numbers that documents may have which this node has never seen.

A node that was never given a document takes none with a lower number than the snapshot says. Without a recent timestamp it takes
none at all: a broker that was put back to a backup could give it documents of that time.
"""

from __future__ import annotations

from collections.abc import Collection

from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.bus.signatures.snapshot import piece_key, place_of, read_piece
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import KeyReader


class SnapshotReader:
    """Reads the pieces of the snapshot that hold the keys of one node."""

    def __init__(self, bucket: KeyReader, authenticator: Authenticator) -> None:
        """
        Args:
            bucket: `CCM_TRUST`.
            authenticator: Knows the newest timestamp.
        """
        self._bucket = bucket
        self._authenticator = authenticator
        self._pieces: dict[str, dict[str, int]] = {}

    async def lowest(self, names: Collection[str]) -> dict[str, int]:
        """
        The lowest numbers that some documents may have; 0 for one that is not in the snapshot. Nothing in a fleet whose signers
        list has no maximum age, and so no timestamps.

        Args:
            names: `bucket/key` of documents that were never seen.

        Raises:
            ProtocolError: There is no recent timestamp, or a piece is not the one that it names.
            BusError: The broker is away.
        """
        if not names or not self._authenticator.has_timestamps:
            return {}
        try:
            return await self._read(names)
        except ProtocolError:
            # it may have been renewed a moment ago
            self._authenticator.freshness.notified()
            await self._authenticator.read_timestamp(self._bucket)
            return await self._read(names)

    async def _read(self, names: Collection[str]) -> dict[str, int]:
        if why := self._authenticator.lacks_timestamp:
            raise ProtocolError(why)
        digests = self._authenticator.freshness.newest.pieces
        if not digests:
            return {}
        found: dict[str, int] = {}
        for name in names:
            place = place_of(name, len(digests))
            found[name] = (await self._piece(digests, place)).get(name, 0)
        return found

    async def _piece(self, digests: tuple[str, ...], place: int) -> dict[str, int]:
        digest = digests[place]
        if digest not in self._pieces:
            entry = await self._bucket.get(piece_key(place))
            piece = read_piece(entry.value if entry is not None else b"", digests, place)
            # those of earlier timestamps are of no use
            self._pieces = {one: self._pieces[one] for one in digests if one in self._pieces}
            self._pieces[digest] = piece
        return self._pieces[digest]
