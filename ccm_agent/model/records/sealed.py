"""
The documents of secrets: the bodies of stamped documents in CCM_SECRETS. They contain only encrypted
values.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

SECRET_URL = "secret://"
"""The prefix of a reference in Hiera data: `secret://NAME`."""


class SealedValue(Struct, frozen=True, kw_only=True):
    """
    The encrypted value of one revision of a secret.

    Attributes:
        revision: The revision of the secret.
        ciphertext: Nonce and XChaCha20-Poly1305 ciphertext, in base64.
    """

    revision: int
    ciphertext: str


class NextKey(Struct, frozen=True, kw_only=True):
    """
    The data key of the next revision, which the node does not use yet.

    Attributes:
        revision: The revision that it opens.
        key, sealed: See SealedKey.
    """

    revision: int
    key: str
    sealed: str


class SealedKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The data key of a secret, sealed to one node.

    Attributes:
        node: The node.
        revision: The revision that the key opens; 0 if the secret is no longer available to this node.
        key: The public nkey to which the data key was sealed.
        sealed: The sealed data key, in base64.
        known: The last revision that was sealed to this node before access was removed.
        next: The data key of the revision that a rotation will bring to this node; None if there is none. Agents ignore it.
    """

    node: str
    revision: int
    key: str = ""
    sealed: str = ""
    known: int = 0
    next: NextKey | None = None

    @property
    def last(self) -> int:
        """Return the newest revision that the node can open, including the next revision of a rotation."""
        return max(self.revision, self.next.revision if self.next is not None else 0)


class SecretRevision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A revision of a secret.

    Attributes:
        revision: The number of the revision, from 1.
        time, by, message: Time, author and reason of the write.
        size_bytes: The length of the value.
        sealed: The data key in base64, sealed to each sealing key of the fleet, by public key. Empty once the value is purged.
    """

    revision: int
    time: datetime
    by: str
    message: str = ""
    size_bytes: int = 0
    sealed: dict[str, str] = {}


class SecretHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The description of a secret, without its value.

    Attributes:
        name: The name of the secret.
        targets: Selectors of the nodes that may use the secret; one match is enough.
        revisions: Its revisions, oldest first.
    """

    name: str
    targets: tuple[str, ...] = ()
    revisions: tuple[SecretRevision, ...] = ()

    @property
    def newest(self) -> SecretRevision | None:
        """Return the newest revision; None before the first revision."""
        return self.revisions[-1] if self.revisions else None

    @property
    def older(self) -> tuple[SecretRevision, ...]:
        """
        Return the older revisions with stored values. A rotation is in progress, and nodes may still use
        them.
        """
        return tuple(one for one in self.revisions[:-1] if one.sealed)


class SealingKeys(Struct, frozen=True, kw_only=True):
    """The public keys to which data keys are sealed, for the operators who may seal them for further nodes."""

    keys: tuple[str, ...] = ()
