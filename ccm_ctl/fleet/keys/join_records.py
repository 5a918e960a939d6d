"""
Records of join tokens and joined nodes: documents in the bucket CCM_JOINS, signed by operators.

    token.<id>     the rights of a token, signed by the operator who created it
    uses.<id>      the keys that have used the token
    node.<name>    the key that owns a name
    wait.<key>     a node that an operator must accept
    accept.<key>   an operator's acceptance of such a node
    brief.<name>   a node that is removed when it is away for too long
    left.<key>     a key that left the fleet

Each write is a compare-and-set, so that two join services count each use once and assign a name to only one key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.join import JoinError
from ccm_agent.bus.signatures.verified import Base, Verified
from ccm_agent.model.errors import BusSetupError
from ccm_agent.model.records.join import JOINS_BUCKET
from ccm_ctl.fleet.data.documents import Documents, StoredDocument
from ccm_ctl.fleet.ports import Fleet

USES_LIMIT = 5_000
"""The maximum number of nodes for one token. Their keys are stored in one document."""

_SHORT = 16
"""The number of characters of a key's digest that are stored for a use of a token."""

_Body = TypeVar("_Body")


class TokenRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The rights of a join token.

    Attributes:
        key: The public key in the token, which verifies requests.
        expires: When it expires, in seconds since 1970.
        uses: The number of nodes that may join with it.
        role: The fact `role` of nodes that join. "": it is not set.
        name: The pattern that names of nodes must match.
        networks: The networks from which the broker accepts it. Empty: all.
        approve: Whether an operator must accept each node.
        ephemeral_s: Nodes that join with the token are removed when they are away for this many seconds. 0: they are not removed.
        revoked: Whether it was revoked.
    """

    key: str
    expires: int
    uses: int
    role: str = ""
    name: str = "*"
    networks: tuple[str, ...] = ()
    approve: bool = False
    ephemeral_s: int = 0
    revoked: bool = False


class JoinedNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A node that joined, or that waits to be accepted.

    Attributes:
        name, key: The node and its public key.
        token: The token that it used.
        time: When it joined or began to wait, in seconds since 1970.
        revoked: Whether its credentials were revoked, or it left the fleet. Its name is then free.
    """

    name: str
    key: str
    token: str
    time: int
    revoked: bool = False


class BriefNode(Struct, frozen=True, kw_only=True):
    """
    A node that is removed when it is away for too long.

    Attributes:
        name, key: The node and its public key.
        ephemeral_s: The maximum time that it may be away, in seconds.
    """

    name: str
    key: str
    ephemeral_s: int


class UsedToken(Struct, frozen=True, kw_only=True):
    """The keys that have used a token, each as the first characters of its digest."""

    keys: list[str] = []


class KnownToken(Struct, frozen=True, kw_only=True):
    """
    A stored token.

    Attributes:
        id: Its ID.
        record: Its rights.
        used: The number of nodes that have used it.
        author: The operator who created it.
        proof: The verified signature. None: the signature does not verify, so the token is void.
        reason: The reason why it is void.
    """

    id: str
    record: TokenRecord
    used: int = 0
    author: str = ""
    proof: Verified[None] | None = None
    reason: str = ""


