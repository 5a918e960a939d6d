"""
Operations on secrets for operators: store, seal, list and remove. See `ccm_agent.bus.signatures.sealing` and ADR 121.

The key of a node is proven by the root's certificate and the node's own signature. The broker is never trusted for this. The
nodes of a secret are selected by names, which the certificate proves, and by facts that an operator assigned. Other facts are not
used, because a node could report a false value to get the secrets of another role.

An interrupted command leaves a consistent state. The value is stored before the head that refers to it, and the head is stored
before a node gets its key. `sync` completes the remaining steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.sealing import (
    SEALING_KEY,
    SECRETS,
    check_secret_name,
    check_secret_value,
    encrypt,
    head_key,
    seal,
    unseal,
    value_key,
    wrap_key,
)
from ccm_agent.bus.signatures.signing import SignatureError, SigningKey, is_public_key
from ccm_agent.bus.signatures.verified import Authored, Base
from ccm_agent.model.errors import (
    BusSetupError,
    NotFoundError,
    ProtocolError,
    RevisionError,
    UsageError,
)
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.sealed import (
    NextKey,
    SealedKey,
    SealedValue,
    SealingKeys,
    SecretHead,
    SecretRevision,
)
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.data.documents import Documents, StoredDocument
from ccm_ctl.fleet.keys.certified_keys import CertifiedKeys
from ccm_ctl.fleet.ports import DocumentBucket, Fleet

_TRIES = 10

REVISIONS_LISTED = 50
"""The maximum number of revisions kept in a head, which must remain a small message."""

SEALED_AT_ONCE = 32
"""The number of data keys that are written at the same time."""

WAY_OUT = "store it again with `ccmctl secret put`"

NOT_SEALED = "the secret is not sealed to it"

Body = TypeVar("Body", SealedKey, SecretHead, SealingKeys)


class SecretNode(Struct, frozen=True, kw_only=True):
    """
    A node to which a secret is sealed, was sealed, or should be sealed.

    Attributes:
        node: Its name.
        revision: The revision that it can open, or 0.
        next: The revision that a rotation will release to it, or 0.
        known: The revision that it could open before the secret was withdrawn, or 0.
        since, by: When and by whom it was sealed or withdrawn.
        problem: The reason why the secret cannot be sealed to the node, or why the entry does not verify. "": there is no
            problem.
    """

    node: str
    revision: int = 0
    next: int = 0
    known: int = 0
    since: datetime | None = None
    by: str = ""
    problem: str = ""

    @property
    def is_sealable(self) -> bool:
        """Whether the node lacks only its data key."""
        return self.problem == NOT_SEALED


class SealResult(Struct, frozen=True, kw_only=True):
    """
    The results of a command for one secret.

    Attributes:
        name, revision: The secret.
        sealed: Nodes to which it was sealed now.
        kept: Nodes to which it was already sealed.
        removed: Nodes from which it was withdrawn.
        problems: Nodes to which it cannot be sealed although it should be, with the reason.
    """

    name: str
    revision: int
    sealed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: Mapping[str, str] = {}


class StoredSecret(Struct, frozen=True, kw_only=True):
    """
    A stored secret.

    Attributes:
        head: Its metadata.
        document: Its document and the result of checking the signature.
        nodes: The nodes with a data key, sorted.
    """

    head: SecretHead
    document: StoredDocument
    nodes: tuple[SecretNode, ...] = ()

    @property
    def revision(self) -> int:
        """The newest revision."""
        return self.head.newest.revision if self.head.newest is not None else 0

    @property
    def stale(self) -> list[str]:
        """Nodes that could open a stored revision but no longer may. That revision must be replaced."""
        oldest = self.head.older[0].revision if self.head.older else self.revision
        return [one.node for one in self.nodes if one.known and one.known >= oldest]


class FleetSecrets:
    """The secrets of one fleet, used with the rights of one operator."""

    def __init__(self, fleet: Fleet) -> None:
        """
        Store the fleet.

        Raises:
            BusSetupError: The fleet does not support secrets.
        """
        if fleet.secrets is None or fleet.trust is None or fleet.signatory is None:
            raise BusSetupError(
                "secrets need a fleet with signatures, because a secret is sealed to the keys of nodes; set it up with "
                "`ccmctl init --security`"
            )
        self._fleet = fleet
        self._bucket: DocumentBucket = fleet.secrets
        self._documents = Documents(fleet, self._bucket, SECRETS)
        self._node_keys = CertifiedKeys(fleet, fleet.trust)

    async def add_sealing_key(self, public_key: str) -> bool:
        """
        Publish a sealing key. Returns whether it is new.

        Raises:
            BusDeniedError: The operator lacks `--admin`.
            SignatureError: The published keys are not verified.
        """
        document = await self._documents.read_newest(SEALING_KEY)
        known = _body(document, SealingKeys) if document.body is not None else SealingKeys()
        base: list[Base] = [Authored.from_files()]
        if document.body is not None:
            base.append(document.verified("run `ccmctl secret init` with the correct keys"))
        if public_key in known.keys:
            return False
        body = encode_body(SealingKeys(keys=(*known.keys, public_key)))
        await self._documents.change(SEALING_KEY, lambda _: body, base=base)
        return True

    async def put(
        self, name: str, value: Secret, targets: Sequence[str] = (), message: str = ""
    ) -> SealResult:
        """
        Store a new revision, and seal it to its target nodes.

        Args:
            name: Its name.
            value: The value.
            targets: Selectors of the nodes. Empty: the selectors of the previous revision.
            message: The reason for the change.

        Raises:
            UsageError: The name, the value or the targets cannot be used.
            NotFoundError: The fleet has no sealing key.
            SignatureError: The stored secret is not verified, and no targets are given.
        """
        check_secret_name(name)
        check_secret_value(value)
        keys = await self._sealing_keys()
        document = await self._documents.read_newest(head_key(name))
        head = _body(document, SecretHead) if document.body is not None else SecretHead(name=name)
        base: list[Base] = [Authored.from_files()]
        if not targets:
            if not head.targets:
                raise UsageError(f"{name}: name the nodes that the secret is for, with --for SELECTOR")
            base.append(document.verified(f"{WAY_OUT} {name} --for SELECTOR"))
        targets = tuple(targets) or head.targets
        await self._node_keys.selectors(targets)
        if document.unverified:
            head = SecretHead(name=name)
        made, data_key = await self._store_revision(head, value, keys, base, message)
        new = SecretHead(name=name, targets=targets, revisions=with_revision(_without_values(head), made))
        await self._store_head(new, document, base, message)
        done = await self._seal(new, made, data_key, base, is_new=True)
        # all nodes that may have the secret now have the key of the new revision
        for one in head.revisions:
            if one.sealed:
                await self._documents.remove(value_key(name, one.revision))
        return done

    async def sync(self, name: str, sealing: SigningKey) -> SealResult:
        """
        Seal the newest revision to nodes that match now, and withdraw it from those that no longer match.

        Raises:
            NotFoundError: There is no such secret.
            SignatureError: The secret is not verified.
            ProtocolError: The secret is not sealed to this sealing key.
        """
        stored = await self.read(name)
        proof = stored.document.verified(f"{WAY_OUT} {name} --for SELECTOR")
        newest = stored.head.newest
        sealed = newest.sealed.get(sealing.public_key, "") if newest is not None else ""
        if newest is None or not sealed:
            raise ProtocolError(
                f"secret {name}: it is not sealed to the sealing key {sealing.public_key}; use the folder of the key that "
                f"`ccmctl secret init` made, or {WAY_OUT} {name}"
            )
        if newer := [one.node for one in stored.nodes if one.revision > newest.revision and not one.problem]:
            raise SignatureError(
                f"secret {name}: {newer[0]} has a newer revision than the broker shows, so nothing is sealed; {WAY_OUT} {name}"
            )
        return await self._seal(stored.head, newest, unseal(sealing, sealed), [proof])

    async def names(self) -> list[str]:
        """Return the names of all secrets, sorted."""
        return [one.head.name for one in await self.read_all(with_nodes=False)]

    async def read(self, name: str, *, with_nodes: bool = True) -> StoredSecret:
        """
        Return one secret, with or without its nodes.

        Raises:
            NotFoundError: There is no such secret.
        """
        document = await self._documents.read_newest(head_key(name))
        if document.body is None:
            raise NotFoundError(f"{name}: there is no such secret; see `ccmctl secret list`")
        nodes = (await self._wraps(f"wrap.*.{name}")).get(name, []) if with_nodes else []
        return StoredSecret(head=_body(document, SecretHead), document=document, nodes=tuple(nodes))

    async def read_all(self, *, with_nodes: bool = True) -> list[StoredSecret]:
        """Return all secrets, sorted by name. Secrets that cannot be read are left out."""
        nodes = await self._wraps("wrap.>") if with_nodes else {}
        found = []
        for document in await self._documents.read_all("head."):
            name = document.key.removeprefix("head.")
            try:
                head = _body(document, SecretHead)
            except ProtocolError:
                self._fleet.warn(f"{SECRETS}/{document.key}: it cannot be read; {WAY_OUT} {name}")
                continue
            found.append(StoredSecret(head=head, document=document, nodes=tuple(nodes.get(name, ()))))
        return sorted(found, key=lambda one: one.head.name)

    async def missing(self, secret: StoredSecret) -> list[SecretNode]:
        """Return the target nodes of a secret that cannot open its newest revision."""
        keys, problems = await self._node_keys.of(secret.head.targets)
        able = {
            one.node
            for one in secret.nodes
            if secret.revision in (one.revision, one.next) and not one.problem
        }
        names = sorted((keys.keys() | problems.keys()) - able)
        return [SecretNode(node=name, problem=problems.get(name, NOT_SEALED)) for name in names]

    async def remove(self, name: str) -> SealResult:
        """
        Remove a secret. The data keys of all nodes are removed first, then its values.

        Raises:
            NotFoundError: There is no such secret.
        """
        stored = await self.read(name)
        removed = [one.node for one in stored.nodes if one.revision]
        for node in stored.nodes:
            if node.revision:
                await self._take_away(node, name, [Authored.removal()])
        for one in stored.head.revisions:
            if one.sealed:
                await self._documents.remove(value_key(name, one.revision))
        await self._documents.remove(head_key(name))
        return SealResult(name=name, revision=stored.revision, removed=tuple(removed))

    async def _store_revision(
        self, head: SecretHead, value: Secret, keys: Sequence[str], base: Sequence[Base], message: str
    ) -> tuple[SecretRevision, bytes]:
        """
        Store a value under the next revision number of a head, before the head refers to it. Returns the revision and its data
        key.
        """
        name, last = head.name, head.newest.revision if head.newest is not None else 0
        if not last:
            # a removed secret leaves notes about the revisions of its nodes, and a reused revision number would match these notes
            found = await self._sealed_keys(name)
            last = max((max(wrap.last, wrap.known) for _, wrap in found.values()), default=0)
        revision, data_key = await self._store_value(name, value, last + 1, base)
        made = SecretRevision(
            revision=revision,
            time=self._fleet.clock.now(),
            by=self._fleet.operator,
            message=message,
            size_bytes=len(value.reveal().encode()),
            sealed={key: seal(data_key, key) for key in keys},
        )
        return made, data_key

    async def _store_head(
        self, head: SecretHead, document: StoredDocument, base: Sequence[Base], message: str = ""
    ) -> None:
        """
        Store the head of a secret in place of a document. Raises RevisionError if the document was replaced in the meantime.
        """
        body = encode_body(head)
        await self._documents.change(
            head_key(head.name), lambda _: body, base=base, revision=document.revision, message=message
        )

    async def _store_value(
        self, name: str, value: Secret, revision: int, base: Sequence[Base]
    ) -> tuple[int, bytes]:
        """Store an encrypted value under an unused revision. Returns the revision and its data key."""
        for _ in range(_TRIES):
            data_key, ciphertext = encrypt(name, revision, value)
            body = encode_body(SealedValue(revision=revision, ciphertext=ciphertext))
            try:
                await self._documents.change(value_key(name, revision), _always(body), base=base, revision=0)
            except RevisionError:
                revision += 1  # used by another operator, or by a command that was interrupted
                continue
            return revision, data_key
        raise RevisionError(f"{name}: other operators keep writing it; try again")

    async def _sealing_keys(self) -> tuple[str, ...]:
        document = await self._documents.read_newest(SEALING_KEY)
        if document.body is None:
            raise NotFoundError(
                "this fleet has no sealing key, which is needed to seal secrets to later nodes; run `ccmctl secret init`"
            )
        # if the broker could publish a false key, that key would open every new secret
        document.verified("run `ccmctl secret init` as an operator with --admin")
        keys = _body(document, SealingKeys).keys
        if not keys or not all(map(is_public_key, keys)):
            raise ProtocolError(f"{SECRETS}/{SEALING_KEY}: it contains no keys; run `ccmctl secret init`")
        return keys

    async def _seal(
        self,
        head: SecretHead,
        newest: SecretRevision,
        data_key: bytes,
        base: Sequence[Base],
        *,
        is_new: bool = False,
    ) -> SealResult:
        """
        Seal a revision to the target nodes of a secret, and withdraw it from others.

        If a node uses an older revision that is still stored, it gets both. The rotation decides when the node uses the new
        one.
        """
        keys, problems = await self._node_keys.of(head.targets)
        wraps = await self._sealed_keys(head.name)
        older = {one.revision for one in head.older}
        todo: dict[str, str] = {}
        beside: dict[str, StoredDocument] = {}
        for node, key in keys.items():
            document, had = wraps.get(node, (None, None))
            if is_new or document is None or had is None or had.key != key:
                todo[node] = key
            elif had.revision in older:
                if had.next is None or (had.next.revision, had.next.key) != (newest.revision, key):
                    todo[node], beside[node] = key, document
            elif had.revision != newest.revision:
                todo[node] = key
        slots = asyncio.Semaphore(SEALED_AT_ONCE)

        async def seal_one(node: str, key: str) -> None:
            sealed = seal(data_key, key)
            document, had = wraps[node] if node in beside else (None, None)
            wrap = SealedKey(node=node, revision=newest.revision, key=key, sealed=sealed)
            bases, revision = base, None
            if document is not None and had is not None:
                following = NextKey(revision=newest.revision, key=key, sealed=sealed)
                wrap = msgspec.structs.replace(had, next=following)
                bases, revision = [*base, document.verified(WAY_OUT)], document.revision
            body = encode_body(wrap)
            async with slots:
                await self._documents.change(
                    wrap_key(node, head.name), lambda _: body, base=bases, revision=revision
                )

        async with asyncio.TaskGroup() as group:
            for node, key in todo.items():
                group.create_task(seal_one(node, key), name=f"seal:{node}")
        gone = [one for one in (await self._wraps(f"wrap.*.{head.name}")).get(head.name, ()) if one.revision]
        gone = [one for one in gone if one.node not in keys and one.node not in problems]
        for one in gone:
            await self._take_away(one, head.name, base)
        return SealResult(
            name=head.name,
            revision=newest.revision,
            sealed=tuple(sorted(todo)),
            kept=tuple(sorted(keys.keys() - todo.keys())),
            removed=tuple(one.node for one in gone),
            problems=problems,
        )

    async def _take_away(self, node: SecretNode, name: str, base: Sequence[Base]) -> None:
        """Replace a node's data key by a note of the last revision. The node accepts the note like any newer document."""
        body = encode_body(SealedKey(node=node.node, revision=0, known=max(node.revision, node.next)))
        await self._documents.change(wrap_key(node.node, name), lambda _: body, base=base)

    async def _sealed_keys(self, name: str) -> dict[str, tuple[StoredDocument, SealedKey]]:
        """Return the verified data keys of a secret, by node."""
        documents = await self._read_wraps(f"wrap.*.{name}")
        return {wrap.node: (one, wrap) for one, wrap in documents if not one.unverified}

    async def _wraps(self, pattern: str) -> dict[str, list[SecretNode]]:
        """Return the nodes with data keys, by the name of the secret."""
        found: dict[str, list[SecretNode]] = {}
        for document, wrap in await self._read_wraps(pattern):
            found.setdefault(document.key.rpartition(".")[2], []).append(
                SecretNode(
                    node=wrap.node,
                    revision=wrap.revision,
                    next=wrap.next.revision if wrap.next is not None else 0,
                    known=wrap.known,
                    since=document.time,
                    by=document.written_by,
                    problem=f"unverified: {document.unverified}" if document.unverified else "",
                )
            )
        return {name: sorted(nodes, key=lambda one: one.node) for name, nodes in found.items()}

    async def _read_wraps(self, pattern: str) -> list[tuple[StoredDocument, SealedKey]]:
        found = []
        for document in await self._documents.read_matching([pattern]):
            try:
                wrap = _body(document, SealedKey)
            except ProtocolError:
                continue
            if document.key == wrap_key(wrap.node, document.key.rpartition(".")[2]):
                found.append((document, wrap))
        return found


def encode_body(body: Struct) -> str:
    """Return the text of a secret's document, in the format that agents read."""
    return msgspec.json.encode(body).decode()


def _without_values(head: SecretHead) -> tuple[SecretRevision, ...]:
    return tuple(msgspec.structs.replace(one, sealed={}) for one in head.revisions)


def with_revision(revisions: tuple[SecretRevision, ...], made: SecretRevision) -> tuple[SecretRevision, ...]:
    """Return the revisions with one added. Only the newest ones, and those with a stored value, are kept."""
    every = (*revisions, made)
    return (*(one for one in every[:-REVISIONS_LISTED] if one.sealed), *every[-REVISIONS_LISTED:])


def _always(body: Any) -> Callable[[Any], Any]:
    return lambda _old: body


def _body(document: StoredDocument, kind: type[Body]) -> Body:
    try:
        return decode_foreign(str(document.body).encode(), kind)
    except msgspec.MsgspecError as err:
        raise ProtocolError(
            f"{SECRETS}/{document.key}: not a document of a secret: {err}; {WAY_OUT}"
        ) from err
