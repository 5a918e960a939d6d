"""
The rotation of a secret. Each node gets the new revision when a rollout reaches it. The old value is removed when it is no
longer used.

First, the new revision is stored and sealed next to the old one, as `next` in the entry of each node. When a wave releases it,
the entry is replaced by one with only the new data key, and the node converges. The old value is kept until the signed records of
all nodes show that they use the new revision or none.

Each step can be repeated, and the stored data show the next step. If an older revision still has a value, a rotation is in
progress. Later commands therefore continue a rotation whose process was killed. See ADR 121.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.sealing import check_secret_name, check_secret_value, value_key, wrap_key
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.bus.signatures.verified import Authored, Base
from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.records.sealed import SealedKey, SecretHead
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.data.documents import StoredDocument
from ccm_ctl.fleet.keys.secrets import (
    WAY_OUT,
    FleetSecrets,
    SealResult,
    StoredSecret,
    encode_body,
    with_revision,
)
from ccm_ctl.fleet.nodes.inventory import read_nodes
from ccm_ctl.fleet.nodes.nodes import Node
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History, Recorded, UnknownRunError

CONFIRM_S = 10.0
"""The maximum time, in seconds, that the last step of a rollout waits for the records that nodes write when a run ends."""

LOOK_S = 0.5


class NodeUse(Struct, frozen=True, kw_only=True):
    """
    The use of a secret according to a node's verified record.

    Attributes:
        revision: The revision that it uses, or 0.
        since: When it began to use the revision.
        doubt: The reason why the use is unknown. "": it is known.
        is_present: Whether the node is online.
    """

    revision: int = 0
    since: datetime | None = None
    doubt: str = ""
    is_present: bool = False


class Rotation(Struct, frozen=True, kw_only=True):
    """
    The progress of a rotation.

    Attributes:
        name, revision: The secret, and its newest revision.
        older: Older revisions whose values are still stored.
        purged: Revisions whose values have just been removed.
        waiting: The nodes that may still use an older revision, each with the reason.
        present: The waiting nodes that are online.
    """

    name: str
    revision: int
    older: tuple[int, ...] = ()
    purged: tuple[int, ...] = ()
    waiting: Mapping[str, str] = {}
    present: frozenset[str] = frozenset()


class SecretRotation(FleetSecrets):
    """The secrets of one fleet, with the steps of a rotation."""

    async def add_revision(self, name: str, value: Secret, message: str = "") -> SealResult:
        """
        Store a new revision, and seal it to each node next to the revision that the node uses.

        Raises:
            UsageError: The name or the value cannot be used.
            NotFoundError: There is no such secret, or the fleet has no sealing key.
            SignatureError: The stored secret is not verified.
        """
        check_secret_name(name)
        check_secret_value(value)
        keys = await self._sealing_keys()
        document, head = await self._head(name)
        base: list[Base] = [Authored.from_files(), document.verified(f"{WAY_OUT} {name} --for SELECTOR")]
        made, data_key = await self._store_revision(head, value, keys, base, message)
        new = msgspec.structs.replace(head, revisions=with_revision(head.revisions, made))
        await self._store_head(new, document, base, message)
        return await self._seal(new, made, data_key, base)

    async def seal_missing(self, name: str, sealing: SigningKey | None) -> None:
        """
        Seal the newest revision to nodes that lack it, because `add_revision` was interrupted or they joined later.

        Raises:
            UsageError: This requires the sealing key, and there is none.
        """
        missing = [one.node for one in await self.missing(await self.read(name)) if one.is_sealable]
        if not missing:
            return
        if sealing is None:
            raise UsageError(
                f"{name}: the newest revision is not sealed to {missing[0]}; add --keys DIR with `sealing.seed`, or rotate to "
                "another value without --resume"
            )
        await self.sync(name, sealing)

    async def release(self, name: str, revision: int, nodes: Collection[str] | None = None) -> None:
        """
        Release the newest revision to nodes. It is already sealed to them next to the revision that they use.

        Args:
            name, revision: The secret.
            nodes: The nodes. None: all nodes to which it has not been released.

        Raises:
            RunError: Another revision was stored in the meantime.
            SignatureError: A node's entry is not verified.
        """
        _, head = await self._head(name)
        if head.newest is None or head.newest.revision != revision:
            raise RunError(
                f"{name}: another revision was stored after {revision}, so this rotation has ended"
            )
        wraps = await self._read_wraps(f"wrap.*.{name}")
        for document, wrap in wraps:
            following = wrap.next
            is_meant = nodes is None or wrap.node in nodes
            if following is None or following.revision != revision or not is_meant:
                continue
            if nodes is None and document.unverified:
                continue  # the node would not accept this entry
            proof = document.verified(f"run `ccmctl secret sync {name}`")
            taken = SealedKey(
                node=wrap.node, revision=following.revision, key=following.key, sealed=following.sealed
            )
            await self._take(taken, name, proof, document.revision)

    async def _take(self, taken: SealedKey, name: str, proof: Base, revision: int) -> None:
        body = encode_body(taken)
        key = wrap_key(taken.node, name)
        await self._documents.change(key, lambda _: body, base=[proof], revision=revision)

    async def uses(self, name: str, nodes: Iterable[str]) -> dict[str, NodeUse]:
        """Return the revision that each node uses, from the signed records."""
        names = list(nodes)
        found = (await read_nodes(self._fleet, names)).nodes
        return {one: await self._use(name, found.get(one)) for one in names}

    async def settle(self, name: str) -> Rotation:
        """
        Remove older values that are no longer used. Returns the state of the rotation with the nodes that may still use an older
        value.
        """
        stored = await self.read(name)
        document, head, revision = stored.document, stored.head, stored.revision
        older = tuple(one.revision for one in head.older)
        if not older:
            return Rotation(name=name, revision=revision)
        proof = document.verified(f"{WAY_OUT} {name} --for SELECTOR")
        waiting, present = await self.waiting(stored)
        if waiting:
            return Rotation(name=name, revision=revision, older=older, waiting=waiting, present=present)
        # remove the values before the head is changed, because the head shows that this step is still due
        for one in await self._documents.read_matching([f"value.{name}.*"]):
            number = one.key.rpartition(".")[2]
            if number.isdecimal() and int(number) < revision:
                await self._documents.remove(value_key(name, int(number)))
        revisions = tuple(
            msgspec.structs.replace(one, sealed={}) if one.revision in older else one
            for one in head.revisions
        )
        await self._store_head(msgspec.structs.replace(head, revisions=revisions), document, [proof])
        return Rotation(name=name, revision=revision, purged=older)

    async def complete(self, name: str, revision: int) -> None:
        """
        Finish a rotation after the last wave: wait for online nodes, and remove old values. Offline nodes get the new revision
        when they reconnect.
        """
        await self.release(name, revision)
        loop = asyncio.get_running_loop()
        until = loop.time() + CONFIRM_S
        while (await self.settle(name)).present and loop.time() < until:  # noqa: ASYNC110 - records come without a notice
            await asyncio.sleep(LOOK_S)

    async def waiting(self, stored: StoredSecret) -> tuple[dict[str, str], frozenset[str]]:
        """Return the nodes that may still use an older revision, each with the reason, and those of them that are online."""
        name = stored.head.name
        able = [one for one in stored.nodes if one.revision]
        uses = await self.uses(name, [one.node for one in able])
        waiting = {}
        for one in able:
            use = uses[one.node]
            reason = one.problem or use.doubt
            if not reason and one.revision != stored.revision:
                reason = f"cannot open revision {stored.revision} yet"
            if not reason and use.revision not in (0, stored.revision):
                reason = f"uses revision {use.revision}"
            if reason:
                waiting[one.node] = reason if use.is_present else f"offline; {reason}"
        return waiting, frozenset(one for one in waiting if uses[one].is_present)

    async def _use(self, name: str, node: Node | None) -> NodeUse:
        if node is None:
            return NodeUse(doubt="it has no record")
        doubt = await self._node_keys.doubt_record(node)
        secrets = node.record.secrets if node.record is not None else None
        if not doubt and secrets is None:
            doubt = "its agent is too old to report what it uses"
        use = secrets.get(name) if secrets is not None and not doubt else None
        return NodeUse(
            revision=use.revision if use is not None else 0,
            since=use.since if use is not None else None,
            doubt=doubt,
            is_present=node.is_present,
        )

    async def _head(self, name: str) -> tuple[StoredDocument, SecretHead]:
        stored = await self.read(name, with_nodes=False)
        return stored.document, stored.head


async def find_rotation(fleet: Fleet, name: str) -> Recorded | None:
    """Return the rollout of a secret that has not ended, or None."""
    for state in await RolloutStore(fleet).open_rollouts():
        try:
            recorded = await History(fleet).load(state.run)
        except UnknownRunError:
            continue
        if recorded.record.secret is not None and recorded.record.secret.name == name:
            return recorded
    return None


def rotation_steps(
    fleet: Fleet, record: RunRecord
) -> tuple[Callable[[Sequence[str]], Awaitable[None]], Callable[[], Awaitable[None]]] | None:
    """Return the steps for a secret before a rollout sends requests and after its last wave. None for other rollouts."""
    stage = record.secret
    if stage is None:
        return None
    rotation = SecretRotation(fleet)

    async def release(nodes: Sequence[str]) -> None:
        await rotation.release(stage.name, stage.revision, nodes)

    async def complete() -> None:
        await rotation.complete(stage.name, stage.revision)

    return release, complete