class JoinRecords:
    """The join documents of one fleet. The object caches the signers list, so create a new one from time to time."""

    def __init__(self, fleet: Fleet) -> None:
        if fleet.joins is None:
            raise BusSetupError(f"{JOINS_BUCKET}: the bucket is missing; `ccmctl init --security` creates it")
        self._documents = Documents(fleet, fleet.joins, JOINS_BUCKET)

    async def add_token(self, token: str, record: TokenRecord) -> None:
        """Store a new token, signed by the operator."""
        await self._documents.change(f"token.{token}", lambda _: msgspec.to_builtins(record))

    async def revoke_token(self, token: str) -> None:
        """
        Revoke a token.

        Raises:
            JoinError: There is no such token.
        """

        def change(old: Any) -> Any:
            if old is None:
                raise JoinError(
                    f"{token}: there is no such token; see `ccmctl token list`", code="join.unknown_token"
                )
            return {**old, "revoked": True}

        await self._documents.change(f"token.{token}", change)

    async def find_token(self, token: str) -> KnownToken | None:
        """Return a token, or None if there is none."""
        stored = await self._documents.read(f"token.{token}")
        return None if stored.body is None else _known(token, stored)

    async def tokens(self) -> list[KnownToken]:
        """Return all tokens with their uses, sorted by ID."""
        found: list[KnownToken] = []
        uses = {
            stored.key.removeprefix("uses."): _body(stored, UsedToken)
            for stored in await self._documents.read_all("uses.")
        }
        for stored in await self._documents.read_all("token."):
            if stored.body is not None:
                token = stored.key.removeprefix("token.")
                used = uses.get(token)
                known = _known(token, stored)
                found.append(msgspec.structs.replace(known, used=len(used.keys) if used else 0))
        return found

    async def count_use(self, token: KnownToken, key: str) -> None:
        """
        Count a node's key as a use of a token. Each key is counted once.

        Raises:
            JoinError: The token is used up.
        """
        short = hashlib.sha256(key.encode()).hexdigest()[:_SHORT]

        def change(old: Any) -> Any:
            keys = msgspec.convert(old, UsedToken).keys if old is not None else []
            if short in keys:
                return old
            if len(keys) >= token.record.uses:
                raise JoinError(
                    f"the token was used {len(keys)} times and is used up; create another one with `ccmctl token create`",
                    code="join.used_up",
                )
            return {"keys": [*keys, short]}

        await self._documents.change(f"uses.{token.id}", change)

    async def find_node(self, name: str) -> JoinedNode | None:
        """Return the node that owns a name. None: the name is free, or no verified document assigns it."""
        return _body(await self._documents.read(f"node.{name}"), JoinedNode)

    async def claim(self, node: JoinedNode, base: Sequence[Base]) -> None:
        """
        Assign a name to a key.

        Raises:
            JoinError: The name belongs to another key.
        """

        def change(old: Any) -> Any:
            has = msgspec.convert(old, JoinedNode) if old is not None else None
            if has is not None and not has.revoked and has.key != node.key:
                raise name_taken(node.name)
            is_same = has is not None and not has.revoked
            return old if is_same else msgspec.to_builtins(node)

        await self._write_if_new(f"node.{node.name}", change, base)

    async def release(self, name: str, key: str) -> None:
        """Free the name of a node that left or whose credentials were revoked, if the name belongs to this key."""
        await self._documents.change(
            f"node.{name}",
            lambda old: {**old, "revoked": True} if old is not None and old["key"] == key else old,
        )

    async def add_brief(self, node: BriefNode, base: Sequence[Base]) -> None:
        """Store that a node is removed when it is away for too long."""
        body = msgspec.to_builtins(node)
        await self._documents.change(f"brief.{node.name}", lambda _: body, base=base)

    async def brief_nodes(self) -> list[BriefNode]:
        """Return the nodes that are removed when they are away for too long, sorted by name."""
        found = [_body(stored, BriefNode) for stored in await self._documents.read_all("brief.")]
        return [node for node in found if node is not None]

    async def forget_brief(self, name: str) -> None:
        """Remove the document that marks a node for removal when it is away for too long."""
        if (await self._documents.read(f"brief.{name}")).body is not None:
            await self._documents.remove(f"brief.{name}")

    async def mark_left(self, name: str, key: str, now_s: int) -> bool:
        """Store that a key left the fleet. Returns False if it had already left."""
        if await self.has_left(key):
            return False
        body = {"name": name, "time": now_s}
        await self._documents.change(f"left.{key}", lambda old: old if old is not None else body)
        return True

    async def has_left(self, key: str) -> bool:
        """Whether a key left the fleet. An unverified document is sufficient, because it cannot give the key any rights."""
        return (await self._documents.read(f"left.{key}")).body is not None

    async def wait(self, node: JoinedNode, base: Sequence[Base]) -> None:
        """Store that a node waits to be accepted."""
        await self._write_if_new(
            f"wait.{node.key}", lambda old: old if old is not None else msgspec.to_builtins(node), base
        )

    async def waiting(self) -> list[JoinedNode]:
        """Return the nodes that wait to be accepted, sorted by name."""
        accepted = {stored.key.removeprefix("accept.") for stored in await self._accepted()}
        found = [_body(stored, JoinedNode) for stored in await self._documents.read_all("wait.")]
        nodes = [node for node in found if node is not None and node.key not in accepted]
        return sorted(nodes, key=lambda node: node.name)

    async def accept(self, node: JoinedNode) -> None:
        """Accept a waiting node. The operator signs the acceptance."""
        await self._documents.change(f"accept.{node.key}", lambda _: {"name": node.name})

    async def is_accepted(self, name: str, key: str) -> bool:
        """Whether an operator accepted this key under this name."""
        stored = await self._documents.read(f"accept.{key}")
        return isinstance(stored.proof, Verified) and stored.body == {"name": name}

    async def _accepted(self) -> list[StoredDocument]:
        found = await self._documents.read_all("accept.")
        return [stored for stored in found if isinstance(stored.proof, Verified)]

    async def _write_if_new(self, key: str, change: Callable[[Any], Any], base: Sequence[Base]) -> None:
        """Write a document. The content of a new document is from a request that `base` authorizes."""
        stored = await self._documents.read(key)
        await self._documents.change(key, change, base=base if stored.body is None else ())


async def left_keys(fleet: Fleet) -> set[str]:
    """Return the keys of nodes that left the fleet, verified or not. These keys have no rights."""
    if fleet.joins is None:
        return set()
    found = await fleet.joins.matching(["left.*"])
    return {entry.key.removeprefix("left.") for entry in found if entry.value}


def _known(token: str, stored: StoredDocument) -> KnownToken:
    record = _body(stored, TokenRecord)
    if record is None or not isinstance(stored.proof, Verified):
        empty = TokenRecord(key="", expires=0, uses=0, revoked=True)
        return KnownToken(
            id=token, record=empty, author=stored.written_by, reason=stored.unverified or "it cannot be read"
        )
    return KnownToken(id=token, record=record, author=stored.proof.signer, proof=stored.proof)


def _body(stored: StoredDocument, kind: type[_Body]) -> _Body | None:
    """Return the verified body of a document, or None if there is none."""
    if stored.body is None or not isinstance(stored.proof, Verified):
        return None
    try:
        return msgspec.convert(stored.body, kind)
    except msgspec.ValidationError:
        return None


def name_taken(name: str) -> JoinError:
    """Return the error for a name that belongs to another node."""
    return JoinError(
        f"{name}: this name belongs to another node; choose another one with `ccm join --name`, or run "
        f"`ccmctl node revoke {name}` if that node is gone",
        code="join.name_taken",
    )
