"""
Opens the secrets that are sealed to this node.

The documents come from a bucket that verifies them and keeps the last good ones on disk, sealed as on the broker. So a node can
open its secrets while the broker is unavailable, and neither its disk nor the broker ever contains a value.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ccm_agent.bus.signatures.sealing import SECRETS, check_secret_name, decrypt, value_key, wrap_key
from ccm_agent.model.errors import (
    BusDeniedError,
    ExpressionError,
    ExpressionLimitError,
    ProtocolError,
    SecretNotSealedError,
)
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.sealed import SealedKey, SealedValue
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import OpenedSecret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from ccm_agent.bus.signatures.node_key import NodeKey
    from ccm_agent.model.ports import KeyReader

Body = TypeVar("Body", SealedKey, SealedValue)


class SecretReader:
    """
    The secrets of one node.

    Args:
        node: The node's identity.
        key: The node's key, which opens data keys that are sealed to it.
        loop: The event loop of the bucket; None: nothing can be read.
    """

    def __init__(self, node: str, key: NodeKey, loop: asyncio.AbstractEventLoop | None) -> None:
        self._node = node
        self._key = key
        self._loop = loop
        self._open_bucket: Callable[[str], Awaitable[KeyReader]] | None = None
        self._numbers: MutableMapping[str, int] = {}

    def use(
        self, open_bucket: Callable[[str], Awaitable[KeyReader]], numbers: MutableMapping[str, int]
    ) -> None:
        """
        Set the functions that read and verify documents.

        Args:
            open_bucket: Opens a bucket by name.
            numbers: The highest number seen of each document, by `bucket/key`; changed in place.
        """
        self._open_bucket, self._numbers = open_bucket, numbers

    def open(self, name: str) -> OpenedSecret:
        """
        Return a secret with its value. Call it in a thread; on the event loop it raises ExpressionLimitError.

        Raises:
            SecretNotSealedError: The secret is not sealed to this node.
            BusError: The secret cannot be read now, or cannot be verified.
        """
        if self._loop is None:
            raise ExpressionError(
                "secrets cannot be opened here; use them in a property or template of a resource"
            )
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            raise ExpressionLimitError("a secret is not opened on the event loop")
        return asyncio.run_coroutine_threadsafe(self.read(name), self._loop).result()

    async def read(self, name: str) -> OpenedSecret:
        """See `open`."""
        wrap = await self._wrap(check_secret_name(name))
        value = await self._document(value_key(name, wrap.revision), SealedValue)
        if value is None:
            # The secret was replaced between the two reads.
            wrap = await self._wrap(name)
            value = await self._document(value_key(name, wrap.revision), SealedValue)
        if value is None:
            raise ProtocolError(
                f"secret {name}: revision {wrap.revision} is not stored; store it again with `ccmctl secret put {name}`"
            )
        if wrap.key != self._key.public_key:
            raise SecretNotSealedError(
                f"secret {name}: it is sealed to an earlier key of this node; run `ccmctl secret sync {name}`"
            )
        plain = decrypt(name, wrap.revision, self._key.unseal(wrap.sealed), value.ciphertext)
        return OpenedSecret(plain, wrap.revision)

    async def _wrap(self, name: str) -> SealedKey:
        wrap = await self._document(wrap_key(self._node, name), SealedKey)
        if wrap is None or not wrap.sealed:
            raise SecretNotSealedError(
                f"secret {name}: it is not sealed to this node; if it should be, run `ccmctl secret sync {name}`"
            )
        return wrap

    async def _document(self, key: str, kind: type[Body]) -> Body | None:
        if self._open_bucket is None:
            raise ProtocolError("secrets cannot be read by this program")
        try:
            entry = await (await self._open_bucket(SECRETS)).get(key)
        except BusDeniedError as err:
            raise BusDeniedError(
                f"the broker does not let this node read secrets: {err.message}; create new credentials with "
                f"`ccmctl node add {self._node}`"
            ) from err
        if entry is None:
            return None
        try:
            stamped = decode_foreign(entry.value, Stamped)
            body = decode_foreign(str(stamped.body).encode(), kind)
        except msgspec.MsgspecError as err:
            raise ProtocolError(f"{SECRETS}/{key}: not a document of a secret: {err}") from err
        self._numbers[f"{SECRETS}/{key}"] = max(stamped.number, self._numbers.get(f"{SECRETS}/{key}", 0))
        return body
