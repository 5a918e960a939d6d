"""A file encrypted by age or rage, with or without armor: https://age-encryption.org/v1. Keys are age keys or SSH keys."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.secret import Secret
from ccm_ctl.secret_sources.contract import SourceDeniedError, SourceRequest, SourceValueError
from ccm_ctl.secret_sources.decrypted import read_limited, value_in

MAGIC = (b"age-encryption.org/", b"-----BEGIN AGE ENCRYPTED FILE-----")


class AgeFile:
    """
    A value in an encrypted file.

    Raises:
        UsageError: No file with a key was given.
        InputError: The package for decryption is not installed.
    """

    def __init__(self, request: SourceRequest) -> None:
        if not request.identity:
            raise UsageError("decrypting an age file requires a key; name the key file with --identity FILE")
        if find_spec("pyrage") is None:
            raise InputError(
                "--from age: needs the Python package pyrage, which the .deb and .rpm do not contain; "
                "`pip install 'ccm-fleet[age]'` installs ccmctl with it"
            )
        self._request = request

    async def read(self) -> Secret:
        """See `ValueSource`."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Secret:
        import pyrage

        place, identity = self._request.place, self._request.identity
        keys = _keys(read_limited(identity), identity)
        encrypted = read_limited(place)
        if not encrypted.lstrip().startswith(MAGIC):
            raise SourceValueError(f"{place}: not an age-encrypted file")
        try:
            plain: bytes = pyrage.decrypt(encrypted, keys)
        except pyrage.DecryptError as err:
            # compare the library's message, but never show it
            if "matching keys" in str(err):
                raise SourceDeniedError(f"{place}: no key in {identity} decrypts it") from None
            raise SourceValueError(f"{place}: the file is damaged") from None
        return value_in(plain, self._request)


def _keys(raw: bytes, path: str) -> list[Any]:
    """
    Return the keys in a file that age-keygen or ssh-keygen wrote.

    Raises:
        SourceValueError: The file has no keys, or a key that cannot be used.
    """
    import pyrage

    try:
        if raw.lstrip().startswith(b"-----BEGIN"):
            return [pyrage.ssh.Identity.from_buffer(raw)]
        lines = [line.strip() for line in raw.decode().splitlines()]
        keys = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (pyrage.IdentityError, UnicodeDecodeError):
        keys = []
    if not keys:
        raise SourceValueError(
            f"{path}: no usable key; use a file made by age-keygen, or an SSH key without a passphrase"
        )
    return keys
