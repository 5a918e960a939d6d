"""
Reads OpenPGP public keys: extracts the single key in a text or file, without surrounding data, and its fingerprint.

Signatures are not verified. The fingerprint identifies the primary key. Programs that use the key verify that its subkeys belong
to it. Only framing that all programs interpret in the same way is accepted, and `PublicKey.armored` writes exactly the data that
was read. Therefore no other program can find a different key in the result.

No library is used, because the libraries that read keys (PGPy, PySequoia) require cryptography packages that are not needed
otherwise. Minimal hosts do not have gpg.

Source: RFC 9580, sections 4.2 (framing), 5.5.4 (fingerprints), 6 (armor).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

KEY_LIMIT_BYTES = 256 << 10
"""The maximum size of a key. A larger file is a keyring. The largest keys have a few thousand signatures."""
FINGERPRINT_LENGTHS = (40, 64)
_LINE = 64
_BEGIN, _END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"
_BLOCK = b"-----BEGIN PGP "
_HEADER = re.compile(rb"[A-Za-z][A-Za-z-]*: ?.*")
_CHECKSUM = re.compile(rb"=[A-Za-z0-9+/]{4}")
_PRIMARY, _SUBKEY = 6, 14
_SECRET = (5, 7)
_PARTS = frozenset({2, 13, 17, _SUBKEY})
"""The packet types that may follow the primary key: signatures, user IDs, user attributes, subkeys."""
_LEAST_KEY = 8
"""The minimum size of a key in bytes: version, time, algorithm, and at least two bytes of a number."""


class PublicKey(Struct, frozen=True, kw_only=True):
    """
    One public key with its subkeys, user IDs and signatures.

    Attributes:
        fingerprint: The fingerprint of the primary key: 40 (version 4) or 64 (version 6) uppercase hexadecimal digits.
        packets: The key in binary form.
    """

    fingerprint: str
    packets: bytes

    def armored(self) -> bytes:
        """Return the key as text. Equal keys result in equal texts."""
        coded = base64.b64encode(self.packets)
        lines = [coded[at : at + _LINE] for at in range(0, len(coded), _LINE)]
        # rpm refuses a text without a checksum
        check = b"=" + base64.b64encode(_crc24(self.packets).to_bytes(3))
        return b"\n".join([_BEGIN, b"", *lines, check, _END, b""])


def parse_public_key(data: bytes) -> PublicKey:
    """
    Read a text or a binary file that contains one public key.

    Raises:
        ValueError: The data does not consist of one public key. The message describes the problem.
    """
    if len(data) > KEY_LIMIT_BYTES:
        raise ValueError(f"it is larger than {KEY_LIMIT_BYTES >> 10} KiB, so it is not a single key")
    if not data.strip():
        raise ValueError("it is empty")
    packets = _unarmored(data) if _BLOCK in data or not data[0] & 0x80 else data
    fingerprint = ""
    for tag, body in _packets(packets):
        if tag in _SECRET:
            raise ValueError("it contains a secret key; export the public key only")
        if not fingerprint:
            if tag != _PRIMARY:
                raise ValueError("it does not begin with a public key")
            fingerprint = _fingerprint(body)
        elif tag == _PRIMARY:
            raise ValueError("it contains several keys; only one is allowed")
        elif tag not in _PARTS:
            raise ValueError(f"it contains a packet of type {tag}, which is not part of a public key")
    return PublicKey(fingerprint=fingerprint, packets=packets)


def normal_fingerprint(text: str) -> str:
    """
    Normalize a fingerprint to the form of `PublicKey.fingerprint`. Spaces and a leading `0x` are accepted.

    Raises:
        ValueError: The text is not a complete fingerprint.
    """
    plain = text.replace(" ", "").upper().removeprefix("0X")
    if len(plain) not in FINGERPRINT_LENGTHS or not re.fullmatch(r"[0-9A-F]+", plain):
        raise ValueError("it must have 40 or 64 hexadecimal digits; a key ID is not enough")
    return plain


def _unarmored(data: bytes) -> bytes:
    """Return the content of the single armored block in a text."""
    lines = [line.rstrip() for line in data.splitlines()]
    begins = [number for number, line in enumerate(lines) if line.startswith(_BLOCK)]
    if b"PRIVATE KEY" in data:
        raise ValueError("it contains a secret key; export the public key only")
    if not begins:
        raise ValueError(
            "it is neither text that begins with `-----BEGIN PGP PUBLIC KEY BLOCK-----` nor a binary key"
        )
    if len(begins) > 1:
        raise ValueError("it contains several blocks; only one key is allowed")
    begin = begins[0]
    if lines[begin] != _BEGIN:
        raise ValueError("its block is not a public key")
    if _END not in lines[begin:]:
        raise ValueError("its end is missing")
    inside = lines[begin + 1 : lines.index(_END, begin)]
    first = next((at for at, line in enumerate(inside) if line and not _HEADER.fullmatch(line)), len(inside))
    inside = inside[first:]
    checksum = inside.pop()[1:] if inside and _CHECKSUM.fullmatch(inside[-1]) else b""
    try:
        content = base64.b64decode(b"".join(inside), validate=True)
    except binascii.Error as err:
        raise ValueError("its text is not base64") from err
    if checksum and int.from_bytes(base64.b64decode(checksum)) != _crc24(content):
        raise ValueError("its checksum is wrong: the text is damaged")
    return content


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and body of each packet."""
    at = 0
    while at < len(data):
        header = data[at]
        if not header & 0x80:
            raise ValueError("it is not a binary key, or damaged")
        if header & 0x40:
            tag, (size, at) = header & 0x3F, _new_size(data, at + 1)
        else:
            tag, (size, at) = (header >> 2) & 0x0F, _old_size(data, at + 1, header & 3)
        if at + size > len(data):
            raise ValueError("its end is missing")
        yield tag, data[at : at + size]
        at += size
    if not data:
        raise ValueError("it is empty")


def _new_size(data: bytes, at: int) -> tuple[int, int]:
    """Return the size and position of a packet's body."""
    first = _number(data, at, 1)
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + _number(data, at + 1, 1) + 192, at + 2
    if first < 255:
        raise ValueError("it has a packet of partial length, which is not allowed in keys")
    return _number(data, at + 1, 4), at + 5


def _old_size(data: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind == 3:
        raise ValueError("it has a packet of unknown length, which is not allowed in keys")
    width = 1 << kind
    return _number(data, at, width), at + width


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise ValueError("its end is missing")
    return int.from_bytes(data[at : at + width])


def _fingerprint(body: bytes) -> str:
    if len(body) < _LEAST_KEY:
        raise ValueError("its key is damaged")
    version = body[0]
    if version == 4 and len(body) < 1 << 16:
        # it is infeasible to find another key with the same SHA-1; without the flag, hosts in FIPS mode refuse SHA-1
        digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2) + body, usedforsecurity=False)
        return digest.hexdigest().upper()
    if version == 6:
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4) + body).hexdigest().upper()
    raise ValueError(f"its key has version {version}; only versions 4 and 6 are supported")


def _crc24(data: bytes) -> int:
    table, crc = _crc24_table(), 0xB704CE
    for byte in data:
        crc = ((crc << 8) & 0xFFFFFF) ^ table[(crc >> 16) ^ byte]
    return crc


@cache
def _crc24_table() -> list[int]:
    table = []
    for number in range(256):
        value = number << 16
        for _ in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
        table.append(value & 0xFFFFFF)
    return table
