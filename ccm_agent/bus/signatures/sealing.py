"""
Sealing of secrets: the broker stores them, and only the nodes for which they are intended can open them.

A value is encrypted once, with a random data key. The data key is sealed to each node's own key, and to the sealing key of the
fleet. An operator uses the latter to seal it to more nodes later. Nodes and the fleet have ed25519 nkeys; the curve25519 sealing
keys are derived from them as in libsodium (`crypto_sign_ed25519_pk_to_curve25519`).

Name and revision of a secret are authenticated with the value: a ciphertext that was copied under another name or revision
cannot be opened. Sealing does not prove who sealed a secret; the documents that contain it are signed (`model.records.sealed`).
See ADR 121.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from typing import Any

from ccm_agent.bus.signatures.signing import SigningKey, public_key_bytes
from ccm_agent.bus.subjects import encode_token
from ccm_agent.model.errors import ProtocolError, UsageError
from ccm_agent.model.secret import MINIMUM_LENGTH, Secret, is_common_word

SECRETS = "CCM_SECRETS"
"""The bucket. Keys: `head.NAME`, `value.NAME.REVISION`, `wrap.NODE.NAME`, and `sealing`, which lists the fleet's sealing keys."""

SEALING_KEY = "sealing"

SECRET_LIMIT_BYTES = 64 << 10
"""The largest value: a broker's message has at most 1 MiB, and a node keeps all the secrets that it uses in memory."""

NAME_LIMIT = 64

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_CONTEXT = b"ccm-secret-v1"


def check_secret_name(name: str) -> str:
    """
    Check the name of a secret and return it.

    Raises:
        UsageError: The name is too long, or has characters that are not allowed in a key of a bucket.
    """
    if len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
        shown = name if len(name) <= NAME_LIMIT else f"{name[:NAME_LIMIT]}…"
        raise UsageError(
            f"`{shown}` is not the name of a secret; use at most {NAME_LIMIT} lower-case letters, digits, `-` and `_`, "
            "and begin with a letter or a digit"
        )
    return name


def check_secret_value(value: Secret) -> None:
    """
    Check that a value can be kept secret.

    Raises:
        UsageError: The value is too large, or too short or common to be masked in output.
    """
    plain = value.reveal()
    size = len(plain.encode("utf-8", "surrogateescape"))
    if size > SECRET_LIMIT_BYTES:
        raise UsageError(
            f"the value has {size:,} bytes, and a secret at most {SECRET_LIMIT_BYTES:,}; store a key that decrypts it instead"
        )
    if len(plain.strip()) < MINIMUM_LENGTH or is_common_word(plain):
        raise UsageError(
            f"the value is a common word or has fewer than {MINIMUM_LENGTH} characters, so it cannot be masked in output; "
            "use a longer one"
        )
    if "\0" in plain or any("\ud800" <= one <= "\udfff" for one in plain):
        raise UsageError("the value is not text; encode it in base64, and decode it where it is used")


def head_key(name: str) -> str:
    """Return the key of the document about a secret, which contains its recipients and revisions."""
    return f"head.{check_secret_name(name)}"


def value_key(name: str, revision: int) -> str:
    """Return the key of an encrypted value."""
    return f"value.{check_secret_name(name)}.{revision}"


def wraps_of(node: str) -> str:
    """Return the prefix of the keys of all data keys that are sealed to a node."""
    return f"wrap.{encode_token(node)}"


def wrap_key(node: str, name: str) -> str:
    """Return the key of a data key that is sealed to a node."""
    return f"{wraps_of(node)}.{check_secret_name(name)}"


def encrypt(name: str, revision: int, value: Secret) -> tuple[bytes, str]:
    """Encrypt a value, and return the new data key and the ciphertext in base64."""
    import nacl.secret

    data_key = secrets.token_bytes(nacl.secret.Aead.KEY_SIZE)
    plain = value.reveal().encode()
    sealed = nacl.secret.Aead(data_key).encrypt(plain, _associated(name, revision))
    return data_key, base64.b64encode(bytes(sealed)).decode()


def decrypt(name: str, revision: int, data_key: bytes, ciphertext: str) -> Secret:
    """
    Decrypt a value.

    Raises:
        ProtocolError: The value was encrypted with another key, under another name or revision, or was changed.
    """
    import nacl.exceptions
    import nacl.secret

    try:
        raw = base64.b64decode(ciphertext, validate=True)
        plain = nacl.secret.Aead(data_key).decrypt(raw, _associated(name, revision))
        return Secret(plain.decode())
    except (nacl.exceptions.CryptoError, binascii.Error, ValueError, TypeError):
        # Neither the cause nor the bytes are shown.
        raise ProtocolError(
            f"secret {name}: revision {revision} does not open with the key that was sealed for it; store it again with "
            f"`ccmctl secret put {name}`"
        ) from None


def seal(data_key: bytes, public_key: str) -> str:
    """
    Seal a data key to an nkey, in base64.

    Raises:
        ProtocolError: The key is not a public nkey.
    """
    import nacl.exceptions
    import nacl.public
    import nacl.signing

    raw = public_key_bytes(public_key)
    if raw is None:
        raise ProtocolError(f"{public_key}: not a public nkey, so nothing can be sealed to it")
    try:
        curve: Any = nacl.signing.VerifyKey(raw).to_curve25519_public_key()
    except (nacl.exceptions.CryptoError, RuntimeError) as err:
        raise ProtocolError(f"{public_key}: nothing can be sealed to this key: {err}") from None
    return base64.b64encode(nacl.public.SealedBox(curve).encrypt(data_key)).decode()


def unseal(key: SigningKey, sealed: str) -> bytes:
    """
    Open a sealed data key.

    Raises:
        ProtocolError: The data key was sealed to another key, or was changed.
    """
    try:
        raw = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError("a sealed key cannot be decoded; run `ccmctl secret sync`") from None
    return key.unseal(raw)


def _associated(name: str, revision: int) -> bytes:
    return b"\0".join((_CONTEXT, name.encode(), str(revision).encode()))
