"""Plain ed25519 keys that are not nkeys, for the certificates of a fleet's servers. Uses PyNaCl, as nkeys do."""

from __future__ import annotations

import secrets

from ccm_agent.model.secret import Secret

KEY_BYTES = 32


class Ed25519Key:
    """
    A private key and its public key.

    Args:
        raw: The 32 bytes of the key; None generates a new key.
    """

    def __init__(self, raw: bytes | None = None) -> None:
        import nacl.signing

        self._key = nacl.signing.SigningKey(raw if raw is not None else secrets.token_bytes(KEY_BYTES))
        self.public = bytes(self._key.verify_key)

    @property
    def raw(self) -> bytes:
        """The private key. Anyone who holds it can sign as the user."""
        return bytes(self._key)

    def sign(self, data: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return bytes(self._key.sign(data).signature)

    def __repr__(self) -> str:
        return f"SigningKey({Secret('x')})"
