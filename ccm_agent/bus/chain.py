"""
The chain of a node's events: the header of an event contains the digest of the previous one.

Each stored event of a node carries `Ccm-Chain: <chain>.<number>.<previous>.<before>`:

    chain      random id of the chain, 16 characters; a node that lost its state starts a new chain
    number     position in the chain, from 1, without gaps
    previous   link of the event before it in the chain. In the first event: `-`, or `<chain>~<number>~<link>`, the last known
               position in the node's earlier chain
    before     link of the event before it in the same run; `-` when it is the first of its run, or belongs to no run

The link of an event is 24 bytes of a SHA-256 over its subject, this header and the SHA-256 of its body. So an event with an
authentic header authenticates every event before it. The node signs the summaries of runs and the events about itself, and the
signature covers the header (`bus.signatures.signing`, detail `c`). With `before`, a reader can check one run without the other
events in between.

24 bytes: finding a second event for a given link takes 2^192 attempts, and finding any two events with one link takes 2^96.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets

from msgspec import Struct

from ccm_agent.model.errors import ProtocolError

CHAIN_HEADER = "Ccm-Chain"

NONE = "-"
"""Means "no earlier event" in a header. Links are longer, so the two cannot be confused."""

PLACE_DETAIL = "c"
"""The detail of a signature that repeats the chain header."""

_LINK_BYTES = 24
LINK_LENGTH = 32
"""Characters of a link: 24 bytes in base64url."""

_ID_BYTES = 12
_CONTEXT = "ccm-chain-v1"
_ANCHOR = r"[A-Za-z0-9_-]{16}~[1-9][0-9]{0,14}~[A-Za-z0-9_-]{32}"
_HEADER = re.compile(
    rf"([A-Za-z0-9_-]{{16}})\.([1-9][0-9]{{0,14}})\.([A-Za-z0-9_-]{{32}}|{NONE}|{_ANCHOR})\.([A-Za-z0-9_-]{{32}}|{NONE})"
)


class ChainPosition(Struct, frozen=True, kw_only=True):
    """
    The position of an event in its node's chain.

    Attributes:
        chain: Id of the chain.
        number: The number of the event in the chain, from 1.
        previous: Link of the previous event. For the first event: NONE, or an anchor (`anchor_of`) in an earlier chain.
        before: Link of the previous event of the same run; NONE if there is none.
    """

    chain: str
    number: int
    previous: str = NONE
    before: str = NONE

    @property
    def header(self) -> str:
        """Return the value of the header."""
        return f"{self.chain}.{self.number}.{self.previous}.{self.before}"


class Anchor(Struct, frozen=True, kw_only=True):
    """The last known position in an earlier chain."""

    chain: str
    number: int
    link: str


def parse_place(header: str) -> ChainPosition:
    """
    Parse the position in a header.

    Raises:
        ProtocolError: The header is malformed.
    """
    found = _HEADER.fullmatch(header)
    if found is None:
        raise ProtocolError(f"{CHAIN_HEADER}: {header[:200]!r} is not a valid position in a chain of events")
    place = ChainPosition(chain=found[1], number=int(found[2]), previous=found[3], before=found[4])
    is_first = place.number == 1
    if is_first != (len(place.previous) != LINK_LENGTH):
        raise ProtocolError(
            f"{CHAIN_HEADER}: event {place.number} of a chain cannot follow {place.previous!r}"
        )
    return place


def link_of(subject: str, header: str, body: bytes) -> str:
    """Return the link of an event, which the next event of the chain repeats."""
    text = f"{_CONTEXT}\n{subject}\n{header}\n{hashlib.sha256(body).hexdigest()}"
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:_LINK_BYTES]).decode()


def new_chain_id() -> str:
    """Return a random id."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_ID_BYTES)).decode()


def anchor_text(chain: str, number: int, link: str) -> str:
    """
    Return the anchor for the first event of a chain: the last position in the earlier chain; NONE if that chain has no events.
    """
    return f"{chain}~{number}~{link}" if number else NONE


def anchor_of(place: ChainPosition) -> Anchor | None:
    """Return the position in an earlier chain, as stored in the first event of a chain; None if there is none."""
    return read_anchor(place.previous)


def read_anchor(previous: str) -> Anchor | None:
    """Read the anchor from the `previous` of a position; None if it is not an anchor."""
    chain, _, rest = previous.partition("~")
    number, _, link = rest.partition("~")
    return Anchor(chain=chain, number=int(number), link=link) if link else None
