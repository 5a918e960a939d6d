"""The documents of secrets: the bodies of stamped documents in CCM_SECRETS. Nothing in them is secret."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

SECRET_URL = "secret://"
"""A value of Hiera data that begins so is a reference: `secret://NAME`."""


class SealedValue(Struct, frozen=True, kw_only=True):
    """
    The encrypted value of one revision of a secret.

    Attributes:
        revision: The revision of the secret.
        ciphertext: In base64: nonce, XChaCha20-Poly1305.
    """

    revision: int
    ciphertext: str


class NextKey(Struct, frozen=True, kw_only=True):
    """
    The data key of the next revision, which its node does not use yet.

    Attributes:
        revision: The revision that it opens.
        key, sealed: As in SealedKey.
    """

    revision: int
    key: str
    sealed: str


class SealedKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The data key of a secret, sealed to one node.

    Attributes:
        node: The node.
        revision: The revision that it opens; 0: the secret is no longer for this node.
        key: The public nkey that it was sealed to.
        sealed: In base64.
        known: The last revision that was sealed to this node, after it was taken away.
        next: The data key of the revision that a rotation will bring to this node; None: there is none. Agents ignore it.
    """

    node: str
    revision: int
    key: str = ""
    sealed: str = ""
    known: int = 0
    next: NextKey | None = None

    @property
    def last(self) -> int:
        """The newest revision that the node can open, also after a rotation has reached it."""
        return max(self.revision, self.next.revision if self.next is not None else 0)


class SecretRevision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A revision of a secret.

    Attributes:
        revision: Counts from 1.
        time, by, message: When, by whom and why it was stored.
        size_bytes: The length of the value.
        sealed: The data key in base64, sealed to each sealing key of the fleet, by public key; empty once the value is purged.
    """

    revision: int
    time: datetime
    by: str
    message: str = ""
    size_bytes: int = 0
    sealed: dict[str, str] = {}


class SecretHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What is known about a secret without its value.

    Attributes:
        name: Its name.
        targets: Selectors of the nodes that it is for; any is enough.
        revisions: Its revisions, oldest first.
    """

    name: str
    targets: tuple[str, ...] = ()
    revisions: tuple[SecretRevision, ...] = ()

    @property
    def newest(self) -> SecretRevision | None:
        """The newest revision; None before the first one."""
        return self.revisions[-1] if self.revisions else None

    @property
    def older(self) -> tuple[SecretRevision, ...]:
        """Revisions whose values are stored besides the newest: a rotation is on its way, and nodes may use them."""
        return tuple(one for one in self.revisions[:-1] if one.sealed)


class SealingKeys(Struct, frozen=True, kw_only=True):
    """The public keys to which data keys are sealed for the operators who may seal them to further nodes."""

    keys: tuple[str, ...] = ()
